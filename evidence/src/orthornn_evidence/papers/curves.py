"""The curves of a run as stored in a results file, from which every figure and every statement about them can be rebuilt.

Held-out losses and metrics are stored at every evaluation. The training loss is recorded far more often: at most POINTS means
of consecutive records are stored, each at the last update of its block, because a single record would be noise. If an
experiment has so many runs that its file would have megabytes, they share TOTAL points, and the same number of evenly spaced
evaluations is stored, including the last.
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
        records: The records of a run, in order; other kinds are ignored.
        runs: Number of runs in the file.
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
    """Return whether a file with this many runs has every evaluation of each."""
    return runs * POINTS <= TOTAL


def restored(curves: Curves) -> list[dict[str, Any]]:
    """Return the records of stored curves, by step, without times, which curves do not include."""
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
    """Return numbers rounded to the digits that figures and sentences need."""
    return float(f"{value:.{_DIGITS}g}") if isinstance(value, float) else value
