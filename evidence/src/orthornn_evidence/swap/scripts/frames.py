"""The next frame of speech from those before: log magnitudes of 129 bins, standardized, utterances of LibriSpeech."""

from __future__ import annotations

import torch
from torch import Generator, Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pad_sequence

from ...tasks import spectrogram
from ...tasks.speech_files import utterances
from ..script import Layer, Places, Script

TRAIN, TEST, LONGEST, B, WIDTH = 590, 64, 160, 16, 128
UPDATES = 200


class Network(nn.Module):
    """The next frame (T, B, 129)."""

    def __init__(self, layer: Layer) -> None:
        super().__init__()
        self.rnn = layer(spectrogram.BINS, WIDTH)
        self.readout = nn.Linear(WIDTH, spectrogram.BINS)

    def forward(self, x: Tensor) -> Tensor:
        """Return the prediction from frames (T, B, 129)."""
        out, _ = self.rnn(x)
        return self.readout(out)


def script(places: Places) -> Script:
    """Return the script."""
    folder = places.data / "speech" / "librispeech_8k"

    def read(part: str, count: int) -> list[Tensor]:
        found = [torch.from_numpy(samples).float() for _, samples, _ in utterances(folder, part, False, 0.1, 0.1, 0)]
        return [
            spectrogram.log_magnitude(spectrogram.frames(one))[:LONGEST]
            for one in found[:: len(found) // count][:count]
        ]

    train, test = read("train", TRAIN), read("test", TEST)
    everything = torch.cat(train)
    mean, deviation = everything.mean(), everything.std()
    train, test = ([(one - mean) / deviation for one in part] for part in (train, test))
    held_out = pad_sequence(test), _mask(test)

    def batch(number: int, generator: Generator) -> tuple[Tensor, Tensor]:
        own = [train[i] for i in torch.randint(TRAIN, (B,), generator=generator).tolist()]
        return pad_sequence(own), _mask(own)

    def loss(network: nn.Module, given: tuple[Tensor, Tensor]) -> Tensor:
        x, mask = given
        return F.mse_loss(network(x[:-1])[mask], x[1:][mask])

    x, mask = held_out
    return Script(
        Network,
        batch,
        loss,
        lambda network: float(loss(network, held_out)),
        float(x[1:][mask].square().mean()),
        UPDATES,
        "squared error, standardized",
    )


def _mask(sequences: list[Tensor]) -> Tensor:
    """Return a mask (T - 1, B) of the frames that have a previous one."""
    return torch.arange(max(map(len, sequences)) - 1)[:, None] < torch.tensor([len(one) - 1 for one in sequences])
