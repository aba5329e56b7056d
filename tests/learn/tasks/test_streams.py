from __future__ import annotations

import itertools

import numpy as np
import pytest

from orthornn.learn.tasks import TASKS, Adding, Copying
from orthornn.learn.tasks.streams import PURPOSES, stream
from orthornn.learn.tasks.task import batch_rows


def test_different_addresses_are_different_streams():
    addresses = list(itertools.product(PURPOSES, (0, 1, 2**63), (0, 1, 2**40)))
    drawn = [tuple(stream(*address).integers(0, 2**62, 4)) for address in addresses]
    assert len(set(drawn)) == len(addresses)
    assert [tuple(stream(*address).integers(0, 2**62, 4)) for address in addresses] == drawn


@pytest.mark.parametrize("address", [("train", 0, 0), ("train", 7, 3), ("split", 2**64 - 1, 2**56 - 1)])
def test_seed_and_address_are_the_key_of_philox(address):
    purpose, seed, index = address
    key = np.array([seed, (PURPOSES.index(purpose) << 56) | index], np.uint64)
    numbers = np.random.Generator(np.random.Philox(key=key))
    here = stream(*address)
    assert np.array_equal(here.integers(0, 2**62, 9), numbers.integers(0, 2**62, 9))
    assert np.array_equal(here.standard_normal(9), numbers.standard_normal(9))


def test_streams_do_not_touch_the_global_generators():
    np.random.seed(1)  # noqa: NPY002
    before = np.random.get_state()[1].copy()  # noqa: NPY002
    Copying(T=3).problem().train(0, 2, 0)
    Adding(T=4).problem().train(0, 2, 0)
    assert np.array_equal(np.random.get_state()[1], before)  # noqa: NPY002


@pytest.mark.parametrize(("count", "batch_size"), [(7, 1), (7, 2), (7, 7), (12, 5)])
def test_an_epoch_visits_no_sequence_twice(count, batch_size):
    per_epoch = count // batch_size
    for epoch in range(3):
        rows = [
            row
            for step in range(per_epoch)
            for row in batch_rows(epoch * per_epoch + step, batch_size, count, 5).tolist()
        ]
        assert len(set(rows)) == len(rows) == per_epoch * batch_size
        assert set(rows) <= set(range(count))


def test_the_registry_knows_every_task_by_its_own_name():
    assert list(TASKS.own) == [
        "copying",
        "adding",
        "characters",
        "amplifier",
        "classify",
        "regress",
        "forecast",
    ]
    assert all(kind.name == name for name, kind in TASKS.own.items())
