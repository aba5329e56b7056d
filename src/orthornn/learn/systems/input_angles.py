"""Angles of plane rotations, drawn by the spectrum of what a network is to read.

Two units that turn by theta and shrink by r hold z_t = sum_k (r e^(i theta))^k v'x_(t-k): the Fourier coefficient of
their past input at the frequency theta, through a window of about 1 / (1 - r) steps. Their mean square is proportional
to the power S(theta) of the input, smoothed over about 1 - r. Drawn from the whole circle, most units that read a slow
signal hold noise. Here the density is the mean of the circle's and of S(theta), whose integral is 1: units are at the
input's frequencies, and a strong peak leaves others for the rest, and for the blocks above, which read functions of the
input.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence, unpack_sequence

from ...errors import DataError
from ...modules import Transition
from ...parametrizations.rotations import BoundRotations

_PIECE = 512  # steps of a periodogram
_ROUNDING = 1e-20  # of a power, as a share of the squares of what it is of


def sequences_of(inputs: Tensor | PackedSequence) -> Iterator[Tensor]:
    """Yield the sequences (T, I) of a batch (T, B, I), or of a packed one."""
    yield from unpack_sequence(inputs) if isinstance(inputs, PackedSequence) else inputs.unbind(1)


def power_spectrum(sequences: Iterable[Tensor], timed: bool = False) -> np.ndarray:
    """Return the mean power at the frequencies 0 to pi, equally spaced, (257,): Welch's estimate over all inputs.

    The mean of each input over all sequences is taken out. Longer sequences are cut into pieces of 512 steps.

    Args:
        sequences: Each (T, I), of finite numbers.
        timed: Whether the last input is the time since the step before: the frequencies are then those per unit of
            time.

    Raises:
        DataError: If no input varies.
    """
    rows = [sequence.detach().cpu().double().numpy() for sequence in sequences if len(sequence)]
    times = [row[:, -1].cumsum() for row in rows] if timed else None
    rows = [row[:, :-1] for row in rows] if timed else rows
    mean = np.concatenate(rows).mean(0) if rows else 0.0
    power, squares = np.zeros(_PIECE // 2 + 1), 0.0
    for place, sequence in enumerate(rows):
        squares += float(np.square(sequence).sum())
        for start in range(0, len(sequence), _PIECE):
            piece = sequence[start : start + _PIECE] - mean
            window = np.hanning(len(piece) + 2)[1:-1, None]
            if times is None:
                power += np.square(np.abs(np.fft.rfft(piece * window, _PIECE, axis=0))).sum(1)
            else:
                own = times[place][start : start + _PIECE]
                waves = np.exp(-1j * np.outer(np.linspace(0, np.pi, len(power)), own))
                power += np.square(np.abs(waves @ (piece * window))).sum(1)
    if not _ROUNDING * squares < power.sum() < np.inf:
        raise DataError(
            "Expected training inputs that vary and are finite, for angles by their spectrum, but got none. Pass "
            "other angles, --angles full."
        )
    return power


def draw_by_spectrum(power: np.ndarray, count: int, generator: torch.Generator | None = None) -> Tensor:
    """Return angles (count,) in [-pi, pi], half by the power and half by the circle, with random signs: float64, on the
    CPU.

    Each of `count` equal shares of the distribution contains one, so even few angles follow it.
    """
    between = (power[1:] + power[:-1]) / 2
    below = np.concatenate([[0.0], (between / between.sum() + 1 / len(between)).cumsum()])
    places, signs = torch.rand(2, count, dtype=torch.float64, device="cpu", generator=generator)
    shares = (np.arange(count) + places.numpy()) / max(count, 1)
    angles = np.interp(shares * below[-1], below, np.linspace(0, np.pi, len(power)))
    return torch.from_numpy(angles) * torch.where(signs < 0.5, -1.0, 1.0)


@torch.no_grad()
def set_angles(core: torch.nn.Module, sequences: Iterable[Tensor], timed: bool = False) -> None:
    """Draw the angles of all rotations of a core by the spectrum of these inputs, in place.

    The blocks above the first read what those below make of the input; they get the same distribution.

    Args:
        core: The core.
        sequences: Same as in `power_spectrum`, like timed.
        timed: Whether the last input is the time since the previous step.
    """
    power = power_spectrum(sequences, timed)
    for module in core.modules():
        if isinstance(module, Transition) and isinstance(module.method, BoundRotations):
            (angles, *_) = module.free()
            angles.copy_(draw_by_spectrum(power, len(angles)))
