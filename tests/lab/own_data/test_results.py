"""The page of results on many sets says what is stored, losses included."""

from __future__ import annotations

import json

import pytest

from orthornn.lab.own_data import results
from orthornn.lab.own_data.sets import SETS, Places


def store(folder, name, method, values, metric="accuracy"):
    for seed, value in enumerate(values):
        entry = {"set": name, "method": method, "seed": seed, "test": {metric: value}, "cpu_seconds": 1.0}
        (folder / f"{name}-{method}-seed{seed}.json").write_text(json.dumps(entry))


def store_plain(folder, name, value, metric="accuracy"):
    method = {"name": "ridge", "validation": {metric: value}, "test": {metric: value}}
    entry = {"set": name, "metric": metric, "higher_is_better": metric == "accuracy", "pieces": [3, 2, 1]}
    (folder / f"{name}-plain.json").write_text(json.dumps({**entry, "methods": [method]}))


def test_wins_and_losses_are_counted_by_the_direction_of_the_metric(tmp_path):
    store_plain(tmp_path, "sensors", 0.95)
    store(tmp_path, "sensors", "default", [0.8, 0.82, 0.81])
    store(tmp_path, "sensors", "lstm", [0.5, 0.52, 0.51])
    store_plain(tmp_path, "oscillator", 0.5, "loss")
    store(tmp_path, "oscillator", "default", [0.3, 0.31], "loss")
    store(tmp_path, "oscillator", "lstm", [0.1, 0.5], "loss")
    lines = results.page(tmp_path).splitlines()
    assert "| sensors (accuracy) | 3, 2, 1 | 81.0 ± 1.0 | 51.0 ± 1.0 | 95.0, ridge |" in lines
    assert "| oscillator (loss) | 3, 2, 1 | 0.305 ± 0.00707 (2) | 0.3 ± 0.283 (2) | 0.5, ridge |" in lines
    assert "| lstm | 1 | 1 | 0 |" in lines
    assert "| best plain method | 1 | 0 | 1 |" in lines


@pytest.mark.parametrize(("one", "other", "expected"), [([1, 1.1], [1.05, 1.2], True), ([1, 1.01], [2, 2.01], False)])
def test_level_is_what_the_seeds_leave_open(one, other, expected):
    assert results.level(one, other) is results.level(other, one) is expected


def test_a_set_that_is_made_is_the_same_each_time_and_is_run_once(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(results, "STEPS", 2)
    first, second = (SETS["events"](Places(tmp_path / name)) for name in "ab")
    assert next(first.test(5)).targets.tolist() == next(second.test(5)).targets.tolist()
    words = ["run", "--made", str(tmp_path / "a"), "--out", str(tmp_path / "out"), "--sets", "events", "--seeds", "1"]
    assert results.main([*words, "--methods", "default", "gru"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 3
    assert results.main([*words, "--methods", "default", "gru"]) == 0
    assert not capsys.readouterr().out
    stored = json.loads((tmp_path / "out" / "events-default-seed0.json").read_text())
    assert stored["updates"] == 2
    assert 10_000 < stored["parameters"] <= 12_000
    assert results.main(["page", "--out", str(tmp_path / "out"), "--page", str(tmp_path / "page.md")]) == 0
    assert "| events (accuracy) |" in (tmp_path / "page.md").read_text()
    assert results.main([*words[:-3], "digits", "--seeds", "1"]) == 2
    assert "Expected a folder of digits" in capsys.readouterr().err


STRANGE = ["[1]", "{", "[" * 100_000, '{"methods": 3}', '{"a": ' + "1" * 5000 + "}", '{"set": "a", "set": "b"}', "\xff"]
STRANGE += [
    '{"set": "sensors", "method": "gru", "seed": 0, "cpu_seconds": 1, "validation": {}, "test": {"accuracy": NaN}}'
]
STRANGE += ['{"set": "sensors", "method": "gru", "seed": 0, "cpu_seconds": 1, "validation": {}, "test": {}}']
STRANGE += [
    '{"set": "sensors", "method": "gru", "seed": 0, "cpu_seconds": 1' + "0" * 400 + ', "validation": {}, "test": {}}'
]


@pytest.mark.parametrize("text", STRANGE, ids=lambda text: text[:12])
def test_a_file_that_is_no_result_is_one_error(text, tmp_path, capsys):
    store_plain(tmp_path, "sensors", 0.95)
    store(tmp_path, "sensors", "default", [0.8, 0.82])
    (tmp_path / "sensors-gru-seed0.json").write_text(text, encoding="latin-1")
    (tmp_path / "page.md").write_text("before")
    assert results.main(["page", "--out", str(tmp_path), "--page", str(tmp_path / "page.md")]) == 2
    said = capsys.readouterr().err
    assert said.startswith("orthornn: ")
    assert len(said) < 700
    assert "sensors" in said
    assert (tmp_path / "page.md").read_text() == "before"
