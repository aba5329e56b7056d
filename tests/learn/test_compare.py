from __future__ import annotations

import dataclasses
import errno
import io
import json
import os
import re
import signal
import sys
import time
from types import SimpleNamespace

import pytest
import torch

from orthornn import cli
from orthornn.errors import ArgumentError, CheckpointError, Interrupted, LockedError, NonFiniteError
from orthornn.learn import compare
from orthornn.learn.systems import model_named
from orthornn.learn.tasks import Adding, Copying
from orthornn.learn.training import OptimizerConfig, PenaltyConfig, Run, RunConfig, train
from orthornn.learn.training.trainer import Trainer

BASE = RunConfig(
    task=Copying(T=3, validation_size=10, test_size=10),
    model=model_named(hidden_size=8, reflections=2),
    steps=12,
    batch_size=4,
    log_every=3,
    validate_every=6,
)


def numbers(result):
    return [{k: v for k, v in record.items() if k not in ("seconds", "cpu_seconds")} for record in result.records]


def test_taking_turns_changes_no_run(tmp_path):
    configs = compare.configs(BASE, ["ornn", "lstm"])
    comparison = compare.Comparison(configs, tmp_path)
    comparison.train()
    results = comparison.finish()
    for name, config in configs.items():
        assert numbers(results[name]) == numbers(train(config))
        assert (tmp_path / name / "model.safetensors").exists()


def test_reflections_go_to_those_that_have_some():
    configs = compare.configs(BASE, ["ornn", "scornn", "lstm"])
    assert [config.model.given().get("reflections") for config in configs.values()] == [2, None, None]
    assert [config.model.name for config in configs.values()] == list(configs)
    with pytest.raises(ArgumentError, match=r"Expected options of scornn, lstm, but got reflections=2, which none has"):
        compare.configs(BASE, ["scornn", "lstm"])


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ([], "at least one"),
        (["lstm", "lstm"], "twice"),
        (["ornm"], "Did you mean 'ornn'"),
    ],
)
def test_wrong_names_are_said(names, message):
    with pytest.raises(ArgumentError, match=message):
        compare.configs(BASE, names)


def test_a_model_that_is_refused_leaves_no_folder_of_the_others(tmp_path):
    base = dataclasses.replace(BASE, penalties=PenaltyConfig(soft_orthogonality=0.5))
    with pytest.raises(ArgumentError, match="Expected the penalty soft_orthogonality only for a model with"):
        compare.Comparison(compare.configs(base, ["ornn", "lstm"]), tmp_path / "all")
    assert not (tmp_path / "all").exists()


@pytest.fixture
def clock(monkeypatch):
    """Seconds that an update of each model takes, by name; nothing else takes any."""
    cost, now, update = {}, [0.0], Trainer.update

    def updated(trainer, stop=0):
        now[0] += cost[trainer.config.model.name]
        return update(trainer, stop)

    monkeypatch.setattr(Trainer, "update", updated)
    stopped = SimpleNamespace(perf_counter=lambda: now[0], process_time=time.process_time)
    monkeypatch.setattr("orthornn.learn.fit.time", stopped)
    return cost


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        (1000, {"rnn": 32, "ornn": 16, "lstm": 4}),  # four seconds each
        (20, {"rnn": 20, "ornn": 19, "lstm": 5}),  # the first leaves one and a half
        (14, {"rnn": 14, "ornn": 14, "lstm": 7}),
        (5, {"rnn": 5, "ornn": 5, "lstm": 5}),
    ],
)
def test_a_slow_network_does_not_take_the_time_of_the_others(steps, expected, clock, tmp_path):
    clock |= {"rnn": 1 / 8, "ornn": 1 / 4, "lstm": 1.0}
    base = dataclasses.replace(BASE, steps=steps, validate_every=1000)
    seen, configs = [], compare.configs(base, list(expected))
    with compare.Comparison(configs, tmp_path, seconds=12) as comparison:
        comparison.train(seen.append)
        results = comparison.finish()
    assert {name: result.steps for name, result in results.items()} == expected
    assert set(seen[-1]) == set(expected)
    shown = compare.table(results)
    for row, (name, result) in zip(shown.rows, results.items()):
        early = f"{name} ended after {result.steps} of {steps} updates, by --seconds or --patience"
        assert result.finished is (expected[name] == steps) is (early not in shown.notes)
        assert row[3] == (str(steps) if result.finished else f"{result.steps} of {steps}")


def test_what_a_run_that_diverged_leaves_goes_to_the_others(clock):
    clock |= {"rnn": 1.0, "lstm": 1.0}
    base = dataclasses.replace(BASE, model=model_named(hidden_size=8), steps=1000, validate_every=1000)
    configs = diverging(compare.configs(base, ["rnn", "lstm"]), ["rnn"])
    comparison = compare.Comparison(configs, seconds=20)
    comparison.train()
    comparison.close()
    (ended,) = comparison.diverged.values()
    assert ended.seconds < 10
    assert comparison.runs["lstm"].seconds == 20 - ended.seconds


def test_more_seconds_go_on_with_a_comparison_that_time_ended(clock, tmp_path):
    clock |= {"rnn": 1.0, "lstm": 1.0}
    configs = compare.configs(dataclasses.replace(BASE, model=model_named(hidden_size=8)), ["rnn", "lstm"])
    for seconds in (10, 100):
        with compare.Comparison(configs, tmp_path, seconds) as comparison:
            comparison.train()
            results = comparison.finish()
    for name, result in results.items():
        assert result.finished
        assert result.weights_sha256 == train(configs[name], tmp_path / f"{name} alone").weights_sha256


@pytest.mark.parametrize("task", [BASE.task, Adding(T=4, validation_size=5, test_size=5)])
def test_the_table_and_the_curves(task):
    comparison = compare.Comparison(compare.configs(dataclasses.replace(BASE, task=task), ["ornn", "rnn"]))
    comparison.train()
    results = comparison.finish()
    shown = compare.table(results)
    assert [row[0] for row in shown.rows] == ["ornn", "rnn"]
    assert all(len(row) == len(shown.columns) for row in shown.rows)
    ratio = float(shown.rows[0][[column.heading for column in shown.columns].index("over baseline")])
    assert ratio == pytest.approx(results["ornn"].best_test["loss"] / task.objective().trivial_loss, abs=6e-4)
    assert compare.curves(results)["rnn"][0] == [3, 6, 9, 12]
    assert compare.curves(results, "validation")["rnn"][0] == [6, 12]


def test_the_winner_is_chosen_by_validation_and_told_by_the_test_of_those_weights():
    """Figures that disagree: the last weights' test favors one model, the validation the other."""
    made = {}
    for name, validation, best_test, test in (("ornn", 0.1, 0.5, 9.0), ("lstm", 0.2, 0.4, 0.1)):
        for seed in range(5):
            base = dataclasses.replace(BASE, task=Adding(T=4, validation_size=5, test_size=5), seed=seed)
            config = compare.configs(dataclasses.replace(base, steps=1, model=model_named(hidden_size=3)), [name])[name]
            wrong = {"loss": test + seed / 100}
            made[f"{name}-seed{seed}"] = dataclasses.replace(
                train(config),
                best={"loss": validation + seed / 100, "step": 1},
                test=wrong,
                last_test=wrong,
                best_test={"loss": best_test + seed / 100},
                validation=wrong,
            )
    shown = compare.summary(made)
    assert [row[0] for row in shown.rows] == ["ornn", "lstm"]
    headings = [column.heading for column in shown.columns]
    assert shown.rows[0][headings.index("validation loss")].startswith("0.12 ±")
    assert shown.rows[0][headings.index("test loss")].startswith("0.52 ±")
    assert shown.notes[0].startswith("ornn has the better validation, but is worse than lstm: test loss 0.52")
    row = compare.table(made).rows[0]
    assert (row[5], row[6]) == ("0.1", "0.5")


def test_decays_are_named_where_they_make_a_matrix_no_longer_orthogonal():
    model = model_named("blocks", hidden_size=4, decay=True)
    results = {"blocks": train(dataclasses.replace(BASE, model=model, steps=1))}
    shown = compare.table(results)
    cells = dict(zip([column.heading for column in shown.columns], shown.rows[0]))
    assert cells["||W'W-I||"] == "decay"
    assert any(note.startswith("decay: each rotation") for note in shown.notes)
    assert "with decay" in results["blocks"]._repr_html_()
    strict = {"blocks": train(dataclasses.replace(BASE, model=model.replace(decay=None), steps=1))}
    assert not any(note.startswith("decay") for note in compare.table(strict).notes)
    assert "with decay" not in strict["blocks"]._repr_html_()


def diverging(configs, names):
    """The same runs, of which those named have updates that overflow."""
    huge = OptimizerConfig("adam", lr=3e38)
    return {name: dataclasses.replace(one, optimizer=huge) if name in names else one for name, one in configs.items()}


def test_a_run_that_diverges_is_named_and_the_others_are_trained_to_their_end(tmp_path):
    plain = compare.configs(BASE, ["rnn", "ornn", "lstm"])
    configs = diverging(plain, ["rnn"])
    with compare.Comparison(configs, tmp_path / "compared") as comparison:
        comparison.train()
        results = comparison.finish()
    assert list(results) == ["ornn", "lstm"]
    for name, result in results.items():
        assert numbers(result) == numbers(train(plain[name]))
    (name, ended), *others = comparison.diverged.items()
    assert (name, others) == ("rnn", [])
    shown = compare.table(results, comparison.diverged)
    assert [row[0] for row in shown.rows] == ["ornn", "lstm", "rnn"]
    assert shown.rows[-1][3:6] == [str(ended.step), "-", "diverged"]
    assert all(len(row) == len(shown.columns) for row in shown.rows)
    assert any(note.startswith("rnn diverged: Expected a finite ") for note in shown.notes)
    again = compare.Comparison(configs, tmp_path / "compared")  # it is kept, and not trained again
    again.close()
    assert (list(again.runs), again.diverged) == (["ornn", "lstm"], {"rnn": ended})
    assert again.spent == ended.seconds + sum(run.seconds for run in again.runs.values())


def test_a_run_of_which_the_last_validation_overflows_is_left_out(tmp_path):
    configs = diverging(compare.configs(dataclasses.replace(BASE, steps=1), ["rnn", "ornn"]), ["rnn"])
    with compare.Comparison(configs, tmp_path) as comparison:
        comparison.train()
        assert list(comparison.runs) == ["rnn", "ornn"]
        assert list(comparison.finish()) == ["ornn"]
    assert list(comparison.diverged) == ["rnn"]


def test_a_comparison_of_which_all_runs_diverge_names_one(tmp_path):
    configs = diverging(compare.configs(BASE, ["ornn", "lstm"]), ["ornn", "lstm"])
    for _ in range(2):
        with (
            pytest.raises(
                NonFiniteError, match=r"at least one model to finish its training, but got none\. (ornn|lstm): Exp"
            ),
            compare.Comparison(configs, tmp_path) as comparison,
        ):
            comparison.train()


@pytest.fixture
def an_update_a_turn(monkeypatch):
    monkeypatch.setattr(compare, "TURN_SECONDS", 0)


WORDS = ["compare", "copying", "--T", "3", "--hidden-size", "8", "--batch-size", "4", "--validation-size", "10"]
WORDS += ["--test-size", "10", "--steps", "12", "--log-every", "3", "--validate-every", "6", "--models", "ornn,lstm"]


@pytest.mark.sampled(1)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("when", ["advance", "finish"])
def test_a_signal_ends_a_comparison_that_the_same_command_resumes(
    number, when, tmp_path, monkeypatch, capsys, an_update_a_turn
):
    """It comes to the second run; what both end with is what they would have had without it, bit for bit."""
    handler = signal.getsignal(number)
    method, calls = getattr(Run, when), []

    def disturbed(self, *values):
        calls.append(self)
        if len(calls) == 2:
            os.kill(os.getpid(), number)
        return method(self, *values)

    monkeypatch.setattr(Run, when, disturbed)
    out = tmp_path / "both"
    assert cli.main([*WORDS, "--out", str(out)]) == 128 + number
    assert signal.getsignal(number) == handler
    said = capsys.readouterr()
    step = 1 if when == "advance" else 12
    assert (
        f"{number.name} ended the comparison after update {step} of 12; its runs are saved. Resume with the same command "
        f"and --out {out}\n" in said.err
    )
    assert "over baseline" not in said.out
    assert all((out / name / "checkpoints" / f"step-{step:08d}").is_dir() for name in ("ornn", "lstm"))
    monkeypatch.setattr(Run, when, method)
    assert cli.main([*WORDS, "--out", str(out)]) == 0
    assert (out / "table.txt").read_text() in capsys.readouterr().out
    assert cli.main([*WORDS, "--out", str(tmp_path / "whole")]) == 0
    for name in ("ornn", "lstm"):
        weights = [(folder / name / "model.safetensors").read_bytes() for folder in (out, tmp_path / "whole")]
        assert weights[0] == weights[1]


def test_an_interrupted_update_is_not_saved(tmp_path, monkeypatch):
    """A second Ctrl-C ends an update of the second run between two parameters; resumed, it ends as one never stopped."""
    configs = compare.configs(BASE, ["ornn", "lstm"])
    for config in configs.values():
        train(config, tmp_path / "whole" / config.model.name)
    out = tmp_path / "both"
    first = compare.Comparison(configs, out)
    first.runs["ornn"].advance_to(4)
    first.runs["lstm"].advance_to(3)
    first.runs["lstm"].checkpoint()
    first.runs["lstm"].advance_to(4)

    def torn(trainer, stop=0):
        with torch.no_grad():
            next(trainer.model.parameters()).zero_()
        raise KeyboardInterrupt

    monkeypatch.setattr(Trainer, "update", torn)
    said = "update 4 of 12; its runs are saved, lstm as it was at its last checkpoint"
    with pytest.raises(Interrupted, match=said), first:
        first.runs["lstm"].advance_to(5)
    with pytest.raises(CheckpointError, match=r"interrupted after update 4.*step-00000003"):
        first.runs["lstm"].checkpoint()
    monkeypatch.undo()
    with compare.Comparison(configs, out) as second:
        assert {name: run.trainer.step for name, run in second.runs.items()} == {"ornn": 4, "lstm": 3}
        second.train()
        second.finish()
    for name in configs:
        weights = [(folder / name / "model.safetensors").read_bytes() for folder in (out, tmp_path / "whole")]
        assert weights[0] == weights[1]


def test_a_comparison_that_was_killed_while_it_began_is_begun_again(tmp_path, monkeypatch):
    configs = compare.configs(BASE, ["ornn", "lstm"])
    made = Run.create_directory

    def killed(run, path):
        if path.name == "lstm":
            raise KeyboardInterrupt
        made(run, path)

    monkeypatch.setattr(Run, "create_directory", killed)
    with pytest.raises(KeyboardInterrupt):
        compare.Comparison(configs, tmp_path)
    monkeypatch.undo()
    with compare.Comparison(configs, tmp_path) as again:
        assert [run.directory.path.name for run in again.runs.values()] == ["ornn", "lstm"]


def test_a_comparison_in_parts_is_the_same(tmp_path, an_update_a_turn):
    configs = compare.configs(BASE, ["ornn", "lstm"])
    first = compare.Comparison(configs, tmp_path)

    def stop(progress):
        if first.runs["ornn"].trainer.step > first.runs["lstm"].trainer.step:
            raise KeyboardInterrupt

    with pytest.raises(Interrupted, match="after update 0 to 1 of 12"), first:
        first.train(stop)
    with compare.Comparison(configs, tmp_path) as second:
        with pytest.raises(LockedError):
            compare.Comparison(configs, tmp_path)
        second.train()
        results = second.finish()
    for name, config in configs.items():
        assert numbers(results[name]) == numbers(train(config))


def test_only_the_same_comparison_is_resumed(tmp_path):
    configs = compare.configs(BASE, ["ornn", "lstm"])
    train(configs["ornn"], tmp_path / "runs" / "ornn")
    with pytest.raises(ArgumentError, match="already holds a run"):
        compare.Comparison(configs, tmp_path / "runs")
    assert not compare.is_begun(tmp_path / "runs")
    compare.Comparison(configs, tmp_path / "both").close()
    before = sorted(tmp_path.glob("both/**/*"))
    other = {**configs, "lstm": dataclasses.replace(configs["lstm"], steps=13)}
    with pytest.raises(ArgumentError, match=r"holds, but got other runs: lstm differs. Pass the options"):
        compare.Comparison(other, tmp_path / "both")
    with pytest.raises(ArgumentError, match=r"holds, but got other runs: lstm differs. Pass the options"):
        compare.Comparison({"ornn": configs["ornn"]}, tmp_path / "both")
    assert sorted(tmp_path.glob("both/**/*")) == before


def test_a_comparison_begun_before_an_option_was_there_is_resumed(tmp_path):
    configs = compare.configs(BASE, ["ornn", "lstm"])
    compare.Comparison(configs, tmp_path / "both").close()
    plain = json.loads((tmp_path / "both" / "compare.json").read_text())
    del plain["sha256"], plain["ornn"]["task"]["symbols"], plain["lstm"]["model"]["gain"], plain["lstm"]["seed"]
    (tmp_path / "both" / "compare.json").write_text(json.dumps(plain))
    compare.Comparison(configs, tmp_path / "both").close()
    plain["ornn"]["task"]["no such option"] = 1
    (tmp_path / "both" / "compare.json").write_text(json.dumps(plain))
    with pytest.raises(ArgumentError, match=r"got other runs: ornn differs"):
        compare.Comparison(configs, tmp_path / "both")


class Gone(io.StringIO):
    """Output whose reader is gone once a text comes, or whose disk is full."""

    def __init__(self, text, number):
        super().__init__()
        self.text, self.number = text, number

    def write(self, text):
        if self.text in text:
            raise OSError(self.number, os.strerror(self.number))
        return super().write(text)

    def fileno(self):
        return self.null.fileno()


@pytest.mark.sampled(1)
@pytest.mark.parametrize("number", [errno.EPIPE, errno.ENOSPC])
def test_output_that_is_not_taken_loses_nothing(number, tmp_path, monkeypatch, capsys, an_update_a_turn):
    """Neither the table and the figure, when the tables are printed, nor the updates, when progress is."""
    out = tmp_path / "both"
    with open(os.devnull, "w") as null:
        for text, count in (("x baseline", 0), ("over baseline", 2)):
            monkeypatch.setattr("orthornn.learn.report.progress._LINE_SECONDS", 0.0 if count == 0 else 99.0)
            gone = Gone(text, number)
            gone.null = null
            with monkeypatch.context() as patch:
                patch.setattr(sys, "stdout", gone)
                patch.setattr(cli, "_silence", lambda: None)
                assert cli.main([*WORDS, "--out", str(out)]) == (cli._CLOSED if number == errno.EPIPE else 2)
            assert len([file for file in ("table.txt", "curves.png") if (out / file).exists()]) == count
            said = capsys.readouterr().err
            saved = r"Expected the output to be taken, but got: .* after update 0 to 1 of 12; its runs are saved\."
            assert (re.search(saved, said) is not None) == (count == 0)
    assert cli.main([*WORDS, "--out", str(out)]) == 0


def test_the_command_names_a_run_that_diverged_in_its_status_too(tmp_path, monkeypatch, capsys):
    made = compare.configs
    monkeypatch.setattr(compare, "configs", lambda *given: diverging(made(*given), ["lstm"]))
    for _ in range(2):
        assert cli.main([*WORDS, "--out", str(tmp_path / "compared")]) == 2
        table = (tmp_path / "compared" / "table.txt").read_text()
        assert table in capsys.readouterr().out
        assert re.search(r"\nlstm +- +- +\d+ +- +diverged", table)
        assert "lstm diverged: Expected a finite " in table
        assert (tmp_path / "compared" / "ornn" / "result.json").exists()
