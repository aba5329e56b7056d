"""Lines that the commands print, which may hold names from a stranger's file."""

from __future__ import annotations

from ..._printable import printable


def say(line: object, end: str = "\n") -> None:
    """Print a line at once, with what a terminal would obey escaped."""
    print(printable(line, keep="\n\t"), end=end, flush=True)
