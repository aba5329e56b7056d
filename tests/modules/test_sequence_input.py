"""The way in and out of a network, without the network: layouts, orders, dtypes, and what is refused."""

from __future__ import annotations

import pytest
import torch
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pack_sequence, pad_packed_sequence

from orthornn import OrthogonalBlocks, OrthogonalRNN, OrthogonalRNNCell, ReflectionRNN
from orthornn.errors import ArgumentError, DTypeError, OrthornnError, ShapeError
from orthornn.modules.sequence_input import NetworkSizes, SequenceInput, check_sequence

T, B, I, N, L = 5, 3, 2, 4, 2
LENGTHS = torch.tensor([2, 5, 3])


def sizes(dtype=torch.float32, is_complex=False, batch_first=False):
    return NetworkSizes(I, N, L, is_complex, batch_first, torch.zeros(N, I, dtype=dtype))


@pytest.mark.parametrize("batch_first", [False, True])
def test_masks_of_unsorted_packed_sequences_are_in_the_order_of_their_rows(batch_first):
    """Every row has a number of its own, and the mask of its own number."""
    number = torch.arange(T * B).view(T, B)
    reset = number % 3 == 1
    packed = pack_padded_sequence(number.unsqueeze(-1).float().expand(T, B, I), LENGTHS, enforce_sorted=False)
    given = SequenceInput.of(packed, sizes(batch_first=batch_first), reset.mT if batch_first else reset)
    assert torch.equal(given.layout.resets, packed.data[:, 0] % 3 == 1)
    alike = pack_padded_sequence(reset, LENGTHS, enforce_sorted=False)
    assert torch.equal(SequenceInput.of(packed, sizes(), alike).layout.resets, given.layout.resets)
    same_sizes_in_another_order = pack_padded_sequence(reset, LENGTHS.roll(1), enforce_sorted=False)
    other_sizes = pack_padded_sequence(reset, torch.tensor([4, 4, 2]), enforce_sorted=False)
    for other in (same_sizes_in_another_order, other_sizes, pack_padded_sequence(reset, LENGTHS.sort().values.flip(0))):
        with pytest.raises(ShapeError, match="packed with the lengths of the input"):
            SequenceInput.of(packed, sizes(), other)


def test_states_and_last_outputs_come_back_in_the_order_of_the_user():
    packed = pack_padded_sequence(torch.randn(T, B, I), LENGTHS, enforce_sorted=False)
    given, h0 = SequenceInput.of(packed, sizes()), torch.randn(L, B, N)
    states = given.initial_states(h0, None)
    order = LENGTHS.argsort(descending=True)
    assert all(torch.equal(state, h[order]) for state, h in zip(states, h0, strict=True))
    last, h_n = given.out(states[-1], torch.stack(states), only_last=True)
    assert torch.equal(h_n, h0)
    assert torch.equal(last, h0[-1])
    rows = torch.randn(int(LENGTHS.sum()), N)
    out, h_n = given.out(rows, torch.stack(states), only_last=False)
    assert torch.equal(h_n, h0)
    assert torch.equal(pad_packed_sequence(out)[1], LENGTHS)
    assert torch.equal(out.data, rows)


@pytest.mark.parametrize("learned", [None, torch.arange(L * N).view(L, N).float()], ids=["zeros", "learned"])
def test_a_step_restarts_where_the_mask_says(learned):
    x, h, mask = torch.randn(B, I), torch.randn(L, B, N), torch.tensor([True, False, True])
    own = torch.zeros(L, N) if learned is None else learned
    for restart in (None, torch.randn(L, B, N)):
        given = SequenceInput.of_step(x, sizes(), mask)
        found = torch.stack(given.begun(given.initial_states(h, learned, "h"), given.restarts(restart, learned)))
        first = own[:, None].expand(L, B, N) if restart is None else restart
        assert torch.equal(found, torch.where(mask[:, None], first, h))
    given = SequenceInput.of_step(x, sizes())
    found = torch.stack(given.begun(given.initial_states(None, learned), given.restarts(None, learned)))
    assert torch.equal(found, own[:, None].expand(L, B, N))


def test_a_state_to_restart_from_needs_resets():
    restart = torch.zeros(L, B, N)
    for given in (SequenceInput.of(torch.randn(T, B, I), sizes()), SequenceInput.of_step(torch.randn(B, I), sizes())):
        with pytest.raises(ArgumentError, match="got only restart"):
            given.restarts(restart, None)
        assert given.restarts(None, None) == (None,) * L


@pytest.mark.parametrize(
    ("dtype", "state"),
    [
        (torch.float64, torch.complex128),
        (torch.float32, torch.complex64),
        (torch.float16, torch.complex64),
        (torch.bfloat16, torch.complex64),
    ],
    ids=str,
)
def test_complex_states_are_as_wide_as_the_weights(dtype, state):
    wanted, learned = sizes(dtype, is_complex=True), torch.randn(L, N, 2, dtype=dtype)
    given = SequenceInput.of(torch.randn(T, B, I, dtype=dtype), wanted)
    for own in (None, learned):
        found = given.initial_states(None, own)
        assert {part.dtype for part in found} == {state}
        assert {part.shape for part in found} == {(B, N)}
    parts = torch.view_as_real(torch.stack(found))[:, 0]
    assert torch.equal(parts, learned.to(parts.dtype))


def test_dtypes_that_lose_nothing_are_taken():
    x = torch.zeros(T, B, I)
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        assert check_sequence(x.to(dtype), False, sizes())
    for dtype in (torch.float64, torch.complex64):
        with pytest.raises(DTypeError, match="Expected input"):
            check_sequence(x.to(dtype), False, sizes())
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert check_sequence(x.double(), False, sizes())
    for dtype in (torch.int8, torch.int16, torch.int32, torch.int64):
        assert check_sequence(torch.zeros(T, B, dtype=dtype), False, sizes())
    for dtype in (torch.bool, torch.uint8):
        with pytest.raises(DTypeError, match="signed integer dtype"):
            check_sequence(torch.zeros(T, B, dtype=dtype), False, sizes())


@pytest.mark.parametrize("batch_sizes", [torch.tensor([2.0, 1.0]), torch.tensor([[2, 1]]), torch.tensor([2, 1]).int()])
def test_sizes_of_steps_are_integers_that_a_kernel_reads(batch_sizes):
    packed = PackedSequence.__new__(PackedSequence, torch.randn(3, I), batch_sizes, None, None)
    with pytest.raises(ShapeError, match="batch_sizes to be an int64 tensor"):
        SequenceInput.of(packed, sizes())


MISTAKES = {
    "one-hot integers": (
        lambda net: net(torch.nn.functional.one_hot(torch.zeros(T, B, dtype=torch.long), I)),
        r"convert other numbers with \.to\(torch\.float32\)",
    ),
    "four dimensions": (lambda net: net(torch.zeros(T, B, 1, I)), rf"Pass \(T, B, {I}\)"),
    "one number per step": (lambda net: net(torch.zeros(T)), rf"one sequence \(T, {I}\)"),
    "other features": (lambda net: net(torch.zeros(T, B, I + 1)), rf"input_size={I + 1}\."),
    "packed integers": (
        lambda net: net(pack_sequence([torch.zeros(T, I, dtype=torch.long)])),
        r"Pack sequences of shape \(T,\)",
    ),
    "a list of sequences": (lambda net: net([torch.zeros(T, I), torch.zeros(T + 1, I)]), "pack_sequence"),
    "booleans": (lambda net: net(torch.zeros(T, B, I, dtype=torch.bool)), r"\.to\(torch\.float32\)"),
    "the state of an LSTM": (lambda net: net(torch.zeros(T, B, I), (torch.zeros(1, B, N),) * 2), "Pass h only"),
    "the state of a larger batch": (
        lambda net: net(torch.zeros(T, B, I), torch.zeros(1, B + 1, N)),
        f"The input has {B} sequences",
    ),
    "a state without layers": (lambda net: net(torch.zeros(T, B, I), torch.zeros(B, N)), "layers . directions, B"),
    "a batched state": (lambda net: net(torch.zeros(T, I), torch.zeros(1, 1, N)), "layers . directions, \\.\\.\\."),
}
"""What users of torch.nn.LSTM write, and what the error tells them to do."""


@pytest.mark.parametrize("network", [OrthogonalRNN, OrthogonalBlocks, ReflectionRNN], ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("mistake", MISTAKES)
def test_errors_say_what_to_do(network, mistake):
    sizes = (N, N) if network is OrthogonalBlocks else (N,)
    call, advice = MISTAKES[mistake]
    with pytest.raises(OrthornnError, match=rf"^Expected .*, but got .*{advice}"):
        call(network(I, *sizes))


def test_errors_tell_apart_batch_first_networks_and_cells():
    with pytest.raises(ShapeError, match=rf"Pass \(B, T, {I}\)"):
        OrthogonalRNN(I, N, batch_first=True)(torch.zeros(1, T, B, I))
    with pytest.raises(ShapeError, match="also with batch_first"):
        OrthogonalRNN(I, N, batch_first=True)(torch.zeros(B, T, I), torch.zeros(B, 1, N))
    with pytest.raises(ArgumentError, match="Pass h only"):
        OrthogonalRNNCell(I, N)(torch.zeros(B, I), (torch.zeros(B, N), torch.zeros(B, N)))
