from __future__ import annotations

import math

import numpy as np
import pytest

from orthornn_evidence.tasks.speech_scores import available, segmental_snr


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
