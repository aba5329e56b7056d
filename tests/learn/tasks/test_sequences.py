from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.utils.rnn import PackedSequence, pack_sequence, pad_packed_sequence

from orthornn.learn.systems import MODELS, build
from orthornn.learn.tasks.sequences import Ragged, flat, mean_of_each


@given(lengths=st.lists(st.integers(1, 9), min_size=1, max_size=7), data=st.data())
@settings(max_examples=80, deadline=None)
def test_a_batch_is_the_sequences_chosen_in_torchs_own_packing(lengths, data):
    store = Ragged(np.array(lengths))
    values = torch.arange(sum(lengths))
    chosen = np.array(data.draw(st.lists(st.integers(0, len(lengths) - 1), min_size=1, max_size=6)))
    expected = [values[store.starts[i] : store.starts[i] + lengths[i]] for i in chosen]
    taken = store.steps(chosen).take(values)
    if len({len(one) for one in expected}) == 1:
        assert torch.equal(taken, torch.stack(expected, 1))
        return
    assert isinstance(taken, PackedSequence)
    reference = pack_sequence(expected, enforce_sorted=False)
    assert torch.equal(taken.batch_sizes, reference.batch_sizes)
    padded, sizes = pad_packed_sequence(taken)
    assert sizes.tolist() == [len(one) for one in expected]
    for column, one in enumerate(expected):
        assert torch.equal(padded[: len(one), column], one)


def test_later_rows_and_shorter_sequences():
    store = Ragged(np.array([3, 5]))
    steps = store.steps(np.array([0, 1]), shorter=2)
    values = torch.arange(8)
    assert steps.take(values).data.tolist() == [3, 0, 4, 5]
    assert steps.take(values, ahead=2).data.tolist() == [5, 2, 6, 7]


def test_the_mean_of_each_sequence():
    targets = pack_sequence([torch.tensor([1.0, 2.0, 3.0]), torch.tensor([10.0])])
    assert mean_of_each(targets.data, targets).tolist() == [2.0, 10.0]
    dense = torch.tensor([[1.0, 4.0], [3.0, 8.0]])
    assert mean_of_each(flat(dense.unsqueeze(-1), dense)[1], dense).tolist() == [2.0, 6.0]


@pytest.mark.sampled(35)
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("tokens", [False, True])
def test_every_model_reads_packed_sequences_as_it_reads_them_one_by_one(name, tokens):
    kinds = {}
    for output in ("all", "last"):
        torch.manual_seed(2)
        kinds[output] = build(name, 3, 2, hidden_size=5, output=output, tokens=tokens, dtype=torch.float64)
    sequences = [
        torch.randint(0, 3, (steps,)) if tokens else torch.rand(steps, 3, dtype=torch.float64) for steps in (2, 5, 1)
    ]
    packed = pack_sequence(sequences, enforce_sorted=False)
    alone = [kinds["all"](one.unsqueeze(1))[:, 0] for one in sequences]
    rows = PackedSequence(kinds["all"](packed), packed.batch_sizes, packed.sorted_indices, packed.unsorted_indices)
    padded, _ = pad_packed_sequence(rows)
    for column, one in enumerate(alone):
        # the same sums in another order, in float64
        torch.testing.assert_close(padded[: len(one), column], one, rtol=1e-11, atol=1e-13)
    last = torch.stack([one[-1] for one in alone])
    torch.testing.assert_close(kinds["last"](packed), last, rtol=1e-11, atol=1e-13)
