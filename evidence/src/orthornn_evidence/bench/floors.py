"""The speed that the kernels must reach, as data, and the verdict on a measurement.

The ratios hold for two cores, torch's default threads, T=784, input size 1, float32, forward and backward to all
parameters with the parametrization included, as ratios of medians in one run.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from .cases import Work
from .timing import Ratio

ROUNDS = 5  # fewer rounds do not allow a verdict
STEPS = 784
CORES = 2


@dataclass(frozen=True)
class Floor:
    """A case that must be at least `ratio` times as fast as a peer."""

    case: str
    peer: str
    ratio: float


RATIOS = (
    Floor("wy-256-32-b1", "rnn", 35),
    Floor("wy-256-32-b1", "lstm", 15),
    Floor("wy-256-32-b1", "lstm-parameters", 1),
    Floor("wy-128-16-b1", "rnn", 45),
    Floor("wy-128-16-b1", "lstm", 12),
    Floor("cayley-170-b1", "rnn", 6),
    Floor("cayley-170-b1", "lstm", 2),
    Floor("wy-256-32-b50", "rnn", 5),
    Floor("wy-256-32-b50", "lstm", 12),
    Floor("wy-256-32-b50", "lstm-parameters", 1),
    Floor("cayley-170-b50", "rnn", 2.2),
    Floor("cayley-170-b50", "lstm", 5.5),
    Floor("cayley-512-b50", "rnn", 1.6),
    Floor("cayley-512-b50", "lstm", 5),
)

CASES = tuple(dict.fromkeys(floor.case for floor in RATIOS))
"""The names of the cases that have floors."""

CHAIN_SIZE = (256, 50)
CHAIN_SHARE = 0.6
"""Of the machine's float32 matrix-product rate, in the dense chain at (n, B)."""

STEP_CASES = ("wy-256-32-b1", "cayley-170-b50")
"""Whole training steps are timed for these; the first has the floor."""
STEP_SECONDS = 0.4e-3
"""At most, for what a training step costs outside the kernels."""

LAST_STATE_CASE = "wy-256-32-b50"
"""The ways of reading the last state are compared here."""


@dataclass(frozen=True)
class Verdict:
    """One line of the judgment.

    floor: the least value wanted ("at least") or the largest ("at most").
    reached: None if the run does not allow a verdict, for the `reason` given.
    """

    what: str
    against: str
    value: float
    low: float
    high: float
    floor: float
    kind: Literal["at least", "at most"]
    unit: str
    reached: bool | None
    reason: str | None = None

    @property
    def words(self) -> str:
        """The verdict as a table shows it."""
        if self.reached is None:
            return f"not judged: {self.reason}"
        decided = "reached" if self.reached else "not reached"
        return f"{decided}, not in every round" if self.low < self.floor < self.high else decided


def obstacle(work: Work, rounds: int, threads_chosen: bool) -> str | None:
    """Return the reason why a run with these options does not allow a verdict, or None."""
    if rounds < ROUNDS:
        return f"{rounds} rounds, {ROUNDS} needed"
    if work.T != STEPS:
        return f"T={work.T}, not {STEPS}"
    if threads_chosen:
        return "not torch's default threads"
    if work.passes != "both":
        return "forward only"
    if work.device != "cpu":
        return f"on {work.device}"
    return None


def judge(
    what: str,
    against: str,
    measured: Ratio,
    floor: float,
    kind: Literal["at least", "at most"],
    unit: str,
    reason: str | None,
) -> Verdict:
    """Return the verdict on a measurement; `reason` is what `obstacle` found."""
    if reason is None and measured.rounds < ROUNDS:
        reason = f"{measured.rounds} rounds, {ROUNDS} needed"
    met = measured.value >= floor if kind == "at least" else measured.value <= floor
    return Verdict(
        what,
        against,
        measured.value,
        measured.low,
        measured.high,
        floor,
        kind,
        unit,
        None if reason is not None else met,
        reason,
    )
