"""`orthornn inspect FILE`: show the contents of a file, and what a training run would use of them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import ArgumentError
from ..learn.files.cells import coded, listed, missing_cells, shown
from ..learn.files.columns import SUFFIXES, Table, is_data, read_columns
from ..learn.files.csv_format import format_of
from ..learn.files.row_numbers import numbers_rows
from ..learn.options import read_values
from ..learn.own_data import options_for, table_options
from ..learn.report.lines import say, show
from ..learn.report.table import Column
from ..learn.report.table import Table as ShownTable
from ..learn.tasks.table_options import sound_format
from .arguments import parse

USAGE = f"""\
orthornn inspect - show the columns of a file, and what a training run would use of them

usage: orthornn inspect FILE                             show its columns
       orthornn inspect FILE --target COLUMN [options]   also show what `orthornn train` with these options would use

FILE ends in {", ".join(SUFFIXES)}, or is a folder of sounds. The options are
those of the task, such as `orthornn train classify --help` lists. Those that say how a text file is written need no
--target: --separator, --decimal, --thousands, --na, --default-na, --encoding.
"""
_MOST_VALUES = 5
_READING = ("separator", "decimal", "thousands", "na", "default_na", "encoding")


def main(words: Sequence[str]) -> int:
    """Run the command and return the exit status."""
    if not words or not {"-h", "--help"}.isdisjoint(words):
        print(USAGE, end="")
        return 0
    path, known = Path(words[0]), table_options(None)
    given = parse(words[1:], known, "orthornn inspect")
    if not is_data(path.expanduser()):
        raise ArgumentError(f"Expected a file ({', '.join(SUFFIXES)}) or a folder of sounds, but got {words[0]!r}.")
    left = [known[name].typed for name in given if "target" not in given and name not in _READING]
    if left:
        raise ArgumentError(
            f"Expected only options for reading the file, or --target COLUMN with the options of a task, but got "
            f"{left[0]!r}. Leave it out, or name the target."
        )
    values = read_values(given, known, "orthornn inspect")
    file = read_columns(path.expanduser(), format_of(values), sound_format(values))
    show_columns(file)
    if "target" in given:
        made = options_for(words[0], given, say, command=None, prog="orthornn inspect", file=file).make_task()
        for line in made.summary_lines():
            say(line)
    return 0


def show_columns(file: Table) -> None:
    """Print one row per column: its content, the number of missing cells, and its range or most frequent values."""
    table = ShownTable(
        f"{file.path}: {file.rows} rows, {len(file.columns)} columns",
        [Column("column", left=True), Column("holds", left=True), Column("missing"), Column("values", left=True)],
    )
    for name, column in file.columns.items():
        kind = "row numbers" if numbers_rows(name, file.columns[name]) else file.kind(name)
        table.rows.append([listed([name]), kind, str(missing_cells(column)), _values(file, name, kind)])
    table.show()
    if file.sound:
        show(file.sound)


def _values(file: Table, name: str, kind: str) -> str:
    column: Any = file.columns[name]
    if kind in ("numbers", "row numbers") and column.dtype.kind in "iuf":
        there = column[column == column]
        return f"{there.min():.4g} to {there.max():.4g}, mean {there.mean():.4g}" if len(there) else "none"
    if kind == "nested":
        return "lists or tables, which no task reads"
    labels = file.labels(name, "inspect")
    there = labels[np.array([label is not None for label in labels])]
    if not len(there):
        return "none"
    if kind == "dates":
        return f"{min(there)} to {max(there)}"
    values, codes = coded(there)
    counts = np.bincount(codes)
    if kind == "mixed":
        return f"{len(values)} different, such as {', '.join(shown(value) for value in values[:_MOST_VALUES])}"
    order = np.argsort(-counts, kind="stable")[:_MOST_VALUES]
    most = listed(f"{values[place]} {counts[place]}" for place in order)
    return f"{len(values)} different: {most}{', ...' if len(values) > _MOST_VALUES else ''}"
