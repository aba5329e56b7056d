"""Predictions of a trained network for arrays, their metrics, streams, and text that it continues.

What was done to the training data (scaling, order of the steps, vocabulary) is done to new data too, from
description.json.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from .._checks import check_integer, check_number
from .._masked import as_array
from ..errors import ArgumentError, DataError, ShapeError
from .files.same_names import in_known_spelling
from .raw_sequences import is_whole, numbers, prepared, tokens
from .systems import SequenceModel
from .systems.streaming import Stream
from .tasks.characters import UNKNOWN_SYMBOL, UNKNOWN_WORD
from .tasks.decision_threshold import decided
from .tasks.forecast_metrics import uncrossed
from .tasks.regression_metrics import own_scores
from .tasks.target_transform import check_domain, in_units, transformed

_MANY = 20  # names that a message lists
_LONG = 200  # characters of a label
_UNSCALED = (("target_scale", 1.0), ("target_offset", 0.0))


class Prediction(NamedTuple):
    """scores: (B, O) or (B, T, O): probabilities in float32, or values in float64. labels: (B,) or (B, T), the winners,
    or None if the network predicts values."""

    scores: np.ndarray
    labels: np.ndarray | None


class Predictor:
    """A network with what description.json says of its inputs and outputs, and its threshold."""

    def __init__(self, model: SequenceModel, description: dict[str, Any], threshold: float | None = None) -> None:
        self.model, self.description, self.threshold = model, description, threshold

    @property
    def labels(self) -> list[str]:
        """The names of the outputs."""
        d = self.description
        names = d.get("labels") or (d.get("vocabulary") if d["says"] == "classes" else None)
        if names is None or len(names) != d["output_size"]:
            names = range(d["output_size"])
        return [str(name) for name in names]

    @torch.no_grad()
    def predict(self, sequences: Any, batch_size: int = 250) -> Prediction:
        """Return the predictions of the network for raw sequences: (B, T) or (B, T, I) numbers, (B, T) tokens, or
        strings.
        """
        outputs = self._outputs(sequences, batch_size)
        scores = self._scores(outputs).numpy()
        if self.description["says"] != "classes":
            return Prediction(scores, None)
        # An array of text takes four bytes per character of the longest label for every prediction.
        kind = object if max(map(len, self.labels), default=0) > _LONG else None
        return Prediction(scores, np.array(self.labels, kind)[decided(outputs, self.threshold).numpy()])

    @torch.no_grad()
    def evaluate(self, sequences: Any, targets: Any, batch_size: int = 250) -> dict[str, float]:
        """Return metrics, by the kind of output."""
        outputs = self._outputs(sequences, batch_size)
        if self.description["says"] != "classes":
            values = numbers("targets", targets)
            values = values[..., None] if values.ndim == outputs.dim() - 1 else values
            _check_targets(values.shape, tuple(outputs.shape))
            wanted = torch.from_numpy(values)
            if self.description["says"] == "probabilities":
                if not bool(((wanted >= 0) & (wanted <= 1)).all()):
                    raise DataError(
                        "Expected the targets to be probabilities, in most cases 0 or 1; some are not between them."
                    )
                nats = F.binary_cross_entropy_with_logits(outputs.double(), wanted, reduction="sum")
                return {"loss": float(nats) / wanted[..., 0].numel()}
            scale, offset = (self._target(name, value) for name, value in _UNSCALED)
            check_domain(values.ravel(), self.transform, lambda place: f"as target {place}")
            return {
                "loss": float(F.mse_loss(outputs.double(), (transformed(wanted, self.transform) - offset) / scale)),
                "mse": float(F.mse_loss(self._scores(outputs), wanted)),
                **own_scores(*(part.flatten(0, -2).numpy() for part in (self._scores(outputs), wanted))),
            }
        classes = self.classes(targets)
        _check_targets(classes.shape, tuple(outputs.shape[:-1]))
        flat, wanted = outputs.flatten(0, -2), torch.from_numpy(classes).flatten()
        right = (decided(flat, self.threshold) == wanted).double().mean()
        return {"loss": float(F.cross_entropy(flat, wanted)), "accuracy": float(right)}

    def _outputs(self, sequences: Any, batch_size: int) -> Tensor:
        """Return the outputs of the network, (B, O) or (B, T, O)."""
        check_integer("batch_size", batch_size, 1)
        return torch.cat(
            [self._batch_first(part) for part in prepared(sequences, self.description).split(batch_size, 1)]
        )

    def _scores(self, outputs: Tensor) -> Tensor:
        """Return outputs (..., O) as probabilities, or as values in their own units."""
        if self.description["says"] == "classes":
            return outputs.softmax(-1)
        if self.description["says"] == "probabilities":
            return outputs.sigmoid()
        scale, offset = (self._target(name, value) for name, value in _UNSCALED)
        return uncrossed(in_units(outputs.double() * scale + offset, self.transform), self._quantiles)

    @property
    def _quantiles(self) -> int:
        """How many quantiles of each forecast there are; 0 for none."""
        return len(self.description.get("quantiles") or ())

    @property
    def transform(self) -> str | None:
        """The transform of the targets."""
        return self.description.get("target_transform")

    def classes(self, targets: Any) -> np.ndarray:
        """Return the class numbers, int64, of labels. Numbers are class numbers, unless a label is itself a number."""
        found, names = as_array(targets), self.labels
        number = {name: index for index, name in enumerate(names)}
        named = any(_reads_as_number(name) for name in self.description.get("labels", ()))
        if found.dtype.kind in "iuf" and not named:
            number = {str(index): index for index in range(len(names))}
        wanted = [
            str(int(target)) if is_whole(target) and str(target) not in number else str(target)
            for target in found.ravel().tolist()
        ]
        wanted = in_known_spelling(np.array(wanted, object), number).tolist()
        unknown = sorted(set(wanted) - number.keys())
        if unknown:
            raise DataError(
                f"Expected classes that the network knows, {', '.join(list(number)[:_MANY])}"
                f"{', ...' if len(number) > _MANY else ''}, but got {', '.join(map(repr, unknown[:5]))}. "
                f"Correct them, or leave "
                f"such sequences out."
            )
        return np.array([number[target] for target in wanted], np.int64).reshape(found.shape)

    def _target(self, name: str, otherwise: float) -> Tensor:
        return torch.tensor(self.description.get(name, otherwise), dtype=torch.float64)

    def stream(self, tokens_or_values: Iterator[Any] | Sequence[Any], holds: np.ndarray | None) -> Iterator[np.ndarray]:
        """Yield the scores (O,) after each step. holds: at which inputs (I,) a missing value holds the state."""
        if self.description.get("order") is not None:
            raise ArgumentError(
                "Expected a network that reads steps in order to stream, but got a network that reorders them. "
                "Pass whole sequences to predict."
            )
        self._check_one_direction("to stream")
        stream = Stream(self.model)
        scores = np.full(self.description["output_size"], np.nan, np.float32)
        timed, waited = self.description.get("time_unit") is not None, 0.0
        for value in tokens_or_values:
            if holds is not None and _is_held(value, holds):
                waited += float(value[-1]) if timed else 0.0  # time passes while the state is held
            else:
                if waited:
                    value, waited = [*value[:-1], value[-1] + waited], 0.0
                scores = self._scores(stream(prepared([[value]], self.description, ordered=False)[0])[0]).numpy()
            yield scores

    def generate(self, prompt: str, temperature: float, seed: int, ahead: int, learned: str) -> Iterator[str]:
        """Yield symbols that continue a prompt. ahead: Symbols from input to prediction. learned: The task."""
        d, names = self.description, self.labels
        if d["input"] != "tokens" or d["output"] != "all" or d["says"] != "classes" or not d.get("vocabulary"):
            raise ArgumentError(
                f"Expected a network that predicts the next symbol of a text, but got a network for {learned}. Train "
                f"one with orthornn train characters."
            )
        if ahead != 1:
            raise ArgumentError(
                f"Expected a network that predicts one symbol ahead, but got {ahead} ahead. Train one with ahead=1."
            )
        self._check_one_direction("to generate text")
        check_number("temperature", temperature, 0)
        check_integer("seed", seed, 0, 2**63 - 1)
        stream, random = Stream(self.model), torch.Generator().manual_seed(seed)
        begin = prompt or ("\n" if "\n" in names else names[0])
        logits = torch.zeros(1, 1)
        for token in tokens([list(begin)], self.description):
            logits = stream(token)
        while True:
            if temperature < np.finfo(np.float64).tiny:  # 0, or what some processors count as 0
                token = logits.argmax(-1)
            else:
                below = logits.double() - logits.double().amax(-1, keepdim=True)  # so that no quotient is above 0
                token = torch.multinomial((below / temperature).softmax(-1), 1, generator=random)[:, 0]
            yield _spelled(names[int(token)])
            logits = stream(token)

    def _check_one_direction(self, purpose: str) -> None:
        if getattr(self.model.core, "bidirectional", False):
            raise ArgumentError(
                f"Expected a network of one direction {purpose}, but got a bidirectional {type(self.model.core).__name__}. "
                f"Train one without --bidirectional."
            )

    def _batch_first(self, inputs: Tensor) -> Tensor:
        outputs = self.model(inputs)
        return outputs if self.description["output"] == "last" else outputs.transpose(0, 1)


def _spelled(symbol: str) -> str:
    """Return a symbol as text: the one that stands for an unknown word as <unk>."""
    return UNKNOWN_WORD if symbol == UNKNOWN_SYMBOL else symbol


def _is_held(step: Any, holds: np.ndarray) -> bool:
    """Return whether a step lacks a value, and only of inputs that hold the state then."""
    try:
        gone = np.isnan(as_array(step).astype(np.float64))
    except (TypeError, ValueError):  # `prepare` says what is wrong
        return False
    return gone.shape == holds.shape and bool(gone.any() and holds[gone].all())


def _check_targets(got: tuple[int, ...], needed: tuple[int, ...]) -> None:
    if got != needed:
        raise ShapeError(f"Expected targets to have shape {needed}, but got {got}.")


def _reads_as_number(name: str) -> bool:
    try:
        float(name)
    except ValueError:
        return False
    return True
