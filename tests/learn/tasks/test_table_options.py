"""The options of a task on a table: how names are written."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from orthornn.cli import main
from orthornn.errors import ArgumentError, DataError
from orthornn.learn.fields import entry_of
from orthornn.learn.files.columns import read_columns
from orthornn.learn.options import Options
from orthornn.learn.tasks import Classify, Forecast, Regress
from orthornn.learn.tasks.table_options import entries_in, modes_of, names_in
from orthornn.learn.tasks.task_choice import choose_task

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
    assert names_in(task.target) == [WEIGHT]
    assert task.table().roles.inputs == ["x", PIPE]
    assert WEIGHT in " ".join(task.summary_lines())
    task = Classify(data=path, target=entry_of(KIND), sequence="id", inputs=f"x,{entry_of(WEIGHT)}")
    assert task.table().classes == ["a", "b"]
    assert task.table().roles.inputs == ["x", WEIGHT]
    assert modes_of(f"hold,{entry_of(WEIGHT + '=skip')}") == {"": "hold", WEIGHT: "skip"}


def test_without_quotes_the_error_tells_how_they_are_written(path):
    assert WEIGHT in read_columns(Path(path)).columns
    with pytest.raises(
        DataError,
        match=r"Expected a column 'Weight' for target in .*, but got 'Weight, kg'.*double quotes, '\"Weight, kg\"'",
    ):
        Regress(data=path, target=WEIGHT, sequence="id").summary_lines()


def test_the_command_line_and_python_take_such_a_target(path, capsys):
    for target, task in ((WEIGHT, "regress"), (KIND, "classify")):
        assert main(["inspect", path, "--target", entry_of(target), "--sequence", "id"]) == 0
        assert f"so the task is {task}" in capsys.readouterr().out
    assert main(["inspect", path, "--target", WEIGHT, "--sequence", "id"]) == 2
    assert "in double quotes" in capsys.readouterr().err
    given = {"target": [WEIGHT, "x"], "quantiles": np.array([0.1, 0.9])}
    assert Options(Forecast, given).values == {"target": f'"{WEIGHT}",x', "quantiles": "0.1,0.9"}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"mels": 3}, "Expected mels only for sounds, but got 3 for .*d.csv. Leave it out."),
        ({"sample_rate": 44100}, "Expected sample_rate only for sounds, but got 44100"),
        ({"decimal": ","}, "Expected decimal only for text files, but got ',' for .*d.npz. Leave it out."),
        ({"na": "-999"}, "Expected na only for text files, but got '-999'"),
        ({"sequence": "y", "target": "y"}, "Expected a target that the network could learn, but got 'y', which tells"),
        ({"categories": "x,x"}, "Expected each column once in categories, but got 'x' several times"),
    ],
)
def test_options_that_the_data_have_no_use_for_are_refused(options, message, path, tmp_path):
    np.savez(tmp_path / "d.npz", x=np.arange(60.0).reshape(20, 3, 1), y=np.arange(20.0))
    if {"decimal", "na"} & options.keys():
        given = {"data": str(tmp_path / "d.npz"), "target": "y"}
    elif options.get("target") == "y":
        Path(path).write_text("y,x\n0,1\n0,2\n1,3\n1,4\n2,5\n2,7\n")
        given = {"data": path}
    else:
        given = {"data": path, "target": entry_of(WEIGHT), "sequence": "id"}
    with pytest.raises((ArgumentError, DataError), match=message):
        Regress(**{**given, **options}).summary_lines()


def test_forecasts_refuse_what_would_have_no_effect(path):
    with pytest.raises(ArgumentError, match="Expected new_series only with embedding"):
        Forecast(data=path, target="x", new_series="mean")
    with pytest.raises(ArgumentError, match="Expected ascending quantiles"):
        Forecast(data=path, target="x", quantiles="0.1,0.10000001")


def test_a_target_of_so_many_whole_numbers_needs_the_name_of_the_task(tmp_path):
    numbers = tmp_path / "n.csv"
    numbers.write_text("x,y\n" + "".join(f"{k / 7},{k}\n" for k in range(101)))
    with pytest.raises(DataError, match="y holds 101 different whole numbers, which may be amounts or classes"):
        choose_task(numbers, "y", [])
    numbers.write_text("x,y\n" + "".join(f"{k / 7},{k % 100}\n" for k in range(300)))
    assert choose_task(numbers, "y", [])[0] == "classify"


def test_a_target_that_is_given_twice_is_an_error(path, capsys):
    for command in ("inspect", "train"):
        assert main([command, path, "--target", "x", "--target=y"]) == 2
        assert "Expected --target once, but got it twice: x and y. Give it once." in capsys.readouterr().err
