"""Growth of the cost with n, m, B and T: one of them at a time, from one point."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from orthornn.environment import environment
from orthornn.learn.report.table import Column, Table

from .cases import Case, Work
from .networks import OURS, Runnable
from .tables import number
from .timing import Contender, Timing, interleave
from .verify import require, verify

Axis = Literal["n", "m", "B", "T"]
WY, DENSE, RNN, LSTM = "WY", "dense", "nn.RNN", "nn.LSTM"


@dataclass(frozen=True)
class Grid:
    """The point (n, m, B, T), and the values of each of the four while the others are fixed."""

    n: int = 256
    m: int = 16
    B: int = 1
    T: int = 784
    n_values: tuple[int, ...] = (32, 64, 128, 256, 512, 1024)
    m_values: tuple[int, ...] = (1, 4, 16, 64, 128, 256)
    B_values: tuple[int, ...] = (1, 2, 4, 8, 16, 32, 64, 128)
    T_values: tuple[int, ...] = (98, 196, 392, 784, 1568, 3136)

    def values(self, axis: Axis) -> tuple[int, ...]:
        """Return the values of one axis."""
        return {"n": self.n_values, "m": self.m_values, "B": self.B_values, "T": self.T_values}[axis]

    def at(self, axis: Axis, value: int) -> tuple[int, int, int, int]:
        """Return (n, m, B, T) with one of them replaced; m never exceeds n."""
        sizes = {"n": self.n, "m": self.m, "B": self.B, "T": self.T, axis: value}
        return sizes["n"], min(sizes["m"], sizes["n"]), sizes["B"], sizes["T"]


QUICK = Grid(n=128, n_values=(64, 128, 256), m_values=(4, 16, 64), B_values=(1, 4, 16), T_values=(196, 392, 784))
AXES: tuple[Axis, ...] = ("n", "m", "B", "T")


@dataclass(frozen=True)
class Point:
    """Timings of every network at one value of an axis."""

    axis: Axis
    value: int
    n: int
    m: int
    B: int
    T: int
    timings: dict[str, Timing]


@dataclass(frozen=True)
class Sweep:
    """All points of a sweep, in order."""

    environment: dict[str, Any]
    work: Work
    grid: Grid
    points: list[Point]

    def line(self, axis: Axis, name: str) -> tuple[list[int], list[Timing]]:
        """Return (values, timings) of one network along one axis."""
        points = [point for point in self.points if point.axis == axis and name in point.timings]
        return [point.value for point in points], [point.timings[name] for point in points]

    def to_dict(self) -> dict[str, Any]:
        """Return the results for JSON."""
        return asdict(self)


def sweep(grid: Grid, work: Work, rounds: int, cap: float, say: Callable[[str], object] = lambda line: None) -> Sweep:
    """Verify every case of the grid, then time it.

    cap: seconds that nn.RNN and nn.LSTM may take at each point; they get the number of rounds that fits, at least one.
    Raise VerificationError, before timing anything, if a case is wrong.
    """
    places = [(axis, value, *grid.at(axis, value)) for axis in AXES for value in grid.values(axis)]
    cases = {case for _, _, n, m, B, _ in places for case in (Case("wy", n, m, B), Case("cayley", n, 0, B))}
    require([verify(case, work) for case in sorted(cases, key=lambda case: case.name)])
    say(f"verified {len(cases)} cases")
    points = []
    for axis, value, n, m, B, T in places:
        at = replace(work, T=T)
        wy, dense = Case("wy", n, m, B), Case("cayley", n, 0, B)
        runnables = {
            WY: Runnable.make(OURS, wy, at),
            DENSE: Runnable.make(OURS, dense, at),
            RNN: Runnable.make("rnn", dense, at),
            LSTM: Runnable.make("lstm", dense, at),
        }
        contenders = [
            Contender(name, r.run, r.clear, at.synchronize, cap if r.name != OURS else None)
            for name, r in runnables.items()
        ]
        points.append(Point(axis, value, n, m, B, T, interleave(contenders, rounds)))
        say(f"timed {axis}={value}")
    return Sweep(environment(), work, grid, points)


def sweep_tables(result: Sweep) -> list[Table]:
    """Return one table per axis: the median, and the exponent of its growth since the previous row."""
    tables = []
    grid = result.grid
    for axis in AXES:
        fixed = ", ".join(f"{name}={getattr(grid, name)}" for name in AXES if name != axis)
        columns = [Column(axis)]
        for name in (WY, DENSE, RNN, LSTM):
            columns += [Column(f"{name} ms"), Column("power")]
        table = Table(f"cost against {axis} ({fixed})", columns)
        lines = {name: result.line(axis, name) for name in (WY, DENSE, RNN, LSTM)}
        for index, value in enumerate(grid.values(axis)):
            row = [str(value)]
            for values, timings in lines.values():
                row += [number(1e3 * timings[index].median), power(values, timings, index)]
            table.rows.append(row)
        tables.append(table)
    return tables


def power(values: Sequence[int], timings: Sequence[Timing], index: int) -> str:
    """Return p in seconds ~ value^p between this row and the one before; empty for the first."""
    if index == 0 or values[index] == values[index - 1]:
        return ""
    growth = timings[index].median / timings[index - 1].median
    return f"{math.log(growth) / math.log(values[index] / values[index - 1]):.2f}"
