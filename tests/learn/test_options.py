"""An option is written in one place, and is then in the command, its help, config.json and the keywords of Python."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass, field

import pytest

import orthornn
from orthornn import cli
from orthornn.errors import ArgumentError
from orthornn.learn.options import DATA, Options, TrainOptions, groups, named
from orthornn.learn.tasks import TASKS, Copying
from orthornn.learn.training import OptimizerConfig, RunConfig, config

TINY = {"T": 3, "items": 2, "validation_size": 4, "test_size": 4, "steps": 1, "hidden_size": 3, "batch_size": 2}


@dataclass(frozen=True)
class NewOptimizerConfig(OptimizerConfig):
    """An optimizer with an option more."""

    lookahead: int | None = field(default=None, metadata={"option": "optimizer_lookahead"})
    """Updates ahead, an option of this test."""


@dataclass(frozen=True)
class NewRunConfig(RunConfig):
    """A run with an option more, and one in a part of it."""

    optimizer: OptimizerConfig = field(default_factory=NewOptimizerConfig)
    """With an option more."""
    coffee: float = 2.5
    """Cups per epoch, an option of this test."""


NewRunConfig.__annotations__["optimizer"] = "NewOptimizerConfig"


@pytest.fixture
def new(monkeypatch):
    for module in ("learn.options", "learn.train", "learn.training.config", "learn.training.run", "cli.train"):
        name = f"orthornn.{module}"
        if hasattr(sys.modules.get(name), "RunConfig"):
            monkeypatch.setattr(f"{name}.RunConfig", NewRunConfig)


def stored(folder):
    return json.loads((folder / "config.json").read_text())


def test_an_option_that_is_added_in_one_place_is_everywhere(new, tmp_path, capsys):
    with pytest.raises(SystemExit):
        cli.main(["train", "copying", "--help"])
    text = " ".join(capsys.readouterr().out.split())
    assert "--coffee FLOAT Cups per epoch, an option of this test. (default: 2.5)" in text
    assert "--optimizer-lookahead INT Updates ahead, an option of this test." in text
    tiny = [word for name, value in TINY.items() for word in (f"--{name.replace('_', '-')}", str(value))]
    words = ["train", "copying", *tiny, "--optimizer-lookahead", "3", "--coffee", "4", "--out", str(tmp_path / "a")]
    assert cli.main(words) == 0
    assert (stored(tmp_path / "a")["coffee"], stored(tmp_path / "a")["optimizer"]["lookahead"]) == (4.0, 3)
    trained = orthornn.train("copying", **TINY, coffee=4, optimizer_lookahead="3", out=tmp_path / "b")
    assert trained.result.config.coffee == 4
    for name in ("a", "b"):
        assert stored(tmp_path / name) == stored(tmp_path / "a")
        assert config.read_config(tmp_path / name / "config.json") == trained.result.config
    with pytest.raises(ArgumentError, match=r"^Expected a number as --coffee, but got much\."):
        orthornn.train("copying", coffee="much")
    with pytest.raises(ArgumentError, match="Did you mean 'coffee'"):
        orthornn.train("copying", cofee=3)


@pytest.mark.parametrize("task", TASKS.own)
def test_every_field_of_a_run_is_an_option_and_none_has_two_meanings(task):
    kind = TASKS[task]
    listed = [option.name for own in groups(kind).values() for option in own]
    assert len(listed) == len(set(listed))
    assert all(option.help for option in named(kind).values())
    plain = RunConfig().to_dict()
    parts = {name: part for name, part in plain.items() if isinstance(part, dict) and name not in ("task", "model")}
    places = {option.place for option in named(kind, TrainOptions).values()}
    assert {(name, key) for name, part in parts.items() for key in part} <= places
    assert {(name,) for name, value in plain.items() if not isinstance(value, dict)} <= places


def test_values_are_given_chosen_or_usual():
    options = Options(Copying, {"lr": "0.5", "T": 7, "patience": None}, {"lr": 1.0, "warmup": 3})
    assert (options["lr"], options["warmup"], options["momentum"]) == (0.5, 3, 0.0)
    assert "patience" not in options.values
    assert options.choosing(lr=2.0, warmup=4)["warmup"] == 4
    made = options.config(options.make_task())
    assert (made.optimizer.lr, made.schedule.warmup, made.task, made.steps) == (0.5, 3, Copying(T=7), 1000)
    assert made == Options(Copying, {"lr": 0.5, "T": "7", "warmup": 3}).config(Copying(T=7))


def test_a_name_that_is_no_option_is_an_error():
    with pytest.raises(
        ArgumentError, match=r"options of `orthornn train copying`, but got 'stepz'\. Did you mean 'steps'"
    ):
        Options(Copying, {"stepz": 3})
    with pytest.raises(ArgumentError, match="but got 'target'"):
        Options(Copying, {"target": "y"})
    assert {*DATA} <= named(TASKS["classify"]).keys()


WITHOUT = """
import sys
blocked = ("tyro", "matplotlib", "rich")
for name in blocked:
    sys.modules[name] = None
import numpy as np, pandas, orthornn
rows = np.arange(60)
frame = pandas.DataFrame({"sequence": rows // 3, "x": rows / 7, "y": np.where(rows // 3 % 2, "a", "b")})
trained = orthornn.train(frame, "y", steps=2, hidden_size=3)
assert trained.labels == ["a", "b"]
from orthornn.sklearn import OrthogonalClassifier, OrthogonalForecaster, OrthogonalRegressor
X = np.random.default_rng(0).standard_normal((12, 5, 2))
assert OrthogonalClassifier(steps=2, hidden_size=3).fit(X, np.arange(12) % 2).predict(X).shape == (12,)
assert OrthogonalRegressor(steps=2, hidden_size=3).fit(X, X[:, 0, 0]).predict(X).shape == (12,)
assert OrthogonalForecaster(steps=2, hidden_size=3, lags=3).fit(X[0, :, 0].repeat(6)).predict().shape == (1,)
assert not [name for name in sys.modules if name.split(".")[0] in blocked and sys.modules[name] is not None]
assert not [name for name in sys.modules if name.startswith("orthornn.cli")]
print("trained")
"""


def test_python_needs_no_package_of_the_command(tmp_path):
    pytest.importorskip("pandas")
    pytest.importorskip("sklearn")
    done = subprocess.run([sys.executable, "-c", WITHOUT], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.stdout.endswith("trained\n"), done.stderr
