"""`orthornn certify`: shares of the test data, and what has none."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from orthornn import cli
from orthornn.certify import certified_radius
from orthornn.learn.predict import load

DATA = ["--target", "kind", "--sequence", "id", "--recipe", "none"]
TRAIN = [*DATA, "--hidden-size", "5", "--steps", "60", "--lr", "0.02", "--batch-size", "8", "--threads", "1"]


@pytest.fixture
def data(tmp_path, monkeypatch):
    """Sequences of unequal length in two classes, which differ in their mean."""
    monkeypatch.chdir(tmp_path)
    rng, lines = np.random.default_rng(0), ["id,x,kind"]
    for sequence in range(60):
        for _ in range(3 + sequence % 4):
            lines.append(f"{sequence},{rng.normal(3 * (sequence % 2)):.4f},{'ab'[sequence % 2]}")
    (tmp_path / "data.csv").write_text("\n".join(lines) + "\n")
    return "data.csv"


def shown(capsys, *words):
    capsys.readouterr()
    assert cli.main(["certify", *words]) == 0
    return [float(part.split()[-1]) for part in capsys.readouterr().out.strip().split("   ")]


def test_the_shares_are_those_of_the_radii(data, capsys):
    assert cli.main(["train", data, *TRAIN, "--model", "ornn", "--nonlinearity", "tanh", "--out", "run"]) == 0
    loaded = load("run")
    for mode in ("every", "one"):
        batches = loaded.config.task.problem().test(7)
        radii = torch.cat([certified_radius(loaded.model, batch.inputs, batch.targets, mode) for batch in batches])
        found = shown(capsys, "run", "--eps", "0,0.003,0.1", "--mode", mode)
        wanted = [float((radii > eps).double().mean()) for eps in (0, 0, 0.003, 0.1)]
        assert found == pytest.approx(wanted, rel=1e-5)
        assert found == sorted(found, reverse=True)
    assert found[0] > 0.5


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["run"], "Expected --eps, but got none"),
        (["run", "--eps", "x"], "numbers separated by commas, such as 0.01,0.1, but got 'x'"),
        (["run", "--eps=-1"], "eps to be"),
        (["nosuch", "--eps", "1"], "nosuch"),
    ],
)
def test_wrong_words(data, capsys, words, message):
    assert cli.main(["certify", *words]) == 2
    assert message in capsys.readouterr().err


def test_networks_without_a_certificate_are_named(data, capsys):
    for name, options, message in [
        ("gated", ["--model", "lstm"], "but got LSTM"),
        ("threshold", ["--model", "ornn", "--nonlinearity", "tanh", "--threshold", "0.3"], "the threshold 0.3"),
        ("steps", ["--model", "ornn", "--every-step"], "read after the last step"),
    ]:
        assert cli.main(["train", data, *TRAIN, *options, "--out", name]) == 0
        assert cli.main(["certify", name, "--eps", "0.1"]) == 2
        assert message in capsys.readouterr().err
