"""Convert X in any of its forms to a list of arrays, and y to one target per array."""

from __future__ import annotations

from typing import Any

import numpy as np

from .._checks import check_choice
from .._masked import as_array
from .._optional_packages import import_optional
from ..learn.files.cells import listed
from ..learn.files.rounded_targets import check_rounding
from .times import warn_of_steps


def sequences_of(X: Any, layout: str = "ntc") -> list[np.ndarray]:
    """Return X as a list of float64 arrays (T_i, C). Raise ValueError if X has none of the forms above."""
    check_choice("layout", layout, ("ntc", "nct"))
    if hasattr(X, "to_numpy") and getattr(X, "ndim", None) == 1:
        X = X.to_numpy()  # a Series, each cell of which is a sequence
    if isinstance(X, np.ndarray) and X.dtype == object and X.ndim == 1 and len(X) and _is_several(X[0]):
        X = list(X)
    if hasattr(X, "__dataframe__") or hasattr(X, "columns"):
        X = _of_frame(X, layout)
    if hasattr(X, "toarray"):
        raise TypeError("Expected dense sequences, but got a sparse matrix. Convert it with X.toarray().")
    if isinstance(X, (list, tuple)) and len(X) and _is_several(X[0]):
        found = [_numbers(one) for one in X]
        if all(one.ndim == 1 for one in found):
            found = [one[:, None] for one in found]
        elif layout == "nct":
            found = [one.T for one in found]
    else:
        array = _numbers(X)
        if array.ndim == 2:
            array = array[:, None] if layout == "nct" else array[:, :, None]
        if array.ndim != 3:
            raise ValueError(
                f"Expected 2D array or 3D array (n, T, C), but got shape {array.shape}. Reshape your data: one "
                f"sequence is X[None]."
            )
        found = list(array if layout == "ntc" else array.transpose(0, 2, 1))
    if not found:
        raise ValueError(
            "Expected at least one sequence, but found array with 0 sample(s) while a minimum of 1 is required."
        )
    if any(one.ndim != 2 for one in found) or len({one.shape[1] for one in found}) != 1:
        shapes = sorted({one.shape[1:] for one in found})
        raise ValueError(f"Expected sequences (T, C) with one number of channels, but got {shapes[:5]}.")
    if found[0].shape[1] == 0 or min(len(one) for one in found) == 0:
        raise ValueError(
            f"Expected at least one step and one channel, but found array with 0 feature(s) "
            f"(shape={np.shape(found[0])}) while a minimum of 1 is required."
        )
    if not all(np.isfinite(one).all() for one in found):
        raise ValueError(
            "Expected finite numbers, but got NaN or infinity in X, or masked values. Fill them in, or leave such sequences "
            "out. orthornn.train takes missing values: missing='hold'."
        )
    return found


def names_of(X: Any) -> list[str] | None:
    """Return the names of the columns of a table, or of tables in a list; None without names or if some are not text.

    Raise ValueError if the tables of a list differ in their columns or in the order of columns.
    """
    if isinstance(X, (list, tuple)) and len(X) and hasattr(X[0], "columns"):
        names = list(X[0].columns)
        other = next((place for place, one in enumerate(X) if list(getattr(one, "columns", ())) != names), None)
        if other is not None:
            raise ValueError(
                f"Expected the columns of the first table, {names}, in all of them, but got "
                f"{list(getattr(X[other], 'columns', ()))} in X[{other}]. Put them in one order."
            )
    elif hasattr(X, "columns"):
        names = list(X.columns)
    else:
        return None
    return names if all(isinstance(name, str) for name in names) else None


def _numbers(values: Any) -> np.ndarray:
    try:
        array = as_array(values)
    except ValueError as error:
        raise ValueError(
            "Expected sequences of arrays (T,) or (T, C), but got lists whose parts have unequal lengths. Give each step as "
            "many numbers."
        ) from error
    if array.dtype.kind == "c":
        raise ValueError("Complex data not supported: expected real numbers. Pass two channels.")
    if array.dtype.kind in "mM":
        raise ValueError(f"Expected numbers in X, but got {array.dtype}. Leave dates out, or convert them to numbers.")
    try:
        return array.astype(np.float64)
    except (TypeError, ValueError) as error:
        got = f"{array.dtype} ({error})" if array.ndim else type(values).__name__
        raise type(error)(f"Expected sequences of numbers as X, but got {got}. Convert X to numbers.") from error


def _of_frame(frame: Any, layout: str) -> Any:
    """Return a table as an array, one row per sequence, or as a list, one sequence per value of a two-level index.

    Sequences keep the order in which they first appear; the steps of each are ordered by time.
    """
    levels = getattr(getattr(frame, "index", None), "nlevels", 1)
    if levels > 2:
        raise ValueError(
            f"Expected an index of two levels, sequence and time, in X, but got {levels}. Make the names of the sequences "
            f"one level, or pass a list of arrays, one per sequence."
        )
    if levels == 2:
        if any(frame.index.get_level_values(level).isna().any() for level in (0, 1)):
            raise ValueError("Expected an index of sequence and time, but got missing values in it. Fill them in.")
        in_time = [own.sort_index(level=1, kind="stable") for _, own in frame.groupby(level=0, sort=False)]
        times = in_time[0].index.append([own.index for own in in_time[1:]]).get_level_values(1)
        warn_of_steps(times, [len(own) for own in in_time], "X")
        found = [_numbers(own.to_numpy()) for own in in_time]
        return [one.T for one in found] if layout == "nct" else found
    narwhals = import_optional("narwhals", "baselines", "tables as X")
    table = narwhals.from_native(frame, eager_only=True)
    words = [name for name, kind in table.schema.items() if not (kind.is_numeric() or kind == narwhals.Boolean)]
    if words and not all(_is_number(cell) for name in words for cell in table[name].to_list()):
        raise ValueError(
            f"Expected columns of numbers in X, one for each step, but got {words[0]!r}. A table with one row per step and "
            f"columns for names is for orthornn.train."
        )
    return np.asarray(table.to_numpy())


def _is_several(cell: Any) -> bool:
    return isinstance(cell, (list, tuple)) or np.ndim(cell) >= 1


def _is_number(cell: Any) -> bool:
    return isinstance(cell, (int, float, np.number))


def targets_of(sequences: list[np.ndarray], y: Any, X: Any = None) -> np.ndarray:
    """Return y as an array with one target per sequence.

    Raise ValueError if it is not, or if it orders the sequences of a two-level table X differently.
    """
    if y is None:
        raise ValueError("requires y to be passed, but the target y is None. Pass one target for each sequence.")
    try:
        targets = as_array(y)
    except ValueError as error:
        raise ValueError(
            "Expected y (n,) or (n, O), but got lists of unequal lengths. Pass one target per sequence."
        ) from error
    if targets.dtype.kind == "c":
        raise ValueError("Complex data not supported: expected real numbers as y.")
    if targets.ndim not in (1, 2):
        raise ValueError(
            f"Expected y (n,) or (n, O), but got an array of shape {targets.shape}. Pass one target per sequence."
        )
    if len(targets) != len(sequences):
        raise ValueError(f"Expected {len(sequences)} targets, one for each sequence, but got {len(targets)}.")
    check_order(X, y)
    return targets


def rounded(y: np.ndarray) -> np.ndarray:
    """Return targets (n,) or (n, O), or a series, as float64.

    Raise ValueError if float64 cannot distinguish whole numbers, and warn if it rounds some.
    """
    values = y.astype(np.float64)
    if y.ndim == 1:
        check_rounding(y, values, lambda row: f"as y[{row}]", "y", ValueError)
    elif y.ndim == 2:
        for place, (given, own) in enumerate(zip(y.T, values.T)):
            name = "as y[{}, " + f"{place}]"
            check_rounding(given, own, name.format, f"y[:, {place}]", ValueError)
    return values


def check_order(X: Any, y: Any, which: str = "y") -> None:
    """Raise ValueError if the index of y, or of weights, has the names of the sequences of X in another order than X.

    which: Name for y in the message.
    """
    if getattr(getattr(X, "index", None), "nlevels", 1) != 2 or getattr(getattr(y, "index", None), "nlevels", 2) != 1:
        return
    wanted, found = X.index.get_level_values(0).unique().tolist(), y.index.tolist()
    if found != wanted and set(found) == set(wanted):
        raise ValueError(
            f"Expected {which} in the order in which the sequences first appear in X, {listed(map(str, wanted), 3)}, but got "
            f"the order {listed(map(str, found), 3)}. Sort it with "
            f"{which}.loc[X.index.get_level_values(0).unique()], or pass {which}.to_numpy() if only its index is in another "
            f"order."
        )
