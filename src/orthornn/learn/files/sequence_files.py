"""Files of raw sequences of one length, for networks that did not learn from a file of the user's own."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ...errors import DataError
from .array_files import read_array, read_arrays
from .cells import listed
from .csv_files import read_numbers

_FORMATS = ".npy, .npz (x, and y to evaluate) or .csv (one sequence a line)"


def read_sequences(path: Path, tokens: bool) -> tuple[np.ndarray, np.ndarray | None]:
    """Return raw sequences of one length, and their targets if the file has some.

    Args:
        path: A .npy, a .npz with `x` and perhaps `y`, or a .csv of numbers with one sequence a line.
        tokens: Whether the numbers are tokens.

    Raises:
        DataError: If the file is missing, damaged, of another kind, or holds something that would be left out.
    """
    suffix = path.suffix.lower()
    if suffix not in (".npy", ".npz", ".csv"):
        raise DataError(f"Expected a file in {_FORMATS}, but {path} is of an unknown kind.")
    if not path.is_file():
        raise DataError(f"Expected a file at {path}, but it does not exist. Needed {_FORMATS}.")
    if suffix == ".npy":
        return read_array(path), None
    if suffix == ".npz":
        arrays = read_arrays(path)
        if "x" not in arrays:
            raise DataError(f"Expected x (and y to evaluate), but {path} holds {listed(arrays)}.")
        more = [name for name in arrays if name not in ("x", "y")]
        if more:
            raise DataError(
                f"Expected only x and y in {path}, but got {listed(more)} as well. This network reads sequences of one "
                f"length without missing steps; pass each length in a separate file."
            )
        return arrays["x"], arrays.get("y")
    numbers = read_numbers(path)
    if tokens and not (numbers % 1 == 0).all():
        raise DataError(f"Expected whole numbers, tokens, in {path}, but got {numbers[numbers % 1 != 0][0]:g}.")
    return numbers.astype(np.int64) if tokens else numbers, None
