"""The choice of a task for a file of the user's own."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from .columns import Columns, read_columns
from .csv_files import CsvFormat
from .plain_baselines import season_of
from .sound_folder import labels_of

_TRAINING = 0.7  # share of the steps, about
_LONGEST = 200  # period that is looked at as a whole


def choose_task(path: Path, target: str, ahead: Sequence[str], form: CsvFormat | None = None) -> tuple[str, str]:
    """Return ("classify", "regress" or "forecast", the reason in words).

    Forecasting if there are options of one, `ahead`. Else by the target column: fractions are regressed; text, truth values
    and whole numbers are classes.
    """
    if ahead:
        named = " and ".join(f"--{name}" for name in ahead)
        return "forecast", f"{named} {'was' if len(ahead) == 1 else 'were'} given"
    path = path.expanduser()
    file = Columns(path, labels_of(path)) if path.is_dir() else read_columns(path, form)
    names = [file.check(name.strip(), "target") for name in target.split(",")]
    if len(names) > 1:
        return "regress", "there are several targets"
    column = file.columns[names[0]]
    if column.dtype.kind == "f" and not (column[column == column] % 1 == 0).all():
        return "regress", f"{names[0]} holds fractions"
    kind = file.kind(names[0])
    if kind == "numbers" and column.dtype == object:
        return "classify", f"{names[0]} holds numbers that are names"
    what = "whole numbers" if kind == "numbers" else "names" if kind in ("text", "mixed") else kind
    return "classify", f"{names[0]} holds {what}"


def period_of(path: Path, target: str, time: str | None, form: CsvFormat | None = None) -> int | None:
    """Return the period of the first target of a file that is one series, in steps; None if it has none up to 200."""
    file = read_columns(path.expanduser(), form)
    if file.sequences or "sequence" in file.columns:
        return None
    values = file.numbers(file.check(target.split(",")[0].strip(), "target"), "target")
    if time is not None:
        values = values[np.argsort(file.order(time, "time"), kind="stable")]
    values = values[: int(_TRAINING * len(values))]
    period = season_of(values[np.isfinite(values)])
    return period if period is not None and period <= _LONGEST else None
