"""Proximal policy optimization (Schulman et al., 2017) of an agent whose memory is a recurrent network.

Every update starts from the states at the beginning of the rollout; episodes that begin inside it restart from the initial
state, all in one call of the network. Minibatches consist of whole sequences of some environments. Rewards are divided by the
standard deviation of all discounted returns so far: gradients of values near 0.01 are small next to Adam's epsilon.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from orthornn.optim import param_groups

from .agent import Agent
from .environments import Environments

WINDOW = 65_536  # steps between two mean episodic returns: one training batch of the paper


@dataclass(frozen=True)
class Recipe:
    """The hyperparameters of an agent's training.

    Attributes:
        steps: Total environment steps. environments: Number in parallel, B. length: Steps of each between updates, T.
        epochs, minibatches: Passes over a rollout, and the number of groups of environments in each.
        lr: Learning rate of Adam, which falls linearly to zero. recurrent: Learning rate of W as a multiple of it.
        discount, trace: gamma and lambda of generalized advantage estimates. clip: Clipping of the probability ratio.
        entropy, value: Weights of these terms of the loss. norm: Largest norm of the gradient.
    """

    steps: int = 1_400_000
    environments: int = 64
    length: int = 128
    epochs: int = 4
    minibatches: int = 8
    lr: float = 1e-3
    recurrent: float = 0.1
    discount: float = 0.99
    trace: float = 0.95
    clip: float = 0.2
    entropy: float = 0.01
    value: float = 0.5
    norm: float = 0.5


@dataclass(frozen=True)
class Learned:
    """The results of a training.

    Attributes:
        means: Mean return of the episodes that ended in each WINDOW of steps. steps: Steps at the end of each window.
        seconds: Processor time in total; acting: the part spent by environments and agent during rollouts.
    """

    means: list[float]
    steps: list[int]
    seconds: float
    acting: float

    @property
    def best(self) -> float:
        """The best mean episodic return."""
        return max(self.means)


def learn(
    name: str, build: Callable[[int, Any], Agent], recipe: Recipe, seed: int, report: Callable[[str], None] = print
) -> Learned:
    """Train an agent in an environment.

    Args:
        name: Name of the environment.
        build: Builds the agent from the size of an observation and the action space.
        recipe: Hyperparameters.
        seed: Seed of initial values, environments and actions.
        report: Receives one line per window.
    """
    torch.manual_seed(seed)
    worlds = Environments(name, recipe.environments, seed)
    agent = build(worlds.input_size, worlds.action_space)
    groups = param_groups(agent, lr=recipe.lr, recurrent_lr=recipe.recurrent * recipe.lr)
    optimizer = torch.optim.Adam(groups, eps=1e-5, fused=True)
    rates = [group["lr"] for group in optimizer.param_groups]
    rollouts = max(1, recipe.steps // (recipe.environments * recipe.length))
    h = agent.memory.initial_states(recipe.environments).detach()
    scale = RewardScale(recipe.environments, recipe.discount)
    started, acting = time.process_time(), 0.0
    means: list[float] = []
    marks: list[int] = []
    for k in range(rollouts):
        begun = time.process_time()
        rollout, h = collect(agent, worlds, h, recipe, scale)
        acting += time.process_time() - begun
        for group, rate in zip(optimizer.param_groups, rates):
            group["lr"] = rate * (1 - k / rollouts)
        update(agent, optimizer, rollout, recipe)
        done = (k + 1) * recipe.environments * recipe.length
        if (done // WINDOW > (marks[-1] if marks else 0) // WINDOW or k == rollouts - 1) and worlds.returns:
            means.append(float(np.mean(worlds.returns)))
            marks.append(done)
            worlds.returns.clear()
            report(
                f"{name} seed {seed}: {done} steps, mean return {means[-1]:.4f}, {time.process_time() - started:.1f} s"
            )
    return Learned(means, marks, time.process_time() - started, acting)


@dataclass(frozen=True)
class Rollout:
    """Observations, actions and estimates of some steps, (T, B, ...); h: the states before, (L, B, S)."""

    h: Tensor
    seen: Tensor
    starts: Tensor
    actions: Tensor
    log_probs: Tensor
    advantages: Tensor
    targets: Tensor

    def of(self, which: Tensor) -> Rollout:
        """Return the part of some environments. which: Their indices."""
        parts = {field.name: getattr(self, field.name)[:, which] for field in dataclasses.fields(self)}
        return Rollout(**parts)


class RewardScale:
    """Divides rewards by the standard deviation of discounted returns, of all steps so far (Engstrom et al., 2020).

    Args:
        count: Number of environments, B.
        discount: gamma.
    """

    def __init__(self, count: int, discount: float) -> None:
        self.discount = discount
        self._returns = torch.zeros(count, dtype=torch.float64)
        self._count, self._sum, self._squares = 0, 0.0, 0.0

    def __call__(self, rewards: Tensor, ended: Tensor) -> Tensor:
        """Return scaled rewards (T, B), after having seen them.

        Args:
            rewards: (T, B), of the steps after those of the call before.
            ended: bool (T, B), whether the episode ended with the step.
        """
        for reward, end in zip(rewards.double(), ended):
            self._returns = reward + self.discount * self._returns
            self._count += len(reward)
            self._sum += self._returns.sum().item()
            self._squares += self._returns.square().sum().item()
            self._returns = torch.where(end, 0.0, self._returns)
        variance = self._squares / self._count - (self._sum / self._count) ** 2
        return rewards / max(variance, 1e-8) ** 0.5


@torch.no_grad()
def collect(
    agent: Agent, worlds: Environments, h: Tensor, recipe: Recipe, scale: RewardScale
) -> tuple[Rollout, Tensor]:
    """Return a rollout, and the states after it."""
    before, rows = h, []
    for _ in range(recipe.length):
        seen, starts = worlds.observe(), torch.from_numpy(worlds.starts)
        parameters, value, h = agent.step(seen, h, starts)
        actions = agent.actions.sample(parameters)
        rewards, ended = worlds.act(agent.actions.taken(actions))
        log_probs = agent.actions.log_prob(parameters, actions)
        rows.append((seen, starts, actions, log_probs, value, torch.from_numpy(rewards), torch.from_numpy(ended)))
    _, after, _ = agent.step(worlds.observe(), h, torch.from_numpy(worlds.starts))
    seen, starts, actions, log_probs, values, received, ends = (torch.stack(column) for column in zip(*rows))
    received = scale(received, ends)
    advantages = generalized_advantages(received, ends, values, after, recipe.discount, recipe.trace)
    return Rollout(before, seen, starts, actions, log_probs, advantages, advantages + values), h


def generalized_advantages(
    rewards: Tensor, ended: Tensor, values: Tensor, after: Tensor, discount: float, trace: float
) -> Tensor:
    """Return generalized advantage estimates (T, B) (Schulman et al., 2016).

    Args:
        rewards, values: (T, B), of each step and of the observation before it.
        ended: bool (T, B), whether the episode ended with the step; later rewards then do not count.
        after: The value (B,) of the observation after the last step.
        discount, trace: gamma and lambda.
    """
    goes_on = discount * (~ended).to(rewards.dtype)
    found = torch.empty_like(rewards)
    total = torch.zeros_like(after)
    for t in range(len(rewards) - 1, -1, -1):
        total = rewards[t] + goes_on[t] * after - values[t] + goes_on[t] * trace * total
        found[t], after = total, values[t]
    return found


def update(agent: Agent, optimizer: torch.optim.Optimizer, rollout: Rollout, recipe: Recipe) -> None:
    """Make the epochs of updates from one rollout."""
    count = rollout.seen.shape[1]
    for _ in range(recipe.epochs):
        for which in torch.randperm(count).chunk(recipe.minibatches):
            part = rollout.of(which)
            parameters, values = agent(part.seen, part.h, part.starts)
            loss = surrogate(agent.actions.log_prob(parameters, part.actions), part, recipe.clip)
            loss = loss + recipe.value * (values - part.targets).square().mean()
            loss = loss - recipe.entropy * agent.actions.entropy(parameters).mean()
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            nn.utils.clip_grad_norm_(agent.parameters(), recipe.norm)
            optimizer.step()


def surrogate(log_probs: Tensor, part: Rollout, clip: float) -> Tensor:
    """Return the clipped surrogate loss with normalized advantages."""
    advantages = (part.advantages - part.advantages.mean()) / (part.advantages.std() + 1e-8)
    ratio = (log_probs - part.log_probs).exp()
    return -torch.minimum(ratio * advantages, ratio.clamp(1 - clip, 1 + clip) * advantages).mean()
