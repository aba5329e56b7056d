"""Targets that are numbers: read, transformed, and standardized by the training part."""

from __future__ import annotations

import numpy as np

from ...errors import DataError
from ..files.cells import listed
from ..files.columns import Table
from .table_data import TargetCells, Targets, moments
from .table_options import TableOptions, names_in
from .table_series import numbers_to_transform
from .table_splits import Split
from .table_values import INFINITE, strict_targets
from .target_transform import transformed


def raw_numbers(options: TableOptions, table: Table) -> np.ndarray:
    """Return the targets of every row as the file has them, (R, O)."""
    return np.stack([numbers_to_transform(options, table, name, "target") for name in names_in(options.target)], 1)


def read_numbers(options: TableOptions, table: Table) -> TargetCells:
    """Return the same as the network learns them. DataError for a missing one that nobody spoke of, or an infinite one."""
    targets = raw_numbers(options, table)
    wrong = (np.isnan(targets) & strict_targets(options) | np.isinf(targets)).any(1)
    if wrong.any():
        row = int(np.flatnonzero(wrong)[0])
        infinite = bool(np.isinf(targets[row]).any())
        advice = "Fill them in, or leave them out of the loss: missing='hold', --missing hold."
        raise DataError(
            f"Expected finite numbers in {table.path}, column(s) {options.target}, but got {targets[row].tolist()} in "
            f"{table.row(row)}, as in {int(wrong.sum())} row(s) in all. "
            f"{INFINITE if infinite else advice}"
        )
    return TargetCells(transformed(targets, options.target_transform))


def number_targets(options: TableOptions, targets: np.ndarray, split: Split) -> Targets:
    """Return targets (R, O), in the order of the sequences, with their scale in the training part.

    DataError if there are none in it, or if one is the same in all of it.
    """
    pieces = split.pieces["train"]
    if options.output == "all":
        rows = np.unique(
            np.concatenate([np.arange(at + options.forecasting.leads[0], at + steps) for at, steps in pieces])
        )
    else:
        rows = np.array([at + steps - 1 for at, steps in pieces])
    known = targets[rows]
    known = known[np.isfinite(known).all(1)]
    if not len(known):
        raise DataError(
            f"Expected targets in the training part of {options.data}, but got none. Choose another split_seed, or add data."
        )
    mean, deviation = moments(options, known, names_in(options.target))
    if not deviation.all():
        same = [name for name, spread in zip(names_in(options.target), deviation) if not spread]
        raise DataError(
            f"Expected targets that differ in the training part of {options.data}, but {listed(same)} is the "
            f"same in all of it. Choose another split_seed, or leave it out of target, --target."
        )
    return Targets(targets, np.isfinite(targets).all(1), mean, deviation)
