"""Proximal policy optimization of an agent that remembers, in one file: python examples/ppo_memory.py --help

The default environment is CartPole without its velocities, which the agent must infer from what it has seen:

    python examples/ppo_memory.py
    python examples/ppo_memory.py --env-id Pendulum-v1 --hide 2 --total-timesteps 1000000
    python examples/ppo_memory.py --env-id popgym-RepeatPreviousHard-v0 --hide   (needs `pip install popgym`)

The recurrent network appears in two places. A rollout steps it: `memory.step(x, h, reset=starts)`. An update recomputes the
states of whole rollouts with one call, `memory(x, h, reset=starts)`, in which episodes start anywhere: there is no loop over
time in Python. Minibatches are the rollouts of some environments.
"""

from __future__ import annotations

import argparse
import dataclasses
import time
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from torch import Tensor, nn
from torch.distributions import Categorical, Distribution, Independent, Normal

from orthornn import OrthogonalBlocks
from orthornn.optim import param_groups


def option(default: Any, meaning: str) -> Any:
    """Return a field of Args with its help."""
    return dataclasses.field(default=default, metadata={"help": meaning})


@dataclass
class Args:
    """Options of the command line."""

    env_id: str = option("CartPole-v1", "the environment, of gymnasium or of popgym")
    hide: tuple[int, ...] = option((1, 3), "numbers of a vector observation that the agent does not see")
    seed: int = option(1, "of environments, initial values and actions")
    total_timesteps: int = option(300_000, "steps of all environments together")
    num_envs: int = option(16, "environments side by side")
    num_steps: int = option(128, "steps of each between two updates")
    num_minibatches: int = option(4, "groups of environments per epoch")
    update_epochs: int = option(4, "passes over a rollout")
    features: int = option(64, "outputs of the memory")
    state_size: int = option(128, "units of the recurrence")
    learning_rate: float = option(3e-3, "of Adam, falling linearly to zero; a tenth of it for the recurrent matrix")
    gamma: float = option(0.99, "discount")
    gae_lambda: float = option(0.95, "of generalized advantage estimation")
    clip_coef: float = option(0.2, "largest change of a probability's ratio that is rewarded")
    ent_coef: float = option(0.01, "weight of the entropy")
    vf_coef: float = option(0.5, "weight of the value's error")
    max_grad_norm: float = option(0.5, "largest norm of the gradient")
    track: bool = option(False, "write TensorBoard events into runs/")


def parse(arguments: list[str] | None = None) -> Args:
    """Return the options of a command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for field in dataclasses.fields(Args):
        kind: dict[str, Any] = {"type": type(field.default)}
        if field.name == "hide":
            kind = {"type": int, "nargs": "*"}
        elif field.name == "track":
            kind = {"action": argparse.BooleanOptionalAction}
        flag = "--" + field.name.replace("_", "-")
        meaning = f"{field.metadata['help']} ({field.default})"
        parser.add_argument(flag, default=field.default, help=meaning, **kind)
    return Args(**vars(parser.parse_args(arguments)))


def make_env(env_id: str, hide: tuple[int, ...]) -> gymnasium.Env:
    """Return an environment with vectors of numbers as observations, without those to hide."""
    if env_id.startswith("popgym"):
        import popgym  # noqa: F401  registers its environments

    env = gymnasium.wrappers.FlattenObservation(gymnasium.make(env_id))
    assert isinstance(env.observation_space, spaces.Box)
    shown = np.setdiff1d(np.arange(env.observation_space.shape[0]), hide)
    space = spaces.Box(-np.inf, np.inf, shown.shape, np.float32)
    return gymnasium.wrappers.TransformObservation(env, lambda seen: seen[shown].astype(np.float32), space)


class Agent(nn.Module):
    """A policy and a value that read one memory."""

    def __init__(self, inputs: int, actions: spaces.Space, args: Args) -> None:
        super().__init__()
        self.is_discrete = isinstance(actions, spaces.Discrete)
        assert self.is_discrete or isinstance(actions, spaces.Box), "Expected a Discrete or Box action space."
        outputs = int(actions.n) if self.is_discrete else int(np.prod(actions.shape))  # type: ignore[attr-defined]
        self.memory = OrthogonalBlocks(inputs, args.features, args.state_size, decay=False)
        self.actor = nn.Sequential(nn.Linear(args.features, 64), nn.Tanh(), nn.Linear(64, outputs))
        self.critic = nn.Sequential(nn.Linear(args.features, 64), nn.Tanh(), nn.Linear(64, 1))
        self.log_deviation = None if self.is_discrete else nn.Parameter(torch.zeros(outputs))
        with torch.no_grad():
            self.actor[-1].weight.mul_(0.01)  # at first, all actions are about as likely
            self.actor[-1].bias.zero_()

    def act(self, seen: Tensor, h: Tensor, starts: Tensor) -> tuple[Distribution, Tensor, Tensor]:
        """Return the policy, values (B,) and the state after one step.

        Args:
            seen: Observations (B, I).
            h: The state before, (L, B, S).
            starts: bool (B,), whether an episode starts with the step: from the initial state, whatever h is.
        """
        out, h = self.memory.step(seen, h, reset=starts)
        return self.policy(out), self.critic(out).squeeze(-1), h

    def evaluate(self, seen: Tensor, h: Tensor, starts: Tensor) -> tuple[Distribution, Tensor]:
        """Return the policy and values (T, B) of whole rollouts, in one call; seen (T, B, I), starts (T, B)."""
        out, _ = self.memory(seen, h, reset=starts)
        return self.policy(out), self.critic(out).squeeze(-1)

    def policy(self, out: Tensor) -> Distribution:
        """Return the distribution of actions, from outputs of the memory."""
        if self.log_deviation is None:
            return Categorical(logits=self.actor(out))
        return Independent(Normal(self.actor(out), self.log_deviation.exp()), 1)


@dataclass
class Rollout:
    """What the agent saw and did, (T, B, ...), and its state before, (L, B, S)."""

    h: Tensor
    seen: Tensor
    starts: Tensor
    actions: Tensor
    log_probs: Tensor
    values: Tensor
    rewards: Tensor
    ended: Tensor
    after: Tensor

    def of(self, which: Tensor, advantages: Tensor) -> tuple[Rollout, Tensor]:
        """Return the rollout of some environments, with advantages."""
        parts = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        mine = {name: part[which] if name == "after" else part[:, which] for name, part in parts.items()}
        return Rollout(**mine), advantages[:, which]


class Player:
    """Environments, and the agent's state in them."""

    def __init__(self, args: Args) -> None:
        def build() -> gymnasium.Env:
            return make_env(args.env_id, args.hide)

        # An episode that ends is followed by the first observation of the next one, in the same step.
        self.envs = SyncVectorEnv([build] * args.num_envs, autoreset_mode=AutoresetMode.SAME_STEP)
        self.inputs = int(self.envs.single_observation_space.shape[0])  # type: ignore[index]
        self.actions = self.envs.single_action_space
        self.seen = torch.from_numpy(self.envs.reset(seed=args.seed)[0])
        self.starts = torch.ones(args.num_envs, dtype=torch.bool)
        self.so_far = np.zeros(args.num_envs)
        self.returns: list[float] = []
        self.h: Tensor | None = None

    @torch.no_grad()
    def play(self, agent: Agent, args: Args) -> Rollout:
        """Return what the agent does in the next `num_steps` steps."""
        if self.h is None:
            self.h = agent.memory.initial_states(args.num_envs)
        before, rows = self.h, []
        for _ in range(args.num_steps):
            seen, starts = self.seen, self.starts
            policy, value, self.h = agent.act(seen, self.h, starts)
            action = policy.sample()
            given = action.numpy()
            if isinstance(self.actions, spaces.Box):
                given = np.clip(given.reshape(-1, *self.actions.shape), self.actions.low, self.actions.high)
            found, reward, terminated, truncated, infos = self.envs.step(given)
            self.so_far += reward
            ended = terminated | truncated
            self.returns += self.so_far[ended].tolist()
            self.so_far[ended] = 0
            reward = torch.as_tensor(reward, dtype=torch.float32)
            if truncated.any():  # by a limit of time: what would have followed counts
                final = seen.clone()
                final[ended] = torch.from_numpy(np.stack(infos["final_obs"][ended]))
                beyond = agent.act(final, self.h, torch.zeros_like(starts))[1]
                reward += args.gamma * beyond * torch.from_numpy(truncated & ~terminated)
            self.seen, self.starts = torch.from_numpy(found), torch.from_numpy(ended)
            rows.append((seen, starts, action, policy.log_prob(action), value, reward, self.starts))
        after = agent.act(self.seen, self.h, self.starts)[1]
        return Rollout(before, *(torch.stack(column) for column in zip(*rows)), after)


def advantages_of(rollout: Rollout, gamma: float, gae_lambda: float) -> Tensor:
    """Return generalized advantage estimates (T, B); nothing after the end of an episode counts."""
    total, after, found = torch.zeros_like(rollout.after), rollout.after, []
    for reward, value, ended in zip(rollout.rewards.flip(0), rollout.values.flip(0), rollout.ended.flip(0)):
        goes_on = gamma * ~ended
        total = reward + goes_on * after - value + gae_lambda * goes_on * total
        found.append(total)
        after = value
    return torch.stack(found[::-1])


def update(agent: Agent, optimizer: torch.optim.Optimizer, rollout: Rollout, args: Args) -> dict[str, float]:
    """Make the epochs of updates from a rollout; return what is logged."""
    advantages = advantages_of(rollout, args.gamma, args.gae_lambda)
    logged: dict[str, float] = {}
    for _ in range(args.update_epochs):
        for which in torch.randperm(args.num_envs).chunk(args.num_minibatches):
            part, own = rollout.of(which, advantages)
            policy, values = agent.evaluate(part.seen, part.h, part.starts)
            change = policy.log_prob(part.actions) - part.log_probs
            ratio, targets = change.exp(), own + part.values
            own = (own - own.mean()) / (own.std() + 1e-8)
            clipped = ratio.clamp(1 - args.clip_coef, 1 + args.clip_coef)
            policy_loss = -torch.minimum(ratio * own, clipped * own).mean()
            value_loss = (values - targets).square().mean()
            entropy = policy.entropy().mean()
            loss = policy_loss + args.vf_coef * value_loss - args.ent_coef * entropy
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            nn.utils.clip_grad_norm_(agent.parameters(), args.max_grad_norm)
            optimizer.step()
            kl = (ratio - 1 - change).mean()
            logged = {"policy_loss": policy_loss.item(), "value_loss": value_loss.item()}
            logged |= {"entropy": entropy.item(), "approx_kl": kl.item()}
    return logged


def train(args: Args) -> list[tuple[int, float, float]]:
    """Train; return (steps, mean return of the episodes that ended since the line before, steps per second) of each line
    that is printed."""
    torch.manual_seed(args.seed)
    torch.set_num_threads(1)
    writer = None
    if args.track:
        from torch.utils.tensorboard import SummaryWriter

        writer = SummaryWriter(f"runs/{args.env_id}__ppo_memory__{args.seed}__{int(time.time())}")
        rows = "\n".join(f"|{name}|{value}|" for name, value in vars(args).items())
        writer.add_text("options", "|option|value|\n|-|-|\n" + rows)
    player = Player(args)
    agent = Agent(player.inputs, player.actions, args)
    groups = param_groups(agent, lr=args.learning_rate, recurrent_lr=args.learning_rate / 10)
    optimizer = torch.optim.Adam(groups, eps=1e-5)
    rates = [group["lr"] for group in optimizer.param_groups]
    batch = args.num_envs * args.num_steps
    count = max(1, args.total_timesteps // batch)
    lines, start = [], time.perf_counter()
    for k in range(count):
        rollout = player.play(agent, args)
        for group, rate in zip(optimizer.param_groups, rates):
            group["lr"] = rate * (1 - k / count)
        logged = update(agent, optimizer, rollout, args)
        steps = (k + 1) * batch
        if player.returns and (len(player.returns) >= 20 or k == count - 1):
            mean, rate = float(np.mean(player.returns)), steps / (time.perf_counter() - start)
            print(
                f"{steps:>8} steps: mean return {mean:.3f} of {len(player.returns)} episodes, {rate:.0f} steps/s",
                flush=True,
            )
            lines.append((steps, mean, rate))
            logged |= {"mean_return": mean, "steps_per_second": rate}
            player.returns.clear()
        if writer is not None:
            for name, value in logged.items():
                writer.add_scalar(name, value, steps)
    player.envs.close()
    if writer is not None:
        writer.close()
    return lines


if __name__ == "__main__":
    train(parse())
