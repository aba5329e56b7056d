"""A network that reads the last steps begins as the regression that validation prefers."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from orthornn.learn.systems import build, model_named
from orthornn.learn.tasks import Forecast
from orthornn.learn.tasks.abilities import plain_baselines
from orthornn.learn.tasks.linear_start import start_linear
from orthornn.learn.tasks.plain_baselines import last_steps
from orthornn.learn.training import RunConfig
from orthornn.learn.training.trainer import Trainer


@pytest.mark.parametrize("alpha", [1.0, 0.6, 0.3])
@pytest.mark.parametrize("later", [0, 3])
def test_exponential_smoothing_of_each_target_is_found_from_fewer_rows_than_inputs(alpha, later):
    random, lags, inputs = np.random.default_rng(0), 9, 4 + later
    rows = random.standard_normal((40, inputs))
    x = last_steps(rows, np.array([40]), lags, later)[lags:]
    smooth = alpha * (1 - alpha) ** np.arange(lags)
    places, factors = [2, 0], [3.0, 0.5]
    history = np.stack([rows[lags - back : 40 - back] for back in range(lags)])
    y = np.tensordot(smooth / smooth.sum(), history[:, :, places], 1) * factors
    y = np.concatenate([y, y], 1)  # two steps ahead
    model = build("gru", inputs, 4, hidden_size=3, lags=lags, output="all", known_inputs=later)
    start_linear(model, (x[:20], y[:20]), (x[20:], y[20:]), [*zip(places, factors)] * 2)
    with torch.no_grad():
        found = model(torch.from_numpy(rows).float().unsqueeze(1))[lags:, 0].numpy()
    assert len(x[:20]) < x.shape[1]
    np.testing.assert_allclose(found, y, atol=1e-5)


def test_without_a_past_of_its_own_a_prediction_starts_from_ridge_regression():
    random = np.random.default_rng(0)
    x = random.standard_normal((60, 4))
    y = x @ random.standard_normal((4, 1)) + 2.0
    model = build("gru", 2, 1, hidden_size=3, lags=2, output="all")
    start_linear(model, (x[:40], y[:40]), (x[40:], y[40:]))
    weight, bias = model.recent.weight.detach().numpy(), model.head.bias.item()
    np.testing.assert_allclose(x @ weight.T + bias, y, atol=1e-3)


def test_a_short_random_walk_with_many_columns_starts_no_worse_than_persistence(tmp_path):
    random = np.random.default_rng(3)
    walk = 50 + 7 * np.cumsum(random.standard_normal(120))
    others = random.standard_normal((120, 6))
    lines = ["value,a,b,c,d,e,f"]
    lines += [",".join(f"{number:.4f}" for number in (value, *row)) for value, row in zip(walk, others)]
    (tmp_path / "walk.csv").write_text("\n".join(lines) + "\n")
    task = Forecast(data=str(tmp_path / "walk.csv"), target="value", horizons=2, skipped=12, window=60)
    config = RunConfig(task=task, model=model_named("gru", hidden_size=4, lags=12), steps=1)
    first = Trainer(config).evaluate(task.problem().validation(50))["loss"]
    plain = {one.name: one.validation["loss"] for one in plain_baselines(task)}
    assert first <= plain["persistence"] * (1 + 1e-5)
    assert plain["persistence"] < 0.5 * plain["ridge regression on flattened steps"]
