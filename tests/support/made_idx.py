"""Small made data in the idx format, under MNIST's file names."""

from __future__ import annotations

import gzip
import os
from pathlib import Path

import numpy as np

_BESIDE = Path(__file__).parents[3] / "shared" / "data" / "mnist"
REAL_MNIST = Path(os.environ.get("ORTHORNN_MNIST", _BESIDE))


def write_idx(path: Path, array: np.ndarray) -> None:
    header = bytes([0, 0, 8, array.ndim]) + np.array(array.shape, ">u4").tobytes()
    path.write_bytes(gzip.compress(header + array.astype(np.uint8).tobytes(), mtime=0))


def write_images(folder: Path, train: int = 40, test: int = 12, side: int = 3, classes: int = 4) -> Path:
    """Images that are all different: the first pixel is the image's number, the others tell the label."""
    folder.mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng(7)
    first = 0
    for part, count in (("train", train), ("t10k", test)):
        labels = np.arange(count) % classes
        images = random.integers(0, 20, (count, side, side)) + 50 * labels[:, None, None]
        images[:, 0, 0] = first + np.arange(count)
        write_idx(folder / f"{part}-images-idx3-ubyte.gz", images)
        write_idx(folder / f"{part}-labels-idx1-ubyte.gz", labels)
        first += count
    return folder
