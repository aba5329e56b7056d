from __future__ import annotations

import math
import struct
import zlib

import numpy as np
import pytest
import torch

from orthornn.errors import ArgumentError, DataError
from orthornn_evidence.tasks import PianoRolls
from support.real_data import REAL_DATA, needs

io = pytest.importorskip("scipy.io")


def write(path, lengths=((5, 9, 2), (4, 1), (6, 3)), keys=88, edit=lambda piece: piece):
    random = np.random.default_rng(3)
    content = {}
    for name, sizes in zip(("traindata", "validdata", "testdata"), lengths):
        cells = np.empty((1, len(sizes)), object)
        for i, size in enumerate(sizes):
            cells[0, i] = edit((random.random((size, keys)) < 0.1 + np.arange(keys) / 200).astype(np.uint8))
        content[name] = cells
    io.savemat(path, content)
    return path


@pytest.fixture
def task(tmp_path):
    return PianoRolls(data=str(write(tmp_path / "JSB_Chorales.mat").parent))


def test_targets_are_the_next_frames(task):
    for step in range(3):
        inputs, targets = task.problem().train(step, 1, 0)
        assert torch.equal(inputs[1:], targets[:-1])
    batch = task.problem().train(0, 3, 0)
    assert len(batch.inputs.data) == 16 - 3
    assert task.steps == 8
    # a piece of one frame has nothing to predict
    assert sum(len(next(task.problem().validation(1)).targets) for _ in range(1)) == 3


def test_the_frequencies_of_the_keys_have_the_trivial_loss(task):
    targets = task.problem().train(0, 3, 0).targets
    p = targets.data.double().mean(0)
    answer = (p.log() - (1 - p).log()).clamp(-50, 50).expand(len(targets.data), -1)
    assert float(task.objective().loss(answer, targets._replace(data=targets.data.double()))) == pytest.approx(
        task.objective().trivial_loss, rel=1e-9
    )
    assert float(task.objective().loss(torch.zeros(13, 88), targets)) == pytest.approx(88 * math.log(2), rel=1e-5)


def test_accuracy_is_over_keys_pressed_or_foreseen(task):
    targets = torch.zeros(1, 1, 88)
    targets[0, 0, :3] = 1
    prediction = torch.full((1, 1, 88), -1.0)
    prediction[0, 0, 2:5] = 1
    assert task.objective().metrics(prediction, targets)["accuracy"] == (1, 5)


def test_one_file_is_enough(tmp_path, task):
    path = tmp_path / "JSB_Chorales.mat"
    assert PianoRolls(data=str(path)).objective().trivial_loss == task.objective().trivial_loss


BROKEN = {
    "a file of MATLAB 4 to 7.2, but .* is truncated": lambda path: path.write_bytes(path.read_bytes()[:-40]),
    "a file of MATLAB 4 to 7.2, but .* another file": lambda path: path.write_bytes(b"nothing"),
    "there is none at": lambda path: path.unlink(),
    "has no validdata, testdata": lambda path: io.savemat(path, {"traindata": np.zeros(1)}),
    r"of shape \(time, 88\)": lambda path: write(path, keys=80),
    "Expected zeros and ones": lambda path: write(path, edit=lambda piece: 2 * piece),
    "Expected a piece of at least two frames, but .* has none": lambda path: write(path, lengths=((3,), (2,), (1,))),
}


@pytest.mark.parametrize("message", BROKEN)
def test_a_bad_file_is_one_clear_error(task, tmp_path, message):
    BROKEN[message](tmp_path / "JSB_Chorales.mat")
    with pytest.raises(DataError, match=message) as caught:
        task.objective().trivial_loss  # noqa: B018
    assert "JSB_Chorales.mat" in str(caught.value)
    with pytest.raises(ArgumentError, match="collection"):
        PianoRolls(collection="x")


@pytest.mark.sampled(1)
@needs("polymusic")
@pytest.mark.parametrize(
    ("collection", "pieces", "frames"),
    [
        ("jsb", (229, 76, 77), (13807, 4602, 4725)),
        ("nottingham", (694, 173, 170), (176561, 45513, 44463)),
        ("piano-midi", (87, 12, 25), (75911, 8540, 19036)),
        ("musedata", (524, 135, 124), (245202, 82755, 64339)),
    ],
)
def test_the_collections_have_their_sizes(collection, pieces, frames):
    rolls = PianoRolls(data=str(REAL_DATA / "polymusic"), collection=collection)._rolls.values()
    assert tuple(len(part.pieces) for part in rolls) == pieces
    assert tuple(len(part.frames) for part in rolls) == frames


def test_a_file_that_becomes_too_large_is_refused(tmp_path, monkeypatch):
    """scipy decompresses whatever an element holds: a megabyte may become a gigabyte."""
    packed = zlib.compress(bytes(3 << 20))
    head = b"MATLAB 5.0".ljust(124) + b"\x00\x01IM"
    path = tmp_path / "JSB_Chorales.mat"
    path.write_bytes(head + struct.pack("<II", 15, len(packed)) + packed)
    monkeypatch.setattr("orthornn.learn.files.inflate.FREE", 1 << 20)
    with pytest.raises(DataError, match="to become at most 1048576 bytes when decompressed"):
        PianoRolls(data=str(tmp_path)).objective().trivial_loss  # noqa: B018
