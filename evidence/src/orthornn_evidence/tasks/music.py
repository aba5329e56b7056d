"""Generation of a stretch of music (Mhammedi et al., 2017, section 5.1; Koutnik et al., 2014).

Five consecutive excerpts of 800 samples (18 ms at 44.1 kHz) from `start` on; one network memorizes one of them. Its only
inputs are a constant 1 (so V is one column) and its learned initial state, and it outputs all 800 samples. It never reads
the target. (The paper's parameter counts fit this: n (n + 1) / 2 + 4 n + 1.)

The loss is the normalized mean squared error, NMSE = sum (y - y')^2 / sum (y - mean y)^2; always predicting the mean
has 1. Outputs are scaled by mean and standard deviation of the excerpt. Every update sees the whole excerpt, so an
update is what the paper calls an epoch; training, validation and test are the same samples. The paper reports the
lowest NMSE of 5000.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from orthornn._checks import check_integer
from orthornn.errors import DataError
from orthornn.learn.files.audio import read_audio, write_wav
from orthornn.learn.files.left_out import is_left_out
from orthornn.learn.tasks import Batch, Objective, Problem
from orthornn.learn.tasks.abilities import output_files, write_outputs
from orthornn.learn.tasks.task import Task, judged

EXCERPTS = 5


@dataclass(frozen=True)
class Music(Task):
    """Generate an excerpt of music from a constant input."""

    name: ClassVar[str] = "music"
    output = "all"
    metric: ClassVar[str] = "loss"
    higher_is_better: ClassVar[bool] = False
    batch_size: ClassVar[int] = 1

    data: str = "data/music.wav"
    """Sound file (WAV, FLAC, OGG), or folder with exactly one WAV file."""
    excerpt: int = 0
    """Number of the excerpt among five consecutive ones, from 0 to 4."""
    start: int = 22050
    """Sample at which the first excerpt begins; there should be music."""
    length: int = 800
    """Samples of an excerpt."""

    def __post_init__(self) -> None:
        check_integer("excerpt", self.excerpt, 0, EXCERPTS - 1)
        check_integer("start", self.start, 0)
        check_integer("length", self.length, 2)

    @property
    def steps(self) -> int:
        """Samples of the excerpt."""
        return self.length

    @property
    def rate(self) -> int:
        """The rate of the file in Hz."""
        return self._read[1]

    @property
    def samples(self) -> np.ndarray:
        """The excerpt, (length,) float32 in [-1, 1)."""
        return self._read[0]

    def problem(self) -> Problem:
        """Return the excerpt, standardized, for every part."""
        mean, deviation = self._scale
        schema = {"input_size": 1, "output_size": 1, "input": "real", "output": "all", "says": "values"}
        schema |= {"target_scale": deviation, "target_offset": mean, "sample_rate": self.rate}
        return Problem(schema, self._train_batch, self._held_out, self._held_out)

    def objective(self) -> Objective:
        """Return the NMSE."""
        mean, deviation = self._scale
        trivial = float(((self.samples.astype(np.float64) - mean) ** 2).mean() / deviation**2)
        return _NMSE(trivial=trivial, **judged(self))

    def summary_lines(self) -> list[str]:
        """Return the position of the excerpt in the file."""
        return [
            f"{self._path}: {self.length} samples at {self.rate} Hz ({1000 * self.length / self.rate:.3g} ms), from sample "
            f"{self._first} on; a step is a sample"
        ]

    def _train_batch(self, step: int, batch_size: int, seed: int) -> Batch:
        check_integer("batch_size", batch_size, 1, 1, "One network learns one excerpt.")
        return self._batch

    def _held_out(self, batch_size: int) -> Iterator[Batch]:
        yield self._batch

    def generate(self, model: Any) -> np.ndarray:
        """Return the output of the network: (length,) float32, on the scale of the file."""
        mean, deviation = self._scale
        with torch.no_grad():
            return (model(self._batch.inputs)[:, 0, 0].float() * deviation + mean).numpy()

    @cached_property
    def _batch(self) -> Batch:
        mean, deviation = self._scale
        wanted = torch.from_numpy((self.samples - mean) / deviation).float()
        return Batch(torch.ones(self.length, 1, 1), wanted.view(-1, 1, 1))

    @cached_property
    def _scale(self) -> tuple[float, float]:
        excerpt = self.samples.astype(np.float64)
        deviation = float(excerpt.std())
        if deviation == 0:
            raise DataError(
                f"Expected sound, but {self.data} is silent in the {self.length} samples from {self._first} on. Choose "
                f"another start."
            )
        return float(excerpt.mean()), deviation

    @property
    def _first(self) -> int:
        return self.start + self.excerpt * self.length

    def files(self) -> dict[str, Path]:
        """Return the sound file."""
        return {self._path.name: self._path}

    @property
    def _path(self) -> Path:
        path = Path(self.data).expanduser()
        if path.is_dir():
            found = sorted(file for file in path.glob("*.wav") if not is_left_out(file.name))
            if len(found) != 1:
                raise DataError(
                    f"Expected one WAV file, but {path} holds {len(found)}. Name the file with data, --data."
                )
            path = found[0]
        return path

    @cached_property
    def _read(self) -> tuple[np.ndarray, int]:
        path = self._path
        if not path.exists():
            raise DataError(
                f"Expected a sound file (WAV, FLAC, OGG), but there is no file {path}. Name it with data, --data."
            )
        return read_audio(path, first=self._first, count=self.length)


@dataclass(frozen=True)
class _NMSE(Objective):
    """The normalized mean squared error."""

    trivial_formula: ClassVar[str] = "the NMSE of the excerpt's mean"

    def loss(self, prediction: Tensor, targets: Tensor) -> Tensor:
        return (prediction - targets).square().mean()  # the targets have variance 1

    def metrics(self, prediction: Tensor, targets: Tensor) -> dict[str, tuple[float, float]]:
        return {"loss": (float(self.loss(prediction, targets).detach()), 1)}


@output_files.register
def _(task: Music) -> list[str]:
    return ["true.wav", "generated.wav", "waveforms.png"]


@write_outputs.register
def _(task: Music, model: Any, folder: Path) -> list[str]:
    """Write the excerpt and what the network generates, as sounds and in a figure."""
    from orthornn.learn.report.figures import figure_note, or_a_warning

    from .waveforms import waveforms

    waves = {"true": task.samples, "generated": task.generate(model)}
    for name, wave in waves.items():
        write_wav(folder / f"{name}.wav", wave, task.rate)
    figure = folder / "waveforms.png"
    with or_a_warning(figure):
        waveforms(figure, f"excerpt {task.excerpt}, {task.length} samples from a constant input", waves, task.rate)
    return [f"sound: {folder / 'true.wav'}, {folder / 'generated.wav'}{figure_note(figure)}"]
