"""The idx format of the original MNIST files, gzip-compressed.

Big-endian: two zero bytes, the type (8: unsigned byte), the number of dimensions, then each dimension as 32
bits, then the bytes. Images have three dimensions (magic number 0x803), labels one (0x801).
"""

from __future__ import annotations

import gzip
import hashlib
import io
import math
import zlib
from pathlib import Path

import numpy as np

from orthornn.errors import DataError
from orthornn.learn.files.inflate import check_inflated

_UNSIGNED_BYTE = 8
_CHUNK = 1 << 22  # bytes to read at once: a header may promise more than the file has


def read_idx(path: Path, dimensions: int, sha256: str | None = None) -> np.ndarray:
    """Return the array in an idx.gz file: uint8, read-only.

    dimensions: how many it must have. sha256: of the compressed file, if it must be one particular file.
    Raises DataError, with the name of the file and the reason.
    """
    try:
        compressed = path.read_bytes()
    except OSError as error:
        raise DataError(
            f"Expected to read {path}, but got: {error.strerror or error}. Correct its name, or allow reading it."
        ) from error
    found = hashlib.sha256(compressed).hexdigest()
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(compressed)) as stream:
            array = _parse(path, stream, len(compressed), dimensions)
    except EOFError as error:
        raise DataError(
            f"Expected a whole gzip file, but {path} is truncated: it ends after {len(compressed)} bytes. Fetch "
            f"the file again."
        ) from error
    except gzip.BadGzipFile as error:
        if compressed[:2] == b"\x1f\x8b":
            raise DataError(f"Expected a gzip file, but {path} is corrupt: {error}. Fetch the file again.") from error
        raise DataError(
            f"Expected a gzip file, beginning with 1f 8b, but {path} begins with "
            f"{compressed[:4].hex(' ') or 'nothing'}. Keep the data set's files compressed, as published."
        ) from error
    except zlib.error as error:
        raise DataError(f"Expected a gzip file, but {path} is corrupt: {error}. Fetch the file again.") from error
    if sha256 is not None and found != sha256:
        raise DataError(
            f"Expected the sha256 {sha256}, but {path} has {found}. Fetch it again; or, if this is another data set "
            f"in the same format, turn the checksums off (verify=False, --no-verify)."
        )
    return array


def _parse(path: Path, stream: gzip.GzipFile, size: int, dimensions: int) -> np.ndarray:
    """Return the array in a decompressed stream, reading no more than the header promises."""
    magic = bytes([0, 0, _UNSIGNED_BYTE, dimensions])
    header = 4 + 4 * dimensions
    head = stream.read(header)
    if head[:4] != magic:
        raise DataError(
            f"Expected an idx file of unsigned bytes in {dimensions} dimension(s), beginning with {magic.hex(' ')}, "
            f"but {path} begins with {head[:4].hex(' ') or 'nothing'}. Name the right file, or fetch it again."
        )
    if len(head) < header:
        raise DataError(
            f"Expected a header of {header} bytes, but {path} is truncated: it has {len(head)}. Fetch it again."
        )
    shape = tuple(int(entry) for entry in np.frombuffer(head, ">u4", dimensions, 4))
    promised = math.prod(shape)
    check_inflated(path, size, promised, "Divide it into smaller files, or fetch it again.")
    raw = bytearray()
    while len(raw) <= promised and (more := stream.read(min(_CHUNK, promised + 1 - len(raw)))):
        raw += more
    if len(raw) != promised:
        raise DataError(
            f"Expected {' x '.join(map(str, shape))} bytes, as the header of {path} promises, but got "
            f"{f'{len(raw)}: it is truncated' if len(raw) < promised else 'more: it is too long'}. Fetch the file again."
        )
    return np.frombuffer(bytes(raw), np.uint8).reshape(shape)
