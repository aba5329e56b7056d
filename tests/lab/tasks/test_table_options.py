"""The options of a task on a table: how names are written."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from orthornn.errors import ArgumentError, DataError
from orthornn.lab.cli import main
from orthornn.lab.from_python import _words
from orthornn.lab.tasks import Classify, Regress
from orthornn.lab.tasks.columns import read_columns
from orthornn.lab.tasks.table_options import entries_in, entry_of, modes_of, names_in

WEIGHT, KIND, PIPE = "Weight, kg", "Kind, as told", '5" pipe'


@pytest.fixture
def path(tmp_path):
    """Sequences of three steps; columns whose names have commas and quotes."""
    lines = [f'id,"{WEIGHT}","{KIND}",x,"5"" pipe"']
    for sequence in range(20):
        lines += [
            f"s{sequence},{sequence + 0.5},{'ab'[sequence % 2]},{sequence % 2 + step / 10},{step}" for step in range(3)
        ]
    (tmp_path / "d.csv").write_text("\n".join(lines) + "\n")
    return str(tmp_path / "d.csv")


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("a,b", ["a", "b"]),
        (" a , b,", ["a", "b"]),
        ("", []),
        ('"Weight, kg"', [WEIGHT]),
        ('x, "Weight, kg",y', ["x", WEIGHT, "y"]),
        ('5" pipe,x', [PIPE, "x"]),
        ('"""quoted""",x', ['"quoted"', "x"]),
    ],
)
def test_names_are_separated_by_commas_and_those_with_one_are_in_quotes(text, names):
    assert names_in(text) == names
    assert names_in(",".join(map(entry_of, names))) == names


@pytest.mark.parametrize("text", ['"a, b', '"a"b,c', 'x,"a, b'])
def test_quotes_that_enclose_no_whole_name_are_an_error(text):
    with pytest.raises(ArgumentError, match="in double quotes, but got"):
        entries_in(text)


def test_a_column_with_a_comma_can_have_every_part(path):
    task = Regress(data=path, target=entry_of(WEIGHT), sequence="id", inputs=f"x,{entry_of(PIPE)}")
    assert task.target_columns == [WEIGHT]
    assert task.input_columns == ["x", PIPE]
    assert WEIGHT in " ".join(task.told())
    task = Classify(data=path, target=entry_of(KIND), sequence="id", inputs=f"x,{entry_of(WEIGHT)}")
    assert task.classes == ["a", "b"]
    assert task.input_columns == ["x", WEIGHT]
    assert modes_of(f"hold,{entry_of(WEIGHT + '=skip')}") == {"": "hold", WEIGHT: "skip"}


def test_without_quotes_the_error_tells_how_they_are_written(path):
    assert WEIGHT in read_columns(Path(path)).columns
    with pytest.raises(
        DataError,
        match=r"Expected a column 'Weight' for target in .*, but got 'Weight, kg'.*double quotes, '\"Weight, kg\"'",
    ):
        Regress(data=path, target=WEIGHT, sequence="id").told()


def test_the_command_line_and_python_take_such_a_target(path, capsys):
    for target, task in ((WEIGHT, "regress"), (KIND, "classify")):
        assert main(["inspect", path, "--target", entry_of(target), "--sequence", "id"]) == 0
        assert f"so the task is {task}" in capsys.readouterr().out
    assert main(["inspect", path, "--target", WEIGHT, "--sequence", "id"]) == 2
    assert "in double quotes" in capsys.readouterr().err
    assert _words({"target": [WEIGHT, "x"], "quantiles": np.array([0.1, 0.9])}) == [
        "--target",
        f'"{WEIGHT}",x',
        "--quantiles",
        "0.1,0.9",
    ]


def test_a_target_that_is_given_twice_is_an_error(path, capsys):
    for command in ("inspect", "train"):
        assert main([command, path, "--target", "x", "--target=y"]) == 2
        assert "Expected --target once, but got it twice: x and y. Give it once." in capsys.readouterr().err
