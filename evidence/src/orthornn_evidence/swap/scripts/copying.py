"""Copying: ten symbols, 200 blanks, then a signal to repeat the symbols (Hochreiter & Schmidhuber, 1997)."""

from __future__ import annotations

import math

import torch
from torch import Generator, Tensor, nn
from torch.nn import functional as F

from ..script import Layer, Places, Script

DELAY, SYMBOLS, COUNT, B, WIDTH = 200, 8, 10, 20, 128
T = DELAY + 2 * COUNT
UPDATES = 250


class Network(nn.Module):
    """Logits (T, B, 9) of the symbols and the blank."""

    def __init__(self, layer: Layer) -> None:
        super().__init__()
        self.rnn = layer(SYMBOLS + 2, WIDTH)
        self.readout = nn.Linear(WIDTH, SYMBOLS + 1)

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits from one-hot inputs (T, B, 10)."""
        out, _ = self.rnn(x)
        return self.readout(out)


def script(places: Places) -> Script:
    """Return the script."""

    def made(count: int, generator: Generator) -> tuple[Tensor, Tensor]:
        symbols = torch.randint(SYMBOLS, (COUNT, count), generator=generator)
        x = torch.full((T, count), SYMBOLS)
        x[:COUNT], x[-COUNT - 1] = symbols, SYMBOLS + 1
        y = torch.full((T, count), SYMBOLS)
        y[-COUNT:] = symbols
        return F.one_hot(x, SYMBOLS + 2).float(), y

    held_out = made(200, torch.Generator().manual_seed(10**6))

    def loss(network: nn.Module, given: tuple[Tensor, Tensor]) -> Tensor:
        return F.cross_entropy(network(given[0]).flatten(0, 1), given[1].flatten())

    return Script(
        Network,
        lambda number, generator: made(B, generator),
        loss,
        lambda network: float(loss(network, held_out)) / (COUNT * math.log(SYMBOLS) / T),
        1.0,
        UPDATES,
        "cross entropy over its trivial baseline",
    )
