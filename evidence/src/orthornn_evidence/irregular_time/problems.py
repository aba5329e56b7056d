"""Sequences of samples at irregular times, and their targets.

forecast    A system of four damped oscillators, the same in all sequences, from a random state: their sum, with noise, at 100
            times 1, 2, ..., some of which are dropped at random, the same number in each sequence. The last row has no
            value; the target is the sum without noise at its time, 1 to 10 after the last sample.
frequency   One such oscillator in each sequence, exp(-lambda t) cos(omega t + phase); the target is its omega.
sensors     the activities of own_data/sets.py, the first 40 steps of each sequence, 9 channels: a class
events      the patterns of own_data/sets.py, 150 steps of one channel: a class

Every batch of oscillators is new, and the error is the mean squared error divided by the variance of the targets.
In sensors and events, rows are dropped at random once, differently in each sequence; every fifth sequence of the training
part is for validation. The error is the fraction of wrong classes.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from orthornn.learn.tasks.streams import stream

from ..own_data.sets import SETS, Places

POINTS = 100
SYSTEM = ((0.13, 0.37, 0.71, 1.1), (0.01, 0.02, 0.01, 0.02))
"""The frequencies and decays of the oscillators whose sum is forecast, per unit of time."""
_LONGEST_GAP = 10  # from the last sample to the target
_FREQUENCIES, _DECAYS, _NOISE = (0.1, 1.5), (0.005, 0.03), 0.1
_VARIANCE = (_FREQUENCIES[1] - _FREQUENCIES[0]) ** 2 / 12
_TESTED = 2000

Sequences = tuple[Tensor, Tensor]
"""Samples (T, B, I), whose last input is the time since the previous sample, and targets: (B, 1), or classes int64 (B,)."""


@dataclass(frozen=True)
class Problem:
    """Sequences with their targets.

    inputs: Size of a sample, including its time. outputs: O. batch: Returns the sequences of an update from a seed, the
    number of the update and the batch size. part: Returns the sequences of "validation" or "test". pool: "last" or "mean",
    the outputs that the readout reads.
    """

    inputs: int
    outputs: int
    batch: Callable[[int, int, int], Sequences]
    part: Callable[[str], Sequences]
    pool: Literal["last", "mean"] = "mean"

    def loss(self, found: Tensor, answers: Tensor) -> Tensor:
        """Return the training loss."""
        return F.cross_entropy(found, answers) if self.outputs > 1 else F.mse_loss(found, answers)

    def error(self, found: Tensor, answers: Tensor) -> float:
        """Return the fraction of wrong classes, or the mean squared error over the variance of the targets."""
        if self.outputs > 1:
            return float((found.argmax(1) != answers).double().mean())
        return float(F.mse_loss(found, answers) / answers.var())


Made = Callable[[Path, float], Problem]


def system_forecasts(random: np.random.Generator, count: int, dropped: float) -> Sequences:
    """Return samples of the system (K + 1, B, 2), value and time since the previous sample, and the targets (B, 1).

    Args:
        random: Random generator.
        count: B.
        dropped: Share of the points to drop.
    """
    times = kept_places(random, count, POINTS, dropped) + 1.0
    times = np.append(times, times[:, -1:] + random.integers(1, _LONGEST_GAP + 1, (count, 1)), 1)
    omega, decay = map(np.array, SYSTEM)
    at = times[:, :, None]
    real, imaginary = random.normal(size=(2, count, 1, len(omega)))
    values = (np.exp(-decay * at) * (real * np.cos(omega * at) + imaginary * np.sin(omega * at))).sum(2)
    answers = values[:, -1:].astype(np.float32)
    values += _NOISE * random.normal(size=values.shape)
    values[:, -1] = 0
    return _with_times(values, times), torch.from_numpy(answers)


def frequencies(random: np.random.Generator, count: int, dropped: float) -> Sequences:
    """Return samples (T, B, 2), value and time since the previous sample, and frequencies (B, 1), standardized.

    Args:
        random: Random generator.
        count: B.
        dropped: Share of the points to drop.
    """
    times = kept_places(random, count, POINTS, dropped) + 1.0
    omega, decay = (random.uniform(*ends, (count, 1)) for ends in (_FREQUENCIES, _DECAYS))
    values = np.exp(-decay * times) * np.cos(omega * times + random.uniform(0, 2 * math.pi, (count, 1)))
    values += _NOISE * random.normal(size=values.shape)
    targets = (omega - sum(_FREQUENCIES) / 2) / math.sqrt(_VARIANCE)
    return _with_times(values, times), torch.from_numpy(targets.astype(np.float32))


def _with_times(values: np.ndarray, times: np.ndarray) -> Tensor:
    """Return values (B, T) with the times since the previous ones, (T, B, 2) in float32."""
    return torch.from_numpy(np.stack([values.T, np.diff(times, axis=1, prepend=0).T], -1).astype(np.float32))


def kept_places(random: np.random.Generator, count: int, points: int, dropped: float) -> np.ndarray:
    """Return which of the points of each sequence remain, (count, K), ascending."""
    kept = round(points * (1 - dropped))
    return np.sort(np.argsort(random.random((count, points)), 1)[:, :kept], 1)


def thinned(random: np.random.Generator, x: np.ndarray, dropped: float) -> Tensor:
    """Return the remaining rows of sequences (B, T, I), and the time since the previous row: (K, B, I + 1) in float32."""
    places = kept_places(random, len(x), x.shape[1], dropped)
    rows = np.take_along_axis(x, places[:, :, None], 1)
    elapsed = np.diff(places, axis=1, prepend=-1)[:, :, None]
    return torch.from_numpy(np.concatenate([rows, elapsed], 2).transpose(1, 0, 2).astype(np.float32))


def _drawn(draw: Callable[[np.random.Generator, int, float], Sequences], pool: Literal["last", "mean"]) -> Made:
    def problem(folder: Path, dropped: float) -> Problem:
        return Problem(
            2,
            1,
            lambda seed, update, count: draw(stream("train", seed, update), count, dropped),
            lambda part: draw(stream(part, 0), _TESTED, dropped),
            pool,
        )

    return problem


def _classes(name: str, steps: int) -> Made:
    def problem(folder: Path, dropped: float) -> Problem:
        task = SETS[name](Places(folder))
        files = {"train": task.data, "test": task.test_data}  # type: ignore[attr-defined]
        read = {part: np.load(file) for part, file in files.items()}
        mean, deviation = (getattr(read["train"]["x"][:, :steps], of)((0, 1)) for of in ("mean", "std"))
        parts: dict[str, Sequences] = {}
        for part, arrays in read.items():
            x = thinned(stream(part, 0), (arrays["x"][:, :steps] - mean) / deviation, dropped)
            parts[part] = x, torch.from_numpy(arrays["y"]).long()
        x, y = parts["train"]
        held = torch.arange(len(y)) % 5 == 4
        parts["train"], parts["validation"] = ((x[:, chosen], y[chosen]) for chosen in (~held, held))
        inputs, answers = parts["train"]

        def batch(seed: int, update: int, count: int) -> Sequences:
            chosen = stream("order", seed, update).choice(len(answers), count, replace=False)
            return inputs[:, chosen], answers[chosen]

        return Problem(inputs.shape[2], int(y.max()) + 1, batch, parts.__getitem__)

    return problem


PROBLEMS: dict[str, Made] = {
    "forecast": _drawn(system_forecasts, "last"),
    "frequency": _drawn(frequencies, "mean"),
    "sensors": _classes("sensors", 40),
    "events": _classes("events", 150),
}
"""Problems by name, as functions of a folder, in which the data sets are written, and the share of dropped samples."""
