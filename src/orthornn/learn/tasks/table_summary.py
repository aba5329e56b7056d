"""Lines that say what was read of a table, and what each column is for."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..files.cells import listed, missing_cells
from ..files.data_frames import shown_name
from .channels import beyond
from .table_data import ReadTable
from .table_options import TableOptions, modes_of, names_in
from .time_grid import grid_summary, times_in


def summary_of(options: TableOptions, read: ReadTable, of_targets: Sequence[str]) -> list[str]:
    """Return the lines. of_targets: Lines about the targets."""
    table, rows, roles, data = read.source.table, read.sequences.rows, read.roles, read.data
    count = len(rows)
    apart = "" if roles.sequence is None else f" by the column {roles.sequence}"
    order = "as in the file" if options.time is None else f"by the column {options.time}"
    first, last = options.forecasting.leads[0], options.forecasting.leads[-1]
    columns = {
        "inputs": [
            channel.name for channel in data.channels if not channel.lead and channel.kind not in ("series", "elapsed")
        ],
        f"known {first if first == last else f'{first} to {last}'} steps ahead": roles.known,
        "target": names_in(options.target),
        "mask": [roles.mask] if roles.mask else [],
    }
    gone = ~data.observed & ~beyond(data.channels, rows.lengths).any(1)
    seen = np.logical_or.reduceat(data.observed, rows.starts)
    held = int((gone & np.repeat(seen, rows.lengths)).sum())
    empty = int((~seen).sum())
    without = 0 if options.output == "all" else int((~data.targets.there[rows.lengths.cumsum() - 1]).sum())
    by = [f"{name} {value}" for name, value in (("column", options.split), ("group", options.group)) if value]
    if read.stratified and not by and count >= 3:
        by = ["class"]
    return [
        *([f"{table.path}: {table.sound}"] if table.sound else []),
        f"{shown_name(options.data)}: {table.rows} rows, {count} sequence{'s' if count != 1 else ''}{apart} of "
        f"{_range(rows.lengths)} steps, in order {order}"
        + (f"; {held} steps are missing and hold the state" if held else "")
        + (f"; {empty} sequences have no step that is observed, and are left out" if empty else "")
        + (f"; {without} have no target in their last row, and are left out" if without else ""),
        "   ".join(f"{name}: {_short(names)}" for name, names in columns.items() if names),
        f"{'sequences' if read.split.whole else 'windows'}: "
        + ", ".join(f"{len(part.pieces)} for {name}" for name, part in data.parts.items())
        + (f" (by {', '.join(by)})" if by else ""),
        *_of_values(options, read),
        *of_targets,
        "scaling: by mean and standard deviation of the training part",
    ]


def _of_values(options: TableOptions, read: ReadTable) -> list[str]:
    """Return lines about vectors of series, missing values and the grid of the times."""
    lines, table, sequences = [], read.source.table, read.sequences
    if options.forecasting.embedding is not None:
        lines.append(f"vectors: {options.forecasting.embedding} numbers for each of {len(read.data.series)} series")
    gone = {name: missing_cells(table.columns[name]) for name in [*read.roles.inputs, *names_in(options.target)]}
    if any(gone.values()):
        modes = modes_of(options.missing)
        told = [f"{number} in {name} ({modes.get(name, modes[''])})" for name, number in gone.items() if number]
        lines.append(f"missing: {', '.join(told)}")
    if options.time is not None:
        grid = grid_summary(table, options.time, sequences.order, sequences.rows.lengths, options.irregular)
        lines += [f"{options.time}: {grid}"] if grid else []
    if options.irregular:
        _, are_dates = times_in(table, options.time or "")
        unit = f"{read.data.deviation[-1]:.6g}{' s' if are_dates else ''}"
        lines.append(f"time between steps, read by the network: in units of {unit}, its median in training")
    return lines


def _short(names: list[str]) -> str:
    """Return names as they are listed; the features of an array, which are numbered, by the first and the last."""
    numbered = len(names) > 2 and names == [f"x{place}" for place in range(len(names))]
    return f"{names[0]} to {names[-1]}" if numbered else listed(names)


def _range(lengths: np.ndarray) -> str:
    least, most = int(lengths.min()), int(lengths.max())
    return str(least) if least == most else f"{least} to {most}"
