from __future__ import annotations

import math
import os

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from orthornn.errors import DataError
from orthornn.lab.files.audio import read_audio, resample, write_wav
from orthornn.lab.tasks.spectrogram import BINS, FLOOR, frames, log_magnitude, samples
from orthornn.lab.tasks.speech_scores import available, segmental_snr
from support.made_sounds import wav


def test_what_is_written_is_read_back(tmp_path):
    sound = np.array([0, 0.5, -1, 32767 / 32768, 2, -2], np.float32)
    write_wav(tmp_path / "a.wav", sound, 11025)
    found, rate = read_audio(tmp_path / "a.wav")
    assert rate == 11025
    assert found.tolist() == [0, 0.5, -1, 32767 / 32768, 32767 / 32768, -1]
    assert read_audio(tmp_path / "a.wav", first=2, count=3)[0].tolist() == found[2:5].tolist()


@pytest.mark.parametrize(("suffix", "kind"), [("flac", "FLAC"), ("wav", "NIST"), ("wav", "WAV")])
def test_other_formats_hold_the_same_samples(tmp_path, suffix, kind):
    soundfile = pytest.importorskip("soundfile")
    sound = np.random.default_rng(0).integers(-3000, 3000, 500).astype(np.int16)
    subtype = "PCM_24" if kind == "WAV" else "PCM_16"
    soundfile.write(tmp_path / f"a.{suffix}", sound.astype(np.float64) / 32768, 16000, format=kind, subtype=subtype)
    found, rate = read_audio(tmp_path / f"a.{suffix}")
    assert rate == 16000
    assert np.array_equal(np.rint(found * 32768), sound)


def test_channels_are_averaged(tmp_path):
    (tmp_path / "a.wav").write_bytes(wav(0, 100, channels=2))
    raw = np.frombuffer(wav(0, 100, channels=2)[44:], "<i2").reshape(-1, 2)
    assert np.array_equal(read_audio(tmp_path / "a.wav")[0], (raw.astype(np.float32).mean(1) / 32768))


BROKEN = {
    "the 1200 samples that the header of .* promises, but got 400": lambda content: content[: 44 + 800],
    "is truncated: it ends early": lambda content: content[:20],
    "no sound file": lambda content: b"nothing of the kind",
    "begins with nothing": lambda content: b"",
}


@pytest.mark.parametrize("message", BROKEN)
def test_a_bad_file_is_one_clear_error(tmp_path, message):
    pytest.importorskip("soundfile")
    path = tmp_path / "a.wav"
    path.write_bytes(BROKEN[message](wav(0)))
    with pytest.raises(DataError, match=message) as caught:
        read_audio(path)
    assert "a.wav" in str(caught.value)
    with pytest.raises(DataError, match="Expected to read"):
        read_audio(tmp_path / "none.wav")
    path.write_bytes(wav(0))
    with pytest.raises(DataError, match=r"Expected 800 samples from sample 401 on, but .* has 1200 samples"):
        read_audio(path, first=401, count=800)


def test_half_the_rate_keeps_a_slow_tone():
    pytest.importorskip("scipy")
    tone = np.sin(2 * np.pi * 300 * np.arange(4000) / 16000).astype(np.float32)
    found = resample(tone, 16000, 8000)
    expected = np.sin(2 * np.pi * 300 * np.arange(2000) / 8000)
    # scipy's default filter has a ripple below 1 % far below the cut-off, away from the ends
    assert np.abs(found - expected)[100:-100].max() < 0.01


@given(count=st.integers(256, 1000))
@settings(max_examples=20, deadline=None)
def test_features_have_their_formula(count):
    sound = torch.rand(count, dtype=torch.float64) - 0.5
    spectra = frames(sound)
    assert spectra.shape == (1 + (count - 256) // 128, BINS)
    t = len(spectra) - 1
    window = 0.5 - 0.5 * torch.cos(2 * math.pi * torch.arange(256, dtype=torch.float64) / 256)
    k = 17
    wave = torch.exp(-2j * math.pi * k * torch.arange(256, dtype=torch.float64) / 256)
    expected = (sound[128 * t : 128 * t + 256] * window * wave).sum()
    # 256 products in float64
    torch.testing.assert_close(spectra[t, k], expected, rtol=1e-11, atol=1e-12)
    power = 10 * math.log10(FLOOR + float(expected.abs()) ** 2)
    assert float(log_magnitude(spectra)[t, k]) == pytest.approx(power, abs=1e-9)


def test_true_features_and_phases_give_the_sound_back():
    sound = torch.rand(256 + 128 * 6, dtype=torch.float64) - 0.5
    spectra = frames(sound)
    found = samples(log_magnitude(spectra), spectra.angle())
    assert found.shape == sound.shape
    # |X|^2 from 1e-5 + |X|^2 loses digits where |X| is small; the first sample has the window 0
    torch.testing.assert_close(found[1:], sound[1:], rtol=0, atol=1e-8)
    assert found[0] == 0


def test_segmental_snr():
    random = np.random.default_rng(1)
    clean = random.standard_normal(1600)
    assert segmental_snr(clean, clean, 8000) == 35
    assert segmental_snr(clean, 100 * clean, 8000) == -10
    # an error of a tenth of the signal is 20 dB in every frame; silence is no frame
    assert segmental_snr(clean, 1.1 * clean, 8000) == pytest.approx(20)
    padded = np.concatenate([clean, np.zeros(320)])
    assert segmental_snr(padded, 1.1 * padded, 8000) == pytest.approx(20)
    assert math.isnan(segmental_snr(np.zeros(400), np.zeros(400), 8000))


def test_a_missing_package_is_none(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    found = available()
    assert found["SegSNR"] is not None
    assert found["STOI"] is None
    assert found["PESQ"] is None


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_a_pipe_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "a.wav")
    with pytest.raises(DataError, match=r"Expected .*a.wav to be a sound file, but got a pipe, a device or a folder"):
        read_audio(tmp_path / "a.wav")


def test_a_sound_is_written_whole_and_through_no_link(tmp_path, monkeypatch):
    (tmp_path / "mine").write_text("mine")
    (tmp_path / "a.wav").symlink_to(tmp_path / "mine")
    write_wav(tmp_path / "a.wav", np.zeros(5), 8000)
    assert (tmp_path / "mine").read_text() == "mine"
    before = (tmp_path / "a.wav").read_bytes()

    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        write_wav(tmp_path / "a.wav", np.ones(7), 8000)
    assert (tmp_path / "a.wav").read_bytes() == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.wav", "mine"]
