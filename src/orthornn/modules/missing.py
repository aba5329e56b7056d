"""Missing steps: at a step that was not observed, the state is held, h_t = h_{t-1}.

In every layer a held step changes nothing, so the states at observed steps are the same as for the sequence without the
missing steps. The observed steps are packed and run at full speed; held states are copies of the last observed one. The
result is exact, and missing steps cost nothing.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence

from .._checks import check_shape, check_tensor
from ..errors import ArgumentError, ArgumentTypeError, DeviceError, DTypeError, ShapeError
from .rnn import OrthogonalRNN
from .sequence_input import check_sequence


def hold_missing(rnn: OrthogonalRNN, x: Tensor, observed: Tensor, h0: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Return the states and h_n of a network over a sequence, holding the state at every step that was not observed.

    Args:
        rnn: A unidirectional network.
        x: Inputs or tokens. Missing steps are not read and may be NaN.
        observed: True at every observed step.
        h0: Same as in rnn.forward. Default: None.

    Shape:
        - x: (T, B, I) or (T, B). observed: bool (T, B). h0: (L, B, N).
        - Output: states (T, B, N), h_n (L, B, N).
        - With rnn.batch_first x, observed and the states begin with (B, T) instead of (T, B).
    """
    if not isinstance(rnn, OrthogonalRNN):
        raise ArgumentTypeError(f"Expected rnn to be an OrthogonalRNN, but got {type(rnn).__name__}.")
    check_tensor("x", x)
    check_tensor("observed", observed)
    if observed.device != x.device:
        raise DeviceError(f"Expected observed on {x.device}, as x is, but got {observed.device}. Move it with .to().")
    if x.dim() < 2 or not check_sequence(x, False, rnn._sizes()):
        raise ShapeError(f"Expected x of shape (T, B, I) or tokens (T, B), but got {tuple(x.shape)}.")
    if rnn.bidirectional:
        raise ArgumentError(
            "Expected a unidirectional network, since hold_missing() follows time forwards, but got a bidirectional "
            "one."
        )
    if observed.dtype != torch.bool:
        raise DTypeError(f"Expected observed to be bool, but got {observed.dtype}.")
    check_shape("observed", observed, x.shape[:2])
    if rnn.batch_first:
        x, observed = x.transpose(0, 1), observed.mT
    states, h_n = _held(rnn, x, observed, h0)
    return (states.transpose(0, 1) if rnn.batch_first else states), h_n


def _held(rnn: OrthogonalRNN, x: Tensor, observed: Tensor, h0: Tensor | None) -> tuple[Tensor, Tensor]:
    """Do the same as `hold_missing`, time first."""
    steps, batch = observed.shape
    start = rnn.initial_states(batch, h0)
    lengths = observed.sum(0)
    order = lengths.argsort(stable=True, descending=True)
    order = order[lengths[order] > 0]
    if not len(order):
        return start[-1].expand(steps, -1, -1), start
    longest = int(lengths.max())
    when = observed.to(torch.uint8).argsort(stable=True, dim=0, descending=True)[:longest, order]
    there = torch.arange(longest, device=x.device)[:, None] < lengths[order]
    rows = x[when[there], order.expand(longest, -1)[there]]
    sizes = there.sum(1)
    out, ends = rnn(PackedSequence(rows, sizes.cpu()), start[:, order])
    h_n = start.index_copy(1, order, ends)

    # row of the last observed step at or before (t, b) among the packed ones, then the initial states
    seen = observed.cumsum(0)
    place = torch.zeros(batch, dtype=torch.int64, device=x.device).index_copy_(
        0, order, torch.arange(len(order), device=x.device)
    )
    begins = sizes.cumsum(0) - sizes
    index = begins[(seen - 1).clamp_min(0)] + place
    initial = len(rows) + torch.arange(batch, device=x.device)
    return torch.cat([out.data, start[-1]])[torch.where(seen > 0, index, initial)], h_n
