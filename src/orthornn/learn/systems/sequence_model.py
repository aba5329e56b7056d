"""A recurrent core with a head that reads its outputs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import PackedSequence

from ..._checks import check_choice, check_number
from ...errors import ArgumentError
from ...modules import GORU, DeltaRNN, OrthogonalBlocks, OrthogonalRNN, PeepholeLSTM, ReflectionRNN
from ...modules.overview import network_html
from .model import Core
from .onednn import lstm_context
from .padded import run_padded, runs_padded
from .pooling import POOLS, Pool, pooled
from .recent_steps import RecentSteps
from .series_vectors import SeriesVectors

OWN = (OrthogonalRNN, OrthogonalBlocks, GORU, PeepholeLSTM, ReflectionRNN, DeltaRNN)
"""Cores that are not torch's."""


class Read(NamedTuple):
    """The parts of an input: for the core, for `recent`, and the times of the core by the name of its argument, none of
    a core that takes none.
    """

    core: Any
    recent: Any
    times: dict[str, Any]


class SequenceModel(nn.Module):
    """A recurrent core and a head.

    core: OrthogonalRNN, OrthogonalBlocks, GORU, PeepholeLSTM, ReflectionRNN, DeltaRNN, or torch's RNN, LSTM or GRU;
        time-major.
    head: maps the core's output (N wide; 2N for a complex state, its real and imaginary parts) to the
        prediction: a matrix, or a perceptron.
    output: "all" reads out every step, "last" the last one.
    token_classes: I, if the input is int64 classes (T, B); None if it is real (T, B, I).
    pool: Input of the head if the output is "last": the last output, the mean of all, or a summary; see pooling.py.
    dropout: Probability of zeroing an input of the head, in training.
    recent: a matrix that reads the last steps of the input directly, and is added to the prediction; see
        recent_steps.py.
    series: vectors of series, if the last input is the number of one; see series_vectors.py.
    elapsed: whether the last input is the time since the step before, over which the core moves its state.
    """

    def __init__(
        self,
        core: Core,
        head: nn.Module,
        *,
        output: Literal["all", "last"] = "last",
        token_classes: int | None = None,
        pool: Pool = "last",
        dropout: float = 0.0,
        recent: RecentSteps | None = None,
        series: SeriesVectors | None = None,
        elapsed: bool = False,
    ) -> None:
        super().__init__()
        check_choice("output", output, ("all", "last"))
        check_choice("pool", pool, POOLS)
        self.pool: Pool = pool
        self.dropout = check_number("dropout", dropout, 0.0, 1.0)
        self.core = core
        self.head = head
        self.recent = recent
        self.series = series
        self.elapsed = elapsed
        self.output = output
        self.token_classes = token_classes

    def forward(self, inputs: Tensor | PackedSequence) -> Tensor:
        """Return (T, B, O), or (B, O) if the output is "last", from inputs (T, B, I), or tokens int64 (T, B).

        A PackedSequence returns the rows of its data, (R, O), at every step, and (B, O) in the batch's own order at
        the last.
        """
        core = self.core
        inputs, given, times = self.read(inputs)
        plain = self.output == "all" and not (self.training and self.dropout)
        if isinstance(core, OrthogonalRNN) and plain:
            prediction = core.forward_readout(inputs, self.head, **times)  # type: ignore[arg-type]
        else:
            prediction = self.head(F.dropout(self._features(inputs, times), self.dropout, self.training))
        return prediction if self.recent is None else prediction + self.recent(given, self.output)

    def read(self, inputs: Any) -> Read:
        """Return the input of the parts, (T, B, ...) or packed, or for one step (B, ...)."""
        if self.series is None and not self.elapsed:
            return Read(inputs, inputs, {})
        rest = _on_rows(inputs, lambda rows: rows[..., :-1])
        if self.series is not None:
            return Read(_on_rows(inputs, self.series), rest, {})
        return Read(rest, rest, {"dt": _on_rows(inputs, lambda rows: rows[..., -1])})

    def _features(self, inputs: Tensor | PackedSequence, times: dict[str, Any]) -> Tensor:
        """Return the head's input: (T, B, F), (R, F) if packed, or (B, F) if the output is "last"."""
        core, own = self.core, isinstance(self.core, OWN)
        if self.needs_one_hot:
            inputs = _on_rows(inputs, self._one_hot)
        if self.output == "last" and self.pool == "last" and own:
            return _real(core(inputs, output="last", **times)[0])
        outputs, last = self._outputs(inputs, times)
        if self.output == "all":
            return outputs.data if isinstance(outputs, PackedSequence) else outputs
        return pooled(outputs, last, self.pool)

    def _outputs(
        self, inputs: Tensor | PackedSequence, times: dict[str, Any]
    ) -> tuple[Tensor | PackedSequence, Tensor | None]:
        """Return the outputs at every step, and what `pooled` wants to know of the last ones."""
        with lstm_context(self.core):
            if runs_padded(self.core, inputs):
                return run_padded(self.core, inputs)  # type: ignore[arg-type]
            outputs, final = self.core(inputs, **times)
        return _on_rows(outputs, _real), self._last(final)

    def _last(self, final: Tensor | tuple[Tensor, ...]) -> Tensor | None:
        """Return the last outputs (B, F) from the final states, if the outputs of the last step differ from them."""
        if isinstance(self.core, OWN) and not isinstance(self.core, OrthogonalRNN):
            return None
        states = final if isinstance(final, Tensor) else final[0]
        if not self.core.bidirectional:
            return _real(states[-1])
        return _real(torch.cat([states[-2], states[-1]], -1))

    @property
    def needs_one_hot(self) -> bool:
        """Whether the core reads tokens as vectors only."""
        return self.token_classes is not None and not isinstance(self.core, OWN)

    def stream(self, inputs: Tensor, state: Any = None) -> tuple[Tensor, Any]:
        """Return the predictions (T, B, O) for a piece of a stream, and the core's state after it.

        state: what the piece before returned; None at the beginning.
        """
        if self.output != "all":
            raise ArgumentError(f"Expected a model that reads out every step, but got output={self.output!r}.")
        if self.recent is not None:
            raise ArgumentError("Expected a model without lags for a stream in pieces, but got some. Leave them out.")
        inputs, _, times = self.read(inputs)
        if self.needs_one_hot:
            inputs = self._one_hot(inputs)
        with lstm_context(self.core):
            states, state = self.core(inputs, state, **times)
        if states.is_complex():
            states = torch.view_as_real(states).flatten(-2)
        return self.head(states), state

    def _one_hot(self, tokens: Tensor) -> Tensor:
        assert self.token_classes is not None
        return F.one_hot(tokens, self.token_classes).to(next(self.head.parameters()).dtype)

    _repr_html_ = network_html

    def extra_repr(self) -> str:
        """Return the text that repr shows next to the modules."""
        more = "" if self.pool == "last" else f", pool={self.pool!r}"
        return f"output={self.output!r}, token_classes={self.token_classes}{more}"


def _real(outputs: Tensor) -> Tensor:
    """Return complex outputs as real ones, real and imaginary part side by side."""
    return torch.view_as_real(outputs).flatten(-2) if outputs.is_complex() else outputs


def _on_rows(inputs: Tensor | PackedSequence, change: Callable[[Tensor], Tensor]) -> Tensor | PackedSequence:
    if not isinstance(inputs, PackedSequence):
        return change(inputs)
    return PackedSequence(change(inputs.data), inputs.batch_sizes, inputs.sorted_indices, inputs.unsorted_indices)
