from __future__ import annotations

import contextlib
import errno
import io
import json
import os
import re
import subprocess
import sys
import warnings

import numpy as np
import pytest
import torch

from orthornn import __version__, cli
from orthornn.errors import ArgumentError, OrthornnError
from orthornn.kernels.backends.cpp import extension
from orthornn.kernels.dispatch import choose
from orthornn.learn.systems import MODELS, parse_count
from orthornn.learn.tasks import TASKS
from orthornn.learn.training import read_config, read_metrics

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
    assert "trivial baseline" in out
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
    assert run("train", "--out=third", "--config=first/config.json") == 0

    def numbers(name):
        records = read_metrics(tmp_path / name / "metrics.jsonl")
        return [
            {key: value for key, value in record.items() if key not in ("seconds", "cpu_seconds")} for record in records
        ]

    assert numbers("first") == numbers("second")


def test_train_by_epochs(tmp_path, capsys):
    rows = (f"{number // 4},{number % 3},{'ab'[number // 4 % 2]}" for number in range(184))
    (tmp_path / "table.csv").write_text("sequence,x,kind\n" + "\n".join(rows) + "\n")
    words = [
        "table.csv",
        "--target",
        "kind",
        "--recipe",
        "none",
        "--no-stratified",
        "--epochs",
        "2",
        "--batch-size",
        "5",
    ]
    assert run("train", *words, "--hidden-size", "4", "--out", "run") == 0
    config = read_config(tmp_path / "run" / "config.json")
    assert (config.steps, config.validate_every) == (12, 6)
    assert not config.task.stratified
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


def test_demo_without_a_recurrent_matrix_to_show(capsys, tmp_path):
    """Where every orthogonal network has diverged, or none was named: no empty table, and no words of matplotlib's."""
    small = [
        "--T",
        "4",
        "--steps",
        "4",
        "--parameters",
        "500",
        "--models",
        "ornn,lstm",
        "--lr",
        "1e30",
        "--out",
        "demo",
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        assert run("demo", *small) == 2
    out = capsys.readouterr().out
    assert "ornn diverged: " in out
    assert "nn.RNN ms" not in out
    assert (tmp_path / "demo" / "demo.png").stat().st_size > 10_000


def test_doctor(capsys):
    assert run("doctor") == 0
    out = capsys.readouterr().out
    for word in ("torch", "threads", "kernels on cpu", "reference", "matplotlib", "compiled kernels"):
        assert word in out
    assert "form " not in out


@pytest.mark.parametrize(
    ("m", "T", "form", "cost", "trained"),
    [
        (32, 10, "compact_wy", "16896", "compact_wy"),
        (200, 10, "dense", "122400", "compact_wy"),
        (200, 10_000, "dense", "122400", "dense"),
        (None, 10, "dense", "65536", "dense"),
    ],
)
def test_doctor_says_what_a_network_would_get_and_why(capsys, m, T, form, cost, trained):
    sizes = [] if m is None else ["--m", str(m)]
    assert run("doctor", "--n", "256", *sizes, "--B", "3", "--T", str(T)) == 0
    lines = {line.split()[0]: line for line in capsys.readouterr().out.splitlines() if line.startswith("  ")}
    assert lines["form"].split()[1].rstrip(":") == form
    assert cost in lines["form"]
    assert "65536" in lines["form"]
    backend = choose("auto", torch.device("cpu"))
    assert lines["backend"].split()[1] == f"{backend}:"
    assert f"{T * 3 * (256 + (m if trained == 'compact_wy' else 0))} numbers" in lines["memory"]
    assert ("in" in lines) == (trained != form)  # "in training compact_wy"
    assert ("chain" in lines) == (backend == "cpp")


def test_doctor_without_compiled_kernels(capsys, monkeypatch):
    monkeypatch.setattr(extension, "native", None)
    monkeypatch.setattr(extension, "_REASON", "no compiler was found")
    assert run("doctor", "--n", "8") == 0
    out = capsys.readouterr().out
    assert "compiled kernels: none: no compiler was found" in out
    assert "backend     reference: cpp is not available (no compiler was found)" in out


def test_the_manual_names_every_command_task_and_model(capsys):
    assert run("--version") == 0
    assert capsys.readouterr().out == f"orthornn {__version__}\n"
    assert run() == run("--help") == run("help") == 0
    manual = capsys.readouterr().out
    assert all(f"  {command} " in manual for command in cli.COMMANDS)
    for command in ("train", "compare"):
        with pytest.raises(SystemExit) as stop:
            run(command, "--help")
        assert stop.value.code == 0
        text = capsys.readouterr().out
        assert all(name in text for name in [*TASKS, *MODELS])


@pytest.mark.sampled(11)
@pytest.mark.parametrize("task", TASKS.own)
@pytest.mark.parametrize("command", ["train", "compare"])
def test_every_option_is_explained(command, task, capsys):
    with pytest.raises(SystemExit) as stop:
        run(command, task, "--help")
    assert stop.value.code == 0
    text = capsys.readouterr().out
    for option in ("--parameters", "--lr", "--recurrent-lr", "--batch-size", "--seed", "--out", "--seconds"):
        assert option in text
    assert ("--no-stratified" in text) == (task == "classify")
    made = ("copying", "adding")
    assert ("--T " in text) == (task in made)
    assert ("--data " in text) == (task not in made)


NO_BATCH = (
    "adding",
    "--variant",
    "helfrich2018",
    "--batch-size",
    "0",
)  # the variant has epochs, whose length is divided
NO_BATCH_SAID = "Expected batch_size, --batch-size, to be an integer of at least 1, but got"
WRONG = {
    ("trian",): "Did you mean 'train'?",
    ("train", "copyin"): "Did you mean 'copying'?",
    ("train", "--T", "3"): "Expected the task first, but got --T",
    ("train", "--config", "none.json", "--out", "x"): "Expected to read none.json",
    ("train", "--config", "none.json"): "--config FILE --out FOLDER",
    ("train", "copying", "--model", "lstn"): "Did you mean 'lstm'?",
    ("train", "copying", "--parameters", "many"): "a number like 5000, 5k or 1.3m, but got 'many'",
    ("train", "copying", "--parameters", "5"): "but got 5. Raise parameters",
    ("train", "copying", "--parameters", "5k", "--hidden-size", "3"): "Pass one",
    ("train", "copying", "--epochs", "3"): "Pass --steps",
    ("train", "copying", "--T", "0"): "T to be an integer between 1 and 2147483648, but got 0",
    ("train", "copying", "--threads", "0"): "threads to be",
    ("train", "copying", "--threads", "100000"): "threads to be an integer between 1 and",
    ("train", "copying", "--out", ""): "a file or a folder as out, but got an empty name",
    ("train", "--resume", ""): "a file or a folder as resume, but got an empty name",
    ("compare", "copying", "--out="): "a file or a folder as out, but got an empty name",
    ("predict", "run", ""): "a file or a folder as data, but got an empty name",
    ("evaluate", ""): "a file or a folder as run, but got an empty name",
    ("certify", "", "--eps", "1"): "a file or a folder as run, but got an empty name",
    ("report", ""): "a file or a folder as runs, but got an empty name",
    ("report", "runs", ""): "a file or a folder as runs, but got an empty name",
    ("train", "adding", "--variant", "helfrich2018", "--epochs", "0"): "epochs to be above 0, but got 0",
    ("train", "adding", "--variant", "helfrich2018", "--epochs", "1e308"): "epochs to be a number between 0 and 1e+09",
    ("train", *NO_BATCH): NO_BATCH_SAID,
    ("train", *NO_BATCH, "--epochs", "1"): NO_BATCH_SAID,
    ("compare", *NO_BATCH, "--steps", "2"): NO_BATCH_SAID,
    ("sweep", "adding", "--variant", "helfrich2018", "--batch-size=-1", "--grid", "lr=1"): NO_BATCH_SAID,
    ("sweep", "copying", "--grid", "lr=0.1", "--threads", "2"): "Expected no --threads, since --cpus",
    ("sweep", "copying", "--grid", "lr=0.1", "--samples", "3"): "Expected --random with --samples",
    ("train", ""): "Expected a task or your own data, but got an empty name",
    ("train", "", "--target", "y", "--model", "auto"): "Expected a task or your own data, but got an empty name",
    ("compare", ""): "Expected a task or your own data, but got an empty name",
    ("sweep", "", "--target", "y"): "Expected a task or your own data, but got an empty name",
    ("inspect", ""): "but got ''",
    ("train", "copying", "--lr", "1e39"): "Expected lr to be 0 or between 1.18e-38 and 3.4e+38",
    ("train", "copying", "--lr", "1e-50"): "Expected lr to be 0 or between 1.18e-38 and 3.4e+38",
    ("train", "copying", "--lr", "0"): "Expected a learning rate above 0, but got lr=0",
    ("train", "copying", "--clip-value", "1e39"): "Expected clip_value to be positive, between 1.18e-38 and 3.4e+38",
    ("train", "copying", "--dropout", "1"): "Expected dropout to be below 1, but got 1",
    ("train", "copying", "--momentum", "0.9"): "Expected momentum only with the optimizer sgd",
    ("train", "copying", "--model", "LSTM"): "Did you mean 'lstm'?",
    ("train", "adding", "--variant", "helfrich2018", "--steps", "1", "--epochs", "1"): "Pass one",
    ("compare", "copying", "--models", "lstm,lstm"): "twice",
    ("compare", "copying", "--models", ""): "at least one",
    ("train", "data.csv"): "the file data.csv does not exist",
    ("train", "data.csv", "--target", "y"): "the file data.csv does not exist",
    ("train", "characters", "--data", "nowhere"): "no file or folder nowhere",
    ("doctor", "--m", "3"): "Expected --n with --m",
    ("doctor", "--n", "8", "--m", "9"): "m to be an integer between 1 and 8, but got 9",
    ("doctor", "--nope", "1"): "Expected options of `orthornn doctor`, but got --nope, 1",
}


@pytest.mark.sampled(30)
@pytest.mark.parametrize("words", WRONG)
def test_an_error_is_one_line_and_leaves_nothing_behind(words, capsys, tmp_path):
    assert run(*words) == 2
    error = capsys.readouterr().err
    assert error.startswith("orthornn: ")
    assert len(error.splitlines()) == 1
    assert WRONG[words] in error
    assert list(tmp_path.rglob("*.jsonl")) == []


@pytest.mark.parametrize(
    "words",
    ["train --model lstm", "train --model auto", "compare --models lstm,gru", "sweep --model lstm --grid lr=0.1,0.01"],
)
def test_a_network_of_both_directions_does_not_forecast(words, tmp_path, capsys):
    command, *more = words.split()
    table = tmp_path / "noise.csv"
    table.write_text("v\n" + "".join(f"{value}\n" for value in np.random.default_rng(0).standard_normal(60)))
    more += ["--bidirectional", "True", "--out", "out"]
    assert run(command, "forecast", "--data", str(table), "--target", "v", "--skipped", "2", *more) == 2
    error = capsys.readouterr().err.splitlines()[-1]
    assert error.startswith("orthornn: Expected bidirectional, --bidirectional, to be False for forecast")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("command", ["train", "compare", "sweep"])
def test_a_file_that_is_not_there_is_no_misspelt_task(command, capsys):
    for name in ("plain.xlsx", "sounds/words"):
        assert run(command, name, "--target", "x") == 2
        assert f"or a folder of sounds, but '{name}' does not exist. Correct its name" in capsys.readouterr().err


def test_a_file_of_another_kind_is_no_misspelt_task(tmp_path, capsys):
    (tmp_path / "copyin").write_text("x")
    (tmp_path / "folder").mkdir()
    for name in ("copyin", "folder"):
        for command in ("train", "compare", "sweep"):
            assert run(command, name, "--target", "x") == 2
            assert f"or a folder of sounds, but got '{name}', which is none of them" in capsys.readouterr().err


def test_the_folder_of_the_command_may_be_named(tmp_path):
    assert run("train", "copying", *TINY, "--out", ".") == 0
    assert (tmp_path / "config.json").exists()


def test_a_damaged_result_is_one_line(capsys, tmp_path):
    assert run("train", "copying", *TINY, "--out", str(tmp_path / "run")) == 0
    (tmp_path / "run" / "result.json").write_text("{")
    assert run("report", str(tmp_path), "--out", str(tmp_path / "report.html")) == 2
    assert "result.json to be JSON" in capsys.readouterr().err
    assert run("train", "--resume", str(tmp_path / "run")) == 0
    assert run("report", str(tmp_path), "--out", str(tmp_path / "report.html")) == 0


def test_a_traceback_is_shown_when_asked_for():
    with pytest.raises(OrthornnError):
        run("train", "copyin", "--traceback")


def test_unknown_options_suggest_the_nearest(capsys):
    assert run("train", "copying", "--stepz", "3") == 2
    assert "got --stepz, 3. Did you mean --steps? `orthornn train copying --help`" in capsys.readouterr().err


def test_python_m_orthornn(tmp_path):
    done = python("-m", "orthornn", "trian")
    assert done.returncode == 2
    assert done.stderr.startswith("orthornn: Expected command to be one of")
    assert "Traceback" not in done.stderr


def test_import_orthornn_costs_torch_alone():
    code = "import orthornn, sys, json; print(json.dumps(list(sys.modules)))"
    done = python("-c", code)
    assert done.returncode == 0, done.stderr
    loaded = set(json.loads(done.stdout))
    extras = {"matplotlib", "rich", "scipy", "pooch", "pyarrow", "soundfile", "pystoi", "pesq"}
    assert not loaded & {*extras, "orthornn.learn"}


def test_the_tasks_cost_no_extra_until_one_needs_it():
    done = python(
        "-c", "from orthornn.learn.training import Run; import sys, json; print(json.dumps(list(sys.modules)))"
    )
    assert done.returncode == 0, done.stderr
    loaded = set(json.loads(done.stdout))
    assert "orthornn.learn.tasks.forecast" in loaded
    assert not loaded & {"matplotlib", "rich", "scipy", "pooch", "pyarrow", "soundfile", "pystoi", "pesq"}


@pytest.mark.parametrize(
    ("text", "count"),
    [("5000", 5000), ("5k", 5000), ("16.4K", 16400), ("1.3m", 1_300_000), (" 7 ", 7)],
)
def test_counts(text, count):
    assert parse_count(text) == count


@pytest.mark.parametrize("text", ["", "k", "-5", "5kk", "1e3", "5g"])
def test_wrong_counts(text):
    with pytest.raises(ArgumentError, match="5k"):
        parse_count(text)


def test_compare_all_trains_every_model(tmp_path, capsys):
    at = TINY.index("--steps")
    tiny = [*TINY[:at], "--steps", "2", *TINY[at + 2 :]]
    assert run("compare", "copying", *tiny, "--models", "all", "--parameters", "400", "--out", "all") == 0
    table = (tmp_path / "all" / "table.txt").read_text()
    for heading in ("parameters", "us/step", "test loss", "||W'W-I||"):
        assert heading in table
    for name in MODELS:
        assert any(line.split()[:1] == [name] for line in table.splitlines())
    assert table.strip() in capsys.readouterr().out


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    "options",
    [
        ("--model", "eurnn", "--layers", "fft"),
        ("--model", "goru", "--layers", "3"),
        ("--model", "dtriv", "--rebase-every", "2"),
        ("--model", "lstm-peephole", "--forget-bias", "2"),
    ],
)
def test_options_of_the_systems(tmp_path, options):
    assert run("train", "copying", *TINY, "--hidden-size", "6", *options, "--out", "run") == 0
    model = read_config(tmp_path / "run" / "config.json").model
    name = options[2].removeprefix("--").replace("-", "_")
    assert str(getattr(model, name)).startswith(options[3])


def test_what_each_column_is_for_is_printed_before_training(tmp_path, capsys):
    lines = [f"{row // 6},{row / 7},{row},w{row},{'ab'[row // 6 % 2]}" for row in range(120)]
    path = tmp_path / "data.csv"
    path.write_text("\n".join(["sequence,x,Unnamed: 0,word,kind", *lines]) + "\n")
    words = [
        "train",
        str(path),
        "--target",
        "kind",
        "--steps",
        "2",
        "--hidden-size",
        "4",
        "--out",
        str(tmp_path / "run"),
    ]
    assert cli.main(words) == 0
    said = capsys.readouterr()
    before, table = said.out.split("classify: sequences of 6 steps")
    assert f"{path}: 120 rows, 20 sequences by the column sequence of 6 steps, in order as in the file" in before
    assert "inputs: x   target: kind" in before
    assert "sequences: 14 for train, 3 for validation, 3 for test" in before
    assert "validation accuracy" in table
    assert "does not see Unnamed: 0 (numbers the rows), word (text)" in said.err
    path.write_text(path.read_text().replace("1.0,7,", "N/A,7,"))
    assert cli.main([*words[:-1], str(tmp_path / "other")]) == 2
    assert "column 'x', but got nan in row 8, line 9 of the file, as in 1 row(s) in all" in capsys.readouterr().err


def test_an_error_that_nobody_foresaw_is_one_line_too(capsys, monkeypatch):
    from orthornn.cli import doctor

    def fail(words):
        raise KeyError("this\nand \x1b[31mthat")

    monkeypatch.setattr(doctor, "main", fail)
    assert run("doctor") == 1
    error = capsys.readouterr().err
    assert len(error.splitlines()) == 1
    assert "\x1b" not in error
    assert re.search(
        r"orthornn: doctor: unexpected KeyError: .* \(cli/test_cli.py, line \d+\)\. --traceback shows", error
    )
    with pytest.raises(KeyError):
        run("doctor", "--traceback")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
@pytest.mark.parametrize("buffered", [True, False])
@pytest.mark.parametrize("command", ["doctor", "train", "--help", "--version"])
def test_output_that_is_not_taken_is_an_error_of_one_line(command, buffered, monkeypatch, capsys):
    words = ["copying", *TINY, "--out", "run"] if command == "train" else []
    with contextlib.ExitStack() as stack:
        raw = stack.enter_context(open("/dev/full", "wb", buffering=0))
        full = io.TextIOWrapper(io.BufferedWriter(raw) if buffered else raw, write_through=not buffered)
        monkeypatch.setattr(sys, "stdout", full)
        assert run(command, *words) == 2
        with contextlib.suppress(OSError):
            full.detach()
    assert capsys.readouterr().err == (
        "orthornn: Expected the output to be taken, but got: No space left on device. Direct it to a place that has room; "
        "files that were written are complete.\n"
    )


@pytest.mark.skipif(os.name == "nt", reason="Windows has the error, and not the signal")
def test_a_reader_that_is_gone_ends_the_command_silently(monkeypatch, capsys):
    reader, writer = os.pipe()
    os.close(reader)
    with open(writer, "w") as pipe:
        monkeypatch.setattr(sys, "stdout", pipe)
        assert run("doctor") == 141
    assert capsys.readouterr().err == ""


def test_a_command_runs_without_output(monkeypatch, tmp_path):
    """As a process that was begun with its output closed."""
    monkeypatch.setattr(sys, "stdout", None)
    assert run("train", "copying", *TINY, "--out", "run") == 0
    sys.stdout.close()
    assert (tmp_path / "run" / "curves.png").exists()


def test_characters_that_the_output_lacks_are_escaped(monkeypatch):
    taken = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(taken, "ascii"))
    assert run("compare", "copying", *TINY, "--models", "ornn", "--seeds", "2", "--out", "compared") == 0
    sys.stdout.flush()
    assert b" \\xb1 " in taken.getvalue()
    with open("compared/table.txt", encoding="utf-8") as file:
        assert " ± " in file.read()


def test_an_instruction_set_that_is_not_there(monkeypatch, capsys):
    if extension.missing():
        pytest.skip("no compiled kernels")
    monkeypatch.setenv("ORTHORNN_ISA", "mmx")
    assert run("doctor") == 2
    assert capsys.readouterr().err == (
        "orthornn: Expected ORTHORNN_ISA to be portable, avx2 or avx512, but got 'mmx'. "
        "Unset it to take the best that there is.\n"
    )


@pytest.mark.sampled(1)
@pytest.mark.parametrize("package", ["safetensors", "matplotlib"])
def test_without_the_extra_one_sentence_says_which(package):
    block = f"import sys; sys.modules['{package}'] = None; from orthornn.cli import main; "
    block += "assert main(['doctor']) == 0; sys.exit(main(sys.argv[1:]))"
    found = python("-c", block, "train", "copying", *TINY, "--out", "run")
    assert found.returncode == 2
    assert package in found.stdout
    expected = f"Expected the package {package} for orthornn train, but it is not installed. Install the extra cli: "
    assert expected + "pip install '.[cli]'" in found.stderr
    assert len(found.stderr.splitlines()) == 1
    assert not os.path.exists("run")


def test_epochs_may_be_raised(tmp_path):
    words = [
        "--variant",
        "helfrich2018",
        "--train-size",
        "40",
        "--T",
        "4",
        "--validation-size",
        "10",
        "--test-size",
        "10",
    ]
    options = ["--batch-size", "10", "--hidden-size", "4"]
    assert run("train", "adding", *words, *options, "--epochs", "2", "--out", "run") == 0
    assert run("train", "--resume", "run", "--epochs", "3") == 0
    assert read_config(tmp_path / "run" / "config.json").steps == 12


def test_epochs_and_steps_are_one_too_many(capsys):
    run("train", "copying", *TINY, "--out", "run")
    assert run("train", "--resume", "run", "--epochs", "3", "--steps", "3") == 2
    assert run("train", "--resume", "run", "--epochs", "3") == 2
    error = capsys.readouterr().err
    assert "Expected --steps or --epochs, but got both, 3 and 3" in error
    assert "Expected --steps, as copying has no epochs, but got --epochs 3. Pass --steps." in error


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("command", "model", "words", "variable", "expected"),
    [
        ("train", "ornn", [], None, 3),
        ("train", "lstm", [], None, 1),
        ("train", "lstm", [], "2", 4),
        ("train", "lstm", ["--threads", "2"], None, 2),
        ("train", "ornn", ["--threads", "5"], None, 5),
        ("compare", "ornn", [], None, 3),
        ("compare", "ornn,lstm", [], None, 1),
        ("compare", "ornn,lstm", ["--threads", "2"], None, 2),
    ],
)
def test_threads_are_those_asked_for_or_those_of_use(command, model, words, variable, expected, tmp_path, monkeypatch):
    """On a machine of many cores of which this process may use three, torch having begun with four."""
    for module in ("orthornn.cores", "orthornn.learn.training.threads"):
        monkeypatch.setattr(f"{module}.usable_cores", lambda: 3)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    if variable is not None:
        monkeypatch.setenv("OMP_NUM_THREADS", variable)
    before = torch.get_num_threads()
    torch.set_num_threads(4)
    try:
        named = "--model" if command == "train" else "--models"
        assert run(command, "copying", *TINY, named, model, *words, "--out", "run") == 0
        assert torch.get_num_threads() == 4
    finally:
        torch.set_num_threads(before)
    folder = tmp_path / "run" if command == "train" else tmp_path / "run" / model.split(",")[0]
    assert json.loads((folder / "environment.json").read_text())["threads"] == expected


def test_threads_of_a_strangers_run_are_not_believed(tmp_path, capsys):
    run("train", "copying", *TINY, "--out", "run")
    path = tmp_path / "run" / "environment.json"
    before = torch.get_num_threads()
    found = json.loads(path.read_text())
    del found["sha256"]  # what a stranger changes fits its sum, or has none
    path.write_text(json.dumps({**found, "threads": 10_000}))
    assert run("train", "--resume", "run", "--steps", "13") == 0
    assert torch.get_num_threads() == before
    assert "the number of threads is" in capsys.readouterr().err


def test_a_figure_replaces_a_link_and_does_not_follow_it(tmp_path):
    (tmp_path / "mine").write_text("mine")
    run("train", "copying", *TINY, "--out", "run")
    (tmp_path / "run" / "curves.png").unlink()
    (tmp_path / "run" / "curves.png").symlink_to(tmp_path / "mine")
    assert run("train", "--resume", "run", "--steps", "14") == 0
    assert (tmp_path / "mine").read_text() == "mine"
    assert (tmp_path / "run" / "curves.png").read_bytes()[:4] == b"\x89PNG"


def test_a_report_leaves_out_a_run_that_cannot_be_read(tmp_path, capsys):
    for name in ("good", "bad"):
        run("train", "copying", *TINY, "--out", f"runs/{name}")
    (tmp_path / "runs" / "bad" / "config.json").write_text('{"model": {"name": "goru", "hidden_size": 2147483648}}')
    assert run("report", "runs", "--out", "report.html") == 0
    assert "a run is left out: " in capsys.readouterr().err
    assert "good" in (tmp_path / "report.html").read_text()


def test_a_report_says_which_run_has_lost_its_records(tmp_path, capsys):
    for name in ("good", "bad"):
        run("train", "copying", *TINY, "--out", f"runs/{name}")
    (tmp_path / "runs" / "bad" / "metrics.jsonl").unlink()
    assert run("report", "runs", "--out", "report.html") == 0
    assert "a run is left out: runs/bad has no metrics.jsonl." in capsys.readouterr().err
    assert run("report", "runs/bad", "--out", "other.html") == 2
    assert (
        "Expected a readable run, but got 1 that cannot be read. runs/bad has no metrics.jsonl."
        in capsys.readouterr().err
    )


@pytest.mark.parametrize(
    "words",
    [("--resume=none",), ("--steps", "3", "--resume", "none"), ("--steps=3", "--resume=none"), ("--resume", "none")],
    ids=" ".join,
)
def test_resume_may_be_written_as_any_option(words, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert run("train", *words) == 2
    assert "none holds no run" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words", ["--resume --help", "--resume -h", "-h --resume", "--resume=--help", "--resume no/run -h"]
)
def test_resume_has_a_help(words, capsys):
    with pytest.raises(SystemExit) as stop:
        run("train", *words.split())
    shown = capsys.readouterr()
    assert stop.value.code == 0
    assert "Resumes a run from its newest intact checkpoint" in shown.out
    assert "--seconds" in shown.out
    assert not shown.err


@pytest.mark.parametrize(
    ("words", "got"), [("--resume", "none"), ("--resume --steps 5", "--steps"), ("--steps 5 --resume", "none")]
)
def test_resume_names_the_run_that_it_needs(words, got, capsys):
    assert run("train", *words.split()) == 2
    assert f"Expected a run directory after --resume, but got {got}. Name it" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (
            OSError(errno.ENOSPC, "No space left"),
            "Expected room to work, but got: No space left. Make room on the disk.",
        ),
        (
            ConnectionResetError(errno.ECONNRESET, "Connection reset"),
            "but got: Connection reset. Add --traceback to see",
        ),
    ],
)
def test_a_disk_is_blamed_only_where_it_is_full(error, told, monkeypatch, capsys):
    def refuse(words):
        raise error

    monkeypatch.setattr("orthornn.cli.report.main", refuse)
    assert cli.main(["report", "runs"]) == 2
    assert told in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("page.html", "page.html"),
        (".page.html.PID", "page.html"),  # a file that is being written
        ("page.v1.2024.html", "page.v1.2024.html"),
        ("page.v1.PID", "page.v1.PID"),
        (".page.0", ".page.0"),
    ],
)
def test_a_place_that_cannot_be_written_is_named_with_what_to_do(name, shown, tmp_path, monkeypatch, capsys):
    name, shown = (words.replace("PID", str(os.getpid())) for words in (name, shown))

    def refuse(words):
        raise PermissionError(13, "Permission denied", str(tmp_path / name))

    monkeypatch.setattr("orthornn.cli.report.main", refuse)
    assert cli.main(["report", "runs"]) == 2
    assert capsys.readouterr().err == (
        f"orthornn: Expected to use {tmp_path / shown}, but got: Permission denied. Correct the name, make room, allow "
        "reading and writing there, or choose another place.\n"
    )
