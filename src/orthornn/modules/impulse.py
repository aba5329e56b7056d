r"""Compute only every k-th state of a linear layer, from the layer's response to one step of input.

    h_{t+k} = W^k h_t + sum_j W^(k-1-j) (V x_{t+1+j} + b),    j = 0 ... k-1

W stands for g W if the layer has a gain g. The k matrices W^j [V, b] are the states of I + 1 sequences that start at
the columns of V and b and receive no input. All sequences of the batch and all groups of k steps share them, so the sum
is one matrix product. With k = T this yields the last state, h_T = W^T h_0 + sum_t W^(T-t) (V x_t + b), from I + 1
sequences instead of B. If a sequence restarts, the sum begins at its last restart: earlier inputs are set to zero, and
the number n of steps since the restart selects W^n s and W^0 b + ... + W^(n-1) b. The result and its gradients are
exact up to rounding.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from .._checks import is_captured, is_plain_eager
from ..compact_wy import base_power
from ..kernels import recurrence
from ..kernels.call import Call, Options, States
from ..kernels.projection import is_tokens
from ..layout import SequenceLayout
from .transition import BuiltTransition, Transition

Apply = Callable[[Call], States]
"""Runs a call, which has no transition yet, with the transition of a layer, and stores all states."""


class Response(NamedTuple):
    """The states that follow one step of a layer.

    Attributes:
        weight: V_k (N, k I), such that  h_{t+k} = W^k h_t + V_k [x_{t+1}; ...; x_{t+k}] + b_k.
        bias: W^j b for j = 0 ... k-1, (k, 1, N); None without a bias.
        starts: W^j s for j = 1 ... k of each given state s, (k, 1, N).
    """

    weight: Tensor
    bias: Tensor | None
    starts: list[Tensor]


def response(apply: Apply, call: Call, k: int, *starts: Tensor) -> Response:
    """Return the response of a layer over k steps.

    Args:
        apply: Function that runs a call.
        call: Call with the input weights, the bias and the options of the layer.
        k: Number of steps.
        starts: States (N,).
    """
    V, n = call.weight_ih, call.h0.shape[1]
    assert V is not None
    size, rows = V.shape[1], V.mT
    begun = rows.new_zeros(size, n)
    if call.bias is not None:
        rows, begun = torch.cat([rows, call.bias.unsqueeze(0)]), rows.new_zeros(size + 1, n)
    for start in starts:  # it takes all k steps; the columns enter at the first of them
        rows, begun = torch.cat([rows, rows.new_zeros(1, n)]), torch.cat([begun, start.unsqueeze(0)])
    layout = SequenceLayout(k, rows.shape[0])
    inputs = torch.cat([rows.unsqueeze(0), rows.new_zeros(k - 1, *rows.shape)])
    options = call.options.changed(only_last=False, segment_length=None)
    free = Call(inputs, None, None, begun, begun, None, None, None, None, layout, options)
    states = apply(free).all
    assert states is not None
    # One split for all that is read of them: a slice each would have a gradient of the shape of all states each.
    parts = list(states.split([size] + [1] * (rows.shape[0] - size), 1))
    weight = parts.pop(0).flip(0).flatten(0, 1).mT
    return Response(weight, None if call.bias is None else parts.pop(0), parts)


def serves(call: Call) -> bool:
    """Return whether the response can compute the last states of a call whose sequences all begin in one state.

    This excludes sequences of unequal lengths, and inputs that are tokens or already projected.
    """
    x = call.x
    if call.layout.is_ragged:
        return False
    return call.weight_ih is not None and not is_tokens(x) and x.dtype == call.h0.dtype


def last_state(apply: Apply, call: Call) -> Tensor | None:
    """Return the last states (B, N) of a call that the response serves. Return None if sequences begin in different
    states, or if the response overflows: an expanding W may turn a step into infinity that the states themselves never
    reach, and zero times infinity is not zero.
    """
    x, layout = call.x, call.layout
    begun = [_common(h) for h in (call.h0, call.restart) if h is not None]
    if None in begun:
        return None
    starts = [start for start, is_zero in begun if not is_zero]  # type: ignore[misc]
    found = response(apply, call, layout.length, *starts)
    if _overflows(found.weight):
        return None
    if layout.resets is None:
        bias = x.new_zeros(call.h0.shape[1]) if found.bias is None else found.bias.sum((0, 1))
        bias = bias + found.starts[0][-1, 0] if starts else bias
        return torch.addmm(bias, x.transpose(0, 1).flatten(1), found.weight.mT)
    resets = layout.resets.view(layout.length, layout.batch)
    after = resets.flip(0).cumsum(0).flip(0) - resets.long()  # restarts after each step
    runs = after == 0
    x = torch.where(runs.unsqueeze(-1), x, 0)
    last = x.transpose(0, 1).flatten(1) @ found.weight.mT
    steps = runs.sum(0) - 1  # of the last episode, less one
    if found.bias is not None:
        last = last + found.bias.cumsum(0)[steps, 0]
    restarted = resets.any(0)
    own = iter(found.starts)
    for (_, is_zero), where in zip(begun, (~restarted, restarted)):  # type: ignore[misc]
        if not is_zero:
            last = last + torch.where(where.unsqueeze(-1), next(own)[steps, 0], 0)
    return last


def _common(h: Tensor) -> tuple[Tensor, bool] | None:
    """Return the state (N,) shared by all sequences and whether it is zero; None if the states differ."""
    if h.stride(0) == 0:  # the trained state, the same for all
        return h[0], False
    if h.requires_grad or is_captured(h) or bool(h.any()):
        return None
    return h[0], True


def _overflows(weight: Tensor) -> bool:
    """Return whether a value is infinite or NaN; False if values cannot be read, in graphs and transforms."""
    if not is_plain_eager() or weight.is_meta or is_captured(weight):
        return False
    return not bool(weight.detach().isfinite().all())


def every_kth(
    apply: Apply, transition: Transition | BuiltTransition, call: Call, k: int, gain: float | Tensor = 1.0
) -> Tensor | None:
    """Return the states (T/k, B, N) after steps k, 2k, ..., T of a call whose length is a multiple of k.

    Return None if the response, or the k-th power of g W, overflows. 16-bit inputs are widened, since powers of W would
    lose precision in 16 bits.

    Args:
        apply: Function that runs a call, gain included.
        transition: The transition of W.
        call: Call with the input weights, the bias and the options of the layer.
        k: Number of steps per returned state.
        gain: g.
    """
    assert call.weight_ih is not None
    call = recurrence.widened(call)
    weight, every, _ = response(apply, call, k)
    if _overflows(weight):
        return None
    bias = call.h0.new_zeros(call.h0.shape[1]) if every is None else every.sum((0, 1))
    x, h0 = call.x, call.h0
    groups = SequenceLayout(x.shape[0] // k, x.shape[1])
    patches = x.unflatten(0, (groups.length, k)).transpose(1, 2).flatten(2)
    options: Options = call.options.changed(only_last=False, segment_length=None)
    whole = Call(patches, weight, bias, h0, h0, None, None, None, None, groups, options)
    power = torch.as_tensor(gain, dtype=torch.float64) ** k
    compact = transition.compact() if transition.num_reflections == 0 else None
    if compact is None:
        W = (power * torch.linalg.matrix_power(transition.cached_matrix().double(), k)).to(h0.dtype)
        if _overflows(W):
            return None
        states: States = recurrence.run(whole.changed(weight=W))
    else:
        U, base = compact
        assert base is not None
        c, s = ((power * t).to(h0.dtype) for t in base_power((base[0].double(), base[1].double()), k))
        if _overflows(c) or _overflows(s):
            return None
        states = recurrence.run(whole.changed(weight=U, c=c, s=s, options=options.changed(kind="compact_wy")))
    assert states.all is not None
    return states.all
