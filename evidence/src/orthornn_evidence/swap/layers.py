"""The interchangeable constructors, each called with the width of the script."""

from __future__ import annotations

from torch import nn

from orthornn import Householder, OrthogonalBlocks, OrthogonalRNN

from .script import Layer


def _blocks(inputs: int, width: int, bidirectional: bool = False) -> nn.Module:
    return OrthogonalBlocks(inputs, width, depth=2, bidirectional=bidirectional)


def _modrelu(inputs: int, width: int, bidirectional: bool = False) -> nn.Module:
    method = Householder(reflections=16, base="rotations")
    return OrthogonalRNN(inputs, width, parametrization=method, nonlinearity="modrelu", bidirectional=bidirectional)


LAYERS: dict[str, Layer] = {
    "nn.RNN": nn.RNN,
    "nn.LSTM": nn.LSTM,
    "nn.GRU": nn.GRU,
    "OrthogonalRNN": OrthogonalRNN,
    "OrthogonalBlocks": _blocks,
    "modReLU": _modrelu,
}
"""The layers by the name of their column; "modReLU" was the default of OrthogonalRNN in version 0.1.0."""
MEASURE = "nn.LSTM"
"""The layer whose processor time all others get."""
