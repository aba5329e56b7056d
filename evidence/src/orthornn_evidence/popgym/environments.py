"""POPGym's environments, many in parallel.

Observations are flattened as gymnasium flattens spaces. If an environment declares that its observations need the previous
action (``obs_requires_prev_action``), they equal those of ``Antialias(PreviousAction(environment))``: they include the
previous action, initially zero, and whether the episode has just begun. Only this encoding is vectorized over the
environments; the package runs the rules.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from orthornn.errors import ArgumentError

Numbers = np.ndarray


class Features:
    """A vectorized version of gymnasium's ``flatten``.

    Attributes:
        size: Numbers per element.
    """

    def __init__(self, space: Any) -> None:
        from gymnasium import spaces

        self.size: int
        self.parts: list[Features] = []
        self.offsets: Numbers | None = None
        self.first = 0
        if isinstance(space, spaces.Tuple):
            self.parts = [Features(part) for part in space.spaces]
            self.size = sum(part.size for part in self.parts)
        elif isinstance(space, spaces.Discrete):
            self.size, self.first = int(space.n), int(space.start)
            self.offsets = np.zeros(1, np.int64)
        elif isinstance(space, spaces.MultiDiscrete):
            counts = space.nvec.ravel()
            self.size = int(counts.sum())
            self.offsets = np.cumsum(counts) - counts
        elif isinstance(space, spaces.Box):
            self.size = int(np.prod(space.shape))
        else:
            raise ArgumentError(
                f"Expected a Tuple, Discrete, MultiDiscrete or Box space, but got {space}. Choose another environment."
            )

    def __call__(self, elements: Sequence[Any]) -> Numbers:
        """Return float32 (B, size) of B elements."""
        if self.parts:
            return np.concatenate([part(own) for part, own in zip(self.parts, zip(*elements))], 1)
        rows = np.asarray(elements).reshape(len(elements), -1)
        if self.offsets is None:
            return rows.astype(np.float32)
        found = np.zeros((len(elements), self.size), np.float32)
        np.put_along_axis(found, rows - self.first + self.offsets, 1.0, 1)
        return found


def make(name: str) -> Any:
    """Return the class of an environment.

    Args:
        name: Name of a class of ``popgym.envs``, such as ``"RepeatPreviousHard"``.
    """
    import popgym.envs

    found = getattr(popgym.envs, name, None)
    if found is None:
        raise ArgumentError(f"Expected the name of an environment of popgym.envs, but got {name!r}. See ENVIRONMENTS.")
    return found


class Environments:
    """Several environments in parallel; when an episode ends, the next one begins.

    Args:
        name: Name of the environment, same as for `make`.
        count: B.
        seed: Seed of their random numbers.

    Attributes:
        sees_actions: Whether observations include the previous action.
        input_size: Numbers per observation, I.
        action_space: Action space of one environment.
        starts: bool (B,), whether the observation is the first of its episode.
        returns: Sums of rewards of the episodes that ended, in order; the reader empties it.
    """

    def __init__(self, name: str, count: int, seed: int) -> None:
        from popgym.wrappers import PreviousAction

        self.environments = [make(name)() for _ in range(count)]
        first = self.environments[0]
        self.action_space = first.action_space
        self._observed, self._acted = Features(first.observation_space), Features(first.action_space)
        self.sees_actions = bool(first.obs_requires_prev_action)
        self.input_size = self._observed.size + (self._acted.size + 2 if self.sees_actions else 0)
        self._null = PreviousAction.get_null_action(first.action_space)
        self._seen = [each.reset(seed=1_000_003 * seed + k)[0] for k, each in enumerate(self.environments)]
        self._actions = [self._null] * count
        self._so_far = np.zeros(count)
        self.starts = np.ones(count, bool)
        self.returns: list[float] = []

    def observe(self) -> Tensor:
        """Return float32 (B, I)."""
        seen = self._observed(self._seen)
        if not self.sees_actions:
            return torch.from_numpy(seen)
        begins = np.stack([~self.starts, self.starts], 1).astype(np.float32)
        return torch.from_numpy(np.concatenate([seen, self._acted(self._actions), begins], 1))

    def act(self, actions: Numbers) -> tuple[Numbers, Numbers]:
        """Return float32 rewards (B,) and whether each episode has ended, bool (B,); those begin the next.

        Args:
            actions: (B,) for a Discrete space, else (B, ...), each an element of the space.
        """
        rewards, ended = np.zeros(len(self.environments), np.float32), np.zeros(len(self.environments), bool)
        for k, environment in enumerate(self.environments):
            action = actions[k]
            seen, reward, terminated, truncated, _ = environment.step(action)
            rewards[k], ended[k] = reward, terminated or truncated
            self._so_far[k] += reward
            if ended[k]:
                self.returns.append(float(self._so_far[k]))
                self._so_far[k], action = 0.0, self._null
                seen, _ = environment.reset()
            self._seen[k], self._actions[k] = seen, action
        self.starts = ended
        return rewards, ended
