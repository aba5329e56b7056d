"""The options of a row of the leaderboard."""

from __future__ import annotations

import pytest

from orthornn.learn.fields import spelled
from orthornn.learn.options import Options
from orthornn.learn.recipes import RECIPES, with_recipe
from orthornn.learn.tasks import TASKS
from orthornn_evidence.leaderboard_options import shown_options

RUN = "orthornn train pixel-mnist"


def asked(**given):
    return with_recipe(Options(TASKS["pixel-mnist"], given))


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_spelled_out_is_shown_by_its_name(name):
    found = asked(recipe=name, lr=0.5, shift=2)
    words = spelled({"lr": 0.5, "shift": 2, **found.chosen})
    (shown,), common, letters = shown_options([f"{RUN} {words} --data FOLDER --permuted"])
    assert shown.startswith(f"--recipe {name} --lr 0.5")
    assert shown.endswith("--shift 2") or name == "forecast"
    assert (common, letters) == ("", {})
    pairs = [word.split() for word in f" {shown}".split(" --")[1:]]
    assert asked(**{name.replace("-", "_"): value for name, value in pairs}).values == found.values


def test_what_all_runs_have_is_shown_once():
    rows = [f"{RUN} --model ornn --reflections 4 --T 50 --lr 0.1 --data FOLDER", f"{RUN} --model lstm --T 50 --lr=0.2"]
    control = "orthornn leaderboard control --data FOLDER --permuted --budget 16400 --T 50"
    shown, common, _ = shown_options([*rows, control])
    assert shown == ["--reflections 4 --lr 0.1", "--lr 0.2", "--budget 16400 --T 50"]
    assert common == "--T 50"


def test_one_run_keeps_its_options():
    assert shown_options([f"{RUN} --model ornn --recipe blocks --epochs 5"]) == (["--recipe blocks --epochs 5"], "", {})
    assert shown_options([RUN, RUN]) == (["", ""], "", {})


def test_several_rows_with_the_same_options_have_a_letter_for_them():
    protocol = "--head mlp --batch-size 7 --epochs 3"
    swept = [f"{RUN} --model {model} {protocol} --lr {rate}" for model, rate in (("a", 1), ("b", 2), ("c", 1))]
    others = [f"{RUN} --model d --clip-norm 1", f"{RUN} --model e --epochs 3 --head mlp --batch-size 7 --reflections 4"]
    assert shown_options([*swept, *others]) == (
        ["A --lr 1", "A --lr 2", "A --lr 1", "--clip-norm 1", others[1].partition(" e ")[2]],
        "",
        {"A": protocol},
    )
    assert shown_options([*swept[:2], *others])[2] == {}
