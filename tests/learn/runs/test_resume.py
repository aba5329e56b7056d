"""A run that was stopped and goes on is, bit for bit, the run that was not."""

from __future__ import annotations

import dataclasses
import json
import math
import os
import shutil

import pytest
import torch

from orthornn.errors import ArgumentError, CheckpointError, ConfigError, DeviceError, LockedError, OrthornnWarning
from orthornn.learn.runs.selection import Selection
from orthornn.learn.systems import MODELS, model_named
from orthornn.learn.tasks import TASKS as TASKS_BY_NAME
from orthornn.learn.tasks import Adding, Amplifier, Forecast
from orthornn.learn.training import (
    OptimizerConfig,
    RecordConfig,
    Run,
    RunConfig,
    ScheduleConfig,
    load_model,
    read_metrics,
    resume,
    run_to_end,
    train,
)
from orthornn.learn.training.config import OPTIMIZERS
from orthornn.saved.run_files import read_result
from support.labeled import Labeled
from support.made_sounds import wav
from support.run_cases import COPYING, EPOCHS, config, content, entries, numbers

TASKS = {"copying": COPYING, "adding": Adding(T=4, validation_size=10, test_size=10), "epochs": EPOCHS}


@pytest.fixture(autouse=True)
def _no_sync(monkeypatch):
    """These tests kill no machine, and bringing bytes to the disk takes most of their time."""
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)


def stopped(path, config, step):
    """A run whose process ended after `step` updates; returns the number of bytes its checkpoint has."""
    run = Run(config, path)
    run.advance_to(step)
    run.checkpoint()
    run.advance_to(step + 3)  # updates that are lost
    run.close()


def check(tmp_path, config, step):
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    first = train(config, whole)
    stopped(parts, config, step)
    second = resume(parts)
    assert numbers(first.records) == numbers(second.records)
    assert numbers(read_metrics(parts / "metrics.jsonl")) == numbers(first.records)
    assert content(whole) == content(parts)
    assert len(content(whole)) == 3
    for name in ("best", "test", "validation"):
        assert numbers([getattr(first, name)]) == numbers([getattr(second, name)])


@pytest.mark.sampled(1)
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("name", MODELS)
def test_every_model_and_optimizer(name, optimizer, tmp_path):
    check(tmp_path, config(name, optimizer=OptimizerConfig(optimizer, lr=0.003), steps=20), 9)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("task", TASKS)
def test_every_task_in_the_middle_of_an_epoch(task, tmp_path):
    check(tmp_path, config(task=TASKS[task]), 13)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", ["ornn-rotations", "lstm", "gru"])
def test_a_state_that_is_carried_over(name, tmp_path):
    (tmp_path / "dry.wav").write_bytes(wav(1, 1500))
    task = Amplifier(data=str(tmp_path / "dry.wav"), truncation=20, skipped=5)
    check(tmp_path, config(name, task=task, batch_size=8), 13)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", ["ornn-rotations", "gru"])
def test_a_state_that_is_carried_over_in_bfloat16(name, tmp_path):
    (tmp_path / "dry.wav").write_bytes(wav(1, 1500))
    task = Amplifier(data=str(tmp_path / "dry.wav"), truncation=20, skipped=5)
    check(tmp_path, config(name, task=task, batch_size=8, autocast="bfloat16"), 13)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("step", [0, 1, 4])
@pytest.mark.parametrize("name", ["ornn", "blocks"])
def test_records_next_to_a_start_from_the_data(name, step, tmp_path):
    """The validation before the first update is a checkpoint, after the records of that step."""
    rows = "\n".join(f"{math.sin(t / 3) + math.cos(t):.4f}" for t in range(120))
    (tmp_path / "series.csv").write_text(f"v\n{rows}\n")
    task = Forecast(data=str(tmp_path / "series.csv"), target="v", skipped=4, window=20)
    model = model_named(name, hidden_size=6, lags=3)
    settings = config(task=task, steps=8, validate_every=3, record=RecordConfig(gradients=2, spectrum=2))
    settings = dataclasses.replace(settings, model=model)
    whole = train(settings, tmp_path / "whole")
    run = Run(settings, tmp_path / "parts")
    assert run.trainer.warm
    run.advance_to(1)
    run.advance_to(step)
    if step > 1:
        run.checkpoint()
    run.close()
    assert numbers(resume(tmp_path / "parts").records) == numbers(whole.records)


def test_classes_in_the_middle_of_an_epoch(tmp_path, monkeypatch):
    monkeypatch.setitem(TASKS_BY_NAME.own, "labeled", Labeled)
    check(tmp_path, config(task=Labeled(), batch_size=4), 11)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("accumulate", [1, 3])
@pytest.mark.parametrize("name", ["blocks", "lstm"])
def test_dropout_draws_what_it_would_have_drawn(name, accumulate, tmp_path):
    model = model_named(name, hidden_size=6, depth=2, dropout=0.5, head="mlp", head_width=5)
    options = {"schedule": ScheduleConfig("cosine", warmup=5), "optimizer": OptimizerConfig("adamw", lr=0.01)}
    check(tmp_path, dataclasses.replace(config(**options), model=model, accumulate=accumulate), 13)


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    "schedule",
    [
        ScheduleConfig("step", every=7),
        ScheduleConfig("exponential", every=5),
        ScheduleConfig("cosine", warmup=15),
        ScheduleConfig("linear", factor=0.2, warmup=3),
        ScheduleConfig("constant", warmup=20),
        ScheduleConfig("plateau", factor=0.5, every=1),
    ],
    ids=lambda schedule: schedule.name,
)
def test_every_schedule(schedule, tmp_path):
    check(tmp_path, config(schedule=schedule, validate_every=2), 13)


def test_a_run_is_not_made_shorter_than_its_warmup(tmp_path):
    stopped(tmp_path, config(schedule=ScheduleConfig("cosine", warmup=15)), 5)
    before = content(tmp_path)
    with pytest.raises(ArgumentError, match="shorter than the training of 9 updates, but got 15"):
        resume(tmp_path, steps=9)
    assert content(tmp_path) == before


def test_accumulation_clipping_and_autocast(tmp_path):
    optimizer = OptimizerConfig(lr=0.01, clip_norm=0.5, clip_value=0.1)
    check(tmp_path, config(accumulate=3, optimizer=optimizer, autocast="bfloat16"), 13)


@pytest.mark.slow
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("task", TASKS)
def test_two_thousand_steps(task, name, optimizer, tmp_path):
    """2000 updates are 1000, a new start, and 1000."""
    options = {"task": TASKS[task], "optimizer": OptimizerConfig(optimizer), "steps": 2000, "validate_every": 300}
    check(tmp_path, config(name, **options), 1000)


def test_a_run_can_be_made_longer(tmp_path):
    train(config(steps=30), tmp_path / "whole")
    train(config(steps=17), tmp_path / "parts")
    assert resume(tmp_path / "parts", steps=17).records != []
    result = resume(tmp_path / "parts", steps=30)
    assert result.finished
    assert content(tmp_path / "whole") == content(tmp_path / "parts")
    assert numbers(read_metrics(tmp_path / "whole" / "metrics.jsonl")) == numbers(result.records)


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    "schedule",
    [
        ScheduleConfig("step"),
        ScheduleConfig("step", every=4),
        ScheduleConfig("exponential"),
        ScheduleConfig("cosine", factor=0.1),
        ScheduleConfig("linear"),
        ScheduleConfig("linear", factor=0.3, warmup=5),
        ScheduleConfig("step", warmup=9),
        ScheduleConfig("constant", warmup=9),
    ],
    ids=str,
)
@pytest.mark.parametrize("stop", [7, 12])
def test_more_updates_follow_the_schedule_of_their_number(schedule, stop, tmp_path):
    def rates(run, steps):
        found = []
        for step in steps:
            run.advance_to(step)
            found.append([group["lr"] for group in run.trainer.optimizer.param_groups])
        run.checkpoint()
        run.close()
        return found

    settings = config(schedule=schedule, steps=12)
    whole = rates(Run(dataclasses.replace(settings, steps=30)), range(1, 31))
    run = Run(settings, tmp_path)
    run.advance_to(stop)
    run.checkpoint()
    run.close()
    assert rates(Run.resume(tmp_path, steps=30), range(stop + 1, 21)) == whole[stop:20]
    assert rates(Run.resume(tmp_path), range(21, 31)) == whole[20:]


def test_more_updates_on_a_plateau_keep_the_rates_that_it_came_to(tmp_path):
    settings = config(schedule=ScheduleConfig("plateau", factor=0.5, every=1), steps=12, validate_every=1)
    whole = train(dataclasses.replace(settings, steps=25), tmp_path / "whole")
    train(settings, tmp_path / "parts")
    assert numbers(resume(tmp_path / "parts", steps=25).records) == numbers(whole.records)
    assert content(tmp_path / "whole") == content(tmp_path / "parts")


def test_the_end_of_a_shorter_run_is_not_that_of_a_longer_one(tmp_path):
    train(config(steps=10), tmp_path)
    run = Run.resume(tmp_path, steps=30)
    assert read_result(tmp_path)["steps"] == 10
    run.advance_to(25)
    run.checkpoint()
    run.close()
    assert read_result(tmp_path) is None
    loaded = load_model(tmp_path)[1].state_dict()
    assert all(torch.equal(tensor, loaded[name]) for name, tensor in run.trainer.model.state_dict().items())
    assert resume(tmp_path).finished
    assert read_result(tmp_path)["steps"] == 30


def test_a_run_cannot_be_made_shorter_than_it_is(tmp_path):
    train(config(steps=10), tmp_path)
    before = (tmp_path / "config.json").read_bytes()
    with pytest.raises(ArgumentError, match=r"steps to be at least 10, the updates that .* has made, but got 9"):
        Run.resume(tmp_path, steps=9)
    assert (tmp_path / "config.json").read_bytes() == before


def test_a_run_stopped_before_its_first_checkpoint_begins_anew(tmp_path):
    run = Run(config(), tmp_path / "parts")
    run.advance_to(5)
    run.close()
    assert numbers(resume(tmp_path / "parts").records) == numbers(train(config()).records)


def test_a_torn_line_is_cut_off(tmp_path):
    stopped(tmp_path, config(), 13)
    with open(tmp_path / "metrics.jsonl", "a") as file:
        file.write('{"kind": "tra')
    assert numbers(resume(tmp_path).records) == numbers(train(config()).records)


DAMAGE = {
    "truncated": lambda path: path.write_bytes(path.read_bytes()[:-1]),
    "a flipped bit": lambda path: path.write_bytes(path.read_bytes()[:-1] + bytes([path.read_bytes()[-1] ^ 1])),
    "empty": lambda path: path.write_bytes(b""),
    "missing": lambda path: path.unlink(),
}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("damage", DAMAGE)
@pytest.mark.parametrize("name", ["model.safetensors", "training.safetensors", "state.json", "SHA256SUMS"])
def test_a_damaged_checkpoint_is_said_and_the_one_before_is_taken(name, damage, tmp_path):
    run = Run(config(checkpoint_every=6, validate_every=100), tmp_path)
    run.advance_to(15)
    run.close()
    DAMAGE[damage](tmp_path / "checkpoints" / "step-00000012" / name)
    with pytest.warns(OrthornnWarning, match=r"step-00000012/.*renamed to .*resumes from step 6"):
        again = Run.resume(tmp_path)
    assert again.trainer.step == 6
    again.advance_to(30)
    assert numbers(again.finish().records) == numbers(train(config(validate_every=100)).records)
    assert (tmp_path / "checkpoints" / "damaged-step-00000012").is_dir()


def test_no_sound_checkpoint_is_an_error_that_names_each(tmp_path):
    stopped(tmp_path, config(checkpoint_every=6), 13)
    for path in (tmp_path / "checkpoints").glob("step-*/model.safetensors"):
        DAMAGE["truncated"](path)
    with pytest.raises(CheckpointError, match=r"(?s)no sound checkpoint.*step-00000013.*truncated or modified"):
        resume(tmp_path)


def test_a_changed_config_is_noticed(tmp_path):
    stopped(tmp_path, config(), 13)
    plain = entries(tmp_path / "config.json")
    plain["optimizer"]["lr"] = 0.5
    (tmp_path / "config.json").write_text(json.dumps(plain))
    with pytest.raises(ConfigError, match=r"optimizer.lr was 0.01 and is 0.5. Only steps, max_seconds and device may"):
        resume(tmp_path)


def test_a_configuration_that_names_no_device_goes_on(tmp_path):
    stopped(tmp_path, config(), 13)
    plain = entries(tmp_path / "config.json")
    assert plain.pop("device") == "cpu"
    (tmp_path / "config.json").write_text(json.dumps(plain))
    assert resume(tmp_path).steps == config().steps


def test_a_run_goes_on_elsewhere_than_it_was_begun(tmp_path):
    whole = train(config(), tmp_path / "whole")
    path = tmp_path / "run"
    stopped(path, config(), 13)
    (path / "config.json").write_text(json.dumps({**entries(path / "config.json"), "device": "cuda"}))
    if not torch.cuda.is_available():
        before = content(path)
        with pytest.raises(DeviceError, match=r"device is 'cuda', but torch .* sees no CUDA device"):
            resume(path)
        assert content(path) == before
    run = Run.resume(path, device="cpu")
    assert entries(path / "config.json")["device"] == "cpu"
    assert numbers(run_to_end(run).records) == numbers(whole.records)


def test_a_checkpoint_older_than_an_option_goes_on(tmp_path, monkeypatch):
    """What a checkpoint does not name has its default: an option that is new does not end older runs."""
    whole = RunConfig.to_dict
    monkeypatch.setattr(RunConfig, "to_dict", lambda self: {k: v for k, v in whole(self).items() if k != "accumulate"})
    stopped(tmp_path, config(), 13)
    monkeypatch.undo()
    assert resume(tmp_path).steps == config().steps


def test_lost_records_are_noticed(tmp_path):
    stopped(tmp_path, config(), 13)
    (tmp_path / "metrics.jsonl").write_text("")
    with pytest.raises(CheckpointError, match="holds 0 records"):
        resume(tmp_path)


def test_one_writer(tmp_path):
    run = Run(config(), tmp_path)
    with pytest.raises(LockedError, match="is being written by process"):
        resume(tmp_path)
    run.close()
    resume(tmp_path)


def test_nothing_to_go_on_with(tmp_path):
    with pytest.raises(ArgumentError, match="holds no run"):
        resume(tmp_path)


def test_the_last_and_the_best_are_kept(tmp_path):
    result = train(config(checkpoint_every=1, keep_checkpoints=3, validate_every=4, steps=30), tmp_path)
    kept = {path.name for path in (tmp_path / "checkpoints").iterdir()}
    assert kept == {"step-00000028", "step-00000029", "step-00000030", f"step-{int(result.best['step']):08d}"}


def test_no_pickles(tmp_path):
    train(config(), tmp_path)
    for path in tmp_path.rglob("*"):
        if path.is_file():
            assert b"\x80\x02" not in path.read_bytes()[:16]
            assert path.suffix in (".json", ".jsonl", ".safetensors", "") or path.name == ".lock"


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", ["blocks", "lstm"])
def test_taking_turns_with_others_does_not_change_what_dropout_draws(name, tmp_path):
    model = model_named(name, hidden_size=6, depth=2, dropout=0.5)
    configs = [dataclasses.replace(config(seed=seed), model=model) for seed in (1, 2)]
    one, other = (Run(settings, tmp_path / str(settings.seed)) for settings in configs)
    for step in range(0, 13, 3):
        one.advance_to(step)
        other.advance_to(step)
    one.checkpoint()
    one.close()
    torch.manual_seed(17)
    before = torch.get_rng_state()
    other.advance_to(30)
    assert torch.equal(torch.get_rng_state(), before)
    one = Run.resume(tmp_path / "1")
    assert numbers(other.finish().records) == numbers(train(configs[1]).records)
    one.advance_to(30)
    assert numbers(one.finish().records) == numbers(train(configs[0]).records)


def test_taking_turns_with_others_does_not_matter(tmp_path):
    one, other = Run(config(seed=1), tmp_path / "1"), Run(dataclasses.replace(config(), seed=2), tmp_path / "2")
    for step in range(0, 31, 3):
        one.advance_to(step)
        torch.rand(3)
        other.advance_to(step)
    assert numbers(one.finish().records) == numbers(train(config(seed=1)).records)
    other.close()


def test_a_finished_run_without_its_checkpoints_is_not_trained_from_the_start(tmp_path):
    train(config(), tmp_path)
    shutil.rmtree(tmp_path / "checkpoints")
    before = {file.name: file.read_bytes() for file in tmp_path.glob("*.*s*")}
    with pytest.raises(
        CheckpointError, match=r"have a checkpoint of the run, .* but got none.* Restore the checkpoints"
    ):
        resume(tmp_path)
    assert {file.name: file.read_bytes() for file in tmp_path.glob("*.*s*")} == before


def test_a_run_that_has_records_but_no_checkpoint_says_that_it_begins_again(tmp_path):
    whole = train(config())
    run = Run(config(checkpoint_seconds=None), tmp_path)
    run.advance_to(9)
    run.close()
    with pytest.warns(OrthornnWarning, match="has no checkpoint: it is trained from the start"):
        assert numbers(resume(tmp_path).records) == numbers(whole.records)


def test_a_run_that_time_ended_makes_no_update_when_it_is_resumed(tmp_path, monkeypatch):
    """Though its last update is the best validation, whose checkpoint is the last one."""
    monkeypatch.setattr(Selection, "update", lambda self, seen: vars(self).update(best=dict(seen)) is None)
    task = Adding(T=4, validation_size=10, test_size=10)
    made = train(config(task=task, steps=10_000, validate_every=1, max_seconds=0.3), tmp_path)
    assert not made.finished
    before = content(tmp_path)
    again = resume(tmp_path)
    assert again.steps == made.steps
    assert content(tmp_path) == before


def test_a_run_that_patience_ended_says_so_when_more_updates_are_asked_for(tmp_path):
    still = OptimizerConfig("sgd", lr=1e-12, recurrent_lr=1e-12)
    made = train(config(optimizer=still, steps=60, validate_every=5, patience=2), tmp_path)
    assert made.steps < 60
    with pytest.raises(ArgumentError, match=f"which patience=2 ended after update {made.steps}"):
        resume(tmp_path, steps=80)
    assert resume(tmp_path).steps == made.steps  # nothing was written
