from __future__ import annotations

import numpy as np
import pytest
import torch

from orthornn.errors import ArgumentError, DataError
from orthornn.learn.files.audio import read_audio
from orthornn.learn.systems import build
from orthornn_evidence.tasks import Music
from support.made_sounds import wav
from support.real_data import REAL_DATA, needs


@pytest.fixture
def path(tmp_path):
    (tmp_path / "song.wav").write_bytes(wav(1, 2000, 44100))
    return tmp_path / "song.wav"


def made(path, **options):
    return Music(**{"data": str(path), "start": 100, "length": 300, **options})


def test_excerpts_follow_each_other(path):
    sound, _ = read_audio(path)
    excerpts = [made(path, excerpt=number).samples for number in range(5)]
    assert np.array_equal(np.concatenate(excerpts), sound[100:1600])
    (path.parent / "._song.wav").write_bytes(b"\0\5\x16\7")  # of macOS
    assert made(path.parent).rate == 44100  # the only WAV of a folder


def test_the_network_sees_nothing_but_ones(path):
    task = made(path)
    for batch in (task.problem().train(5, 1, 0), *task.problem().validation(9), *task.problem().test(9)):
        assert torch.equal(batch.inputs, torch.ones(300, 1, 1))
        assert batch.targets.shape == (300, 1, 1)
    with pytest.raises(ArgumentError, match=r"batch_size .* One network learns one excerpt"):
        task.problem().train(0, 2, 0)


def test_the_loss_is_the_nmse_on_the_scale_of_the_file(path):
    task = made(path)
    model = build("ornn", 1, 1, hidden_size=5, output="all")
    found = task.generate(model).astype(np.float64)
    true = task.samples.astype(np.float64)
    nmse = ((found - true) ** 2).sum() / ((true - true.mean()) ** 2).sum()
    with torch.no_grad():
        targets = task.problem().train(0, 1, 0).targets
        assert float(task.objective().loss(model(torch.ones(300, 1, 1)), targets)) == pytest.approx(nmse, rel=1e-4)
    zero = task.objective().loss(torch.zeros(300, 1, 1), task.problem().train(0, 1, 0).targets)
    assert float(zero) == pytest.approx(task.objective().trivial_loss, rel=1e-5)
    assert task.objective().trivial_loss == pytest.approx(1)


def test_the_excerpt_is_described(path):
    _, rate = read_audio(path)
    (told,) = Music(data=str(path), start=100, length=50, excerpt=2).summary_lines()
    assert told == f"{path}: 50 samples at {rate} Hz ({50_000 / rate:.3g} ms), from sample 200 on; a step is a sample"


def test_what_is_wrong_is_said(path):
    with pytest.raises(DataError, match=r"Expected 300 samples from sample 1900 on, but .* has 2000 samples"):
        made(path, start=1900).objective().trivial_loss  # noqa: B018
    with pytest.raises(DataError, match="there is no file"):
        made(path.with_name("none.wav")).objective().trivial_loss  # noqa: B018
    (path.parent / "other.wav").write_bytes(wav(0))
    with pytest.raises(DataError, match=r"Expected one WAV file, but .* holds 2"):
        made(path.parent).objective().trivial_loss  # noqa: B018
    with pytest.raises(ArgumentError, match="excerpt to be an integer between 0 and 4"):
        made(path, excerpt=5)
    content = bytearray(wav(0, 500))
    content[44:] = bytes(1000)
    path.write_bytes(bytes(content))
    with pytest.raises(DataError, match="is silent in the 300 samples from 100 on"):
        made(path).objective().trivial_loss  # noqa: B018


@needs("music")
def test_the_recording():
    folder = REAL_DATA / "music"
    spreads = [Music(data=str(folder), excerpt=number).samples.std() for number in range(5)]
    assert [round(float(spread), 3) for spread in spreads] == [0.094, 0.075, 0.069, 0.086, 0.073]
    pytest.importorskip("soundfile")
    ogg = Music(data=str(folder / "hungarian_dance_5.hq.ogg"))
    # the WAV is the same recording, rounded to 16 bits
    assert np.abs(ogg.samples - Music(data=str(folder)).samples).max() <= 1 / 32768
