"""A nonlinear audio effect, sample by sample, from a dry and a wet recording of the same sound.

The recordings are divided in time: the first samples are for training, then come those for validation, the last are for
the test. An update sees `truncation` consecutive samples of each of B streams, which divide the training part among
them, and the state of the network is carried over from one update to the next, without a gradient (truncated
back-propagation). An epoch goes once through all streams, from another sample on every time. Validation and test read
their part as one stream. The first `skipped` samples of an epoch, and as many before a part, fill the state and are not
counted.

The metric is the error-to-signal ratio, ESR = sum (p y - p y')^2 / sum (p y)^2 with the pre-emphasis p y_t = y_t - c
y_{t-1} (Wright et al., 2020); silence has 1. The first sample of a segment, which has no neighbor in it, is not counted.
`plain_esr` is without pre-emphasis. The loss in training is the same error, over the mean energy of the training part.

The wet recording is a file, or made by the circuit of circuit.py. Dry and wet samples are divided by their standard
deviations.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from ..._checks import check_integer, check_number
from ...errors import ArgumentError, DataError
from ..files.audio import read_audio, write_wav
from .abilities import output_files, write_outputs
from .circuit import overdrive
from .objective import Objective
from .problem import Batch, Problem
from .splits import counts
from .streams import stream
from .task import Task, judged

DRY, WET = "dry.wav", "wet.wav"
_PIECE = 16384  # samples of validation and test at once


@dataclass(frozen=True)
class Amplifier(Task):
    """Learn an audio effect from a dry and a wet recording."""

    name: ClassVar[str] = "amplifier"
    output = "all"
    metric: ClassVar[str] = "esr"
    higher_is_better: ClassVar[bool] = False
    batch_size: ClassVar[int] = 32

    data: str = "data/amplifier"
    """Folder with dry.wav and wet.wav, or only the dry sound file (WAV, FLAC, OGG)."""
    wet: str = ""
    """Wet sound file. Default: wet.wav of the folder; for a dry file, the dry sound through an overdrive circuit."""
    drive: float = 20.0
    """Gain of the overdrive circuit, without a wet sound file."""
    truncation: int = 2048
    """Samples per stream and update, through which the gradient flows."""
    skipped: int = 1000
    """First samples of an epoch that have no loss, while the state fills; fewer than --truncation - 1."""
    emphasis: float = 0.95
    """Coefficient c of the pre-emphasis y_t - c y_(t-1) in the loss, from 0 (none) to 1."""
    validation_share: float = 0.2
    """Share of the recording for validation, before the test, from 0 to 1."""
    test_share: float = 0.2
    """Share of the recording for the test, at its end, from 0 to 1."""

    def __post_init__(self) -> None:
        check_number("drive", self.drive, 0, 1e6)
        check_integer("truncation", self.truncation, 2, 1 << 24)
        check_integer("skipped", self.skipped, 0, self.truncation - 2, "Some sample of a segment has to count.")
        check_number("emphasis", self.emphasis, 0, 1)
        check_number("validation_share", self.validation_share, 0, 1)
        check_number("test_share", self.test_share, 0, 1)

    @property
    def steps(self) -> int:
        """Samples of a stream in an update."""
        return self.truncation

    @property
    def rate(self) -> int:
        """The rate of the files in Hz."""
        return self._read[2]

    def problem(self) -> Problem:
        """Return the segments: dry samples in, wet ones out, divided by their standard deviations in the training part."""
        dry, wet, _ = self._scale
        schema = {"input_size": 1, "output_size": 1, "input": "real", "output": "all", "says": "values"}
        schema |= {"scale": 1 / dry, "target_scale": wet, "sample_rate": self.rate}
        parts = (lambda batch_size: self._pieces("validation"), lambda batch_size: self._pieces("test"))
        return Problem(schema, self._train_batch, *parts)

    def objective(self) -> Objective:
        """Return the error after pre-emphasis; silence has the ESR 1."""
        return _ErrorToSignal(self.emphasis, self._scale[2], self.steps_per_epoch, trivial=1.0, **judged(self))

    def summary_lines(self) -> list[str]:
        """Return how long the recordings are, and how they are divided."""
        made = "" if len(self.files()) > 1 else ", wet made by an overdrive circuit"
        seconds = ", ".join(f"{part} {(end - at) / self.rate:.3g} s" for part, (at, end) in self._bounds.items())
        return [f"{', '.join(self.files())}{made}: {self.rate} Hz; {seconds}"]

    def files(self) -> dict[str, Path]:
        """Return the sound files."""
        dry, wet = self._paths
        return {dry.name: dry} if wet is None else {DRY: dry, WET: wet}

    def steps_per_epoch(self, batch_size: int) -> int:
        """Return how many segments a stream has."""
        start, end = self._bounds["train"]
        count = (end - start) // self.truncation
        check_integer("batch_size", batch_size, 1, count, f"The training part has {count} segments.")
        return max(1, (end - start) // batch_size // self.truncation - 1)

    def _train_batch(self, step: int, batch_size: int, seed: int) -> Batch:
        """Return the segments of this step, one of each stream."""
        segments = self.steps_per_epoch(batch_size)
        epoch, place = divmod(step, segments)
        start, end = self._bounds["train"]
        long = (end - start) // batch_size
        offset = int(stream("order", seed, epoch).integers(long - segments * self.truncation + 1))
        starts = start + offset + place * self.truncation + long * np.arange(batch_size)
        batch = self._batch(starts[None] + np.arange(self.truncation)[:, None])
        if not place:
            batch.targets[: self.skipped] = torch.nan
        return batch

    def sounds(self, part: str = "test") -> dict[str, np.ndarray]:
        """Return the dry and the wet samples of a part, (n,) float32."""
        at, end = self._bounds[part]
        return {"dry": self._read[0][at:end], "wet": self._read[1][at:end]}

    def effect(self, model: Any) -> np.ndarray:
        """Return what a network makes of the dry samples of the test part: (n,) float32, on the scale of the file."""
        state, found = None, []
        with torch.no_grad():
            for batch in self._pieces("test"):
                y, state = model.stream(batch.inputs, state)
                found.append(y[~batch.targets.isnan()].float().cpu())
        return torch.cat(found).numpy() * np.float32(self._scale[1])

    def _pieces(self, part: str) -> Iterator[Batch]:
        at, end = self._bounds[part]
        first = max(0, at - self.skipped)
        for start in range(first, end, _PIECE):
            places = np.arange(start, min(start + _PIECE, end))
            batch = self._batch(places[:, None])
            batch.targets[torch.from_numpy(places < at)] = torch.nan
            yield batch

    def _batch(self, places: np.ndarray) -> Batch:
        """Return the samples at these places (T, B), divided by the deviations."""
        dry, wet, _ = self._scale
        x, y = self._read[0][places] / dry, self._read[1][places] / wet
        return Batch(torch.from_numpy(x).float().unsqueeze(-1), torch.from_numpy(y).float().unsqueeze(-1))

    @cached_property
    def _bounds(self) -> dict[str, tuple[int, int]]:
        """The first sample and the one after the last of every part."""
        total = len(self._read[0])
        if total < 3 * self.truncation:
            raise DataError(
                f"Expected at least {3 * self.truncation} samples, three segments, but {self.data} has {total}. Record more, "
                f"or lower truncation, --truncation."
            )
        training, validation, _ = counts(total, self.validation_share, self.test_share)
        ends = (0, training, training + validation, total)
        if training < self.truncation:
            raise DataError(
                f"Expected at least {self.truncation} samples for training, one segment, but got {training} of {total}. "
                f"Lower validation_share and test_share (--validation-share, --test-share)."
            )
        return dict(zip(("train", "validation", "test"), pairwise(ends)))

    @cached_property
    def _scale(self) -> tuple[float, float, float]:
        """Deviations of the dry and the wet training part, and the mean energy of the standardized wet one, emphasized."""
        dry, wet, _ = self._read
        at, end = self._bounds["train"]
        sizes = [float(values[at:end].std()) for values in (dry, wet)]
        for what, values in (("dry", dry), ("wet", wet)):
            for part, (a, b) in self._bounds.items():
                if not values[a:b].any():
                    raise DataError(
                        f"Expected sound in every part, but the {what} recording is silent from sample {a} to {b} "
                        f"({part}). Cut the silence out of both files."
                    )
        if 0 in sizes:
            raise DataError(f"Expected sound to learn from, but {self.data} is constant in its training part.")
        y = wet[at:end] / sizes[1]
        return sizes[0], sizes[1], float(np.square(y[1:] - self.emphasis * y[:-1]).mean())

    @property
    def _paths(self) -> tuple[Path, Path | None]:
        """The dry file and the wet one, or None if that is made."""
        path = Path(self.data).expanduser()
        if path.is_dir():
            return path / DRY, Path(self.wet).expanduser() if self.wet else path / WET
        return path, Path(self.wet).expanduser() if self.wet else None

    @cached_property
    def _read(self) -> tuple[np.ndarray, np.ndarray, int]:
        """Dry and wet samples, float64, and their rate."""
        paths = self._paths
        for path in paths:
            if path is not None and not path.exists():
                raise DataError(
                    f"Expected a folder with {DRY} and {WET}, or a sound file, but there is no {path}. Name it with "
                    f"data, --data, and the wet file with wet, --wet."
                )
        dry, rate = read_audio(paths[0])
        if paths[1] is None:
            return dry.astype(np.float64), overdrive(dry, rate, self.drive), rate
        wet, other = read_audio(paths[1])
        if (len(wet), other) != (len(dry), rate):
            raise DataError(
                f"Expected two recordings of one length and rate, but got {len(dry)} samples at {rate} Hz in {paths[0]} and "
                f"{len(wet)} at {other} Hz in {paths[1]}. Export them again from one session, aligned to the sample."
            )
        if self.drive != Amplifier.drive:
            raise ArgumentError("Expected drive only where the circuit makes the wet recording. Leave it out.")
        return dry.astype(np.float64), wet.astype(np.float64), rate


@dataclass(frozen=True)
class _ErrorToSignal(Objective):
    """The error after pre-emphasis. energy: The mean one of the training part. segments: Returns those of a stream."""

    trivial_formula: ClassVar[str] = "1, the ESR of silence"
    carries_state: ClassVar[bool] = True

    emphasis: float
    energy: float
    segments: Callable[[int], int]

    def begins(self, step: int, batch_size: int) -> bool:
        """Return whether this step is the first of an epoch."""
        return step % self.segments(batch_size) == 0

    def loss(self, prediction: Tensor, targets: Tensor) -> Tensor:
        """Return the mean squared error after pre-emphasis, over the mean energy of the training part."""
        counted = ~self._emphasized(targets).isnan()
        return self._emphasized(targets - prediction)[counted].square().mean() / self.energy

    def metrics(self, prediction: Tensor, targets: Tensor) -> dict[str, tuple[float, float]]:
        """Return the loss, the ESR and the ESR without pre-emphasis."""
        error = (targets - prediction).double()
        counted, emphasized = ~targets.isnan(), ~self._emphasized(targets).isnan()

        def energy(values: Tensor, of: Tensor) -> float:
            return float(values[of].square().sum())

        ratio = (energy(self._emphasized(error), emphasized), energy(self._emphasized(targets.double()), emphasized))
        return {"loss": ratio, "esr": ratio, "plain_esr": (energy(error, counted), energy(targets.double(), counted))}

    def _emphasized(self, values: Tensor) -> Tensor:
        """Return values (T, ...) after pre-emphasis, (T - 1, ...); a single one as it is."""
        return values if len(values) == 1 else values[1:] - self.emphasis * values[:-1]


@output_files.register
def _(task: Amplifier) -> list[str]:
    return ["dry.wav", "wet.wav", "learned.wav"]


@write_outputs.register
def _(task: Amplifier, model: Any, folder: Path) -> list[str]:
    """Write the test part: dry, wet, and as the network makes it."""
    sounds = {**task.sounds(), "learned": task.effect(model)}
    files = {folder / f"{name}.wav": sound for name, sound in sounds.items()}
    for file, sound in files.items():
        write_wav(file, sound, task.rate)
    return [f"sound of the test part: {', '.join(map(str, files))}"]
