"""The page of results on many sets says what is stored, losses included."""

from __future__ import annotations

import pytest

from orthornn_evidence.own_data.cells import OPTIONS, recipe_words
from orthornn_evidence.own_data.page import level, page


def runs(name, method, values, metric="accuracy", **more):
    task = "classify" if metric == "accuracy" else "regress"
    words = recipe_words(task, method)
    entry = {"set": name, "method": method, "task": task, "words": words, "cpu_seconds": 1.0, **more}
    return [{**entry, "seed": seed, "test": {metric: value}} for seed, value in enumerate(values)]


def about(name, value, metric="accuracy"):
    method = {"name": "ridge", "validation": {metric: value}, "test": {metric: value}}
    entry = {"set": name, "metric": metric, "higher_is_better": metric == "accuracy", "pieces": [3, 2, 1]}
    return {**entry, "methods": [method]}


def test_wins_and_losses_are_counted_by_the_direction_of_the_metric():
    stored = runs("sensors", "default", [0.8, 0.82, 0.81]) + runs("sensors", "lstm", [0.5, 0.52, 0.51])
    stored += runs("oscillator", "default", [0.3, 0.31], "loss") + runs("oscillator", "lstm", [0.1, 0.5], "loss")
    sets = {"sensors": about("sensors", 0.95), "oscillator": about("oscillator", 0.5, "loss")}
    text = page(sets, stored)
    lines = text.splitlines()
    assert "| sensors | 81.0 ± 1.0 | 51.0 ± 1.0 | **95.0** |" in lines
    assert "| oscillator | 305 ± 7 (2) | **300 ± 283 (2)** | 500 |" in lines
    assert "| lstm | 1 | 1 | 0 |" in lines
    assert "| plain | 1 | 0 | 1 |" in lines
    assert "- The default is better than the LSTM on 1 of 2 data sets, level on 1, and worse on none." in lines
    assert (
        "- A plain method is better than the default on sensors (ridge 95.0, default 81.0); accuracy in percent."
        in lines
    )
    assert "the LSTM and the GRU are better" not in text
    stored = [entry for entry in stored if entry["set"] == "sensors"]
    stored += runs("oscillator", "default", [0.3, 0.31], "loss") + runs("oscillator", "lstm", [0.1, 0.11], "loss")
    assert "the LSTM and the GRU are better" in page(sets, stored)


def test_random_convolutions_have_columns_verdicts_and_ranks():
    sets = {}
    for name, rocket in (("sensors", 0.9), ("digits", 0.7)):
        sets[name] = about(name, 0.5)
        test = {"validation": {"accuracy": 0.1}, "test": {"accuracy": rocket}}
        sets[name]["methods"] += [{"name": one, **test} for one in ("MiniRocket", "Hydra with MultiRocket")]
    stored = [one for name in sets for one in runs(name, "default", [0.8, 0.81, 0.79])]
    lines = page(sets, stored).splitlines()
    assert "| set | default | MiniRocket | Hydra with MultiRocket | plain |" in lines
    assert "| sensors | 80.0 ± 1.0 | **90.0** | **90.0** | 50.0 |" in lines
    assert "- The default is better than MiniRocket on 1 of 2 data sets, level on 0, and worse on 1: sensors." in lines
    (ranks,) = [line for line in lines if line.startswith("- Mean rank")]
    assert ranks.endswith("default 2.00, MiniRocket 2.00, Hydra with MultiRocket 2.00.")


def test_trainings_of_another_recipe_are_left_out():
    changed = runs("sensors", "gru", [0.9], words="--model gru")
    text = page({"sensors": about("sensors", 0.5)}, changed + runs("sensors", "default", [0.8]))
    assert "| sensors | **80.0 (1)** | 50.0 |" in text
    assert "90.0" not in text


@pytest.mark.parametrize(("one", "other", "expected"), [([1, 1.1], [1.05, 1.2], True), ([1, 1.01], [2, 2.01], False)])
def test_level_is_what_the_seeds_leave_open(one, other, expected):
    assert level(one, other) is level(other, one) is expected


def test_one_seed_has_the_noise_of_the_other_method():
    assert level([0.80, 0.82, 0.81], [0.825])
    assert not level([0.80, 0.82, 0.81], [0.90])
    assert not level([0.8], [0.9])


def test_the_tables_are_as_wide_as_the_page():
    stored = []
    for name, metric in (("ItalyPowerDemand", "accuracy"), ("oscillator", "loss")):
        for method in OPTIONS:
            stored += runs(name, method, [0.8123, 0.9234, 0.8345], metric)
    long = {
        "name": "gradient boosting on summary features",
        "validation": {},
        "test": {"accuracy": 0.5, "loss": 0.0123},
    }
    sets = {
        name: {**about(name, 0.5, metric), "pieces": [1020, 180, 1029], "methods": [long]}
        for name, metric in (("ItalyPowerDemand", "accuracy"), ("oscillator", "loss"))
    }
    rows = [line.replace("*", "") for line in page(sets, stored).splitlines() if line.startswith("|")]
    assert max(len(row) for row in rows if "`" not in row) <= 100
    assert max(row.count("|") for row in rows) <= 8
