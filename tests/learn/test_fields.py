"""Fields as options: which values a type takes, from Python and as text."""

from __future__ import annotations

import enum
import typing
from pathlib import Path
from typing import Literal

import numpy as np
import pytest
import torch

from orthornn.errors import ArgumentError, ArgumentTypeError
from orthornn.learn.fields import Option, described, fits, metavar, options_of, spelled
from orthornn.learn.systems import MODELS
from orthornn.learn.systems import options as model_options
from orthornn.learn.tasks import Copying
from orthornn.learn.training import OptimizerConfig, RecordConfig, RunConfig, ScheduleConfig


class Word(str, enum.Enum):
    """Words, whose text from `str` is that of the member: Word.SERIES."""

    SERIES = "series"


@pytest.mark.parametrize(
    ("kind", "shown"),
    [
        (int | None, "INT"),
        (Path | None, "PATH"),
        (bool | None, "{True,False}"),
        (Literal["a", "b"] | None, "{a,b}"),
        (int | Literal["fft"] | None, "INT|{fft}"),
        (tuple[float, float] | None, "FLOAT FLOAT"),
        (int, "INT"),
    ],
)
def test_types_are_shown_without_none(kind, shown):
    assert metavar(kind) == shown


@pytest.mark.parametrize(
    ("kind", "given", "value"),
    [
        (int, np.int64(3), 3),
        (int | None, "3", 3),
        (int | None, "None", None),
        (float, 1, 1.0),
        (float | None, np.float32(0.1), 0.1),
        (float, "1e-3", 1e-3),
        (float | Literal["none"] | None, 2, 2.0),
        (bool, np.True_, True),
        (bool | None, "False", False),
        (str, 3, "3"),
        (str | None, "None", "None"),
        (str, Word.SERIES, "series"),
        (str, [Word.SERIES, "b"], "series,b"),
        (str, {Word.SERIES: Word.SERIES}, "series=series"),
        (Literal["a", "series"], Word.SERIES, "series"),
        (Path, Word.SERIES, Path("series")),
        (str, np.datetime64("2020-01-31"), "2020-01-31"),
        (str, ["a", "b, c"], 'a,"b, c"'),
        (str, np.array([0.1, 0.9]), "0.1,0.9"),
        (str, {1.0: 5, np.float32(0): 0.5, "c, d": 1}, '1=5,0=0.5,"c, d=1"'),
        (Path | None, "a/b", Path("a/b")),
        (Path, Path("a"), Path("a")),
        (Literal["a", "b"], "b", "b"),
        (int | Literal["fft"], "fft", "fft"),
        (tuple[float, float] | None, ["1", 2], (1.0, 2.0)),
        (tuple[Path, ...], ["a", "b"], (Path("a"), Path("b"))),
    ],
)
def test_a_value_is_one_of_the_type(kind, given, value):
    found = Option("it", kind).value(given)
    assert found == value
    assert type(found) is type(value)
    assert isinstance(found, tuple) or fits(found, kind)


@pytest.mark.parametrize(
    ("kind", "given", "wanted"),
    [
        (int, 2.0, "a whole number"),
        (int, True, "a whole number"),
        (int | None, "2.5", "a whole number"),
        (float, "x", "a number"),
        (float, False, "a number"),
        (bool | None, 1, "True or False"),
        (bool, "yes", "True or False"),
        (Literal["a", "b", "c"], "d", "a, b or c"),
        (int | Literal["fft"], "dft", "a whole number or fft"),
        (float, [1.0], "a number"),
        (float, np.datetime64("2020-01-31"), "a number"),
        (float, np.complex64(1), "a number"),
        (str, b"column", "text"),
        (Path, b"folder", "a path"),
    ],
)
def test_a_value_of_another_type_is_an_error_that_says_what_is_one(kind, given, wanted):
    assert described(kind) == wanted
    with pytest.raises(ArgumentError, match=rf"^Expected {wanted} as --a-b, but got .*\. `it --help` explains"):
        Option("a_b", kind).value(given, "it")


def test_a_field_may_read_its_own_text():
    option = model_options()["parameters"]
    assert [option.value(given) for given in ("12k", 12000, np.int32(7), "None", "1.5m")] == [
        12000,
        12000,
        7,
        None,
        1_500_000,
    ]
    with pytest.raises(ArgumentError, match=r"a number like 5000, 5k or 1\.3m"):
        option.value("many")
    assert model_options()["margin"].value("none") == "none"
    assert model_options()["margin"].value("0.5") == 0.5


def test_options_are_spelled_as_they_are_typed():
    assert (
        spelled({"recurrent_lr": 0.001, "decay": True, "parameters": "12k"})
        == "--recurrent-lr 0.001 --decay True --parameters 12k"
    )


def test_an_object_is_no_value():
    """Its text, such as that of a network, would be read as a name."""
    network = torch.nn.Linear(2, 2)
    for given, shown in ((network, "Linear"), (torch.nn.Linear, "Linear"), (len, "builtin_function_or_method")):
        with pytest.raises(
            ArgumentTypeError, match=rf"^Expected .* as --model, but got {shown}\. Pass its value as text"
        ):
            Option("model", str).value(given)


@pytest.mark.parametrize("kind", [*MODELS.values(), OptimizerConfig, ScheduleConfig, RecordConfig, RunConfig, Copying])
def test_a_word_that_the_type_of_a_field_does_not_list_is_refused(kind):
    """Where the object is made, and not by whoever reads it later."""
    for option in options_of(kind):
        is_choice = typing.get_origin(option.kind) is Literal
        parts = (
            [option.kind] if is_choice else [part for part in typing.get_args(option.kind) if part is not type(None)]
        )
        if len(option.place) == 1 and parts and all(typing.get_origin(part) is Literal for part in parts):
            with pytest.raises(ArgumentError, match=f"^Expected {option.name} to be one of .*, but got 'nonsense'"):
                kind(**{option.place[0]: "nonsense"})
