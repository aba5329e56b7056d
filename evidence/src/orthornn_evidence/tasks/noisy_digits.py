"""Images that end long before the answer: rows of an image, then noise, after Chang et al. (2019), who do so with CIFAR-10.

The network sees one row per step, 28 pixels of MNIST; after the 28 rows come T - 28 steps of noise, and it names the
class after the last. Pixels are divided by 255; noise pixels are uniform bytes over 255, drawn afresh for each image and
update in training, and fixed for validation and test. Images are divided as in pixel-mnist.

A static network that reads all T steps at once has T W weights per hidden unit, 28000 at T = 1000: more than the 16400
parameters of the small networks that this task compares.

The trivial baseline is the same as for pixel-mnist.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch

from orthornn._checks import check_integer
from orthornn.errors import ArgumentError
from orthornn.learn.tasks import Batch
from orthornn.learn.tasks.streams import stream
from orthornn.learn.tasks.task import LARGEST

from .pixel_mnist import Images, Pictures


@dataclass(frozen=True)
class NoisyDigits(Images):
    """Classify an image from its rows, which are followed by noise."""

    name: ClassVar[str] = "noisy-digits"

    T: int = 1000
    """Steps of a sequence, the rows of the image included."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_integer("T", self.T, 1, LARGEST)

    def _input_size(self) -> int:
        return self._train.width

    @property
    def steps(self) -> int:
        """T."""
        return self.T

    def _arrange(self, images: Pictures, purpose: str, seed: int, first: int) -> Batch:
        """Return inputs (T, B, W) float32 in [0, 1]."""
        count, width = len(images.labels), images.width
        rows = images.pixels.shape[1] // width
        if rows > self.T:
            raise ArgumentError(f"Expected T of at least {rows}, the rows of an image, but got {self.T}. Raise T.")
        shape = (self.T - rows, width)
        if purpose == "train":
            noise = _bytes(stream(purpose, seed, first), (count, *shape))
        else:  # the same for an image in batches of any size
            noise = np.stack([_bytes(stream(purpose, seed, first + k), shape) for k in range(count)])
        shown = torch.cat([images.pixels.view(count, rows, width), torch.from_numpy(noise)], 1)
        inputs = shown.transpose(0, 1).to(torch.float32, memory_format=torch.contiguous_format).div_(self._white)
        return Batch(inputs, images.labels)


def _bytes(random: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    return np.frombuffer(bytearray(random.bytes(int(np.prod(shape)))), np.uint8).reshape(shape)
