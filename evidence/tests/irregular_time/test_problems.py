"""What is drawn: samples are where their times say, and sets lose rows, not answers."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from orthornn.learn.tasks.streams import stream
from orthornn_evidence.irregular_time import problems
from orthornn_evidence.irregular_time.problems import POINTS, PROBLEMS, SYSTEM, frequencies, system_forecasts, thinned


@pytest.mark.parametrize("dropped", [0.0, 0.3, 0.9])
def test_samples_are_where_the_times_say(dropped, monkeypatch):
    monkeypatch.setattr(problems, "_NOISE", 0.0)
    inputs, targets = frequencies(np.random.default_rng(0), 50, dropped)
    kept = round(POINTS * (1 - dropped))
    assert inputs.shape == (kept, 50, 2)
    times = inputs[..., 1].cumsum(0).double().numpy()
    assert times.min() >= 1
    assert times.max() <= POINTS
    assert (np.diff(times, axis=0) >= 1).all()
    low, high = problems._FREQUENCIES
    omega = targets[:, 0].double().numpy() * math.sqrt((high - low) ** 2 / 12) + (low + high) / 2
    assert low <= omega.min() <= omega.max() <= high
    # Without noise, x is a solution of the oscillator's equation: its envelope falls, and it fits sin and cos of omega.
    x = inputs[..., 0].double().numpy()
    for b in range(50):
        fits = []
        for decay in np.linspace(*problems._DECAYS, 201):
            waves = np.exp(-decay * times[:, b : b + 1]) * np.stack(
                [np.cos(omega[b] * times[:, b]), np.sin(omega[b] * times[:, b])], 1
            )
            fits.append(np.linalg.norm(waves @ np.linalg.lstsq(waves, x[:, b], rcond=None)[0] - x[:, b]))
        assert min(fits) < 1e-2


def test_a_forecast_is_where_the_system_goes_from_its_samples(monkeypatch):
    monkeypatch.setattr(problems, "_NOISE", 0.0)
    inputs, answers = system_forecasts(np.random.default_rng(0), 20, 0.7)
    assert inputs.shape == (31, 20, 2)
    assert not inputs[-1, :, 0].any()
    times = inputs[..., 1].cumsum(0).double().numpy()
    omega, decay = map(np.array, SYSTEM)
    for b in range(20):
        at = times[:, b, None]
        modes = np.concatenate([np.exp(-decay * at) * np.cos(omega * at), np.exp(-decay * at) * np.sin(omega * at)], 1)
        weights = np.linalg.lstsq(modes[:-1], inputs[:-1, b, 0].double().numpy(), rcond=None)[0]
        assert modes[-1] @ weights == pytest.approx(float(answers[b, 0]), abs=1e-4)


@pytest.mark.parametrize("dropped", [0.0, 0.4, 0.9])
def test_thinned_sequences_have_rows_of_the_whole_ones_at_their_times(dropped):
    whole = np.random.default_rng(1).normal(size=(7, 30, 2)).astype(np.float32)
    rows = thinned(np.random.default_rng(2), whole, dropped)
    assert rows.shape == (round(30 * (1 - dropped)), 7, 3)
    places = rows[..., 2].cumsum(0).long() - 1
    for b in range(7):
        torch.testing.assert_close(rows[:, b, :2], torch.from_numpy(whole[b, places[:, b]]), rtol=0, atol=0)


@pytest.mark.parametrize(("name", "rows", "inputs", "classes"), [("sensors", 12, 10, 6), ("events", 45, 2, 4)])
def test_sets_have_fewer_rows_and_all_answers(name, rows, inputs, classes, tmp_path):
    problem = PROBLEMS[name](tmp_path, 0.7)
    assert (problem.inputs, problem.outputs) == (inputs, classes)
    answers = 0
    for part in ("train", "validation", "test"):
        x, y = problem.part(part)
        assert x.shape == (rows, len(y), inputs)
        assert {*y.tolist()} == {*range(classes)}
        answers += len(y)
    assert answers == {"sensors": 24 * 18, "events": 480}[name]
    x, y = problem.batch(3, 5, 16)
    again, _ = PROBLEMS[name](tmp_path, 0.7).batch(3, 5, 16)
    assert torch.equal(x, again)
    assert not torch.equal(x, problem.batch(4, 5, 16)[0])
    right = torch.nn.functional.one_hot(y, classes).float()
    assert problem.error(right, y) == 0
    assert problem.error(right.roll(1, 1), y) == 1


@pytest.mark.parametrize("name", ["forecast", "frequency"])
def test_the_error_of_an_answer_without_the_input_is_one(name, tmp_path):
    problem = PROBLEMS[name](tmp_path, 0.9)
    _, answers = problem.part("test")
    assert problem.error(torch.zeros_like(answers), answers) == pytest.approx(1, abs=0.1)
    assert not torch.equal(answers, problem.part("validation")[1])
    draw = {"forecast": system_forecasts, "frequency": frequencies}[name]
    assert torch.equal(problem.batch(1, 2, 4)[1], draw(stream("train", 1, 2), 4, 0.9)[1])
    assert not torch.equal(problem.batch(1, 2, 4)[1], problem.batch(2, 2, 4)[1])
