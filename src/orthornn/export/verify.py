"""Verification of exported files against the network."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from ..errors import CheckpointError
from .graphs import Step, example
from .network import Network


@torch.no_grad()
def check(
    model: Network,
    whole: Callable[..., Tensor],
    single: Callable[..., tuple[Tensor, Tensor]],
    step: Step,
    start: Tensor | None = None,
    resets: bool = False,
) -> float:
    """Return the largest difference from the module on random input, for values of T and B not used in the export.

    Raise CheckpointError if it exceeds rounding: each step adds a few units in the last place to a state of norm 1.

    Args:
        model: The network.
        whole: The exported graph of a whole sequence: x -> y, with ``resets`` (x, reset) -> y.
        single: The exported graph of a step: (x, state) -> (y, state), with ``resets`` (x, state, reset) -> (y, state).
        step: The module of a step, from which `single` was built.
        start: The initial state (S, N') stored in the file of `single`. Default: None, the initial state of `step`.
        resets: Whether the graphs restart; they are then compared with the module on each episode separately.
    """
    largest = 0.0
    for T, B in ((1, 1), (2, 1), (9, 4), (23, 3)):
        with torch.random.fork_rng(devices=[]):
            x = example(model, T, B)
            reset = torch.rand(T, B) < 0.3
        x = step.raw(x)
        given = (reset,) if resets else ()
        expected = _each_episode(model, step, x, reset) if resets else step.said(model(step.prepared(x)))
        got = whole(x, *given)
        state = (step.state if start is None else start).unsqueeze(1).expand(-1, B, -1).contiguous()
        streamed = []
        for t, row in enumerate(x):
            y, state = single(row, state, *(mask[t] for mask in given))
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


def _each_episode(model: Network, step: Step, x: Tensor, reset: Tensor) -> Tensor:
    """Return the module's results for each episode separately, (T, B, O), or (B, O) for the last one of each
    sequence.
    """
    columns = []
    for k, starts in enumerate(reset.unbind(1)):
        edges = [0, *(t for t in starts.nonzero().flatten().tolist() if t), len(x)]
        pieces = [step.said(model(step.prepared(x[a:b, k : k + 1]))) for a, b in pairwise(edges)]
        columns.append(pieces[-1] if model.output == "last" else torch.cat(pieces))
    return torch.cat(columns, 0 if model.output == "last" else 1)
