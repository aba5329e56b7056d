"""The short-time Fourier transform of the speech task, and the way back.

Frames of 256 samples every 128, a periodic Hann window w, no padding: n = 1 + (samples - 256) // 128 frames of 129
bins. With x_t the samples of frame t, X_t = DFT(w x_t), the feature of bin k is 10 log10(FLOOR + |X_tk|^2), in dB,
FLOOR = 1e-5 (as in the released code of Wisdom et al., 2016, whom Helfrich et al., 2018, follow). Without the floor
digital silence would be minus infinity.

Back from magnitudes and phases: the least-squares estimate of Griffin and Lim (1984), the sum of the windowed inverse
frames over the sum of the squared windows. At the first sample, where that sum is 0, the estimate is 0.
"""

from __future__ import annotations

import torch
from torch import Tensor

WINDOW = 256
HOP = 128
BINS = WINDOW // 2 + 1
FLOOR = 1e-5


def frames(samples: Tensor) -> Tensor:
    """Return the complex spectra (n, 129) of samples (S,), S >= 256."""
    window = torch.hann_window(WINDOW, dtype=samples.dtype)
    return torch.fft.rfft(samples.unfold(0, WINDOW, HOP) * window)


def log_magnitude(spectra: Tensor) -> Tensor:
    """Convert complex spectra to dB."""
    return 10 * torch.log10(FLOOR + spectra.real.square() + spectra.imag.square())


def samples(decibel: Tensor, phases: Tensor) -> Tensor:
    """Return samples (256 + 128 (n - 1),) from features (n, 129) in dB and phases (n, 129) in radians."""
    magnitude = (10 ** (decibel / 10) - FLOOR).clamp_min(0).sqrt()
    window = torch.hann_window(WINDOW, dtype=magnitude.dtype)
    pieces = torch.fft.irfft(torch.polar(magnitude, phases), WINDOW) * window
    length = WINDOW + HOP * (len(pieces) - 1)
    place = (torch.arange(len(pieces))[:, None] * HOP + torch.arange(WINDOW)).flatten()
    total = magnitude.new_zeros(length).index_add_(0, place, pieces.flatten())
    weight = magnitude.new_zeros(length).index_add_(0, place, window.square().repeat(len(pieces)))
    return torch.where(weight > 0, total / weight.clamp_min(torch.finfo(weight.dtype).tiny), 0)
