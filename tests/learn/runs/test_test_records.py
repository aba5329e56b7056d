"""Test metrics with every validation change nothing else about a run."""

from __future__ import annotations

import dataclasses
import json
import shutil

import pytest
import torch

import orthornn
from orthornn.errors import OrthornnWarning
from orthornn.learn.report.runs import chosen
from orthornn.learn.training import OptimizerConfig, RecordConfig, Run, Trainer, resume, train
from support.run_cases import config, numbers


def test_recording_the_test_metrics_changes_no_other_record():
    plain = config()
    watched = dataclasses.replace(plain, record=RecordConfig(test=True))
    without, with_tests = train(plain), train(watched)
    tests = [record for record in with_tests.records if record["kind"] == "test"]
    assert [record["step"] for record in tests] == [10, 20, 30]
    assert numbers([r for r in with_tests.records if r["kind"] != "test"]) == numbers(
        [r for r in without.records if r["kind"] != "test"]
    )
    assert with_tests.test == without.test


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", ["ornn", "lstm"])
def test_the_weights_of_the_best_validation_are_tested(name, tmp_path):
    """Steps so large that the last weights are not the best."""
    plain = config(name, steps=60, validate_every=5, optimizer=OptimizerConfig(lr=1.0))
    result = train(plain, tmp_path / "run")
    assert result.best["step"] < 60
    assert result.best_test != result.test
    best = orthornn.load(tmp_path / "run", "best")
    metrics = Trainer(plain)
    metrics.model = best.model
    assert metrics.evaluate(plain.task.problem().test(plain.evaluation_batch)) == pytest.approx(
        result.best_test, rel=1e-6
    )
    assert json.loads((tmp_path / "run" / "result.json").read_text())["best_test"] == result.best_test
    recorded = train(dataclasses.replace(plain, record=RecordConfig(test=True)))
    assert recorded.best_test == result.best_test
    in_memory = train(plain)
    assert (in_memory.best_test, in_memory.test) == (result.best_test, result.test)


def test_testing_the_best_weights_leaves_the_last_ones_as_they_are(tmp_path):
    result = train(config(steps=60, validate_every=5, optimizer=OptimizerConfig(lr=0.5)), tmp_path / "run")
    last = orthornn.load(tmp_path / "run", "last").model.state_dict()
    assert result.best["step"] < 60
    for key, value in result.model.state_dict().items():
        assert torch.equal(value, last[key])


def test_a_resumed_run_tests_the_best_weights_of_before(tmp_path):
    plain = config(steps=60, validate_every=5, optimizer=OptimizerConfig(lr=0.5))
    whole = train(plain, tmp_path / "whole")
    run = Run(plain, tmp_path / "run")
    run.advance_to(58)
    run.checkpoint()
    run.close()
    assert run.best["step"] == whole.best["step"]
    assert resume(tmp_path / "run").best_test == whole.best_test


def test_best_weights_that_are_gone_are_said(tmp_path):
    run = Run(config(steps=60, validate_every=5, optimizer=OptimizerConfig(lr=0.5)), tmp_path / "run")
    run.advance_to(58)
    run.checkpoint()
    run.close()
    shutil.rmtree(run.directory.checkpoints.path(int(run.best["step"])))
    with pytest.warns(OrthornnWarning, match="weights of the best validation, after update .* are not tested"):
        result = resume(tmp_path / "run")
    assert result.best_test == {}
    assert chosen(result.summary()) == (result.validation, result.test)
