"""Whatever is in a data file: it is read as it is, or refused with one clear error, in little memory."""

from __future__ import annotations

import collections
import re

import numpy as np
import pytest

from orthornn.errors import DataError
from support.hostile_files import GOOD, HOSTILE, mutants, outcome, read

SEVERAL = 70  # mutants of each kind of file in the fast suite
MANY = 4000


@pytest.mark.sampled(21)
@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_file_is_refused_or_read(tmp_path, name):
    make, message = HOSTILE[name]
    if name.endswith("parquet"):
        pytest.importorskip("pyarrow")
    path = tmp_path / name
    path.write_bytes(make(tmp_path))
    assert outcome(path) == ("read" if message is None else "refused")
    if message is not None:
        with pytest.raises(DataError) as caught:
            read(path)
        assert re.search(message, str(caught.value)), str(caught.value)


def check_mutants(tmp_path, name, count):
    content = GOOD[name](tmp_path)
    path = tmp_path / f"mutant.{name}"
    path.write_bytes(content)
    assert outcome(path) == "read"
    counted: collections.Counter[str] = collections.Counter()
    for seed, mutant in enumerate(mutants(content, count, 0)):
        path.write_bytes(mutant)
        try:
            counted[outcome(path)] += 1
        except Exception as error:
            raise AssertionError(f"mutant {seed} of {name}: {type(error).__name__}: {error}") from error
    return counted


@pytest.mark.sampled(3)
@pytest.mark.filterwarnings("ignore:.*does not say where it ends")
@pytest.mark.parametrize("name", GOOD)
def test_mutants_are_refused_or_read(tmp_path, name):
    for package, names in {
        "pyarrow": ("parquet", "feather"),
        "soundfile": ("flac", "ogg", "24.wav", "law.wav"),
    }.items():
        if name in names:
            pytest.importorskip(package)
    counted = check_mutants(tmp_path, name, SEVERAL)
    assert counted["refused"] > 0


@pytest.mark.hostile_data
@pytest.mark.filterwarnings("ignore:.*does not say where it ends")
@pytest.mark.parametrize("name", GOOD)
def test_thousands_of_mutants_are_refused_or_read(tmp_path, name):
    counted = check_mutants(tmp_path, name, MANY)
    print(f"{name}: {MANY} mutants, {counted['refused']} refused, {counted['read']} read")


@pytest.mark.hostile_data
def test_no_changed_byte_of_an_archive_is_read_as_data(tmp_path):
    """Every byte, one at a time: an error, or the same numbers."""
    content, path = GOOD["npz"](tmp_path), tmp_path / "a.npz"
    path.write_bytes(content)
    intact, refused = read(path), 0
    for place in range(len(content)):
        path.write_bytes(content[:place] + bytes([content[place] ^ 0x11]) + content[place + 1 :])
        try:
            found = read(path)
        except DataError:
            refused += 1
            continue
        assert all(np.array_equal(found.columns[name], column) for name, column in intact.columns.items())
    print(f"npz: {len(content)} bytes changed one at a time, {refused} refused, the others read the same")
