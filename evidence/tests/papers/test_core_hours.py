"""The cost of an experiment: the seconds of an update times the updates of all its runs."""

from __future__ import annotations

import dataclasses

import pytest

from orthornn import cli
from orthornn.learn.systems import model_named
from orthornn.learn.training import RecordConfig, RunConfig
from orthornn_evidence.papers import Plan, ResultTable, core_hours
from support.run_cases import COPYING


class Clock:
    """A processor clock that stands still between what `spend` says was spent."""

    def __init__(self, monkeypatch):
        self.now = 0.0
        monkeypatch.setattr(core_hours.time, "process_time", lambda: self.now)
        for name, seconds in (("update", 3.0), ("evaluate", 5.0)):
            monkeypatch.setattr(core_hours.Trainer, name, self.spends(seconds))

    def spends(self, seconds):
        def work(*arguments):
            self.now += seconds

        return work


def plan(steps, seeds, **options):
    config = RunConfig(
        task=dataclasses.replace(COPYING, validation_size=8, test_size=12),
        model=model_named("rnn", hidden_size=4),
        steps=steps,
        batch_size=4,
        validate_every=10,
        evaluation_batch=4,
        **options,
    )
    return Plan({"a": config, "b": config}, lambda runs: ResultTable([]), seeds=seeds)


def test_updates_validations_and_one_test_of_every_run(monkeypatch):
    Clock(monkeypatch)
    # 40 updates of 3 s, 4 validations of 2 batches, 1 test of 3 batches, of 5 s each
    assert core_hours.core_hours(plan(40, {"a": 1, "b": 2})) == pytest.approx(3 * (40 * 3 + 8 * 5 + 3 * 5) / 3600)


def test_a_recorded_test_comes_with_every_validation(monkeypatch):
    Clock(monkeypatch)
    wanted = (40 * 3 + 8 * 5 + 4 * 3 * 5) / 3600
    assert core_hours.core_hours(plan(40, {"a": 1, "b": 0}, record=RecordConfig(test=True))) == pytest.approx(wanted)


def test_what_trains_nothing_costs_nothing():
    assert core_hours.core_hours(Plan({}, lambda runs: ResultTable([]))) == 0.0


def test_the_list_of_all_papers_names_experiments_and_whose_runs_are_shared(capsys):
    assert cli.main(["reproduce", "--list"]) == 0
    shown = capsys.readouterr().out
    for words in (
        "mhammedi2017: approximate hours on one core",
        "soft-u1",
        "gain-and-oplu",
        "spectrum-spread",
        "(table1)",
    ):
        assert words in shown


def test_measured_hours_replace_the_expected_ones(capsys, monkeypatch):
    monkeypatch.setattr("orthornn_evidence.cli.reproduce.core_hours", lambda plan: 1234.5)
    assert cli.main(["reproduce", "mhammedi2017", "--only", "soft-u1", "--list", "--measure"]) == 0
    shown = capsys.readouterr().out
    assert "mhammedi2017: hours on one core of this machine, measured" in shown
    assert shown.count("1200") == 2
    assert shown.startswith("measuring mhammedi2017, soft-u1, laptop\nmeasuring mhammedi2017, soft-u1, full\n")


def test_measure_alone_is_refused(capsys):
    assert cli.main(["reproduce", "mhammedi2017", "--measure"]) == 2
    assert "Add --list" in capsys.readouterr().err
