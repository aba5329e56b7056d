"""torch's cores on padded sequences: the outputs, the last states and the gradients of the packed form."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import pack_sequence

from orthornn import OrthogonalRNN
from orthornn.lab.systems.padded import run_padded, runs_padded

CORES = (nn.LSTM, nn.GRU, nn.RNN)


def packed(lengths, **options):
    return pack_sequence([torch.randn(length, 3, dtype=torch.float64) for length in lengths], **options)


@pytest.mark.parametrize("lengths", [[3, 7, 1, 7, 5], [4], [6, 6, 6], [1, 9, 1]])
@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("kind", CORES)
def test_outputs_last_states_and_gradients_are_those_of_the_packed_form(kind, layers, lengths):
    torch.manual_seed(0)
    core, inputs = kind(3, 5, layers, dtype=torch.float64), packed(lengths, enforce_sorted=False)
    outputs, last = run_padded(core, inputs)
    expected, final = core(inputs)
    states = final[0] if isinstance(final, tuple) else final
    torch.testing.assert_close(outputs.data, expected.data)
    torch.testing.assert_close(last, states[-1])
    for here, there in zip(outputs[1:], expected[1:]):
        assert torch.equal(here, there)
    weights = torch.randn_like(outputs.data)
    ours = torch.autograd.grad((outputs.data * weights).sum() + last.square().sum(), list(core.parameters()))
    theirs = torch.autograd.grad((expected.data * weights).sum() + states[-1].square().sum(), list(core.parameters()))
    for here, there in zip(ours, theirs):
        torch.testing.assert_close(here, there)


def test_sequences_that_are_sorted_already():
    core, inputs = nn.GRU(3, 5, dtype=torch.float64), packed([5, 3, 3, 1])
    outputs, last = run_padded(core, inputs)
    torch.testing.assert_close(outputs.data, core(inputs)[0].data)
    torch.testing.assert_close(last, core(inputs)[1][-1])


def test_it_is_taken_for_torchs_cores_of_one_direction_on_sequences_that_are_not_too_unequal():
    inputs = packed([7, 3, 1])
    assert all(runs_padded(kind(3, 5), inputs) for kind in CORES)
    assert not runs_padded(nn.LSTM(3, 5, bidirectional=True), inputs)
    assert not runs_padded(OrthogonalRNN(3, 5), inputs)
    assert not runs_padded(nn.LSTM(3, 5), torch.zeros(4, 2, 3))
    assert not runs_padded(nn.LSTM(3, 5), packed([100, *[1] * 50]))
