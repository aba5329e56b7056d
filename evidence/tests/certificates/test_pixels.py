"""Networks for certificates are trained, resumed and measured, and shown as a table."""

from __future__ import annotations

import json

import pytest
import torch

from orthornn.errors import ArgumentError
from orthornn_evidence.certificates import pixels
from orthornn_evidence.certificates.pixels import SIZES, TRAININGS, Budget, Training, run, trained
from orthornn_evidence.certificates.table import certificates
from orthornn_evidence.tasks import PixelMNIST
from support.made_idx import write_images

TINY = Budget(units=8, batch=5, images=12, attack=2)


@pytest.fixture
def task(tmp_path, monkeypatch):
    short = {name: Training(3, one.rate, one.eps, one.strength) for name, one in TRAININGS.items()}
    monkeypatch.setattr(pixels, "TRAININGS", short)
    write_images(tmp_path / "mnist")
    return PixelMNIST(data=str(tmp_path / "mnist"), verify=False, validation_size=8)


def test_every_network_is_measured_once_and_shown(task, tmp_path, capsys):
    file = tmp_path / "certificates" / "pixel-mnist.json"
    file.parent.mkdir()
    run(file, task, ["linear", "lstm"], TINY, tmp_path / "unfinished")
    assert certificates(tmp_path, "pixels").count("unfinished") == len(TRAININGS) - 2
    run(file, task, list(TRAININGS), TINY, tmp_path / "unfinished")
    before = file.read_bytes()
    runs = json.loads(before)["runs"]
    assert list(json.loads(before)["log10_of_untrained_lstm"]) == ["1", "28", "9"]
    assert {one["network"] for one in runs} == set(TRAININGS)
    for one in runs:
        for eps in SIZES:
            assert 0 <= one["certified"][f"{eps:g}"] <= one["attacked"][f"{eps:g}"] <= one["accuracy"]
        assert one["environment"]["torch"]
    run(file, task, list(TRAININGS), TINY, tmp_path / "unfinished")
    assert file.read_bytes() == before
    assert "unfinished" not in certificates(tmp_path, "pixels")
    with pytest.raises(ArgumentError, match="budget"):
        run(file, task, ["linear"], Budget(units=6), tmp_path / "unfinished")
    with pytest.raises(ArgumentError, match="kind"):
        certificates(tmp_path, "others")


@pytest.mark.parametrize("name", ["block", "lstm"])
def test_training_that_was_stopped_ends_as_one_that_was_not(name, task, tmp_path, monkeypatch):
    monkeypatch.setattr(pixels, "_STORED", 2)
    training = Training(5, 1e-2, 0.1, 1.0 if name == "block" else 0.0)
    whole, _ = trained(name, task, training, TINY)
    drawn = type(task)._train_batch

    def until_stopped(self, update, *given):
        if update == 3:
            raise KeyboardInterrupt
        return drawn(self, update, *given)

    monkeypatch.setattr(type(task), "_train_batch", until_stopped)
    with pytest.raises(KeyboardInterrupt):
        trained(name, task, training, TINY, tmp_path / "state.pt")
    monkeypatch.setattr(type(task), "_train_batch", drawn)
    resumed, seconds = trained(name, task, training, TINY, tmp_path / "state.pt")
    assert seconds > 0
    for expected, found in zip(whole.parameters(), resumed.parameters()):
        assert torch.equal(expected, found)
