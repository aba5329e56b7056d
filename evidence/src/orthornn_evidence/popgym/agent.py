"""An agent with a memory: observations -> a recurrent network -> a policy and a value."""

from __future__ import annotations

from itertools import pairwise
from typing import Any, Literal, get_args

import numpy as np
import torch
from torch import Tensor, nn

from orthornn import OrthogonalBlocks
from orthornn._checks import check_choice
from orthornn.errors import ArgumentError

Memory = Literal["blocks", "gru", "lstm"]
MEMORIES: tuple[str, ...] = get_args(Memory)
FEATURES, STATES, INNER = 128, 512, 128  # outputs of the memory, units of the recurrence, units of the policy and value


class GatedMemory(nn.Module):
    """torch's GRU or LSTM, called once per run of steps between two restarts of any sequence, and a linear output.

    States are (1, B, S); an LSTM's have its outputs first, then its cells.
    """

    def __init__(self, kind: type[nn.GRU] | type[nn.LSTM], input_size: int, features: int, hidden_size: int) -> None:
        super().__init__()
        self.rnn = kind(input_size, hidden_size)
        self.out = nn.Linear(hidden_size, features)
        self.has_cells = kind is nn.LSTM

    def initial_states(self, batch: int) -> Tensor:
        """Return zeros (1, B, S)."""
        return torch.zeros(1, batch, self.rnn.hidden_size * (2 if self.has_cells else 1))

    def forward(self, x: Tensor, h: Tensor, reset: Tensor) -> tuple[Tensor, Tensor]:
        """Return outputs (T, B, features) and the last state (1, B, S); same arguments as OrthogonalBlocks."""
        places = reset.any(1).nonzero().flatten().tolist()
        bounds = sorted({0, *places, len(x)})
        out = []
        for first, last in pairwise(bounds):
            h = torch.where(reset[first, :, None], 0, h)
            states = tuple(h.chunk(2, -1)) if self.has_cells else h
            outputs, states = self.rnn(x[first:last], states)
            h = torch.cat(states, -1) if self.has_cells else states
            out.append(outputs)
        return self.out(torch.cat(out)), h

    def step(self, x: Tensor, h: Tensor, reset: Tensor) -> tuple[Tensor, Tensor]:
        """Return the output (B, features) and the state (1, B, S) of one step."""
        out, h = self(x[None], h, reset[None])
        return out[0], h


class DiscreteActions:
    """One or more independent choices. counts: Number of options of each."""

    def __init__(self, counts: tuple[int, ...], is_single: bool) -> None:
        self.counts, self.is_single = counts, is_single
        self.size = sum(counts)

    def sample(self, logits: Tensor) -> Tensor:
        """Return actions (B, number of choices)."""
        parts = (part.softmax(-1).multinomial(1) for part in logits.split(self.counts, -1))
        return torch.cat(list(parts), -1)

    def taken(self, actions: Tensor) -> np.ndarray:
        """Return actions as environments take them."""
        return actions[:, 0].numpy() if self.is_single else actions.numpy()

    def log_prob(self, logits: Tensor, actions: Tensor) -> Tensor:
        """Return log probabilities (...)."""
        parts = zip(logits.split(self.counts, -1), actions.split(1, -1))
        return sum(part.log_softmax(-1).gather(-1, chosen).squeeze(-1) for part, chosen in parts)

    def entropy(self, logits: Tensor) -> Tensor:
        """Return entropies (...)."""
        logs = [part.log_softmax(-1) for part in logits.split(self.counts, -1)]
        return -sum((log.exp() * log).sum(-1) for log in logs)


class ContinuousActions:
    """Independent normal variables with trained deviations; actions are clipped to the bounds."""

    def __init__(self, space: Any) -> None:
        self.low, self.high, self.shape = space.low, space.high, space.shape
        self.count = int(np.prod(space.shape))
        self.size = 2 * self.count

    def _normal(self, parameters: Tensor) -> torch.distributions.Normal:
        mean, log = parameters.split(self.count, -1)
        return torch.distributions.Normal(mean, log.clamp(-4, 1).exp(), validate_args=False)

    def sample(self, parameters: Tensor) -> Tensor:
        """Return actions (B, count)."""
        return self._normal(parameters).sample()

    def taken(self, actions: Tensor) -> np.ndarray:
        """Return actions as environments take them."""
        return np.clip(actions.numpy().reshape(-1, *self.shape), self.low, self.high)

    def log_prob(self, parameters: Tensor, actions: Tensor) -> Tensor:
        """Return log densities (...)."""
        return self._normal(parameters).log_prob(actions).sum(-1)

    def entropy(self, parameters: Tensor) -> Tensor:
        """Return entropies (...)."""
        return self._normal(parameters).entropy().sum(-1)


def actions_of(space: Any) -> DiscreteActions | ContinuousActions:
    """Return the distribution of actions of a space."""
    from gymnasium import spaces

    if isinstance(space, spaces.Discrete):
        return DiscreteActions((int(space.n),), True)
    if isinstance(space, spaces.MultiDiscrete):
        return DiscreteActions(tuple(int(count) for count in space.nvec.ravel()), False)
    if isinstance(space, spaces.Box):
        return ContinuousActions(space)
    raise ArgumentError(
        f"Expected a Discrete, MultiDiscrete or Box action space, but got {space}. Choose another environment."
    )


class Agent(nn.Module):
    """A recurrent network whose outputs are read by a policy and a value.

    Args:
        input_size: Numbers per observation, I.
        space: Action space.
        memory: ``"blocks"``, one OrthogonalBlocks; ``"gru"`` or ``"lstm"``, with the same number of parameters.
    """

    def __init__(self, input_size: int, space: Any, memory: Memory) -> None:
        super().__init__()
        check_choice("memory", memory, MEMORIES)
        self.memory: OrthogonalBlocks | GatedMemory = OrthogonalBlocks(input_size, FEATURES, STATES, decay=False)
        if memory != "blocks":
            kind = nn.GRU if memory == "gru" else nn.LSTM
            units = equal_units(kind, input_size, sum(p.numel() for p in self.memory.parameters()))
            self.memory = GatedMemory(kind, input_size, FEATURES, units)
        self.actions = actions_of(space)
        self.policy = nn.Sequential(nn.Linear(FEATURES, INNER), nn.Tanh(), nn.Linear(INNER, self.actions.size))
        self.value = nn.Sequential(nn.Linear(FEATURES, INNER), nn.Tanh(), nn.Linear(INNER, 1))
        with torch.no_grad():
            for parameter in self.policy[-1].parameters():  # at first, all actions are about as likely
                parameter.mul_(0.01)

    def forward(self, x: Tensor, h: Tensor, starts: Tensor) -> tuple[Tensor, Tensor]:
        """Return parameters of the policy (T, B, ...) and values (T, B).

        Args:
            x: Observations (T, B, I).
            h: States before, (L, B, S).
            starts: bool (T, B), True if an episode starts at this step.
        """
        out, _ = self.memory(x, h, reset=starts)
        return self.policy(out), self.value(out).squeeze(-1)

    def step(self, x: Tensor, h: Tensor, starts: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return parameters of the policy (B, ...), values (B,) and states of one step."""
        out, h = self.memory.step(x, h, reset=starts)
        return self.policy(out), self.value(out).squeeze(-1), h


def equal_units(kind: type[nn.GRU] | type[nn.LSTM], input_size: int, parameters: int) -> int:
    """Return the units with which a gated memory has the number of parameters, or the next one below."""
    gates = 3 if kind is nn.GRU else 4

    def count(units: int) -> int:
        return gates * units * (input_size + units + 2) + (units + 1) * FEATURES

    units = 1
    while count(units + 1) <= parameters:
        units += 1
    return units
