"""The recurrences as functions: check the arguments, build a `Call`, run it.

    a_t = gain * W h_{t-1} + V x_t + b,    h_t = phi(a_t),    W a matrix, (I - U T^-1 U') B, or rotations.

The gain is absorbed into W, or into B's (c, s), before the recurrence, which therefore need not know it.
"""

from __future__ import annotations

from typing import Literal

from torch import Tensor

from .._checks import check_same, check_shape
from ..activations import Activation, Name
from ..compact_wy import Base
from ..errors import ArgumentTypeError
from . import rotation
from .autograd import run
from .call import Call, States
from .checkpointing import Mode
from .validation import Resets, check_gain, checked_call, settle_memory

Output = Literal["all", "last"]


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
    """The states of h_t = phi(gain W h_{t-1} + V x_t + b) over a whole sequence.

    Parameters
    ----------
    x: projected inputs (T, B, N); or raw inputs (T, B, I), or tokens (T, B) of an integer dtype, with `weight_ih`.
        With `batch_sizes` flat rows (R, N), (R, I) or (R,), as in a PackedSequence.
    h0: (B, N), float32 or float64; every other real tensor has its dtype and device. Only x and weight_ih may both be
        bfloat16 instead: then states are stored and returned in bfloat16, and so is what is kept for the backward pass;
        the state that goes from step to step, the transition and all sums keep the dtype of h0.
    W: (N, N), any matrix.
    activation: a name of orthornn.activations.ACTIVATIONS, or an Activation.
    parameter: the activation's trainable vector, if it has one: (N,), or (N//2,) for pairs.
    weight_ih: V (N, I). bias: b (N,).
    gain: a number, or a tensor with one element to train.
    batch_sizes: rows of each step, int64 (T,) on the CPU, never growing; None means B rows in each step.
    output: "all" for every state (T, B, N), or (R, N); "last" for each sequence's last state (B, N), whose gradient
        then takes no T*B*N memory.
    clip: in back-propagation each entry of dL/da_t is clipped to [-clip, clip] (Vorontsov et al., 2017, released code).
    backend: "auto" or the name of a backend.
    memory: "store" stores what the backward pass needs, T*B*N numbers or more. "checkpoint" stores the state before every
        segment and recomputes the others.
    segment: The number of steps per segment. Default: None, the number with the least peak memory.
    reset: bool (T, B), or flat (R,) with `batch_sizes`: true where a sequence restarts, that is, where the state before
        the step is that of `restart`, and no gradient goes further back. Default: None, nowhere.
    restart: (B, N), the state from which sequences restart. Default: None, h0.

    Raises
    ------
    ShapeError, DTypeError, DeviceError, ArgumentError for arguments that do not fit; BackendError if the backend asked
    for cannot run; TransformError for torch.func transforms together with `clip`.
    """
    tensors = (x, weight_ih, bias, h0, W, None, None, parameter)
    call = checked_call("dense", tensors, batch_sizes, activation, output, clip, backend, Resets(reset, restart))
    return _returned(run(scaled(settle_memory(call, memory, segment), check_gain(gain, h0))))


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
    """The states of h_t = phi(gain W h_{t-1} + V x_t + b) with W = (I - U T^-1 U') B (Mhammedi et al., 2017).

    Parameters
    ----------
    U: reflectors as the columns of a matrix (N, M), M <= N; or packed (NM - M(M-1)/2,), see orthornn.compact_wy.
    B: None for the identity, or (c, s), each (N,).

    Everything else is as in `dense_rnn`.
    """
    if B is not None and not (isinstance(B, (tuple, list)) and len(B) == 2):
        raise ArgumentTypeError(f"Expected B to be None or a pair of tensors (c, s), but got {type(B).__name__}.")
    c, s = (None, None) if B is None else B
    tensors = (x, weight_ih, bias, h0, U, c, s, parameter)
    call = checked_call("compact_wy", tensors, batch_sizes, activation, output, clip, backend, Resets(reset, restart))
    return _returned(run(scaled(settle_memory(call, memory, segment), check_gain(gain, h0))))


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
    """What dense_rnn with the activation "identity" returns, for an orthogonal W or a multiple of one.

    The decomposition of W takes about 30 N^3 multiply-adds; it is kept for the latest matrices, compared by value. There
    is no `clip`: clipping single entries is not linear, so it has no form in another basis.

    readout: (Y (K, N), d (K,) or None): Y h_t + d is returned in place of h_t, (T, B, K), (R, K) or (B, K). Y is absorbed
    into Q, so that with K of a few numbers no N^2 is left but for dL/dW.

    The other arguments are those of dense_rnn. NotOnGroupError for a W that is not orthogonal to its dtype's precision,
    up to a factor. Under torch.func transforms and for higher derivatives dense_rnn's plain form is differentiated.
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
    return _returned(rotation.run(call, check_gain(gain, h0), readout))


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


def _returned(states: States) -> Tensor:
    out = states.last if states.all is None else states.all
    assert out is not None
    return out
