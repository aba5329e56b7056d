"""The page of results on many sets says what is stored, losses included."""

from __future__ import annotations

import pytest

from orthornn.lab.own_data.cells import OPTIONS
from orthornn.lab.own_data.page import level, page


def runs(name, method, values, metric="accuracy", **more):
    entry = {"set": name, "method": method, "options": OPTIONS[method], "cpu_seconds": 1.0, "limit": 600, **more}
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
    assert "| sensors (accuracy) | 3, 2, 1 | 81.0 ± 1.0 | 51.0 ± 1.0 | 95.0, ridge |" in lines
    assert "| oscillator (loss) | 3, 2, 1 | 0.305 ± 0.00707 (2) | 0.3 ± 0.283 (2) | 0.5, ridge |" in lines
    assert "| lstm | 1 | 1 | 0 |" in lines
    assert "| best plain method | 1 | 0 | 1 |" in lines
    assert "200 updates" not in text


def test_shorter_trainings_of_before_are_never_next_to_those_of_the_command():
    old = runs("sensors", "default", [0.1, 0.2]) + runs("sensors", "lstm", [0.3, 0.4])
    old += runs("events", "default", [0.6, 0.6]) + runs("events", "lstm", [0.7, 0.7])
    for entry in old:
        del entry["limit"]
    changed = runs("sensors", "gru", [0.9], options="--model gru")
    sets = {name: about(name, 0.5) for name in ("sensors", "events")}
    text = page(sets, old + changed + runs("sensors", "default", [0.8]))
    assert "| sensors (accuracy) | 3, 2, 1 | 80.0 (1) |  | 50.0, ridge |" in text
    assert "| events (accuracy) \\* | 3, 2, 1 | 60.0 ± 0.0 (2) | 70.0 ± 0.0 (2) | 50.0, ridge |" in text
    assert "measured with 200 updates" in text
    assert "90.0" not in text


@pytest.mark.parametrize(("one", "other", "expected"), [([1, 1.1], [1.05, 1.2], True), ([1, 1.01], [2, 2.01], False)])
def test_level_is_what_the_seeds_leave_open(one, other, expected):
    assert level(one, other) is level(other, one) is expected
