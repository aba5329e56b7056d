"""The dense recurrence on one backend, with all its parameter gradients: what the autograd node runs."""

from __future__ import annotations

from torch import Tensor

from ...activations import Activation
from .. import chain, graph, launch
from ..node import Needs, Recurrence, Saved, Sequence, register
from ..sequence import Steps, project, project_backward
from . import cpp, cuda, reference


def _chain_forward(
    backend: str, x: Tensor, h0: Tensor, W: Tensor, activation: Activation, parameter: Tensor | None, steps: Steps
) -> tuple[Tensor, Tensor | None]:
    if backend == "cuda":
        shape = chain.best(W.shape[0], 0)
        assert shape is not None  # plan.choose has seen to it
        return cuda.forward(x, h0, W, activation, parameter, steps, shape)
    if backend == "triton":
        from . import triton  # importing it costs a second

        strategy = launch.dense_strategy(W.shape[0], activation.paired, steps.batch)
        assert strategy is not None
        return triton.forward(x, h0, W, activation, parameter, steps, strategy)
    if backend == "graph":
        return graph.run(
            lambda x, h0, W, parameter: reference.forward(x, h0, W, activation, parameter, steps),
            (x, h0, W, parameter),
            ("dense forward", activation, steps.key),
        )
    return reference.forward(x, h0, W, activation, parameter, steps)


def _chain_backward(
    backend: str,
    grad: Tensor,
    last: bool,
    kept: Tensor,
    W: Tensor,
    activation: Activation,
    parameter: Tensor | None,
    steps: Steps,
    clip: float | None,
) -> tuple[Tensor, Tensor, Tensor | None]:
    if backend == "cuda":
        shape = chain.best(W.shape[0], 0)
        assert shape is not None
        return cuda.backward(grad, last, kept, W, activation, parameter, steps, clip, shape)
    if backend == "triton":
        from . import triton

        strategy = launch.dense_strategy(W.shape[0], activation.paired, steps.batch)
        assert strategy is not None
        return triton.backward(grad, last, kept, W, activation, parameter, steps, clip, strategy)
    if backend == "graph":
        return graph.run(
            lambda grad, kept, W, parameter: reference.backward(
                grad, last, kept, W, activation, parameter, steps, clip
            ),
            (grad, kept, W, parameter),
            ("dense backward", activation, steps.key, last, clip),
        )
    return reference.backward(grad, last, kept, W, activation, parameter, steps, clip)


def forward(s: Sequence) -> tuple[Tensor, Saved]:
    """States (R, N) and what the backward pass keeps."""
    if s.backend == "cpp":
        return cpp.forward(s)
    s = prepare(s)
    x = project(s.rows, s.weight_ih, s.bias)
    states, preactivations = _chain_forward(s.backend, x, s.h0, s.operands.weight, s.activation, s.parameter, s.steps)
    return states, Saved(preactivations)


def backward(
    s: Sequence, grad: Tensor, last: bool, clip: float | None, states: Tensor | None, saved: Saved, needs: Needs
) -> tuple[Tensor | None, ...]:
    """Gradients of x, weight_ih, bias, h0, weight, c, s and parameter, None where not needed.

    grad: (R, N), or with `last` (B, N) of the last states alone.
    """
    if s.backend == "cpp":
        return cpp.backward(s, grad, last, clip, states, saved, needs)
    s = prepare(s)
    kept = states if saved.kept is None else saved.kept
    assert kept is not None
    if states is None:  # where pre-activations are kept, states are made anew
        states = s.activation(kept.to(s.h0.dtype), s.parameter)
    delta, by_h0, by_parameter = _chain_backward(
        s.backend, grad, last, kept, s.operands.weight, s.activation, s.parameter, s.steps, clip
    )
    by_x, by_weight_ih = project_backward(delta, s.rows, s.weight_ih, needs.x, needs.weight_ih)
    by_bias = delta.sum(dim=0) if needs.bias else None
    by_W = s.steps.outer(delta, states, s.h0) if needs.weight else None
    return by_x, by_weight_ih, by_bias, by_h0, by_W, None, None, by_parameter


def plain(s: Sequence) -> Tensor:
    """States (R, N) by plain torch operations."""
    x = project(s.rows, s.weight_ih, s.bias)
    return reference.forward(x, s.h0, s.operands.weight, s.activation, s.parameter, s.steps)[0]


def reverse(s: Sequence, order: Tensor | None) -> tuple[Tensor, Saved, Tensor]:
    """States (R, N) that end in s.h0 (B, N), what `forward` would have kept, and the state before them.

    order: bool (R, N//2), for oplu; see Activation.inverse. The GPU backends do this by the reference, as a graph.
    """
    if s.backend == "cpp":
        return cpp.reverse(s, order)
    x = project(s.rows, s.weight_ih, s.bias)
    tensors = (x, s.h0, s.operands.weight, s.parameter, order)
    states, preactivations, before = graph.run_or_call(
        s.rows.is_cuda and s.backend != "reference" and s.steps.sizes is None,
        lambda x, h, W, parameter, order: reference.reverse(x, h, W, s.activation, parameter, order, s.steps),
        tensors,
        ("dense reverse", s.activation, s.steps.key),
    )
    return states, Saved(None if s.activation.reads == "state" else preactivations), before


def prepare(s: Sequence) -> Sequence:
    """Make W contiguous: BLAS rounds by the strides, so a product depends on them under any memory mode."""
    return s._replace(operands=s.operands._replace(weight=s.operands.weight.contiguous()))


DENSE = register(Recurrence("dense", forward, backward, plain, reverse, prepare, cpp.infer))
