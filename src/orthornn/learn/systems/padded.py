"""torch's recurrent cores on packed sequences, by way of padded ones.

On a CPU torch runs a PackedSequence one step at a time, and the backward pass of each step fills a tensor of the size
of the whole input: O(T^2). The compiled LSTM is for sequences of one length only. In one direction the outputs at the
steps of a sequence do not depend on what follows it, so its padded steps change nothing but the time.

The longest sequences come first in a packed batch, so its rows form a staircase. It is cut into blocks of steps, each
padded by a quarter of its rows at most, and the state of the sequences that continue is carried from one to the next:

    steps   0 1 2 | 3 4 5 6      A block ends before its padding becomes too large. Each then
            x x x | x x x x      begins with fewer than four fifths of the sequences of the one before, so that there
            x x x | x x x .      are O(log B) of them.
            x x . |
            x x . |
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

_MOST_PADDING = 1.25
"""Rows of a padded block per row of its sequences, at most."""


def runs_padded(core: nn.Module, inputs: Tensor | PackedSequence) -> bool:
    """Return whether `run_padded` takes these, and is faster: on the CPU for a gradient, and for the compiled LSTM.

    Not for a relu, whose state can overflow in the padded steps: their gradient is then 0 times infinity.
    """
    if not isinstance(core, nn.RNNBase) or not isinstance(inputs, PackedSequence):
        return False
    if core.bidirectional or core.batch_first or core.mode == "RNN_RELU":
        return False
    if not torch.is_grad_enabled() and core.mode != "LSTM":
        return False
    return inputs.data.device.type == "cpu" and not torch.compiler.is_compiling() and not torch.jit.is_tracing()


def run_padded(core: nn.RNNBase, inputs: PackedSequence) -> tuple[PackedSequence, Tensor]:
    """Return the outputs of a unidirectional core, and the outputs of the last step of each sequence, (B, N).

    Args:
        core: torch's RNN, LSTM or GRU, time-major.
        inputs: Rows (R, I). The outputs have the same order; the outputs of the last steps have the order of the batch.
    """
    sizes = inputs.batch_sizes
    ends = sizes.cumsum(0).tolist()
    found, state = [], None
    for first, after in blocks(sizes.tolist()):
        rows = inputs.data[ends[first] - int(sizes[first]) : ends[after - 1]]
        steps, lengths = pad_packed_sequence(PackedSequence(rows, sizes[first:after]))
        outputs, state = core(steps, _first(state, int(sizes[first])))
        found.append(pack_padded_sequence(outputs, lengths).data)
    data = torch.cat(found)
    place = torch.arange(int(sizes[0]))
    lengths = len(sizes) - torch.searchsorted(sizes.flip(0), place, right=True)
    last = data[(sizes.cumsum(0) - sizes)[lengths - 1] + place]
    if inputs.unsorted_indices is not None:
        last = last[inputs.unsorted_indices]
    return PackedSequence(data, sizes, inputs.sorted_indices, inputs.unsorted_indices), last


def blocks(sizes: list[int]) -> list[tuple[int, int]]:
    """Return the blocks (first step, step after the last) of a batch with so many sequences at each step."""
    found, first, rows = [], 0, 0
    for step, size in enumerate(sizes):
        if (step + 1 - first) * sizes[first] > _MOST_PADDING * (rows + size):
            found.append((first, step))
            first, rows = step, 0
        rows += size
    return [*found, (first, len(sizes))]


def _first(state: Tensor | tuple[Tensor, Tensor] | None, count: int) -> Tensor | tuple[Tensor, Tensor] | None:
    """Return the state of the sequences that continue, which are the first ones."""
    if state is None:
        return None
    if isinstance(state, Tensor):
        return state[:, :count].contiguous()
    return state[0][:, :count].contiguous(), state[1][:, :count].contiguous()
