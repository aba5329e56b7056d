"""The user's layout and the kernels' layout: check an input and initial states, and convert in both directions.

Code above this module handles batch_first, unbatched sequences and PackedSequence; code below it handles (T, B, ...) or
flat rows, with sequences sorted by length.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence

from .._checks import check_integer, check_shape, check_tensor
from ..complex_as_real import complex_dtype
from ..errors import ArgumentError, DeviceError, DTypeError, ShapeError
from ..kernels.interception import is_autocast
from ..kernels.projection import cast, is_tokens
from ..kernels.validation import (
    check_batch_sizes,
    check_dt,
    check_kind_of_batch_sizes,
    check_reset,
    check_restart_is_used,
    times_of,
)
from ..layout import SequenceLayout, restarted
from ..parametrizations.matrices import as_complex
from ..parametrizations.sharded import gathered
from .torchscript import with_recorded_sizes, with_recorded_steps

State = TypeVar("State")  # a tensor, or a pair of them
Starts = tuple[Tensor, ...] | tuple[None, ...]
"""States (B, N) of each layer and direction, or None for each."""


@dataclass  # not a NamedTuple, whose properties torch.compile does not follow before torch 2.10; nor frozen
class NetworkSizes:
    """The sizes that an input and a state must match. weight: Weight of the first layer, for dtype and device. matrix:
    Sizes of a state that is not a vector of hidden_size numbers. real_input: Whether inputs must be real even if the
    state is complex.
    """

    input_size: int
    hidden_size: int
    num_states: int  # layers times directions
    is_complex: bool
    batch_first: bool
    weight: Tensor
    matrix: tuple[int, ...] | None = None
    real_input: bool = False

    @property
    def state_shape(self) -> tuple[int, ...]:
        """The sizes of the state of one sequence."""
        return (self.hidden_size,) if self.matrix is None else self.matrix

    @property
    def state_dtype(self) -> torch.dtype:
        """Dtype of h_0 and h_n."""
        return complex_dtype(self.weight.dtype) if self.is_complex else self.weight.dtype

    @property
    def real_dtype(self) -> torch.dtype:
        """Dtype of the parts of a complex h_0 and h_n (torch.compile does not follow `dtype.to_real`)."""
        return torch.float64 if self.weight.dtype == torch.float64 else torch.float32


class SequenceInput(NamedTuple):
    """An input in the form that layers take: x (T, B, ...) or flat rows, with its layout. sizes: Sizes of the
    network.
    """

    x: Tensor
    layout: SequenceLayout
    is_batched: bool
    sizes: NetworkSizes
    packed: PackedSequence | None

    @classmethod
    def of(
        cls,
        input: Tensor | PackedSequence,
        sizes: NetworkSizes,
        reset: Tensor | PackedSequence | None = None,
        dt: Tensor | PackedSequence | None = None,
    ) -> SequenceInput:
        """Return a checked input, or raise the same errors as torch.nn.RNN. reset, dt: As given by the user."""
        packed = input if isinstance(input, PackedSequence) else None
        x: Tensor = input if packed is None else packed.data  # type: ignore[assignment]
        is_batched = check_sequence(x, packed is not None, sizes)
        if packed is None:
            x = x.unsqueeze(1) if not is_batched else (x.transpose(0, 1) if sizes.batch_first else x)
            x = with_recorded_steps(x) if torch.jit.is_tracing() else x
            layout = SequenceLayout(x.shape[0], x.shape[1])
        else:
            check_kind_of_batch_sizes(packed.batch_sizes)
            x = with_recorded_sizes(x, packed.batch_sizes) if torch.jit.is_tracing() else x
            layout = SequenceLayout.of(x, packed.batch_sizes)
            if not torch.compiler.is_compiling():  # in a graph the operator checks them
                check_batch_sizes(packed.batch_sizes, layout.rows, layout.batch)
        if reset is not None:
            reset = _rows_of("reset", reset, check_reset, layout, packed, sizes, is_batched)
        if dt is not None:
            dt = times_of(_rows_of("dt", dt, check_dt, layout, packed, sizes, is_batched))
        unbroken = reset is None and dt is None
        return cls(x, layout if unbroken else layout.between(reset, dt), is_batched, sizes, packed)

    @classmethod
    def of_step(
        cls,
        x: Tensor,
        sizes: NetworkSizes,
        reset: Tensor | None = None,
        name: str = "x",
        for_sequences: str = "forward()",
        dt: Tensor | None = None,
    ) -> SequenceInput:
        """Return the checked input of one step as rows (B, I) or (B,).

        Args:
            x: (B, I), (I,) or tokens (B,).
            sizes: Sizes of the network.
            reset: (B,) or (), as given by the user.
            name: The user's name for x.
            for_sequences: Name of the method for whole sequences.
            dt: (B,) or (), as given by the user.
        """
        check_fits("input", x, sizes)
        is_batched = _check_one_step(name, x, sizes, for_sequences)
        rows = x if is_batched else x.unsqueeze(0)
        if reset is not None:
            check_reset(reset, tuple(rows.shape[:1]) if is_batched else (), x.device)
            reset = reset.view(-1)
        if dt is not None:
            check_dt(dt, tuple(rows.shape[:1]) if is_batched else (), x.device)
            dt = times_of(dt.reshape(-1))
        return cls(rows, SequenceLayout(1, rows.shape[0], resets=reset, dt=dt), is_batched, sizes, None)

    def as_sequence(self) -> SequenceInput:
        """Return the input of one step, (B, ...), as a sequence (1, B, ...), without resets: see `begun`."""
        layout = self.layout if self.layout.resets is None else self.layout.between(None, self.layout.dt)
        return SequenceInput(self.x.unsqueeze(0), layout, self.is_batched, self.sizes, None)

    def initial_states(self, h0: Tensor | None, learned: Tensor | None, name: str = "h0") -> tuple[Tensor, ...]:
        """Return h_0 (B, N) of each layer and direction, with sequences in the order of the rows of x; a matrix state
        has other sizes instead of N.

        Args:
            h0: The user's argument, or None.
            learned: The trained state (L * D, N), or (L * D, N, 2) of a complex network, or None.
            name: The user's name for h0.
        """
        sizes = self.sizes
        if h0 is not None and not self.is_batched:
            check_fits(name, h0, sizes)
            check_shape(name, h0, (sizes.num_states, *sizes.state_shape), _advice_about_state(h0, sizes, None))
            h0 = h0.unsqueeze(1)
        if h0 is not None and self.packed is not None:
            _assert_batch(self.layout, check_tensor(name, h0), 1, 2 + len(sizes.state_shape))
        states = initial_states(self.layout, sizes, h0, learned, name)
        if h0 is None or self.packed is None or self.packed.sorted_indices is None:
            return states
        order = self.packed.sorted_indices
        return tuple([state.index_select(0, order) for state in states])

    def restarts(self, restart: Tensor | None, learned: Tensor | None) -> Starts:
        """Return the state of each layer and direction from which sequences restart; None without resets.

        Args:
            restart: The user's argument, or None for the trained state or zeros.
            learned: The trained state, or None.
        """
        if self.layout.resets is None:
            check_restart_is_used(restart)
            return (None,) * self.sizes.num_states
        return self.initial_states(restart, learned, "restart")

    def begun(self, states: tuple[Tensor, ...], restarts: Starts) -> tuple[Tensor, ...]:
        """Return the state (B, N) of each layer before one step, taken from ``restarts`` if an episode starts with
        it.
        """
        resets = self.layout.resets
        if resets is None:
            return states
        mask = resets.view(-1, *(1,) * (states[0].dim() - 1))
        return tuple([restarted(state, mask, first) for state, first in zip(states, restarts)])

    def out(self, x: Tensor, h_n: Tensor, only_last: bool) -> tuple[Tensor | PackedSequence, Tensor]:
        """Return (states, or with ``only_last`` the last ones, and h_n) in the user's layout."""
        packed = self.packed
        if packed is not None:
            if packed.unsorted_indices is not None:
                h_n = h_n.index_select(1, packed.unsorted_indices)
                x = x.index_select(0, packed.unsorted_indices) if only_last else x
            if only_last:
                return x, h_n
            return PackedSequence(x, packed.batch_sizes, packed.sorted_indices, packed.unsorted_indices), h_n
        if not self.is_batched:
            return x.squeeze(0 if only_last else 1), h_n.squeeze(1)
        return (x.transpose(0, 1) if self.sizes.batch_first and not only_last else x), h_n


def initial_states(
    layout: SequenceLayout, sizes: NetworkSizes, h0: Tensor | None, learned: Tensor | None, name: str = "h0"
) -> tuple[Tensor, ...]:
    """Return h_0 (B, N) of each layer and direction, with sequences in the order of h0 (L * D, B, N)."""
    batch, shape, dtype = layout.batch, sizes.state_shape, sizes.state_dtype
    if h0 is None and learned is not None:
        own = gathered(learned)
        own = as_complex(own) if sizes.is_complex else own
        rows = (own,) if sizes.num_states == 1 else own.split(1)
        if not torch.compiler.is_compiling() and batch == 1:  # in a graph the batch of a PackedSequence is not known
            return rows
        return tuple([row.expand(batch, *shape) for row in rows])
    if h0 is None:
        return (torch.zeros(batch, *shape, dtype=dtype, device=sizes.weight.device),) * sizes.num_states
    check_fits(name, h0, sizes)
    wanted = (sizes.num_states, batch, *shape)
    if h0.shape != wanted:  # asked first, in a tenth of the time
        check_shape(name, h0, wanted, _advice_about_state(h0, sizes, batch))
    # An expanded h0 becomes a tensor with a row, and a gradient, for each sequence.
    return cast(h0, dtype).contiguous().unbind(0)


def _advice_about_state(h0: Tensor, sizes: NetworkSizes, batch: int | None) -> str:
    """Return what to do about an initial state of another shape. batch: Sequences of the input; None if unbatched."""
    if batch is None:
        return "Pass (layers * directions, ...), as h_n is returned."
    if h0.dim() > 1 and (h0.shape[0], *h0.shape[2:]) == (sizes.num_states, *sizes.state_shape):
        return f"The input has {batch} sequences: pass a state for each, or None for the initial state."
    return "Pass (layers * directions, B, ...), also with batch_first, as h_n is returned."


def check_batch(batch: int) -> None:
    """Raise unless the number of sequences is an integer; in a graph it may be symbolic."""
    if not (torch.compiler.is_compiling() or torch.jit.is_tracing()):
        check_integer("batch", batch, 0)


def one_initial_state(**given: State | None) -> tuple[str, State | None]:
    """Return the name under which the user gave an initial state, and the state. If none was given, return the first
    name and None. Raise ArgumentError if several were given.
    """
    names = [name for name, state in given.items() if state is not None] or list(given)[:1]
    if len(names) > 1:
        raise ArgumentError(f"Expected one initial state, but got both {' and '.join(names)}. Pass one of them.")
    return names[0], given[names[0]]


def _check_one_step(name: str, x: Tensor, sizes: NetworkSizes, for_sequences: str) -> bool:
    tokens, dim, size = is_tokens(x), x.dim(), sizes.input_size
    if (dim != 1 and (tokens or dim != 2)) or (not tokens and x.shape[-1] != size):
        advice = f"Pass a whole sequence to {for_sequences}, or its steps one by one, {name}[t]."
        if tokens and not dim:
            advice = f"Pass one token as a batch of one, {name}[None]."
        elif dim in (1, 2) and not tokens:
            advice = f"Pass {size} numbers for each sequence."
        raise ShapeError(
            f"Expected {name} of shape (B, {size}) or ({size},), or integer tokens (B,), but got {tuple(x.shape)}. "
            f"{advice}"
        )
    return tokens or dim == 2


def _rows_of(
    name: str,
    given: Tensor | PackedSequence,
    check: Callable[[Tensor, tuple[int, ...], torch.device], None],
    layout: SequenceLayout,
    packed: PackedSequence | None,
    sizes: NetworkSizes,
    is_batched: bool,
) -> Tensor:
    """Check a number or flag for each step and sequence, and return it as flat rows (R,).

    Args:
        name: The user's name for it.
        given: (T, B), or (B, T) with ``batch_first``; (T,) unbatched. For a packed input, T is the longest length and
            sequences are in the order of the batch; a PackedSequence with the same lengths is also accepted.
        check: Function that raises unless a tensor has this shape and device and allowed values.
        layout: Layout of the input.
        packed: The input if it is a PackedSequence.
        sizes: Sizes of the network.
        is_batched: Whether the input has a batch dimension.
    """
    device = sizes.weight.device
    if isinstance(given, PackedSequence):
        return _packed_rows(name, given, check, layout, packed, device)
    if packed is not None:
        _assert_batch(layout, check_tensor(name, given), 0 if sizes.batch_first else 1, 2)
    steps, batch = layout.length, layout.batch
    check(given, (steps,) if not is_batched else (batch, steps) if sizes.batch_first else (steps, batch), device)
    if not is_batched:
        return given
    given = given.mT if sizes.batch_first else given
    if packed is None:
        return given.flatten()
    if packed.sorted_indices is not None:
        given = given.index_select(1, packed.sorted_indices)
    step, sequence = layout.places()
    return given[step.to(device), sequence.to(device)]


def _packed_rows(
    name: str,
    given: PackedSequence,
    check: Callable[[Tensor, tuple[int, ...], torch.device], None],
    layout: SequenceLayout,
    packed: PackedSequence | None,
    device: torch.device,
) -> Tensor:
    if packed is None:
        raise ShapeError(f"Expected {name} to be a tensor, as the input is, but got a PackedSequence. Pad it.")
    check(given.data, (layout.rows,), device)
    if torch.compiler.is_compiling():
        return given.data
    orders = (packed.sorted_indices, given.sorted_indices)
    same_order = orders[0] is orders[1] or (None not in orders and torch.equal(*orders))  # type: ignore[arg-type]
    if not same_order or not torch.equal(packed.batch_sizes, given.batch_sizes):
        raise ShapeError(
            f"Expected {name} packed with the lengths of the input, but got other lengths. Pack both alike."
        )
    return given.data


def _assert_batch(layout: SequenceLayout, given: Tensor, axis: int, dims: int) -> None:
    """Let a graph assert at run time that a PackedSequence has as many sequences as the argument given with it.

    In this case B is a value of batch_sizes, which torch.compile cannot compare while it traces.

    Args:
        layout: Layout of the sequences; its batch size becomes the known one.
        given: A state or a mask.
        axis: Batch dimension of ``given``.
        dims: Number of dimensions it should have; other numbers are left to the checks that follow.
    """
    if torch.compiler.is_compiling() and given.dim() == dims:
        torch._check(layout.batch == given.shape[axis])
        layout.batch = given.shape[axis]


def check_fits(name: str, tensor: Tensor, sizes: NetworkSizes) -> None:
    """Raise unless an input or a state is a tensor on the network's device that its dtype can hold."""
    pack = "Pack sequences with torch.nn.utils.rnn.pack_sequence(parts, enforce_sorted=False)."
    check_tensor(name, tensor, pack if name == "input" else "Pass h only: this network has no cell state c.")
    weight = sizes.weight
    if tensor.dtype == weight.dtype and tensor.device == weight.device:
        return
    if tensor.device != weight.device:
        raise DeviceError(
            f"Expected {name} on {weight.device}, the device of the module, but got {tensor.device}. Move it with "
            f"{name}.to({str(weight.device)!r})."
        )
    may_be_complex = sizes.is_complex and not (sizes.real_input and name == "input")
    if tensor.is_complex() and not may_be_complex:
        raise DTypeError(
            f"Expected {name} to be real, like this network, but got {tensor.dtype}. Pass a parametrization with "
            f"field='complex', or the real and imaginary parts as features."
        )
    if is_tokens(tensor):
        if name == "input" and tensor.dtype not in (torch.bool, torch.uint8):
            return
        raise DTypeError(
            f"Expected {name} in a floating-point dtype"
            f"{', or token numbers in a signed integer dtype' if name == 'input' else ''}, but got {tensor.dtype}. "
            f"Convert it with .to({weight.dtype})."
        )
    # What is narrower loses nothing on the way in; 16-bit parts have no complex dtype.
    own = sizes.real_dtype if tensor.is_complex() else weight.dtype
    loses = torch.finfo(tensor.dtype).eps < torch.finfo(own).eps
    if loses and not is_autocast(weight):
        raise DTypeError(
            f"Expected {name} of no more precision than the weights, {weight.dtype}, but got {tensor.dtype}. "
            f"Convert it with .to({own.to_complex() if tensor.is_complex() else own}), or the network with "
            f".to({tensor.dtype.to_real()})."
        )


def check_sequence(x: Tensor, is_packed: bool, sizes: NetworkSizes) -> bool:
    """Raise the same errors as torch.nn.RNN if an input does not match; return whether it is batched."""
    check_fits("input", x, sizes)
    tokens = is_tokens(x)
    allowed = (1,) if is_packed and tokens else (2,) if is_packed else (1, 2) if tokens else (2, 3)
    if x.dim() not in allowed:
        kind = "tokens " if tokens else ""
        order = "B, T" if sizes.batch_first else "T, B"
        advice = f"Pass ({order}, {sizes.input_size}), or one sequence (T, {sizes.input_size})."
        if is_packed:
            advice = "Pack sequences of shape (T,)." if tokens else f"Pack sequences of shape (T, {sizes.input_size})."
        elif tokens:
            advice = f"Integers are tokens, ({order}) or (T,): convert other numbers with .to({sizes.weight.dtype})."
        raise ShapeError(
            f"Expected {kind}input to be {' or '.join(f'{d}D' for d in allowed)}, but got "
            f"{x.dim()}D of shape {tuple(x.shape)}. {advice}"
        )
    if not tokens and x.shape[-1] != sizes.input_size:
        raise ShapeError(
            f"Expected input to have {sizes.input_size} features (input_size) in its last dimension, but got "
            f"{x.shape[-1]}{'' if is_packed else f' in shape {tuple(x.shape)}'}. Reshape it, or build the network with "
            f"input_size={x.shape[-1]}."
        )
    return is_packed or x.dim() == allowed[-1]
