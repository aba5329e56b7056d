"""Input-dependent reflections as a function: check the arguments, build a `ReflectionCall`, run it."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ..._checks import (
    check_choice,
    check_dtype,
    check_positive,
    check_same,
    check_shape,
    check_tensor,
)
from ...activations import Activation, Name
from ...errors import ArgumentError, ArgumentTypeError, DeviceError, DTypeError, ShapeError
from ..call import Options
from ..checkpointing import LENGTH_FOR_ANY_T, Mode
from ..interception import can_be_read
from ..projection import is_tokens
from ..validation import OUTPUTS, Output, Resets, check_activation, check_memory, check_resets, checked_layout
from .call import ReflectionCall
from .kernel import BACKENDS, backend_of, run


def reflection_rnn(
    k: Tensor,
    beta: float | Tensor,
    h0: Tensor,
    *,
    tokens: Tensor | None = None,
    x: Tensor | None = None,
    gate: Tensor | None = None,
    angles: Tensor | None = None,
    activation: Name | Activation = "identity",
    parameter: Tensor | None = None,
    batch_sizes: Tensor | None = None,
    output: Output = "all",
    clip: float | None = None,
    backend: str = "auto",
    reset: Tensor | None = None,
    restart: Tensor | None = None,
    memory: Mode = "store",
    segment: int | None = None,
) -> Tensor:
    r"""Run a recurrence whose transition is a product of reflections, different at each step.

    .. math:: h_t = \phi(g_t \circ H_M \cdots H_1 R_t h_{t-1} + x_t), \quad
              H_i = I - \beta_i k_i k_i' / \max(k_i'k_i, 10^{-12}).

    The arguments of a step are the step's rows of each tensor. With ``tokens`` the tensors are tables of S rows, one
    per symbol, and no tensor of size T is built.

    Args:
        k: Reflectors. They are normalized; a reflector shorter than 1e-6 fades out instead: as its length vanishes, H_i
            approaches the identity. A zero reflector is no reflection, and its gradient is zero.
        beta: Strength of each reflection, in [0, 2]: 2 is a reflection, 1 a projection, 0 the identity. A number, or
            one per reflection and head. With H heads H_i is block-diagonal: head j has units jN/H to (j + 1)N/H.
        h0: Initial state.
        tokens: Row of the tables that each step uses, in a signed integer dtype. Default: None, a row for each step.
        x: Term added at each step. Default: None.
        gate: g in [0, 1]: one per head or per unit. Default: None, 1.
        angles: Angles of R, a rotation of the pairs (i, N - N // 2 + i); all steps share them if the shape is (N //
            2,). Default: None, no rotation.
        activation: Name in :data:`orthornn.activations.ACTIVATIONS`, or an :class:`Activation`. Default:
            ``"identity"``.
        parameter: The activation's trainable vector, if it has one.
        batch_sizes: Rows of each step, int64 (T,) on the CPU, never increasing; rows are then flat, (R, ...), as in a
            PackedSequence. Default: None, B rows in each step.
        output: ``"all"`` to return every state, ``"last"`` to return the last state of each sequence.
        clip: Bound on entries of dL/da_t inside back-propagation. Default: None.
        backend: ``"auto"``, ``"cpp"`` or ``"reference"``.
        reset: True if a new episode starts before step t. Default: None, no resets.
        restart: State from which episodes start. Default: ``h0``.
        memory: ``"store"``; or ``"checkpoint"`` to store one state per segment of steps and recompute the others in the
            backward pass. Default: ``"store"``.
        segment: Steps per segment. Default: None, the square root of T.

    Shape:
        - k: (T, B, M, N) with M <= N; (R, M, N); or (S, M, N) with ``tokens``. beta: the same, with (..., M, H).
        - x: (..., N). gate: (..., H) or (..., N). angles: (..., N // 2) or (N // 2,). tokens: (T, B) or (R,).
        - h0, restart: (B, N). reset: (T, B) or (R,). Output: (T, B, N) or (R, N), or (B, N) if ``output="last"``.

    Raises:
        ShapeError: If sizes do not match.
        ArgumentError: If M > N, or if beta or gate is outside its range.
        IndexError: If a token is outside [0, S).

    Example::

        >>> table = torch.randn(6, 2, 5)  # two reflections for each of six symbols
        >>> h = reflection_rnn(table, 2.0, torch.ones(3, 5), tokens=torch.randint(6, (7, 3)))
        >>> h.shape
        torch.Size([7, 3, 5])
    """
    check_dtype("h0", h0)
    check_shape("h0", h0, ("B", "N"))
    check_tensor("k", k)
    lead = 2 if tokens is None and batch_sizes is None else 1
    if k.dim() != lead + 2:
        kind = "(T, B, M, N)" if lead == 2 else "(S, M, N)" if tokens is not None else "(R, M, N)"
        raise ShapeError(f"Expected k of shape {kind}, but got {tuple(k.shape)}.")
    first, (m, n) = tuple(k.shape[:lead]), k.shape[lead:]
    if n != h0.shape[1]:
        raise ShapeError(f"Expected k to fit a state of size {h0.shape[1]}, but got {tuple(k.shape)}.")
    if not 1 <= m <= n:
        raise ArgumentError(
            f"Expected between 1 and {n} reflections, but got {m}: {n} reach every orthogonal matrix of this size."
        )
    index = None if tokens is None else _index(tokens, batch_sizes, first[0])
    if index is not None and index.device != k.device:
        raise DeviceError(f"Expected tokens on {k.device}, but got {index.device}. Move them with .to('{k.device}').")
    layout = checked_layout(k if index is None else index, batch_sizes, h0.shape[0], "h0")
    beta = strengths(beta, k, (*first, m, "H"))
    heads = beta.shape[-1]
    if heads < 1 or n % heads:
        raise ShapeError(f"Expected heads that divide N = {n}, but got beta of shape {tuple(beta.shape)}.")
    if gate is not None:
        check_shape("gate", gate, (*first, "heads or N"))
        if gate.shape[-1] not in (heads, n):
            raise ShapeError(f"Expected gate of width {heads} (heads) or {n} (N), but got {tuple(gate.shape)}.")
    if angles is not None:
        check_tensor("angles", angles)
        check_shape("angles", angles, (n // 2,) if angles.dim() == 1 else (*first, n // 2))
    if x is not None:
        check_shape("x", x, (*first, n))
    check_same("h0", h0, k=k, beta=beta, gate=gate, angles=angles, x=x, parameter=parameter)
    check_range("beta", beta, 2)
    if gate is not None:
        check_range("gate", gate, 1)
    check_choice("output", output, OUTPUTS)
    check_choice("backend", backend, BACKENDS)
    phi = check_activation(activation, parameter, n)
    found = check_resets(Resets(reset, restart), first if index is None else tuple(index.shape), h0)
    if found.reset is not None:
        layout = layout.between(found.reset.flatten())
    length = segment_of(memory, segment, layout.length)
    options = Options("reflections", phi, check_positive("clip", clip), output == "last", backend, length)
    call = ReflectionCall(k, beta, gate, angles, x, h0, parameter, found.restart, index, layout, options)
    backend_of(call)
    return run(call).wanted


def segment_of(memory: str, segment: int | None, T: int) -> int | None:
    """Return the segment length with memory="checkpoint", or None with memory="store"; raise for any other value."""
    check_memory(memory, segment)
    if memory == "store" or segment is not None:
        return segment
    # the least peak memory of states before segments and those of one
    return LENGTH_FOR_ANY_T if isinstance(T, torch.SymInt) else max(1, round(math.sqrt(T)))


def _index(tokens: Tensor, batch_sizes: Tensor | None, symbols: int) -> Tensor:
    """Return the tokens as int64 after checking them, except for their values on meta tensors and in graphs."""
    check_tensor("tokens", tokens)
    if not is_tokens(tokens) or tokens.dtype in (torch.bool, torch.uint8):
        raise DTypeError(f"Expected tokens of a signed integer dtype, but got {tokens.dtype}.")
    wanted = 2 if batch_sizes is None else 1
    if tokens.dim() != wanted:
        raise ShapeError(
            f"Expected tokens of shape {'(T, B)' if wanted == 2 else '(R,)'}, but got {tuple(tokens.shape)}."
        )
    check_tokens(tokens, symbols)
    return tokens.long()


def check_tokens(tokens: Tensor, symbols: int) -> None:
    """Raise IndexError if a token is outside [0, symbols)."""
    if not can_be_read(tokens):
        return
    low, high = (int(end) for end in tokens.aminmax())
    if low < 0 or high >= symbols:
        raise IndexError(f"Expected tokens in [0, {symbols}), but got numbers from {low} to {high}.")


def strengths(beta: float | Tensor, k: Tensor, shape: tuple[int | str, ...]) -> Tensor:
    """Return strengths as a tensor like k, of this shape; free sizes are 1 if ``beta`` is a number."""
    if isinstance(beta, Tensor):
        check_shape("beta", beta, shape)
        return beta
    if isinstance(beta, (int, float)) and not isinstance(beta, bool):
        return k.new_full([1 if isinstance(size, str) else size for size in shape], float(beta))
    raise ArgumentTypeError(f"Expected beta to be a number or a tensor, but got {type(beta).__name__}.")


def check_range(name: str, values: Tensor, high: int) -> None:
    """Raise ArgumentError if a value is outside [0, high] or NaN, except in graphs, whose values are unknown."""
    if not can_be_read(values):
        return
    low, top = (end.item() for end in values.detach().aminmax())
    if not (low >= 0 and top <= high):
        raise ArgumentError(f"Expected {name} in [0, {high}], but got values from {low:.9g} to {top:.9g}.")
