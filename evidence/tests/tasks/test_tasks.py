"""The tasks that the evidence adds, in the command and in stored runs."""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import os
import re
import subprocess
import sys

import pytest

from orthornn import cli
from orthornn.errors import ArgumentError, ConfigError
from orthornn.learn import entry_points, tasks
from orthornn.learn.options import Options
from orthornn.learn.recipes import with_recipe
from orthornn.learn.systems import model_named
from orthornn.learn.training import RunConfig, read_config, read_metrics
from orthornn_evidence.tasks import Music, PianoRolls, PixelMNIST, Speech
from support.made_idx import write_images
from support.made_sounds import archives, wav

NAMES = entry_points.EVIDENCE[entry_points.TASKS]


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def run(*words):
    return cli.main(list(words))


WRONG = {
    ("train", "pixel-mnist", "--data", "nowhere"): "there is no folder nowhere",
    ("train", "speech", "--data", "nowhere"): "there is no folder nowhere",
    ("train", "music", "--data", "nowhere.wav"): "there is no file nowhere.wav",
    ("train", "piano-rolls", "--data", "nowhere"): "there is none at nowhere",
}


@pytest.mark.parametrize("words", WRONG)
def test_an_error_is_one_line_and_leaves_nothing_behind(words, capsys, tmp_path):
    assert run(*words) == 2
    error = capsys.readouterr().err
    assert error.startswith("orthornn: ")
    assert len(error.splitlines()) == 1
    assert WRONG[words] in error
    assert list(tmp_path.rglob("*.jsonl")) == []


def test_orthornn_knows_the_names_of_its_tasks():
    """So that it can say how to install what is not there."""
    declared = entry_points.declared(entry_points.TASKS)
    own = [name for name, found in declared.items() if found.value.startswith("orthornn_evidence")]
    assert sorted(own) == sorted(NAMES)
    assert all(tasks.TASKS[name].name == name for name in own)


def test_a_task_is_found_where_it_was():
    assert tasks.PixelMNIST is PixelMNIST
    with pytest.raises(AttributeError):
        tasks.PixelMnist  # noqa: B018


@pytest.mark.parametrize("task", NAMES)
@pytest.mark.parametrize("command", ["train", "compare"])
def test_every_option_is_explained(command, task, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")
    with pytest.raises(SystemExit) as stop:
        run(command, task, "--help")
    assert stop.value.code == 0
    text = capsys.readouterr().out
    for option in ("--parameters", "--lr", "--recurrent-lr", "--batch-size", "--seed", "--out", "--seconds"):
        assert option in text
    assert ("--no-permuted" in text) == (task == "pixel-mnist")
    made = ("groups", "parity", "modular-sums")
    assert ("--T " in text) == (task in (*made, "noisy-digits"))
    assert ("--data " in text) == (task not in made)


@pytest.mark.parametrize("task", NAMES)
def test_the_help_of_a_task_explains_each_option_that_has_an_effect(task, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")  # one column
    with pytest.raises(SystemExit):
        run("train", task, "--help")
    text = capsys.readouterr().out
    lines = [line.strip("│| ") for line in text.split("task options")[1].split("model options")[0].splitlines()]
    part, kind = " ".join(lines), tasks.TASKS[task]
    names = {field.name: field.name.replace("_", "-") for field in dataclasses.fields(kind)}
    unused = {field.name for field in dataclasses.fields(kind) if field.metadata.get("without_effect")}
    options = {option for name, option in names.items() if name not in unused}
    found = {line.split()[0].rstrip(",").removeprefix("--") for line in lines if re.match("--[A-Za-z]", line)}
    assert found == options
    for name, option in names.items():  # as it is typed, not as Python writes it
        assert name == option or not re.search(rf"\b{name}\b", part)


def test_the_tasks_cost_no_extra_until_one_needs_it():
    code = "import orthornn_evidence.tasks, sys, json; print(json.dumps(list(sys.modules)))"
    path = {"PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=os.environ | path)
    assert done.returncode == 0, done.stderr
    loaded = set(json.loads(done.stdout))
    assert "orthornn_evidence.tasks.speech" in loaded
    assert not loaded & {"matplotlib", "rich", "scipy", "pooch", "pyarrow", "soundfile", "pystoi", "pesq"}


def test_a_config_file_is_read_back():
    config = RunConfig(task=PixelMNIST(data="somewhere", permuted=True), model=model_named("ornn", reflections=4))
    assert RunConfig.read(config.to_dict()) == config
    assert config.to_dict()["task"]["name"] == "pixel-mnist"


BOTH = model_named("lstm", hidden_size=4, bidirectional=True)


@pytest.mark.parametrize("task", [PianoRolls(), Speech()])
def test_a_network_of_both_directions_does_not_predict_its_own_inputs(task):
    with pytest.raises(
        ArgumentError, match=rf"^Expected bidirectional, --bidirectional, to be False for {task.name}, "
    ):
        RunConfig(task=task, model=BOTH)
    plain = RunConfig(task=task, model=dataclasses.replace(BOTH, bidirectional=False)).to_dict()
    with pytest.raises(ConfigError, match="to be False"):
        RunConfig.read({**plain, "model": {**plain["model"], "bidirectional": True}})


@pytest.mark.parametrize("task", [Music(), PixelMNIST()])
def test_a_network_of_both_directions_predicts_what_it_does_not_read(task):
    assert RunConfig(task=task, model=BOTH).model.bidirectional


def test_a_pool_for_predictions_at_every_step_is_an_error_and_that_of_a_recipe_is_left_out():
    found = with_recipe(Options(tasks.TASKS["groups"], {"recipe": "table"})).values
    assert "dropout" in found
    assert "pool" not in found
    assert "label_smoothing" not in found  # measured for one class per sequence
    options = Options(tasks.TASKS["groups"], {"pool": "mean"})
    with pytest.raises(ArgumentError, match=r"Expected --pool only for one prediction .* --pool mean for groups, "):
        options.config(options.make_task())


def test_train_pixel_mnist_by_epochs(tmp_path, capsys):
    write_images(tmp_path / "images")
    assert (
        run(
            "train",
            "pixel-mnist",
            "--data",
            "images",
            "--no-verify",
            "--validation-size",
            "10",
            "--permuted",
            "--epochs",
            "2",
            "--batch-size",
            "5",
            "--hidden-size",
            "4",
            "--out",
            "run",
        )
        == 0
    )
    config = read_config(tmp_path / "run" / "config.json")
    assert (config.steps, config.validate_every) == (12, 6)
    assert config.task.permuted
    assert not config.task.verify
    assert "accuracy" in capsys.readouterr().out


def test_music_leaves_sounds_and_a_figure(tmp_path, capsys):
    (tmp_path / "song.wav").write_bytes(wav(1, 900))
    options = ["--start", "10", "--length", "50", "--model", "ornn", "--hidden-size", "4", "--steps", "3"]
    assert run("train", "music", "--data", "song.wav", *options, "--out", "run") == 0
    assert {"true.wav", "generated.wav", "waveforms.png"} <= {path.name for path in (tmp_path / "run").iterdir()}
    assert read_config(tmp_path / "run" / "config.json").batch_size == 1
    assert "waveforms.png" in capsys.readouterr().out


def test_speech_leaves_sounds_and_scores(tmp_path, capsys, monkeypatch):
    archives(tmp_path / "sounds")
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name in ("pesq", "pystoi") else find(name))
    options = ["--model", "gru", "--hidden-size", "4", "--steps", "2", "--batch-size", "2", "--out", "run"]
    assert run("train", "speech", "--data", "sounds", *options) == 0
    out = capsys.readouterr().out
    assert "test loss of previous frame" in out
    assert re.search(r"from model, .*: SegSNR -?\d.*, STOI not computed, PESQ not computed", out)
    assert "PESQ, STOI: package missing (extras speech and pesq)" in out
    assert (tmp_path / "run" / "model.wav").exists()


def test_all_images_for_training_leave_no_validation(tmp_path, capsys):
    write_images(tmp_path / "images")
    options = ["--no-verify", "--variant", "helfrich2018", "--epochs", "1", "--batch-size", "5", "--hidden-size", "4"]
    assert run("train", "pixel-mnist", "--data", "images", *options, "--out", "run") == 0
    assert "best validation" not in capsys.readouterr().out
    assert {record["kind"] for record in read_metrics(tmp_path / "run" / "metrics.jsonl")} <= {"train", "test"}
