"""Recipes: options under a name, which those that are given replace."""

from __future__ import annotations

import pytest

from orthornn.errors import ArgumentError
from orthornn.lab.cli.arguments import read_options
from orthornn.lab.cli.recipes import RECIPES, expand
from orthornn.lab.cli.train import TrainArguments
from orthornn.lab.systems import build, count_parameters, model_named
from orthornn.lab.tasks import PixelMNIST


def options(*words: str) -> dict[str, str]:
    found = expand(["pixel-mnist", *words])
    assert found[0] == "pixel-mnist"
    assert "--recipe" not in found
    return {name: value for name, value in zip(found[1::2], found[2::2], strict=True)}


@pytest.mark.parametrize("name", RECIPES)
def test_every_recipe_is_a_command_within_its_budget(name):
    words = expand(["pixel-mnist", "--recipe", name])
    arguments = read_options(TrainArguments[PixelMNIST], "orthornn train", "", words[1:])
    model = model_named(arguments.model, **arguments.given_model_options())
    assert 15_500 < count_parameters(build(model, 1, 10, device="meta")) <= 16_400
    assert (arguments.optimizer, arguments.schedule, arguments.warmup) == ("adamw", "cosine", 100)
    assert arguments.label_smoothing == 0.05


def test_what_is_given_takes_the_place_of_the_recipe():
    plain = options("--recipe", "blocks")
    assert plain["--parameters"] == "16400"
    changed = options("--recipe", "blocks", "--lr", "0.1", "--seed", "3")
    assert changed == {**plain, "--lr": "0.1", "--seed": "3"}
    assert "--parameters" not in options("--hidden-size", "8", "--recipe", "blocks")
    assert "--epochs" not in options("--recipe=blocks", "--steps", "8")
    assert options("--lr", "0.1") == {"--lr": "0.1"}


def test_recipes_that_there_are_not():
    with pytest.raises(ArgumentError, match="Did you mean 'blocks'"):
        expand(["pixel-mnist", "--recipe", "block"])
    for words in (["--recipe"], ["--recipe", "blocks", "--recipe", "linear"]):
        with pytest.raises(ArgumentError, match="one name after --recipe"):
            expand(["pixel-mnist", *words])
