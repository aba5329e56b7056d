"""The start of a network from linear regression on the last steps that it reads; see systems/recent_steps.py."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

_STRENGTHS = (1e-6, 1e-4, 1e-3, 1e-2, 1e-1, 1.0)  # per training row

Rows = tuple[np.ndarray, np.ndarray]


def start_linear(model: Any, train: Rows, validation: Rows, levels: Sequence[float] = ()) -> None:
    """Set the matrix over the last steps, and the head, to the ridge regression of the training part, in place.

    The ridge strength is the one with the least squared error on the validation part. What the head reads of the core is
    multiplied by 0 at first, and trained.

    Args:
        model: A SequenceModel with `recent`.
        train: The last steps (rows, k I), the newest first, and what is to be predicted (rows, K).
        validation: The same of the validation part.
        levels: Quantiles of each prediction, which start at those of the errors in training; none for the mean.
    """
    (x, y), (seen, known) = train, validation
    center, mean = x.mean(0), y.mean(0)
    gram, cross = (x - center).T @ (x - center), (x - center).T @ (y - mean)
    best: tuple[float, np.ndarray] | None = None
    for strength in _STRENGTHS:
        weight = np.linalg.solve(gram + strength * len(x) * np.eye(len(gram)), cross)
        error = float(np.square((seen - center) @ weight + mean - known).mean())
        if best is None or error < best[0]:
            best = (error, weight)
    assert best is not None
    weight, offset = best[1], mean - center @ best[1]
    shifts = np.quantile(y - x @ weight - offset, levels, 0).T if len(levels) else np.zeros((y.shape[1], 1))
    head: Any = model.head[-1] if isinstance(model.head, torch.nn.Sequential) else model.head
    with torch.no_grad():
        model.recent.weight.copy_(torch.from_numpy(np.repeat(weight.T, max(1, len(levels)), 0)))
        head.weight.zero_()
        head.bias.copy_(torch.from_numpy((offset[:, None] + shifts).ravel()))
