"""Parts of the papers' figures, on matplotlib axes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from orthornn.learn.report.figures import COLORS, Curve


def curves(
    axes: Any,
    lines: Mapping[str, Sequence[Curve]],
    *,
    x: str,
    y: str,
    title: str = "",
    level: tuple[str, float] | None = None,
    log: bool = False,
) -> None:
    """Draw lines by name, one color per name and one line per seed.

    level: a dashed horizontal line, (label, height).
    """
    for number, (name, seeds) in enumerate(lines.items()):
        for index, (at, values) in enumerate(seeds):
            axes.plot(at, values, color=COLORS[number % len(COLORS)], label=name if index == 0 else None, linewidth=1.2)
    if level is not None:
        axes.axhline(level[1], color="0.4", linestyle="--", linewidth=1, label=level[0])
    if log:
        axes.set_yscale("log")
    _words(axes, x, y, title)
    axes.legend(frameon=False, fontsize="small")


def boxes(axes: Any, groups: Mapping[str, Sequence[float]], *, y: str) -> None:
    """Draw one box per group: median, quartiles, whiskers from 9 to 91 %, and every value as a point."""
    axes.boxplot(list(groups.values()), whis=(9, 91), showfliers=False, medianprops={"color": "red"})
    for place, values in enumerate(groups.values(), start=1):
        axes.plot([place] * len(values), values, ".", color="0.4", markersize=4)
    axes.set_xticks(range(1, len(groups) + 1), list(groups), rotation=30, ha="right", fontsize="small")
    axes.set_yscale("log")
    _words(axes, "", y, "")


def _words(axes: Any, x: str, y: str, title: str) -> None:
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    axes.set_title(title)
