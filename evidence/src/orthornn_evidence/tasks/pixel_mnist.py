"""Pixel-by-pixel image classification (Le et al., 2015; Mhammedi et al., 2017, section 5.3; Helfrich et al.,
2018, 5.3).

The network sees one pixel a step, row by row (784 steps for MNIST), and names the class after the last.
Pixels are divided by 255 (by 256 in the variants of released code), so they are in [0, 1]; nothing else is done to
them. `permuted` shuffles the steps by one fixed permutation, numpy's of seed 92916, which the released code of the field
shares.

Division of the images (with MNIST's 60000 training and 10000 test images):

variant               training    validation    which
mhammedi2017          55000       5000          a permutation from `split_seed`; its last 5000 are for validation. The
                                                paper does not say which it took
helfrich2018          60000       none          all for training; 5.3 says 55000, its scripts have no validation images
vorontsov2017         50000       10000         the first and the last, in the file's order in every epoch; the paper
                                                does not say which, nor in which order
vorontsov2017-code    50000       10000         the first and the last; every batch is the beginning of a new
                                                permutation, so an epoch does not contain every image; pixels are
                                                divided by 256, as in the file that the released code reads
mhammedi2017-code     55000       5000          from two independent permutations: about 92 % of the validation images
                                                are training images; pixels are divided by 256

In all but the last no image is in both. `validation_size` changes the 5000 and the 10000.

The trivial baseline predicts each class with its frequency p_k among the training images: -sum_k p_k ln p_k, ln 10 if
they are equal.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from orthornn._checks import check_choice, check_integer
from orthornn.errors import DataError
from orthornn.learn.tasks import Batch, Objective, Problem
from orthornn.learn.tasks.streams import stream
from orthornn.learn.tasks.task import Task, batch_rows, judged

from ..files.download import fetch_missing
from ..files.idx import read_idx

# sha256 of the original files
MNIST_FILES = {
    "train-images-idx3-ubyte.gz": "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
    "train-labels-idx1-ubyte.gz": "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
    "t10k-images-idx3-ubyte.gz": "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
    "t10k-labels-idx1-ubyte.gz": "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
}
# a public copy of the original files, checked against the sums above
MNIST_SOURCE = "https://ossci-datasets.s3.amazonaws.com/mnist/"
PERMUTATION_SEED = 92916
_FARTHEST = 1 << 16  # rows that an image may be moved by
Variant = Literal["mhammedi2017", "helfrich2018", "vorontsov2017", "mhammedi2017-code", "vorontsov2017-code"]
_VALIDATION = {
    "mhammedi2017": 5000,
    "helfrich2018": 0,
    "vorontsov2017": 10_000,
    "mhammedi2017-code": 5000,
    "vorontsov2017-code": 10_000,
}


class Pictures(NamedTuple):
    """Images with their classes: pixels (count, H W) uint8 in the task's order, labels (count,) int64, and W."""

    pixels: Tensor
    labels: Tensor
    width: int

    def take(self, rows: Tensor) -> Pictures:
        """Return some of them."""
        return Pictures(self.pixels[rows], self.labels[rows], self.width)


@dataclass(frozen=True)
class _CrossEntropy(Objective):
    """The cross-entropy in nats. frequencies: Of the classes of the training images, (K,)."""

    trivial_formula: ClassVar[str] = "-sum_k p_k ln p_k over the class frequencies of the training images"

    frequencies: Tensor

    @property
    def trivial_loss(self) -> float:
        """The entropy in nats of the classes of the training images."""
        return float(torch.special.entr(self.frequencies).sum())

    @property
    def trivial_metric(self) -> float:
        """The share of the most frequent class among the training images."""
        return float(self.frequencies.max())

    def loss(self, prediction: Tensor, targets: Tensor) -> Tensor:
        return F.cross_entropy(prediction, targets)

    def metrics(self, prediction: Tensor, targets: Tensor) -> dict[str, tuple[float, int]]:
        """Return loss and accuracy, the share of images classified correctly."""
        count = len(targets)
        return {
            "loss": (float(self.loss(prediction, targets)) * count, count),
            "accuracy": (float((prediction.argmax(-1) == targets).sum()), count),
        }


@dataclass(frozen=True)
class Images(Task):
    """The classification of images in the files of MNIST; subclasses show them as sequences."""

    output = "last"
    metric: ClassVar[str] = "accuracy"
    higher_is_better: ClassVar[bool] = True

    data: str = "data/mnist"
    """Folder with the four original files, train-images-idx3-ubyte.gz and so on."""
    variant: Variant = "mhammedi2017"
    """Images for training and for validation: 55000 and 5000 (mhammedi2017), all 60000 and none (helfrich2018), the
    first 50000 and the last 10000 in the file's order (vorontsov2017) or in batches from fresh permutations, as in that
    paper's released code (vorontsov2017-code), or two overlapping sets as in the released code (mhammedi2017-code)."""
    download: bool = False
    """Download files that the folder does not have, and check their checksums."""
    verify: bool = True
    """Refuse files that are not the original MNIST (by sha256). Turn it off for other data in the same format under the
    same four file names (Fashion-MNIST, your own); the number of classes is read off the labels."""
    validation_size: int | None = None
    """Training images held out for validation. Default: the variant's number."""
    split_seed: int = 0
    """Seed of the split."""

    def __post_init__(self) -> None:
        check_choice("variant", self.variant, _VALIDATION)
        if self.validation_size is not None:
            check_integer("validation_size", self.validation_size, 0)
        check_integer("split_seed", self.split_seed, 0)

    def problem(self) -> Problem:
        """Return the images; none for validation in helfrich2018."""
        sizes = {"input_size": self._input_size(), "output_size": self._classes}
        schema = {**sizes, "input": "real", "output": "last", "says": "classes", **self._preprocessing()}
        return Problem(
            schema,
            self._train_batch,
            lambda batch_size: self._batches(self._parts[1], batch_size, "validation"),
            lambda batch_size: self._batches(self._test, batch_size, "test"),
        )

    def objective(self) -> Objective:
        """Return the cross-entropy, and the share of images classified correctly."""
        return _CrossEntropy(self._frequencies, **judged(self))

    @abstractmethod
    def _input_size(self) -> int:
        """Return the pixels of a step."""

    def _preprocessing(self) -> dict[str, Any]:
        """Return what pixels are multiplied with."""
        return {"scale": 1 / self._white}

    def steps_per_epoch(self, batch_size: int) -> int | None:
        """Return the number of full batches of the training images."""
        return len(self._train.labels) // batch_size

    def _train_batch(self, step: int, batch_size: int, seed: int) -> Batch:
        train = self._train
        if self.variant == "vorontsov2017":
            check_integer("batch_size", batch_size, 1, len(train.labels))
            start = step % (len(train.labels) // batch_size) * batch_size
            rows = torch.arange(start, start + batch_size)
        elif self.variant == "vorontsov2017-code":
            check_integer("batch_size", batch_size, 1, len(train.labels))
            drawn = stream("order", seed, step).permutation(len(train.labels))  # afresh for every step
            rows = torch.from_numpy(drawn[:batch_size])
        else:
            rows = batch_rows(step, batch_size, len(train.labels), seed)
        return self._arrange(train.take(rows), "train", seed, step)

    def files(self) -> dict[str, Path]:
        """Return the four files of the folder."""
        folder = Path(self.data).expanduser()
        return {name: folder / name for name in MNIST_FILES}

    @cached_property
    def _parts(self) -> tuple[Pictures, Pictures]:
        """The training and the validation images."""
        images = self._read("train")
        count = len(images.labels)
        held_out = _VALIDATION[self.variant] if self.validation_size is None else self.validation_size
        check_integer("validation_size", held_out, 0, count - 1, f"{self.data} has {count} training images.")
        if self.variant.startswith("vorontsov2017"):
            order = torch.arange(count)
        else:
            order = torch.from_numpy(stream("split", self.split_seed).permutation(count))
        train, validation = order.split([count - held_out, held_out])
        if self.variant == "mhammedi2017-code":
            validation = torch.from_numpy(stream("split", self.split_seed, 1).permutation(count))[-held_out:]
        return images.take(train), images.take(validation)

    @cached_property
    def _train(self) -> Pictures:
        return self._parts[0]

    @cached_property
    def _classes(self) -> int:
        return int(max(part.labels.max() for part in self._parts if len(part.labels))) + 1

    @cached_property
    def _frequencies(self) -> Tensor:
        counts = torch.bincount(self._train.labels, minlength=self._classes).double()
        return counts / counts.sum()

    @cached_property
    def _test(self) -> Pictures:
        test = self._read("t10k")
        highest = int(test.labels.max())
        shown = self._train.pixels.shape[1]
        if test.pixels.shape[1] != shown or highest >= self._classes:
            raise DataError(
                f"Expected test files with {shown} pixels and labels up to {self._classes - 1}, as the training files in "
                f"{self.data} have, but got {test.pixels.shape[1]} pixels and labels up to {highest}. Fetch them again."
            )
        return test

    def _read(self, part: str) -> Pictures:
        folder = Path(self.data).expanduser()
        if self.download:
            fetch_missing(folder, {name: (MNIST_SOURCE + name, f"sha256:{sums}") for name, sums in MNIST_FILES.items()})
        missing = [name for name in MNIST_FILES if not (folder / name).is_file()]
        if missing:
            what = f"{folder} has no {', '.join(missing)}" if folder.is_dir() else f"there is no folder {folder}"
            raise DataError(
                f"Expected the four original MNIST files ({', '.join(MNIST_FILES)}), but {what}. Name the folder that "
                f"holds them with data, --data FOLDER, or fetch them into it with download=True, --download."
            )
        names = [f"{part}-images-idx3-ubyte.gz", f"{part}-labels-idx1-ubyte.gz"]
        image_name, label_name = names
        images, labels = (
            read_idx(folder / name, dimensions, MNIST_FILES[name] if self.verify else None)
            for name, dimensions in zip(names, (3, 1))
        )
        if len(images) != len(labels) or len(labels) == 0 or images[0].size == 0:
            raise DataError(
                f"Expected one label per image, and at least one image, but {folder / image_name} holds {len(images)} "
                f"images and {label_name} {len(labels)} labels."
            )
        flat = self._ordered(images.reshape(len(images), -1))
        return Pictures(torch.from_numpy(flat.copy()), torch.from_numpy(labels.astype(np.int64)), images.shape[2])

    def _ordered(self, pixels: np.ndarray) -> np.ndarray:
        """Return pixels (count, H W) in the order in which they are shown."""
        return pixels

    @property
    def _white(self) -> int:
        return 256 if self.variant.endswith("-code") else 255

    @abstractmethod
    def _arrange(self, images: Pictures, purpose: str, seed: int, first: int) -> Batch:
        """Return the batch of these images; purpose, seed and first identify them."""

    def _batches(self, images: Pictures, batch_size: int, purpose: str) -> Iterator[Batch]:
        check_integer("batch_size", batch_size, 1)
        for start in range(0, len(images.labels), batch_size):
            rows = torch.arange(start, min(start + batch_size, len(images.labels)))
            yield self._arrange(images.take(rows), purpose, 0, start)


@dataclass(frozen=True)
class PixelMNIST(Images):
    """Classify an image from its pixels, one per step."""

    name: ClassVar[str] = "pixel-mnist"

    permuted: bool = False
    """Show the pixels in a fixed random order."""
    shift: int = 0
    """Move every training image by up to this many rows and columns, drawn again each time, with black at its edges.
    Images for validation and test stay."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_integer("shift", self.shift, 0, _FARTHEST)

    def _input_size(self) -> int:
        return 1

    @property
    def steps(self) -> int:
        """Pixels of an image."""
        return self._train.pixels.shape[1]

    def _preprocessing(self) -> dict[str, Any]:
        """Return the same with the permutation."""
        order = np.random.RandomState(PERMUTATION_SEED).permutation(self.steps).tolist() if self.permuted else None
        return {**super()._preprocessing(), **({} if order is None else {"order": order})}

    def _ordered(self, pixels: np.ndarray) -> np.ndarray:
        if not self.permuted:
            return pixels
        return pixels[:, np.random.RandomState(PERMUTATION_SEED).permutation(pixels.shape[1])]

    def _arrange(self, images: Pictures, purpose: str, seed: int, first: int) -> Batch:
        """Return inputs (T, B, 1) float32 in [0, 1]."""
        pixels = images.pixels
        if self.shift and purpose == "train":
            pixels = self._moved(images, stream(purpose, seed, first))
        shown = pixels.t().to(torch.float32, memory_format=torch.contiguous_format).div_(self._white)
        return Batch(shown.unsqueeze(-1), images.labels)

    def _moved(self, images: Pictures, random: np.random.Generator) -> Tensor:
        """Return the pixels (count, H W) of each image, moved by random rows and columns."""
        rows, columns, at = self._places
        down, right = torch.from_numpy(random.integers(-self.shift, self.shift + 1, (2, len(images.labels), 1)))
        row, column, width = rows - down, columns - right, images.width
        height = images.pixels.shape[1] // width
        inside = (row >= 0) & (row < height) & (column >= 0) & (column < width)
        return images.pixels.gather(1, at[torch.where(inside, row * width + column, 0)]) * inside

    @cached_property
    def _places(self) -> tuple[Tensor, Tensor, Tensor]:
        """Row and column of each pixel as it is shown, and when the pixel of each place is shown; all (H W,)."""
        size, width = self._train.pixels.shape[1], self._train.width
        places = torch.from_numpy(self._ordered(np.arange(size)[None])[0].copy())
        return places // width, places % width, places.argsort()
