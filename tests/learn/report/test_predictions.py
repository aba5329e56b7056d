"""Figures of predictions hold the numbers of the test part."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest

from orthornn.learn.report.page import draw, page
from orthornn.learn.report.pictures import as_svg, best_groups
from orthornn.learn.report.predictions import (
    Predictions,
    calibration_error,
    confusion,
    prediction_figures,
    predictions,
)
from orthornn.learn.report.runs import best_of, groups, names_of, read_runs
from orthornn.learn.systems import model_named
from orthornn.learn.tasks import Classify, Forecast, Regress
from orthornn.learn.training import OptimizerConfig, RunConfig, load_model, train
from support.run_cases import entries

STEPS = 6


def rows(count=40):
    random = np.random.default_rng(2)
    kinds = np.arange(count) % 3
    x = np.repeat(kinds, STEPS) + 0.1 * random.standard_normal(count * STEPS)
    return {
        "x": x,
        "sequence": np.repeat(np.arange(count), STEPS),
        "kind": np.repeat(kinds, STEPS),
        "level": x * 10 + 5,
    }


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Three kinds of targets, and two seeds and two sizes of the first."""
    folder = tmp_path_factory.mktemp("predictions")
    np.savez(folder / "data.npz", **rows())
    data = str(folder / "data.npz")
    tasks = {
        "classify": Classify(data=data, target="kind", inputs="x"),
        "steps": Classify(data=data, target="kind", inputs="x", every_step=True),
        "regress": Regress(data=data, target="level", inputs="x"),
        "forecast": Forecast(data=data, target="level", inputs="x,level", skipped=2),
    }
    for name, task in tasks.items():
        config = RunConfig(
            task=task,
            model=model_named("lstm", hidden_size=5),
            optimizer=OptimizerConfig(lr=0.03),
            steps=30,
            batch_size=8,
            validate_every=10,
        )
        train(config, folder / name / "lstm")
    return folder


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", ["classify", "steps"])
def test_classes(runs, name):
    (run,) = read_runs([runs / name])
    config, model = load_model(run.path, "best")
    found = predictions(model, config.task)
    assert (found.outputs.argmax(1) == found.targets).mean() == pytest.approx(run.result["best_test"]["accuracy"])
    figures, notes = prediction_figures([run])
    assert [title.split(",")[0] for title in figures] == ["confusion on the test part", "calibration on the test part"]
    assert not notes
    texts = re.findall(r">([^<>]+)</text>", as_svg(figures["confusion on the test part, lstm"]))
    counts = np.zeros((3, 3), int)
    np.add.at(counts, (found.targets, found.outputs.argmax(1)), 1)
    assert {str(count) for count in counts.ravel() if count} <= set(texts)


@pytest.mark.parametrize("name", ["regress", "forecast"])
def test_numbers(runs, name):
    (run,) = read_runs([runs / name])
    config, model = load_model(run.path, "best")
    found = predictions(model, config.task)
    assert ((found.outputs - found.targets) ** 2).mean() == pytest.approx(run.result["best_test"]["loss"], rel=1e-4)
    figures, notes = prediction_figures([run])
    assert list(figures) == ["predictions on the test part, lstm"]
    assert not notes
    assert "level" in as_svg(figures["predictions on the test part, lstm"])


def test_data_that_are_gone_are_a_note(runs, tmp_path):
    import dataclasses

    (run,) = read_runs([runs / "classify"])
    task = dataclasses.replace(run.config.task, data=str(tmp_path / "gone.npz"))
    (tmp_path / "run").mkdir()
    text = (run.path / "config.json").read_text().replace(run.config.task.data, task.data)
    for file in run.path.iterdir():
        if file.is_file() and file.name != ".lock":
            (tmp_path / "run" / file.name).write_bytes(file.read_bytes())
    (tmp_path / "run" / "config.json").write_text(text)
    (tmp_path / "run" / "config.json").write_text(json.dumps(entries(tmp_path / "run" / "config.json")))
    found = read_runs([tmp_path / "run"])
    drawn, notes = draw(found)
    assert any("gone.npz" in note for note in notes)
    assert not any("confusion" in title for title in drawn)
    assert "gone.npz" in page(found, {}, notes)


def test_calibration_by_hand():
    certain = Predictions(np.array([[50.0, 0], [50, 0], [0, 50], [0, 50]]), np.array([0, 1, 1, 1]))
    assert calibration_error(certain) == pytest.approx(0.25)
    even = Predictions(np.zeros((4, 2)), np.array([0, 1, 0, 1]))
    assert calibration_error(even) == pytest.approx(0)
    # two bins whose errors do not cancel: .9 sure and never right, .6 sure and always right
    logit = np.log([9.0, 1.5])
    mixed = Predictions(np.array([[logit[0], 0], [logit[1], 0]]), np.array([1, 0]))
    assert calibration_error(mixed) == pytest.approx((0.9 + 0.4) / 2)


@pytest.mark.parametrize("count", [2, 15, 60])
def test_confusion_of_many_classes(count):
    found = Predictions(np.eye(count), np.arange(count)[::-1].copy())
    axes = confusion(found, [f"class {'x' * place}" for place in range(count)]).axes[0]
    assert axes.images[0].get_array().shape == (count, count)
    assert len(axes.texts) == (count if count <= 15 else 0)


def test_names_the_best_and_the_colored_of_many(runs):
    import dataclasses

    (run,) = read_runs([runs / "classify"])
    made = []
    for place in range(100):
        model = dataclasses.replace(run.config.model, hidden_size=place + 1)
        result = {**run.result, "best": {"accuracy": place / 100}, "best_test": {"accuracy": 0.5, "loss": 1.0}}
        config = dataclasses.replace(run.config, model=model)
        made.append(dataclasses.replace(run, path=run.path.parent / str(place) / "lstm", config=config, result=result))
    unfinished = dataclasses.replace(made[0], path=run.path.parent / "unfinished", result=None)
    assert best_of([unfinished, *made]) is made[99]
    assert best_of([unfinished]) is None
    assert names_of(made)[:2] == ["0/lstm", "1/lstm"]
    assert names_of([made[0], unfinished]) == ["lstm", "unfinished"]
    colored = best_groups(groups(made))
    assert len(colored) == 7
    assert all(f"hidden_size={place + 1}" in " ".join(colored) for place in range(93, 100))
    text = page(made, {})
    assert text.count("<details>") == 3  # results, what differs, machines
    assert "Best by validation: 99/lstm (validation accuracy 0.99, test accuracy 0.5)" in text
