from __future__ import annotations

import copy
import errno
import json
import math
import os
import re
import shlex
import shutil
import signal
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from orthornn.diagnostics import orthogonality_error
from orthornn.errors import (
    ArgumentError,
    CheckpointError,
    DataError,
    Interrupted,
    NonFiniteError,
    OrthornnWarning,
)
from orthornn.learn.report.runs import read_run
from orthornn.learn.runs import loop as training_loop
from orthornn.learn.systems import MODELS, model_named
from orthornn.learn.tasks import Adding, Characters, Copying
from orthornn.learn.training import (
    OptimizerConfig,
    PenaltyConfig,
    Run,
    RunConfig,
    Trainer,
    load_model,
    read_config,
    read_metrics,
    run_to_end,
    train,
)
from orthornn.modules import Transition
from orthornn.parametrizations.householder import BoundHouseholder
from orthornn.saved.diverged import read_diverged
from support.labeled import Labeled

TASK = Copying(T=3, symbols=3, items=2, validation_size=20, test_size=20)


def config(name="ornn-rotations", **options):
    options = {"task": TASK, "steps": 30, "batch_size": 8, "validate_every": 10, "log_every": 5, **options}
    options.setdefault("optimizer", OptimizerConfig(lr=0.01))
    return RunConfig(model=model_named(name, hidden_size=16), **options)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("optimizer", ["adam", "rmsprop"])
def test_thirty_updates_lower_the_loss(name, optimizer):
    result = train(config(name, optimizer=OptimizerConfig(optimizer, lr=0.01)))
    losses = [record["loss"] for record in result.records if record["kind"] == "train"]
    assert losses[-1] < 0.8 * losses[0]
    assert result.test["loss"] < 0.8 * losses[0]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", MODELS)
def test_a_hundred_updates_learn_to_add(name):
    """Better than the best constant answer, by a third."""
    trainer = Trainer(config(name, task=Adding(T=4, validation_size=2, test_size=2), batch_size=32, steps=100))
    losses = [float(trainer.update()) for _ in range(100)]
    assert sum(losses[-10:]) / 10 < 2 / 3 * trainer.config.task.objective().trivial_loss


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", MODELS)
def test_the_recurrent_matrix_stays_orthogonal_and_moves(name):
    trainer = Trainer(config(name))
    found = [module for module in trainer.model.modules() if isinstance(module, Transition)]
    if not found or found[0].method.group in ("margin", "all"):
        return
    before = found[0].matrix().detach().clone()
    for _ in range(30):
        trainer.update()
    W = found[0].matrix().detach()
    assert (W - before).norm() > 1e-3
    # built in float64 and rounded to float32 once; that of full-urnn is itself updated in float32
    assert orthogonality_error(W) < (4 if name == "full-urnn" else 1) * 16 * torch.finfo(torch.float32).eps


def test_the_same_config_gives_the_same_run():
    first, second = train(config()), train(config())
    other = train(config(seed=1))

    def numbers(result):
        return [{k: v for k, v in record.items() if k not in ("seconds", "cpu_seconds")} for record in result.records]

    assert numbers(first) == numbers(second)
    assert numbers(first) != numbers(other)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", ["ornn", "scornn", "lstm"])
@pytest.mark.parametrize("optimizer", ["adam", "rmsprop"])
def test_a_trainer_goes_on_bit_for_bit_from_its_state(name, optimizer, tmp_path):
    options = {"task": Labeled(), "batch_size": 4, "optimizer": OptimizerConfig(optimizer)}
    whole = Trainer(config(name, **options))
    losses = [whole.update() for _ in range(20)]
    first = Trainer(config(name, **options))
    for _ in range(10):  # 30 training sequences: in the middle of the second epoch
        first.update()
    state = copy.deepcopy(first.state_dict())
    second = Trainer(config(name, **options))
    second.load_state_dict(state)
    assert [second.update() for _ in range(10)] == losses[10:]
    for one, other in zip(whole.model.parameters(), second.model.parameters()):
        assert torch.equal(one, other)


def test_the_recurrent_parameters_have_their_own_rate():
    trainer = Trainer(config("scornn", optimizer=OptimizerConfig(lr=0.5)))
    rest, recurrent = trainer.optimizer.param_groups
    assert (rest["lr"], recurrent["lr"]) == (0.5, 0.05)
    assert [p.numel() for p in recurrent["params"]] == [16 * 15 // 2]
    trainer = Trainer(config("ornn", optimizer=OptimizerConfig(lr=0.5, recurrent_lr=0.25)))
    assert trainer.optimizer.param_groups[1]["lr"] == 0.25
    assert len(Trainer(config("lstm")).optimizer.param_groups) == 1


@pytest.mark.parametrize("name", MODELS)
def test_every_trained_parameter_is_in_one_group(name):
    trainer = Trainer(config(name))
    grouped = [id(p) for group in trainer.optimizer.param_groups for p in group["params"]]
    everything = {id(p) for p in trainer.model.parameters() if p.requires_grad}
    assert len(grouped) == len(set(grouped))
    assert set(grouped) == everything


def test_after_update_is_called_once_an_update(monkeypatch):
    monkeypatch.setattr(BoundHouseholder, "acts_after_update", True)
    trainer = Trainer(config("ornn"))
    ((_, transition),) = trainer.model.core.transitions()
    calls = []
    monkeypatch.setattr(transition.method, "after_update_", lambda *free: calls.append([id(f) for f in free]))
    trainer.update()
    trainer.update()
    assert calls == [[id(f) for f in transition.free()]] * 2


def test_clipping_bounds_the_gradient():
    trainer = Trainer(config("ornn", optimizer=OptimizerConfig(lr=0.0, clip_norm=1e-3)))
    trainer.update()
    norm = torch.stack([p.grad.norm() for p in trainer.model.parameters()]).norm()
    assert float(norm) == pytest.approx(1e-3, rel=1e-3)  # clip_grad_norm_ divides by norm + 1e-6


def test_a_run_directory(tmp_path):
    path = tmp_path / "run"
    seen = []
    result = train(config(), path, seen.append)
    assert sorted(file.name for file in path.iterdir()) == [
        ".lock",
        "checkpoints",
        "config.json",
        "description.json",
        "environment.json",
        "metrics.jsonl",
        "model.safetensors",
        "result.json",
    ]
    assert read_config(path / "config.json") == config()
    assert {"python", "torch", "numpy", "commit", "processor", "threads"} <= set(
        json.loads((path / "environment.json").read_text())
    )
    records = read_metrics(path / "metrics.jsonl")
    assert records == result.records
    assert [r["step"] for r in records if r["kind"] == "train"] == [5, 10, 15, 20, 25, 30]
    assert [r["step"] for r in records if r["kind"] == "validation"] == [10, 20, 30]
    assert [r["step"] for r in records if r["kind"] == "test"] == [30]
    assert result.finished
    assert result.best["recall"] == max(r["recall"] for r in records if r["kind"] == "validation")
    assert (seen[-1].step, seen[-1].steps) == (30, 30)
    assert all(math.isfinite(progress.loss) for progress in seen)
    # the weights are those that were tested
    trainer = Trainer(config())
    trainer.model.load_state_dict(load_file(path / "model.safetensors"))
    assert trainer.evaluate(TASK.problem().test(7))["recall"] == pytest.approx(result.test["recall"])


def test_a_run_is_never_overwritten(tmp_path):
    train(config(steps=1), tmp_path)
    before = (tmp_path / "metrics.jsonl").read_text()
    with pytest.raises(ArgumentError, match="already holds a run"):
        train(config(steps=1), tmp_path)
    assert (tmp_path / "metrics.jsonl").read_text() == before


def test_evaluation_does_not_depend_on_its_batches():
    trainer = Trainer(config())
    whole, parts = trainer.evaluate(TASK.problem().validation(20)), trainer.evaluate(TASK.problem().validation(3))
    # float32 losses, averaged in other groups
    assert whole == pytest.approx(parts, rel=1e-5)
    assert trainer.model.training


def test_a_loss_that_is_not_finite_stops_the_run(tmp_path):
    trainer = Trainer(config("lstm"))
    trainer.update()
    with torch.no_grad():
        trainer.model.head.bias[0] = float("nan")
    before = [p.clone() for p in trainer.model.parameters()]
    with pytest.raises(NonFiniteError, match=r"a finite training loss, but got nan at step 1 \(seed 0\).*Lower lr"):
        trainer.update()
    for one, other in zip(trainer.model.parameters(), before):
        torch.testing.assert_close(one, other, rtol=0, atol=0, equal_nan=True)
    with pytest.raises(NonFiniteError, match="at step"):
        train(config("rnn", task=Adding(T=4), optimizer=OptimizerConfig("rmsprop", lr=1e30)), tmp_path)
    assert (tmp_path / "config.json").exists()
    assert not (tmp_path / "model.safetensors").exists()
    ended = read_diverged(tmp_path)
    assert ended.step > 0
    with pytest.raises(
        ArgumentError, match=rf"its training diverged after update {ended.step}, as .*Lower lr.* a new run"
    ) as raised:
        load_model(tmp_path, "chosen")
    assert "--resume" not in str(raised.value)


@pytest.mark.parametrize("form", ["classes", "numbers"])
def test_a_batch_that_the_training_set_has_not_is_an_error_before_any_file(form, tmp_path):
    task = Labeled() if form == "classes" else Adding(T=4, variant="helfrich2018", train_size=30)
    with pytest.raises(ArgumentError, match=r"The training set has \d+ sequences. Pass batch_size, --batch-size"):
        train(config(task=task, batch_size=31 if form == "numbers" else 10**6), tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("task", [Copying(T=4), Adding(T=4)], ids=["every step", "a number"])
def test_smoothed_labels_of_a_task_that_has_none_are_an_error_before_any_file(task, tmp_path):
    with pytest.raises(ArgumentError, match=f"one class per sequence for label_smoothing, but got {task.name}"):
        train(config(task=task, penalties=PenaltyConfig(label_smoothing=0.1)), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_time_limit_ends_a_run_early():
    result = train(config(steps=10**9, max_seconds=0.2))
    assert 0 < result.steps < 10**9
    assert not result.finished
    assert result.test


def test_bad_data_are_found_before_anything_is_written(tmp_path):
    with pytest.raises(DataError):
        train(config(task=Characters(data=str(tmp_path / "nowhere"))), tmp_path / "run")
    (tmp_path / "one.txt").write_text("aaaa\n" * 9)
    with pytest.raises(DataError, match="Expected training targets that differ, but got the same"):
        train(config(task=Characters(data=str(tmp_path / "one.txt"))), tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.sampled(12)
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("optimizer", ["adam", "rmsprop"])
def test_evaluation_sees_every_update(name, optimizer):
    """A kept W is never stale: torch's fused Adam changes parameters without raising their version."""
    trainer = Trainer(config(name, optimizer=OptimizerConfig(optimizer, lr=0.1)))
    for _ in range(3):
        trainer.update()
        fresh = Trainer(config(name))
        fresh.model.load_state_dict(trainer.model.state_dict())
        assert trainer.evaluate(TASK.problem().validation(20)) == fresh.evaluate(TASK.problem().validation(20))


@pytest.mark.parametrize(("number", "kind"), [(errno.EPIPE, Interrupted), (errno.ENOSPC, CheckpointError)])
def test_output_that_is_not_taken_ends_a_run_whose_state_is_saved(number, kind, tmp_path, monkeypatch):
    monkeypatch.setattr(training_loop, "_PROGRESS_SECONDS", 0.0)

    def display(progress):
        if progress.step == 5:
            raise OSError(number, os.strerror(number))

    ended = f"{os.strerror(number)}. The run ended after update 5 of 30; its state is saved. Resume it with: orthornn train "
    with pytest.raises(kind, match=re.escape(f"{ended}--resume {tmp_path / 'run'}")):
        train(config(), tmp_path / "run", display)
    run = Run.resume(tmp_path / "run")
    assert run.trainer.step == 5
    run.close()


def test_a_signal_between_the_last_update_and_the_last_step_counts(tmp_path, monkeypatch):
    run = Run(config(), tmp_path / "run")
    run.advance_to(30)
    done = type(run).done

    def disturbed(self):
        os.kill(os.getpid(), signal.SIGTERM)
        return done.fget(self)

    monkeypatch.setattr(Run, "done", property(disturbed))
    with pytest.raises(Interrupted, match="SIGTERM ended the run after update 30 of 30"):
        run_to_end(run)
    assert not (tmp_path / "run" / "result.json").exists()


def test_training_leaves_torchs_random_numbers_as_they_were():
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    train(config(steps=2))
    assert torch.equal(torch.rand(3), expected)


@pytest.mark.parametrize("name", ["gru", "lstm", "rnn", "ornn", "blocks"])
def test_networks_have_the_dtype_of_the_data_whatever_the_default_is(name):
    torch.set_default_dtype(torch.float64)
    try:
        result = train(config(name, task=Adding(T=4, validation_size=10, test_size=10), steps=2))
        assert torch.get_default_dtype() == torch.float64
    finally:
        torch.set_default_dtype(torch.float32)
    assert {parameter.dtype for parameter in result.model.parameters()} == {torch.float32}


@pytest.mark.parametrize(
    ("name", "word"), [("my run", "my run"), ("-run", "./-run"), ("it's $HOME", "it's $HOME"), ("run", "run")]
)
def test_the_command_that_resumes_a_run_can_be_pasted(name, word, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(training_loop, "_PROGRESS_SECONDS", 0.0)
    path, messages = Path(name), []

    def display(progress):
        raise OSError(errno.ENOSPC, "full")

    def attempt(work):
        with pytest.raises((ArgumentError, CheckpointError)) as caught:
            work()
        messages.append(str(caught.value))

    attempt(lambda: train(config(steps=2), path, display))
    attempt(lambda: train(config(steps=2), path))
    run = Run.resume(path)
    messages.append(str(training_loop._interruption(run, signal.SIGTERM)))
    run_to_end(run)
    (path / "result.json").unlink()
    with pytest.warns(OrthornnWarning, match="has come to its end") as warned:
        read_run(path)
    messages.append(str(warned[0].message))
    for folder in (path / "checkpoints").iterdir():
        shutil.rmtree(folder)
    (path / "model.safetensors").unlink()
    attempt(lambda: load_model(path))
    for message in messages:
        assert shlex.split(message.partition("orthornn train --resume ")[2].rstrip(".")) == [word], message
