"""Denormal numbers are zero in an update and an evaluation, and what they were before outside."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch

from orthornn.lab.training import Trainer
from orthornn.lab.training.denormals import counts_as_zero, denormals_as_zero
from support.run_cases import config


@pytest.fixture(params=[False, True])
def outside(request):
    if not torch.set_flush_denormal(request.param) and request.param:
        pytest.skip("this processor cannot flush denormal numbers")
    yield request.param
    torch.set_flush_denormal(False)


def halved():
    return (torch.tensor([torch.finfo(torch.float32).tiny]) * 0.5).item()


def test_the_state_is_that_of_torch_and_is_restored(outside):
    assert counts_as_zero() == outside == (halved() == 0.0)
    with denormals_as_zero():
        assert halved() == 0.0 or not torch.set_flush_denormal(True)
    assert counts_as_zero() == outside
    with pytest.raises(ZeroDivisionError), denormals_as_zero():
        raise ZeroDivisionError
    assert counts_as_zero() == outside


def test_updates_and_evaluations_flush_forward_and_backward(outside):
    possible = torch.set_flush_denormal(True)
    torch.set_flush_denormal(outside)
    trainer = Trainer(config())
    seen = []
    trainer.model.register_forward_hook(lambda *_: seen.append(("forward", counts_as_zero())))
    weight = next(trainer.model.head.parameters())
    weight.register_hook(lambda _: seen.append(("backward", counts_as_zero())))
    trainer.update()
    trainer.evaluate(trainer.task.validation(8))
    assert {part for part, _ in seen} == {"forward", "backward"}
    assert all(zero == possible for _, zero in seen)
    assert counts_as_zero() == outside


def test_threads_that_are_started_inside_flush_too():
    """In a process of its own, whose first parallel operation comes inside."""
    code = """
import numpy
import torch
from orthornn.lab.training.denormals import denormals_as_zero
torch.set_num_threads(2)
if torch.set_flush_denormal(True):
    torch.set_flush_denormal(False)
    small = torch.from_numpy(numpy.full(1 << 20, 2 * numpy.finfo(numpy.float32).tiny))  # not made in parallel
    with denormals_as_zero():
        tiny = small * 0.25
    assert not tiny.view(torch.int32).any()
"""
    subprocess.run([sys.executable, "-c", code], check=True)
