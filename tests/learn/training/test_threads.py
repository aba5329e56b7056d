"""How many threads a run has use for."""

from __future__ import annotations

import pytest
import torch

from orthornn.kernels.backends.cpp import extension
from orthornn.learn.training import threads
from orthornn.learn.training.threads import useful_threads
from support.run_cases import config


@pytest.mark.parametrize(
    ("name", "width", "batch", "expected"),
    [
        ("lstm", 29, 20, 1),
        ("lstm", 256, 50, 6),
        ("gru", 64, 32, 1),
        ("goru", 32, 8, 1),
        ("lstm-peephole", 16, 8, 1),
        ("ornn", 8, 4, 6),
        ("blocks", 8, 4, 6),
    ],
)
def test_small_networks_that_make_a_step_at_a_time_have_one(name, width, batch, expected, monkeypatch):
    monkeypatch.setattr(threads, "usable_cores", lambda: 6)
    before = torch.get_rng_state()
    if extension.missing() is None or name not in ("ornn", "blocks"):
        assert useful_threads(config(name, width, batch_size=batch)) == expected
    assert torch.equal(before, torch.get_rng_state())


def test_without_compiled_kernels_every_network_makes_a_step_at_a_time(monkeypatch):
    monkeypatch.setattr(threads, "usable_cores", lambda: 6)
    monkeypatch.setattr(extension, "missing", lambda: "they are not there")
    assert useful_threads(config("ornn", 8)) == 1


def test_there_are_never_more_than_cores(monkeypatch):
    monkeypatch.setattr(threads, "usable_cores", lambda: 1)
    assert useful_threads(config("lstm", 256, batch_size=50)) == 1
