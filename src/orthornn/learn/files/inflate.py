"""A bound on the size of a decompressed file, which prevents a file of a few megabytes from filling the memory."""

from __future__ import annotations

from pathlib import Path

from ...errors import DataError

FREE = 1 << 30  # bytes that every file may become
RATIO = 20  # times its own size, which is more than recorded numbers compress


def largest(size: int) -> int:
    """Return how many bytes a file of `size` bytes may become."""
    return max(FREE, RATIO * size)


def check_inflated(path: Path | str, size: int, becomes: int, advice: str) -> None:
    """Raise DataError if a file of `size` bytes would become more than the bound."""
    if becomes > largest(size):
        raise DataError(
            f"Expected {path}, a file of {size} bytes, to become at most {largest(size)} bytes when decompressed, but got "
            f"{becomes}. {advice}"
        )
