"""Find the free tensors of the matrix nearest to a given one, by least squares, for sets without a closed form.

Minimize ||W(free) - W||_F^2 from several random starts with L-BFGS, then finish with Gauss-Newton steps, which converge
quadratically if the distance is zero. The minimum found is local.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ..errors import NotOnGroupError
from .parametrization import BoundParametrization

STARTS = 8
_ITERATIONS = 400
_NEARBY = 0.1  # a start within this distance is worth a descent
_JACOBIAN_ENTRIES = 2_000_000  # above this a Gauss-Newton step costs too much


def nearest(
    method: BoundParametrization, W: Tensor, enough: float = 0.0, starts: int = STARTS
) -> tuple[tuple[Tensor, ...], float]:
    """Return (free tensors in float64, ||W(free) - W||_F) of the nearest matrix found.

    W: In double precision. enough: No further start runs once the distance is this or less. The method's buffers do not
    change. Starts come from a separate generator, so the result is always the same.
    """
    buffers = {name: value.clone() for name, value in method.state_dict().items()}
    generator = torch.Generator("cpu").manual_seed(0)
    best: tuple[Tensor, ...] = ()
    distance = float("inf")
    for _ in range(starts):
        drawn = tuple(value.to(W.device) for value in method.initial(generator))
        method.load_state_dict(buffers)  # initial() draws these again
        free = _descend(method, drawn, W)
        reached = float(torch.linalg.vector_norm(_residual(method, free, W)))
        if reached < distance:
            best, distance = free, reached
        if distance <= enough:
            break
    return best, distance


def search(method: BoundParametrization, W: Tensor, allowed: float) -> tuple[Tensor, ...]:
    """Do the same as `nearest`, but raise NotOnGroupError if its distance is more than allowed."""
    free, distance = nearest(method, W, allowed)
    if distance > allowed:
        raise NotOnGroupError(
            f"Expected W in the set of the parametrization, but got Frobenius distance {distance:.3g} from the nearest found "
            f"after {STARTS} starts. If W is in the set nevertheless, load its free tensors; orthornn.convert "
            f"uses the nearest matrix."
        )
    return free


def refine(
    method: BoundParametrization, start: tuple[Tensor, ...], W: Tensor, enough: float
) -> tuple[tuple[Tensor, ...], float]:
    """Return `start` and its distance from W if that is `enough`; if it is close, return the result of a descent from
    there.
    """
    distance = float(torch.linalg.vector_norm(_residual(method, start, W)))
    if distance <= enough or distance > _NEARBY:
        return start, distance
    free = _descend(method, start, W)
    return free, float(torch.linalg.vector_norm(_residual(method, free, W)))


def _residual(matrix: Callable[..., Any], free: tuple[Tensor, ...], W: Tensor) -> Tensor:
    difference = matrix(*free) - W
    return (torch.view_as_real(difference) if difference.is_complex() else difference).flatten()


@torch.enable_grad()
def _descend(method: BoundParametrization, start: tuple[Tensor, ...], W: Tensor) -> tuple[Tensor, ...]:
    """Return the free tensors after a descent from `start`, of the distance of the surrogate if there is one."""
    smooth = method if method.surrogate(*start) is None else method.surrogate
    free = tuple(value.clone().requires_grad_() for value in start)
    optimizer = torch.optim.LBFGS(
        free, max_iter=_ITERATIONS, tolerance_grad=1e-12, tolerance_change=1e-16, line_search_fn="strong_wolfe"
    )

    def loss() -> Tensor:
        optimizer.zero_grad()
        value = _residual(smooth, free, W).square().sum()
        value.backward()
        return value

    optimizer.step(loss)
    found = tuple(value.detach() for value in free)
    count = sum(value.numel() for value in found)
    close = float(_residual(method, found, W).square().sum()) < 1e-2
    if close and count * W.numel() * 2 <= _JACOBIAN_ENTRIES:
        for _ in range(4):
            found = _gauss_newton(method, found, W)
    return found


def _gauss_newton(method: BoundParametrization, free: tuple[Tensor, ...], W: Tensor) -> tuple[Tensor, ...]:
    def flat(*values: Tensor) -> Tensor:
        return _residual(method, values, W)

    blocks = torch.autograd.functional.jacobian(flat, free)
    jacobian = torch.cat([block.reshape(block.shape[0], -1) for block in blocks], dim=1)
    residual = flat(*free)
    # Of least length: directions that move nothing stay where they are.
    step = torch.linalg.pinv(jacobian, rtol=1e-10) @ residual
    sizes = [value.numel() for value in free]
    moved = tuple((value - part.view_as(value)).detach() for value, part in zip(free, step.split(sizes)))
    better = torch.linalg.vector_norm(flat(*moved)) < torch.linalg.vector_norm(residual)
    return moved if bool(better) else free
