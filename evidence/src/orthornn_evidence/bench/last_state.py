"""Compare the ways of reading the last state: ``output="last"``, ``h_n``, and the last of all states.

They return the same numbers and have the same gradients. With ``h_n`` no gradient of all states is made. With ``out[-1]``
torch makes one of shape (T, B, N), zero but for the last step, which is written and read.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from orthornn.errors import VerificationError
from orthornn.modules import OrthogonalRNN

from .cases import Case, Work
from .networks import OURS, Runnable
from .timing import Contender, Ratio, Timing, interleave, ratio
from .verify import relative_error, rounding_bound

OUTPUT_LAST, H_N, OUT_LAST = 'output="last"', "h_n", "out[-1]"
WAYS: dict[str, Callable[[OrthogonalRNN, Tensor], Tensor]] = {
    OUTPUT_LAST: lambda rnn, x: rnn(x, output="last")[0],
    H_N: lambda rnn, x: rnn(x)[1][-1],
    OUT_LAST: lambda rnn, x: rnn(x)[0][-1],
}


@dataclass(frozen=True)
class LastStateCost:
    """Seconds of forward and backward to all parameters in each way, and its ratio to ``output="last"``."""

    case: Case
    T: int
    timings: dict[str, Timing]
    ratios: dict[str, Ratio]


def last_state_cost(case: Case, work: Work, rounds: int) -> LastStateCost:
    """Time the three ways in turns.

    Raises:
        VerificationError: If a way returns another state or another gradient, before anything is timed.
    """
    runnable = Runnable.make(OURS, case, Work(work.T, "last", work.nonlinearity, work.device))
    module, x, grad = runnable.module, runnable.x, runnable.grad
    assert isinstance(module, OrthogonalRNN)
    _verify(case, module, x, grad)

    def contender(name: str) -> Contender:
        read = WAYS[name]
        return Contender(name, lambda: read(module, x).backward(grad), runnable.clear, work.synchronize)

    timings = interleave([contender(name) for name in WAYS], rounds)
    return LastStateCost(case, work.T, timings, {name: ratio(timings[name], timings[OUTPUT_LAST]) for name in WAYS})


def _verify(case: Case, module: OrthogonalRNN, x: Tensor, grad: Tensor) -> None:
    parameters = [parameter for parameter in module.parameters() if parameter.numel()]
    names = ["the state", *(name for name, parameter in module.named_parameters() if parameter.numel())]
    found: dict[str, list[Tensor]] = {}
    for way, read in WAYS.items():
        state = read(module, x)
        found[way] = [state.detach(), *torch.autograd.grad(state, parameters, grad)]
    bound = rounding_bound(len(x), case.n)
    for way, tensors in found.items():
        for name, tensor, expected in zip(names, tensors, found[OUTPUT_LAST]):
            error = relative_error(tensor, expected.double())
            if not error <= bound:
                raise VerificationError(
                    f"Expected {way} to read what {OUTPUT_LAST} does in {case.title}, but got {name} with an error of "
                    f"{error:.2g} (bound {bound:.2g}), so nothing is timed. Run the tests in tests/modules."
                )
