"""Several things timed by turns, and ratios between them with their spread."""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

_QUICK = 0.05  # seconds; a run faster than this is preceded, in every turn, by some that do not count
_SETTLE = 0.015  # seconds for which they continue: OpenMP's idle threads spin for 10 ms after the contender before
_TURN = 0.02  # seconds of a turn of a quick contender
_RUNS = 10  # at most, in a turn


def _nothing() -> None:
    pass


@dataclass
class Contender:
    """A function to time.

    run: what is timed. before: what comes before each run and is not. synchronize: waits for the device.
    cap: seconds that all of its runs may take; it drops out of the rounds after them, but not before its first.
    clock: by which runs are timed: None for the wall's, time.process_time for the processor's time.
    """

    name: str
    run: Callable[[], object]
    before: Callable[[], object] = _nothing
    synchronize: Callable[[], object] = _nothing
    cap: float | None = None
    clock: Callable[[], float] | None = None
    spent: float = field(default=0.0, init=False)

    def once(self) -> float:
        """Return the seconds of one run."""
        self.before()
        self.synchronize()
        clock = self.clock or time.perf_counter
        start = clock()
        self.run()
        self.synchronize()
        seconds = clock() - start
        self.spent += seconds
        return seconds

    def turn(self, estimate: float) -> list[float]:
        """Return the seconds of one run or, if it is quick, of several.

        The caches are its own by then, and no thread of another contender is awake, as in a training loop.
        """
        settled = time.perf_counter() + _SETTLE
        while estimate < _QUICK:
            self.once()
            if time.perf_counter() > settled:
                break
        seconds = [self.once()]
        while len(seconds) < _RUNS and sum(seconds) + seconds[-1] < _TURN:
            seconds.append(self.once())
        return seconds


@dataclass(frozen=True)
class Timing:
    """Seconds of every run, by round."""

    rounds: list[list[float]]

    @property
    def runs(self) -> list[float]:
        """The seconds of all rounds."""
        return [seconds for turn in self.rounds for seconds in turn]

    @property
    def median(self) -> float:
        """The median of all runs."""
        return statistics.median(self.runs)

    @property
    def quartiles(self) -> tuple[float, float]:
        """The quartiles of the runs."""
        runs = self.runs
        if len(runs) < 2:
            return runs[0], runs[0]
        low, _, high = statistics.quantiles(runs, n=4, method="inclusive")
        return low, high


@dataclass(frozen=True)
class Ratio:
    """A ratio of medians; low and high are the least and the largest ratio within one round."""

    value: float
    low: float
    high: float
    rounds: int


def interleave(
    contenders: Sequence[Contender], rounds: int, on_round: Callable[[int], object] = lambda done: None
) -> dict[str, Timing]:
    """Time all of them in turns, which spreads a slow phase of the machine over all alike.

    One round before the first does not count. Python's garbage collector rests meanwhile.
    """
    times: dict[str, list[list[float]]] = {contender.name: [] for contender in contenders}
    estimates = {contender.name: contender.once() for contender in contenders}
    gc.collect()
    collects = gc.isenabled()
    gc.disable()
    try:
        for done in range(rounds):
            for contender in contenders:
                late = contender.cap is not None and contender.spent + estimates[contender.name] > contender.cap
                if late and times[contender.name]:
                    continue
                turn = contender.turn(estimates[contender.name])
                estimates[contender.name] = turn[-1]
                times[contender.name].append(turn)
            on_round(done + 1)
    finally:
        if collects:
            gc.enable()
    return {name: Timing(turns) for name, turns in times.items()}


def ratio(numerator: Timing, denominator: Timing) -> Ratio:
    """Return the ratio of two medians, over the rounds that both took part in."""
    count = min(len(numerator.rounds), len(denominator.rounds))
    above, below = Timing(numerator.rounds[:count]), Timing(denominator.rounds[:count])
    each = [statistics.median(a) / statistics.median(b) for a, b in zip(above.rounds, below.rounds)]
    return Ratio(above.median / below.median, min(each), max(each), count)
