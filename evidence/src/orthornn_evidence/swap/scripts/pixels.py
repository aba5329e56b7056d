"""Permuted MNIST, pixel by pixel: 196 pixels, means of 2 by 2, in one fixed random order; 6000 images, two epochs."""

from __future__ import annotations

import torch
from torch import Generator, Tensor, nn
from torch.nn import functional as F

from ...files.idx import read_idx
from ..script import Layer, Places, Script

IMAGES, TEST, B, WIDTH = 6000, 2000, 50, 128
UPDATES = 2 * IMAGES // B


class Network(nn.Module):
    """Logits (B, 10) from the output at the last pixel."""

    def __init__(self, layer: Layer) -> None:
        super().__init__()
        self.rnn = layer(1, WIDTH)
        self.readout = nn.Linear(WIDTH, 10)

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits from pixels (196, B, 1)."""
        out, _ = self.rnn(x)
        return self.readout(out[-1])


def script(places: Places) -> Script:
    """Return the script."""
    folder = places.data / "mnist"
    order = torch.randperm(196, generator=torch.Generator().manual_seed(92916))

    def read(part: str, count: int) -> tuple[Tensor, Tensor]:
        images = torch.tensor(read_idx(folder / f"{part}-images-idx3-ubyte.gz", 3)[:count]).float() / 255
        labels = torch.tensor(read_idx(folder / f"{part}-labels-idx1-ubyte.gz", 1)[:count]).long()
        small = F.avg_pool2d(images.unsqueeze(1), 2).flatten(1)
        return small[:, order].T.unsqueeze(2).contiguous(), labels

    (x, y), held_out = read("train", IMAGES), read("t10k", TEST)

    def batch(number: int, generator: Generator) -> tuple[Tensor, Tensor]:
        own = torch.randint(IMAGES, (B,), generator=generator)
        return x[:, own], y[own]

    def loss(network: nn.Module, given: tuple[Tensor, Tensor]) -> Tensor:
        return F.cross_entropy(network(given[0]), given[1])

    def score(network: nn.Module) -> float:
        found = torch.cat([network(part).argmax(1) for part in held_out[0].split(500, 1)])
        return float((found == held_out[1]).float().mean())

    return Script(Network, batch, loss, score, 0.1, UPDATES, "accuracy", True)
