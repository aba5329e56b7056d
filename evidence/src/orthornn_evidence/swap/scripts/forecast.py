"""The next value of a series from a window of the last 96: two seasons whose strength drifts, and noise with a memory."""

from __future__ import annotations

import math

import torch
from torch import Generator, Tensor, nn
from torch.nn import functional as F

from ..script import Layer, Places, Script

LENGTH, SPLIT, WINDOW, B, WIDTH = 6000, 4800, 96, 64, 128
UPDATES = 250


class Network(nn.Module):
    """The next value (B, 1) from the output at the last step."""

    def __init__(self, layer: Layer) -> None:
        super().__init__()
        self.rnn = layer(1, WIDTH)
        self.readout = nn.Linear(WIDTH, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Return forecasts from windows (T, B, 1)."""
        out, _ = self.rnn(x)
        return self.readout(out[-1])


def script(places: Places) -> Script:
    """Return the script."""
    series = _made()
    series = (series - series[:SPLIT].mean()) / series[:SPLIT].std()
    train, test = (part.unfold(0, WINDOW + 1, 1).T.unsqueeze(2) for part in (series[:SPLIT], series[SPLIT:]))

    def batch(number: int, generator: Generator) -> Tensor:
        return train[:, torch.randint(train.shape[1], (B,), generator=generator)]

    def loss(network: nn.Module, windows: Tensor) -> Tensor:
        return F.mse_loss(network(windows[:-1]), windows[-1])

    return Script(
        Network,
        batch,
        loss,
        lambda network: float(loss(network, test)),
        float(test[-1].square().mean()),
        UPDATES,
        "squared error, standardized",
    )


def _made() -> Tensor:
    generator = torch.Generator().manual_seed(0)
    t = torch.arange(LENGTH)
    drift = 1 + 0.3 * torch.sin(2 * math.pi * t / 1700)
    seasons = drift * torch.sin(2 * math.pi * t / 24) + 0.6 * torch.sin(2 * math.pi * t / 84 + 1).abs()
    noise, values = torch.randn(LENGTH, generator=generator) * 0.12, [0.0, 0.0]
    for push in noise.tolist():
        values.append(1.2 * values[-1] - 0.5 * values[-2] + push)
    return seasons + torch.tensor(values[2:])
