"""The frequency of a damped oscillation in noise and drift: 100 steps of two channels, a regression."""

from __future__ import annotations

import torch
from torch import Generator, Tensor, nn
from torch.nn import functional as F

from ..script import Layer, Places, Script

T, TRAIN, TEST, B, WIDTH = 100, 1500, 500, 32, 128
UPDATES = 300


class Network(nn.Module):
    """The frequency (B,), standardized, from the output at the last step."""

    def __init__(self, layer: Layer) -> None:
        super().__init__()
        self.rnn = layer(2, WIDTH)
        self.readout = nn.Linear(WIDTH, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Return the frequencies from (T, B, 2)."""
        out, _ = self.rnn(x)
        return self.readout(out[-1]).squeeze(1)


def script(places: Places) -> Script:
    """Return the script."""
    x, y = _made(TRAIN, 0)
    held_out = _made(TEST, 1)

    def batch(number: int, generator: Generator) -> tuple[Tensor, Tensor]:
        own = torch.randint(TRAIN, (B,), generator=generator)
        return x[:, own], y[own]

    def loss(network: nn.Module, given: tuple[Tensor, Tensor]) -> Tensor:
        return F.mse_loss(network(given[0]), given[1])

    return Script(
        Network,
        batch,
        loss,
        lambda network: float(loss(network, held_out)),
        float(held_out[1].square().mean()),
        UPDATES,
        "squared error, standardized",
    )


def _made(count: int, seed: int) -> tuple[Tensor, Tensor]:
    """Return oscillations (T, count, 2) and frequencies (count,) of mean 0 and variance 1."""
    generator = torch.Generator().manual_seed(seed)
    uniform = torch.rand(3, count, generator=generator)
    rate, damping, phase = 0.1 + 0.5 * uniform[0], 0.04 * uniform[1], 6 * uniform[2]
    t = torch.arange(T)[:, None]
    clean = torch.exp(-damping * t) * torch.sin(rate * t + phase)
    drift = torch.randn(T, count, generator=generator).cumsum(0) * 0.02
    x = torch.stack([clean + drift, 0.5 * clean], 2)
    x = x + 0.15 * torch.randn(T, count, 2, generator=generator)
    return x, (uniform[0] - 0.5) * 12**0.5
