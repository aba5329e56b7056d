"""The next character of a text: Penn Treebank, windows of 128 characters."""

from __future__ import annotations

import torch
from torch import Generator, Tensor, nn
from torch.nn import functional as F

from ..script import Layer, Places, Script

T, B, WIDTH = 128, 32, 128
UPDATES = 300


class Network(nn.Module):
    """Logits (T, B, symbols) of the next character."""

    def __init__(self, layer: Layer, symbols: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(symbols, WIDTH)
        self.rnn = layer(WIDTH, WIDTH)
        self.readout = nn.Linear(WIDTH, symbols)

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits from characters (T, B)."""
        out, _ = self.rnn(self.embedding(x))
        return self.readout(out)


def script(places: Places) -> Script:
    """Return the script."""
    text = [(places.data / "ptb" / f"ptb.{part}.txt").read_text() for part in ("train", "test")]
    symbols = sorted(set(text[0]))
    known = {symbol: number for number, symbol in enumerate(symbols)}
    train, test = (torch.tensor([known[c] for c in part[: 1 << 20] if c in known]) for part in text)
    held_out = test[: 400 * (T + 1)].view(400, T + 1).T

    def batch(number: int, generator: Generator) -> Tensor:
        starts = torch.randint(len(train) - T - 1, (B,), generator=generator)
        return torch.stack([train[start : start + T + 1] for start in starts.tolist()], 1)

    def loss(network: nn.Module, x: Tensor) -> Tensor:
        return F.cross_entropy(network(x[:-1]).flatten(0, 1), x[1:].flatten())

    frequency = torch.bincount(train, minlength=len(symbols)).double()
    chance = float(
        F.cross_entropy((frequency / frequency.sum()).log().expand(held_out.numel(), -1), held_out.flatten())
    )
    return Script(
        lambda layer: Network(layer, len(symbols)),
        batch,
        loss,
        lambda network: float(loss(network, held_out)),
        chance,
        UPDATES,
        "cross entropy, nats per character",
    )
