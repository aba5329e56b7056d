"""The tables for devices, from records with known contents."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from orthornn.errors import ArgumentError
from orthornn_evidence.papers.devices import amplifier, microcontroller


def network(name: str, parameters: int, ns: float, **errors: list[float | None]) -> dict[str, object]:
    row: dict[str, object] = {"name": name, "parameters": parameters, "ns": ns}
    for length, found in errors.items():
        row[length] = {
            "rate": 0.03,
            "validation_by_rate": {"0.03": found[0], "0.07": None},
            "seeds": [{"esr": error, "plain_esr": error} for error in found],
        }
    return row


@pytest.fixture
def results(tmp_path: Path) -> Path:
    record = {
        "protocol": {"updates": {"brief": 10, "long": 40}},
        "ns_per_sample": {"GRU 1x8": 57.4},
        "networks": [
            network("orthornn n=4 m=1 modrelu", 100, 30.0, long=[0.1, 0.3], brief=[0.4]),
            network("LSTM 1x4", 110, 90.0, long=[0.4, 0.6], brief=[0.8]),
            network("GRU 1x4", 300, 31.0, long=[0.05, 0.15]),
            network("GRU 1x2", 1000, 900.0, long=[0.01, None], brief=[0.2]),
        ],
    }
    (tmp_path / "amplifier.json").write_text(json.dumps(record))
    cost = {"weights": 10, "code": 20, "ram": 30, "instructions": 40, "multiply_adds": 50}
    made = {name: {"accuracy": 0.5, **cost} for name in ("int8", "int16")}
    one = {"accuracy": 0.75, "parameters": 7, **made}
    costs = {"float32 in C": {"weights": 9, "ram": 8}} | {
        f"{name} in C": {"weights": 5, "ram": 6, "score": 0.5} for name in ("int16", "int8")
    }
    tables = [
        {"set": "A", "metric": "accuracy", "float32": 0.75, **costs},
        {"set": "B", "metric": "mse", "float32": 2.0, **costs},
    ]
    (tmp_path / "microcontroller.json").write_text(json.dumps({"mnist": one, "sensor": {"seeds": [one, one]}}))
    (tmp_path / "microcontroller-tables.json").write_text(json.dumps({"tables": {"sets": tables}}))
    return tmp_path


def test_the_table_is_by_error_and_a_training_that_diverged_is_last(results: Path):
    rows = amplifier(results, "long").splitlines()[2:]
    assert rows[0] == "| GRU 1x4 | 300 | 31 | 0.03 | 0.1000 | 0.1000 | 2 | 0.0500 0.1500 |"
    assert rows[-1].startswith("| GRU 1x2 | 1000 | 900 | 0.03 | inf |")
    rows = amplifier(results, "brief").splitlines()[2:]
    assert rows[0] == "| GRU 1x2 | 1000 | 900 | 0.03 | 0.2000 | 0.2000 |"
    assert len(rows) == 3


def test_an_error_that_is_smaller_for_every_seed_is_told_from_one_that_is_not(results: Path):
    long, brief = amplifier(results, "comparisons").splitlines()[2:]
    assert "| 40 updates | LSTM 1x4, 110 parameters: 2.5 times the error |" in long
    assert "GRU 1x4, 31 ns: orthornn has 2.0 times its error, but seeds overlap |" in long
    assert "| 10 updates | LSTM 1x4, 110 parameters: 2.0 times the error | LSTM 1x4, 90 ns:" in brief


def test_rates_and_costs(results: Path):
    rows = amplifier(results, "rates").splitlines()
    assert rows[2] == "| orthornn n=4 m=1 modrelu, 10 updates | 0.4000 | diverged |"
    assert len(rows) == 2 + 7
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
    rows = microcontroller(results, "tables").splitlines()
    assert rows[2] == "| A | accuracy | 75.0 % | 50.0 % | 50.0 % | 9, 8 | 5, 6 | 5, 6 |"
    assert rows[3] == "| B | mse | 2 | 0.5 | 0.5 | 9, 8 | 5, 6 | 5, 6 |"
    with pytest.raises(ArgumentError, match="kind"):
        microcontroller(results, "all")


def test_the_goals_for_microcontrollers_are_met():
    results = Path(__file__).parents[3] / "results"
    record = json.loads((results / "microcontroller.json").read_text())
    made = record["mnist"]["int8"]
    assert made["accuracy"] >= 0.95
    assert made["weights"] <= 16 * 1024
    assert made["ram"] <= 1024
    for seed in record["sensor"]["seeds"]:
        assert abs(seed["int8"]["accuracy"] - seed["accuracy"]) <= 0.01
    for numbers in ("int8", "int16"):
        made = record["mnist"][numbers]
        assert made["instructions"] < 2.2 * made["multiply_adds"]
        assert made["instructions"] < record["lstm"]["instructions"] / 2
    for row in json.loads((results / "microcontroller-tables.json").read_text())["tables"]["sets"]:
        if row["metric"] == "accuracy":
            assert row["int8 in C"]["score"] >= row["float32"] - 0.01
