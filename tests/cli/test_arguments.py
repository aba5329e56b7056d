"""Words become values, what is wrong with them is one line, and help is a paragraph with one default and without None."""

from __future__ import annotations

import dataclasses
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import pytest

from orthornn import cli
from orthornn.cli.arguments import parse, read_options
from orthornn.errors import ArgumentError
from orthornn.learn.fields import Option
from orthornn.learn.options import Options
from orthornn.learn.recipes import with_recipe
from orthornn.learn.tasks import TASKS


@dataclass(frozen=True)
class Made:
    """Options."""

    run: Path = field(metadata={"positional": "RUN"})
    """A run."""
    data: Path | None = field(default=None, metadata={"positional": "[DATA]"})
    """A file."""
    depth: int | None = None
    """How deep, over
    several lines of
    the source. Default: 2."""
    rate: float = 0.5
    """A rate, over two
    lines."""
    name: str = ""
    """A name."""
    seconds: float | None = 60.0
    """Seconds."""
    layers: int | Literal["fft"] | None = None
    """Layers."""
    limits: tuple[float, float] | None = None
    """Two numbers."""
    force: bool = False
    """A switch."""


@pytest.fixture
def wide(monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")


def text_of(capsys, run):
    with pytest.raises(SystemExit) as stop:
        run()
    assert stop.value.code == 0
    return capsys.readouterr().out


def test_a_paragraph_has_no_line_breaks_and_one_default(capsys, wide):
    text = text_of(capsys, lambda: read_options(Made, "it", "It.", ["run", "--help"]))
    assert "How deep, over several lines of the source. Default: 2.\n" in text
    assert "A rate, over two lines. (default: 0.5)\n" in text
    assert "A run. (required)\n" in text
    assert "--depth INT " in text
    assert "None" not in text
    assert "(default: '')" not in text
    assert "--seconds FLOAT " in text
    assert "--layers INT|{fft} " in text
    assert "--limits FLOAT FLOAT " in text
    assert "--force, --no-force " in text
    assert "  [DATA] " in text
    assert text.startswith("usage: it RUN [DATA] [options]\n")


@pytest.mark.parametrize("columns", [10, 60, 77, 200])
def test_a_help_is_no_wider_than_the_terminal(columns, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(columns))
    text = text_of(capsys, lambda: read_options(Made, "it", "It is. " * 40, ["--help"]))
    assert max(map(len, text.splitlines())) <= max(60, columns)


@pytest.mark.parametrize(
    ("words", "values"),
    [
        ("r --depth 3 --name x", {"depth": 3, "name": "x"}),
        ("--depth=3 r d --no-force", {"depth": 3, "data": Path("d"), "force": False}),
        ("r --force d", {"data": Path("d"), "force": True}),
        ("r --depth None --seconds None", {"depth": None, "seconds": None}),
        ("r --limits -1 -2e-3 --layers fft", {"limits": (-1.0, -0.002), "layers": "fft"}),
        ("r --layers 3 --name -x", {"layers": 3, "name": "-x"}),
        ("--name=--depth -- r", {"name": "--depth"}),
        ("--name - -- r --depth", {"name": "-", "data": Path("--depth")}),
    ],
)
def test_words_are_values_of_the_types_of_fields(words, values):
    assert read_options(Made, "it", "It.", words.split()) == Made(run=Path("r"), **values)


def test_an_option_may_be_written_with_underscores():
    known = {"a_b": Option("a_b", int, default=0), "c_d": Option("c_d", bool, default=True)}
    assert parse(["--a_b", "3", "--no_c_d"], known, "it") == parse(["--a-b=3", "--no-c-d"], known, "it")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("", "Expected RUN, but got none."),
        ("r d e f", "Expected options of `it`, but got e, f."),
        ("r --run x", "Expected options of `it`, but got --run, x."),
        ("r --limits 1", "Expected 2 values after --limits, but got 1."),
        ("r --limits", "Expected 2 values after --limits, but got none."),
        ("r --limits 1 x", "Expected a number as --limits, but got x."),
        ("r --force=yes", "Expected options of `it`, but got --force, yes. Did you mean --force?"),
        ("r --no-depth", "Expected options of `it`, but got --no-depth. Did you mean --depth?"),
        ("r --layers fast", "Expected a whole number or fft as --layers, but got fast."),
        ("r --depth --force", "Expected a value after --depth, but got none."),
    ],
)
def test_what_is_wrong_is_named_with_what_to_do(words, said):
    with pytest.raises(ArgumentError) as caught:
        read_options(Made, "it", "It.", words.split())
    assert str(caught.value) == f"{said} `it --help` explains the options."


@pytest.mark.sampled(13)
@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--T x", "Expected a whole number as --T, but got x."),
        ("--steps 2.5", "Expected a whole number as --steps, but got 2.5."),
        ("--clip-norm=abc", "Expected a number as --clip-norm, but got abc."),
        ("--bidirectional yes", "Expected True or False as --bidirectional, but got yes."),
        (
            "--optimizer foo",
            "Expected adam, adamw, rmsprop, rmsprop-tensorflow, rmsprop-lasagne or sgd as --optimizer, but got foo.",
        ),
        ("--optimizer", "Expected a value after --optimizer, but got none."),
        ("--lrr 3", "Expected options of `orthornn train copying`, but got --lrr, 3. Did you mean --lr?"),
        ("--lr 1 2", "Expected options of `orthornn train copying`, but got 2."),
        ("--no-decay", "Did you mean --decay?"),
    ],
)
@pytest.mark.parametrize("columns", ["40", "200"])
def test_a_wrong_option_is_one_line(words, said, columns, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", columns)
    assert cli.main(["train", "copying", *words.split()]) == 2
    shown = capsys.readouterr().err
    assert said in shown
    assert shown.endswith(" `orthornn train copying --help` explains the options.\n")
    assert shown.count("\n") == 1


@pytest.mark.parametrize("command", [name for name in cli.COMMANDS if name not in ("inspect", "figures", "doctor")])
def test_no_command_shows_none_as_a_type_or_a_default(command, capsys, wide):
    words = [command, "copying", "--help"] if command in ("train", "compare", "sweep") else [command, "--help"]
    text = text_of(capsys, lambda: cli.main(words))
    assert not re.findall(r"\{None.*|\(default: (?:None|''|)\)", text)
    assert re.search(r"--[\w-]+ (?:PATH|INT|STR)", text)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("task", TASKS.own)
def test_the_help_of_a_task_explains_each_option_that_has_an_effect(task, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")  # one column
    text = text_of(capsys, lambda: cli.main(["train", task, "--help"]))
    lines = [line.strip("│| ") for line in text.split("task options")[1].split("model options")[0].splitlines()]
    part = " ".join(lines)
    names = {field.name: field.name.replace("_", "-") for field in dataclasses.fields(TASKS[task])}
    unused = {field.name for field in dataclasses.fields(TASKS[task]) if field.metadata.get("without_effect")}
    options = {option for name, option in names.items() if name not in unused}
    found = {
        line.split()[0].rstrip(",").removeprefix("--") for line in lines if re.match(r"--[A-Za-z][\w-]*[ ,]", line)
    }
    assert found == options
    for name, option in names.items():  # as it is typed, not as Python writes it
        assert name == option or not re.search(rf"\b{name}\b", part)


@pytest.mark.parametrize("task", ["regress", "forecast"])
def test_an_option_without_effect_is_refused(task, capsys):
    words = ["train", task, "--data", "data.csv", "--target", "y", "--recipe", "none", "--no-stratified"]
    assert cli.main(words) == 2
    assert "--no-stratified" in capsys.readouterr().err


@pytest.mark.parametrize("task", ["classify", "regress", "forecast", "copying"])
def test_the_help_of_a_task_names_the_values_that_a_training_without_options_has(task, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "10000")  # one line of help per option
    text = text_of(capsys, lambda: cli.main(["train", task, "--help"]))
    lines = {part.split()[0]: part for part in re.split(r"\n(?=  --)", text)}
    options = with_recipe(Options(TASKS[task], {}))
    assert bool(options.chosen) == (task != "copying")
    for name in {"model", "lr", "optimizer", "warmup", "schedule", *options.chosen}:
        written = options.chosen.get(name, options[name])
        assert re.search(rf"\(default: {re.escape(str(written))}[;)]", lines[f"--{name.replace('_', '-')}"]), name
