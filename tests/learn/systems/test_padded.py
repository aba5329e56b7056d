"""torch's cores on padded sequences: the outputs, the last states and the gradients of the packed form."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import pack_sequence

from orthornn import OrthogonalRNN
from orthornn.learn.systems import SequenceModel
from orthornn.learn.systems.padded import blocks, run_padded, runs_padded

CORES = (nn.LSTM, nn.GRU, nn.RNN)


def packed(lengths, **options):
    return pack_sequence([torch.randn(length, 3, dtype=torch.float64) for length in lengths], **options)


@pytest.mark.parametrize("lengths", [[3, 7, 1, 7, 5], [4], [6, 6, 6], [1, 9, 1], [1], [30, 1, 2, 2, 17, 17, 9, 1, 4]])
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


@pytest.mark.parametrize("sizes", [[1], [5, 5, 5], [64, *[1] * 5000], list(range(300, 0, -1)), [9, 7, 7, 2, 2, 1]])
def test_blocks_have_every_step_once_and_little_padding(sizes):
    found = blocks(sizes)
    assert [step for first, after in found for step in range(first, after)] == list(range(len(sizes)))
    for first, after in found:
        assert (after - first) * sizes[first] <= 1.25 * sum(sizes[first:after])
    assert len(found) <= 1 + math.log(sizes[0]) / math.log(1.25)


def test_it_is_taken_for_torchs_cores_of_one_direction():
    inputs = packed([7, 3, 1])
    assert all(runs_padded(kind(3, 5), inputs) for kind in CORES)
    assert not runs_padded(nn.LSTM(3, 5, bidirectional=True), inputs)
    assert not runs_padded(OrthogonalRNN(3, 5), inputs)
    assert not runs_padded(nn.LSTM(3, 5), torch.zeros(4, 2, 3))
    assert not runs_padded(nn.LSTM(3, 5, batch_first=True), inputs)
    assert not runs_padded(nn.RNN(3, 5, nonlinearity="relu"), inputs)
    with torch.no_grad():  # one step at a time is faster there but for the compiled LSTM
        assert [runs_padded(kind(3, 5), inputs) for kind in CORES] == [True, False, False]


def test_a_core_that_takes_the_batch_first_is_right_on_packed_sequences():
    """Where torch ignores batch_first."""
    core, inputs = nn.LSTM(3, 5, batch_first=True, dtype=torch.float64), packed((4, 3, 4, 2), enforce_sorted=False)
    model = SequenceModel(core, nn.Linear(5, 2, dtype=torch.float64))
    torch.testing.assert_close(model(inputs), model.head(core(inputs)[1][0][-1]))


def test_it_is_not_taken_while_a_graph_is_traced():
    """Which would hold the lengths of the example."""
    core, inputs, taken = nn.GRU(3, 5), packed([3, 2]), []

    def look(data):
        taken.append(runs_padded(core, inputs))
        return data * 2

    torch.jit.trace(look, torch.zeros(2), check_trace=False)
    assert taken == [False]
