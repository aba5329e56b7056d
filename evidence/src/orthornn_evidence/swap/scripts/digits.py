"""Spoken digits of six speakers (Jakobovski et al., free-spoken-digit-dataset): log-mel frames, packed."""

from __future__ import annotations

import numpy as np
import torch
from torch import Generator, Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence, pad_sequence

from orthornn.errors import DataError
from orthornn.learn.files.audio import read_audio
from orthornn.learn.files.left_out import is_left_out

from ...tasks.log_mel import MEL_BANDS, log_mel
from ..script import Layer, Places, Script

B, WIDTH = 32, 128
UPDATES = 300


class Network(nn.Module):
    """Logits (B, 10) from the output at the last frame."""

    def __init__(self, layer: Layer) -> None:
        super().__init__()
        self.rnn = layer(MEL_BANDS, WIDTH)
        self.readout = nn.Linear(WIDTH, 10)

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        """Return the logits from padded frames (T, B, 20)."""
        out: PackedSequence
        out, _ = self.rnn(pack_padded_sequence(x, lengths, enforce_sorted=False))
        padded, _ = pad_packed_sequence(out)
        return self.readout(padded[lengths - 1, torch.arange(len(lengths))])


def script(places: Places) -> Script:
    """Return the script; DataError without the recordings. Numbers 0 to 4 of each digit and speaker are the test."""
    if places.digits is None or not places.digits.is_dir():
        raise DataError(f"Expected a folder of spoken digits, but got {places.digits}. Name one with --digits.")
    files = sorted(file for file in places.digits.glob("*_*_*.wav") if not is_left_out(file.name))
    files = [file for file in files if int(file.stem.split("_")[2]) < 25]
    if not files:
        raise DataError(
            f"Expected DIGIT_SPEAKER_NUMBER.wav in {places.digits}, but it has no such file. Name another folder."
        )
    x = [torch.tensor(np.asarray(log_mel(read_audio(file)[0])), dtype=torch.float32) for file in files]
    y = torch.tensor([int(file.stem.split("_")[0]) for file in files])
    is_test = [int(file.stem.split("_")[2]) < 5 for file in files]
    own = [one for one, other in zip(x, is_test) if not other]
    mean, deviation = torch.cat(own).mean(0), torch.cat(own).std(0)
    x = [(one - mean) / deviation for one in x]
    train, test = ([i for i, other in enumerate(is_test) if other == part] for part in (False, True))

    def gathered(chosen: list[int]) -> tuple[Tensor, Tensor, Tensor]:
        return pad_sequence([x[i] for i in chosen]), torch.tensor([len(x[i]) for i in chosen]), y[chosen]

    held_out = gathered(test)

    def batch(number: int, generator: Generator) -> tuple[Tensor, Tensor, Tensor]:
        return gathered([train[i] for i in torch.randint(len(train), (B,), generator=generator).tolist()])

    def loss(network: nn.Module, given: tuple[Tensor, Tensor, Tensor]) -> Tensor:
        return F.cross_entropy(network(*given[:2]), given[2])

    def score(network: nn.Module) -> float:
        return float((network(*held_out[:2]).argmax(1) == held_out[2]).float().mean())

    return Script(Network, batch, loss, score, 0.1, UPDATES, "accuracy", True)
