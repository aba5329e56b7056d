"""Log-mel frames of spoken digits, 8 kHz."""

from __future__ import annotations

import numpy as np

MEL_BANDS = 20
_WINDOW, _HOP = 256, 160  # samples


def log_mel(samples: np.ndarray, rate: int = 8000) -> np.ndarray:
    """Return log energies (frames, 20) in bands that are equally wide on the mel scale."""
    samples = np.pad(samples, (0, max(0, _WINDOW - len(samples))))
    frames = np.lib.stride_tricks.sliding_window_view(samples, _WINDOW)[::_HOP] * np.hanning(_WINDOW)
    power = np.abs(np.fft.rfft(frames, axis=1)) ** 2
    edges = 700 * (10 ** (np.linspace(0, 2595 * np.log10(1 + rate / 1400), MEL_BANDS + 2) / 2595) - 1)
    bins = np.arange(power.shape[1]) * rate / _WINDOW
    rise = (bins[:, None] - edges[:-2]) / np.diff(edges)[:-1]
    fall = (edges[2:] - bins[:, None]) / np.diff(edges)[1:]
    return np.log(power @ np.clip(np.minimum(rise, fall), 0, None) + 1e-6)
