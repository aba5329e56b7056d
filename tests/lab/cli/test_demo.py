"""The demo compares every network at its own best learning rate."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from orthornn.lab import cli
from orthornn.lab.cli.demo import LEARNING_RATES
from orthornn.lab.training import read_config

ROOT = Path(__file__).parents[3]
SMALL = ["demo", "--T", "4", "--steps", "2", "--seconds", "60", "--parameters", "800", "--reflections", "3"]


def test_the_rates_are_the_best_of_the_sweep():
    models = json.loads((ROOT / "results" / "demo" / "learning_rates.json").read_text(encoding="utf-8"))["models"]
    best = {name: min(rates, key=lambda rate: rates[rate]["validation"]) for name, rates in models.items()}
    assert {name: float(rate) for name, rate in best.items()} == LEARNING_RATES


@pytest.mark.parametrize(
    ("words", "expected"), [([], LEARNING_RATES), (["--lr", "0.002"], dict.fromkeys(LEARNING_RATES, 0.002))]
)
def test_each_network_has_its_own_rate_or_the_one_given(words, expected, tmp_path):
    out = tmp_path / "demo"
    assert cli.main([*SMALL, *words, "--out", str(out)]) == 0
    assert {name: read_config(out / name / "config.json").optimizer.lr for name in expected} == expected
