"""The tables for devices, from records with known contents."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from orthornn.errors import ArgumentError
from orthornn.lab.papers.devices import amplifier, microcontroller


def network(name: str, parameters: int, ns: float, *errors: float | None) -> dict[str, object]:
    return {
        "name": name,
        "parameters": parameters,
        "ns": ns,
        "rate": 0.03,
        "validation_by_rate": {"0.03": errors[0], "0.07": None},
        "seeds": [{"esr": error, "plain_esr": error} for error in errors],
    }


@pytest.fixture
def results(tmp_path: Path) -> Path:
    record = {
        "protocol": {"updates": 10, "longer": 40},
        "ns_per_sample": {"GRU 1x8": 57.4},
        "networks": [
            network("orthornn n=4 m=1 modrelu", 100, 30.0, 0.1, 0.3),
            network("LSTM 1x4", 110, 90.0, 0.4, 0.6),
            network("GRU 1x4", 300, 31.0, 0.05, 0.15),
            network("GRU 1x2", 1000, 900.0, 0.01, None),
        ],
    }
    record["networks"][1]["longer"] = {"esr": 0.02}
    (tmp_path / "amplifier.json").write_text(json.dumps(record))
    cost = {"weights": 10, "code": 20, "ram": 30, "instructions": 40, "multiply_adds": 50}
    made = {name: {"accuracy": 0.5, **cost} for name in ("int8", "int16")}
    one = {"accuracy": 0.75, "parameters": 7, **made}
    (tmp_path / "microcontroller.json").write_text(json.dumps({"mnist": one, "sensor": {"seeds": [one, one]}}))
    return tmp_path


def test_the_table_is_by_error_and_a_training_that_diverged_is_last(results: Path):
    rows = amplifier(results, "table").splitlines()[2:]
    assert rows[0] == "| GRU 1x4 | 300 | 31 | 0.03 | 2 | 0.1000 | 0.0500 to 0.1500 | 0.1000 |"
    assert rows[-1].startswith("| GRU 1x2 | 1000 | 900 | 0.03 | 2 | inf |")


def test_an_error_that_is_smaller_for_every_seed_is_told_from_one_that_is_not(results: Path):
    row = amplifier(results, "comparisons").splitlines()[2]
    assert "LSTM 1x4, 110 parameters: 2.5 times the error |" in row
    assert "GRU 1x4, 31 ns: orthornn has 2.0 times its error, but seeds overlap |" in row


def test_rates_and_longer_runs_and_costs(results: Path):
    assert amplifier(results, "rates").splitlines()[2] == "| orthornn n=4 m=1 modrelu | 0.1000 | diverged |"
    assert amplifier(results, "longer").splitlines()[2:] == ["| LSTM 1x4 | 0.4000 | 0.0200 |"]
    assert amplifier(results, "costs").splitlines()[2:] == ["| GRU 1x8 | 57.4 |"]
    with pytest.raises(ArgumentError, match="kind"):
        amplifier(results, "all")


def test_networks_in_integers(results: Path):
    assert "| accuracy on 10000 test images | 75.00 % | 50.00 % | 50.00 % |" in microcontroller(results, "mnist")
    assert "| flash, weights and multipliers | 28 bytes of parameters | 10 bytes | 10 bytes |" in microcontroller(
        results, "mnist"
    )
    rows = microcontroller(results, "sensor").splitlines()
    assert rows[2] == "| float32 | 75.00 % | 75 75 |  |  |  |  |"
    assert rows[4] == "| int8 | 50.00 % | 50 50 | 10 bytes | 20 bytes | 30 bytes | 40 |"
    with pytest.raises(ArgumentError, match="kind"):
        microcontroller(results, "all")


def test_the_goals_for_microcontrollers_are_met():
    record = json.loads((Path(__file__).parents[3] / "results" / "microcontroller.json").read_text())
    made = record["mnist"]["int8"]
    assert made["accuracy"] >= 0.95
    assert made["weights"] <= 16 * 1024
    assert made["ram"] <= 1024
    for seed in record["sensor"]["seeds"]:
        assert abs(seed["int8"]["accuracy"] - seed["accuracy"]) <= 0.01
