"""Scores of reconstructed speech: SegSNR (Brookes, 1997), STOI (Taal et al., 2011), PESQ (Rix et al., 2001)."""

from __future__ import annotations

import importlib.util
import warnings
from collections.abc import Callable

import numpy as np

_FRAME = 0.020  # seconds
_LOWEST, _HIGHEST = -10.0, 35.0  # dB


def segmental_snr(clean: np.ndarray, found: np.ndarray, rate: int) -> float:
    """Return the mean over frames of 20 ms of 10 log10(sum s^2 / sum (s - s')^2), each cut to [-10, 35] dB.

    clean, found: (n,). Frames in which `clean` is silent throughout have no such ratio and are left out; so is what
    is left over at the end. NaN if no frame is left.
    """
    length = round(_FRAME * rate)
    count = len(clean) // length
    parts = clean[: count * length].astype(np.float64).reshape(count, length)
    error = parts - found[: count * length].astype(np.float64).reshape(count, length)
    signal, noise = (parts**2).sum(1), (error**2).sum(1)
    heard = signal > 0
    if not heard.any():
        return float("nan")
    with np.errstate(divide="ignore"):
        ratio = 10 * np.log10(signal[heard] / noise[heard])
    return float(np.clip(ratio, _LOWEST, _HIGHEST).mean())


def available() -> dict[str, Callable[[np.ndarray, np.ndarray, int], float] | None]:
    """Return the function (clean, found, rate) of each score; None if its package is not installed."""
    return {
        "SegSNR": segmental_snr,
        "STOI": _stoi if importlib.util.find_spec("pystoi") else None,
        "PESQ": _pesq if importlib.util.find_spec("pesq") else None,
    }


def _stoi(clean: np.ndarray, found: np.ndarray, rate: int) -> float:
    from pystoi import stoi

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        value = float(stoi(clean, found, rate))
    return float("nan") if caught else value  # pystoi warns, and answers 1e-5, where there is too little speech


def _pesq(clean: np.ndarray, found: np.ndarray, rate: int) -> float:
    from pesq import NoUtterancesError, pesq

    try:
        return float(pesq(rate, clean, found, "nb"))
    except (NoUtterancesError, ValueError):  # the latter, by way of a NaN, where `found` is silent
        return float("nan")
