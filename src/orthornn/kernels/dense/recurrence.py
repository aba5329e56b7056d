"""The dense recurrence on one backend, with all its parameter gradients: what the autograd node runs."""

from __future__ import annotations

from torch import Tensor

from ...activations import Activation
from .. import chain, graph, launch
from ..node import Needs, Operands, Recurrence, Saved, register
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
    states, preactivations = _chain_forward(backend, x, h0, operands.weight, activation, parameter, steps)
    return states, Saved(preactivations)


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
    delta, by_h0, by_parameter = _chain_backward(
        backend, grad, last, kept, operands.weight, activation, parameter, steps, clip
    )
    by_x, by_weight_ih = project_backward(delta, rows, weight_ih, needs.x, needs.weight_ih)
    by_bias = delta.sum(dim=0) if needs.bias else None
    by_W = steps.outer(delta, states, h0) if needs.weight else None
    return by_x, by_weight_ih, by_bias, by_h0, by_W, None, None, by_parameter


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
    return reference.forward(x, h0, operands.weight, activation, parameter, steps)[0]


DENSE = register(Recurrence("dense", forward, backward, plain))
