"""Denormal numbers are zero in an update and an evaluation, and what they were before outside."""

from __future__ import annotations

import sys

import pytest
import torch

from orthornn.lab.training import Trainer
from support.run_cases import config


@pytest.fixture(params=[False, True])
def outside(request):
    if not torch.set_flush_denormal(request.param) and request.param:
        pytest.skip("this processor cannot flush denormal numbers")
    yield request.param
    torch.set_flush_denormal(False)


def counts_as_zero():
    return sys.float_info.min / 2 == 0.0


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
