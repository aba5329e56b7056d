"""Sequence lengths that a graph of torch.jit.trace can read.

torch.jit.trace records the time loop step by step, for the lengths of its example. With other lengths such a graph
would stop with torch's "Expected 7 elements in a list but found 5", or read the rows of one step as rows of another and
return wrong states. Therefore the graph checks the lengths first, in TorchScript, which is saved as part of the graph.
The graph of torch.onnx.export(dynamo=False), which has no errors, loses the check.
"""

from __future__ import annotations

import warnings
from functools import cache
from typing import Any

import torch
from torch import Tensor


def with_recorded_steps(x: Tensor) -> Tensor:
    """Return x (T, B, ...); the recorded graph raises an error for other T."""
    return _script(_same_steps)(x, len(x.unbind(0)))  # x.shape[0] is no constant


def with_recorded_sizes(rows: Tensor, batch_sizes: Tensor) -> Tensor:
    """Return the rows (R, ...) of a PackedSequence; the recorded graph raises an error for other batch_sizes."""
    sizes = batch_sizes.tolist()
    return _script(_same_sizes)(rows, batch_sizes, sizes)


@cache
def _script(function: Any) -> Any:
    with warnings.catch_warnings():  # torch.jit.trace, which the user has called, warns of the same
        warnings.simplefilter("ignore")
        return torch.jit.script(function)


def _same_steps(x: Tensor, steps: int) -> Tensor:
    if x.shape[0] != steps:
        raise RuntimeError(
            f"Expected an input of {steps} steps, as in the example of torch.jit.trace, but got {x.shape[0]}. Trace again "
            f"with this length, or with every sequence padded to one length."
        )
    return x


def _same_sizes(rows: Tensor, batch_sizes: Tensor, sizes: list[int]) -> Tensor:
    got = [int(size) for size in batch_sizes]
    if got != sizes:
        raise RuntimeError(
            f"Expected a PackedSequence with batch_sizes {sizes}, as in the example of torch.jit.trace, but got {got}. "
            f"Trace again with these lengths, or with a padded input."
        )
    return rows
