"""A trained network in use: `orthornn.load(RUN).predict(sequences)`.

What was done to the training data (scaling, order of the steps, vocabulary) is done to new data too, from
description.json; the training data themselves are not needed.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from .errors import DataError, ShapeError
from .models import SequenceModel
from .training import RunConfig, load_model, read_description

_FORMATS = ".npy, .npz (x, and y to evaluate) or .csv (one sequence a line)"


class Prediction(NamedTuple):
    """scores: (B, O) or (B, T, O): probabilities of the classes, or values. labels: (B,) or (B, T), the winners, or
    None where the network says values."""

    scores: np.ndarray
    labels: np.ndarray | None


class Loaded:
    """A trained network with all that is needed to use it; made by `load`."""

    def __init__(self, config: RunConfig, model: SequenceModel, description: dict[str, Any]) -> None:
        self.config, self.model, self.description = config, model, description

    @property
    def labels(self) -> list[str]:
        """The names of the outputs."""
        d = self.description
        names = d.get("labels") or (d.get("vocabulary") if d["says"] == "classes" else None)
        return [str(name) for name in names or range(d["output_size"])]

    @torch.no_grad()
    def predict(self, sequences: Any, batch_size: int = 250) -> Prediction:
        """What the network says about raw sequences: (B, T) or (B, T, I) numbers, (B, T) tokens, or strings."""
        inputs = self.prepare(sequences)
        outputs = torch.cat([self._batch_first(part) for part in inputs.split(batch_size, 1)])
        if self.description["says"] == "values":
            return Prediction(outputs.numpy(), None)
        return Prediction(outputs.softmax(-1).numpy(), np.array(self.labels)[outputs.argmax(-1).numpy()])

    @torch.no_grad()
    def evaluate(self, sequences: Any, targets: Any, batch_size: int = 250) -> dict[str, float]:
        """Loss ("loss": cross-entropy in nats, or mean squared error) and, for classes, "accuracy"."""
        inputs = self.prepare(sequences)
        outputs = torch.cat([self._batch_first(part) for part in inputs.split(batch_size, 1)])
        wanted = torch.as_tensor(np.asarray(targets))
        if self.description["says"] == "values":
            if wanted.dim() == outputs.dim() - 1:
                wanted = wanted.unsqueeze(-1)
            _check_targets(tuple(wanted.shape), tuple(outputs.shape))
            return {"loss": float(F.mse_loss(outputs, wanted.to(outputs.dtype)))}
        _check_targets(tuple(wanted.shape), tuple(outputs.shape[:-1]))
        flat, wanted = outputs.flatten(0, -2), wanted.long().flatten()
        right = (flat.argmax(-1) == wanted).double().mean()
        return {"loss": float(F.cross_entropy(flat, wanted)), "accuracy": float(right)}

    def stream(self, tokens_or_values: Iterator[Any] | Sequence[Any]) -> Iterator[np.ndarray]:
        """What the network says after each step of one sequence, as it comes: raw steps in, raw outputs (O,) out.

        For networks whose core has a step function: OrthogonalRNN with one direction.
        """
        state = None
        for value in tokens_or_values:
            x = self.prepare([[value]], ordered=False)[0]
            with torch.no_grad():
                top, state = self.model.core.step(x, state)  # type: ignore[operator]
                top = torch.view_as_real(top).flatten(-2) if top.is_complex() else top
                yield self.model.head(top)[0].numpy()

    def prepare(self, sequences: Any, ordered: bool = True) -> Tensor:
        """Raw sequences as the network reads them: (T, B, I) float32, or (T, B) int64 tokens."""
        d = self.description
        if d["input"] == "tokens":
            return self._tokens(sequences)
        values = np.asarray(sequences, dtype=np.float32)
        if values.ndim == 2:
            values = values[:, :, None] if d["input_size"] == 1 else values.reshape(len(values), -1, d["input_size"])
        if values.ndim != 3 or values.shape[2] != d["input_size"] or values.shape[1] == 0:
            raise ShapeError(
                f"sequences must have shape (B, T, {d['input_size']}), or (B, T * {d['input_size']}) with the channels "
                f"of a step together; got {np.shape(sequences)}."
            )
        if not np.isfinite(values).all():
            raise DataError(f"the sequences hold {int((~np.isfinite(values)).sum())} values that are not finite.")
        scaled = values * np.float32(d.get("scale", 1)) + np.float32(d.get("offset", 0))
        if "order" in d and ordered:
            if scaled.shape[1] != len(d["order"]):
                raise ShapeError(f"sequences must have {len(d['order'])} steps; got {scaled.shape[1]}.")
            scaled = scaled[:, d["order"]]
        return torch.from_numpy(np.ascontiguousarray(scaled.transpose(1, 0, 2), dtype=np.float32))

    def _tokens(self, sequences: Any) -> Tensor:
        vocabulary = self.description.get("vocabulary")
        rows = [list(row) for row in sequences]
        if len({len(row) for row in rows}) != 1 or not rows[0]:
            raise ShapeError("sequences must be of one length, and not empty; predict those of other lengths apart.")
        if vocabulary is not None:
            number = {symbol: index for index, symbol in enumerate(vocabulary)}
            unknown = {symbol for row in rows for symbol in row if symbol not in number and not _is_integer(symbol)}
            if unknown:
                raise DataError(f"the network does not know {', '.join(map(repr, sorted(map(str, unknown))[:5]))}.")
            rows = [[number.get(symbol, symbol) for symbol in row] for row in rows]
        tokens = torch.tensor(rows, dtype=torch.int64)
        size = self.description["input_size"]
        if int(tokens.min()) < 0 or int(tokens.max()) >= size:
            raise DataError(f"tokens must lie in 0..{size - 1}; got {int(tokens.min())}..{int(tokens.max())}.")
        return tokens.t()

    def _batch_first(self, inputs: Tensor) -> Tensor:
        outputs = self.model(inputs)
        return outputs if self.description["output"] == "last" else outputs.transpose(0, 1)


def load(run: str | Path, checkpoint: str = "last") -> Loaded:
    """The trained network of a run directory. checkpoint: "last", "best" or a step; see training.load_model."""
    path = Path(run)
    config, model = load_model(path, checkpoint)
    return Loaded(config, model, read_description(path))


def read_sequences(path: Path, tokens: bool) -> tuple[np.ndarray, np.ndarray | None]:
    """Raw sequences, and their targets if the file has some. DataError for a file of another kind."""
    try:
        if path.suffix == ".npy":
            return np.load(path, allow_pickle=False), None
        if path.suffix == ".npz":
            with np.load(path, allow_pickle=False) as arrays:
                if "x" not in arrays:
                    raise DataError(f"{path} holds {', '.join(arrays)}; needed x (and y to evaluate).")
                return arrays["x"], arrays.get("y")
        if path.suffix == ".csv":
            return np.loadtxt(path, delimiter=",", ndmin=2, dtype=np.int64 if tokens else np.float32), None
    except DataError:
        raise
    except (OSError, ValueError, EOFError) as error:
        raise DataError(f"{path} cannot be read: {error}. Needed {_FORMATS}.") from error
    raise DataError(f"{path} is of an unknown kind; needed {_FORMATS}.")


def write_scores(path: Path, prediction: Prediction, labels: Sequence[str]) -> None:
    """A CSV: sequence, step where there is one prediction a step, label where there are classes, and the scores."""
    scores = prediction.scores
    steps = scores.ndim == 3
    heads = ["sequence", *(["step"] if steps else []), *([] if prediction.labels is None else ["label"])]
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow([*heads, *(f"score {label}" for label in labels)])
        for place in np.ndindex(scores.shape[:-1]):
            label = [] if prediction.labels is None else [prediction.labels[place]]
            writer.writerow([*place, *label, *(f"{score:.7g}" for score in scores[place])])


def _check_targets(got: tuple[int, ...], needed: tuple[int, ...]) -> None:
    if got != needed:
        raise ShapeError(f"targets must have shape {needed}; got {got}.")


def _is_integer(value: object) -> bool:
    return isinstance(value, (int, np.integer))
