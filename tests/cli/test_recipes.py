"""Recipes: options under a name, which those that are given replace."""

from __future__ import annotations

import dataclasses
import inspect
import json
import math
import re

import pytest

from orthornn import cli
from orthornn.cli.arguments import own_data, read_options
from orthornn.cli.compare import CompareArguments
from orthornn.cli.recipes import announce_recipe, expand, limit_warmup
from orthornn.cli.train import TrainArguments
from orthornn.errors import ArgumentError
from orthornn.learn import compare
from orthornn.learn.recipes import OF_TASKS, RECIPES, SKIPPED
from orthornn.learn.systems import MODEL_OPTIONS, MODELS, build, count_parameters, model_named
from orthornn.learn.tasks import TASKS, Adding
from orthornn.learn.training import read_config


@pytest.fixture
def epochs(monkeypatch):
    monkeypatch.setattr(Adding, "steps_per_epoch", lambda task, batch_size: 500)


def options(*words: str) -> dict[str, str]:
    found = expand(["adding", *words])
    assert found[0] == "adding"
    assert "--recipe" not in found
    return {name: value for name, value in zip(found[1::2], found[2::2], strict=True)}


@pytest.mark.parametrize("name", [name for name in RECIPES if name not in OF_TASKS.values()])
def test_every_recipe_is_a_command_within_its_budget(name):
    words = expand(["adding", "--recipe", name])
    arguments = read_options(TrainArguments[Adding], "orthornn train", "", words[1:])
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
        expand(["adding", "--recipe", "block"])
    for words in (["--recipe"], ["--recipe", "blocks", "--recipe", "linear"]):
        with pytest.raises(ArgumentError, match="one name after --recipe"):
            expand(["adding", *words])


def table_options(*words: str, own_model: bool = True) -> dict[str, str]:
    found = expand(["classify", *words], own_model)
    return {name: value for name, value in zip(found[1::2], found[2::2], strict=True)}


@pytest.mark.parametrize("task", OF_TASKS)
def test_own_data_have_a_recipe_that_need_not_be_named(task):
    named, unnamed = expand([task, "--recipe", OF_TASKS[task], "--lr", "1"]), expand([task, "--lr", "1"])
    assert named == unnamed
    arguments = read_options(TrainArguments[TASKS[task]], "orthornn train", "", [*unnamed[1:], "--target", "y"])
    model = model_named(arguments.model, **arguments.given_model_options())
    assert 10_000 < count_parameters(build(model, 3, 2, device="meta")) <= 12_000
    assert arguments.lr == 1
    assert expand([task, "--recipe", "none", "--lr", "1"]) == [task, "--lr", "1"]
    assert expand([task, "--help"]) == [task, "--help"]
    assert expand(["copying", "--lr", "1"]) == ["copying", "--lr", "1"]


def test_another_model_has_the_training_of_the_recipe_and_none_of_its_model():
    plain, other = table_options(), table_options("--model", "lstm")
    assert plain["--decay"] == "True"
    assert other["--model"] == "lstm"
    assert "--decay" not in other
    assert other["--pool"] == plain["--pool"]
    assert plain.keys() - {"--model"} <= table_options("--models", "lstm,blocks", own_model=False).keys()
    assert "--decay" not in table_options("--models", "lstm,gru", own_model=False)
    assert "--model" not in table_options(own_model=False)
    model_named("lstm", pool=other["--pool"], dropout=float(other["--dropout"]))


def test_the_recipes_own_model_is_the_same_by_name():
    assert table_options("--model", "blocks") == table_options()
    assert table_options("--model", "blocks", "--decay", "False")["--decay"] == "False"


def test_an_lstm_on_ones_own_data_begins_to_forget():
    """From the papers' forget bias of 5 it hardly does on short sequences."""
    assert table_options("--model", "lstm")["--forget-bias"] == "1"
    assert table_options("--models", "blocks,lstm", own_model=False)["--forget-bias"] == "1"
    assert "--forget-bias" not in table_options()
    assert "--forget-bias" not in table_options("--model", "gru")


def test_the_recipe_that_nobody_named_is_announced(capsys):
    words = ["classify", "--lr", "1"]
    announce_recipe(words, expand(words))
    said = capsys.readouterr().out
    assert said.startswith("recipe table: --model blocks")
    assert "--recipe none" in said
    for silent in (["classify", "--recipe", "none"], ["classify", "--recipe=table"], ["copying"]):
        announce_recipe(silent, expand(silent))
    assert not capsys.readouterr().out


def test_a_forecast_sees_a_whole_period(tmp_path, capsys):
    path = tmp_path / "day.csv"
    path.write_text("\n".join(["v", *(f"{math.sin(t * math.pi / 24):.5f}" for t in range(300))]) + "\n")
    words = own_data([str(path), "--target", "v", "--horizons", "4"])
    assert words[0] == "forecast"
    assert words[-4:] == ["--horizons", "4", "--skipped", "49"]
    said = capsys.readouterr().out
    assert "v has a period of 48 steps, so --skipped 49" in said
    found = expand(words)
    assert found[found.index("--lags") + 1] == "49"
    assert own_data([str(path), "--target", "v", "--ahead", "1", "--skipped", "3"])[-2:] == ["--skipped", "3"]
    path.write_text("\n".join(["v", *(f"{t % 7}" for t in range(300))]) + "\n")
    assert own_data([str(path), "--target", "v", "--quantiles", "0.5"])[-2:] == ["--quantiles", "0.5"]


def test_lags_of_many_predictions_leave_a_network_its_parameters(tmp_path, capsys):
    path = tmp_path / "day.csv"
    rows = (f"{math.sin(t * math.pi / 40):.5f},{t % 3},{t % 5}" for t in range(600))
    path.write_text("\n".join(["v,a,b", *rows]) + "\n")
    words = ["train", str(path), "--target", "v", "--horizons", "48", "--steps", "1", "--validate-every", "1"]
    assert cli.main([*words, "--out", str(tmp_path / "run")]) == 0
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    added = 48 * 3 * config["model"]["lags"]
    assert config["model"]["parameters"] == 12000 + added
    assert f"parameters: {12000 + added}, the recipe's 12000 and those of" in capsys.readouterr().out
    assert cli.main([*words, "--parameters", "11k", "--out", str(tmp_path / "other")]) == 2
    assert "Raise parameters" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words", [["--ahead", "x"], ["--horizons", "3,6"], ["--ahead", "2", "--skipped", "y"], ["--ahead"]]
)
def test_a_step_that_is_no_number_is_an_error_of_that_option(words, tmp_path, capsys):
    path = tmp_path / "series.csv"
    path.write_text("v\n" + "\n".join(str(row % 7) for row in range(60)) + "\n")
    assert cli.main(["train", str(path), "--target", "v", *words]) == 2
    assert words[-2 if len(words) > 1 else 0] in capsys.readouterr().err


def test_several_series_to_forecast_are_divided_by_time_and_see_a_period(tmp_path, capsys):
    rows = [(name, f"{math.sin(t * math.pi / 12) + k:.5f}") for k, name in enumerate("abc") for t in range(200)]
    path = tmp_path / "shops.csv"
    path.write_text("\n".join(["shop,v", *(f"{name},{value}" for name, value in rows)]) + "\n")
    words = [str(path), "--target", "v", "--sequence", "shop", "--ahead", "1"]
    assert own_data(words)[-4:] == ["--skipped", "25", "--split-by", "time"]
    said = capsys.readouterr().out
    assert "v has a period of 24 steps" in said
    assert "3 series, each of which is divided by time" in said
    for more in (["--split-by", "sequences"], ["--split_by=sequences"], ["--group", "shop"], ["--embedding", "2"]):
        assert own_data([*words, *more])[-2:] == ["--skipped", "25"]
    short = tmp_path / "short.csv"
    short.write_text("\n".join(["sequence,v", *(f"{k // 20},{k % 7}.5" for k in range(80))]) + "\n")
    assert "--split-by" not in own_data([str(short), "--target", "v", "--ahead", "1"])
    assert own_data([str(short), "--target", "v", "--ahead", "1", "--skipped", "3"])[-2:] == ["--split-by", "time"]
    short.write_text("\n".join(["sequence,v", *(f"{k // 6},{k % 7}.5" for k in range(120))]) + "\n")
    words = [str(short), "--target", "v", "--horizons", "2", "--skipped", "2"]
    assert "--split-by" not in own_data(words)  # 4 of 6 steps are for training
    assert own_data([*words, "--validation-share", "0.1", "--test-share", "0.1", "--skipped", "1"])[-1] == "time"


PIXELS = [name for name in RECIPES if name not in OF_TASKS.values()]
REPLACED = [
    (["--head", "linear"], "--head-width"),
    (["--optimizer", "adam"], "--decoupled-decay"),
    (["--schedule", "plateau"], "--warmup"),
    (["--decay", "False"], "--decay-in"),
    (["--model", "lstm"], "--stride"),
    (["--model=scornn"], "--reflections"),
]


@pytest.mark.sampled(8)
@pytest.mark.parametrize("name", PIXELS)
@pytest.mark.parametrize(("words", "meaningless"), REPLACED, ids=str)
def test_what_has_no_meaning_next_to_what_is_given_is_left_out(name, words, meaningless, epochs):
    expanded = expand(["adding", "--recipe", name, *words])
    assert meaningless not in expanded
    if words == ["--decay", "False"] and "decay" not in dict(RECIPES[name].pairs()):
        return
    arguments = read_options(TrainArguments[Adding], "orthornn train", "", expanded[1:])
    model = model_named(arguments.model, **arguments.given_model_options())
    config = arguments.config(model, None)  # every part of it checks its options
    assert config.model.head == ("linear" if words[1:] == ["linear"] else "mlp")
    build(model, 1, 10, device="meta")


def test_options_that_keep_their_meaning_stay():
    plain = options("--recipe", "blocks-first")
    assert options("--recipe", "blocks-first", "--model", "blocks") == plain
    assert options("--recipe", "blocks-first", "--optimizer", "adam", "--recurrent-optimizer", "adamw") == {
        **plain,
        "--optimizer": "adam",
        "--recurrent-optimizer": "adamw",
    }
    other = options("--recipe", "linear", "--model", "lstm")
    assert "--hidden-size" not in other  # the width of another network
    assert other["--head-width"] == options("--recipe", "linear")["--head-width"]
    assert options("--recipe", "blocks", "--model", "lstm")["--parameters"] == "16400"


@pytest.mark.parametrize(("models", "stride"), [("blocks,lstm", True), ("lstm,gru", False), ("all", True)])
def test_a_comparison_takes_what_its_models_have(models, stride, epochs):
    found = expand(["adding", "--models", models, "--recipe", "blocks"], own_model=False)
    assert "--model" not in found
    assert ("--stride" in found) == stride
    arguments = read_options(CompareArguments[Adding], "orthornn compare", "", found[1:])
    names = list(MODELS) if models == "all" else models.split(",")
    made = compare.configs(arguments.config(model_named(), None), names, arguments.given_model_options())
    assert list(made) == names
    assert "--hidden-size" not in expand(["adding", "--models", models, "--recipe", "linear"], own_model=False)
    assert "--hidden-size" in expand(["adding", "--models", "ornn-rotations", "--recipe", "linear"], False)


def test_the_help_names_every_recipe():
    text = inspect.getsource(TrainArguments)
    assert all(re.search(rf"\b{name}\b[^-]", text) for name in RECIPES)


@pytest.fixture
def table(tmp_path):
    path = tmp_path / "data.csv"
    lines = [f"{row // 3},{row / 7},{'ab'[row // 3 % 2]}" for row in range(60)]
    path.write_text("\n".join(["sequence,x,kind", *lines]) + "\n")
    return ["classify", "--data", str(path), "--target", "kind", "--sequence", "sequence"]


@pytest.mark.sampled(9)
@pytest.mark.parametrize(
    ("words", "warmup"),
    [
        ("--steps 250", 50),
        ("--steps 249", 49),
        ("--steps 50", 10),
        ("--steps 4", 0),
        ("--steps 1", 0),
        ("--epochs 10 --batch-size 7", 4),
        ("--recipe linear --steps 500", 100),
        ("--recipe linear --steps 99", 19),
        ("", 50),
        ("--steps 50 --warmup 49", 49),
        ("--steps 50 --warmup=0", 0),
        ("--steps 50 --warmup 60", 60),  # of which the run tells that it is wrong
        ("--recipe none --steps 3", 0),
    ],
)
def test_the_warmup_of_a_recipe_is_at_most_a_fifth_of_the_updates(table, words, warmup, capsys):
    typed = [*table, *words.split()]
    expanded = expand(typed)
    arguments = read_options(TrainArguments[TASKS["classify"]], "orthornn train", "", expanded[1:])
    limited = limit_warmup(arguments, typed)
    assert limited.warmup == warmup
    told = f"warmup: {warmup}, a fifth of the updates, in place of the recipe's {arguments.warmup} "
    assert (told in capsys.readouterr().out) == (warmup != arguments.warmup)
    assert dataclasses.replace(limited, warmup=arguments.warmup) == arguments
    limit_warmup(arguments, typed, announced=False)
    assert not capsys.readouterr().out


def test_a_recipe_trains_on_little_data_and_a_typed_warmup_is_checked(table, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    short = [*table, "--steps", "5", "--hidden-size", "3", "--batch-size", "4"]
    assert cli.main(["train", *short, "--out", "run"]) == 0
    assert "warmup: 1, a fifth of the updates, in place of the recipe's 50 " in capsys.readouterr().out
    assert read_config(tmp_path / "run" / "config.json").schedule.warmup == 1
    before = sorted(tmp_path.rglob("*"))
    for command in ("train", "compare", "sweep"):
        assert cli.main([command, *short, "--warmup", "5", "--out", "other"]) == 2
        assert "Expected warmup to be shorter than the training of 5 updates, but got 5" in capsys.readouterr().err
    for more in (["--model", "auto"], ["--recipe", "none"]):
        assert cli.main(["train", *table, "--steps", "5", "--warmup", "9", "--out", "other", *more]) == 2
        assert "Expected warmup to be shorter than the training of 5 updates, but got 9" in capsys.readouterr().err
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("task", ["copying", "amplifier", "classify"])
def test_a_pool_for_predictions_at_every_step_is_an_error_and_that_of_a_recipe_is_left_out(task):
    words = ["--every-step", "--target", "y"] if task == "classify" else []
    expanded = expand([task, "--recipe", "table", *words])
    assert "--dropout" in expanded
    assert "--pool" not in expanded
    assert "--label-smoothing" not in expanded  # measured for one class per sequence
    typed = expand([task, "--recipe", "table", *words, "--pool", "mean"])
    arguments = read_options(TrainArguments[TASKS[task]], "orthornn train", "", typed[1:])
    with pytest.raises(ArgumentError, match=f"Expected --pool only for one prediction .* --pool mean for {task}, "):
        arguments.given_model_options()
    same = read_options(TrainArguments[TASKS[task]], "orthornn train", "", [*words, "--pool", "last"])
    assert same.given_model_options()["pool"] == "last"


@pytest.mark.parametrize("name", RECIPES)
def test_the_candidates_of_a_search_have_the_options_of_a_recipe_for_its_model(name):
    """A search tried blocks without what the default has, so that it could find a worse network than the default."""
    found, own = options("--recipe", name, "--model", "auto"), dict(RECIPES[name].pairs())
    expected = {"--model": "auto"}
    known = {key.replace("_", "-") for key in (*MODELS["blocks"].options(), "parameters")}
    for key, value in own.items():
        if key not in ("model", "decay", "decay-in", "hidden-size") and (
            key in known or key.replace("-", "_") not in MODEL_OPTIONS
        ):
            expected[f"--{key}"] = "16" if value == SKIPPED else value
    assert found == expected
