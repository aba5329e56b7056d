"""Trainings are stored one by one, and the same command resumes."""

from __future__ import annotations

import json

import pytest

from orthornn.errors import ArgumentError
from orthornn_evidence.popgym import runs


@pytest.fixture
def trained(monkeypatch):
    """Trainings that are not made: the better the nearer to 3e-3, and the seed as a digit."""
    made = []

    def train(name, memory, recipe, seed):
        made.append((name, memory, recipe.lr, seed))
        if len(made) == 4 and name == "Interrupted":
            raise KeyboardInterrupt
        best = (0.5 if recipe.lr == 3e-3 else 0.2) + seed / 100_000
        return {"memory": memory, "lr": recipe.lr, "seed": seed, "best": best, "means": [best], "steps": [recipe.steps]}

    monkeypatch.setattr(runs, "train", train)
    return made


def test_the_best_rate_of_a_sweep_is_trained_with_all_seeds(trained, tmp_path):
    words = ["--environments", "Some", "--memories", "gru", "--seeds", "2", "--out", str(tmp_path)]
    assert runs.main(words) == 0
    assert trained == [
        ("Some", "gru", 1e-3, runs.SWEEP),
        ("Some", "gru", 3e-3, runs.SWEEP),
        ("Some", "gru", 3e-3, 0),
        ("Some", "gru", 3e-3, 1),
    ]
    record = json.loads((tmp_path / "Some.json").read_text())
    (score,) = runs.scores(record).values()
    assert (score.rate, score.scores, score.steps) == (3e-3, [0.5, 0.50001], runs.Recipe.steps)
    assert score.mean == pytest.approx(0.500005)
    assert score.deviation == pytest.approx(0.00001 / 2**0.5)
    runs.main(words)  # all is there
    assert len(trained) == 4


def test_an_interrupted_command_resumes(trained, tmp_path):
    words = ["--environments", "Interrupted", "--memories", "blocks", "--out", str(tmp_path)]
    with pytest.raises(KeyboardInterrupt):
        runs.main(words)
    record = json.loads((tmp_path / "Interrupted.json").read_text())
    assert len(record["runs"]) == 3
    assert runs.scores(record) == {}  # unfinished
    runs.main(words)
    assert [each[2:] for each in trained[4:]] == [(3e-3, 1), (3e-3, 2)]


def test_another_recipe_is_refused(trained, tmp_path):
    words = ["--environments", "Some", "--memories", "lstm", "--out", str(tmp_path)]
    runs.main(words)
    with pytest.raises(ArgumentError, match=r"recipe of .*Some.json"):
        runs.main([*words, "--steps", "5"])
    with pytest.raises(ArgumentError, match=r"rates of .*, but got \[0.1\]"):
        runs.main([*words, "--rates", "0.1"])


def test_wrong_options(tmp_path):
    with pytest.raises(ArgumentError, match=r"memory .* got 'GRU'.* Did you mean 'gru'"):
        runs.main(["--memories", "GRU", "--out", str(tmp_path)])


def test_a_training_is_an_entry_of_the_results(monkeypatch, tmp_path):
    pytest.importorskip("popgym", reason="popgym is not installed: pip install -e evidence")
    recipe = runs.Recipe(steps=300, environments=5, length=60, epochs=1)
    found = runs.train("CountRecallEasy", "gru", recipe, 7)
    assert (found["memory"], found["lr"], found["seed"], found["steps"]) == ("gru", 1e-3, 7, [300])
    assert found["best"] == pytest.approx(found["means"][0], abs=1e-5)
    assert found["parameters"] > 100_000
    json.dumps(found)


def test_published_scores_are_of_environments_of_the_package():
    pytest.importorskip("popgym", reason="popgym is not installed: pip install -e evidence")
    from orthornn_evidence.popgym.environments import make

    published = json.loads((runs.Path(__file__).parents[3] / "results/popgym/published.json").read_text())["scores"]
    assert all(make(name) for name in published)
    assert len(set(published) & set(runs.ENVIRONMENTS)) >= 15
    assert all(entry["best"] >= entry["GRU"] for entry in published.values())
