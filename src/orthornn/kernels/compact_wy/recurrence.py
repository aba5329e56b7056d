"""The compact-WY recurrence on one backend, with all its parameter gradients: what the autograd node runs.

Reflectors arrive packed (P,), then U is their trapezoid with columns of norm sqrt(2), or as any matrix U (N, M).
"""

from __future__ import annotations

from torch import Tensor

from ... import compact_wy
from ...activations import Activation
from ...compact_wy import Base
from .. import chain, graph, launch
from ..node import Needs, Operands, Recurrence, Saved, register
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


def forward(
    rows: Tensor,
    weight_ih: Tensor | None,
    bias: Tensor | None,
    h0: Tensor,
    operands: Operands,
    activation: Activation,
    parameter: Tensor | None,
    steps: Steps,
    backend: str,
) -> tuple[Tensor, Saved]:
    """States (R, N) and what the backward pass keeps."""
    if backend == "cpp":
        return cpp.forward(rows, weight_ih, bias, h0, operands, activation, parameter, steps)
    x = project(rows, weight_ih, bias)
    wide, S = compact_wy.factors(operands.weight, h0.shape[1])
    U, S = wide.to(h0.dtype), S.to(h0.dtype)
    states, preactivations, h_tilde = _chain_forward(backend, x, h0, U, S, operands.base, activation, parameter, steps)
    return states, Saved(preactivations, h_tilde, U if operands.weight.dim() == 1 else None, S)


def backward(
    grad: Tensor,
    last: bool,
    rows: Tensor,
    weight_ih: Tensor | None,
    h0: Tensor,
    operands: Operands,
    activation: Activation,
    parameter: Tensor | None,
    steps: Steps,
    clip: float | None,
    states: Tensor | None,
    saved: Saved,
    needs: Needs,
    backend: str,
) -> tuple[Tensor | None, ...]:
    """Gradients of x, weight_ih, bias, h0, weight, c, s and parameter, None where not needed."""
    if backend == "cpp":
        return cpp.backward(
            grad, last, rows, weight_ih, h0, operands, activation, parameter, steps, clip, states, saved, needs
        )
    kept = states if saved.kept is None else saved.kept
    assert kept is not None
    if states is None:  # where pre-activations are kept, states are made anew
        states = activation(kept.to(h0.dtype), parameter)
    U = operands.weight if saved.U is None else saved.U
    assert saved.h_tilde is not None
    assert saved.S is not None
    delta, by_h0, by_parameter, C_tilde = _chain_backward(
        backend, grad, last, kept, U, saved.S, operands.base, activation, parameter, steps, clip
    )
    by_x, by_weight_ih = project_backward(delta, rows, weight_ih, needs.x, needs.weight_ih)
    by_bias = delta.sum(dim=0) if needs.bias else None
    by_U, by_c, by_s = None, None, None
    if needs.weight or needs.c or needs.s:
        by_U, by_base = reference.factor_gradients(
            delta, saved.h_tilde, C_tilde, states, h0, U, operands.base, steps, needs.c or needs.s
        )
        if by_base is not None:
            by_c, by_s = by_base
        if operands.weight.dim() == 1:
            reflectors = compact_wy.unpack(operands.weight.double(), h0.shape[1])
            by_reflectors = compact_wy.normalize_backward(by_U.double(), reflectors, U)
            by_U = compact_wy.pack(by_reflectors).to(operands.weight.dtype)
    return by_x, by_weight_ih, by_bias, by_h0, by_U, by_c, by_s, by_parameter


def plain(
    rows: Tensor,
    weight_ih: Tensor | None,
    bias: Tensor | None,
    h0: Tensor,
    operands: Operands,
    activation: Activation,
    parameter: Tensor | None,
    steps: Steps,
) -> Tensor:
    """States (R, N) by plain torch operations."""
    x = project(rows, weight_ih, bias)
    U, S = (factor.to(h0.dtype) for factor in compact_wy.factors(operands.weight, h0.shape[1]))
    return reference.forward(x, h0, U, S, operands.base, activation, parameter, steps)[0]


COMPACT_WY = register(Recurrence("compact_wy", forward, backward, plain))
