"""The GRU with trained decay, GRU-D.

From Che et al., "Recurrent neural networks for multivariate time series with missing values", Scientific Reports 8, 2018.

At a step with values x, some of them missing, mask m (1 for a value, 0 for none) and the time d since the last value of each:

    gamma = exp(-max(0, W d + b))                       of the inputs, W diagonal, and of the state
    x'    = m x + (1 - m)(gamma_x last + (1 - gamma_x) mean)
    h'    = gamma_h h
    r, z  = sigmoid(U_r [x', m] + V_r h' + b_r), sigmoid(U_z [x', m] + V_z h' + b_z)
    n     = tanh(U_n [x', m] + V_n (r h') + b_n)
    h     = (1 - z) h' + z n
"""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class GRUD(nn.Module):
    """GRU-D on standardized inputs, whose mean is 0.

    Args:
        input_size: I.
        hidden_size: N.
    """

    def __init__(self, input_size: int, hidden_size: int) -> None:
        super().__init__()
        self.hidden_size = hidden_size
        self.input_decay = nn.Parameter(torch.zeros(2, input_size))
        self.state_decay = nn.Linear(input_size, hidden_size)
        self.inputs = nn.Linear(2 * input_size, 3 * hidden_size)
        bound = 1 / math.sqrt(hidden_size)
        self.gates = nn.Parameter(torch.empty(2 * hidden_size, hidden_size).uniform_(-bound, bound))
        self.candidate = nn.Parameter(torch.empty(hidden_size, hidden_size).uniform_(-bound, bound))

    def forward(self, values: Tensor, elapsed: Tensor) -> Tensor:
        """Return the states (T, B, N).

        Args:
            values: (T, B, I), NaN for a missing value.
            elapsed: (T, B), the time since the previous step.
        """
        mask, last, since = observed(values, elapsed)
        weight, bias = self.input_decay
        decay = torch.exp(-F.relu(weight * since + bias))
        filled = torch.where(mask, values.nan_to_num(), decay * last)
        inputs = self.inputs(torch.cat([filled, mask.to(values.dtype)], 2))
        decays = torch.exp(-F.relu(self.state_decay(since)))
        state, states = values.new_zeros(values.shape[1], self.hidden_size), []
        for of_gates, of_candidate, decay in zip(*inputs.split([2 * self.hidden_size, self.hidden_size], 2), decays):
            state = decay * state
            reset, update = torch.sigmoid(torch.addmm(of_gates, state, self.gates.T)).chunk(2, 1)
            found = torch.tanh(torch.addmm(of_candidate, reset * state, self.candidate.T))
            state = torch.lerp(state, found, update)
            states.append(state)
        return torch.stack(states)


def observed(values: Tensor, elapsed: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return a mask of the values (T, B, I) that are not NaN, the last value before each step (initially 0), and its age."""
    mask = ~values.isnan()
    last, since = torch.zeros_like(values), torch.zeros_like(values)
    for step in range(len(values)):
        before = mask[step - 1] if step else torch.ones_like(mask[0])
        since[step] = elapsed[step][:, None] + (since[step - 1] * ~before if step else 0)
        if step:
            last[step] = torch.where(before, values[step - 1], last[step - 1])
    return mask, last, since


class GRUDModel(nn.Module):
    """GRU-D with a linear readout of its last state, or of their mean; its last input is the time since the previous step."""

    def __init__(self, input_size: int, output_size: int, hidden_size: int, pool: Literal["last", "mean"]) -> None:
        super().__init__()
        self.pool = pool
        self.core = GRUD(input_size - 1, hidden_size)
        self.head = nn.Linear(hidden_size, output_size)

    def forward(self, inputs: Tensor) -> Tensor:
        """Return (B, O) from inputs (T, B, I)."""
        states = self.core(inputs[..., :-1], inputs[..., -1])
        output: Tensor = self.head(states[-1] if self.pool == "last" else states.mean(0))
        return output


def gru_d(input_size: int, output_size: int, parameters: int, pool: Literal["last", "mean"]) -> GRUDModel:
    """Return the widest model within a budget of parameters. The last input is the time."""
    width = 1
    while _count(input_size - 1, output_size, width + 1) <= parameters:
        width += 1
    return GRUDModel(input_size, output_size, width, pool)


def _count(inputs: int, outputs: int, width: int) -> int:
    of_core = 2 * inputs + (inputs + 1) * width + (2 * inputs + 1) * 3 * width + 3 * width * width
    return of_core + (width + 1) * outputs
