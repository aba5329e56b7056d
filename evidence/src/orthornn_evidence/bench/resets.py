"""Episodes that end inside a batch: a call with resets, compared with the same call without and with the alternatives.

Forward and backward to all parameters, all states returned, float32, one thread, processor time. Before each step of each
sequence, a reset occurs with a given probability. The alternatives are a Python loop over steps that replaces the states at
the start of an episode, and torch.nn.LSTM of equal width, called for every piece between two steps at which any sequence
restarts. The outputs of the first three are verified before anything is timed.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

from orthornn.errors import VerificationError
from orthornn.kernels.projection import project
from orthornn.learn.report.table import Column, Table
from orthornn.modules import OrthogonalRNN

from .cases import Case, Work
from .networks import OURS, Runnable, lstm
from .tables import number
from .timing import Contender, Timing, interleave, ratio
from .verify import rounding_bound

WITHOUT, WITH, LOOP, PIECES = "without resets", "with resets", "step loop in Python", "nn.LSTM per piece"
NAMES = (WITHOUT, WITH, LOOP, PIECES)


@dataclass(frozen=True)
class ResetTimes:
    """The measurements of one case.

    probability: Probability of a reset per step and sequence. pieces: Number of calls of nn.LSTM. timings: by NAMES.
    """

    case: Case
    T: int
    probability: float
    pieces: int
    timings: dict[str, Timing]


def reset_times(
    cases: list[Case], work: Work, probability: float, rounds: int, say: Callable[[str], object]
) -> list[ResetTimes]:
    """Return the times of every case. Raise VerificationError if resets give other states than a loop over steps."""
    found = []
    for case in cases:
        say(f"{case.title}, T={work.T}: resets")
        reset = torch.rand(work.T, case.batch, generator=torch.Generator().manual_seed(1)) < probability
        ours = Runnable.make(OURS, case, work)
        net, x = ours.module, ours.x
        assert isinstance(net, OrthogonalRNN)
        torch.manual_seed(0)
        other = lstm(case.n)
        runs: dict[str, Callable[[], Tensor]] = {
            WITHOUT: lambda net=net, x=x: net(x)[0],  # type: ignore[misc]
            WITH: lambda net=net, x=x, reset=reset: net(x, reset=reset)[0],  # type: ignore[misc]
            LOOP: lambda net=net, x=x, reset=reset: _loop(net, x, reset),  # type: ignore[misc]
            PIECES: lambda other=other, x=x, reset=reset: _pieces(other, x, reset),  # type: ignore[misc]
        }
        _verify(case, runs[WITH](), runs[LOOP]())
        grad = torch.randn(work.T, case.batch, case.n, generator=torch.Generator().manual_seed(2))
        contenders = [
            Contender(name, lambda run=run, grad=grad: run().backward(grad), clock=time.process_time)  # type: ignore[misc]
            for name, run in runs.items()
        ]
        timings = interleave(contenders, rounds)
        found.append(ResetTimes(case, work.T, probability, len(_edges(reset)) + 1, timings))
    return found


def _verify(case: Case, found: Tensor, expected: Tensor) -> None:
    off = float((found - expected).detach().abs().max() / expected.detach().abs().max())
    bound = rounding_bound(len(found), case.n)
    if not off <= bound:
        raise VerificationError(
            f"Expected the states of a step loop, but the difference is {off:.1e}; {bound:.1e} is allowed."
        )


def _loop(net: OrthogonalRNN, x: Tensor, reset: Tensor) -> Tensor:
    """Return the states by one product per step, W built once."""
    layer = net.layers()[0]
    W, (bias, parameter) = layer.matrix().mT, layer.bias()
    projected = project(x, layer.weight_ih, bias)
    h = first = projected.new_zeros(projected.shape[1:])
    states = []
    for a, restarts in zip(projected.unbind(), reset.unsqueeze(-1).unbind()):
        h = layer.activation(torch.addmm(a, torch.where(restarts, first, h), W), parameter)
        states.append(h)
    return torch.stack(states)


def _edges(reset: Tensor) -> list[int]:
    """Return the steps after the first before which any sequence restarts."""
    return [t for t in reset.any(1).nonzero().flatten().tolist() if t]


def _pieces(module: torch.nn.LSTM, x: Tensor, reset: Tensor) -> Tensor:
    edges = [0, *_edges(reset), len(x)]
    h = c = x.new_zeros(1, x.shape[1], module.hidden_size)
    states = []
    for begin, end in pairwise(edges):
        stays = (~reset[begin]).to(x.dtype).view(1, -1, 1)
        out, (h, c) = module(x[begin:end], (h * stays, c * stays))
        states.append(out)
    return torch.cat(states)


def reset_table(found: list[ResetTimes]) -> Table:
    """Return one row per case: seconds of each, and their ratio to the call without resets."""
    columns = [Column("network", left=True), Column("pieces")]
    columns += [Column(name) for name in (f"{WITHOUT} [s]", WITH, LOOP, PIECES)]
    first = found[0]
    table = Table(f"resets with probability {first.probability:g} per step and sequence, T={first.T}", columns)
    for times in found:
        without = times.timings[WITHOUT]
        ratios = [ratio(times.timings[name], without) for name in NAMES[1:]]
        row = [times.case.title, str(times.pieces), number(min(without.runs))]
        table.rows.append([*row, *(f"{r.value:.2f}x ({r.low:.2f} to {r.high:.2f})" for r in ratios)])
    table.notes.append("processor time of a forward and backward pass; ratios to the call without resets")
    return table
