"""A threshold is the best one by its metric, and predictions, metrics and stored runs follow it."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

from orthornn.cli import main
from orthornn.errors import ArgumentError, DataError, OrthornnWarning
from orthornn.learn.predict import load
from orthornn.learn.systems import model_named
from orthornn.learn.tasks import Classify
from orthornn.learn.tasks.classification_metrics import classification_scores
from orthornn.learn.tasks.decision_threshold import METRICS, best_threshold, decided, decided_of, read_threshold
from orthornn.learn.training import RunConfig, train


def value(probabilities, second, threshold, metric):
    pairs = np.stack([1 - probabilities, probabilities], 1)
    if metric == "accuracy":
        return float(((probabilities >= threshold) == second).mean())
    return classification_scores(pairs, second.astype(int), threshold)[metric]


@pytest.mark.sampled(1)
@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("seed", range(6))
def test_no_threshold_is_better(metric, seed):
    random = np.random.default_rng(seed)
    second = random.random(37) < (0.1, 0.3, 0.5, 0.9, 0.0, 1.0)[seed]
    probabilities = np.clip(random.normal(0.3 + 0.2 * second, 0.2), 0.001, 0.999).round(2 if seed % 2 else 6)
    found = best_threshold(probabilities, second, metric)
    assert 0 < found < 1
    everywhere = np.linspace(0.0005, 0.9995, 2000)
    best = max(value(probabilities, second, one, metric) for one in everywhere)
    assert value(probabilities, second, found, metric) >= best - 1e-12
    if value(probabilities, second, 0.5, metric) >= best - 1e-12:
        assert found == 0.5
    assert found == 0.5 or np.abs(probabilities - found).min() > 1e-7  # between two, so that rounding decides nothing


def test_a_decision_is_the_same_from_outputs_and_from_probabilities():
    outputs = torch.randn(50, 2, dtype=torch.float64)
    probabilities = outputs.softmax(-1)
    for threshold in (None, 0.1, 0.5, 0.8):
        found = decided(outputs, threshold)
        assert (found.numpy() == decided_of(probabilities.numpy(), threshold)).all()
        assert decided(outputs.reshape(5, 10, 2), threshold).shape == (5, 10)
    assert (decided(outputs, 0.5) == decided(outputs, None)).all()


def rare(path, count=80):
    """Sequences of which every eighth is of the class yes; x says a little about it."""
    random = np.random.default_rng(2)
    lines = ["id,x,kind"]
    for number in range(count):
        yes = number % 8 == 0
        values = random.standard_normal(4) + 1.2 * yes
        lines += [f"{number},{x:.4f},{'yes' if yes else 'no'}" for x in values]
    path.write_text("\n".join(lines) + "\n")
    return str(path)


def test_a_run_stores_the_threshold_that_validation_chose_and_uses_it(tmp_path, capsys):
    data = rare(tmp_path / "data.csv")
    words = [
        "train",
        data,
        "--target",
        "kind",
        "--sequence",
        "id",
        "--model",
        "lstm",
        "--hidden-size",
        "4",
        "--steps",
        "8",
    ]
    words += ["--validate-every", "2", "--validation-share", "0.3", "--threshold", "balanced_accuracy", "--out"]
    assert main([*words, str(tmp_path / "run")]) == 0
    shown = capsys.readouterr().out
    assert "threshold: yes from a probability of" in shown
    assert "by balanced_accuracy on validation" in shown
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    loaded = load(tmp_path / "run")
    assert loaded.threshold == result["threshold"]
    task, model = loaded.config.task, loaded.model

    def probabilities(batches):
        with torch.no_grad():
            pairs = [(model(inputs).double().softmax(-1), targets) for inputs, targets in batches]
        return [torch.cat([pair[place] for pair in pairs]).numpy() for place in (0, 1)]

    seen, classes = probabilities(task.problem().validation(50))
    own, usual = (classification_scores(seen, classes, one)["balanced_accuracy"] for one in (loaded.threshold, None))
    assert own >= usual
    assert own == max(
        classification_scores(seen, classes, one)["balanced_accuracy"] for one in (0.5, *np.unique(seen[:, 1]))
    )
    seen, classes = probabilities(task.problem().test(50))
    accuracy = float((decided_of(seen, loaded.threshold) == classes).mean())
    assert result["best_test"]["accuracy"] == pytest.approx(accuracy)
    assert main(["evaluate", str(tmp_path / "run")]) == 0
    assert f"accuracy {accuracy:.6g}" in capsys.readouterr().out
    found = loaded.tables.predict(data)
    labels = ["yes" if said.scores[0, 1] >= loaded.threshold else "no" for _, said in found]
    assert [str(said.labels[0]) for _, said in found] == labels
    there = [one.targets[-1] for one in loaded.tables._series(data, True)]
    right = np.mean([label == wanted for label, wanted in zip(labels, there)])
    assert loaded.tables.evaluate(data)["accuracy"] == pytest.approx(right)
    if result["best"]["step"] != result["steps"]:
        with pytest.warns(OrthornnWarning, match="no threshold was chosen for these weights"):
            assert load(tmp_path / "run", "last").threshold is None
    (tmp_path / "run" / "result.json").unlink()
    with pytest.warns(OrthornnWarning, match="the likelier class is predicted"):
        assert load(tmp_path / "run").threshold is None


def test_a_number_is_the_threshold(tmp_path):
    task = Classify(data=rare(tmp_path / "data.csv"), target="kind", sequence="id", threshold="0.001")
    result = train(
        RunConfig(task=task, model=model_named("lstm", hidden_size=3), steps=1, batch_size=8), tmp_path / "run"
    )
    assert result.threshold == 0.001
    loaded = load(tmp_path / "run")
    assert {str(said.labels[0]) for _, said in loaded.tables.predict(task.data)} == {"yes"}
    assert result.best_test["accuracy"] < 0.5


def test_what_is_no_threshold(tmp_path):
    for text in ("0", "1", "1.5", "nan", "recall", ""):
        with pytest.raises(ArgumentError, match="Expected a number between 0 and 1 or one of accuracy"):
            read_threshold(text)
        with pytest.raises(ArgumentError, match="for threshold"):
            Classify(threshold=text)
    (tmp_path / "three.csv").write_text("id,x,k\n" + "".join(f"{i},{i}.5,{'abc'[i % 3]}\n" for i in range(12)))
    with pytest.raises(DataError, match=r"Expected 2 classes for threshold='f1'.*has 3"):
        Classify(data=str(tmp_path / "three.csv"), target="k", sequence="id", threshold="f1").problem()


@pytest.mark.parametrize("metric", METRICS)
def test_a_chosen_threshold_is_inside_and_does_what_it_was_chosen_for(metric):
    """Also where probabilities are 0 or 1 to the last digit: 1.0 was chosen to reject all, and accepts those."""
    for probabilities in ([1.0, 1.0, 1.0, 1.0, 1.0], [0.0, 0.0, 1.0, 1.0, 1.0], [0.3, 1 - 2**-53, 1.0, 1.0, 0.0]):
        found = best_threshold(np.array(probabilities), np.array([True, False, False, False, False]), metric)
        assert 0 < found < 1
