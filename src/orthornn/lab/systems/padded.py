"""torch's recurrent cores on packed sequences, by way of padded ones.

On a CPU torch runs a PackedSequence one step at a time, and the backward pass of each step fills a tensor of the size of
the whole input: O(T^2). The compiled LSTM is for sequences of one length only. In one direction the outputs at the steps
of a sequence do not depend on what follows it, so its padded steps change nothing but the time.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

_MOST_PADDING = 4
"""Padded rows per row at most. The padded form of one long sequence among short ones needs much memory."""


def runs_padded(core: nn.Module, inputs: Tensor | PackedSequence) -> bool:
    """Return whether `run_padded` takes this core and these inputs, which is then faster."""
    if not isinstance(core, nn.RNNBase) or core.bidirectional or not isinstance(inputs, PackedSequence):
        return False
    if inputs.data.device.type != "cpu" or torch.compiler.is_compiling():
        return False
    steps, batch = inputs.batch_sizes.shape[0], int(inputs.batch_sizes[0])
    return steps * batch <= _MOST_PADDING * inputs.data.shape[0]


def run_padded(core: nn.RNNBase, inputs: PackedSequence) -> tuple[PackedSequence, Tensor]:
    """Return the outputs of a core of one direction, and those of the last step of each sequence, (B, N).

    Args:
        core: torch's RNN, LSTM or GRU, time-major.
        inputs: Rows (R, I). The outputs have their order; those of the last steps have the batch's own.
    """
    in_order = PackedSequence(inputs.data, inputs.batch_sizes)
    rows, lengths = pad_packed_sequence(in_order)
    outputs, _ = core(rows)
    last = outputs[lengths - 1, torch.arange(len(lengths))]
    if inputs.unsorted_indices is not None:
        last = last[inputs.unsorted_indices]
    data = pack_padded_sequence(outputs, lengths).data
    return PackedSequence(data, inputs.batch_sizes, inputs.sorted_indices, inputs.unsorted_indices), last
