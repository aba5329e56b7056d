"""Arrays from .npy and .npz files.

numpy.load allocates what a header promises and decompresses what an archive holds. Here a header is compared with the
bytes that are there before anything is allocated, an archive with the bound of inflate.py, and nothing is pickled.
"""

from __future__ import annotations

import math
import struct
import zipfile
from pathlib import Path
from typing import IO

import numpy as np

from ...errors import DataError
from .inflate import check_inflated
from .left_out import is_left_out

_KINDS = "biufcUSM"  # numbers, text, dates
_END = 22  # bytes of the last record of an archive without a comment


def read_array(path: Path) -> np.ndarray:
    """Return the array in a .npy file. Raises DataError if it is not one, or not whole."""
    try:
        with open(path, "rb") as file:
            return _read(file, path.stat().st_size)
    except (OSError, ValueError) as error:
        raise DataError(
            f"Expected a .npy file without pickled objects, but {path} is truncated, corrupt or another file: {error}. Write "
            f"it again with numpy.save."
        ) from error


def read_arrays(path: Path) -> dict[str, np.ndarray]:
    """Return the arrays in a .npz file by name. Raises DataError if it is not one, not whole, or too large."""
    size = path.stat().st_size if path.is_file() else 0
    try:
        with zipfile.ZipFile(path) as archive:
            entries = archive.infolist()
            advice = "Save it with numpy.savez, which does not compress."
            check_inflated(path, size, sum(entry.file_size for entry in entries), advice)
            if len(entries) != _entries(path, size):
                raise ValueError(f"{len(entries)} of the arrays in its directory are found")
            entries = [entry for entry in entries if not _is_left_out(entry.filename)]
            names = [entry.filename for entry in entries]
            strange = [name for name in names if not name.endswith(".npy") or names.count(name) > 1]
            if strange:
                raise ValueError(f"it holds {strange[0][:60]!r}, which is not an array, or is duplicated")
            found = {}
            for entry in entries:
                with archive.open(entry) as file:
                    found[entry.filename.removesuffix(".npy")] = _read(file, entry.file_size)
            return found
    except DataError:
        raise
    except Exception as error:  # zipfile and its decompressors raise a dozen kinds for a damaged archive
        raise DataError(
            f"Expected a .npz file without pickled objects, but {path} is truncated, corrupt or another file: "
            f"{str(error)[:200]}. Write it again with numpy.savez."
        ) from error


def _is_left_out(name: str) -> bool:
    """Return whether an operating system added a member of an archive, which is not an array: __MACOSX/._x.npy."""
    return is_left_out(name) and ("/" in name or not name.endswith(".npy"))


def _entries(path: Path, size: int) -> int:
    """Return the number of entries that an archive declares. zipfile does not compare: one changed byte makes it lose
    the others.
    """
    with open(path, "rb") as file:
        file.seek(max(0, size - _END))
        end = file.read(_END)
    if end[:4] != b"PK\x05\x06":
        raise ValueError("it does not end like a numpy archive")
    return struct.unpack_from("<H", end, 10)[0]


def _read(file: IO[bytes], size: int) -> np.ndarray:
    """Return the array in a stream of `size` bytes. ValueError if its header does not fit them."""
    version = np.lib.format.read_magic(file)
    readers = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
    if version not in readers:
        raise ValueError(f"Expected the format (1, 0) or (2, 0), but it has {version}")
    try:
        shape, by_columns, dtype = readers[version](file)
    except Exception as error:  # the header is an expression of Python, and so are its errors
        raise ValueError(f"its header cannot be read: {str(error)[:200]}") from None
    if dtype.kind not in _KINDS or dtype.itemsize == 0:
        raise ValueError(f"Expected entries that are numbers, text or dates, but they are {dtype}")
    count = math.prod(shape)
    promised, there = count * dtype.itemsize, size - file.tell()
    if min(shape, default=0) < 0 or promised != there:
        raise ValueError(
            f"its header promises {' x '.join(str(length)[:30] for length in shape)} entries of {dtype.itemsize} "
            f"bytes, {there} bytes follow"
        )
    raw = np.empty(promised, np.uint8)
    done = 0
    while done < promised:
        got = file.readinto(raw[done:])  # type: ignore[attr-defined]
        if not got:
            raise ValueError(f"it ends after {done} of {promised} bytes")
        done += got
    file.read(1)  # an archive compares its sum at the end
    return raw.view(dtype).reshape(shape, order="F" if by_columns else "C")
