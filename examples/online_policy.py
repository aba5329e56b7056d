"""Learn a policy online that must remember, from one endless stream: python examples/online_policy.py [STEPS]

At each step the agent sees one of two symbols, and is rewarded if it acts as the symbol DELAY steps before told. There are
no episodes, and it never sees a step twice. The policy is a linear network of rotations and a readout; after each action
it makes one update from its reward (the policy gradient of Williams, 1992). Two ways to the gradient, with one network and
one optimizer:

- real-time recurrent learning, `rnn.online(readout)`: through the whole past, without storing it. A step gets the gradient
  of its loss with `learner.learn(gradient)`, since the loss depends on the action.
- truncated back-propagation over the last WINDOW steps: what was DELAY steps ago enters only by the state. The readout can
  learn to find it there, but nothing tells the recurrence how to keep it.

A policy without memory is right half of the time.
"""

from __future__ import annotations

import argparse
import random
import time
from collections import deque

import torch
from torch import nn

from orthornn import OrthogonalRNN, Rotations
from orthornn.optim import param_groups

DELAY, WINDOW, HIDDEN = 8, 4, 32
GAIN = 0.9  # what is older than some twenty steps fades
RATE, RECURRENT_RATE = 3e-3, 3e-4
REPORT = 2000  # steps


class Recall:
    """The stream. Attributes: right, the actions that were right since somebody set it to zero."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.symbols = deque([1.0] * (DELAY + 1), maxlen=DELAY + 1)
        self.right, self.expected = 0, 0.0

    def next(self) -> float:
        """Return the next symbol, 1 or -1."""
        self.symbols.append(self.random.choice((1.0, -1.0)))
        return self.symbols[-1]

    def act(self, probability: float) -> tuple[float, float]:
        """Draw an action; return it, 1 or 0, and its reward compared with what the last ones had on average.

        Args:
            probability: Of acting as the symbol 1 tells.
        """
        action = float(self.random.random() < probability)
        reward = 1.0 if (action == 1) == (self.symbols[0] == 1) else -1.0
        self.right += reward == 1
        advantage = reward - self.expected
        self.expected += 0.01 * advantage
        return action, advantage


def networks() -> tuple[OrthogonalRNN, nn.Linear]:
    """Return a linear network and its readout, the same ones each time."""
    torch.manual_seed(0)
    rnn = OrthogonalRNN(1, HIDDEN, parametrization=Rotations(), nonlinearity="identity", gain=GAIN, dtype=torch.float64)
    return rnn, nn.Linear(HIDDEN, 1, dtype=torch.float64)


def learn_exactly(steps: int, report: int = REPORT) -> list[float]:
    """Learn by real-time recurrent learning; return and print the share of right actions in every `report` steps."""
    learner = networks()[0].online(networks()[1], RATE, recurrent_lr=RECURRENT_RATE)
    stream, shares, start = Recall(0), [], time.perf_counter()
    for step in range(1, steps + 1):
        logit = learner(torch.tensor([[stream.next()]], dtype=torch.float64))
        probability = float(logit.sigmoid())
        action, advantage = stream.act(probability)
        # d/dlogit of -advantage * log p(action)
        learner.learn(torch.tensor([advantage * (probability - action)], dtype=torch.float64))
        if step % report == 0:
            shares.append(_told(step, stream, report, start))
            start = time.perf_counter()
    return shares


def learn_truncated(steps: int, report: int = REPORT) -> list[float]:
    """Learn by truncated back-propagation; return and print what `learn_exactly` does."""
    rnn, readout = networks()
    model = nn.ModuleList([rnn, readout])
    optimizer = torch.optim.Adam(param_groups(model, lr=RATE, recurrent_lr=RECURRENT_RATE), fused=True)
    torch.set_num_threads(1)  # at B = 1 there is nothing to share out
    window: deque[float] = deque(maxlen=WINDOW)
    before = states = torch.zeros(1, 1, HIDDEN, dtype=torch.float64)  # before the window, and in it
    stream, shares, start = Recall(0), [], time.perf_counter()
    for step in range(1, steps + 1):
        if len(window) == WINDOW:  # its oldest symbol leaves, and stays in the state
            before = states[:1].detach()
        window.append(stream.next())
        states, _ = rnn(torch.tensor(window, dtype=torch.float64).view(-1, 1, 1), before)
        logit = readout(states[-1]).squeeze()
        action, advantage = stream.act(float(logit.detach().sigmoid()))
        loss = advantage * nn.functional.binary_cross_entropy_with_logits(logit, logit.new_tensor(action))
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        if step % report == 0:
            shares.append(_told(step, stream, report, start))
            start = time.perf_counter()
    return shares


def _told(step: int, stream: Recall, report: int, start: float) -> float:
    """Print, and return, the share of right actions."""
    share, rate = stream.right / report, report / (time.perf_counter() - start)
    print(f"{step:>7} steps: {100 * share:.1f} % of actions right, {rate:.0f} steps a second", flush=True)
    stream.right = 0
    return share


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "steps", type=int, nargs="?", default=20_000, help="steps of each policy (default: %(default)s)"
    )
    count = parser.parse_args().steps
    print(f"real-time recurrent learning through the whole past, {HIDDEN} units, recall after {DELAY} steps")
    learn_exactly(count)
    print(f"truncated back-propagation over {WINDOW} steps")
    learn_truncated(count)
