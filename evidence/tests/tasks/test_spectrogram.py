from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from orthornn_evidence.tasks.spectrogram import BINS, FLOOR, frames, log_magnitude, samples


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
