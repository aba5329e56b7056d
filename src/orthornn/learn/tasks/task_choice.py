"""The choice of a task for a file of the user's own."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ...errors import DataError
from ..files.cells import coded, kind_of_cells
from ..files.columns import Table, read_columns
from ..files.csv_format import CsvFormat
from ..files.data_frames import Frame, located
from ..files.sound_folder import labels_of
from .plain_baselines import season_of
from .table_options import names_in

_TRAINING = 0.7  # share of the steps, about
_LONGEST = 200  # period that is looked at as a whole


_MANY_CLASSES = 100  # whole numbers that are more than these may be amounts


def choose_task(
    data: Path | Frame | Table,
    target: str,
    ahead: Sequence[str],
    form: CsvFormat | None = None,
    amounts: Sequence[str] = (),
) -> tuple[str, str]:
    """Return ("classify", "regress" or "forecast", the reason in words).

    data: What was read of a file, or where it is; of a folder of sounds the labels are read.

    Forecasting if there are options of one, `ahead`; regression if there are options of numbers, `amounts`. Else by the
    target column: fractions are regressed; text, truth values and whole numbers are classes.

    Raises:
        DataError: If there are so many whole numbers that they may be amounts.
    """
    if ahead:
        named = " and ".join(f"--{name}" for name in ahead)
        return "forecast", f"{named} {'was' if len(ahead) == 1 else 'were'} given"
    if amounts:
        return "regress", f"--{amounts[0]} was given"
    if isinstance(data, Path) and data.is_dir():
        file = Table(data, labels_of(data, form))
    else:
        file = data if isinstance(data, Table) else read_columns(located(data), form)
    names = [file.check(name, "target") for name in names_in(target) or [target]]
    if len(names) > 1:
        return "regress", "there are several targets"
    column = file.columns[names[0]]
    if column.dtype.kind == "f" and not (column[np.isfinite(column)] % 1 == 0).all():
        return "regress", f"{names[0]} holds fractions"
    if names[0] in file.points and kind_of_cells(column) == "numbers":
        file.numbers(names[0], "target")  # DataError that asks for the marks
    kind = file.kind(names[0])
    if kind == "numbers" and column.dtype == object and not all(_is_whole(cell) for cell in column):
        return "classify", f"{names[0]} holds numbers that are names"
    if kind == "numbers" and (count := len(set(column.tolist()))) > _MANY_CLASSES:
        raise DataError(
            f"Expected the name of the task, since {names[0]} holds {count} different whole numbers, which may be amounts or "
            f"classes, but got none. Use regress (task='regress', orthornn train regress) or classify."
        )
    what = "whole numbers" if kind == "numbers" else "names" if kind in ("text", "mixed") else kind
    return "classify", f"{names[0]} holds {what}"


def _is_whole(cell: object) -> bool:
    """Return whether a cell is a whole number as a file of typed columns has it, or missing."""
    return cell is None or isinstance(cell, (int, np.integer))


class Look(NamedTuple):
    """The number of series of a file, the steps of the shortest, and the period of the longest."""

    series: int
    shortest: int
    period: int | None


def look_at_series(file: Table, target: str, sequence: str | None, time: str | None) -> Look:
    """Return what the series of a file are like.

    The period is that of the first target of the longest series, in steps; None if it has none up to 200.
    """
    values = file.numbers(file.check((names_in(target) or [target])[0], "target"), "target")
    if sequence is None and "sequence" in file.columns:
        sequence = "sequence"
    count, shortest, order = 1, len(values), np.arange(len(values))
    if time is not None:
        order = np.argsort(file.order(time, "time"), kind="stable")
    if sequence is not None:
        codes = coded(file.labels(file.check(sequence, "sequence"), "sequence"))[1]
        lengths = np.bincount(codes)
        count, shortest = len(lengths), int(lengths.min())
        order = order[codes[order] == lengths.argmax()]
    own = values[order]
    own = own[: int(_TRAINING * len(own))]
    period = season_of(own[np.isfinite(own)])
    return Look(count, shortest, period if period is not None and period <= _LONGEST else None)
