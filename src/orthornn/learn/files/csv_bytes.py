"""The bytes of a text file: decompressed, in UTF-8, behind a byte-order mark."""

from __future__ import annotations

import codecs
import io
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from ..._files import READ, system_errors
from ...errors import DataError
from .inflate import check_inflated, largest

_PIECE = 1 << 20


@contextmanager
def opened(path: Path, encoding: str | None = None) -> Iterator[BinaryIO]:
    """Open the bytes of a file, decompressed if its name ends in .gz, behind a byte-order mark; they can be read again.

    encoding: Encoding of the file, which is converted to UTF-8. Default: None, UTF-8.
    """
    compressed = path.suffix.lower() == ".gz"
    with system_errors(f"to read {path}", READ):
        if encoding is not None and codecs.lookup(encoding).name != "utf-8":
            content = _inflated(path) if compressed else path.read_bytes()
            yield _behind_mark(io.BytesIO(_in_utf8(path, content, encoding)))
        elif compressed:
            yield _behind_mark(io.BytesIO(_inflated(path)))
        else:
            with open(path, "rb") as file:
                yield _behind_mark(file if file.seekable() else io.BytesIO(file.read()))


def first_line(file: BinaryIO) -> bytes:
    """Return the first line, without its end: a line feed, or a carriage return alone."""
    return file.readline().partition(b"\n")[0].partition(b"\r")[0]


def _in_utf8(path: Path, content: bytes, encoding: str) -> bytes:
    """Return the text of a file of another encoding in UTF-8. DataError if it has none."""
    try:
        text = content.decode(encoding)
        if "\0" in text:  # an encoding of one byte for each character decodes anything
            raise UnicodeError("it has characters of number 0, as UTF-16 read as another encoding has")
        return text.encode()
    except UnicodeError as error:
        raise DataError(
            f"Expected a CSV file in {encoding}, as encoding, --encoding, says, but {path} is none: {error}. Name the "
            f"encoding in which it was saved, or save it as UTF-8 and leave the option out."
        ) from error


def _behind_mark(file: BinaryIO) -> BinaryIO:
    file.seek(3 if file.read(3) == b"\xef\xbb\xbf" else 0)
    return file


def _inflated(path: Path) -> bytes:
    """Return the content of a gzip file, of one member or several, within the bound of inflate.py."""
    size = path.stat().st_size
    pieces, total = [], 0
    with open(path, "rb") as file:
        rest = file.read(_PIECE)
        if not rest:
            raise DataError(f"Expected a gzip file, but {path} is empty. Fetch it or write it again.")
        try:
            while rest:
                stream = zlib.decompressobj(31)
                while not stream.eof:
                    if not rest and not stream.unconsumed_tail:
                        raise zlib.error("it ends too soon")
                    piece = stream.decompress(stream.unconsumed_tail + rest, _PIECE)
                    total += len(piece)
                    if total > largest(size):
                        check_inflated(path, size, total, "Divide it into smaller files.")
                    pieces.append(piece)
                    rest = b"" if stream.eof or stream.unconsumed_tail else file.read(_PIECE)
                rest = stream.unused_data or file.read(_PIECE)
        except zlib.error as error:
            raise DataError(
                f"Expected a gzip file, but {path} is truncated, corrupt or another file: {error}. Fetch it or "
                f"write it again."
            ) from error
    return b"".join(pieces)
