"""An orthogonal W as rotations in its own basis: the decomposition at awkward spectra, the recurrence, the choice."""

from __future__ import annotations

import math

import pytest
import torch
from torch.nn.utils.rnn import pack_padded_sequence

from orthornn import Givens, Householder, OrthogonalRNN, ScaledCayley, Unconstrained, activations
from orthornn import rotation_basis as basis
from orthornn.compact_wy import apply_base
from orthornn.errors import ArgumentError, BackendError, NotOnGroupError, ShapeError
from orthornn.kernels import dense_rnn, rotation, rotations_rnn
from orthornn.kernels.backends import CPP
from orthornn.kernels.backends.cpp import extension
from orthornn.kernels.call import Call, Options
from orthornn.kernels.cost_model import Linear, linear_costs, rotations_pay
from orthornn.layout import SequenceLayout
from orthornn.modules import forms
from support import captured
from support.against_oracle import BACKENDS, DEVICE, DTYPES, check, refused
from support.cases import Case
from support.tolerances import tolerance

PI = math.pi


def haar(n: int, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.linalg.qr(torch.randn(n, n, dtype=torch.float64, generator=generator))[0]


def spectrum(angles, signs=()) -> torch.Tensor:
    """A random orthogonal matrix with these angles and these real eigenvalues."""
    cells = [[[math.cos(a), -math.sin(a)], [math.sin(a), math.cos(a)]] for a in angles] + [[[v]] for v in signs]
    R = torch.block_diag(*(torch.tensor(cell, dtype=torch.float64) for cell in cells))
    Q = haar(R.shape[0])
    return Q @ R @ Q.mT


SPECTRA = {
    "one": torch.ones(1, 1, dtype=torch.float64),
    "minus one": -torch.ones(1, 1, dtype=torch.float64),
    "two": haar(2),
    "odd, det -1": haar(65),
    "even": haar(64, 1),
    "identity": torch.eye(9, dtype=torch.float64),
    "minus identity": -torch.eye(10, dtype=torch.float64),
    "one of each sign": spectrum([1.0], [1, -1]),
    "permutation": torch.eye(50, dtype=torch.float64)[torch.randperm(50, generator=torch.Generator().manual_seed(0))],
    "cycle": torch.eye(48, dtype=torch.float64).roll(1, 0),
    "quarter turns": spectrum([PI / 2] * 6 + [PI / 2 + 1e-5]),
    "tiny angles": spectrum([10.0**-k for k in range(16)], [1, 1, 1, -1]),
    "near a half turn": spectrum([PI - 10.0**-k for k in range(16)], [1, -1, -1]),
    "repeated": spectrum([0.3] * 9 + [1.2] * 3 + [1.2 + 1e-9] * 3 + [2 + k * 1e-12 for k in range(5)], [1] * 5),
    "close": spectrum([1 + k * 1e-11 for k in range(9)] + [1.5 + 10.0**-k for k in range(16)]),
    "close to where scales meet": spectrum([0.099 + k * 1e-4 for k in range(20)] + [1e-3] * 4 + [1e-3 + 1e-6] * 3),
    "close to where the ends begin": spectrum([math.acos(0.995)] * 3 + [PI - math.acos(0.99)] * 2 + [math.acos(0.999)]),
    "reflections": Householder(reflections=3).bind(40)(*Householder(reflections=3).bind(40).initial()).double(),
}


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("gain", [1.0, 0.7])
@pytest.mark.parametrize("name", SPECTRA)
def test_the_decomposition(name, gain, dtype):
    W = (gain * SPECTRA[name]).to(dtype)
    n = W.shape[0]
    found = basis.decompose(W)
    assert found is not None
    Q, identity = found.Q.double(), torch.eye(n, dtype=torch.float64)
    # Rounding to the dtype, and in float64 an eigenvector's error of eps over a distance of 1e-3 at the least.
    bound = tolerance(dtype, n) + tolerance(torch.float64, 1) / 1e-3
    torch.testing.assert_close(Q.mT @ Q, identity, rtol=0, atol=bound)
    R = apply_base(identity, tuple(found.turns)).mT
    torch.testing.assert_close(Q @ R @ Q.mT, W.double(), rtol=0, atol=bound)
    torch.testing.assert_close(found.R.double(), R, rtol=0, atol=tolerance(dtype))
    assert found.residual <= bound * n
    blocks = found.turns.square().sum(dim=0).sqrt()
    torch.testing.assert_close(blocks, torch.full_like(blocks, gain), rtol=0, atol=bound)


def test_no_plane_is_torn_apart_where_an_end_begins():
    """One plane whose two cosines lie on both sides of a limit, by rounding, in many bases."""
    angles = [math.acos(c) for c in (0.99, 0.995, 0.999)]
    for seed in range(60):
        cells = [angles[seed % 3], PI - angles[seed // 3 % 3], 1.0]
        R = torch.block_diag(
            *(
                torch.tensor([[math.cos(a), -math.sin(a)], [math.sin(a), math.cos(a)]], dtype=torch.float64)
                for a in cells
            )
        )
        Q = haar(6, seed)
        found = basis.decompose(Q @ R @ Q.mT)
        assert found is not None
        assert found.residual <= 1e-12


@pytest.mark.sampled(4)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("n", [1, 2, 3, 100, 257, 512])
def test_matrices_that_users_make_orthogonal_in_their_own_dtype_are_taken(n, dtype):
    """The rounding of QR, of a polar factor and of a product of such matrices grows with N."""
    generator = torch.Generator().manual_seed(n)
    gaussian = torch.randn(n, n, dtype=dtype, generator=generator)
    by_qr = torch.linalg.qr(gaussian).Q
    by_torch = torch.nn.init.orthogonal_(torch.empty(n, n, dtype=dtype), generator=generator)
    left, _, right = torch.linalg.svd(gaussian)
    exponential = torch.linalg.matrix_exp((gaussian - gaussian.mT) / math.sqrt(n))
    x, h0 = torch.randn(3, 2, n, dtype=dtype), torch.randn(2, n, dtype=dtype)
    for W in (by_qr, by_torch, left @ right, by_qr @ by_torch, exponential):
        found = basis.decompose(W)
        assert found is not None
        Q, identity = found.Q.double(), torch.eye(n, dtype=torch.float64)
        # Q is made in float64 and rounded to the dtype once; eigenvectors of float64 as in test_the_decomposition
        bound = tolerance(dtype, 1) * math.sqrt(n) + tolerance(torch.float64, n) / 1e-3
        assert float(torch.linalg.matrix_norm(Q.mT @ Q - identity)) <= bound
        # R holds W's part in its planes; what W has outside of them is how far it is from orthogonal
        assert found.residual <= math.sqrt(n) * basis.allowed_defect(dtype, n) + bound
        expected = dense_rnn(x.double(), h0.double(), W.double(), "identity")
        states = rotations_rnn(x, h0, W)
        torch.testing.assert_close(states.double(), expected, rtol=0, atol=tolerance(dtype, 3 * n) * math.sqrt(n))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_the_bound_still_tells_an_almost_orthogonal_matrix_apart(dtype):
    n = 300
    W = haar(n)
    noise = torch.randn(n, n, dtype=torch.float64, generator=torch.Generator().manual_seed(1)) / math.sqrt(n)
    # a random perturbation of W by e per column changes W'W by about sqrt(2) e per column
    for size, taken in ((0.5, True), (8.0, False)):
        perturbed = (W + size * basis.allowed_defect(dtype, n) / math.sqrt(2) * noise).to(dtype)
        assert (basis.decompose(perturbed) is not None) == taken


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_what_is_not_orthogonal_is_refused(dtype):
    W = haar(12).to(dtype)
    off = W.clone()
    off[0, 0] += 100 * math.sqrt(12) * torch.finfo(dtype).eps
    for matrix in (off, torch.zeros(12, 12, dtype=dtype), torch.full((12, 12), float("nan"), dtype=dtype)):
        assert basis.decompose(matrix) is None
        with pytest.raises(NotOnGroupError, match="dense_rnn"):
            rotations_rnn(torch.zeros(2, 1, 12, dtype=dtype), torch.zeros(1, 12, dtype=dtype), matrix)
    with pytest.raises(ShapeError, match="square"):
        rotations_rnn(torch.zeros(2, 1, 3), torch.zeros(1, 3), torch.zeros(3, 2))


@pytest.mark.sampled(21)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(
    "case",
    [
        Case(n=1, batch=1),
        Case(n=2, steps=1),
        Case(n=17, batch=1),
        Case(n=33, batch=5, gain=0.9),
        Case(n=64, batch=13, steps=19, output="last"),
        Case(n=100, batch=7, steps=63, gain=1.01),
        Case(n=65, batch=31, steps=5, packed=True),
        Case(n=19, batch=4, steps=40, packed=True, output="last"),
        Case(n=6, steps=0, output="last"),
        Case(n=7, batch=0),
    ],
    ids=lambda case: f"n{case.n}B{case.batch}T{case.steps}{case.output}{'packed' * case.packed}",
)
@pytest.mark.parametrize("backend", BACKENDS)
def test_outputs_and_gradients_at_awkward_sizes(backend, case, dtype):
    for inputs in (None, 0, 1, 2, 9):
        case = Case(**{**case.__dict__, "kind": "rotations", "activation": "identity", "inputs": inputs, "tensors": {}})
        if case.batch:
            check(case, backend, dtype)
            continue
        if refused(case, backend, dtype):
            return
        tensors = case.draw().to(dtype, DEVICE)
        out = case.draw().call(tensors, backend)
        assert out.shape == (case.steps, 0, case.n)
        grads = torch.autograd.grad(out.sum(), case.draw().differentiable(tensors), materialize_grads=True)
        assert all(grad.isfinite().all() for grad in grads)


@pytest.mark.parametrize("name", SPECTRA)
def test_every_spectrum_against_dense(name):
    W = SPECTRA[name]
    n, T = W.shape[0], 200
    for dtype in DTYPES:
        generator = torch.Generator().manual_seed(2)
        leaves = [torch.randn(T, 2, n, generator=generator), torch.randn(2, n, generator=generator), W]
        results = []
        for function, kind in ((rotations_rnn, dtype), (lambda *t: dense_rnn(*t, "identity"), torch.float64)):
            tensors = [leaf.to(kind).requires_grad_() for leaf in leaves]
            out = function(*tensors)
            results.append([out, *torch.autograd.grad(out.square().mean(), tensors)])
        for found, wanted in zip(*results):
            bound = tolerance(dtype, T * n) * (1 + float(wanted.detach().abs().max()))
            torch.testing.assert_close(found.double(), wanted, rtol=0, atol=bound)


@pytest.mark.skipif(extension.missing() is not None, reason="no compiled kernels")
def test_a_hundred_thousand_steps_in_float32():
    """The angle of a float32 coefficient is off by up to 6e-8, 6e-3 in all; rounding of states has no direction."""
    T, n = 100_000, 6
    found = basis.decompose(haar(n))
    x, h0 = torch.zeros(T, n), torch.randn(1, n, generator=torch.Generator().manual_seed(0))
    c, s = (turn.clone() for turn in found.turns)
    options = Options("rotations", activations.get("identity"))
    call = Call(
        x.unsqueeze(1), None, None, h0, found.R.float(), *found.turns, None, None, SequenceLayout(T, 1), options
    )
    states = CPP.forward(call, False)[0].all[:, 0]
    block = apply_base(torch.eye(n, dtype=torch.float64), (c, s)).mT
    wanted = h0.double() @ torch.linalg.matrix_power(block, T).mT
    error = float((states[-1] - wanted).abs().max() / h0.abs().max())
    assert error <= tolerance(torch.float32, math.isqrt(T)) / 8
    narrow = call._replace(c=c.float().double(), s=s.float().double())
    assert float((CPP.forward(narrow, False)[0].all[-1] - wanted).abs().max()) > 10 * error


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("steps", [0, 1, 9])
def test_the_last_state_without_gradients_is_that_with(packed, steps):
    if packed and not steps:
        return
    for inputs in (None, 0, 2):
        case = Case("rotations", "identity", n=5, steps=steps, packed=packed, inputs=inputs, output="last").draw()
        tensors = case.to(torch.float32)
        found = case.call({name: t.detach() for name, t in tensors.items()})
        assert torch.equal(found, case.call(tensors))
        with torch.no_grad():
            assert torch.equal(found, case.call(tensors))


@pytest.mark.parametrize("output", ["all", "last"])
def test_a_readout_is_that_of_the_states(output):
    case = Case("rotations", "identity", n=7, output=output).draw()
    generator = torch.Generator().manual_seed(3)
    Y, d = (torch.randn(*shape, dtype=torch.float64, generator=generator).requires_grad_() for shape in ((3, 7), (3,)))
    t = case.to(torch.float64)

    def call(h0: torch.Tensor, readout=None) -> torch.Tensor:
        inputs = {"weight_ih": t["weight_ih"], "bias": t["bias"], "output": output}
        return rotations_rnn(t["x"], h0, t["weight"], **inputs, readout=readout)

    results = []
    for out in (torch.nn.functional.linear(call(t["h0"]), Y, d), call(t["h0"], (Y, d))):
        results.append([out, *torch.autograd.grad(out.square().sum(), [Y, d, *case.differentiable(t)])])
    for found, wanted in zip(*results):
        bound = tolerance(torch.float64, 100) * (1 + float(wanted.detach().abs().max()))
        torch.testing.assert_close(found, wanted, rtol=0, atol=bound)
    mapped = torch.func.vmap(lambda h: call(h, (Y, d)))(t["h0"][None])[0]
    torch.testing.assert_close(mapped, results[0][0], rtol=0, atol=tolerance(torch.float64, 100))
    with pytest.raises(ShapeError, match="readout"):
        call(t["h0"], (Y[:, :2], None))


@pytest.mark.parametrize("sizes", [None, [3, 2, 2, 1]], ids=["constant", "packed"])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("used", ["both", "all", "last", "neither"])
def test_a_readout_of_all_states_and_of_the_last_ones(used, bias, sizes):
    """Gradients come from either output, or from both; without steps the last states are the initial ones."""
    for steps in (4, 0):
        if sizes and not steps:
            continue
        batch_sizes = torch.tensor(sizes) if sizes else None
        rows = torch.randn(sum(sizes) if sizes else steps, *(() if sizes else (3,)), 5, dtype=torch.float64)
        layout = SequenceLayout.of(rows, batch_sizes)
        last = layout.last(layout.flatten(rows), torch.randn(3, 5, dtype=torch.float64)).clone()
        leaves = [rows, last, torch.randn(2, 5).double(), *([torch.randn(2).double()] if bias else [])]
        results = []
        for own in (True, False):
            every, end, Y, *d = (leaf.clone().requires_grad_() for leaf in leaves)
            inputs = (every, end, Y, d[0] if d else None)
            if own:
                outs = rotation._Read.apply(layout, *inputs)
            else:
                outs = tuple(torch.nn.functional.linear(z, Y, inputs[3]) for z in (every, end))
            weights = [torch.full_like(out, 0.3 + k).cumsum(0) for k, out in enumerate(outs)]
            parts = {"both": outs, "all": outs[:1], "last": outs[1:], "neither": ()}[used]
            loss = sum((out * w).sum() for out, w in zip(parts, weights if used != "last" else weights[1:]))
            loss = loss + 0 * Y.sum()
            grads = torch.autograd.grad(loss, [every, end, Y, *d], allow_unused=True, materialize_grads=True)
            results.append([*outs, *grads])
        for found, wanted in zip(*results, strict=True):
            torch.testing.assert_close(found, wanted, rtol=0, atol=tolerance(torch.float64, 100))


def test_autocast_rounds_no_product_of_a_change_of_basis():
    case = Case("rotations", "identity", n=7, restart=True, reset="random").draw()
    tensors = case.to(torch.float32)
    expected = case.call(tensors)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = case.call(tensors)
    torch.testing.assert_close(found.float(), expected, rtol=0, atol=tolerance(torch.float32, 100))


@pytest.mark.parametrize("output", ["all", "last"])
@pytest.mark.parametrize("inputs", [None, 3])
def test_a_backward_pass_under_autocast_has_the_gradients_of_one_outside(inputs, output):
    case = Case(
        "rotations", "identity", n=6, steps=9, inputs=inputs, output=output, reset="random", restart=True
    ).draw()
    tensors = case.to(torch.float32)
    leaves, found = case.differentiable(tensors), []
    for enabled in (False, True):
        loss = case.call(tensors).square().sum()
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=enabled):
            found.append(torch.autograd.grad(loss, leaves))
    assert all(map(torch.equal, *found))


def test_rows_in_bfloat16_come_back_in_bfloat16():
    case = Case("rotations", "identity", n=7, inputs=None, bias=False).draw()
    tensors = case.to(torch.float32)
    half = {**tensors, "x": tensors["x"].detach().bfloat16()}
    found, expected = case.call(half), case.call({**tensors, "x": half["x"].float()})
    assert found.dtype == torch.bfloat16
    assert torch.equal(found, expected.bfloat16())


def test_shapes_on_the_meta_device_and_a_basis_of_ones_own():
    x, h0, W = torch.zeros(3, 2, 5, device="meta"), torch.zeros(2, 5, device="meta"), torch.zeros(5, 5, device="meta")
    assert rotations_rnn(x, h0, W).shape == (3, 2, 5)
    Q = haar(5, 7)
    before = [part.clone() for part in torch.ops.orthornn.rotations(Q)]
    for part in torch.ops.orthornn.rotations(Q):
        part.zero_()  # it is the caller's own
    for part, was in zip(torch.ops.orthornn.rotations(Q), before):
        assert torch.equal(part, was)


def test_the_decomposition_is_kept_until_the_values_change(monkeypatch):
    calls = []
    monkeypatch.setattr(basis, "decompose", lambda W, original=basis.decompose: calls.append(1) or original(W))
    basis._cache.clear()
    W, x, h0 = haar(10), torch.randn(3, 1, 10).double(), torch.zeros(1, 10).double()
    for _ in range(3):
        first = rotations_rnn(x, h0, W)
    assert len(calls) == 1
    W.data.copy_(haar(10, 5))  # no version is raised by this
    second = rotations_rnn(x, h0, W)
    assert len(calls) == 2
    assert not torch.equal(first, second)
    torch.testing.assert_close(second, dense_rnn(x, h0, W, "identity"), rtol=0, atol=tolerance(torch.float64, 100))
    for seed in range(20):
        rotations_rnn(x, h0, haar(10, seed))
    assert len(basis._cache) == basis.CACHED


def test_a_basis_found_in_inference_mode_serves_training():
    basis.forget()
    W, x, h0 = haar(5), torch.randn(4, 2, 5, dtype=torch.float64), torch.randn(2, 5, dtype=torch.float64)
    with torch.inference_mode():
        expected = rotations_rnn(x, h0, W)
    leaves = [t.clone().requires_grad_() for t in (x, h0, W)]
    found = rotations_rnn(*leaves)
    assert torch.equal(found, expected)
    found.sum().backward()
    assert all(leaf.grad is not None for leaf in leaves)


def test_compiled_without_breaks():
    torch._dynamo.reset()
    case = Case("rotations", "identity", n=6, steps=4, batch=2).draw()
    results = []
    for function in (case.call, torch.compile(case.call, fullgraph=True, backend="aot_eager")):
        tensors = case.to(torch.float64)
        out = function(tensors)
        results.append([out, *torch.autograd.grad(out.square().sum(), case.differentiable(tensors))])
    for eager, compiled in zip(*results):
        torch.testing.assert_close(compiled, eager, rtol=0, atol=tolerance(torch.float64, 100))
    torch.library.opcheck(torch.ops.orthornn.rotations.default, (haar(5),))


def test_the_second_derivative_of_w_is_that_of_dense():
    x, h0, W = torch.randn(4, 2, 5).double(), torch.randn(2, 5).double(), haar(5)
    found = []
    for function in (rotations_rnn, lambda *t: dense_rnn(*t, "identity")):
        leaf, inputs = W.clone().requires_grad_(), x.clone().requires_grad_()
        (first,) = torch.autograd.grad(function(inputs, h0, leaf).pow(3).sum(), leaf, create_graph=True)
        found.append(torch.autograd.grad(first.square().sum(), (leaf, inputs)))
    for mine, theirs in zip(*found):
        bound = tolerance(torch.float64, 100) * float(theirs.abs().max())
        torch.testing.assert_close(mine, theirs, rtol=0, atol=bound)


def test_the_choice_by_cost():
    long = Linear(n=512, m=None, batch=8, steps=10_000, all_states=False, projected=False, trained=True)
    assert rotations_pay(long)
    assert not rotations_pay(long._replace(steps=5))
    assert not rotations_pay(Linear(8, None, 1, 100, False, False, True))
    # All states of projected inputs: two products for each row, where the matrix takes one.
    assert not rotations_pay(long._replace(all_states=True, projected=True, trained=False))
    assert rotations_pay(Linear(512, 128, 8, 10_000, False, False, True))
    assert not rotations_pay(Linear(512, 1, 8, 1000, True, False, True))
    assert set(linear_costs(long)) == {"dense", "rotations"}
    assert set(linear_costs(long._replace(m=4))) == {"compact_wy", "rotations"}


@pytest.mark.parametrize(
    "method",
    [
        Householder(),
        Householder(reflections=2),
        Householder(reflections=2, base="rotations"),
        Householder(reflections=2, field="complex"),
        ScaledCayley(negatives=3),
        ScaledCayley(field="complex"),
        Givens(layers=2),
    ],
    ids=repr,
)
def test_a_module_as_rotations(method):
    results = []
    for form in ("dense", "rotations"):
        torch.manual_seed(0)
        rnn = OrthogonalRNN(
            2, 6, 2, parametrization=method, nonlinearity="identity", form=form, bidirectional=True, dtype=torch.float64
        )
        x = torch.randn(9, 3, 2, dtype=torch.float64)
        out, h_n = rnn(x)
        last, _ = rnn(x, output="last")
        loss = (out.abs().square().sum() + h_n.abs().sum() + last.abs().sum()) / 10
        results.append([out, h_n, last, *torch.autograd.grad(loss, list(rnn.parameters()))])
    for found, wanted in zip(*results):
        bound = tolerance(torch.float64, 9 * 12) * (1 + float(wanted.detach().abs().max()))
        torch.testing.assert_close(found, wanted, rtol=0, atol=bound)


def test_a_module_chooses_them_where_they_pay(monkeypatch):
    monkeypatch.setattr(forms, "rotations_pay", lambda size: rotations_pay(size._replace(steps=10 * size.steps)))
    calls = []
    original = rotation.run
    monkeypatch.setattr(rotation, "run", lambda *a, **k: calls.append(1) or original(*a, **k))
    x, h0 = torch.randn(400, 8, 1), torch.full((1, 8, 128), 0.01)  # from zero, the last states have another way

    def used(method, **options) -> bool:
        torch.manual_seed(0)
        calls.clear()
        steps = options.pop("steps", 400)
        rnn = OrthogonalRNN(1, 128, parametrization=method, **({"nonlinearity": "identity"} | options))
        last, _ = rnn(x[:steps], h0, output="last")
        dense, _ = OrthogonalRNN.forward(_with_form(rnn, "dense"), x[:steps], h0, output="last")
        torch.testing.assert_close(
            last, dense, rtol=0, atol=tolerance(torch.float32, steps) * float(dense.detach().abs().max())
        )
        return bool(calls)

    assert used(ScaledCayley())
    assert used(Householder())
    assert used(ScaledCayley(), nonlinearity="relu", linear_transition=True) is False  # its input comes projected
    assert used(ScaledCayley(), gain=0.9)
    assert not used(ScaledCayley(), steps=3)
    assert not used(ScaledCayley(), nonlinearity="tanh")
    assert not used(ScaledCayley(), clip_backward=1.0)
    for init in ("glorot", "orthogonal"):  # the group decides, not the values: any matrix may follow
        assert not used(Unconstrained(init=init))
        with torch.no_grad():
            assert not used(Unconstrained(init=init))


def _with_form(rnn: OrthogonalRNN, form: str) -> OrthogonalRNN:
    rnn.form = form
    return rnn


def test_refusals():
    x = torch.randn(3, 2, 1)
    with pytest.raises(ArgumentError, match="nonlinearity='identity'"):
        OrthogonalRNN(1, 4, nonlinearity="tanh", form="rotations")
    with pytest.raises(ArgumentError, match="nonlinearity='identity'"):
        _with_form(OrthogonalRNN(1, 4, nonlinearity="tanh"), "rotations")(x)
    for options in ({"nonlinearity": "identity"}, {"linear_transition": True}):
        with pytest.raises(ArgumentError, match="clip_backward"):
            OrthogonalRNN(1, 4, form="rotations", clip_backward=1.0, **options)
    OrthogonalRNN(1, 4, nonlinearity="tanh", linear_transition=True, form="rotations")(x)
    with pytest.raises(NotOnGroupError, match="form='dense'"):
        OrthogonalRNN(1, 4, nonlinearity="identity", form="rotations", parametrization=Unconstrained(init="glorot"))(x)


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("form", ["rotations", "auto"])
def test_a_module_reads_out_without_making_its_states(form, packed, monkeypatch):
    monkeypatch.setattr(forms, "rotations_pay", lambda size: size.read is not None)
    made = []
    monkeypatch.setattr(
        OrthogonalRNN, "forward", lambda self, *a, f=OrthogonalRNN.forward, **k: made.append(1) or f(self, *a, **k)
    )
    results = []
    for kind in (form, "dense"):
        torch.manual_seed(0)
        rnn = OrthogonalRNN(
            2, 6, nonlinearity="identity", form=kind, batch_first=not packed, learn_h0=True, dtype=torch.float64
        )
        readout = torch.nn.Linear(6, 3, dtype=torch.float64)
        x = torch.randn(4, 9, 2, dtype=torch.float64)
        if packed:
            x = pack_padded_sequence(x, torch.tensor([9, 3, 7, 1]), batch_first=True, enforce_sorted=False)
        out = rnn.forward_readout(x, readout)
        assert len(made) == (kind == "dense")
        results.append([out, *torch.autograd.grad(out.square().sum(), [*rnn.parameters(), *readout.parameters()])])
    assert results[0][0].shape == ((20, 3) if packed else (4, 9, 3))
    for found, wanted in zip(*results):
        bound = tolerance(torch.float64, 60) * (1 + float(wanted.detach().abs().max()))
        torch.testing.assert_close(found, wanted, rtol=0, atol=bound)


@pytest.mark.parametrize("where", ["network", "readout", "all modules"])
@pytest.mark.parametrize(
    "hook", ["forward", "forward_pre", "full_backward", "full_backward_pre"], ids=lambda hook: f"{hook}_hook"
)
def test_a_readout_is_not_absorbed_past_a_hook(hook, where):
    rnn, readout, seen = OrthogonalRNN(2, 6, nonlinearity="identity", form="rotations"), torch.nn.Linear(6, 3), []
    of_all = torch.nn.modules.module
    register = {
        "network": getattr(rnn, f"register_{hook}_hook"),
        "readout": getattr(readout, f"register_{hook}_hook"),
        "all modules": getattr(of_all, f"register_module_{hook}_hook"),
    }[where]
    handle = register(lambda module, *_: seen.append(module))
    x = torch.randn(4, 3, 2, requires_grad=True)  # else torch tells a backward hook of the network nothing of its input
    rnn.forward_readout(x, readout).sum().backward()
    handle.remove()
    assert {"network": {rnn}, "readout": {readout}, "all modules": {rnn, readout}}[where] <= set(seen)


@pytest.mark.parametrize(
    "options",
    [
        {"nonlinearity": "tanh"},
        {"nonlinearity": "relu", "linear_transition": True, "form": "dense"},
        {"num_layers": 2},
        {"bidirectional": True},
        {"clip_backward": 1.0},
        {"parametrization": Householder(field="complex")},
        {"parametrization": Unconstrained(init="glorot")},
    ],
    ids=str,
)
def test_what_has_to_make_its_states_reads_them_out(options, monkeypatch):
    monkeypatch.setattr(forms, "rotations_pay", lambda size: True)
    torch.manual_seed(0)
    rnn = OrthogonalRNN(2, 6, **{"nonlinearity": "identity"} | options)
    x = torch.randn(5, 3, 2)
    states = rnn(x)[0]
    states = torch.view_as_real(states).flatten(-2) if states.is_complex() else states
    readout = torch.nn.Linear(states.shape[-1], 2)
    assert torch.equal(rnn.forward_readout(x, readout), readout(states))


def test_a_basis_is_not_looked_for_while_cuda_captures(monkeypatch):
    x, h0, W = torch.zeros(3, 2, 4), torch.zeros(2, 4), torch.eye(4)
    captured.begin(monkeypatch)
    with pytest.raises(BackendError, match=r"before the capture of a CUDA graph.*form='dense'"):
        rotations_rnn(x, h0, W)
