"""The common layout of the papers' figures: panels of curves by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from orthornn.learn.report.figures import COLORS, Curve

_FEW = 8  # names that fit into a legend inside a panel


def panels(
    shown: Mapping[str, Mapping[str, Curve]],
    *,
    x: str = "updates",
    y: str = "loss",
    log: bool = False,
    baselines: Mapping[str, float] | None = None,
) -> Callable[[Any], None]:
    """Return a function that fills a figure with one panel per title, one curve per name, and a dashed line for a baseline.

    A name has the same color in all panels; titles without curves get no panel. If there are more than _FEW names, one
    legend is placed to the right of the panels.
    """
    shown = {title: curves for title, curves in shown.items() if curves}
    names = list(dict.fromkeys(name for curves in shown.values() for name in curves))

    def draw(figure: Any) -> None:
        row = figure.subplots(1, max(1, len(shown)), squeeze=False)[0]
        for axes, (title, curves) in zip(row, shown.items()):
            for name, (steps, values) in curves.items():
                place = names.index(name)
                style = ("-", "--", ":")[place // len(COLORS) % 3]
                marker = "." if len(steps) < 3 else None
                axes.plot(steps, values, style, marker=marker, color=COLORS[place % len(COLORS)], label=name)
            if baselines is not None and title in baselines:
                axes.axhline(baselines[title], color="0.4", linestyle="--", linewidth=1, label="trivial baseline")
            if log:
                axes.set_yscale("log")
            axes.set_title(title, fontsize="medium")
            axes.set_xlabel(x)
            axes.locator_params(axis="x", nbins=5)
            axes.set_ylabel(y)
            if axes.lines and len(names) <= _FEW:
                axes.legend(frameon=False, fontsize="x-small")
        if len(names) > _FEW:
            lines = {line.get_label(): line for axes in row for line in axes.lines}
            figure.legend(lines.values(), lines.keys(), loc="outside right upper", frameon=False, fontsize="x-small")

    return draw
