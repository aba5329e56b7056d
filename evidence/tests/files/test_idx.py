"""Whatever is in an idx file: it is read as it is, or refused with one clear error, in little memory."""

from __future__ import annotations

import collections
import functools
import gzip

import numpy as np
import pytest

from orthornn.errors import DataError
from orthornn_evidence.files.idx import read_idx
from support.hostile_files import mutants, outcome
from support.made_idx import write_idx

SEVERAL = 70  # mutants in the fast suite
MANY = 4000
read = functools.partial(read_idx, dimensions=3)


def promising(*shape: int) -> bytes:
    """The beginning of an idx file that promises this shape."""
    return gzip.compress(bytes([0, 0, 8, 3]) + np.array(shape, ">u4").tobytes() + bytes(1 << 20))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (promising(256, 1 << 12, 1 << 12), "at most 1073741824 bytes when decompressed"),
        (gzip.compress(bytes([0, 0, 8, 3]) + bytes(12) + bytes(1 << 24)), "too long"),
    ],
    ids=["bomb", "longer"],
)
def test_a_hostile_file_is_refused(tmp_path, content, message):
    path = tmp_path / "made.gz"
    path.write_bytes(content)
    assert outcome(path, read) == "refused"
    with pytest.raises(DataError, match=message):
        read(path)


@pytest.mark.parametrize("count", [SEVERAL, pytest.param(MANY, marks=pytest.mark.hostile_data)])
def test_mutants_are_refused_or_read(tmp_path, count):
    path = tmp_path / "made.gz"
    write_idx(path, np.arange(60).reshape(5, 4, 3))
    assert outcome(path, read) == "read"
    counted: collections.Counter[str] = collections.Counter()
    for seed, mutant in enumerate(mutants(path.read_bytes(), count, 0)):
        path.write_bytes(mutant)
        try:
            counted[outcome(path, read)] += 1
        except Exception as error:
            raise AssertionError(f"mutant {seed}: {type(error).__name__}: {error}") from error
    print(f"idx: {count} mutants, {counted['refused']} refused, {counted['read']} read")
    assert counted["refused"] > 0
