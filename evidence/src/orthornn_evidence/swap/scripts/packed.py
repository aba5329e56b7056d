"""Which of four symbols is in a sequence of 20 to 80 tokens, the others being noise: packed sequences, one or both ways."""

from __future__ import annotations

import torch
from torch import Generator, Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

from ..script import Layer, Places, Script

TRAIN, TEST, B, WIDTH, EMBEDDING = 2000, 1000, 32, 128, 32
SYMBOLS, NOISE = 4, 16
UPDATES = 3 * TRAIN // B  # three epochs


class Network(nn.Module):
    """Logits (B, 4) from the output after the last token, or from the final states of both directions."""

    def __init__(self, layer: Layer, both_ways: bool) -> None:
        super().__init__()
        self.embedding = nn.Embedding(SYMBOLS + NOISE, EMBEDDING)
        self.rnn = layer(EMBEDDING, WIDTH, bidirectional=True) if both_ways else layer(EMBEDDING, WIDTH)
        self.both_ways = both_ways
        self.readout = nn.LazyLinear(SYMBOLS) if both_ways else nn.Linear(WIDTH, SYMBOLS)
        if both_ways:  # once, for the size of the final states
            self(torch.zeros(1, 1, dtype=torch.long), torch.ones(1, dtype=torch.long))

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        """Return the logits from padded tokens (T, B)."""
        packed = pack_padded_sequence(self.embedding(x), lengths, enforce_sorted=False)
        out: PackedSequence
        out, final = self.rnn(packed)
        if self.both_ways:
            h = final[0] if isinstance(final, tuple) else final
            return self.readout(torch.cat([h[-2], h[-1]], 1))
        padded, _ = pad_packed_sequence(out)
        return self.readout(padded[lengths - 1, torch.arange(len(lengths))])


def one_way(places: Places) -> Script:
    """Return the script in one direction."""
    return _script(both_ways=False)


def both_ways(places: Places) -> Script:
    """Return the script in both directions."""
    return _script(both_ways=True)


def _script(both_ways: bool) -> Script:
    x, lengths, y = _made(TRAIN, 0)
    held_out = _made(TEST, 1)

    def batch(number: int, generator: Generator) -> tuple[Tensor, Tensor, Tensor]:
        own = torch.randint(TRAIN, (B,), generator=generator)
        return x[: lengths[own].max(), own], lengths[own], y[own]

    def loss(network: nn.Module, given: tuple[Tensor, Tensor, Tensor]) -> Tensor:
        return F.cross_entropy(network(*given[:2]), given[2])

    def score(network: nn.Module) -> float:
        return float((network(*held_out[:2]).argmax(1) == held_out[2]).float().mean())

    return Script(lambda layer: Network(layer, both_ways), batch, loss, score, 1 / SYMBOLS, UPDATES, "accuracy", True)


def _made(count: int, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return tokens (80, count), lengths and labels."""
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.randint(20, 81, (count,), generator=generator)
    x = torch.randint(SYMBOLS, SYMBOLS + NOISE, (80, count), generator=generator)
    y = torch.randint(SYMBOLS, (count,), generator=generator)
    place = (torch.rand(count, generator=generator) * lengths).long()
    x[place, torch.arange(count)] = y
    return x, lengths, y
