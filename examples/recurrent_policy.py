"""Train a policy with memory by advantage actor-critic: python examples/recurrent_policy.py [UPDATES]

The task is a corridor with a fork at its end (a T-maze). At the entrance the agent sees a cue, left or right, for one step;
then nothing but that it is in the corridor, for a number of steps drawn for each episode; then the fork, where it must
turn to the side of the cue: reward 1, otherwise -1. Episodes have different lengths, and ENVIRONMENTS run side by side, so
that they end anywhere inside a piece of STEPS steps.

Each update collects one piece with `rnn.step(..., reset=...)`, then recomputes its states with one call of the network,
`rnn(x, h, reset=...)`: the state is carried over from the piece before, and is the trained initial state where
an episode starts. A policy without memory is right half of the time.
"""

from __future__ import annotations

import argparse
import time

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from orthornn import Householder, OrthogonalRNN
from orthornn.optim import param_groups

ENVIRONMENTS, STEPS, HIDDEN = 32, 64, 32
LONGEST = 20  # steps of the corridor
DISCOUNT, TRACE, ENTROPY = 0.95, 0.95, 0.01
REPORT = 50  # updates
OBSERVATIONS, ACTIONS = 4, 2  # cue left, cue right, corridor, fork; left, right


class Corridors:
    """Environments side by side. An episode is a cue, 1 to LONGEST steps of corridor, and the fork."""

    def __init__(self, count: int, seed: int) -> None:
        self.generator = torch.Generator().manual_seed(seed)
        self.cue = torch.zeros(count, dtype=torch.int64)
        self.left = torch.zeros(count, dtype=torch.int64)  # steps until the fork
        self.starts = torch.ones(count, dtype=torch.bool)
        self._begin(self.starts)

    def _begin(self, where: Tensor) -> None:
        count = where.shape[0]
        self.cue[where] = torch.randint(0, 2, (count,), generator=self.generator)[where]
        self.left[where] = torch.randint(2, LONGEST + 2, (count,), generator=self.generator)[where]

    def observe(self) -> Tensor:
        """Return what is seen, one-hot (B, 4)."""
        seen = torch.where(self.starts, self.cue, torch.where(self.left == 0, 3, 2))
        return F.one_hot(seen, OBSERVATIONS).float()

    def act(self, action: Tensor) -> tuple[Tensor, Tensor]:
        """Return the reward of each environment, and whether its episode has ended; those restart."""
        ended = self.left == 0
        reward = torch.where(ended, 2.0 * (action == self.cue) - 1, 0.0)
        self.left -= 1
        self.starts = ended
        self._begin(ended)
        return reward, ended


class Agent(nn.Module):
    """A recurrent network that shares its states between the policy and the value."""

    def __init__(self) -> None:
        super().__init__()
        method = Householder(reflections=8, base="rotations")
        self.rnn = OrthogonalRNN(OBSERVATIONS, HIDDEN, parametrization=method, nonlinearity="modrelu", learn_h0=True)
        self.policy, self.value = nn.Linear(HIDDEN, ACTIONS), nn.Linear(HIDDEN, 1)


def advantages(rewards: Tensor, ended: Tensor, values: Tensor, after: Tensor) -> Tensor:
    """Return generalized advantage estimates (T, B); values after the end of an episode do not count."""
    total, found = torch.zeros_like(after), []
    for reward, end, value in zip(rewards.flip(0), ended.flip(0).float(), values.flip(0)):
        error = reward + DISCOUNT * (1 - end) * after - value
        total = error + DISCOUNT * TRACE * (1 - end) * total
        found.append(total)
        after = value
    return torch.stack(found[::-1])


def train(updates: int, report: int = REPORT, seed: int = 0) -> list[tuple[float, float, float]]:
    """Return and print, every ``report`` updates: episodes that ended right, environment steps and updates per second.

    Rates are per second of processor time; that of updates counts only forward, backward and the optimizer.
    """
    torch.manual_seed(seed)
    torch.set_num_threads(1)
    agent, worlds = Agent(), Corridors(ENVIRONMENTS, seed)
    optimizer = torch.optim.Adam(param_groups(agent, lr=3e-3, recurrent_lr=1e-3))
    h = agent.rnn.initial_states(ENVIRONMENTS).detach()
    found, right, episodes, learning, start = [], 0.0, 0.0, 0.0, time.process_time()
    for update in range(1, updates + 1):
        before, pieces = h, []
        with torch.no_grad():
            for _ in range(STEPS):
                seen, reset = worlds.observe(), worlds.starts
                out, h = agent.rnn.step(seen, h, reset=reset)
                action = torch.distributions.Categorical(logits=agent.policy(out)).sample()
                reward, ended = worlds.act(action)
                pieces.append((seen, reset, action, reward, ended))
            upcoming, _ = agent.rnn.step(worlds.observe(), h, reset=worlds.starts)
            after = agent.value(upcoming).squeeze(-1)
        seen, reset, action, reward, ended = (torch.stack(parts) for parts in zip(*pieces))

        clock = time.process_time()
        states, _ = agent.rnn(seen, before, reset=reset)
        chosen = torch.distributions.Categorical(logits=agent.policy(states))
        values = agent.value(states).squeeze(-1)
        advantage = advantages(reward, ended, values.detach(), after)
        actor = -(chosen.log_prob(action) * advantage).mean()
        critic = F.mse_loss(values, advantage + values.detach())
        loss = actor + 0.5 * critic - ENTROPY * chosen.entropy().mean()
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(agent.parameters(), 0.5)
        optimizer.step()
        learning += time.process_time() - clock

        right += float((reward > 0).sum())
        episodes += float(ended.sum())
        if update % report == 0:
            seconds = time.process_time() - start
            share, steps = right / episodes, report * STEPS * ENVIRONMENTS / seconds
            found.append((share, steps, report / learning))
            print(
                f"{update:>5} updates: {100 * share:5.1f} % of episodes right, {steps:.0f} steps a second, "
                f"{report / learning:.0f} updates a second in the network",
                flush=True,
            )
            right, episodes, learning, start = 0.0, 0.0, 0.0, time.process_time()
    return found


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "updates", type=int, nargs="?", default=600, help="updates of the policy (default: %(default)s)"
    )
    train(parser.parse_args().updates)
