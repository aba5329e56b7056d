"""Memory modes: the outputs and gradients of a call that keeps everything, from fewer numbers, at awkward sizes."""

from __future__ import annotations

import math
import warnings
from dataclasses import replace

import pytest
import torch
from cases import Case
from test_conformance import BACKENDS, DEVICE, DTYPES, check, close, poisoned_memory
from test_native import isa

from orthornn import activations, compact_wy
from orthornn.errors import ArgumentError, OrthornnWarning
from orthornn.kernels import dense_rnn, functional, linear, memory, native, segments
from orthornn.kernels.sequence import Steps
from tolerances import tolerance

__all__ = ["isa", "poisoned_memory"]
KINDS = ["dense", "packed", "matrix"]
UNDOABLE = ["identity", "modrelu", "complex_modrelu", "oplu"]
EVERY_FORM = [(packed, output) for packed in (False, True) for output in ("all", "last")]


def run(case: Case, dtype: torch.dtype = torch.float32, backend: str = "auto") -> list[torch.Tensor]:
    """The output, and the gradients of its sum of squares."""
    tensors = case.to(dtype, DEVICE)
    out = case.call(tensors, backend)
    leaves = case.differentiable(tensors)
    return [out, *torch.autograd.grad(out.square().sum(), leaves, allow_unused=True, materialize_grads=True)]


@pytest.mark.parametrize("activation", activations.ACTIVATIONS)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("backend", BACKENDS)
def test_checkpoint_agrees_with_the_oracle(backend, kind, activation):
    for k, (packed, output) in enumerate(EVERY_FORM):
        case = Case(kind, activation, n=10, m=3, packed=packed, output=output, inputs=(None, 0, 1, 9)[k])
        check(replace(case, memory="checkpoint", segment=None if k % 2 else 3), backend, torch.float64)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("activation", UNDOABLE)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("backend", BACKENDS)
def test_reverse_agrees_with_the_oracle(backend, kind, activation, dtype):
    for k, (packed, output) in enumerate(EVERY_FORM):
        case = Case(kind, activation, n=10, m=3, packed=packed, output=output, inputs=(None, 0, 1, 9)[k], grows=True)
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # neither refused nor found inaccurate
            check(replace(case, memory="reverse", segment=None if k % 2 else 3), backend, dtype)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("mode", ["checkpoint", "reverse"])
@pytest.mark.parametrize("backend", BACKENDS)
def test_rotations_agree_with_the_oracle(backend, mode, dtype):
    for k, (packed, output) in enumerate(EVERY_FORM):
        case = Case("rotations", "identity", n=9 + k % 2, packed=packed, output=output, inputs=(None, 0, 1, 9)[k])
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            check(replace(case, memory=mode, segment=None if k % 2 else 3), backend, dtype)


@pytest.mark.parametrize("mode", ["checkpoint", "reverse"])
@pytest.mark.parametrize("backend", BACKENDS)
def test_segments_of_any_length(backend, mode):
    for segment in (1, 2, 5, 12, 13, 14, 100):
        for packed in (False, True):
            case = Case("packed", "oplu", n=9, m=4, steps=13, batch=5, packed=packed, segment=segment, memory=mode)
            check(case, backend, torch.float64)


@pytest.mark.parametrize("gain", [0.9, 1.05])
@pytest.mark.parametrize("kind", ["dense", "packed"])
def test_a_gain_is_not_reversed(kind, gain):
    case = Case(kind, "identity", n=9, m=4, steps=31, base=False, gain=gain, memory="reverse", segment=2)
    with pytest.warns(OrthornnWarning, match="identity.*a gain"):
        check(case, "auto", torch.float64)


@pytest.mark.parametrize(("activation", "reason"), [("tanh", "keep the norm"), ("modrelu", "negative b")])
def test_an_activation_that_loses_states_is_not_reversed(activation, reason):
    case = Case("dense", activation, n=9, memory="reverse", segment=2)
    with pytest.warns(OrthornnWarning, match=reason):
        check(case, "auto", torch.float64)


@pytest.mark.parametrize("mode", ["checkpoint", "reverse"])
@pytest.mark.parametrize("backend", BACKENDS)
def test_clip(backend, mode):
    case = Case("dense", "identity", n=6, steps=9, batch=2, clip=0.5).draw()
    want, clipped = run(case, torch.float64, backend), run(replace(case, clip=None), torch.float64, backend)
    assert not torch.allclose(want[1], clipped[1])
    for found, expected in zip(run(replace(case, memory=mode, segment=2), torch.float64, backend), want):
        close(found, expected.detach().cpu(), tolerance(torch.float64, 9 * 6))


def recomputed(case: Case, backend: str, monkeypatch) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """States of each segment in the forward pass of a call, and those recomputed in its backward pass."""
    found: list[torch.Tensor] = []

    def watched(recurrence):
        def forward(sequence):
            states, saved = recurrence.forward(sequence)
            found.append(states.detach().clone())
            return states, saved

        return recurrence._replace(forward=forward)

    with monkeypatch.context() as patch:
        patch.setattr(functional, "_PASSED", {})  # calls seen before hold the recurrence that is not watched
        for module, name in ((functional, "DENSE"), (functional, "COMPACT_WY"), (linear, "ROTATIONS")):
            patch.setattr(module, name, watched(getattr(module, name)))
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
@pytest.mark.skipif(native.missing() is not None, reason=str(native.missing()))
def test_the_compiled_kernels_recompute_the_bits_of_the_same_call(isa, case, monkeypatch):
    for first, again in recomputed(case.draw(), "cpp", monkeypatch):
        assert torch.equal(first, again)


@pytest.mark.parametrize("case", SHAPES, ids=lambda case: f"{case.kind}-{case.n}")
@pytest.mark.parametrize("backend", BACKENDS)
def test_recomputed_states_agree_to_rounding(backend, case, monkeypatch):
    """Only to rounding: BLAS rounds by the number of rows and by addresses, both of which a segment changes."""
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


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("activation", UNDOABLE)
@pytest.mark.parametrize("kind", ["dense", "packed"])
@pytest.mark.skipif(native.missing() is not None, reason=str(native.missing()))
def test_native_reversal_gives_back_what_forward_kept(isa, kind, activation, packed):
    for n, m, batch, inputs in ((6, 3, 1, 2), (50, 9, 7, None), (34, 34, 4, 0), (3, 1, 2, 1), (1, 1, 1, 1)):
        if activation == "complex_modrelu" and n % 2:
            continue
        case = Case(kind, activation, n=n, m=m, steps=9, batch=batch, packed=packed, inputs=inputs, grows=True).draw()
        t = case.to(torch.float64)
        phi = activations.get(activation)
        base = (t["c"].detach(), t["s"].detach()) if "c" in t else None
        if kind == "dense":
            W = native.Transition(W=t["weight"])
        else:
            W = native.Transition(U=(factors := native.factors(t["weight"], n, m))[0], S=factors[1], base=base)
        x = t["x"] if packed else t["x"].flatten(0, 1)
        steps = Steps(9, batch, t["batch_sizes"].tolist() if packed else None)
        arguments = (x, t.get("weight_ih"), t["bias"])
        states, kept, h_tilde = native.forward(*arguments, t["h0"], W, phi, t.get("parameter"), steps)
        order = phi.order(kept) if activation == "oplu" else None
        last = steps.last(states, t["h0"])
        found = native.reverse(*arguments, last, W, phi, t.get("parameter"), order, steps)
        for got, want in zip(found, (states, kept, h_tilde, t["h0"])):
            assert (got is None) == (want is None)
            if got is not None:
                close(got, want.detach(), tolerance(torch.float64, 9 * n))


@pytest.mark.parametrize("mode", ["checkpoint", "reverse"])
@pytest.mark.parametrize("activation", ["identity", "modrelu", "oplu", "complex_modrelu"])
def test_numbers_kept(mode, activation):
    """Of S segments the states before them, and of a reversed oplu a bit a pair: not a number a unit and step."""
    T, B, n = 500, 3, 16
    case = Case("packed", activation, n=n, m=4, steps=T, batch=B, inputs=1, output="last", grows=True, memory=mode)
    case = case.draw()
    kept: dict[int, int] = {}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        kept[tensor.data_ptr()] = tensor.numel() * tensor.element_size()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        tensors = case.to(torch.float32, DEVICE)
        case.call(tensors)
    own = sum(t.numel() * t.element_size() for t in tensors.values())
    apart = memory.make(mode, None, T, n, 4).segment
    most = 4 * B * n * (math.ceil(T / apart) + 1) + (T * B if activation == "oplu" and mode == "reverse" else 0)
    assert sum(kept.values()) <= most + own
    assert most < 4 * T * B * n / 8


def test_the_segment_of_the_smallest_peak():
    """Against all lengths, by counting; at its best a peak is flat."""
    for T, n, m in ((100, 5, 0), (10_000, 128, 0), (10_000, 64, 32), (3, 9, 9), (1, 1, 1)):

        def peak(k, T=T, n=n, m=m):
            return T / k * n + k * (3 * n + 2 * m)

        best = min(range(1, T + 2), key=peak)
        assert peak(memory.make("checkpoint", None, T, n, m).segment) <= 1.02 * peak(best) + 2 * (3 * n + 2 * m)
    assert memory.make("reverse", None, 10**8, 8, 0).segment == memory.LONGEST
    assert memory.numbers(memory.make("checkpoint", None, 10**6, 128, 0), 10**6, 1, 128, 0) < 500_000


def test_what_arrives_too_far_off_is_made_forwards(monkeypatch):
    case = Case("packed", "modrelu", n=9, m=4, steps=40, grows=True, memory="reverse", segment=3)
    monkeypatch.setattr(segments, "reverse_bound", lambda *sizes: 0.0)
    with pytest.warns(OrthornnWarning, match="made some states again forwards"):
        check(case, "auto", torch.float64)


def test_a_reversal_that_goes_wrong_is_found(monkeypatch):
    """One flipped bit of oplu's order."""
    packed_bits = segments._packed_bits
    monkeypatch.setattr(segments, "_packed_bits", lambda order: packed_bits(order) ^ 4)
    with pytest.warns(OrthornnWarning, match="made some states again forwards"):
        check(Case("dense", "oplu", n=8, steps=11, memory="reverse"), "auto", torch.float64)


def test_states_that_are_not_finite_are_made_forwards():
    case = Case("dense", "identity", n=5, steps=8, memory="reverse", segment=2).draw()
    case.tensors["x"][3, 1, 0] = math.inf
    with pytest.warns(OrthornnWarning, match="made some states again forwards"):
        found = run(case, torch.float64)
    for got, want in zip(found, run(replace(case, memory="store", segment=None), torch.float64)):
        torch.testing.assert_close(got, want, equal_nan=True)


@pytest.mark.parametrize("mode", ["checkpoint", "reverse"])
@pytest.mark.parametrize("kind", ["dense", "packed"])
def test_no_steps_and_no_sequences(mode, kind):
    for steps, batch in ((0, 3), (4, 0), (0, 0)):
        for output in ("all", "last"):
            sizes = Case(kind, "identity", n=6, m=2, steps=steps, batch=batch, output=output, grows=True)
            expected = run(sizes.draw(), torch.float64)
            for got, want in zip(run(replace(sizes, memory=mode).draw(), torch.float64), expected):
                assert torch.equal(got, want)


def test_compact_matrix_is_the_transition():
    for n, m, base in ((7, 3, True), (6, 6, False), (5, 0, True)):
        case = Case("packed", n=n, m=m, base=base).draw()
        t = case.to(torch.float64)
        U, S = compact_wy.factors(t["weight"].detach(), n)
        pair = (t["c"].detach(), t["s"].detach()) if base else None
        torch.testing.assert_close(
            memory.compact_matrix(U, S, pair),
            compact_wy.product(t["weight"].detach(), pair, n),
            rtol=0,
            atol=tolerance(torch.float64, n * m + 1),
        )


def test_bits_of_pairs():
    for count in (0, 1, 7, 8, 9, 40):
        order = torch.rand(5, count) < 0.5
        bits = segments._packed_bits(order)
        assert bits.shape == (5, -(-count // 8))
        assert torch.equal(segments._unpacked_bits(bits, count), order)


def test_arguments():
    x, h0, W = torch.zeros(3, 2, 4), torch.zeros(2, 4), torch.eye(4)
    with pytest.raises(ArgumentError, match="Did you mean 'checkpoint'"):
        dense_rnn(x, h0, W, "tanh", memory="chekpoint")
    with pytest.raises(ArgumentError, match="segment must be an integer of at least 1; got 0"):
        dense_rnn(x, h0, W, "tanh", memory="checkpoint", segment=0)
    with pytest.raises(ArgumentError, match="memory='store' has no segments"):
        dense_rnn(x, h0, W, "tanh", segment=3)


@pytest.mark.parametrize("mode", ["checkpoint", "reverse"])
def test_compile_opcheck_and_transforms(mode):
    for kind, packed, output in (("dense", False, "last"), ("packed", True, "all")):
        case = Case(kind, "modrelu", n=6, m=2, steps=8, batch=2, packed=packed, output=output, memory=mode, segment=3)
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
        t = case.to(torch.float64)
        arguments = [
            t.get(name) for name in ("x", "weight_ih", "bias", "h0", "weight", "c", "s", "parameter", "batch_sizes")
        ]
        name = "dense" if kind == "dense" else "compact_wy"
        torch.library.opcheck(
            torch.ops.orthornn.recurrence.default, (*arguments, name, "modrelu", 0.0, None, output == "last", "auto", 3)
        )


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
    """Against everything kept, on the same backend: as far off as rounding explains (memory.reverse_bound)."""
    T, n, m = 10**6, 32, 8
    for kind in ("dense", "packed"):
        case = Case(kind, activation, n=n, m=m, steps=T, batch=1, inputs=1, output="last", grows=True).draw()
        case.tensors["x"] = case.tensors["x"] / math.sqrt(T)  # states neither vanish nor explode
        if "parameter" in case.tensors:
            case.tensors["parameter"] = case.tensors["parameter"] / T
        stored = run(case, dtype)
        for mode in ("checkpoint", "reverse"):
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                found = run(replace(case, memory=mode), dtype)
            for got, want in zip(found, stored):
                close(got, want.detach().double(), memory.reverse_bound(dtype, T, n))
