"""The results as figures."""

from __future__ import annotations

from pathlib import Path

from orthornn.learn.report.figures import COLORS, canvas, plain_style

from . import floors
from .benchmark import Results
from .networks import NETWORKS, OURS
from .scaling import AXES, DENSE, LSTM, RNN, WY, Sweep

_AXIS_NAMES = {"n": "hidden size n", "m": "reflections m", "B": "sequences B", "T": "steps T"}


@plain_style()
def ratio_figure(path: Path, results: Results) -> None:
    """Draw how many times slower each peer is than ours: one row per case, one mark per peer with the spread over
    rounds.

    A triangle is the floor for the peer of its color. The format is the path's suffix.
    """
    names = [name for name in NETWORKS if name != OURS and any(name in result.ratios for result in results.cases)]
    figure = canvas((8.5, 1.6 + 0.26 * len(results.cases) * max(len(names), 1)))
    axes = figure.add_subplot()
    wanted = {(floor.case, floor.peer): floor.ratio for floor in floors.RATIOS}
    labeled: set[str] = set()
    for row, result in enumerate(results.cases):
        for index, name in enumerate(names):
            ratio = result.ratios.get(name)
            if ratio is None:
                continue
            place = row + (index + 0.5) / len(names) * 0.8 - 0.4
            color = COLORS[list(NETWORKS).index(name) % len(COLORS)]
            axes.plot([ratio.low, ratio.high], [place, place], color=color, linewidth=1.5)
            label = None if name in labeled else NETWORKS[name].summary
            axes.plot(ratio.value, place, "o", color=color, markersize=5, label=label)
            labeled.add(name)
            floor = wanted.get((result.case.name, name))
            if floor is not None:
                axes.plot(floor, place, ">", color=color, markersize=6, fillstyle="none")
    axes.axvline(1, color="0.4", linewidth=1)
    axes.set_xscale("log")
    axes.set_yticks(range(len(results.cases)), [result.case.title for result in results.cases])
    axes.invert_yaxis()
    axes.set_xlabel("times slower than orthornn (line: least to largest round; triangle: floor)")
    work = results.work
    axes.set_title(f"forward and backward, T={work.T}, {results.threads} thread(s)", fontsize="medium")
    if labeled:
        axes.legend(frameon=False, fontsize="small", loc="upper left", bbox_to_anchor=(1.0, 1.0))
    figure.savefig(path, dpi=150)


@plain_style()
def sweep_figure(path: Path, sweep: Sweep) -> None:
    """Draw milliseconds against n, m, B and T, with the quartiles of the runs."""
    figure = canvas((13.5, 4.0))
    for place, axis in zip(figure.subplots(1, len(AXES), sharey=True), AXES):
        for color, name in zip(COLORS, (WY, DENSE, RNN, LSTM)):
            values, timings = sweep.line(axis, name)
            middle = [1e3 * timing.median for timing in timings]
            low, high = ([1e3 * timing.quartiles[end] for timing in timings] for end in (0, 1))
            place.plot(values, middle, "o-", color=color, markersize=3.5, label=name)
            place.fill_between(values, low, high, color=color, alpha=0.25, linewidth=0)
        place.set_xscale("log", base=2)
        place.set_yscale("log")
        place.set_xlabel(_AXIS_NAMES[axis])
        fixed = ", ".join(f"{other}={getattr(sweep.grid, other)}" for other in AXES if other != axis)
        place.set_title(fixed, fontsize="small")
        if axis == "n":
            place.set_ylabel("ms, forward and backward")
            place.legend(frameon=False, fontsize="small")
    figure.savefig(path, dpi=150)
