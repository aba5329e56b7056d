"""Soft constraints: terms to add to a loss. Each is a differentiable scalar in the precision of its argument.

Apply weight decay to the composite W, not to reflectors, factors or angles, whose size has no meaning.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ._checks import check_dtype, check_number, check_same, check_shape
from .certify import Mode, check_classes, movements
from .errors import ArgumentTypeError, DTypeError, ShapeError
from .kernels.interception import no_autocast
from .modules.tracing import LayerTrace

__all__ = [
    "certified_margin",
    "gradient_norm",
    "norm_stabilizer",
    "soft_orthogonality",
    "spectrum_prior",
    "weight_decay",
]


def soft_orthogonality(W: Tensor, strength: float = 1.0) -> Tensor:
    """Return strength ||W^H W - I||_F^2 (Vorontsov et al., 2017, eq. 7).

    Args:
        W: A matrix (N, P), real or complex.
        strength: Factor, at least 0. Default: 1.
    """
    _check_matrix(W)
    with no_autocast(W):  # rounded to 16 bits, W'W - I would consist of rounding errors
        gram = W.mH @ W
    identity = torch.eye(W.shape[1], dtype=W.dtype, device=W.device)
    return _strength(strength) * _squares(gram - identity).sum()


def spectrum_prior(s: Tensor, strength: float = 1.0) -> Tensor:
    """Return strength sum_i (s_i - 1)^2: a Gaussian prior of mean one on singular values (Vorontsov et al., 2017, 3.2).

    Args:
        s: Singular values (N,); for SpectralMargin ``transition.method.singular_values(*transition.free())``.
        strength: 1 / (2 variance), at least 0. Default: 1.
    """
    check_shape("s", s, ("N",))
    _check_inexact("s", s)
    if s.is_complex():
        raise DTypeError(f"Expected singular values s to be real, but got {s.dtype}. Pass s.abs().")
    return _strength(strength) * (s - 1).square().sum()


def weight_decay(W: Tensor, strength: float = 1.0) -> Tensor:
    """Return strength ||W||_F^2.

    Args:
        W: The composite matrix (N, P), real or complex.
        strength: Factor, at least 0. Default: 1.
    """
    _check_matrix(W)
    return _strength(strength) * _squares(W).sum()


def norm_stabilizer(states: Tensor, h0: Tensor | None = None, strength: float = 1.0) -> Tensor:
    """Return strength times the mean over t and batch of (||h_t|| - ||h_{t-1}||)^2 (Krueger & Memisevic, 2015, eq. 1).

    Args:
        states: h_t (T, B, N), real or complex.
        h0: Initial state (B, N). Default: None, which makes (h_1, h_2) the first pair and requires T >= 2.
        strength: Factor, at least 0. Default: 1.

    Returns:
        A scalar, float32 even if the states have 16 bits; 0 for an empty batch.
    """
    check_shape("states", states, ("T", "B", "N"))
    _check_inexact("states", states)
    if h0 is not None:
        check_shape("h0", h0, states.shape[1:])
        check_same("states", states, h0=h0)
        states = torch.cat([h0.unsqueeze(0), states])
    if states.shape[0] < 2:
        raise ShapeError(f"Expected states to have at least two steps without h0, but got {tuple(states.shape)}.")
    norms = torch.linalg.vector_norm(states, dim=-1)
    norms = norms if norms.dtype == torch.float64 else norms.float()  # a square of 16 bits overflows soon
    changes = norms.diff(dim=0)
    return _strength(strength) * changes.square().sum() / max(1, changes.numel())


def gradient_norm(trace: LayerTrace, delta: Tensor, strength: float = 1.0) -> Tensor:
    """Return strength times the mean over k and batch of (||phi'(a_k) W' delta_{k+1}|| / ||delta_{k+1}|| - 1)^2.

    delta_k is dL/da_k. The penalty encourages the backward signal to preserve its norm from step to step (Pascanu et al.,
    2013, section 3.3). As in the paper, a_k and delta_{k+1} are constants: only W (and the gain) receives a gradient.
    Steps that receive no gradient, and steps before a reset, contribute 0.

    Args:
        trace: The LayerTrace of one layer over one sequence (T, B, N), from modules.tracing.tracing.
        delta: Gradient of the loss with respect to trace.projected, in the same shape, as returned by
            torch.autograd.grad(loss, trace.projected, retain_graph=True).
        strength: Factor, at least 0. Default: 1.
    """
    if not isinstance(trace, LayerTrace):
        raise ArgumentTypeError(
            f"Expected trace to be a LayerTrace from modules.tracing.tracing, but got {type(trace).__name__}."
        )
    check_shape("delta", delta, trace.projected.shape)
    check_shape("the traced inputs", trace.projected, ("T", "B", "N"))
    check_same("the traced inputs", trace.projected, delta=delta)
    if delta.shape[0] < 2:
        raise ShapeError(f"Expected delta to have at least two steps, but got {tuple(delta.shape)}.")
    following = delta.detach()[1:].to(trace.h0.dtype)
    phi, parameter = trace.phi
    with torch.no_grad():
        a = trace.preactivations()[:-1]
    carried = trace.backward_through_W(following)
    # phi' is symmetric in the pair for activations on pairs too, and linear in what it is applied to: so the vector-
    # Jacobian product of phi at the constant a_k, differentiable in `carried`
    a.requires_grad_()
    with torch.enable_grad():
        h = phi(a, None if parameter is None else parameter.detach())
    (backward,) = torch.autograd.grad(h, a, carried, create_graph=True)
    before, after = torch.linalg.vector_norm(following, dim=-1), torch.linalg.vector_norm(backward, dim=-1)
    reached, resets = before > 0, trace.resets(before)
    if resets is not None:
        reached = reached & ~resets
    ratio = torch.where(reached, after / torch.where(reached, before, 1), 1)
    return _strength(strength) * (ratio - 1).square().mean()


def certified_margin(
    network: nn.Module,
    scores: Tensor,
    targets: Tensor,
    eps: float,
    steps: int,
    mode: Mode = "every",
    strength: float = 1.0,
) -> Tensor:
    """Return strength times the batch mean of max(0, max_j (eps m_yj - (s_y - s_j))), with j over the classes except y.

    m_ij is the largest movement of the difference between scores i and j (:func:`orthornn.certify.movements`). The penalty
    is 0 if no movement of an input by eps changes the class of any sequence. (Tsuzuku et al., 2018, add the same term to
    the scores.)

    Args:
        network: The classifier, in the form that :func:`orthornn.certify.movements` accepts.
        scores: Its output, (B, O).
        targets: Classes y (B,), integers.
        eps: Bound on how far inputs move, at least 0.
        steps: Length of the sequences, T.
        mode: Same as for :func:`orthornn.certify.bound`. Default: ``"every"``.
        strength: Factor, at least 0. Default: 1.
    """
    eps = check_number("eps", eps, 0)
    moved = movements(network, steps, mode)
    check_shape("scores", scores, ("B", moved.shape[0]))
    check_dtype("scores", scores)
    check_classes(targets, scores)
    moved = moved.to(scores.dtype)
    short = eps * moved[targets] + scores - scores.gather(1, targets[:, None])
    return _strength(strength) * short.clamp_min(0).amax(1).sum() / max(1, len(scores))


def _strength(value: float) -> float:
    return check_number("strength", value, 0)


def _squares(values: Tensor) -> Tensor:
    """Return |x|^2; unlike with abs(), the second derivative at 0 is correct."""
    return torch.view_as_real(values.resolve_conj()).square() if values.is_complex() else values.square()


def _check_matrix(W: Tensor) -> None:
    check_shape("W", W, ("N", "P"))
    _check_inexact("W", W)


def _check_inexact(name: str, tensor: Tensor) -> None:
    """Raise DTypeError unless the tensor holds real or complex numbers of a floating-point dtype."""
    if not (tensor.is_floating_point() or tensor.is_complex()):
        raise DTypeError(
            f"Expected {name} in a floating-point dtype, but got {tensor.dtype}. Convert it with .float()."
        )
