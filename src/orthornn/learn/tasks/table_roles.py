"""Which column of a table is what: the inputs, and the values that are known ahead."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..._warnings import warn
from ...errors import DataError
from ..files.cells import listed
from ..files.columns import Table
from ..files.dates import compact_nanoseconds
from ..files.row_numbers import is_nameless, numbers_rows
from .table_options import TableOptions, modes_of, names_in
from .table_sequences import Sequences, mask_column, sequence_column
from .time_grid import grid_of

_FEWEST_OF_A_CLOCK = 10  # rows


@dataclass(frozen=True)
class Roles:
    """The names of columns by their parts: inputs, and those known ahead; what tells sequences apart, and missing steps."""

    inputs: list[str]
    known: list[str]
    sequence: str | None
    mask: str | None


def roles_of(options: TableOptions, table: Table, sequences: Sequences) -> Roles:
    """Return the parts of the columns. DataError for options that name none; warns of columns that are not read."""
    own = sequence_column(options, table), mask_column(options, table)
    inputs = _inputs(options, table, sequences, {*own, options.time, options.split, options.group})
    known = [table.check(name, "known") for name in names_in(options.forecasting.known or "")]
    others = {*own, options.time, options.split, options.group, *names_in(options.target)}
    strange = [name for name in known if name in others or known.count(name) > 1]
    if strange or (options.forecasting.known is not None and not known):
        raise DataError(
            f"Expected known to name columns whose values are known ahead, each once and none with another part to "
            f"play, but got {options.forecasting.known!r}. {table.path} has {listed(table.columns)}."
        )
    return Roles(inputs, known, *own)


def _inputs(options: TableOptions, table: Table, sequences: Sequences, others: set[str | None]) -> list[str]:
    """Return the names of what the network sees. others: The columns that have another part to play."""
    for name in modes_of(options.missing):
        if name:
            table.check(name, "missing")
    words = names_in(options.categories or "")
    twice = next((name for name in words if words.count(name) > 1), None)
    if twice is not None:
        raise DataError(f"Expected each column once in categories, but got {twice!r} several times. Name it once.")
    if options.inputs is not None:
        if not names_in(options.inputs):
            raise DataError(f"Expected inputs to name a column; {table.path} has {listed(table.columns)}.")
        return _named_inputs(options, table, options.inputs)
    strange = [name for name in words if table.check(name, "categories") in others]
    if strange:
        raise DataError(f"Expected categories to be inputs, but got {strange[0]!r}, which has another part to play.")
    if not options.predicts_ahead:
        others = {*others, *names_in(options.target)}
    found, left = [], {}
    for name in table.columns:
        if name in others:
            continue
        kind = table.kind(name)
        if table.features and name == "time":  # of a file of arrays
            left[name] = f"times{_lacks(options, table, sequences, name)}"
        elif numbers_rows(name, table.columns[name]):
            left[name] = f"numbers the rows{_lacks(options, table, sequences, name, unique=True)}"
        elif name in words:
            found.append(name)
        elif kind in ("dates", "text", "nested"):
            left[name] = f"{kind}{_lacks(options, table, sequences, name) if kind == 'dates' else ''}"
        else:
            table.numbers(name, "inputs")  # DataError where a cell is none
            found.append(name)
    if not found:
        raise DataError(
            f"Expected a column of numbers in {table.path} that could be an input next to the target, but got none"
            f"{': ' * bool(left)}{listed(f'{name} ({why})' for name, why in left.items())}. Name one with inputs, "
            f"--inputs; or to forecast the target from its own past, pass ahead, --ahead 1."
        )
    _warn_of_inputs(options, table, found, left)
    return found


def _warn_of_inputs(options: TableOptions, table: Table, found: list[str], left: dict[str, str]) -> None:
    """Warn of columns that are left out, and of inputs that are times."""
    silence = f"To silence this, name what it sees: inputs={','.join(found)[:200]!r}, --inputs."
    if left:
        seen = listed(f"{name} ({why})" for name, why in left.items())
        warn(f"{table.path}: the network does not see {seen}. {silence}")
    clocks = [name for name in found if name not in names_in(options.target) and _is_clock(options, table, name)]
    if clocks:
        warn(
            f"{table.path}: the network sees {listed(clocks)}, which grows by the same amount from row to row, as a "
            f"clock does: later steps have values that training never saw. Name it with time, --time, and the network "
            f"does not see it. {silence}"
        )
    strange = [name for name in found if is_nameless(name)]
    if strange:
        warn(
            f"{table.path}: the network sees {listed(strange)}, a column without a name that does not number the "
            f"rows. If it is the time, name it with time, --time. To silence this, name the column, or what the network "
            f"sees: inputs={','.join(found)[:200]!r}, --inputs.",
        )


def _named_inputs(options: TableOptions, table: Table, inputs: str) -> list[str]:
    """Return the names that the option `inputs` has. DataError if one is there twice, or a category is not."""
    names = [table.check(name, "inputs") for name in names_in(inputs)]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise DataError(f"Expected each column once in inputs, but got {twice!r} several times. Name it once.")
    words = [table.check(name, "categories") for name in names_in(options.categories or "")]
    unseen = next((name for name in words if name not in (*names, *names_in(options.forecasting.known or ""))), None)
    if unseen is not None:
        raise DataError(
            f"Expected categories to be among the inputs, but got {unseen!r}, which the network does not see. Add it to "
            f"inputs, --inputs, or leave it out of categories, --categories."
        )
    seen = [name for name in names if name in names_in(options.target) and not options.predicts_ahead]
    if seen:
        warn(
            f"{table.path}: the network sees the target {seen[0]} of the step that it predicts, which is not known "
            f"then. To silence this, leave it out of inputs, --inputs."
        )
    return names


def _is_clock(options: TableOptions, table: Table, name: str) -> bool:
    """Return whether a column of whole numbers grows by one amount from row to row of a table of one sequence, of which
    no column says the time.
    """
    column = table.columns[name]
    if options.time is not None or sequence_column(options, table) is not None:
        return False
    if column.dtype.kind not in "iu" or len(column) < _FEWEST_OF_A_CLOCK:
        return False
    dates = compact_nanoseconds(column)
    steps = np.diff(column.astype(np.float64) if dates is None else dates)
    return bool(steps[0] > 0 and (steps == steps[0]).all())


def _lacks(options: TableOptions, table: Table, sequences: Sequences, name: str, unique: bool = False) -> str:
    """Return what a column of times that nobody named says of the steps, and advice: out of order, twice, or with gaps.

    unique: Whether that is asked only of a column in which no cell is there twice.
    """
    if options.time is not None:
        return ""
    try:
        times = table.order(name, "time")
    except DataError:
        return ""
    if unique and len(np.unique(times)) < len(times):
        return ""
    order = sequences.order
    earlier = times[order][1:] < times[order][:-1]
    earlier[sequences.rows.starts[1:] - 1] = False  # where another sequence begins
    if earlier.any():
        return " out of order: pass time"
    grid = grid_of(table, name, order, sequences.rows.lengths)
    what = "" if grid is None else {"doubled": ", some twice", "gaps": " with gaps"}.get(grid.kind)
    return f"{what}: pass time" if what else ""
