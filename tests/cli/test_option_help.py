"""The help of options is a paragraph with one default, and shows no type None."""

from __future__ import annotations

import dataclasses
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import pytest

from orthornn import cli
from orthornn.cli.arguments import read_options
from orthornn.learn.tasks import TASKS

tyro = pytest.importorskip("tyro")
option_help = pytest.importorskip("orthornn.cli.option_help")


@dataclass(frozen=True)
class Inner:
    """Inner ones."""

    depth: int | None = None
    """How deep, over
    several lines of
    the source. Default: 2."""


@dataclass(frozen=True)
class Options:
    """Outer ones."""

    inner_options: Inner = dataclasses.field(default_factory=Inner)
    """A group."""
    rate: float = 0.5
    """A rate, over two
    lines."""
    name: str = ""
    """A name."""
    seconds: float | None = 60.0
    """Seconds."""
    data: Annotated[Path | None, tyro.conf.Positional, tyro.conf.arg(metavar="[DATA]")] = None
    """A file."""


@pytest.fixture
def wide(monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")


def text_of(capsys, run):
    with pytest.raises(SystemExit) as stop:
        run()
    assert stop.value.code == 0
    return capsys.readouterr().out


def test_a_paragraph_has_no_line_breaks_and_one_default(capsys, wide):
    text = text_of(capsys, lambda: read_options(Options, "it", "It.", ["--help"]))
    assert "How deep, over several lines of the source. Default: 2. " in text
    assert "A rate, over two lines. (default: 0.5)" in text
    assert "inner options" in text
    assert "--depth INT " in text
    assert "None" not in text
    assert "(default: '')" not in text
    assert "--seconds FLOAT" in text
    assert "[DATA] " in text


def test_what_is_read_is_the_same(capsys):
    found = read_options(Options, "it", "It.", ["--depth", "3", "--name", "x"])
    assert found == Options(inner_options=Inner(3), name="x")
    assert read_options(Options, "it", "It.", ["--depth", "None"]).inner_options == Inner(None)
    assert type(found.inner_options) is Inner


@pytest.mark.parametrize(
    ("kind", "shown"),
    [
        (int | None, "INT"),
        (Path | None, "PATH"),
        (bool | None, "{True,False}"),
        (Literal["a", "b"] | None, "{a,b}"),
        (int | Literal["fft"] | None, "INT|{fft}"),
        (tuple[float, float] | None, "FLOAT FLOAT"),
        (Inner | None, None),
        (int, None),
    ],
)
def test_types_are_shown_without_none(kind, shown):
    assert option_help.metavar(kind) == shown


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
    options = {option for name, option in names.items() if name not in TASKS[task].without_effect}
    found = {line.split()[0].rstrip(",").removeprefix("--") for line in lines if re.match("--[A-Za-z]", line)}
    assert found == options
    for name, option in names.items():  # as it is typed, not as Python writes it
        assert name == option or not re.search(rf"\b{name}\b", part)


@pytest.mark.parametrize("task", ["regress", "forecast"])
def test_an_option_without_effect_is_refused(task, capsys):
    words = ["train", task, "--data", "data.csv", "--target", "y", "--recipe", "none", "--no-stratified"]
    assert cli.main(words) == 2
    assert "--no-stratified" in capsys.readouterr().err
