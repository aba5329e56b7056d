"""The compact-WY recurrence on one backend, with all its parameter gradients: what the autograd node runs.

Reflectors arrive packed (P,), then U is their trapezoid with columns of norm sqrt(2), or as any matrix U (N, M).
"""

from __future__ import annotations

from torch import Tensor

from ... import compact_wy
from ...activations import Activation
from ...compact_wy import Base
from .. import chain, graph, launch
from ..node import Needs, Recurrence, Saved, Sequence, register
from ..sequence import Steps, project, project_backward
from . import cpp, cuda, reference


def _chain_forward(
    backend: str,
    x: Tensor,
    h0: Tensor,
    U: Tensor,
    S: Tensor,
    base: Base,
    activation: Activation,
    parameter: Tensor | None,
    steps: Steps,
) -> tuple[Tensor, Tensor | None, Tensor]:
    if backend == "cuda":
        shape = chain.best(*U.shape)
        assert shape is not None  # plan.choose has seen to it
        return cuda.forward(x, h0, U, S, base, activation, parameter, steps, shape)
    if backend == "triton":
        from . import triton  # importing it costs a second

        strategy = launch.compact_wy_strategy(U.shape[0], U.shape[1], steps.batch)
        return triton.forward(x, h0, U, S, base, activation, parameter, steps, strategy)
    if backend == "graph":
        return graph.run(
            lambda x, h0, U, S, c, s, parameter: reference.forward(
                x, h0, U, S, None if c is None else (c, s), activation, parameter, steps
            ),
            (x, h0, U, S, *(base or (None, None)), parameter),
            ("compact_wy forward", activation, steps.key),
        )
    return reference.forward(x, h0, U, S, base, activation, parameter, steps)


def _chain_backward(
    backend: str,
    grad: Tensor,
    last: bool,
    kept: Tensor,
    U: Tensor,
    S: Tensor,
    base: Base,
    activation: Activation,
    parameter: Tensor | None,
    steps: Steps,
    clip: float | None,
) -> tuple[Tensor, Tensor, Tensor | None, Tensor]:
    if backend == "cuda":
        shape = chain.best(*U.shape)
        assert shape is not None
        return cuda.backward(grad, last, kept, U, S, base, activation, parameter, steps, clip, shape)
    if backend == "triton":
        from . import triton

        strategy = launch.compact_wy_strategy(U.shape[0], U.shape[1], steps.batch)
        return triton.backward(grad, last, kept, U, S, base, activation, parameter, steps, clip, strategy)
    if backend == "graph":
        return graph.run(
            lambda grad, kept, U, S, c, s, parameter: reference.backward(
                grad, last, kept, U, S, None if c is None else (c, s), activation, parameter, steps, clip
            ),
            (grad, kept, U, S, *(base or (None, None)), parameter),
            ("compact_wy backward", activation, steps.key, last, clip),
        )
    return reference.backward(grad, last, kept, U, S, base, activation, parameter, steps, clip)


def _factors(s: Sequence) -> tuple[Tensor, Tensor]:
    """U (N, M) and S (M, M) in the dtype of the states."""
    if s.operands.factors is not None:
        return s.operands.factors
    wide, S = compact_wy.factors(s.operands.weight, s.h0.shape[1])
    return wide.to(s.h0.dtype), S.to(s.h0.dtype)


def forward(s: Sequence) -> tuple[Tensor, Saved]:
    """States (R, N) and what the backward pass keeps."""
    if s.backend == "cpp":
        return cpp.forward(s)
    x = project(s.rows, s.weight_ih, s.bias)
    U, S = _factors(s)
    states, preactivations, h_tilde = _chain_forward(
        s.backend, x, s.h0, U, S, s.operands.base, s.activation, s.parameter, s.steps
    )
    return states, Saved(preactivations, h_tilde, U if s.operands.weight.dim() == 1 else None, S)


def backward(
    s: Sequence, grad: Tensor, last: bool, clip: float | None, states: Tensor | None, saved: Saved, needs: Needs
) -> tuple[Tensor | None, ...]:
    """Gradients of x, weight_ih, bias, h0, weight, c, s and parameter, None where not needed.

    grad: (R, N), or with `last` (B, N) of the last states alone.
    """
    if s.backend == "cpp":
        return cpp.backward(s, grad, last, clip, states, saved, needs)
    kept = states if saved.kept is None else saved.kept
    assert kept is not None
    if states is None:  # where pre-activations are kept, states are made anew
        states = s.activation(kept.to(s.h0.dtype), s.parameter)
    weight, base = s.operands.weight, s.operands.base
    U = weight if saved.U is None else saved.U
    assert saved.h_tilde is not None
    assert saved.S is not None
    delta, by_h0, by_parameter, C_tilde = _chain_backward(
        s.backend, grad, last, kept, U, saved.S, base, s.activation, s.parameter, s.steps, clip
    )
    by_x, by_weight_ih = project_backward(delta, s.rows, s.weight_ih, needs.x, needs.weight_ih)
    by_bias = delta.sum(dim=0) if needs.bias else None
    by_U, by_c, by_s = None, None, None
    if needs.weight or needs.c or needs.s:
        by_U, by_base = reference.factor_gradients(
            delta, saved.h_tilde, C_tilde, states, s.h0, U, base, s.steps, needs.c or needs.s
        )
        if by_base is not None:
            by_c, by_s = by_base
        if weight.dim() == 1:
            reflectors = compact_wy.unpack(weight.double(), s.h0.shape[1])
            by_reflectors = compact_wy.normalize_backward(by_U.double(), reflectors, U)
            by_U = compact_wy.pack(by_reflectors).to(weight.dtype)
    return by_x, by_weight_ih, by_bias, by_h0, by_U, by_c, by_s, by_parameter


def plain(s: Sequence) -> Tensor:
    """States (R, N) by plain torch operations."""
    x = project(s.rows, s.weight_ih, s.bias)
    U, S = _factors(s)
    return reference.forward(x, s.h0, U, S, s.operands.base, s.activation, s.parameter, s.steps)[0]


def reverse(s: Sequence, order: Tensor | None) -> tuple[Tensor, Saved, Tensor]:
    """States (R, N) that end in s.h0 (B, N), what `forward` would have kept, and the state before them.

    order: bool (R, N//2), for oplu; see Activation.inverse. The GPU backends do this by the reference, as a graph.
    """
    if s.backend == "cpp":
        return cpp.reverse(s, order)
    x = project(s.rows, s.weight_ih, s.bias)
    U, S = _factors(s)
    states, preactivations, h_tilde, before = graph.run_or_call(
        s.rows.is_cuda and s.backend != "reference" and s.steps.sizes is None,
        lambda x, h, U, S, c, s_, parameter, order: reference.reverse(
            x, h, U, S, None if c is None else (c, s_), s.activation, parameter, order, s.steps
        ),
        (x, s.h0, U, S, *(s.operands.base or (None, None)), s.parameter, order),
        ("compact_wy reverse", s.activation, s.steps.key),
    )
    kept = None if s.activation.reads == "state" else preactivations
    return states, Saved(kept, h_tilde, U if s.operands.weight.dim() == 1 else None, S), before


def prepare(s: Sequence) -> Sequence:
    """U and S made once for all segments."""
    factors = cpp.factors(s) if s.backend == "cpp" else _factors(s)
    return s._replace(operands=s.operands._replace(factors=factors))


COMPACT_WY = register(Recurrence("compact_wy", forward, backward, plain, reverse, prepare, cpp.infer))
