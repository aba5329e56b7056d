"""What tyro says of wrong options, in one line."""

from __future__ import annotations

import pytest

from orthornn.cli import main
from orthornn.cli.complaints import one_line


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
    assert main(["train", "copying", *words.split()]) == 2
    shown = capsys.readouterr().err
    assert said in shown
    assert shown.endswith(" `orthornn train copying --help` explains the options.\n")
    assert shown.count("\n") == 1


def test_what_tyro_has_not_said_so_far_is_shown_as_it_is():
    boxed = "╭─ New ─╮\n│ Something │\n│ else. │\n│ ───── │\n│ More. │\n╰──╯"
    said = "Expected options of `orthornn x`, but got: Something else. `orthornn x --help` explains the options."
    assert one_line(boxed, "orthornn x") == said
    assert one_line("New\n ---- \n Something\n else.\n ---- \n More.", "orthornn x") == said
    assert one_line("usage: orthornn x [-h]\n" + boxed, "orthornn x") is None
    assert one_line("", "orthornn x") is None
