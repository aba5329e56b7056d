from __future__ import annotations

import numpy as np
import pytest
import torch
from run_cases import COPYING, config

import orthornn
from made_idx import write_images
from orthornn.cli import main
from orthornn.errors import ArgumentError, CheckpointError, DataError, ShapeError
from orthornn.tasks import Adding, Copying, PixelMNIST
from orthornn.training import train


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    """A run on images whose data are gone by the time it is used."""
    folder = tmp_path_factory.mktemp("images")
    task = PixelMNIST(data=str(write_images(folder / "data")), verify=False, validation_size=10, permuted=True)
    result = train(config("ornn", task=task, batch_size=4), folder / "run")
    raw = torch.cat([batch.inputs for batch in task.test(5)], 1), torch.cat([batch.targets for batch in task.test(5)])
    (folder / "data").rename(folder / "gone")
    order = orthornn.load(folder / "run").description["order"]
    pixels = np.empty((12, 9), np.float32)
    pixels[:, order] = np.rint(raw[0][..., 0].T.numpy() * 255)
    return folder, result, pixels, raw[1].numpy()


def test_scaling_and_order_travel_with_the_weights(images):
    folder, result, pixels, labels = images
    found = orthornn.load(folder / "run").evaluate(pixels, labels)
    assert found == pytest.approx(result.test, rel=1e-5)
    prediction = orthornn.load(folder / "run").predict(pixels, batch_size=5)
    assert prediction.scores.shape == (12, 4)
    assert prediction.scores.sum(1) == pytest.approx(np.ones(12), rel=1e-6)
    assert np.mean(prediction.labels == labels.astype(str)) == pytest.approx(result.test["accuracy"])


@pytest.mark.parametrize("suffix", ["npy", "npz", "csv"])
def test_the_commands(images, suffix, tmp_path, capsys):
    folder, result, pixels, labels = images
    data = tmp_path / f"data.{suffix}"
    if suffix == "npy":
        np.save(data, pixels)
    elif suffix == "npz":
        np.savez(data, x=pixels, y=labels)
    else:
        np.savetxt(data, pixels, delimiter=",")
    out = tmp_path / "scores.csv"
    assert main(["predict", str(folder / "run"), str(data), "--out", str(out)]) == 0
    lines = out.read_text().splitlines()
    assert lines[0] == "sequence,label,score 0,score 1,score 2,score 3"
    scores = np.array([line.split(",")[2:] for line in lines[1:]], float)
    assert scores == pytest.approx(orthornn.load(folder / "run").predict(pixels).scores, rel=1e-5)
    status = main(["evaluate", str(folder / "run"), str(data)])
    if suffix == "npz":
        assert status == 0
        assert f"accuracy {result.test['accuracy']:.6g}" in capsys.readouterr().out
    else:
        assert status == 2
        assert "has no targets" in capsys.readouterr().err


def test_tokens_and_values(tmp_path):
    result = train(config(task=COPYING, steps=3), tmp_path / "copying")
    loaded = orthornn.load(tmp_path / "copying")
    inputs = torch.cat([batch.inputs for batch in COPYING.test(20)], 1)
    targets = torch.cat([batch.targets for batch in COPYING.test(20)], 1)
    prediction = loaded.predict(inputs.T.tolist())
    assert prediction.scores.shape == (20, *targets.T.shape[1:], COPYING.output_size)
    found = loaded.evaluate(inputs.T.numpy(), targets.T.numpy())
    assert found["loss"] == pytest.approx(result.test["loss"], rel=1e-5)
    task = Adding(T=6, validation_size=5, test_size=7)
    result = train(config("lstm", task=task, steps=3), tmp_path / "adding")
    (batch,) = task.test(7)
    loaded = orthornn.load(tmp_path / "adding", "best")
    assert loaded.predict(batch.inputs.transpose(0, 1)).labels is None
    flat = batch.inputs.transpose(0, 1).reshape(7, -1)
    found = orthornn.load(tmp_path / "adding").evaluate(flat, batch.targets[:, 0])
    assert found["loss"] == pytest.approx(result.test["loss"], rel=1e-5)


def test_evaluate_on_the_tasks_own_test(tmp_path, capsys):
    result = train(config(steps=3), tmp_path)
    assert main(["evaluate", str(tmp_path)]) == 0
    assert f"loss {result.test['loss']:.6g}" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["ornn", "ornn-rotations", "scornn"])
@pytest.mark.parametrize("task", [COPYING, Adding(T=6, validation_size=5, test_size=5)], ids=["tokens", "values"])
def test_a_stream_is_the_whole_sequence(name, task, tmp_path):
    train(config(name, task=task, steps=3), tmp_path)
    loaded = orthornn.load(tmp_path)
    inputs = next(task.test(1)).inputs
    raw = inputs[:, 0].tolist()
    streamed = torch.from_numpy(np.stack(list(loaded.stream(raw))))
    loaded.model.output = "all"
    with torch.no_grad():
        whole = loaded.model(inputs)[:, 0]
    # one matrix product a step against the kernel's order of sums
    assert (streamed - whole).abs().max() <= 64 * len(raw) * torch.finfo(torch.float32).eps


def test_what_is_wrong_is_said(images, tmp_path):
    folder, _, pixels, _ = images
    loaded = orthornn.load(folder / "run")
    with pytest.raises(ShapeError, match="must have 9 steps; got 8"):
        loaded.predict(pixels[:, :8])
    with pytest.raises(ShapeError, match=r"targets must have shape \(12,\); got \(3,\)"):
        loaded.evaluate(pixels, [1, 2, 3])
    with pytest.raises(DataError, match="1 values that are not finite"):
        loaded.predict(np.where(np.arange(9) + np.arange(12)[:, None] == 0, np.nan, pixels))
    with pytest.raises(ArgumentError, match="holds no run"):
        orthornn.load(tmp_path)
    with pytest.raises(ArgumentError, match="checkpoint must be last, best or one of the steps"):
        orthornn.load(folder / "run", "17")
    with pytest.raises(DataError, match="unknown kind; needed"):
        main(["predict", str(folder / "run"), "x.txt", "--traceback"])
    train(config(steps=2), tmp_path / "damaged")
    path = tmp_path / "damaged" / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-5])
    with pytest.raises(CheckpointError, match="truncated or damaged"):
        orthornn.load(tmp_path / "damaged")
    train(config(task=Copying(T=3, validation_size=5, test_size=5), steps=1), tmp_path / "tokens")
    loaded = orthornn.load(tmp_path / "tokens")
    with pytest.raises(DataError, match=r"tokens must lie in 0\.\."):
        loaded.predict([[1, 99]])


def test_unknown_names_of_the_package():
    with pytest.raises(AttributeError, match="no attribute 'lode'"):
        orthornn.lode  # noqa: B018
