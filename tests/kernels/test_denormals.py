"""denormals_as_zero reaches all threads, and leaves each as it was."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch

from orthornn.kernels import denormals_as_zero
from orthornn.kernels.backends.cpp import extension
from orthornn.learn.training import Trainer
from support.run_cases import config


@pytest.fixture(params=[False, True])
def outside(request):
    if not torch.set_flush_denormal(request.param) and request.param:
        pytest.skip("this processor cannot flush denormal numbers")
    yield request.param
    torch.set_flush_denormal(False)


def is_zero():
    return (torch.tensor([torch.finfo(torch.float32).tiny]) * 0.5).item() == 0.0


def test_this_thread_counts_them_as_zero_inside_and_as_before_afterwards(outside):
    assert is_zero() == outside
    with denormals_as_zero():
        with denormals_as_zero():
            pass
        assert is_zero() or not torch.set_flush_denormal(True)
    assert is_zero() == outside
    with pytest.raises(ZeroDivisionError), denormals_as_zero():
        raise ZeroDivisionError
    assert is_zero() == outside


def test_updates_and_evaluations_flush_forward_and_backward(outside):
    possible = torch.set_flush_denormal(True)
    torch.set_flush_denormal(outside)
    trainer = Trainer(config())
    seen = []
    trainer.model.register_forward_hook(lambda *_: seen.append(("forward", is_zero())))
    weight = next(trainer.model.head.parameters())
    weight.register_hook(lambda _: seen.append(("backward", is_zero())))
    trainer.update()
    trainer.evaluate(trainer.config.task.problem().validation(8))
    assert {part for part, _ in seen} == {"forward", "backward"}
    assert all(zero == possible for _, zero in seen)
    assert is_zero() == outside


@pytest.mark.sampled(1)
@pytest.mark.parametrize("started", ["inside", "outside"])
def test_torch_s_other_threads_flush_too(started):
    """In a process of its own, whose first parallel operation comes inside or outside."""
    if started == "outside" and (extension.native is None or extension.native.threading_runtime() is None):
        pytest.skip("there are no compiled kernels that share torch's threads")
    code = f"""
import numpy
import torch
from orthornn.kernels import denormals_as_zero
torch.set_num_threads(3)
if torch.set_flush_denormal(True):
    torch.set_flush_denormal(False)
    small = torch.from_numpy(numpy.full(1 << 20, 2 * numpy.finfo(numpy.float32).tiny))  # not made in parallel
    if {started == "outside"}:
        exact = small * 0.25
        assert (exact > 0).all()
    with denormals_as_zero(), denormals_as_zero():
        tiny = small * 0.25
    assert not tiny.view(torch.int32).any()
    if {started == "outside"}:
        assert torch.equal(small * 0.25, exact)
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_threads_that_are_begun_inside_do_not_flush_afterwards():
    code = """
import torch
from orthornn.kernels import denormals_as_zero
torch.set_num_threads(1)
if torch.set_flush_denormal(True):
    torch.set_flush_denormal(False)
    small, found = torch.full((1 << 20,), 1e-40), torch.empty(1 << 20)
    with denormals_as_zero():
        torch.set_num_threads(3)
        torch.mul(small, 0.75, out=found)
    torch.mul(small, 0.75, out=found)
    assert found.view(torch.int32).all()
"""
    subprocess.run([sys.executable, "-c", code], check=True)
