"""Weights of sequences: given weights, multiplied by class weights, scaled so the weighted loss is a mean."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from .._checks import check_number
from .._masked import as_array


def weights_of(sample_weight: Any, count: int) -> np.ndarray | None:
    """Return the weights of `count` sequences as float64 (n,), expanding a single number; return None for None.

    Raise ValueError unless every sequence has one finite weight of at least 0, and one weight is above 0.
    """
    if sample_weight is None:
        return None
    try:
        given = as_array(sample_weight)
        if given.dtype.kind not in "biufO":
            raise ValueError(f"{given.dtype}")
        weights = given.astype(np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"Expected numbers as sample_weight, but got {error}. Pass one number per sequence."
        ) from error
    if weights.ndim == 0:
        weights = np.full(count, weights)
    if weights.shape != (count,):
        raise ValueError(
            f"Expected sample_weight ({count},), one weight for each sequence, but got an array of shape {weights.shape}."
        )
    wrong = np.flatnonzero(~(np.isfinite(weights) & (weights >= 0)))
    if len(wrong):
        raise ValueError(
            f"Expected finite weights of at least 0, but got {weights[wrong[0]]:g} as sample_weight[{wrong[0]}]. Negative "
            f"weights are meaningless here; 0 leaves a sequence out."
        )
    if not weights.any():
        raise ValueError(
            "Expected a weight above 0 in sample_weight, but got only zero weights, which leave out all sequences."
        )
    return weights


def with_class_weights(
    weights: np.ndarray | None, class_weight: Any, classes: np.ndarray, codes: np.ndarray
) -> np.ndarray | None:
    """Return the weights multiplied by the weights of the classes, as in scikit-learn.

    Args:
        weights: Weights of the sequences (n,), or None.
        class_weight: None; ``"balanced"``, the same sum of weights for all classes; or weights by class, 1 for
            classes not in it.
        classes: The classes, sorted.
        codes: Index of each sequence's class, (n,).
    """
    if class_weight is None:
        return weights
    own = np.ones(len(codes)) if weights is None else weights / weights.max()
    if isinstance(class_weight, str) and class_weight == "balanced":
        sums = np.bincount(codes, own, len(classes))
        factors = np.divide(sums.sum(), len(classes) * sums, out=np.zeros(len(classes)), where=sums > 0)
    elif isinstance(class_weight, Mapping):
        names = classes.tolist()
        unknown = [name for name in class_weight if name not in names]
        if unknown:
            raise ValueError(
                f"Expected weights for classes of y in class_weight, but got a weight for {unknown[0]!r}. The classes are "
                f"{', '.join(map(repr, names[:10]))}{', ...' if len(names) > 10 else ''}."
            )
        given = [check_number(f"class_weight[{name!r}]", class_weight.get(name, 1.0), 0) for name in names]
        factors = np.array(given, np.float64)
        if not factors[codes[own > 0]].any():
            raise ValueError(
                "Expected a weight above 0 in class_weight, but got only zero weights for the classes of y."
            )
        factors = factors / factors.max()
    else:
        raise ValueError(
            f"Expected class_weight to be None, 'balanced' or a dict of weights by class, but got {class_weight!r}."
        )
    return own * factors[codes]


def scaled(weights: np.ndarray, parts: Mapping[str, np.ndarray]) -> Tensor:
    """Return weights (n,) with mean 1 over each part, which makes means over batches estimate the weighted mean."""
    found = np.ones(len(weights))
    for which in parts.values():
        own = weights[which] / weights[which].max()
        found[which] = own / own.mean()
    return torch.from_numpy(found.astype(np.float32))
