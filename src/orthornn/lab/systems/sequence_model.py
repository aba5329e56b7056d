"""A recurrent core with a head that reads its outputs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import PackedSequence

from ..._checks import check_choice
from ...errors import ArgumentError
from ...modules import GORU, OrthogonalBlocks, OrthogonalRNN, PeepholeLSTM, ReflectionRNN
from .model import Core


class SequenceModel(nn.Module):
    """A recurrent core and a head.

    core: OrthogonalRNN, OrthogonalBlocks, GORU, PeepholeLSTM, ReflectionRNN, or torch's RNN, LSTM or GRU; time-major.
    head: maps the core's output (N wide; 2N for a complex state, its real and imaginary parts) to the
        prediction: a matrix, or a perceptron.
    output: "all" reads out every step, "last" the last one.
    token_classes: I, if the input is int64 classes (T, B); None if it is real (T, B, I).
    """

    def __init__(
        self,
        core: Core,
        head: nn.Module,
        *,
        output: Literal["all", "last"] = "last",
        token_classes: int | None = None,
    ) -> None:
        super().__init__()
        check_choice("output", output, ("all", "last"))
        self.core = core
        self.head = head
        self.output = output
        self.token_classes = token_classes

    def forward(self, inputs: Tensor | PackedSequence) -> Tensor:
        """Return (T, B, O), or (B, O) where the output is "last", from inputs (T, B, I), or tokens int64 (T, B).

        A PackedSequence returns the rows of its data, (R, O), at every step, and (B, O) in the batch's own order at
        the last.
        """
        core = self.core
        if isinstance(core, OrthogonalRNN) and self.output == "all":
            return core.forward_readout(inputs, self.head)  # type: ignore[arg-type]
        if isinstance(core, (OrthogonalRNN, OrthogonalBlocks, GORU, PeepholeLSTM, ReflectionRNN)):
            states = core(inputs, output=self.output)[0]
        else:
            if self.token_classes is not None:
                inputs = _on_rows(inputs, self._one_hot)
            states, final = core(inputs)
            if self.output == "last":
                states = (final[0] if isinstance(final, tuple) else final)[-1]
        if isinstance(states, PackedSequence):
            states = states.data
        if states.is_complex():
            states = torch.view_as_real(states).flatten(-2)
        return self.head(states)

    def stream(self, inputs: Tensor, state: Any = None) -> tuple[Tensor, Any]:
        """Return the predictions (T, B, O) for a piece of a stream, and the core's state after it.

        state: what the piece before returned; None at the beginning.
        """
        if self.output != "all":
            raise ArgumentError(f"Expected a model that reads out every step, but got output={self.output!r}.")
        if isinstance(self.core, nn.RNNBase) and self.token_classes is not None:
            inputs = self._one_hot(inputs)
        states, state = self.core(inputs, state)
        if states.is_complex():
            states = torch.view_as_real(states).flatten(-2)
        return self.head(states), state

    def _one_hot(self, tokens: Tensor) -> Tensor:
        assert self.token_classes is not None
        return F.one_hot(tokens, self.token_classes).to(next(self.head.parameters()).dtype)

    def extra_repr(self) -> str:
        """Return what repr shows next to the modules."""
        return f"output={self.output!r}, token_classes={self.token_classes}"


def _on_rows(inputs: Tensor | PackedSequence, change: Callable[[Tensor], Tensor]) -> Tensor | PackedSequence:
    if not isinstance(inputs, PackedSequence):
        return change(inputs)
    return PackedSequence(change(inputs.data), inputs.batch_sizes, inputs.sorted_indices, inputs.unsorted_indices)
