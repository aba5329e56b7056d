"""The lines of a CSV file in pieces of a few megabytes.

The text of a plain file that pyarrow reads is never in memory as a whole. The text of a compressed file and of a pipe
is, since it may be read twice, and so is the text of a file that only Python's reader can read; see csv_cells.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import BinaryIO

import numpy as np


def pieces(file: BinaryIO, size: int) -> Iterator[bytes]:
    """Yield the rest of a file in pieces of about `size` bytes, each of whole lines and whole quoted cells.

    Empty lines at the end of the file are left out; those at the end of a piece begin the next one.
    """
    empty = b""
    while True:
        parts = [empty, file.read(size), file.readline()]
        if not parts[1]:
            return
        quotes = sum(part.count(b'"') for part in parts)
        while quotes % 2:
            more = [file.read(size), file.readline()]
            if not more[0]:
                break
            quotes += sum(part.count(b'"') for part in more)
            parts += more
        piece = b"".join(parts)
        last = len(piece)
        while last and piece[last - 1] in b"\r\n":
            last -= 1
        end = last + (2 if piece[last : last + 2] == b"\r\n" else 1) if last else 0
        empty = piece[end:]
        if end:
            yield piece[:end]


def reads_alike(piece: bytes, separator: str) -> bool:
    """Return whether pyarrow is certain to see the same cells in a piece as Python's strict reader.

    That needs no lone carriage return, no zero byte, and quotes only around whole cells.
    """
    if b"\0" in piece or (b"\r" in piece and piece.count(b"\r") != piece.count(b"\r\n")):
        return False
    return b'"' not in piece or _quotes_enclose_cells(piece, separator)


def may_have_empty_line(piece: bytes) -> bool:
    """Return whether there may be an empty line in a piece; True too for one inside a quoted cell."""
    return piece.startswith((b"\n", b"\r")) or b"\n\n" in piece or b"\n\r" in piece


def _quotes_enclose_cells(piece: bytes, separator: str) -> bool:
    """Return whether each opening quote begins a cell and each closing one ends it; a doubled one closes and opens."""
    found = np.frombuffer(piece, np.uint8)
    places = np.flatnonzero(found == ord('"'))
    if len(places) % 2:
        return False
    edges = [ord(separator), ord("\n"), ord("\r")]
    opening, closing = places[::2], places[1::2]
    before = np.where(opening > 0, found[opening - 1], ord("\n"))
    after = np.where(closing + 1 < len(found), found[(closing + 1).clip(max=len(found) - 1)], ord("\n"))
    doubled = np.zeros(len(opening), bool)
    doubled[1:] = closing[:-1] + 1 == opening[1:]
    reopened = np.append(doubled[1:], False)
    return bool((np.isin(before, edges) | doubled).all() and (np.isin(after, edges) | reopened).all())
