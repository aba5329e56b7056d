"""What the tests of the package and of the evidence share: random numbers, and which cases `make test` runs."""

from __future__ import annotations

import gc
from collections import defaultdict

import pytest


@pytest.fixture(autouse=True)
def seeded():
    """Start every test from the same random numbers."""
    import torch  # here, so that the process which only hands out tests does without it

    if torch.accelerator.is_available():
        torch.manual_seed(0)
    else:  # which stores a stack trace for each kind of device that is not there
        torch.default_generator.manual_seed(0)


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    """Let Python's garbage collector rest while tests are collected, never look at what that made, which stays, and come
    more seldom afterwards.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.set_threshold(10_000, 10, 10)
        gc.enable()


@pytest.hookimpl(tryfirst=True)  # before cases are deselected by their markers
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark all but K cases of a test with `sampled(K)` as slow; those that stay are spread evenly over its cases."""
    cases = defaultdict(list)
    for item in items:
        if item.get_closest_marker("sampled") is not None and item.get_closest_marker("slow") is None:
            cases[item.nodeid.partition("[")[0]].append(item)
    for group in cases.values():
        marker = group[0].get_closest_marker("sampled")
        assert marker is not None
        (count,) = marker.args
        kept = {(2 * k + 1) * len(group) // (2 * count) for k in range(count)}
        for index, item in enumerate(group):
            if index not in kept:
                item.add_marker(pytest.mark.slow)
