"""The trainings: every network in turn, resumed where the file ends."""

from __future__ import annotations

import json

import pytest

from orthornn.errors import ArgumentError
from orthornn_evidence.irregular_time import runs
from orthornn_evidence.irregular_time.runs import NETWORKS, RATES, Budget, best_rate, run
from orthornn_evidence.irregular_time.table import irregular

TINY = Budget(updates=2, batch=3, seeds=2, parameters=600)


@pytest.fixture
def small(monkeypatch):
    monkeypatch.setattr(runs, "SHARES", {"forecast": (0.9,), "events": (0.9,)})
    monkeypatch.setattr("orthornn_evidence.irregular_time.table.SHARES", runs.SHARES)


@pytest.mark.parametrize("problem", ["forecast", "events"])
def test_it_trains_every_network_and_resumes(problem, small, tmp_path, monkeypatch):
    file = tmp_path / "irregular_time" / f"{problem}.json"
    file.parent.mkdir()
    made = runs.trained
    left = iter(range(7))

    def until_interrupted(*given):
        if next(left, None) is None:
            raise KeyboardInterrupt
        return made(*given)

    monkeypatch.setattr(runs, "trained", until_interrupted)
    with pytest.raises(KeyboardInterrupt):
        run(file, problem, TINY)
    half = json.loads(file.read_text())["runs"]
    assert len(half) == 7
    assert "unfinished" in irregular(tmp_path, problem)
    monkeypatch.setattr(runs, "trained", made)
    run(file, problem, TINY)
    record = json.loads(file.read_text())
    assert record["runs"][:7] == half
    assert len(record["runs"]) == len(NETWORKS) * (len(RATES) + TINY.seeds - 1)
    assert [one["seed"] for one in record["runs"][: len(RATES) + 1]] == [0] * len(RATES) + [1]
    assert all(0 < one["parameters"] <= 600 for one in record["runs"])
    assert record["environments"][record["runs"][-1]["environment"]]["torch"]
    before = file.read_bytes()
    run(file, problem, TINY)
    assert file.read_bytes() == before
    lines = irregular(tmp_path, problem).splitlines()
    assert "90 % dropped" in lines[0]
    assert len(lines) == 2 + len(NETWORKS)
    assert float(irregular(tmp_path, problem, "0.9")) >= float(irregular(tmp_path, problem, "0.9", "LSTM")) > 0
    with pytest.raises(ArgumentError, match="updates"):
        run(file, problem, Budget(updates=3))


def test_the_rate_is_the_best_of_a_whole_sweep():
    sweep = [{"rate": rate, "seed": 0, "validation": float(place)} for place, rate in enumerate(RATES)]
    assert best_rate(sweep[1:]) is None
    assert best_rate([*sweep, {"rate": RATES[-1], "seed": 1, "validation": -1.0}]) == RATES[0]


def test_the_command_trains_the_shares_that_are_named(monkeypatch, tmp_path):
    asked = []
    monkeypatch.setattr(runs, "run", lambda file, name, budget, shares: asked.append((file, name, list(shares))))
    out = tmp_path / "out"
    assert runs.main(["--problems", "forecast", "frequency", "--dropped", "0.3", "0.1", "--out", str(out)]) == 0
    assert asked == [
        (out / "forecast.json", "forecast", [0.1, 0.3]),
        (out / "frequency.json", "frequency", [0.1]),
    ]
    asked.clear()
    assert runs.main(["--problems", "events", "--out", str(out)]) == 0
    assert asked == [(out / "events.json", "events", [])]
