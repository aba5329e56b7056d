"""The recurrences as functions: check the arguments, build a `Call`, run it.

    a_t = gain * W h_{t-1} + V x_t + b,    h_t = phi(a_t),    W a matrix, (I - U T^-1 U') B, or rotations.

The gain is absorbed into W, or into B's (c, s), before the recurrence, which therefore does not handle it.
"""

from __future__ import annotations

from torch import Tensor

from .._checks import check_same, check_shape
from ..activations import Activation, Name
from ..compact_wy import Base
from ..errors import ArgumentTypeError
from . import rotation
from .call import Call
from .checkpointing import Mode
from .recurrence import run
from .validation import Output, Resets, check_gain, checked_call, settle_memory


def dense_rnn(
    x: Tensor,
    h0: Tensor,
    W: Tensor,
    activation: Name | Activation,
    parameter: Tensor | None = None,
    *,
    weight_ih: Tensor | None = None,
    bias: Tensor | None = None,
    gain: float | Tensor = 1.0,
    batch_sizes: Tensor | None = None,
    output: Output = "all",
    clip: float | None = None,
    backend: str = "auto",
    memory: Mode = "store",
    segment: int | None = None,
    reset: Tensor | None = None,
    restart: Tensor | None = None,
) -> Tensor:
    r"""Run the recurrence :math:`h_t = \phi(g W h_{t-1} + V x_t + b)` over a whole sequence.

    Args:
        x: Projected inputs; or, with ``weight_ih``, raw inputs or tokens of an integer dtype.
        h0: Initial state, float32 or float64, whose dtype and device all other real tensors share. Exception: x and
            weight_ih may both be bfloat16. States, and the tensors saved for the backward pass, are then stored and
            returned in bfloat16; the state passed from step to step, the transition and all sums keep the dtype of h0.
        W: Any matrix.
        activation: Name in :data:`orthornn.activations.ACTIVATIONS`, or an :class:`Activation`.
        parameter: The activation's trainable vector, if it has one.
        weight_ih: V. Default: None, for an x that is already projected.
        bias: b. Default: None.
        gain: g, a number, or a tensor with one element to train. Default: 1.
        batch_sizes: Rows of each step, int64 (T,) on the CPU, never increasing; rows are then flat, (R, ...), as in a
            PackedSequence. Default: None, B rows in each step.
        output: ``"all"`` to return every state; ``"last"`` to return the last state of each sequence, which needs no
            gradient of T B N numbers. Default: ``"all"``.
        clip: Bound c for clipping each entry of dL/da_t to [-c, c] in back-propagation (Vorontsov et al., 2017,
            released code). Default: None.
        backend: ``"auto"`` or the name of a backend.
        memory: ``"store"`` to store everything that the backward pass needs, T B N numbers or more; ``"checkpoint"`` to
            store the state before every segment of steps and recompute the others. Default: ``"store"``.
        segment: Steps per segment. Default: None, the number that minimizes peak memory.
        reset: True if a sequence restarts before the step: ``restart`` replaces its previous state, and no gradient
            passes to earlier steps. Default: None, no resets.
        restart: State from which sequences restart. Default: None, h0.

    Shape:
        - x: (T, B, N), (T, B, I) or (T, B); with ``batch_sizes`` (R, N), (R, I) or (R,). h0, restart: (B, N).
          W: (N, N). parameter: (N,), or (N//2,) for pairs. weight_ih: (N, I). bias: (N,). reset: (T, B) or (R,).
        - Output: (T, B, N) or (R, N), or (B, N) if ``output="last"``.

    Raises:
        ShapeError, DTypeError, DeviceError, ArgumentError: If an argument does not match the others.
        BackendError: If the requested backend cannot run.
        TransformError: Under torch.func transforms with ``clip``.

    Example::

        >>> h = dense_rnn(torch.randn(7, 3, 5), torch.zeros(3, 5), torch.eye(5), "tanh")
        >>> h.shape
        torch.Size([7, 3, 5])
    """
    tensors = (x, weight_ih, bias, h0, W, None, None, parameter)
    call = checked_call("dense", tensors, batch_sizes, activation, output, clip, backend, Resets(reset, restart))
    return run(scaled(settle_memory(call, memory, segment), check_gain(gain, h0))).wanted


def compact_wy_rnn(
    x: Tensor,
    h0: Tensor,
    U: Tensor,
    B: Base,
    activation: Name | Activation,
    parameter: Tensor | None = None,
    *,
    weight_ih: Tensor | None = None,
    bias: Tensor | None = None,
    gain: float | Tensor = 1.0,
    batch_sizes: Tensor | None = None,
    output: Output = "all",
    clip: float | None = None,
    backend: str = "auto",
    memory: Mode = "store",
    segment: int | None = None,
    reset: Tensor | None = None,
    restart: Tensor | None = None,
) -> Tensor:
    """Run the recurrence of :func:`dense_rnn` with W = (I - U T^-1 U') B, by its reflections (Mhammedi et al., 2017).

    Args:
        U: Reflectors as the columns of a matrix, M <= N; or packed, see orthornn.compact_wy.
        B: None for the identity, or (c, s).

    The other arguments, the result and the errors are the same as for :func:`dense_rnn`.

    Shape:
        - U: (N, M), or packed (NM - M(M-1)/2,). c, s: (N,).
    """
    if B is not None and not (isinstance(B, (tuple, list)) and len(B) == 2):
        raise ArgumentTypeError(f"Expected B to be None or a pair of tensors (c, s), but got {type(B).__name__}.")
    c, s = (None, None) if B is None else B
    tensors = (x, weight_ih, bias, h0, U, c, s, parameter)
    call = checked_call("compact_wy", tensors, batch_sizes, activation, output, clip, backend, Resets(reset, restart))
    return run(scaled(settle_memory(call, memory, segment), check_gain(gain, h0))).wanted


def rotations_rnn(
    x: Tensor,
    h0: Tensor,
    W: Tensor,
    *,
    weight_ih: Tensor | None = None,
    bias: Tensor | None = None,
    gain: float | Tensor = 1.0,
    batch_sizes: Tensor | None = None,
    output: Output = "all",
    readout: tuple[Tensor, Tensor | None] | None = None,
    backend: str = "auto",
    memory: Mode = "store",
    segment: int | None = None,
    reset: Tensor | None = None,
    restart: Tensor | None = None,
) -> Tensor:
    """Run the linear recurrence of :func:`dense_rnn` as rotations, for an orthogonal W or a multiple of one.

    A step costs O(N). The decomposition of W takes about 30 N^3 multiply-adds; it is cached for the latest matrices,
    compared by value. There is no ``clip``: clipping single entries is not linear, so it has no equivalent in another
    basis. Under torch.func transforms and for higher derivatives the recurrence runs with W as a plain matrix.

    Args:
        W: An orthogonal matrix, or a multiple of one.
        readout: (Y, d or None) to return Y h_t + d instead of h_t. Y is absorbed into the basis, so if Y has few rows
            only dL/dW still costs N^2 per step. Default: None.

    The other arguments and errors are the same as for :func:`dense_rnn` with ``activation="identity"``.

    Shape:
        - Y: (K, N). d: (K,). Output: same as for dense_rnn, with K instead of N if there is a readout.

    Raises:
        NotOnGroupError: If W is not orthogonal to its dtype's precision, up to a factor.
    """
    tensors = (x, weight_ih, bias, h0, W, None, None, None)
    call = checked_call("rotations", tensors, batch_sizes, "identity", output, None, backend, Resets(reset, restart))
    call = settle_memory(call, memory, segment)
    if readout is not None:
        if not isinstance(readout, (tuple, list)) or len(readout) != 2:
            kind = type(readout).__name__
            raise ArgumentTypeError(f"Expected readout to be a pair (matrix, vector or None), but got {kind}.")
        check_shape("readout's matrix", readout[0], ("K", W.shape[0]))
        if readout[1] is not None:
            check_shape("readout's vector", readout[1], (readout[0].shape[0],))
        check_same("h0", h0, readout=readout[0], readout_vector=readout[1])
    return rotation.run(call, check_gain(gain, h0), readout).wanted


def scaled(call: Call, gain: float | Tensor) -> Call:
    """Return the call with the gain absorbed into W, or into the base of reflectors."""
    if not isinstance(gain, Tensor) and gain == 1:
        return call
    if call.options.kind == "dense":
        return call.changed(weight=gain * call.weight)
    h0, n = call.h0, call.h0.shape[1]
    c = (h0.new_ones(n) if call.c is None else call.c) * gain
    s = h0.new_zeros(n) if call.s is None else call.s * gain
    return call.changed(c=c, s=s)
