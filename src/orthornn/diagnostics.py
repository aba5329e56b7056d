"""What a recurrent network does to a gradient through time."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn


def hidden_gradient_norms(core: nn.Module, inputs: Tensor, loss: Callable[[Tensor], Tensor]) -> Tensor:
    """||dL/dh_t|| for every step: (T,) float64, the norm over batch and units, over the square root of the
    batch.

    core: a one-layer recurrent module, time-major, that takes and returns its state: OrthogonalRNN, or
        torch's RNN, GRU or LSTM, whose state is h and c together.
    inputs: what it reads, (T, B, I) or int64 (T, B). loss: from its outputs (T, B, N) to a scalar.

    The module is called once a step, so that every state is a tensor of its own.
    """
    states: list[tuple[Tensor, ...]] = []
    outputs = []
    state = None
    with torch.enable_grad():
        for x in inputs.split(1):
            _, state = core(x) if state is None else core(x, state)
            parts = state if isinstance(state, tuple) else (state,)
            states.append(parts)
            outputs.append(parts[0][-1:])  # the state itself, so that dL/dh_t holds the loss at step t too
        gradients = iter(
            torch.autograd.grad(
                loss(torch.cat(outputs)),
                [part for parts in states for part in parts],
                allow_unused=True,
                materialize_grads=True,
            )
        )
    squares = [torch.stack([next(gradients).abs().double().square().sum() for _ in parts]).sum() for parts in states]
    return (torch.stack(squares) / inputs.shape[1]).sqrt()
