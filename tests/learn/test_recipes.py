"""Recipes: options under a name, which those that are given replace."""

from __future__ import annotations

import inspect
import json
import math
import re

import pytest

from orthornn import cli
from orthornn.cli.compare import CompareOptions
from orthornn.errors import ArgumentError
from orthornn.learn import compare
from orthornn.learn.options import Options, TrainOptions
from orthornn.learn.own_data import options_for
from orthornn.learn.recipes import OF_TASKS, RECIPES, SKIPPED, limit_warmup, say_recipe, with_recipe
from orthornn.learn.systems import MODEL_OPTIONS, MODELS, build, count_parameters, model_named
from orthornn.learn.tasks import TASKS, Adding
from orthornn.learn.training import RunConfig, read_config


@pytest.fixture
def epochs(monkeypatch):
    monkeypatch.setattr(Adding, "steps_per_epoch", lambda task, batch_size: 500)


def asked(task="adding", own_model=True, **given) -> Options:
    command = TrainOptions if own_model else CompareOptions
    return with_recipe(Options(TASKS[task], given, command=command), own_model)


def configured(options: Options) -> RunConfig:
    return options.config(options.make_task())


def options(**given):
    """The values of a training on adding, but for the name of the recipe."""
    found = asked(**given).values
    return {name: value for name, value in found.items() if name != "recipe"}


@pytest.mark.parametrize("name", [name for name in RECIPES if name not in OF_TASKS.values()])
def test_every_recipe_is_a_training_within_its_budget(name):
    config = configured(asked(recipe=name, steps=500))
    assert 15_500 < count_parameters(build(config.model, 1, 10, device="meta")) <= 16_400
    assert (config.optimizer.name, config.schedule.name, config.schedule.warmup) == ("adamw", "cosine", 100)
    assert config.penalties.label_smoothing == 0.05


def test_what_is_given_takes_the_place_of_the_recipe():
    plain = options(recipe="blocks")
    assert plain["parameters"] == 16400
    changed = options(recipe="blocks", lr=0.1, seed=3)
    assert changed == {**plain, "lr": 0.1, "seed": 3}
    assert "parameters" not in options(hidden_size=8, recipe="blocks")
    assert "epochs" not in options(recipe="blocks", steps=8)
    assert options(lr=0.1) == {"lr": 0.1}


def test_recipes_that_there_are_not(capsys):
    with pytest.raises(ArgumentError, match="Did you mean 'blocks'"):
        options(recipe="block")
    for words, said in (
        (["--recipe"], "Expected a value after --recipe, but got none"),
        (["--recipe", "blocks", "--recipe", "linear"], "Expected --recipe once, but got it twice: blocks and linear"),
    ):
        assert cli.main(["train", "adding", *words]) == 2
        assert said in capsys.readouterr().err


def table_options(own_model: bool = True, **given):
    return asked("classify", own_model, **given).values


@pytest.mark.parametrize("task", OF_TASKS)
def test_own_data_have_a_recipe_that_need_not_be_named(task):
    named, unnamed = asked(task, recipe=OF_TASKS[task], lr=1), asked(task, lr=1)
    assert named.chosen == unnamed.chosen
    made = asked(task, lr=1, target="y").make_task()
    model = model_named(unnamed["model"], **unnamed.of_model(made))
    assert 10_000 < count_parameters(build(model, 3, 2, device="meta")) <= 12_000
    assert unnamed["lr"] == 1
    assert asked(task, recipe="none", lr=1).chosen == {}
    assert asked("copying", lr=1).chosen == {}


def test_another_model_has_the_training_of_the_recipe_and_none_of_its_model():
    plain, other = table_options(), table_options(model="lstm")
    assert plain["decay"] is True
    assert other["model"] == "lstm"
    assert "decay" not in other
    assert other["pool"] == plain["pool"]
    assert plain.keys() - {"model"} <= table_options(False, models="lstm,blocks").keys()
    assert "decay" not in table_options(False, models="lstm,gru")
    assert "model" not in table_options(False)
    model_named("lstm", pool=other["pool"], dropout=other["dropout"])


def test_the_recipes_own_model_is_the_same_by_name():
    assert table_options(model="blocks") == table_options()
    assert table_options(model="blocks", decay=False)["decay"] is False


def test_an_lstm_on_ones_own_data_begins_to_forget():
    """From the papers' forget bias of 5 it hardly does on short sequences."""
    assert table_options(model="lstm")["forget_bias"] == 1
    assert table_options(False, models="blocks,lstm")["forget_bias"] == 1
    assert "forget_bias" not in table_options()
    assert "forget_bias" not in table_options(model="gru")


def test_the_recipe_that_nobody_named_is_announced():
    said = []
    say_recipe(asked("classify", lr=1), said.append)
    assert said[0].startswith("recipe table: --model blocks --decay True --parameters 12k --pool mean --dropout 0.2 ")
    assert said[0].endswith(" --clip-norm 1 --patience 10   (--recipe none leaves it out)")
    for silent in (asked("classify", recipe="none"), asked("classify", recipe="table"), asked("copying")):
        say_recipe(silent, said.append)
    assert len(said) == 1


def own_data(path, **given):
    """The options that the data add, and what is said of them."""
    said: list[str] = []
    found = options_for(path, given, said.append)
    more = {name: value for name, value in found.given.items() if name not in ("data", *given)}
    return found, more, "\n".join(said)


def test_a_forecast_sees_a_whole_period(tmp_path):
    path = tmp_path / "day.csv"
    path.write_text("\n".join(["v", *(f"{math.sin(t * math.pi / 24):.5f}" for t in range(300))]) + "\n")
    found, more, said = own_data(path, target="v", horizons=4)
    assert (found.task.name, more) == ("forecast", {"skipped": 49})
    assert "v has a period of 48 steps, so --skipped 49" in said
    assert with_recipe(found)["lags"] == 49
    assert own_data(path, target="v", ahead=1, skipped=3)[1] == {}
    path.write_text("\n".join(["v", *(f"{t % 7}" for t in range(300))]) + "\n")
    assert own_data(path, target="v", quantiles="0.5")[1] == {}


def test_lags_of_many_predictions_leave_a_network_its_parameters(tmp_path, capsys):
    path = tmp_path / "day.csv"
    rows = (f"{math.sin(t * math.pi / 40):.5f},{t % 3},{t % 5}" for t in range(600))
    path.write_text("\n".join(["v,a,b", *rows]) + "\n")
    words = ["train", str(path), "--target", "v", "--horizons", "48", "--steps", "1", "--validate-every", "1"]
    assert cli.main([*words, "--out", str(tmp_path / "run")]) == 0
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    added = 48 * 3 * config["model"]["lags"]
    assert config["model"]["parameters"] == 12000 + added
    assert f"parameters: {12000 + added}, the recipe's 12000 plus those of" in capsys.readouterr().out
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


def test_several_series_to_forecast_are_divided_by_time_and_see_a_period(tmp_path):
    rows = [(name, f"{math.sin(t * math.pi / 12) + k:.5f}") for k, name in enumerate("abc") for t in range(200)]
    path = tmp_path / "shops.csv"
    path.write_text("\n".join(["shop,v", *(f"{name},{value}" for name, value in rows)]) + "\n")
    given = {"target": "v", "sequence": "shop", "ahead": 1}
    _, more, said = own_data(path, **given)
    assert more == {"skipped": 25, "split_by": "time"}
    assert "v has a period of 24 steps" in said
    assert "3 series, each of which is divided by time" in said
    for other in ({"split_by": "sequences"}, {"group": "shop"}, {"embedding": 2}):
        assert own_data(path, **given, **other)[1] == {"skipped": 25}
    short = tmp_path / "short.csv"
    short.write_text("\n".join(["sequence,v", *(f"{k // 20},{k % 7}.5" for k in range(80))]) + "\n")
    assert "split_by" not in own_data(short, target="v", ahead=1)[1]
    assert own_data(short, target="v", ahead=1, skipped=3)[1] == {"split_by": "time"}
    short.write_text("\n".join(["sequence,v", *(f"{k // 6},{k % 7}.5" for k in range(120))]) + "\n")
    given = {"target": "v", "horizons": 2, "skipped": 2}
    assert "split_by" not in own_data(short, **given)[1]  # 4 of 6 steps are for training
    given = {"target": "v", "horizons": 2, "skipped": 1}
    assert own_data(short, **given, validation_share=0.1, test_share="0.1")[1] == {"split_by": "time"}


PIXELS = [name for name in RECIPES if name not in OF_TASKS.values()]
REPLACED = [
    ({"head": "linear"}, "head_width"),
    ({"optimizer": "adam"}, "decoupled_decay"),
    ({"optimizer": "adam", "recurrent_optimizer": "adamw"}, "decoupled_decay"),  # which decays no recurrent matrix
    ({"schedule": "plateau"}, "warmup"),
    ({"decay": False}, "decay_in"),
    ({"model": "lstm"}, "stride"),
    ({"model": "scornn"}, "reflections"),
]


@pytest.mark.sampled(8)
@pytest.mark.parametrize("name", PIXELS)
@pytest.mark.parametrize(("given", "meaningless"), REPLACED, ids=str)
def test_what_has_no_meaning_next_to_what_is_given_is_left_out(name, given, meaningless, epochs):
    found = asked(recipe=name, **given)
    assert meaningless not in found.values
    if given == {"decay": False} and "decay" not in RECIPES[name].values():
        return
    config = configured(found)  # every part of it checks its options
    assert config.model.head == given.get("head", "mlp")
    build(config.model, 1, 10, device="meta")


def test_options_that_keep_their_meaning_stay():
    plain = options(recipe="blocks-first")
    assert options(recipe="blocks-first", model="blocks") == plain
    other = options(recipe="linear", model="lstm")
    assert "hidden_size" not in other  # the width of another network
    assert other["head_width"] == options(recipe="linear")["head_width"]
    assert options(recipe="blocks", model="lstm")["parameters"] == 16400


@pytest.mark.parametrize(("models", "stride"), [("blocks,lstm", True), ("lstm,gru", False), ("all", True)])
def test_a_comparison_takes_what_its_models_have(models, stride, epochs):
    found = asked(own_model=False, models=models, recipe="blocks")
    assert "model" not in found.values
    assert ("stride" in found.values) == stride
    names = list(MODELS) if models == "all" else models.split(",")
    task = found.make_task()
    made = compare.configs(found.config(task, model_named()), names, found.of_model(task))
    assert list(made) == names
    assert "hidden_size" not in asked(own_model=False, models=models, recipe="linear").values
    assert "hidden_size" in asked(own_model=False, models="ornn-rotations", recipe="linear").values


def test_the_help_names_every_recipe():
    text = inspect.getsource(TrainOptions)
    assert all(re.search(rf"\b{name}\b[^-]", text) for name in RECIPES)


@pytest.fixture
def table(tmp_path):
    path = tmp_path / "data.csv"
    lines = [f"{row // 3},{row / 7},{'ab'[row // 3 % 2]}" for row in range(60)]
    path.write_text("\n".join(["sequence,x,kind", *lines]) + "\n")
    return {"data": str(path), "target": "kind", "sequence": "sequence"}


@pytest.mark.sampled(9)
@pytest.mark.parametrize(
    ("given", "warmup"),
    [
        ({"steps": 250}, 50),
        ({"steps": 249}, 49),
        ({"steps": 50}, 10),
        ({"steps": 4}, 0),
        ({"steps": 1}, 0),
        ({"epochs": 10, "batch_size": 7}, 4),
        ({"recipe": "linear", "steps": 500}, 100),
        ({"recipe": "linear", "steps": 99}, 19),
        ({}, 50),
        ({"steps": 50, "warmup": 49}, 49),
        ({"steps": 50, "warmup": 0}, 0),
        ({"steps": 50, "warmup": 60}, 60),  # of which the run tells that it is wrong
        ({"recipe": "none", "steps": 3}, 0),
    ],
)
def test_the_warmup_of_a_recipe_is_at_most_a_fifth_of_the_updates(table, given, warmup):
    before, said = asked("classify", **table, **given), []
    limited = limit_warmup(before, before.make_task(), said.append)
    assert limited["warmup"] == warmup
    told = f"warmup: {warmup}, a fifth of the updates, instead of the recipe's {before['warmup']} "
    assert any(told in line for line in said) == (warmup != before["warmup"])
    assert {**limited.values, "warmup": before["warmup"]} == {**before.values, "warmup": before["warmup"]}


def test_a_recipe_trains_on_little_data_and_a_typed_warmup_is_checked(table, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    words = ["classify", *(word for name, value in table.items() for word in (f"--{name}", value))]
    short = [*words, "--steps", "5", "--hidden-size", "3", "--batch-size", "4"]
    assert cli.main(["train", *short, "--out", "run"]) == 0
    assert "warmup: 1, a fifth of the updates, instead of the recipe's 50 " in capsys.readouterr().out
    assert read_config(tmp_path / "run" / "config.json").schedule.warmup == 1
    before = sorted(tmp_path.rglob("*"))
    for command in ("train", "compare", "sweep"):
        assert cli.main([command, *short, "--warmup", "5", "--out", "other"]) == 2
        assert "Expected warmup to be shorter than the training of 5 updates, but got 5" in capsys.readouterr().err
    for more in (["--model", "auto"], ["--recipe", "none"]):
        assert cli.main(["train", *words, "--steps", "5", "--warmup", "9", "--out", "other", *more]) == 2
        assert "Expected warmup to be shorter than the training of 5 updates, but got 9" in capsys.readouterr().err
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("task", ["copying", "amplifier", "classify"])
def test_a_pool_for_predictions_at_every_step_is_an_error_and_that_of_a_recipe_is_left_out(task):
    given = {"every_step": True, "target": "y"} if task == "classify" else {}
    found = asked(task, recipe="table", **given).values
    assert "dropout" in found
    assert "pool" not in found
    assert "label_smoothing" not in found  # measured for one class per sequence
    mean = asked(task, recipe="table", **given, pool="mean")
    with pytest.raises(ArgumentError, match=f"Expected --pool only for one prediction .* --pool mean for {task}, "):
        mean.of_model(mean.make_task())
    last = asked(task, recipe="none", **given, pool="last")
    assert last.of_model(last.make_task())["pool"] == "last"


@pytest.mark.parametrize("name", RECIPES)
def test_the_candidates_of_a_search_have_the_options_of_a_recipe_for_its_model(name):
    """A search tried blocks without what the default has, so that it could find a worse network than the default."""
    found, own = asked(recipe=name, model="auto").chosen, RECIPES[name].values(skipped=16)
    assert (SKIPPED in RECIPES[name].options.values()) == (name == "forecast")
    known = {*MODELS["blocks"].options(), "parameters"}
    left = {"model", "decay", "decay_in", "hidden_size"}
    assert found == {
        key: value for key, value in own.items() if key not in left and (key in known or key not in MODEL_OPTIONS)
    }
