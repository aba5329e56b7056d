"""Projected gradients on the inputs of a network, in total energy: the root of the sum of squares over all steps."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from orthornn.modules import OrthogonalRNN


def scaled(change: Tensor) -> Tensor:
    """Return changes (T, B, I) of energy 1 each."""
    return change / torch.linalg.vector_norm(change, dim=(0, 2), keepdim=True).clamp_min(1e-30)


def still_right(model: torch.nn.Module, x: Tensor, targets: Tensor, eps: float, updates: int = 20) -> Tensor:
    """Return which sequences keep the right class under the strongest change of energy eps that was found, bool (B,).

    From no change, updates by 2.5 eps / updates along the gradient of the largest score of another class minus the right one.
    Changes are not cut to the range of the pixels, as certificates do not depend on it either.

    Args:
        model: A classifier: scores (B, O) from inputs.
        x: Inputs (T, B, I).
        targets: Classes (B,).
        eps: Energy of the changes.
        updates: Their number.
    """
    change, right = torch.zeros_like(x), torch.ones(len(targets), dtype=torch.bool)
    for update in range(updates + 1):
        change = change.detach().requires_grad_()
        scores = model(x + change)
        right &= scores.argmax(1) == targets
        if update == updates:
            break
        others = scores.scatter(1, targets[:, None], -torch.inf)
        gap = others.amax(1) - scores.gather(1, targets[:, None])[:, 0]
        (gradient,) = torch.autograd.grad(gap.sum(), change)
        moved = change.detach() + 2.5 * eps / updates * scaled(gradient)
        change = moved * (eps / torch.linalg.vector_norm(moved, dim=(0, 2), keepdim=True).clamp_min(1e-30)).clamp_max(1)
    return right


def most_moved(run: Callable[[Tensor], Tensor], x: Tensor, eps: float, updates: int = 200) -> float:
    """Return the most that outputs move per energy, over changes of energy eps of every sequence.

    From random changes, each update takes the change along the gradient of how far the outputs moved: the power iteration.

    Args:
        run: Outputs (B, O) from inputs.
        x: Inputs (T, B, I).
        eps: Energy of the changes.
        updates: Their number.
    """
    change, best = scaled(torch.randn_like(x)), 0.0
    with torch.no_grad():
        before = run(x)
    for _ in range(updates):
        change = change.detach().requires_grad_()
        moved = torch.linalg.vector_norm(run(x + eps * change) - before, dim=1)
        best = max(best, float(moved.detach().max()) / eps)
        (gradient,) = torch.autograd.grad(moved.sum(), change)
        change = scaled(gradient)
    return best


def without_clipping(model: torch.nn.Module) -> torch.nn.Module:
    """Return the model, whose gradients are derivatives from now on."""
    for module in model.modules():
        if isinstance(module, OrthogonalRNN):
            module.clip_backward = None
    return model.eval().requires_grad_(False)
