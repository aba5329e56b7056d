"""Polyphonic music as piano rolls (Boulanger-Lewandowski et al., 2012).

88 keys, pressed or not, at every step; from the frames up to t the network predicts frame t + 1. The loss is the
negative log-likelihood of a frame in nats, the sum over the 88 keys, each an independent Bernoulli given the past; the
mean over all predicted frames. `accuracy` is defined as in the field: keys pressed and predicted (probability above 1/2)
over keys pressed or predicted.

The trivial baseline predicts each key with the frequency with which it is pressed in the predicted training frames.

The collections come as files of MATLAB, each with training, validation and test sequences. No license is stated for
them, so they are not fetched from anywhere here.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import ClassVar, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F
from torch.nn.utils.rnn import PackedSequence

from orthornn._checks import check_choice
from orthornn._optional_packages import import_optional
from orthornn.errors import DataError
from orthornn.learn.files.inflate import check_inflated
from orthornn.learn.tasks import Batch, Objective, Problem
from orthornn.learn.tasks.abilities import baselines
from orthornn.learn.tasks.problem import in_batches
from orthornn.learn.tasks.sequences import Ragged, flat
from orthornn.learn.tasks.task import Task, batch_rows, judged

KEYS = 88
COLLECTIONS = {
    "jsb": "JSB_Chorales.mat",
    "nottingham": "Nottingham.mat",
    "piano-midi": "Piano_midi.mat",
    "musedata": "MuseData.mat",
}
_COMPRESSED = 15  # the kind of an element in a file of MATLAB 5 to 7.2
_PARTS = {"train": "traindata", "validation": "validdata", "test": "testdata"}


class Rolls(NamedTuple):
    """Pieces as one block of frames."""

    frames: Tensor  # (R, 88) float32
    pieces: Ragged


@dataclass(frozen=True)
class PianoRolls(Task):
    """Predict the next frame of a piano roll."""

    name: ClassVar[str] = "piano-rolls"
    output = "all"
    predicts_ahead = True
    metric: ClassVar[str] = "loss"
    higher_is_better: ClassVar[bool] = False
    batch_size: ClassVar[int] = 10

    data: str = "data/polymusic"
    """Folder with JSB_Chorales.mat, Nottingham.mat, Piano_midi.mat, MuseData.mat; or one such file."""
    collection: Literal["jsb", "nottingham", "piano-midi", "musedata"] = "jsb"
    """Collection to learn, if --data is a folder."""

    def __post_init__(self) -> None:
        check_choice("collection", self.collection, COLLECTIONS)

    @property
    def steps(self) -> int:
        """The length of the longest training piece."""
        return int(self._rolls["train"].pieces.lengths.max()) - 1

    def problem(self) -> Problem:
        """Return the pieces: outputs are keys, each pressed with a probability of its own."""
        schema = {"input_size": KEYS, "output_size": KEYS, "input": "real", "output": "all", "says": "probabilities"}
        held_out = partial(self._held_out, "validation"), partial(self._held_out, "test")
        return Problem(schema, self._train_batch, *held_out)

    def objective(self) -> Objective:
        """Return the negative log-likelihood; the trivial baseline has the entropies of the keys' frequencies."""
        p = self._wanted("train").double().mean(0)
        entropy = float((torch.special.entr(p) + torch.special.entr(1 - p)).sum())
        return _OfFrames(trivial=entropy, **judged(self))

    def steps_per_epoch(self, batch_size: int) -> int:
        """Return the number of full batches of the training pieces."""
        return len(self._rolls["train"].pieces) // batch_size

    def _train_batch(self, step: int, batch_size: int, seed: int) -> Batch:
        rows = batch_rows(step, batch_size, len(self._rolls["train"].pieces), seed)
        return self._batch("train", rows.numpy())

    def _batch(self, part: str, chosen: np.ndarray) -> Batch:
        frames, pieces = self._rolls[part]
        steps = pieces.steps(chosen, 1)
        return Batch(steps.take(frames), steps.take(frames, 1))

    def _held_out(self, part: str, batch_size: int) -> Iterator[Batch]:
        return in_batches(len(self._rolls[part].pieces), batch_size, partial(self._batch, part))

    def _predicted(self, part: str) -> Tensor:
        frames, pieces = self._rolls[part]
        there = torch.ones(len(frames), dtype=torch.bool)
        there[torch.from_numpy(pieces.starts)] = False
        return there.nonzero()[:, 0]

    def _wanted(self, part: str) -> Tensor:
        return self._rolls[part].frames[self._predicted(part)]

    def files(self) -> dict[str, Path]:
        """Return the file of the collection."""
        return {self._path.name: self._path}

    @property
    def _path(self) -> Path:
        path = Path(self.data).expanduser()
        return path / COLLECTIONS[self.collection] if path.is_dir() or not path.suffix else path

    @cached_property
    def _rolls(self) -> dict[str, Rolls]:
        path = self._path
        if not path.is_file():
            raise DataError(
                f"Expected {' or '.join(COLLECTIONS.values())}, but there is none at {path}. Name the file, or the "
                f"folder that holds it, with data, --data."
            )
        io = import_optional("scipy.io", "data", "files of MATLAB")
        _check_size(path)
        try:
            content = io.loadmat(path)
        except Exception as error:  # scipy raises many kinds for a damaged file
            raise DataError(
                f"Expected a file of MATLAB 4 to 7.2, but {path} is truncated, corrupt or another file: "
                f"{error}. Fetch it again."
            ) from error
        missing = [key for key in _PARTS.values() if key not in content]
        if missing:
            raise DataError(
                f"Expected the entries {', '.join(_PARTS.values())}, but {path} has no {', '.join(missing)}."
            )
        return {part: _part(path, key, content[key]) for part, key in _PARTS.items()}


@dataclass(frozen=True)
class _OfFrames(Objective):
    """The negative log-likelihood of a frame in nats."""

    trivial_formula: ClassVar[str] = "sum_k of the entropy of key k's frequency in the training frames"

    def loss(self, prediction: Tensor, targets: Tensor | PackedSequence) -> Tensor:
        rows, wanted = flat(prediction, targets)
        return F.binary_cross_entropy_with_logits(rows, wanted, reduction="sum") / len(wanted)

    def metrics(self, prediction: Tensor, targets: Tensor | PackedSequence) -> dict[str, tuple[float, float]]:
        """Return loss and accuracy; see above."""
        rows, wanted = flat(prediction, targets)
        foreseen, pressed = rows > 0, wanted > 0
        return {
            "loss": (float(self.loss(prediction, targets).detach()) * len(wanted), len(wanted)),
            "accuracy": (float((foreseen & pressed).sum()), float((foreseen | pressed).sum())),
        }


@baselines.register
def _(task: PianoRolls) -> dict[str, float]:
    """Return the test loss of holding or releasing each key with the training set's probability, given its present
    state (counted from 1).
    """
    train, test = (task._rolls[part].frames for part in ("train", "test"))
    after, before = task._wanted("train").double(), train[task._predicted("train") - 1].double()
    on = ((before * after).sum(0) + 1) / (before.sum(0) + 2)
    off = (((1 - before) * after).sum(0) + 1) / ((1 - before).sum(0) + 2)
    now = test[task._predicted("test") - 1].double()
    nll = F.binary_cross_entropy(now * on + (1 - now) * off, task._wanted("test").double(), reduction="none")
    return {"each key by its present state": float(nll.sum(1).mean())}


def _check_size(path: Path) -> None:
    """Raise DataError if the compressed elements of a file of MATLAB 5 to 7.2 would become more than the bound."""
    content = path.read_bytes()
    order = "<" if content[126:128] == b"IM" else ">"
    place, becomes = 128, 0
    while place + 8 <= len(content):
        kind, size = struct.unpack_from(f"{order}II", content, place)
        if kind != _COMPRESSED:
            return  # scipy reports what is wrong with any other
        unpack, rest = zlib.decompressobj(), content[place + 8 : place + 8 + size]
        try:
            while rest and not unpack.eof:
                becomes += len(unpack.decompress(rest, 1 << 20))
                check_inflated(path, len(content), becomes, "Fetch it again.")
                rest = unpack.unconsumed_tail
        except zlib.error:
            return
        place += 8 + size


def _part(path: Path, key: str, cells: np.ndarray) -> Rolls:
    pieces = [np.asarray(cell) for cell in np.asarray(cells).ravel()]
    for number, piece in enumerate(pieces):
        if piece.ndim != 2 or piece.shape[1] != KEYS or not np.isin(piece, (0, 1)).all():
            raise DataError(
                f"Expected zeros and ones of shape (time, {KEYS}), but {path}, {key}, piece {number}, is a "
                f"{piece.dtype} array of shape {piece.shape}."
            )
    pieces = [piece for piece in pieces if len(piece) >= 2]  # no shorter one has anything to predict
    if not pieces:
        raise DataError(f"Expected a piece of at least two frames, but {path}, {key}, has none. Fetch the file again.")
    frames = torch.from_numpy(np.concatenate(pieces).astype(np.float32))
    return Rolls(frames, Ragged(np.array([len(piece) for piece in pieces])))
