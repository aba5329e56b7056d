"""The loop of training, without a disk, a task or a word."""

from __future__ import annotations

import contextlib
import dataclasses
import os

import pytest
import torch
from torch import nn

from orthornn.learn.fit import Observer, fit
from orthornn.learn.systems import build
from orthornn.learn.tasks import Batch, Problem
from orthornn.learn.training import RunConfig, train
from orthornn.saved.network import make_model
from support.run_cases import config, numbers


class Sums:
    """The mean of each sequence's numbers, as a problem and an objective that know nothing of tasks."""

    name, metric, higher_is_better, output, carries_state = "sums", "loss", False, "last", False
    schema = {"input_size": 1, "output_size": 1, "input": "real", "output": "last", "says": "values"}  # noqa: RUF012

    def _batch(self, count, seed):
        x = torch.rand(5, count, 1, generator=torch.Generator().manual_seed(seed))
        return Batch(x, x.mean(0))

    def train(self, step, batch_size, seed):
        return self._batch(batch_size, 1000 * seed + step)

    def validation(self, batch_size):
        yield self._batch(batch_size, 10**6)

    def test(self, batch_size):
        yield self._batch(batch_size, 10**7)

    def loss(self, prediction, targets):
        return nn.functional.mse_loss(prediction, targets)

    def metrics(self, prediction, targets):
        return {"loss": (float(self.loss(prediction, targets)) * len(targets), len(targets))}

    def summarized(self, means):
        return dict(means)


class Seen(Observer):
    """What an observer is told; it wants an end after some updates."""

    def __init__(self, last):
        self.last, self.kinds, self.steps, self.looks = last, [], [], []

    def look(self, fit):
        self.looks.append(fit.learner.step)

    def recorded(self, record):
        self.kinds.append(record["kind"])

    def updated(self, fit):
        self.steps.append(fit.learner.step)

    def wants_end(self):
        return len(self.steps) >= self.last


SHORT = RunConfig(steps=40, batch_size=16, validate_every=10, log_every=5, evaluation_batch=64)


def network():
    torch.manual_seed(3)
    return build("rnn", 1, 1, hidden_size=8)


def test_a_problem_has_four_members():
    assert {field.name for field in dataclasses.fields(Problem)} == {"schema", "train", "validation", "test"}


def test_it_needs_neither_a_task_nor_a_disk(tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    problem, model = Sums(), network()
    result = fit(problem, problem, model, SHORT)
    assert result.model is model
    assert result.steps == 40
    losses = [record["loss"] for record in result.records if record["kind"] == "validation"]
    assert len(losses) == 4
    assert losses[-1] < losses[0] / 2
    assert result.validation["loss"] == losses[-1]
    assert result.records[-1]["kind"] == "test"
    assert result.test["loss"] == result.records[-1]["loss"]
    assert not os.listdir(tmp_path)
    assert capfd.readouterr() == ("", "")


def test_observers_see_every_update_and_may_end_it():
    problem, seen = Sums(), Seen(13)
    result = fit(problem, problem, network(), SHORT, observers=[seen])
    assert result.steps == 13
    assert seen.steps == list(range(1, 14))
    assert seen.looks == list(range(14))
    assert seen.kinds == ["train", "train", "validation", "train", "validation", "test"]
    assert [record["step"] for record in result.records] == [5, 10, 10, 13, 13, 13]


@contextlib.contextmanager
def seeded(seed):
    before = torch.get_rng_state()
    torch.manual_seed(seed)
    yield
    torch.set_rng_state(before)


@pytest.mark.parametrize("options", [{}, {"dropout": 0.3}])
def test_it_makes_the_bits_of_a_run(options):
    settings = config("blocks", **{"steps": 12, "validate_every": 5})
    settings = RunConfig(**{**vars(settings), "model": settings.model.replace(**options)})
    run = train(settings)
    with seeded(settings.seed):
        model = make_model(settings.model, settings.task.problem().schema)
        result = fit(settings.task.problem(), settings.task.objective(), model, settings)
    assert numbers(result.records) == numbers(run.records)
    assert (result.validation, result.test) == (run.validation, run.test)
    for name, value in model.state_dict().items():
        assert torch.equal(value, run.model.state_dict()[name])
