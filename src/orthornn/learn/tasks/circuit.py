r"""An overdrive pedal as a circuit, which makes a wet recording out of a dry one.

Three parts, one after the other; a sample of 1 is one volt. Resistances in ohms, capacitances in farads, T the time
between two samples, and s = (2 / T) (z - 1) / (z + 1) (the bilinear transform) in what is linear.

gain        H(s) = 1 + drive s / (s + 2 pi 720 Hz): as in overdrive pedals, the low notes are amplified less
clipper     C dv/dt = (u - v) / R - 2 I_s sinh(v / V_t): a low-pass with two antiparallel diodes (Yeh, Abel and Smith,
            2007). By backward Euler, (1 + a) v_n + b sinh(v_n / V_t) = v_{n-1} + a u_n with a = T / (R C) and
            b = 2 I_s T / C: the left side rises with v_n, so there is one solution, to rounding of float64
tone stack  the passive network of the '59 Bassman with its values (Yeh and Smith, 2006), by nodal analysis

There is no oversampling: the aliases of the clipper belong to the effect.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

Array = np.ndarray

_CORNER = 2 * np.pi * 720.0  # rad/s
_R, _C, _IS, _VT = 2.2e3, 10e-9, 2.52e-9, 45.3e-3
_TREBLE, _BASS, _MIDDLE, _SLOPE = 250e3, 1e6, 25e3, 56e3  # three potentiometers and a resistor
_C1, _C2, _C3 = 250e-12, 20e-9, 20e-9
_RESPONSE = 1 << 15  # samples of the tone stack's impulse response; its slowest pole is about 20 ms
_CHUNK, _BEFORE = 1 << 14, 1 << 11  # samples of the clipper at once; what is before them is forgotten after so many


def overdrive(dry: Array, rate: int, drive: float) -> Array:
    """Return what the pedal makes of samples (n,) at a rate in Hz, float64."""
    dry = np.asarray(dry, np.float64)
    gained = filtered(dry, rate, lambda s: 1 + drive * s / (s + _CORNER))
    return filtered(clipped(gained, rate), rate, tone_stack)


def clipped(u: Array, rate: int) -> Array:
    """Return the voltages of the clipper for inputs u (n,), from v = 0 on.

    Chunks run side by side, each after the end of the one before, whose first steps the clipper has forgotten.
    """
    a, b = 1 / (rate * _R * _C), 2 * _IS / (rate * _C)
    grid = np.linspace(-2, 2, 4001)
    table = (1 + a) * grid + b * np.sinh(grid / _VT)
    chunks = -(-len(u) // _CHUNK)
    padded = np.concatenate([np.zeros(_BEFORE), u, np.zeros(chunks * _CHUNK - len(u))])
    columns = np.stack([padded[k * _CHUNK : (k + 1) * _CHUNK + _BEFORE] for k in range(chunks)], 1)
    v, out = np.zeros(chunks), np.empty_like(columns)
    for t, row in enumerate(columns):
        wanted = v + a * row
        v = np.interp(wanted, table, grid)
        for _ in range(2):  # Newton's method from 3e-6 V away
            v = v - ((1 + a) * v + b * np.sinh(v / _VT) - wanted) / (1 + a + b / _VT * np.cosh(v / _VT))
        out[t] = v
    return out[_BEFORE:].T.reshape(-1)[: len(u)]


def tone_stack(s: Array, treble: float = 0.7, middle: float = 0.5, bass: float = 0.5) -> Array:
    """Return H(s) of the tone stack for complex s (K,), with its controls between 0 and 1.

    The treble capacitor C1 and the slope resistor leave the input; nodes are the upper end of the treble control, the
    far end of the slope resistor, the lower end of the treble control, the upper end of the middle control and its tap.
    """
    top, slope, low, middle_top, tap, ground = range(6)
    branches = (
        (top, low, 1 / _TREBLE + 0 * s),
        (slope, low, s * _C2),
        (slope, tap, s * _C3),
        (low, middle_top, 1 / (bass * _BASS) + 0 * s),
        (middle_top, tap, 1 / ((1 - middle) * _MIDDLE) + 0 * s),
        (tap, ground, 1 / (middle * _MIDDLE) + 0 * s),
    )
    admittance, current = np.zeros((len(s), 6, 6), complex), np.zeros((len(s), 6, 1), complex)
    for p, q, y in branches:
        admittance[:, p, p] += y
        admittance[:, q, q] += y
        admittance[:, p, q] -= y
        admittance[:, q, p] -= y
    for p, y in ((top, s * _C1), (slope, 1 / _SLOPE + 0 * s)):  # from the input, 1 V
        admittance[:, p, p] += y
        current[:, p, 0] += y
    voltage = np.linalg.solve(admittance[:, :5, :5], current[:, :5])[..., 0]
    return treble * voltage[:, top] + (1 - treble) * voltage[:, low]


def filtered(x: Array, rate: int, response: Callable[[Array], Array]) -> Array:
    """Return samples (n,) after a linear filter H(s), a function of complex s (K,)."""
    angles = np.linspace(0, np.pi, _RESPONSE // 2 + 1)
    angles[-1] -= 1e-9  # s is infinite at half the sampling rate
    impulse = np.fft.irfft(response(2j * rate * np.tan(angles / 2)), _RESPONSE)
    size = 1 << (len(x) + _RESPONSE - 1).bit_length()
    return np.fft.irfft(np.fft.rfft(x, size) * np.fft.rfft(impulse, size), size)[: len(x)]
