"""The curves of a run, as a results file stores them: enough to draw every figure again and to check every statement
about what a run had reached by which update.

Held-out losses and metrics are stored at every evaluation. Of the training loss, which is recorded far more often, at
most POINTS means of consecutive records are stored, each at the last update of its block: a mean preserves the course
between two points, where a single record in a hundred would be noise. Where an experiment has so many runs that its file
would be megabytes long, they share TOTAL points, and of the evaluations so many are stored, evenly spaced, the last
among them.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

POINTS = 200
TOTAL = 20 * POINTS
_FEWEST = 20
_DIGITS = 5
_HELD_OUT = ("validation", "test")
_CLOCKS = ("seconds", "cpu_seconds")

Curves = Mapping[str, Mapping[str, Sequence[Any]]]


def stored(records: Sequence[Mapping[str, Any]], runs: int = 1) -> Curves:
    """Return {"train", "validation", "test"} -> {"step", "loss", metrics ...} -> one value a point.

    Args:
        records: What a run recorded, in order; of other kinds than these three nothing is stored.
        runs: How many runs the file holds.
    """
    points = POINTS if evaluations_are_whole(runs) else max(_FEWEST, TOTAL // runs)
    curves: dict[str, dict[str, list[Any]]] = {}
    training = [record for record in records if record["kind"] == "train"]
    if training:
        curves["train"] = _columns([_mean(block) for block in _blocks(training, points)])
    for kind in _HELD_OUT:
        found = [record for record in records if record["kind"] == kind]
        if found:
            curves[kind] = _columns(
                found if evaluations_are_whole(runs) else [block[-1] for block in _blocks(found, points)]
            )
    return curves


def evaluations_are_whole(runs: int) -> bool:
    """Return whether a file of so many runs has every evaluation of each."""
    return runs * POINTS <= TOTAL


def restored(curves: Curves) -> list[dict[str, Any]]:
    """Return the records that stored curves stand for, by step; without clocks, which curves do not have."""
    records = [
        {"kind": kind, **dict(zip(columns, values, strict=True))}
        for kind, columns in curves.items()
        for values in zip(*columns.values(), strict=True)
    ]
    return sorted(records, key=lambda record: record["step"])


def _blocks(records: Sequence[Mapping[str, Any]], points: int) -> list[Sequence[Mapping[str, Any]]]:
    """Return consecutive records in at most `points` blocks whose lengths differ by one at most."""
    count = min(points, len(records))
    bounds = [len(records) * number // count for number in range(count + 1)]
    return [records[first:last] for first, last in pairwise(bounds)]


def _mean(block: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the last record of a block with the mean loss of all."""
    return {**block[-1], "loss": statistics.fmean(record["loss"] for record in block)}


def _columns(records: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    names = [name for name in records[0] if name != "kind" and name not in _CLOCKS]
    return {name: [_short(record.get(name)) for record in records] for name in names}


def _short(value: Any) -> Any:
    """Return numbers with as many digits as a figure or a sentence can need."""
    return float(f"{value:.{_DIGITS}g}") if isinstance(value, float) else value
