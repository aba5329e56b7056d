from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from made_idx import write_images
from orthornn import cli
from orthornn.cli.arguments import parse_count
from orthornn.errors import ArgumentError, OrthornnError
from orthornn.models import MODELS
from orthornn.tasks import TASKS
from orthornn.training import read_config, read_metrics

TINY = [
    "--T",
    "3",
    "--items",
    "2",
    "--validation-size",
    "10",
    "--test-size",
    "10",
    "--steps",
    "12",
    "--batch-size",
    "4",
    "--log-every",
    "4",
    "--validate-every",
    "6",
]


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def python(*words):
    path = {"PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.run([sys.executable, *words], capture_output=True, text=True, check=False, env=os.environ | path)


def run(*words):
    return cli.main(list(words))


def test_train(capsys, tmp_path):
    assert (
        run(
            "train",
            "copying",
            *TINY,
            "--model",
            "ornn",
            "--parameters",
            "1k",
            "--reflections",
            "3",
            "--optimizer",
            "rmsprop",
            "--lr",
            "0.002",
            "--seed",
            "4",
            "--out",
            "run",
        )
        == 0
    )
    out = capsys.readouterr().out
    assert "trivial loss" in out
    assert "ornn" in out
    folder = tmp_path / "run"
    assert sorted(file.name for file in folder.iterdir()) == [
        ".lock",
        "checkpoints",
        "config.json",
        "curves.png",
        "description.json",
        "environment.json",
        "metrics.jsonl",
        "model.safetensors",
        "result.json",
    ]
    config = read_config(folder / "config.json")
    assert (config.task.T, config.model.parameters, config.model.reflections) == (3, 1000, 3)
    assert (config.optimizer.name, config.optimizer.lr, config.seed) == ("rmsprop", 0.002, 4)
    assert (config.steps, config.batch_size) == (12, 4)


def test_a_config_file_repeats_a_run(tmp_path):
    run("train", "copying", *TINY, "--hidden-size", "6", "--out", "first")
    assert run("train", "--config", "first/config.json", "--out", "second") == 0

    def numbers(name):
        records = read_metrics(tmp_path / name / "metrics.jsonl")
        return [{key: value for key, value in record.items() if key != "seconds"} for record in records]

    assert numbers("first") == numbers("second")


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


def test_results_go_to_runs_by_default(tmp_path):
    run(
        "train",
        "adding",
        "--T",
        "4",
        "--validation-size",
        "3",
        "--test-size",
        "3",
        "--steps",
        "2",
        "--hidden-size",
        "3",
        "--model",
        "gru",
    )
    (folder,) = (tmp_path / "runs").iterdir()
    assert folder.name.startswith("adding-gru-")


def test_compare(capsys, tmp_path):
    assert run("compare", "copying", *TINY, "--models", "ornn, lstm", "--parameters", "600", "--out", "both") == 0
    out = capsys.readouterr().out
    table = (tmp_path / "both" / "table.txt").read_text()
    assert table in out
    assert [line.split()[0] for line in table.splitlines()[4:6]] == ["ornn", "lstm"]
    assert (tmp_path / "both" / "curves.png").stat().st_size > 1000
    assert (tmp_path / "both" / "lstm" / "model.safetensors").exists()


def test_demo(capsys, tmp_path):
    assert (
        run(
            "demo",
            "--T",
            "4",
            "--steps",
            "8",
            "--seconds",
            "60",
            "--parameters",
            "800",
            "--reflections",
            "3",
            "--out",
            "demo",
        )
        == 0
    )
    out = capsys.readouterr().out
    for name in ("ornn-rotations", "ornn", "scornn", "lstm", "nn.RNN ms", "nn.LSTM ms"):
        assert name in out
    assert (tmp_path / "demo" / "demo.png").stat().st_size > 10_000


def test_doctor(capsys):
    assert run("doctor") == 0
    out = capsys.readouterr().out
    for word in ("torch", "threads", "kernels on cpu", "reference", "matplotlib"):
        assert word in out


def test_the_manual_names_every_command_task_and_model(capsys):
    assert run() == run("--help") == run("help") == 0
    manual = capsys.readouterr().out
    assert all(f"  {command} " in manual for command in cli.COMMANDS)
    for command in ("train", "compare"):
        with pytest.raises(SystemExit) as stop:
            run(command, "--help")
        assert stop.value.code == 0
        text = capsys.readouterr().out
        assert all(name in text for name in [*TASKS, *MODELS])


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("command", ["train", "compare"])
def test_every_option_is_explained(command, task, capsys):
    with pytest.raises(SystemExit) as stop:
        run(command, task, "--help")
    assert stop.value.code == 0
    text = capsys.readouterr().out
    for option in ("--parameters", "--lr", "--recurrent-lr", "--batch-size", "--seed", "--out", "--seconds"):
        assert option in text
    assert ("--no-permuted" in text) == (task == "pixel-mnist")
    assert ("--T" in text) == (task != "pixel-mnist")


WRONG = {
    ("trian",): "Did you mean 'train'?",
    ("train", "copyin"): "Did you mean 'copying'?",
    ("train", "--T", "3"): "the task comes first",
    ("train", "--config", "none.json", "--out", "x"): "cannot read none.json",
    ("train", "--config", "none.json"): "--config FILE --out FOLDER",
    ("train", "copying", "--model", "lstn"): "Did you mean 'lstm'?",
    ("train", "copying", "--parameters", "many"): "a number like 5000, 5k or 1.3m; got 'many'",
    ("train", "copying", "--parameters", "5"): "parameters=5 is too few",
    ("train", "copying", "--parameters", "5k", "--hidden-size", "3"): "give one",
    ("train", "copying", "--epochs", "3"): "use --steps",
    ("train", "copying", "--T", "0"): "T must be an integer of at least 1; got 0",
    ("train", "copying", "--threads", "0"): "threads must be",
    ("train", "adding", "--variant", "helfrich2018", "--steps", "1", "--epochs", "1"): "give one",
    ("train", "pixel-mnist", "--data", "nowhere"): "there is no folder nowhere",
    ("compare", "copying", "--models", "lstm,lstm"): "twice",
    ("compare", "copying", "--models", ""): "at least one",
    ("doctor", "--all"): "doctor takes no options",
}


@pytest.mark.parametrize("words", WRONG)
def test_an_error_is_one_line_and_leaves_nothing_behind(words, capsys, tmp_path):
    assert run(*words) == 2
    error = capsys.readouterr().err
    assert error.startswith("orthornn: ")
    assert len(error.splitlines()) == 1
    assert WRONG[words] in error
    assert list(tmp_path.rglob("*.jsonl")) == []


def test_a_traceback_is_shown_when_asked_for():
    with pytest.raises(OrthornnError):
        run("train", "copyin", "--traceback")


def test_unknown_options_suggest_the_nearest(capsys):
    with pytest.raises(SystemExit) as stop:
        run("train", "copying", "--stepz", "3")
    assert stop.value.code == 2
    assert "--steps" in capsys.readouterr().err


def test_python_m_orthornn(tmp_path):
    done = python("-m", "orthornn", "trian")
    assert done.returncode == 2
    assert done.stderr.startswith("orthornn: command must be one of")
    assert "Traceback" not in done.stderr


def test_import_orthornn_costs_torch_alone():
    code = "import orthornn, sys, json; print(json.dumps(list(sys.modules)))"
    done = python("-c", code)
    assert done.returncode == 0, done.stderr
    loaded = set(json.loads(done.stdout))
    assert not loaded & {"matplotlib", "tyro", "rich", "scipy", "orthornn.tasks", "orthornn.cli"}


@pytest.mark.parametrize(
    ("text", "count"),
    [("5000", 5000), ("5k", 5000), ("16.4K", 16400), ("1.3m", 1_300_000), (" 7 ", 7), (None, None)],
)
def test_counts(text, count):
    assert parse_count(text) == count


@pytest.mark.parametrize("text", ["", "k", "-5", "5kk", "1e3", "5g"])
def test_wrong_counts(text):
    with pytest.raises(ArgumentError, match="5k"):
        parse_count(text)
