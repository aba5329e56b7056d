"""Verification of exported files against the network."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from ..errors import CheckpointError
from .graphs import Step, example
from .network import Network


@torch.no_grad()
def check(
    model: Network,
    whole: Callable[[Tensor], Tensor],
    single: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]],
    step: Step,
    start: Tensor | None = None,
) -> float:
    """Return the largest difference from the module on random input, over T and B that were not exported with.

    CheckpointError if it is more than rounding: each step adds a few units in the last place to a state of norm 1.

    Args:
        model: The network.
        whole: The exported graph of a whole sequence: x -> y.
        single: The exported graph of a step: (x, state) -> (y, state).
        step: The module of a step, from which `single` was made.
        start: The first state (S, N') as the file of `single` has it. Default: None, that of `step`.
    """
    largest = 0.0
    for T, B in ((1, 1), (2, 1), (9, 4), (23, 3)):
        with torch.random.fork_rng(devices=[]):
            x = example(model, T, B)
        x = step.raw(x)
        expected = step.said(model(step.prepared(x)))
        got = whole(x)
        state = (step.state if start is None else start).unsqueeze(1).expand(-1, B, -1).contiguous()
        streamed = []
        for row in x:
            y, state = single(row, state)
            streamed.append(y)
        by_step = streamed[-1] if model.output == "last" else torch.stack(streamed)
        scale = max(1.0, float(expected.abs().max()))
        difference = float(torch.stack([(found - expected).abs().max() for found in (got, by_step)]).max()) / scale
        if not difference <= 64 * (T + 8) * float(np.finfo(np.float32).eps):
            raise CheckpointError(
                f"Expected the exported network to agree with the trained one, but got a difference of "
                f"{difference:.2g} at T={T}, B={B}."
            )
        largest = max(largest, difference)
    return largest
