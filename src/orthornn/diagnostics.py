"""Diagnostics of a recurrent matrix: its orthogonality, its spectrum, and gradients through time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from ._checks import check_choice, check_finite, check_flag, check_module, check_tensor
from .errors import ArgumentError, DeviceError, ShapeError
from .modules import GORU, DeltaRNN, OrthogonalRNN, PeepholeLSTM, ReflectionRNN
from .modules.sequence_input import one_initial_state
from .modules.tracing import LayerTrace, tracing
from .parametrizations import matrices

__all__ = ["hidden_gradient_norms", "orthogonality_error", "singular_values"]

STEPWISE = (nn.RNNBase, GORU, PeepholeLSTM, ReflectionRNN, DeltaRNN)
"""Networks whose kernel cannot be traced; they are called once per step."""

Loss = Literal["last", "total"] | Callable[[Tensor], Tensor]


@torch.no_grad()
def orthogonality_error(W: Tensor) -> float:
    """Return ||W^H W - I||_F of a matrix, in float64: the distance of its columns from orthonormal.

    Args:
        W: A real or complex matrix (N, P).
    """
    return matrices.orthogonality_error(_matrix(W))


@torch.no_grad()
def singular_values(W: Tensor) -> Tensor:
    """Return the singular values of a matrix, the largest first: (min(N, P),) float64.

    Args:
        W: A real or complex matrix (N, P).
    """
    matrix = _matrix(W)
    check_finite("W", matrix)
    return torch.linalg.svdvals(matrices.widen(matrix))


def hidden_gradient_norms(
    model: nn.Module,
    inputs: Tensor | PackedSequence,
    loss: Loss = "last",
    normalize: bool = False,
) -> Tensor:
    """Return ||dL/dh_t|| for every layer and every step.

    The norm is taken over batch and units, divided by the square root of the batch size; h_t is the state after the
    input's step t = 0, 1, ..., even for a direction that reads backwards.

    In an OrthogonalRNN the norms come from dL/da_t, which the kernels' backward pass computes anyway
    (modules/tracing.py): one forward and one backward pass for any T, including clipping inside back-propagation. Other
    networks are called once per step to make every state a separate tensor. Code compiled by torch.compile runs eagerly
    here.

    Args:
        model: A module that is, or contains, an OrthogonalRNN, GORU or PeepholeLSTM, or one of ReflectionRNN, DeltaRNN
            and torch's RNN, GRU and LSTM with one layer and direction. With dropout, call eval() first. Parameters get
            no gradient.
        inputs: Argument of the model.
        loss: A function from the model's output (the states, if the model is a recurrent network) to a scalar. Or
            ``"last"`` or ``"total"`` for half the squared norm of the output at the last step, or at all steps,
            averaged over the batch; its gradient is the output itself divided by the batch size. Default: ``"last"``.
        normalize: Divide each row by its largest entry, to compare shapes over time (Vorontsov et al., 2017, Fig. 4).
            Default: False.

    Returns:
        Norms (layers and directions, T), float64, in the order of the model's networks, then of their layers, forward
        before reverse. The state of an LSTM consists of h and c, the state of a DeltaRNN of the matrices of all heads
        (Frobenius norm).

    Raises:
        ArgumentError: If the model has no such network, does not call one on a whole sequence, or calls several on
            sequences of unequal length; if a network that must have one layer and direction has more; if a network that
            is called once per step gets resets or no steps; if the loss is not a real tensor with one element, or does
            not depend on the output.
    """
    if torch.is_inference_mode_enabled():  # of a validation loop, for instance
        with torch.inference_mode(False):
            return hidden_gradient_norms(model, _outside_inference(inputs), loss, normalize)
    check_module("model", model)
    check_flag("normalize", normalize)
    if not callable(loss):
        check_choice("loss", loss, ("last", "total"))
    ours = {name: module for name, module in model.named_modules() if isinstance(module, OrthogonalRNN)}
    theirs = {name: module for name, module in model.named_modules() if isinstance(module, STEPWISE)}
    if not ours and not theirs:
        raise ArgumentError(
            "Expected model to contain an OrthogonalRNN, GORU, PeepholeLSTM, ReflectionRNN or DeltaRNN, or torch's RNN, GRU "
            f"or LSTM, but got {type(model).__name__}. Pass the model that has one."
        )
    with torch.enable_grad(), tracing(ours) as traces, _stepwise(theirs) as states:
        output = model(inputs)
        output = output[0] if isinstance(output, tuple) and not isinstance(output, PackedSequence) else output
        notes = [trace for name in ours for trace in traces[name]]
        steps = [list(parts) for name in theirs for parts in states[name]]
        sequences = notes[0].layout.batch if notes else _batch(steps[0][0]) if steps else 1
        if not notes and not any(steps):
            kinds = " and ".join(sorted({type(module).__name__ for module in (*ours.values(), *theirs.values())}))
            raise ArgumentError(
                f"Expected a model that calls its {kinds} on a whole sequence, but got {type(model).__name__}, which does "
                f"not. Call the network itself instead of step() or an OrthogonalRNNCell."
            )
        if not sequences:
            raise ArgumentError("Expected at least one sequence, but got B = 0. Pass inputs with B > 0.")
        order = getattr(model, "batch_first", None)
        orders = {ours[name].batch_first for name in ours if traces[name]} | {False for name in theirs if states[name]}
        value = _loss(output, loss, model, sequences, orders if order is None else {bool(order)})
        wanted = [t for note in notes for t in (note.projected, note.states)] + [t for parts in steps for t in parts]
        found = iter(torch.autograd.grad(value, wanted, allow_unused=True, materialize_grads=True))
    with torch.no_grad():
        rows = []
        for name in ours:
            for index, note in enumerate(traces[name]):
                reverse = ours[name].bidirectional and index % 2 == 1
                rows.append(_norms(note, next(found), next(found), reverse))
        for name in theirs:
            if not states[name]:  # the model does not call it
                continue
            squares = [sum(next(found).abs().double().square().sum() for _ in parts) for parts in states[name]]
            rows.append((torch.stack([torch.as_tensor(s) for s in squares]) / _batch(states[name][0][0])).sqrt())
        lengths = sorted({len(row) for row in rows})
        if len(lengths) > 1:
            raise ArgumentError(
                f"Expected networks that read equally many steps, but got {' and '.join(map(str, lengths))} steps. Call this "
                f"function with a part of the model that reads one sequence."
            )
        norms = torch.stack(rows)
        return norms / norms.amax(dim=1, keepdim=True).clamp_min(torch.finfo(norms.dtype).tiny) if normalize else norms


def _matrix(W: Tensor) -> Tensor:
    check_tensor("W", W)
    if W.is_meta:
        raise DeviceError("Expected W to have values, but it is on meta. Move it to a device with to_empty().")
    if W.dim() != 2:
        raise ShapeError(
            f"Expected W to be a matrix (N, P), but got {tuple(W.shape)}. Join pairs with torch.view_as_complex."
        )
    return W.detach()


def _outside_inference(inputs: Tensor | PackedSequence) -> Tensor | PackedSequence:
    """Return inputs that autograd may save."""
    if isinstance(inputs, PackedSequence):
        return PackedSequence(*[None if part is None else part.clone() for part in inputs])  # type: ignore[arg-type]
    return inputs.clone() if isinstance(inputs, Tensor) else inputs


def _batch(state: Tensor) -> int:
    """Return B of a state (L, B, N) or (L, B, H, K, V), or 1 for unbatched inputs."""
    return state.shape[1] if state.dim() in (3, 5) else 1


def _loss(
    output: Tensor | PackedSequence, loss: Loss, model: nn.Module, sequences: int, batch_first: set[bool]
) -> Tensor:
    """Return the loss of a model's output, which for one sequence may be unbatched: (T, O) for all steps or (O,).

    batch_first: Whether the model, or the networks in it, are batch-first.
    """
    if callable(loss):
        value = loss(output)  # type: ignore[arg-type]
        if not isinstance(value, Tensor) or value.numel() != 1:
            got = f"shape {tuple(value.shape)}" if isinstance(value, Tensor) else type(value).__name__
            raise ArgumentError(f"Expected loss to return a tensor with one element, but got {got}. Return its mean.")
        if value.is_complex() or not value.requires_grad:
            got = "a complex number" if value.is_complex() else "a number that does not depend on it"
            raise ArgumentError(
                f"Expected loss to return a real number computed from the output, but got {got}. Correct it."
            )
        return value
    if isinstance(output, PackedSequence):
        raise ArgumentError(
            f"Expected loss to be a function with a PackedSequence, but got {loss!r}, which is for padded inputs."
        )
    is_unbatched = sequences == 1 and (output.dim() == 1 or (output.dim() == 2 and output.shape[0] > 1))
    every_step = getattr(model, "output", "all") == "all" and output.dim() == 3
    batch = 1 if is_unbatched else sequences if every_step else output.shape[0]
    if every_step and [output.shape[0 if first else 1] for first in batch_first] != [sequences]:
        expected = " or ".join(sorted("(B, T, O)" if first else "(T, B, O)" for first in batch_first))
        raise ArgumentError(
            f"Expected an output {expected} of {sequences} sequences for the loss {loss!r}, but got a shape of "
            f"{tuple(output.shape)}. Pass a function as loss, or give the model an attribute batch_first."
        )
    if loss == "last" and is_unbatched and output.dim() == 2:
        output = output[-1]
    elif loss == "last" and every_step:
        output = output[:, -1:] if True in batch_first else output[-1:]
    return 0.5 * output.abs().square().sum() / batch


def _norms(note: LayerTrace, delta: Tensor, direct: Tensor, reverse: bool) -> Tensor:
    """Return (T,) from dL/da_t and from the part of dL/dh_t that comes from above, both (T, B, N) or flat rows."""
    carried = note.backward_through_W(delta)
    total = direct.clone()
    if not note.layout.is_ragged:
        total[:-1] += carried[1:]
        total = total.flip(0) if reverse else total
        return (total.double().square().sum(dim=(1, 2)) / total.shape[1]).sqrt()
    sizes = note.layout.sizes or []
    parts, following = total.split(sizes), carried.split(sizes)
    for part, after in zip(parts, following[1:]):
        part[: after.shape[0]] += after
    if reverse:
        parts = note.layout.reverse(total).split(sizes)
    return torch.stack([part.double().square().sum() for part in parts]).div(sizes[0]).sqrt()


@contextmanager
def _stepwise(networks: Mapping[str, nn.Module]) -> Iterator[dict[str, list[tuple[Tensor, ...]]]]:
    """Call these networks once per step inside the context; yield the state tensors of every step by name."""
    states: dict[str, list[tuple[Tensor, ...]]] = {name: [] for name in networks}
    for network in networks.values():  # all of them, before the first is changed
        plain = network.num_layers == 1 and not network.bidirectional and not getattr(network, "proj_size", 0)
        if not plain or network.batch_first:
            raise ArgumentError(
                f"Expected a {type(network).__name__} of one layer and direction, time-major and without projection, "
                f"but got {network}."
            )
    own = {name: vars(network)["forward"] for name, network in networks.items() if "forward" in vars(network)}
    for name, network in networks.items():
        network.forward = _by_steps(network, states[name])
    try:
        yield states
    finally:
        for name, network in networks.items():
            del network.forward
            if name in own:  # another library had put it there, as accelerate does
                network.forward = own[name]


def _by_steps(network: nn.Module, states: list[tuple[Tensor, ...]]) -> Callable[..., Any]:
    forward = network.forward

    def by_steps(
        input: Tensor | PackedSequence,
        hx: Any = None,
        output: str = "all",
        h0: Any = None,
        state: Any = None,
        reset: Any = None,
        restart: Any = None,
    ) -> tuple[Tensor | PackedSequence, Any]:
        if reset is not None or restart is not None:
            raise ArgumentError(
                f"Expected a call of {type(network).__name__} without reset, but got a mask. Call the model with one episode."
            )
        steps = packed_by_steps if isinstance(input, PackedSequence) else plain_by_steps
        every, final, last = steps(input, one_initial_state(hx=hx, h0=h0, state=state)[1])
        return (last if output == "last" else every), final

    def plain_by_steps(inputs: Any, state: Any) -> tuple[Tensor | PackedSequence, Any, Tensor]:
        if not len(inputs):
            raise ArgumentError(
                f"Expected a {type(network).__name__} to read at least one step, but got T = 0. Pass T > 0."
            )
        outputs = []
        for x in inputs.split(1):
            _, state = forward(x, state)
            parts = noted(state)
            outputs.append(read(x, parts))
            state = parts if len(parts) > 1 else parts[0]
        return torch.cat(outputs), state, outputs[-1][0]

    def packed_by_steps(inputs: Any, state: Any) -> tuple[Tensor | PackedSequence, Any, Tensor]:
        sizes = inputs.batch_sizes.tolist()
        if state is not None and inputs.sorted_indices is not None:
            parts = state if isinstance(state, tuple) else (state,)
            parts = tuple(part.index_select(1, inputs.sorted_indices) for part in parts)
            state = parts if len(parts) > 1 else parts[0]
        outputs, ended = [], []
        for x, next_size in zip(inputs.data.split(sizes), [*sizes[1:], 0]):
            _, state = forward(x.unsqueeze(0), state)
            parts = noted(state)
            out = read(x.unsqueeze(0), parts)
            outputs.append(out[0])
            ended.append([part[:, next_size:] for part in (*parts, out)])
            unended = [part[:, :next_size] for part in parts]
            state = tuple(unended) if len(unended) > 1 else unended[0]
        finals = [torch.cat(part[::-1], dim=1) for part in zip(*ended)]
        if inputs.unsorted_indices is not None:
            finals = [final.index_select(1, inputs.unsorted_indices) for final in finals]
        rows = PackedSequence(torch.cat(outputs), inputs.batch_sizes, inputs.sorted_indices, inputs.unsorted_indices)
        *finals, last = finals
        return rows, tuple(finals) if len(finals) > 1 else finals[0], last[0]

    def read(x: Tensor, state: tuple[Tensor, ...]) -> Tensor:
        """Return the output of a step, computed from the recorded state, so dL/dh_t also includes the loss at step
        t.
        """
        if not isinstance(network, DeltaRNN):
            return state[0][-1:]
        q = network._queries(network.suffixes[0], x)
        return torch.einsum("...hk,...hkv->...hv", q, state[0]).flatten(-2)

    def noted(state: Any) -> tuple[Tensor, ...]:
        parts = state if isinstance(state, tuple) else (state,)
        # Of a frozen network nothing requires a gradient until here.
        states.append(tuple(part if part.requires_grad else part.detach().requires_grad_() for part in parts))
        return states[-1]

    return by_steps
