"""The choice of a task for a file of the user's own."""

from __future__ import annotations

from pathlib import Path

from .columns import read_columns
from .csv_files import CsvFormat


def choose_task(path: Path, target: str, ahead: bool, form: CsvFormat | None = None) -> tuple[str, str]:
    """Return ("classify", "regress" or "forecast", the reason in words).

    Forecasting if a number of steps ahead was given. Else by the target column: fractions are regressed; text, truth
    values and whole numbers are classes.
    """
    if ahead:
        return "forecast", "--ahead was given"
    file = read_columns(path.expanduser(), form)
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
