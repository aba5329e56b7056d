"""The demo compares every network at its own best learning rate."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

import torch

from orthornn import cli
from orthornn.cli.demo import LEARNING_RATES
from orthornn.learn.training import Trainer, read_config, read_result

ROOT = Path(__file__).parents[2]
SMALL = ["demo", "--T", "4", "--steps", "2", "--seconds", "60", "--parameters", "800", "--reflections", "3"]


def test_the_rates_are_the_best_of_the_sweep():
    models = json.loads((ROOT / "results" / "demo" / "learning_rates.json").read_text(encoding="utf-8"))["models"]
    best = {name: min(rates, key=lambda rate: rates[rate]["validation"]) for name, rates in models.items()}
    assert {name: float(rate) for name, rate in best.items()} == LEARNING_RATES


def rates(out: Path, names: Iterable[str]) -> dict[str, float]:
    return {name: read_config(out / name / "config.json").optimizer.lr for name in names}


def test_each_network_has_its_own_rate(tmp_path, capsys):
    assert cli.main([*SMALL, "--out", str(tmp_path / "demo")]) == 0
    out = capsys.readouterr().out
    for name in ("ornn-rotations", "ornn", "scornn", "lstm", "nn.RNN ms", "nn.LSTM ms"):
        assert name in out
    assert (tmp_path / "demo" / "demo.png").stat().st_size > 10_000
    assert rates(tmp_path / "demo", LEARNING_RATES) == LEARNING_RATES


def test_time_that_ends_before_the_updates_is_said(tmp_path, capsys):
    out = tmp_path / "my demo"
    words = ["demo", "--T", "4", "--parameters", "800", "--reflections", "3", "--models", "ornn,lstm", "--steps", "7"]
    assert cli.main([*words, "--seconds", "0.0000001", "--out", str(out)]) == 0
    said = capsys.readouterr().out
    done = {name: read_result(out / name)["steps"] for name in ("ornn", "lstm")}
    assert "The time, --seconds 1e-07, ended before the updates did (" in said
    assert f"run the same command with more --seconds and --out '{out}'" in said
    for name, steps in done.items():
        assert 0 <= steps < 7
        assert f"{name} {steps} of 7" in said
        assert f"{name} ended after {steps} of 7 updates, by --seconds or --patience" in said
    assert cli.main([*words, "--seconds", "1000", "--out", str(out)]) == 0
    assert "ended" not in capsys.readouterr().out
    assert {read_result(out / name)["steps"] for name in done} == {7}


def test_it_trains_on_one_thread_with_the_rate_that_is_given_and_sets_back_the_threads(tmp_path, monkeypatch):
    before, found, given = torch.get_num_threads(), set(), ["--models", "ornn,lstm", "--lr", "0.002"]
    update = Trainer.update
    monkeypatch.setattr(Trainer, "update", lambda *given: found.add(torch.get_num_threads()) or update(*given))
    torch.set_num_threads(2)
    try:
        assert cli.main([*SMALL, *given, "--out", str(tmp_path / "demo")]) == 0
        assert rates(tmp_path / "demo", ("ornn", "lstm")) == {"ornn": 0.002, "lstm": 0.002}
        assert found == {1}
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
