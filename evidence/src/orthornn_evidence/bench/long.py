"""One training step over a very long sequence in each memory mode: time, peak memory, and the same gradients.

Forward, loss of the last state, backward to all parameters, one update by Adam; each mode in a separate process.
modReLU's b is so small that states stay of order one.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch

from orthornn.errors import VerificationError
from orthornn.kernels import checkpointing
from orthornn.learn.report.table import Column, Table
from orthornn.modules import OrthogonalRNN

from .cases import Case, Work
from .memory import in_own_process, rise
from .networks import OURS, Runnable
from .tables import MEMORY, number
from .timing import Timing
from .verify import relative_error, rounding_bound

_TIMEOUT = 3600.0


@dataclass(frozen=True)
class LongStep:
    """The measurements of one memory mode.

    segment: steps of a segment, 0 if everything is saved. peak_bytes: rise of memory. saved_bytes: theoretical size of the
    saved states. off: largest difference to a gradient with everything saved, relative to its largest entry.
    """

    case: Case
    T: int
    mode: str
    segment: int
    timing: Timing
    peak_bytes: int
    saved_bytes: int
    off: float


def long_steps(cases: list[Case], work: Work, rounds: int, say: Callable[[str], object]) -> list[LongStep]:
    """Return every case in every mode. Raise VerificationError if a gradient differs from `store` by more than rounding."""
    found = []
    for case in cases:
        stored: dict[str, torch.Tensor] = {}
        for mode in checkpointing.MODES:
            seconds, peak, arrays = in_own_process(
                f"{mode} at {case.name}", _TIMEOUT, _measure, case, work, mode, rounds
            )
            gradients = {name: torch.from_numpy(array) for name, array in arrays.items()}
            stored = stored or gradients
            errors = torch.tensor([relative_error(gradients[name], g) for name, g in stored.items()])
            off = float(errors.max())  # NaN if one is
            bound = rounding_bound(work.T, case.n)
            if not off <= bound:
                raise VerificationError(
                    f"memory={mode!r} at {case.title}, T={work.T}: a gradient differs from 'store' by {off:.1e}, but "
                    f"only {bound:.1e} is allowed."
                )
            segment = None if mode == "store" else checkpointing.segment_length(work.T, case.n, case.m)
            saved = 4 * checkpointing.peak_numbers(segment, work.T, case.batch, case.n, case.m)
            found.append(LongStep(case, work.T, mode, segment or 0, Timing([seconds]), peak, saved, off))
            say(f"{case.title}, T={work.T}: {mode}")
    return found


def _measure(case: Case, work: Work, mode: Any, rounds: int) -> tuple[list[float], int, dict[str, Any]]:
    """Return seconds of every step, the rise of memory in the first, and its gradients as arrays: this process ends
    soon.
    """
    run, gradients = _step(case, replace(work, T=100), mode)
    run()  # starts threads, and loads what is loaded late
    run, gradients = _step(case, work, mode)
    seconds = []

    def timed() -> None:
        start = time.perf_counter()
        run()
        seconds.append(time.perf_counter() - start)

    peak = rise(timed)
    first = {name: g.numpy() for name, g in gradients().items()}
    for _ in range(rounds - 1):
        timed()
    return seconds, peak, first


def _step(case: Case, work: Work, mode: Any) -> tuple[Callable[[], None], Callable[[], dict[str, torch.Tensor]]]:
    runnable = Runnable.make(OURS, case, work)
    network = runnable.module
    assert isinstance(network, OrthogonalRNN)
    network.set_memory(mode)
    if network.nonlinearity == "modrelu":
        with torch.no_grad():
            network.get_parameter("bias_ih_l0").abs_().div_(work.T)
    optimizer = torch.optim.Adam(network.parameters(), lr=1e-6, fused=True)

    def run() -> None:
        optimizer.zero_grad(set_to_none=True)
        runnable.run()
        optimizer.step()

    def gradients() -> dict[str, torch.Tensor]:
        return {name: p.grad.clone() for name, p in network.named_parameters() if p.grad is not None}

    return run, gradients


def long_table(steps: list[LongStep]) -> Table:
    """Return all modes of all cases."""
    headings = ("memory", "segment", "s/step", "us/time step", "of store", "peak MB", "by count MB", "gradient off")
    table = Table(f"a training step over T={steps[0].T} steps", [Column("network", left=True), *map(Column, headings)])
    stored = {step.case: step for step in steps if step.mode == "store"}
    for step in steps:
        seconds = step.timing.median
        table.rows.append(
            [
                step.case.title,
                step.mode,
                str(step.segment or ""),
                number(seconds),
                number(1e6 * seconds / step.T),
                f"{number(seconds / stored[step.case].timing.median)}x",
                f"{step.peak_bytes / 1e6:.1f}",
                f"{step.saved_bytes / 1e6:.1f}",
                f"{step.off:.1e}",
            ]
        )
    table.notes += [
        MEMORY,
        "gradient off: difference to store, relative to the largest entry of each tensor; the bound is "
        f"{rounding_bound(steps[0].T, steps[0].case.n):.1e}",
    ]
    return table
