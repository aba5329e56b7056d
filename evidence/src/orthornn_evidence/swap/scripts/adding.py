"""Adding: the sum of the two numbers that are marked among 400 (Hochreiter & Schmidhuber, 1997)."""

from __future__ import annotations

import torch
from torch import Generator, Tensor, nn
from torch.nn import functional as F

from ..script import Layer, Places, Script

T, B, WIDTH = 400, 20, 128
UPDATES = 250


class Network(nn.Module):
    """The sum (B,) from the output at the last step."""

    def __init__(self, layer: Layer) -> None:
        super().__init__()
        self.rnn = layer(2, WIDTH)
        self.readout = nn.Linear(WIDTH, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Return the sums from (T, B, 2)."""
        out, _ = self.rnn(x)
        return self.readout(out[-1]).squeeze(1)


def script(places: Places) -> Script:
    """Return the script."""

    def made(count: int, generator: Generator) -> tuple[Tensor, Tensor]:
        numbers = torch.rand(T, count, generator=generator)
        marks, each = torch.zeros(T, count), torch.arange(count)
        for half in range(2):
            marks[torch.randint(T // 2, (count,), generator=generator) + half * (T // 2), each] = 1
        return torch.stack([numbers, marks], 2), (numbers * marks).sum(0)

    held_out = made(500, torch.Generator().manual_seed(10**6))

    def loss(network: nn.Module, given: tuple[Tensor, Tensor]) -> Tensor:
        return F.mse_loss(network(given[0]), given[1])

    return Script(
        Network,
        lambda number, generator: made(B, generator),
        loss,
        lambda network: float(loss(network, held_out)),
        float((held_out[1] - 1).square().mean()),
        UPDATES,
        "squared error",
    )
