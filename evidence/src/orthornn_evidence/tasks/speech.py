"""Prediction of speech frames (Helfrich et al., 2018, section 5.4; Wisdom et al., 2016).

Utterances at 8 kHz become frames of 129 log-magnitudes (spectrogram.py); from the frames up to t the network predicts
frame t + 1. The loss is the squared error in dB^2, the mean over bins and over all frames that exist (no padding
counts); `mse_utterance` is the mean over utterances of each one's mean. Network inputs are standardized, and its
outputs scaled back, by mean and standard deviation of all training features; the loss is in dB^2 all the same.

The trivial baseline is the mean frame of the training set; a far better simple one is the previous frame.

For the scores of reconstructed sound, predicted log-magnitudes and the true phases of the same frames become samples
again; the first frame, which nothing predicts, is the true one.
"""

from __future__ import annotations

import tarfile
import tempfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence

from orthornn._checks import check_integer, check_number
from orthornn.errors import ArgumentError, DataError
from orthornn.learn.files.audio import resample, write_wav
from orthornn.learn.files.inflate import check_inflated
from orthornn.learn.tasks import Batch, Objective, Problem
from orthornn.learn.tasks.abilities import baselines, output_files, write_outputs
from orthornn.learn.tasks.problem import in_batches
from orthornn.learn.tasks.sequences import Ragged, flat, mean_of_each
from orthornn.learn.tasks.splits import check_no_shares
from orthornn.learn.tasks.task import Task, batch_rows, judged

from ..files.download import fetch_missing
from . import speech_scores
from .spectrogram import BINS, HOP, WINDOW, frames, log_magnitude, samples
from .speech_files import EXTRA_ARCHIVE, kind_of, sound_files, sounds_below, utterances

RATE = 8000
_SCORED = 16  # test utterances; PESQ and STOI take about a tenth of a second each
# CC BY 4.0; the address and the sum that the corpus is published with
LIBRISPEECH = {
    "test-clean.tar.gz": (
        "https://www.openslr.org/resources/12/test-clean.tar.gz",
        "sha256:39fde525e59672dc6d1551919b1478f724438a95aa55f874b576be21967e6c23",
    )
}


class Utterances(NamedTuple):
    """Utterances as one block of frames."""

    features: Tensor  # (R, 129) float32, dB
    frames: Ragged
    names: list[str]
    sounds: list[np.ndarray]  # float32 at 8 kHz


@dataclass(frozen=True)
class Speech(Task):
    """Predict the next frame of a spectrogram of speech."""

    name: ClassVar[str] = "speech"
    output = "all"
    predicts_ahead = True
    metric: ClassVar[str] = "loss"
    higher_is_better: ClassVar[bool] = False

    data: str = "data/speech"
    """Folder of TIMIT (with TRAIN and TEST), folder with train.zip, valid.zip and test.zip of WAV files, or any folder of
    WAV, FLAC or OGG files."""
    extra: bool = False
    """Also train on train_extra.zip of the folder."""
    download: bool = False
    """Download LibriSpeech's test-clean (347 MB, CC BY 4.0) into the folder if it has no sound file, and divide its
    speakers at random."""
    validation_share: float = 0.1
    """Share of the speakers, or files, for validation, from 0 to 1, if the folder does not define it."""
    test_share: float = 0.1
    """Share of the speakers, or files, for the test, from 0 to 1, if the folder does not define it."""
    split_seed: int = 0
    """Seed of that split."""

    def __post_init__(self) -> None:
        check_number("validation_share", self.validation_share, 0, 1)
        check_number("test_share", self.test_share, 0, 1)
        check_integer("split_seed", self.split_seed, 0)

    def problem(self) -> Problem:
        """Return the utterances: frames in dB, standardized by the training part, and the frames after them."""
        mean, deviation = self._scale
        schema = {"input_size": BINS, "output_size": BINS, "input": "real", "output": "all", "says": "values"}
        schema |= {"scale": 1 / deviation, "offset": -mean / deviation}
        schema |= {"target_scale": deviation, "target_offset": mean, "sample_rate": RATE}
        schema |= {"sound": {"features": "log-magnitude", "window": WINDOW, "hop": HOP}}
        return Problem(
            schema,
            self._train_batch,
            lambda batch_size: self._batches(self._validation, batch_size),
            lambda batch_size: self._batches(self._test, batch_size),
        )

    def objective(self) -> Objective:
        """Return the squared error; the trivial baseline is the mean frame of the training set."""
        trivial = float(self._wanted(self._train).double().var(0, correction=0).mean())
        return _Decibels(*self._scale, trivial=trivial, **judged(self))

    def summary_lines(self) -> list[str]:
        """Return the number and duration of the utterances, and a description of a step."""
        parts = {"train": self._train, "validation": self._validation, "test": self._test}
        lengths = [
            f"{len(part.sounds)} utterances ({sum(map(len, part.sounds)) / RATE:.3g} s) for {name}"
            for name, part in parts.items()
        ]
        return [
            f"{self.data}: {', '.join(lengths)}, at {RATE} Hz; a step is a spectrum of a window of "
            f"{1000 * WINDOW / RATE:g} ms, one every {1000 * HOP / RATE:g} ms"
        ]

    @property
    def steps(self) -> int:
        """The length of the longest training utterance."""
        return int(self._train.frames.lengths.max()) - 1

    def steps_per_epoch(self, batch_size: int) -> int:
        """Return the number of full batches of the training utterances."""
        return len(self._train.frames) // batch_size

    def _train_batch(self, step: int, batch_size: int, seed: int) -> Batch:
        rows = batch_rows(step, batch_size, len(self._train.frames), seed)
        return self._batch(self._train, rows.numpy())

    def reconstruct(self, model: Any, utterance: int) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        """Return a test utterance and its reconstructions from predicted frames, each (n,) float32 at 8 kHz.

        model: maps a batch's inputs to predictions. Returns the true sound and, by name, the reconstructions
        "model" and "previous frame".
        """
        truth, spectra, features = self._spectra(utterance)
        phases = spectra.angle()
        with torch.no_grad():
            predicted = model(self._batch(self._test, np.array([utterance])).inputs)[:, 0]
        predicted = predicted.float() * self._scale[1] + self._scale[0]
        frames_of = {"model": predicted, "previous frame": features[:-1]}
        sounds = {name: samples(torch.cat([features[:1], found]), phases).numpy() for name, found in frames_of.items()}
        return truth[: len(sounds["model"])], sounds

    def scores(self, model: Any, count: int) -> dict[str, dict[str, float | None]]:
        """Return SegSNR, STOI and PESQ, the means over the first `count` test utterances, by reconstruction and score.

        A score is None if its package is not installed. Utterances for which a score is undefined are left out of it.
        """
        functions = speech_scores.available()
        found: dict[str, dict[str, list[float]]] = {}
        for utterance in range(min(check_integer("count", count, 1), len(self._test.names))):
            truth, sounds = self.reconstruct(model, utterance)
            for name, sound in sounds.items():
                of_name = found.setdefault(name, {score: [] for score in functions})
                for score, function in functions.items():
                    if function is not None:
                        of_name[score].append(function(truth, sound, RATE))
        return {
            name: {
                score: float(np.nanmean(values)) if values and not np.isnan(values).all() else None
                for score, values in of_name.items()
            }
            for name, of_name in found.items()
        }

    def _spectra(self, utterance: int) -> tuple[np.ndarray, Tensor, Tensor]:
        truth = self._test.sounds[utterance]
        spectra = frames(torch.from_numpy(truth))
        return truth, spectra, log_magnitude(spectra)

    def _batch(self, part: Utterances, chosen: np.ndarray) -> Batch:
        steps = part.frames.steps(chosen, 1)
        inputs, targets = steps.take(part.features), steps.take(part.features, 1)
        mean, deviation = self._scale
        if isinstance(inputs, PackedSequence):
            return Batch(inputs._replace(data=(inputs.data - mean) / deviation), targets)
        return Batch((inputs - mean) / deviation, targets)

    def _batches(self, part: Utterances, batch_size: int) -> Iterator[Batch]:
        return in_batches(len(part.frames), batch_size, partial(self._batch, part))

    def _predicted(self, part: Utterances) -> Tensor:
        """Return the rows that are predicted: all but the first of each utterance."""
        there = torch.ones(len(part.features), dtype=torch.bool)
        there[torch.from_numpy(part.frames.starts)] = False
        return there.nonzero()[:, 0]

    def _wanted(self, part: Utterances) -> Tensor:
        return part.features[self._predicted(part)]

    @cached_property
    def _scale(self) -> tuple[float, float]:
        """Mean and standard deviation of all training features."""
        features = self._train.features.double()
        deviation = float(features.std())
        if deviation == 0:
            raise DataError(f"Expected speech, but the training sounds in {self.data} are silent.")
        return float(features.mean()), deviation

    @cached_property
    def _train(self) -> Utterances:
        return self._read("train")

    @cached_property
    def _validation(self) -> Utterances:
        return self._read("validation")

    @cached_property
    def _test(self) -> Utterances:
        return self._read("test")

    def files(self) -> dict[str, Path]:
        """Return the archives, or every sound file of the folder."""
        return sound_files(Path(self.data).expanduser(), self.extra)

    def _read(self, part: str) -> Utterances:
        folder = Path(self.data).expanduser()
        if self.download:
            self._fetch(folder)
        kind = kind_of(folder)
        if kind != "sounds":
            check_no_shares(self, "a folder of sounds", folder)
        if self.extra and kind != "archives":
            raise ArgumentError(
                f"Expected extra, --extra, only with a folder that has {EXTRA_ARCHIVE}, but got True for {folder}, which has "
                f"no archives. Leave it out."
            )
        names, sounds, features = [], [], []
        for name, sound, rate in utterances(
            folder, part, self.extra, self.validation_share, self.test_share, self.split_seed
        ):
            sound = resample(sound, rate, RATE)
            if len(sound) < WINDOW + HOP:
                raise DataError(
                    f"Expected at least {WINDOW + HOP} samples, two frames, but {name} in {folder} has {len(sound)} at "
                    f"{RATE} Hz. Remove it."
                )
            names.append(name)
            sounds.append(sound if part == "test" else sound[:0])
            features.append(log_magnitude(frames(torch.from_numpy(sound))))
        lengths = np.array([len(one) for one in features])
        return Utterances(torch.cat(features), Ragged(lengths), names, sounds)

    def _fetch(self, folder: Path) -> None:
        """Download LibriSpeech's test-clean and unpack it into `folder`, one folder per speaker."""
        if folder.is_dir() and (
            sounds_below(folder)[0] or any(path.suffix.lower() == ".zip" for path in folder.iterdir())
        ):
            return
        fetch_missing(folder, LIBRISPEECH)
        for name in LIBRISPEECH:
            try:
                self._unpack(folder, folder / name)
            except (tarfile.TarError, zlib.error, EOFError) as error:
                raise DataError(
                    f"Expected a tar archive, but {folder / name} is truncated, corrupt or another file: "
                    f"{error}. Remove it and "
                    f"fetch it again."
                ) from error

    def _unpack(self, folder: Path, path: Path) -> None:
        becomes = 0
        # Speakers come into the folder when all are there: what is found in it later is taken for the whole corpus.
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".unpacking-") as new, tarfile.open(path) as archive:
            for member in archive:
                becomes += member.size
                check_inflated(path, path.stat().st_size, becomes, "Remove it and fetch it again.")
                if member.isfile() and member.name.endswith(".flac"):
                    inside = Path(*Path(member.name).parts[2:])  # without LibriSpeech/test-clean/
                    content = archive.extractfile(member)
                    assert content is not None
                    if ".." in inside.parts:
                        raise DataError(
                            f"Expected files inside its folder, but {path} has {member.name}. Fetch it from its publisher."
                        )
                    (Path(new) / inside).parent.mkdir(parents=True, exist_ok=True)
                    (Path(new) / inside).write_bytes(content.read())
            for speaker in sorted(Path(new).iterdir()):
                speaker.rename(folder / speaker.name)


@dataclass(frozen=True)
class _Decibels(Objective):
    """The mean squared error in dB^2 of standardized predictions. mean, deviation: Of all training features."""

    trivial_formula: ClassVar[str] = "the squared distance in dB^2 of training frames from their mean frame"

    mean: float
    deviation: float

    def loss(self, prediction: Tensor, targets: Tensor | PackedSequence) -> Tensor:
        return self._errors(prediction, targets).mean()

    def metrics(self, prediction: Tensor, targets: Tensor | PackedSequence) -> dict[str, tuple[float, float]]:
        """Return loss and mse_utterance, both in dB^2."""
        errors = self._errors(prediction, targets).detach().double()
        of_each = mean_of_each(errors, targets)
        return {
            "loss": (float(errors.sum()), len(errors)),
            "mse_utterance": (float(of_each.sum()), len(of_each)),
        }

    def _errors(self, prediction: Tensor, targets: Tensor | PackedSequence) -> Tensor:
        rows, wanted = flat(prediction, targets)
        return (rows * self.deviation + self.mean - wanted).square().mean(-1)


@baselines.register
def _(task: Speech) -> dict[str, float]:
    """Return the test losses of the previous frame and of the training set's mean frame."""
    wanted = task._wanted(task._test)
    mean = task._wanted(task._train).double().mean(0)
    before = task._test.features[task._predicted(task._test) - 1]
    return {
        "previous frame": float((wanted - before).square().mean(dtype=torch.float64)),
        "mean frame of the training set": float((wanted - mean).square().mean()),
    }


@output_files.register
def _(task: Speech) -> list[str]:
    return ["true.wav", "model.wav", "previous-frame.wav"]


@write_outputs.register
def _(task: Speech, model: Any, folder: Path) -> list[str]:
    """Write the first test utterance as it is and as it is reconstructed; return the scores of the first ones."""
    truth, sounds = task.reconstruct(model, 0)
    for name, sound in {"true": truth, **sounds}.items():
        write_wav(folder / f"{name.replace(' ', '-')}.wav", sound, RATE)
    lines = []
    scores = task.scores(model, _SCORED)
    for name, of_name in scores.items():
        shown = ", ".join(
            f"{score} {'not computed' if value is None else f'{value:.3f}'}" for score, value in of_name.items()
        )
        lines.append(f"sound reconstructed from {name}, first {_SCORED} test utterances: {shown}")
    absent = sorted({score for of_name in scores.values() for score, value in of_name.items() if value is None})
    if absent:
        lines.append(f"{', '.join(absent)}: package missing (extras speech and pesq), or no score defined")
    return [*lines, f"sound: {', '.join(sorted(str(path) for path in folder.glob('*.wav')))}"]
