"""Raw sequences as a trained network reads them: scaled and ordered as its training data were, or as tokens."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from .._masked import as_array
from ..errors import DataError, ShapeError
from .files.cells import listed
from .tasks.target_transform import check_domain, transformed


def prepared(sequences: Any, description: dict[str, Any], ordered: bool = True) -> Tensor:
    """Return raw sequences as a network reads them: (T, B, I) float32, or (T, B) int64 tokens.

    description: Description of the run. ordered: Whether to put the steps into the order of the training data if it
        differs.
    """
    d = description
    if d["input"] == "tokens":
        return tokens(sequences, d)
    values = numbers("sequences", sequences)
    if values.ndim == 2 and values.shape[1] % d["input_size"] == 0:
        values = values.reshape(len(values), values.shape[1] // d["input_size"], d["input_size"])
    if values.ndim != 3 or values.shape[2] != d["input_size"] or values.size == 0:
        raise ShapeError(
            f"Expected sequences to have shape (B, T, {d['input_size']}), or (B, T * {d['input_size']}) with the "
            f"channels of a step together, but got {np.shape(sequences)}."
            + (f" A step has {listed(d['columns'])}." if d.get("columns") else "")
        )
    if d.get("series") and not np.isin(values[..., -1], np.arange(len(d["series"]) + 1)).all():
        raise DataError(
            f"Expected the number of a series as the last input, 0 to {len(d['series']) - 1} in the order of `series` in "
            f"description.json, or {len(d['series'])} for any other one."
        )
    if d.get("time_unit") and not (values[..., -1] > 0).all():
        raise DataError(
            f"Expected the time since the step before, above 0, as the last input of a step, but got "
            f"{values[..., -1].min():g}. Of a first step any time counts."
        )
    values = _transformed(values, d) if d.get("transformed_inputs") else values
    scaled = values * np.asarray(d.get("scale", 1)) + np.asarray(d.get("offset", 0))
    if "order" in d and ordered:
        if scaled.shape[1] != len(d["order"]):
            raise ShapeError(f"Expected sequences to have {len(d['order'])} steps, but got {scaled.shape[1]}.")
        scaled = scaled[:, d["order"]]
    return torch.from_numpy(np.ascontiguousarray(scaled.transpose(1, 0, 2), dtype=np.float32))


def tokens(sequences: Any, description: dict[str, Any]) -> Tensor:
    """Return sequences of symbols or numbers as tokens (T, B) int64."""
    vocabulary, size = description.get("vocabulary"), description["input_size"]
    rows = _listed(sequences)
    rows = [_listed(row) for row in rows] if isinstance(rows, (list, tuple)) else []
    if not all(isinstance(row, (str, list, tuple)) for row in rows) or not rows:
        raise ShapeError("Expected sequences to be several, each with its steps: (B, T) tokens, or a list of strings.")
    if len({len(row) for row in rows}) != 1 or not len(rows[0]):
        raise ShapeError(
            "Expected sequences to be of one length, and not empty; predict sequences of other lengths separately."
        )
    number = {symbol: index for index, symbol in enumerate(vocabulary or ())}
    found = [[number.get(symbol, symbol) if isinstance(symbol, str) else symbol for symbol in row] for row in rows]
    unknown = sorted({repr(symbol) for row in found for symbol in row if not is_whole(symbol)})
    if unknown:
        known = f"the {len(number)} symbols of its text" if number else f"whole numbers in 0..{size - 1}"
        raise DataError(f"Expected {known}, but got {', '.join(unknown[:5])}. Leave them out, or train with them.")
    found_tokens = torch.tensor([[int(symbol) for symbol in row] for row in found])
    if int(found_tokens.min()) < 0 or int(found_tokens.max()) >= size:
        raise DataError(
            f"Expected tokens in 0..{size - 1}, but got {int(found_tokens.min())}..{int(found_tokens.max())}."
        )
    return found_tokens.t()


def numbers(what: str, given: Any) -> np.ndarray:
    """Return the argument as float64. Raise ShapeError or DataError unless it is an array of numbers that fit
    float32.
    """
    try:
        array = as_array(given)
    except ValueError as error:
        raise ShapeError(
            f"Expected {what} of one length, but got unequal lengths. Predict sequences of other lengths separately."
        ) from error
    if array.dtype.kind not in "buif":
        raise DataError(f"Expected the {what} to be real numbers, but got {array.dtype}.")
    array = array.astype(np.float64)
    finite = np.abs(array) <= np.finfo(np.float32).max
    if not finite.all():
        count = int((~finite).sum())
        raise DataError(
            f"Expected numbers that float32 holds, but the {what} hold {count} values that are not finite. Fill them in, or "
            f"leave such sequences out."
        )
    return array


def _transformed(values: np.ndarray, description: dict[str, Any]) -> np.ndarray:
    """Return raw inputs (B, T, I) with the past of the targets as the network reads it: transformed."""
    found, how, names = values.copy(), description["target_transform"], description["columns"]
    for place in description["transformed_inputs"]:
        own, steps = values[..., place], values.shape[1]

        def where(row: int, what: str = f"as input {names[place]!r}", steps: int = steps) -> str:
            return what if values.shape[:2] == (1, 1) else f"{what} of sequence {row // steps}, step {row % steps}"

        check_domain(own.ravel(), how, where)
        found[..., place] = transformed(own, how)
    return found


def is_whole(value: object) -> bool:
    """Return whether a value is a whole number."""
    return isinstance(value, int) or (isinstance(value, float) and value.is_integer())


def _listed(values: Any) -> Any:
    """Return arrays and tensors as lists."""
    return values.tolist() if hasattr(values, "tolist") else values
