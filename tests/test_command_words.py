"""Options that are given twice."""

from __future__ import annotations

import pytest

from orthornn import cli
from orthornn._command_words import split_words
from orthornn.cli import COMMANDS
from orthornn.errors import ArgumentError


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("copying --lr 0.1 --lr 0.2", "Expected --lr once, but got it twice: 0.1 and 0.2. Give it once."),
        ("copying --lr=0.1 --seed 1 --lr 0.2", "Expected --lr once, but got it twice: 0.1 and 0.2. Give it once."),
        ("copying --lr 1 --lr 2 --lr 2", "Expected --lr once, but got it 3 times: 1, 2 and 2. Give it once."),
        (
            "copying --recurrent-lr 1 --recurrent_lr=2",
            "Expected --recurrent-lr once, but got it twice: 1 and 2. Give it once.",
        ),
        ("copying --lr -1 --lr -2", "Expected --lr once, but got it twice: -1 and -2. Give it once."),
        ("copying --lr 1 --lr", "Expected --lr once, but got it twice. Give it once."),
        ("runs --force --force", "Expected --force once, but got it twice. Give it once."),
        ("runs --force --no-force", "Expected --force once, but got it twice: --force and --no-force. Give it once."),
        ("copying --lr 0.1 --lr 0.1", "Expected --lr once, but got it twice: 0.1 and 0.1. Give it once."),
    ],
)
def test_an_option_twice_in_any_spelling(words, message):
    with pytest.raises(ArgumentError) as raised:
        split_words(words.split(), lambda typed: 1)
    assert str(raised.value) == message


@pytest.mark.parametrize(
    "words",
    [
        ["copying", "--lr", "0.1", "--recurrent-lr", "0.1"],
        ["--prompt", "-- and -- again"],
        ["--target=--lr", "--lr=1"],  # a column that is called like an option
        ["--na", "-", "--separator", "-"],
        ["--T", "3", "--t", "4"],
        ["--lr", "1", "--", "--lr", "2"],
        ["runs", "runs"],
        [],
    ],
)
def test_what_is_no_repetition(words):
    split_words(words, lambda typed: 1)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_refuses_an_option_twice_before_it_begins(command, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert cli.main([command, "copying", "--out", "a", "--lr", "1", "--out=b"]) == 2
    shown = capsys.readouterr()
    assert shown.err == "orthornn: Expected --out once, but got it twice: a and b. Give it once.\n"
    assert shown.out == ""
    assert not [*tmp_path.iterdir()]


def test_the_target_twice(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "made.csv").write_text("id,x,a,b\n" + "".join(f"{row // 2},{row},0,1\n" for row in range(8)))
    for command in ("train", "compare", "inspect", "sweep"):
        assert cli.main([command, "made.csv", "--target", "a", "--target", "b"]) == 2
        assert "Expected --target once, but got it twice: a and b." in capsys.readouterr().err
    assert cli.main(["train", "made.csv", "--target", "a", "--data", "other.csv"]) == 2
    assert "Expected the data once, but got made.csv and --data other.csv. Leave --data out" in capsys.readouterr().err


def test_a_recipe_and_the_same_option_are_no_repetition(capsys):
    """The option that is typed takes the place of the recipe's; typed twice it is an error all the same."""
    words = ["characters", "--recipe", "blocks", "--lr", "0.1", "--data", "nowhere", "--steps", "1"]
    cli.main(["train", *words])
    assert "once" not in capsys.readouterr().err
    assert cli.main(["train", *words, "--lr", "0.2"]) == 2
    assert "Expected --lr once, but got it twice: 0.1 and 0.2." in capsys.readouterr().err


def test_options_and_other_words():
    words = ["copying", "--names", "a", "b", "c", "--lr=0.5", "--force", "--", "--lr"]
    options, rest = split_words(words, lambda typed: {"--names": 2, "--force": 0}.get(typed, 1))
    assert options == [("--names", ["a", "b"], False), ("--lr", ["0.5"], True), ("--force", [], False)]
    assert rest == ["copying", "c", "--lr"]


def test_all_values_of_an_option_are_named():
    with pytest.raises(ArgumentError, match="got it twice: 0 1 and 0 2"):
        split_words(["--input-range", "0", "1", "--input-range", "0", "2"], lambda typed: 2)
