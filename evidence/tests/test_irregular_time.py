"""The benchmark of irregular time: what is drawn, and that it runs."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

from orthornn_evidence import irregular_time
from orthornn_evidence.irregular_time import NETWORKS, POINTS, Budget, measured, oscillators, table


@pytest.mark.parametrize("dropped", [0.0, 0.3, 0.9])
def test_samples_are_where_the_times_say(dropped, monkeypatch):
    monkeypatch.setattr(irregular_time, "_NOISE", 0.0)
    inputs, targets = oscillators(np.random.default_rng(0), 50, dropped)
    kept = round(POINTS * (1 - dropped))
    assert inputs.shape == (kept, 50, 2)
    times = inputs[..., 1].cumsum(0).double().numpy()
    assert times.min() >= 1
    assert times.max() <= POINTS
    assert (np.diff(times, axis=0) >= 1).all()
    low, high = irregular_time._FREQUENCIES
    omega = targets[:, 0].double().numpy() * math.sqrt((high - low) ** 2 / 12) + (low + high) / 2
    assert low <= omega.min() <= omega.max() <= high
    # Without noise, x is a solution of the oscillator's equation: its envelope falls, and it fits sin and cos of omega.
    x = inputs[..., 0].double().numpy()
    for b in range(50):
        fits = []
        for decay in np.linspace(*irregular_time._RATES_OF_DECAY, 201):
            waves = np.exp(-decay * times[:, b : b + 1]) * np.stack(
                [np.cos(omega[b] * times[:, b]), np.sin(omega[b] * times[:, b])], 1
            )
            fits.append(np.linalg.norm(waves @ np.linalg.lstsq(waves, x[:, b], rcond=None)[0] - x[:, b]))
        assert min(fits) < 1e-2


def test_it_measures_every_network_and_tabulates(monkeypatch, tmp_path):
    monkeypatch.setattr(irregular_time, "SHARES", (0.9,))
    budget = Budget(updates=2, batch=3, seeds=2, parameters=600, tested=10)
    rows = list(measured(budget))
    assert [row["network"] for row in rows] == list(NETWORKS)
    assert all(len(row["errors"]) == 2 and row["parameters"] <= 600 for row in rows)
    (tmp_path / "irregular_time.json").write_text(json.dumps({"rows": rows}))
    lines = table(tmp_path).splitlines()
    assert "90% dropped" in lines[0]
    assert len(lines) == 2 + len(NETWORKS)
