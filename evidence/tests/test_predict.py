"""Trained networks in use, on data of every kind that the tasks of the papers have."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import orthornn
from orthornn.errors import DataError
from orthornn.learn.training import train
from orthornn_evidence.tasks import Music, PianoRolls, PixelMNIST, Speech
from support.made_idx import write_images
from support.made_sounds import archives, wav
from support.run_cases import config


def whole(task):
    """The first test sequence as the network reads it, (1, T, I), and the targets that the loss compares with."""
    inputs, targets = next(task.problem().test(1))
    rows = inputs if isinstance(inputs, torch.Tensor) else inputs.data[:, None]
    wanted = targets if isinstance(targets, torch.Tensor) else targets.data[:, None]
    return rows.transpose(0, 1).double().numpy(), wanted.transpose(0, 1).double().numpy()


def test_images_whose_data_are_gone(tmp_path):
    """Scaling and order travel with the weights."""
    task = PixelMNIST(data=str(write_images(tmp_path / "data")), verify=False, validation_size=10, permuted=True)
    result = train(config("ornn", task=task, batch_size=4), tmp_path / "run")
    batches = list(task.problem().test(5))
    raw = torch.cat([batch.inputs for batch in batches], 1), torch.cat([batch.targets for batch in batches])
    (tmp_path / "data").rename(tmp_path / "gone")
    loaded = orthornn.load(tmp_path / "run")
    pixels = np.empty((12, 9), np.float32)
    pixels[:, loaded.description["order"]] = np.rint(raw[0][..., 0].T.numpy() * 255)
    assert loaded.evaluate(pixels, raw[1].numpy()) == pytest.approx(result.test, rel=1e-5)


def test_speech_in_decibels(tmp_path):
    task = Speech(data=str(archives(tmp_path / "data")))
    train(config(task=task, batch_size=2), tmp_path / "run")
    loaded = orthornn.load(tmp_path / "run")
    standard, wanted = whole(task)
    mean, deviation = task._scale
    frames = standard * deviation + mean
    inputs, targets = next(task.problem().test(1))
    (total, count) = task.objective().metrics(loaded.model(inputs), targets)["loss"]
    assert loaded.evaluate(frames, wanted)["mse"] == pytest.approx(total / count, rel=1e-4)
    errors = loaded.predict(frames).scores - wanted
    assert np.square(errors).mean() == pytest.approx(total / count, rel=1e-4)


def test_music_as_samples(tmp_path):
    (tmp_path / "song.wav").write_bytes(wav(1))
    task = Music(data=str(tmp_path / "song.wav"), length=50, start=0)
    train(config("ornn", task=task, batch_size=1), tmp_path / "run")
    loaded = orthornn.load(tmp_path / "run")
    generated = loaded.predict(np.ones((1, 50))).scores[0, :, 0]
    assert generated == pytest.approx(task.generate(loaded.model), rel=1e-5)


def test_piano_rolls_as_probabilities(tmp_path):
    io = pytest.importorskip("scipy.io")
    random = np.random.default_rng(0)
    content = {}
    for name in ("traindata", "validdata", "testdata"):
        content[name] = np.empty((1, 3), object)
        for piece in range(3):
            content[name][0, piece] = (random.random((7, 88)) < 0.2).astype(np.uint8)
    io.savemat(tmp_path / "JSB_Chorales.mat", content)
    task = PianoRolls(data=str(tmp_path))
    train(config(task=task, batch_size=2), tmp_path / "run")
    loaded = orthornn.load(tmp_path / "run")
    frames, wanted = whole(task)
    inputs, targets = next(task.problem().test(1))
    (total, count) = task.objective().metrics(loaded.model(inputs), targets)["loss"]
    assert loaded.evaluate(frames, wanted) == pytest.approx({"loss": total / count}, rel=1e-5)
    p = loaded.predict(frames).scores.astype(float)
    nats = -(wanted * np.log(p) + (1 - wanted) * np.log(1 - p)).sum(-1).mean()
    assert nats == pytest.approx(total / count, rel=1e-5)
    with pytest.raises(DataError, match="to be probabilities"):
        loaded.evaluate(frames, 2 * wanted)
