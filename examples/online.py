"""Learn online from an endless stream, one observation at a time: python examples/online.py [UPDATES]

The stream is three tones of incommensurable frequencies and noise. For every observation the network first predicts it
from those before (that error is what is reported), then makes one update from it: truncated back-propagation over the
last WINDOW observations, starting from the detached state before them. So an update costs the same at any time, and the
state still carries what is older than the window. The trivial predictor repeats the last observation.

Then a linear network of rotations learns from the same stream by real-time recurrent learning: one update per observation
too, but by the gradient through the whole past, without storing it, in a compiled loop.
"""

from __future__ import annotations

import argparse
import math
import time
from collections import deque
from collections.abc import Iterator

import torch
from torch import nn

from orthornn import Householder, OrthogonalRNN, Stiefel
from orthornn.optim import param_groups

WINDOW, HIDDEN, NOISE = 16, 32, 0.1
REPORT = 1000  # updates
GAIN = 0.95  # of the linear network: what is older than some fifty observations fades


def stream(seed: int = 0) -> Iterator[float]:
    """Three tones and noise; their mean square is .87, of which .01 is unpredictable noise."""
    generator = torch.Generator().manual_seed(seed)
    t = 0
    while True:
        tones = math.sin(0.21 * t) + 0.7 * math.sin(0.53 * t + 1) + 0.5 * math.sin(1.37 * t)
        yield tones + NOISE * float(torch.randn((), generator=generator))
        t += 1


def learn(updates: int, report: int = REPORT) -> list[tuple[float, float, float]]:
    """(mean squared error, that of the trivial predictor, updates a second) for every `report` updates; printed, too."""
    torch.manual_seed(0)
    torch.set_num_threads(1)  # at B = 1 there is nothing to share out
    method = Householder(reflections=4, base="rotations")
    model = nn.ModuleDict(
        {
            "rnn": OrthogonalRNN(1, HIDDEN, parametrization=method, nonlinearity="tanh"),
            "readout": nn.Linear(HIDDEN, 1),
        }
    )
    optimizer = torch.optim.Adam(param_groups(model, lr=3e-3, recurrent_lr=1e-4), fused=True)
    observations = stream()
    window = deque([next(observations)], maxlen=WINDOW)
    before = torch.zeros(1, 1, HIDDEN)  # the state before the window
    found, error, trivial, start = [], 0.0, 0.0, time.perf_counter()
    for update in range(1, updates + 1):
        states, _ = model["rnn"](torch.tensor(window).view(-1, 1, 1), before)
        prediction = model["readout"](states[-1]).squeeze()
        seen = next(observations)
        loss = (prediction - seen) ** 2
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()

        error += loss.item()
        trivial += (window[-1] - seen) ** 2
        if len(window) == WINDOW:
            before = states[:1].detach()  # the oldest observation leaves the window and stays in the state
        window.append(seen)
        if update % report == 0:
            rate = report / (time.perf_counter() - start)
            found.append((error / report, trivial / report, rate))
            print(
                f"{update:>7} updates, {rate:.0f} a second: squared error {error / report:.4f}, "
                f"trivial predictor {trivial / report:.4f}",
                flush=True,
            )
            error, trivial, start = 0.0, 0.0, time.perf_counter()
    return found


def learn_exactly(updates: int, report: int = REPORT) -> list[tuple[float, float, float]]:
    """Return and print what `learn` does, by real-time recurrent learning."""
    torch.manual_seed(0)
    rnn = OrthogonalRNN(1, HIDDEN, parametrization=Stiefel(), nonlinearity="identity", gain=GAIN, dtype=torch.float64)
    learner = rnn.online(nn.Linear(HIDDEN, 1, dtype=torch.float64), lr=1e-3, recurrent_lr=1e-4)
    observations = stream()
    last, found = next(observations), []
    for update in range(report, updates + 1, report):
        seen = torch.tensor([last, *(next(observations) for _ in range(report))], dtype=torch.float64).view(-1, 1)
        start = time.perf_counter()
        predictions = learner(seen[:-1], seen[1:])  # each before the update by its target
        rate = report / (time.perf_counter() - start)
        error, trivial = ((guess - seen[1:]).square().mean().item() for guess in (predictions, seen[:-1]))
        found.append((error, trivial, rate))
        last = float(seen[-1])
        print(
            f"{update:>7} updates, {rate:.0f} a second: squared error {error:.4f}, trivial predictor {trivial:.4f}",
            flush=True,
        )
    return found


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "updates", type=int, nargs="?", default=10_000, help="updates of each network (default: %(default)s)"
    )
    count = parser.parse_args().updates
    print(f"truncated back-propagation over {WINDOW} observations, tanh, {HIDDEN} units")
    learn(count)
    print(f"real-time recurrent learning through the whole past, linear, {HIDDEN} units")
    learn_exactly(count)
