"""The sizes in the header of a sound file, compared with the bytes that are there.

WAV          The chunk `data` states its bytes (RF64: the chunk `ds64`). A program that writes to a pipe, or was killed, never
             fills them in: the header has 0, or a size just below 2^31 or 2^32. Then the sound ends with the file.
NIST SPHERE  The field sample_count.
Ogg          No size, but every page states its own, and the last one is marked.

FLAC states its samples too; libsndfile compares them.
"""

from __future__ import annotations

import re
import struct
from typing import NamedTuple

_MOST_CHUNKS = 10_000
_PLACEHOLDERS = ((2**31 - 4096, 2**31 + 4096), (2**32 - 4096, 2**32))  # of streams, as 0x7FFFF000 and 0xFFFFFFFF
_TAGS = (b"TAG", b"ID3", b"APETAGEX")  # of players, which some programs append
_UNKNOWN = 2**63  # in 64 bits


class Sizes(NamedTuple):
    """The sizes that a header promises.

    content: The file; if its writer did not know the sizes, with the actual sizes. samples: How many samples
        of each channel the header promises; None if it does not. truncated: Whether bytes are missing. marked: Whether
        the end is known, by a mark in a format that has one, else by a size. more: How many bytes behind the samples
        are neither chunks nor padding.
    """

    content: bytes
    samples: int | None = None
    truncated: bool = False
    marked: bool = True
    more: int = 0


def sizes_of(content: bytes) -> Sizes:
    """Return the sizes that the header of a sound file states; nothing for other formats and damaged headers."""
    magic = content[:4]
    if magic in (b"RIFF", b"RIFX", b"RF64", b"BW64"):
        return _of_wave(content)
    if magic == b"NIST":
        return _of_nist(content)
    return _of_ogg(content) if magic == b"OggS" else Sizes(content)


def _of_wave(content: bytes) -> Sizes:
    order = ">" if content[:4] == b"RIFX" else "<"
    channels = bits = block = 0
    large, place, known = None, 12, True  # large: where ds64 has the sizes in 64 bits
    for _ in range(_MOST_CHUNKS):
        if place + 8 > len(content):
            break
        kind, size, start = content[place : place + 4], _number(content, place + 4, order + "I"), place + 8
        if kind == b"ds64" and start + 16 <= len(content):
            large = start
        elif kind == b"fmt " and start + 16 <= len(content):
            channels, _, _, block, bits = struct.unpack_from(order + "HIIHH", content, start + 2)
        elif kind == b"data":
            promised = size if large is None or size != 2**32 - 1 else _number(content, large + 8, "<Q")
            there = len(content) - start
            known = not _is_unknown(content, start, promised, order)
            if not known:
                promised = there - there % max(block, 1)
                content = _with_sizes(content, start, promised, order, large)
            elif _number(content, 4, order + "I") + 8 < start + promised <= min(len(content), 2**32):
                whole = struct.pack(order + "I", start + promised - 8)  # the module wave reads no further than this
                content = content[:4] + whole + content[8:]
            plain = block > 0 and channels * bits == 8 * block
            more = _bytes_behind(content, start + promised, order)
            return Sizes(content, promised // block if plain else None, promised > there, known, more)
        place = start + size + size % 2
    return Sizes(content)


def _is_unknown(content: bytes, start: int, promised: int, order: str) -> bool:
    """Return whether the writer did not know the bytes of the samples, which begin at `start`."""
    there = len(content) - start
    if promised == 0:
        return there > 0 and not _are_chunks(content, start, order)
    large = promised >= _UNKNOWN or any(low <= promised < high for low, high in _PLACEHOLDERS)
    return large and promised > there


def _bytes_behind(content: bytes, end: int, order: str) -> int:
    """Return how many bytes are behind the end of the samples, if they may be samples: no chunks, tags or zeros."""
    rest = content[end:]
    if rest.startswith(_TAGS, 0) or rest.startswith(_TAGS, 1) or not rest.strip(b"\0"):
        return 0
    is_known = any(_are_chunks(content, end + padding, order) for padding in (0, 1))
    return 0 if is_known else len(rest)


def _are_chunks(content: bytes, place: int, order: str) -> bool:
    """Return whether the rest of a file is chunks, as behind an empty sound, and no samples."""
    for _ in range(_MOST_CHUNKS):
        kind = content[place : place + 4]
        if len(content) < place + 8 or not kind.isascii() or not kind.decode("ascii").isprintable():
            break
        size = _number(content, place + 4, order + "I")
        place += 8 + size + size % 2
    return place in (len(content), len(content) + 1)


def _with_sizes(content: bytes, start: int, size: int, order: str, large: int | None) -> bytes:
    """Return a WAV file up to the end of its samples, with their bytes in its header."""
    whole = bytearray(content[: start + size])
    if large is None:
        struct.pack_into(order + "I", whole, 4, min(start + size - 8, 2**32 - 1))
        struct.pack_into(order + "I", whole, start - 4, min(size, 2**32 - 1))
    else:
        struct.pack_into("<QQ", whole, large, start + size - 8, size)
    return bytes(whole)


def _of_nist(content: bytes) -> Sizes:
    header = re.match(rb"NIST_1A\s+(\d{1,9})\s", content)
    fields = content[: int(header[1])] if header else b""
    count = re.search(rb"^sample_count -i (\d{1,18})\s", fields, re.MULTILINE)
    return Sizes(content, int(count[1]) if count else None)


def _of_ogg(content: bytes) -> Sizes:
    place, ended = 0, {}  # whether the last page of each stream is marked
    while content[place : place + 4] == b"OggS":
        segments = content[place + 27 : place + 27 + (content[place + 26] if place + 27 <= len(content) else 0)]
        end = place + 27 + len(segments) + sum(segments)
        if place + 27 > len(content) or len(segments) < content[place + 26] or end > len(content):
            return Sizes(content, truncated=True)
        ended[content[place + 14 : place + 18]] = bool(content[place + 5] & 4)
        place = end
    return Sizes(content, marked=all(ended.values()))


def _number(content: bytes, place: int, form: str) -> int:
    return int(struct.unpack_from(form, content, place)[0])
