"""Checkpointing: the outputs and gradients of a call that stores everything, from fewer numbers, at awkward sizes."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch

from orthornn import OrthogonalRNN, ReflectionRNN, activations
from orthornn.errors import ArgumentError
from orthornn.kernels import checkpointing, dense_rnn
from orthornn.kernels.backends import BACKENDS as ALL_BACKENDS
from orthornn.kernels.backends.cpp import extension
from orthornn.kernels.call import Call
from orthornn.kernels.reflections.call import ReflectionCall
from support.against_oracle import BACKENDS, DEVICE, DTYPES, check, close, refused
from support.cases import Case, operator_arguments
from support.tolerances import tolerance

KINDS = ["dense", "packed", "matrix"]
EVERY_FORM = [(packed, output) for packed in (False, True) for output in ("all", "last")]


def run(case: Case, dtype: torch.dtype = torch.float32, backend: str = "auto") -> list[torch.Tensor]:
    """The output, and the gradients of its sum of squares."""
    tensors = case.to(dtype, DEVICE)
    out = case.call(tensors, backend)
    leaves = case.differentiable(tensors)
    return [out, *torch.autograd.grad(out.square().sum(), leaves, allow_unused=True, materialize_grads=True)]


@pytest.mark.sampled(21)
@pytest.mark.parametrize("activation", activations.ACTIVATIONS)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("backend", BACKENDS)
def test_checkpoint_agrees_with_the_oracle(backend, kind, activation):
    for k, (packed, output) in enumerate(EVERY_FORM):
        case = Case(kind, activation, n=10, m=3, packed=packed, output=output, inputs=(None, 0, 1, 9)[k])
        check(replace(case, memory="checkpoint", segment=None if k % 2 else 3), backend, torch.float64)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("backend", BACKENDS)
def test_rotations_agree_with_the_oracle(backend, dtype):
    for k, (packed, output) in enumerate(EVERY_FORM):
        case = Case("rotations", "identity", n=9 + k % 2, packed=packed, output=output, inputs=(None, 0, 1, 9)[k])
        check(replace(case, memory="checkpoint", segment=None if k % 2 else 3), backend, dtype)


@pytest.mark.parametrize("backend", BACKENDS)
def test_segments_of_any_length(backend):
    for segment in (1, 2, 5, 12, 13, 14, 100):
        for packed in (False, True):
            case = Case(
                "packed", "oplu", n=9, m=4, steps=13, batch=5, packed=packed, segment=segment, memory="checkpoint"
            )
            check(case, backend, torch.float64)


@pytest.mark.parametrize("backend", BACKENDS)
def test_clip(backend):
    case = Case("dense", "identity", n=6, steps=9, batch=2, clip=0.5).draw()
    dtype = torch.float32 if refused(case, backend, torch.float64) else torch.float64
    want, clipped = run(case, dtype, backend), run(replace(case, clip=None), dtype, backend)
    assert not torch.allclose(want[1], clipped[1])
    for found, expected in zip(run(replace(case, memory="checkpoint", segment=2), dtype, backend), want):
        close(found, expected.detach().double().cpu(), tolerance(dtype, 9 * 6))


def recomputed(case: Case, backend: str, monkeypatch) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """States of each segment in the forward pass of a call, and those recomputed in its backward pass."""
    found: list[torch.Tensor] = []
    right = ALL_BACKENDS[backend].forward

    def watched(call, save):
        states, residuals = right(call, save)
        # With output="last" the forward pass has no other states.
        found.append(states.last if case.output == "last" else states.all.clone())
        return states, residuals

    with monkeypatch.context() as patch:
        patch.setattr(ALL_BACKENDS[backend], "forward", watched)
        run(replace(case, memory="checkpoint"), backend=backend)
    count = len(found) // 2
    assert len(found) == 2 * count >= 4
    return list(zip(found[:count], reversed(found[count:])))


# At 3000 units a column of U exceeds the first cache level, so the compiled kernels read U in groups, to and fro.
SHAPES = [
    Case("dense", "modrelu", n=40, steps=12, batch=2),
    Case("dense", "tanh", n=33, steps=13, batch=5, inputs=9, packed=True, segment=3),
    Case("packed", "modrelu", n=3000, m=7, steps=12, batch=2, output="last"),
    Case("packed", "oplu", n=50, m=9, steps=13, batch=7, inputs=9, packed=True, segment=5),
    Case("matrix", "modrelu", n=40, m=7, steps=12, batch=2),
    Case("rotations", "identity", n=11, steps=13, batch=3, inputs=9, segment=5),
]


@pytest.mark.parametrize("case", SHAPES, ids=lambda case: f"{case.kind}-{case.n}")
@pytest.mark.skipif(extension.missing() is not None, reason=str(extension.missing()))
def test_the_compiled_kernels_recompute_the_bits_of_the_same_call(isa, case, monkeypatch):
    for first, again in recomputed(case.draw(), "cpp", monkeypatch):
        assert torch.equal(first, again)


@pytest.mark.parametrize("case", SHAPES, ids=lambda case: f"{case.kind}-{case.n}")
@pytest.mark.parametrize("backend", BACKENDS)
def test_recomputed_states_agree_to_rounding(backend, case, monkeypatch):
    """Only to rounding: BLAS rounds by the number of rows and by addresses, both of which a segment changes."""
    if refused(case, backend, torch.float32):
        pytest.skip("this backend does not run such a call")
    bound = tolerance(torch.float32, case.steps * case.n)
    case = case.draw()
    for first, again in recomputed(case, backend, monkeypatch):
        close(again, first.double().cpu(), bound)
    stored = run(replace(case, segment=None), backend=backend)
    for found, expected in zip(run(replace(case, memory="checkpoint"), backend=backend), stored):
        close(found, expected.detach().double().cpu(), bound)


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_strides_of_the_matrix_do_not_matter(backend):
    """Bits: the same sizes of every product, on a W stored by columns and by rows."""
    case = Case("dense", "tanh", n=40, steps=12, batch=2).draw()
    tensors = case.to(torch.float32, DEVICE)
    by_columns = tensors["weight"].detach().mT.contiguous().mT
    assert by_columns.stride() == (1, case.n)
    results = []
    for W in (by_columns, by_columns.contiguous()):
        leaves = {**tensors, "weight": W.requires_grad_()}
        out = case.call(leaves, backend)
        results.append([out, *torch.autograd.grad(out.square().sum(), case.differentiable(leaves))])
    assert all(torch.equal(a, b) for a, b in zip(*results))


@pytest.mark.parametrize("activation", ["identity", "modrelu", "oplu", "complex_modrelu"])
def test_numbers_kept(activation):
    """Of S segments the states before them: not a number per unit and step."""
    T, B, n = 500, 3, 16
    case = Case(
        "packed", activation, n=n, m=4, steps=T, batch=B, inputs=1, output="last", grows=True, memory="checkpoint"
    )
    case = case.draw()
    saved: dict[int, int] = {}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        saved[tensor.data_ptr()] = tensor.numel() * tensor.element_size()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        tensors = case.to(torch.float32, DEVICE)
        case.call(tensors)
    own = sum(t.numel() * t.element_size() for t in tensors.values())
    apart = checkpointing.segment_length(T, n, 4)
    most = 4 * B * n * (math.ceil(T / apart) + 2)
    assert sum(saved.values()) <= most + own
    assert most < 4 * T * B * n / 8


def test_the_segment_of_the_smallest_peak():
    """Against all lengths, by counting; at its best a peak is flat."""
    for T, n, m in ((100, 5, 0), (10_000, 128, 0), (10_000, 64, 32), (3, 9, 9), (1, 1, 1)):

        def peak(k, T=T, n=n, m=m):
            return T / k * n + k * (3 * n + 2 * m)

        best = min(range(1, T + 2), key=peak)
        assert peak(checkpointing.segment_length(T, n, m)) <= 1.02 * peak(best) + 2 * (3 * n + 2 * m)
    segment = checkpointing.segment_length(10**6, 128, 0)
    assert checkpointing.peak_numbers(segment, 10**6, 1, 128, 0) < 500_000
    assert checkpointing.peak_numbers(None, 10**6, 1, 128, 0) == 10**6 * 128


@pytest.mark.parametrize("kind", ["dense", "packed"])
def test_no_steps_and_no_sequences(kind):
    for steps, batch in ((0, 3), (4, 0), (0, 0)):
        for output in ("all", "last"):
            sizes = Case(kind, "identity", n=6, m=2, steps=steps, batch=batch, output=output, grows=True)
            expected = run(sizes.draw(), torch.float64)
            for got, want in zip(run(replace(sizes, memory="checkpoint").draw(), torch.float64), expected):
                assert torch.equal(got, want)


def test_arguments():
    x, h0, W = torch.zeros(3, 2, 4), torch.zeros(2, 4), torch.eye(4)
    with pytest.raises(ArgumentError, match="Did you mean 'checkpoint'"):
        dense_rnn(x, h0, W, "tanh", memory="chekpoint")
    with pytest.raises(ArgumentError, match="segment to be an integer of at least 1, but got 0"):
        dense_rnn(x, h0, W, "tanh", memory="checkpoint", segment=0)
    with pytest.raises(ArgumentError, match="segment only with memory='checkpoint'"):
        dense_rnn(x, h0, W, "tanh", segment=3)


def test_compile_and_opcheck():
    for kind, packed, output in (("dense", False, "last"), ("packed", True, "all")):
        case = Case(
            kind, "modrelu", n=6, m=2, steps=8, batch=2, packed=packed, output=output, memory="checkpoint", segment=3
        )
        case = case.draw()
        torch._dynamo.reset()
        results = []
        for function in (
            replace(case, memory="store", segment=None).call,
            torch.compile(case.call, fullgraph=True, backend="aot_eager"),
        ):
            tensors = case.to(torch.float64)
            out = function(tensors)
            results.append([out, *torch.autograd.grad(out.square().sum(), case.differentiable(tensors))])
        for eager, compiled in zip(*results):
            torch.testing.assert_close(compiled, eager, rtol=0, atol=tolerance(torch.float64, 100))
        torch.library.opcheck(torch.ops.orthornn.recurrence.default, operator_arguments(case))


def test_higher_derivatives_and_forward_mode():
    case = Case("dense", "tanh", n=4, steps=5, memory="checkpoint", segment=2).draw()
    tensors = case.to(torch.float64)
    assert torch.autograd.gradgradcheck(
        lambda x, weight: case.call({**tensors, "x": x, "weight": weight}), (tensors["x"], tensors["weight"])
    )
    plain = {name: t.detach() for name, t in tensors.items()}
    loss = lambda W: case.call({**plain, "weight": W}).square().sum()  # noqa: E731
    torch.testing.assert_close(torch.func.jacfwd(loss)(plain["weight"]), torch.func.grad(loss)(plain["weight"]))


@pytest.mark.slow
@pytest.mark.parametrize("activation", ["identity", "modrelu"])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_million_steps(activation, dtype):
    """Against everything stored, on the same backend: as far off as rounding explains."""
    T, n, m = 10**6, 32, 8
    for kind in ("dense", "packed"):
        case = Case(kind, activation, n=n, m=m, steps=T, batch=1, inputs=1, output="last", grows=True).draw()
        case.tensors["x"] = case.tensors["x"] / math.sqrt(T)  # states neither vanish nor explode
        if "parameter" in case.tensors:
            case.tensors["parameter"] = case.tensors["parameter"] / T
        stored = run(case, dtype)
        for got, want in zip(run(replace(case, memory="checkpoint"), dtype), stored):
            close(got, want.detach().double(), 8 * torch.finfo(dtype).eps * math.sqrt(T * n))


def test_segments_are_even_and_no_longer_than_the_sequence_counts():
    """The compiled compact form reads U to and fro: the bits of a step depend on its parity within the segment."""
    for T in (1, 2, 3, 10, 77, 1000, 12345):
        for n, m in ((1, 0), (5, 3), (128, 0), (128, 128)):
            length = checkpointing.segment_length(T, n, m)
            assert length % 2 == 0
            assert abs(length - max(2, math.sqrt(T * n / (3 * n + 2 * m)))) <= 1
    assert checkpointing.peak_numbers(100, 10, 3, 5, 2) == checkpointing.peak_numbers(10, 10, 3, 5, 2)


def test_the_last_state_of_no_steps_is_a_copy():
    h0 = torch.ones(2, 4)
    last = dense_rnn(torch.zeros(0, 2, 4), h0, torch.eye(4), "tanh", output="last", memory="checkpoint")
    assert torch.equal(last, h0)
    last.add_(1)
    assert torch.equal(h0, torch.ones(2, 4))


@pytest.mark.parametrize("kind", [OrthogonalRNN, ReflectionRNN])
def test_segments_of_a_transposed_input_are_parts_of_one_copy(kind, monkeypatch):
    """A batch-first network would else copy its whole input once for each segment."""
    storages = []
    for call in (Call, ReflectionCall):

        def part(self, *given, part=call.part):
            piece = part(self, *given)
            storages.append({t.untyped_storage().data_ptr() for t in piece.tensors()[:1]})
            return piece

        monkeypatch.setattr(call, "part", part)
    net = kind(2, 6, batch_first=True, memory="checkpoint", segment=4)
    x = torch.randn(3, 20, 2)
    net(x)[0].sum().backward()
    assert len(storages) == 10
    assert len(set.union(*storages[:5])) == len(set.union(*storages[5:])) == 1
