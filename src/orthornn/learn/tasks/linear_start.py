"""The start of a network from linear regression on the last steps that it reads; see systems/recent_steps.py.

A ridge regression shrinks its weights to 0, with which it predicts the mean. A short series is better predicted by its last
values, so that the weights may shrink to those of exponential smoothing instead: what is predicted is
alpha sum_k (1 - alpha)^k y_(t-k), which for alpha = 1 is persistence, plus a regression of what that leaves. And of many
inputs the regression may read only what is predicted. The validation part chooses among them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

_STRENGTHS = (1e-6, 1e-4, 1e-3, 1e-2, 1e-1, 1.0, 10.0, 100.0)  # per training row
_ALPHAS = (1.0, 0.6, 0.3)

Rows = tuple[np.ndarray, np.ndarray]
Past = tuple[int, float]


def start_linear(
    model: Any,
    train: Rows,
    validation: Rows,
    past: Sequence[Past] = (),
    levels: Sequence[float] = (),
    weights: tuple[np.ndarray, ...] | None = None,
) -> None:
    """Set the matrix over the last steps, and the head, to the best regression of the training part, in place.

    The ridge strength, what its weights shrink to and which inputs it reads are those with the least squared error on the
    validation part. What the head reads of the core is multiplied by 0 at first, and trained.

    Args:
        model: A SequenceModel with `recent`.
        train: The last steps (rows, k I), the newest first, and what is to be predicted (rows, K).
        validation: The same of the validation part.
        past: For each prediction the input that is its own past, and the factor from that to the unit of the prediction;
            none if there is no such input.
        levels: Quantiles of each prediction, which start at those of the errors in training; none for the mean.
        weights: Of the squared errors of the rows in training, with the mean 1, and in validation. Default: None, all 1.
    """
    (x, y), (seen, known) = train, validation
    ours, others = weights or (None, None)
    center, mean = np.average(x, 0, ours), np.average(y, 0, ours)
    best: tuple[float, np.ndarray] | None = None
    for base, chosen in _kinds(model.recent, x.shape[1], y.shape[1], past):
        own = x[:, chosen] - center[chosen]
        left = own.T if ours is None else (own * ours[:, None]).T
        gram, cross = left @ own, left @ (y - mean - (x - center) @ base)
        for strength in _STRENGTHS:
            weight = base.copy()
            weight[chosen] += np.linalg.solve(gram + strength * len(x) * np.eye(len(gram)), cross)
            errors = np.square((seen - center) @ weight + mean - known)
            error = float(errors.mean() if others is None else np.average(errors.mean(1), weights=others))
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


def _kinds(recent: Any, width: int, count: int, past: Sequence[Past]) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return (what the weights (k I, K) shrink to, which inputs are read (k I,)) of the regressions that are tried."""
    every = np.arange(width)
    zero = np.zeros((width, count))
    if not past:
        return [(zero, every)]
    # The newest step has all its inputs, those of later steps among them; the steps before it do not repeat those.
    steps = np.arange(recent.lags)
    firsts = np.where(steps, recent.known_inputs + steps * (recent.input_size - recent.known_inputs), 0)
    bases = [zero]
    for alpha in _ALPHAS:
        smooth = alpha * (1 - alpha) ** steps
        base = zero.copy()
        for place, (input_, factor) in enumerate(past):
            base[firsts + input_, place] = factor * smooth / smooth.sum()
        bases.append(base)
    some = sorted({input_ for input_, _ in past})
    later = np.arange(recent.input_size - recent.known_inputs, recent.input_size)
    own = np.unique(np.concatenate([later, *(firsts + input_ for input_ in some)]))
    return [(base, chosen) for chosen in ([every, own] if len(own) < width else [every]) for base in bases]
