"""A linear autoregression next to a network: a matrix that reads the last steps of the input.

    y_t = head(h_t) + A [x_t; x_{t-1}; ...; x_{t-k+1}]

Before the first step of a sequence its first input replaces the missing ones. Inputs that are values of later
steps, known ahead, are the last of each step; A reads them only at the newest step. For a forecast A begins as the
ridge regression of the training part, so training starts from linear autoregression; see tasks/forecast.py.
"""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pad_packed_sequence


class RecentSteps(nn.Module):
    """The matrix A.

    lags: k, how many steps it reads. input_size: I. output_size: O. known_inputs: J, how many of the inputs are values
    of later steps.
    """

    def __init__(self, lags: int, input_size: int, output_size: int, known_inputs: int = 0, **where: Any) -> None:
        super().__init__()
        self.lags, self.input_size, self.known_inputs = lags, input_size, known_inputs
        self.weight = nn.Parameter(torch.zeros(output_size, lags * (input_size - known_inputs) + known_inputs, **where))

    def forward(self, inputs: Tensor | PackedSequence, output: Literal["all", "last"]) -> Tensor:
        """Return the term added to the prediction: (T, B, O), (R, O) if packed, or (B, O) for the last steps."""
        if isinstance(inputs, PackedSequence):
            rows, lengths = pad_packed_sequence(inputs)
            steps = self.unfolded(rows)
            if output == "last":
                steps = steps[lengths - 1, torch.arange(rows.shape[1])]
            else:  # the order of a PackedSequence: step by step, the longest sequence first
                order = inputs.sorted_indices
                steps = steps if order is None else steps.index_select(1, order)
                steps = torch.cat([steps[t, :size] for t, size in enumerate(inputs.batch_sizes.tolist())])
        else:
            steps = self.unfolded(inputs)
            steps = steps[-1] if output == "last" else steps
        return steps @ self.weight.mT

    def unfolded(self, inputs: Tensor) -> Tensor:
        """Return the last steps at each step, the newest first: (T, B, k (I - J) + J) from (T, B, I)."""
        T = inputs.shape[0]
        places, own = torch.arange(T, device=inputs.device), inputs[..., : self._own]
        return torch.cat([inputs, *(own[(places - back).clamp(min=0)] for back in range(1, self.lags))], -1)

    def step(self, x: Tensor, before: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return (what is added after this step (B, O), the last steps (B, k (I - J) + J)).

        before: Those of the step before.
        """
        own = self._own
        if before is None:
            before = torch.cat([x, x[:, :own].repeat(1, self.lags - 1)], 1)
        else:
            earlier = torch.cat([before[:, :own], before[:, self.input_size :]], 1)
            before = torch.cat([x, earlier[:, : own * (self.lags - 1)]], 1)
        return before @ self.weight.mT, before

    @property
    def _own(self) -> int:
        return self.input_size - self.known_inputs

    def matrix(self) -> Tensor:
        """Return A as a matrix over all inputs of the last steps, (O, k I), with 0 for inputs that it does not read."""
        found = self.weight.new_zeros(self.weight.shape[0], self.lags, self.input_size)
        found[:, 0] = self.weight[:, : self.input_size]
        found[:, 1:, : self._own] = self.weight[:, self.input_size :].unflatten(1, (self.lags - 1, self._own))
        return found.flatten(1)

    def extra_repr(self) -> str:
        """Return the number of steps."""
        return f"lags={self.lags}" + f", known_inputs={self.known_inputs}" * bool(self.known_inputs)
