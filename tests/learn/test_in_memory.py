"""A training in memory is that of a run, without its files."""

from __future__ import annotations

import dataclasses
import math

import pytest
import torch

from orthornn.errors import ArgumentError, NonFiniteError
from orthornn.learn.in_memory import train_in_memory
from orthornn.learn.options import Options
from orthornn.learn.systems import model_named
from orthornn.learn.tasks import Adding
from orthornn.learn.training import Run, Trainer, load_model, run_to_end

TASK = Adding(T=7, validation_size=9, test_size=5)
MODEL = model_named("lstm", hidden_size=5)
OPTIONS = {"steps": 11, "batch_size": 4, "validate_every": 3, "lr": 0.3, "optimizer": "adamw", "seed": 2}


def test_the_network_is_that_of_a_run_with_the_same_options(tmp_path, monkeypatch):
    whole = TASK.problem()
    untested = dataclasses.replace(whole, test=lambda batch_size: pytest.fail("the test is not looked at"))
    monkeypatch.setattr(Adding, "problem", lambda task: untested)
    fitted = train_in_memory(TASK, MODEL, OPTIONS)
    monkeypatch.undo()
    result = run_to_end(Run(Options(TASK, OPTIONS).config(TASK, MODEL), tmp_path / "run"))
    expected = load_model(tmp_path / "run", "chosen")[1].state_dict()
    assert all(torch.equal(value, expected[name]) for name, value in fitted.model.state_dict().items())
    assert (fitted.best["loss"], fitted.best["step"], fitted.steps) == (result.best["loss"], result.best["step"], 11)


def test_a_validation_without_a_finite_loss_ends_it_with_the_best_before(monkeypatch):
    losses = iter([0.5, 0.4, math.nan])
    monkeypatch.setattr(Trainer, "evaluate", lambda trainer, batches, threshold=None: {"loss": next(losses)})
    fitted = train_in_memory(TASK, MODEL, OPTIONS)
    assert (fitted.best["loss"], fitted.best["step"], fitted.steps) == (0.4, 6, 9)
    losses = iter([math.nan])
    with pytest.raises(NonFiniteError, match=r"finite validation loss, but got nan .* Do less\.$"):
        train_in_memory(TASK, MODEL, OPTIONS, "Do less.")
    with pytest.raises(NonFiniteError, match="finite training loss"):
        train_in_memory(TASK, MODEL, {**OPTIONS, "lr": 1e38, "optimizer": "sgd"})


def test_a_name_that_is_no_option_is_refused():
    with pytest.raises(ArgumentError, match="Did you mean 'steps'"):
        train_in_memory(TASK, MODEL, {"stepz": 3})
