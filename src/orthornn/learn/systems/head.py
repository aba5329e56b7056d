"""The head that reads the outputs of a core: a matrix, or a perceptron with one hidden layer."""

from __future__ import annotations

from torch import nn

from .model import Model, Where

DEFAULT_WIDTH = 64


def make_head(model: Model, features: int, output_size: int, where: Where) -> nn.Linear | nn.Sequential:
    """Return the head of a model with its initial values, which come from torch's global generator.

    Matrices follow the papers (uniform Glorot, bias 0) if the model requests it; all other heads follow
    torch.nn.Linear.
    """
    if model.head == "mlp":
        width = DEFAULT_WIDTH if model.head_width is None else model.head_width
        return nn.Sequential(nn.Linear(features, width, **where), nn.GELU(), nn.Linear(width, output_size, **where))
    head = nn.Linear(features, output_size, **where)
    if model.glorot_readout:
        nn.init.xavier_uniform_(head.weight)
        nn.init.zeros_(head.bias)
    return head
