"""Layers of rotations: the arrangement, the elimination, and the adjoint; the same for the FFT form."""

from __future__ import annotations

import math

import pytest
import torch

from orthornn import Givens, RestrictedUnitary
from orthornn.errors import ArgumentError, NotOnGroupError
from orthornn.parametrizations import givens
from orthornn.parametrizations.givens import brick_pairs, fft_pairs
from orthornn.parametrizations.matrices import haar
from orthornn.parametrizations.mesh import decompose
from orthornn.parametrizations.search import nearest
from support.tolerances import tolerance


def rotation(n, p, q, theta, phi=0.0):
    F = torch.eye(n, dtype=torch.complex128)
    phase = complex(math.cos(phi), math.sin(phi))
    c, s = math.cos(theta), math.sin(theta)
    F[p, p], F[p, q], F[q, p], F[q, q] = phase * c, -s, phase * s, c
    return F


@pytest.mark.parametrize("layers", [1, 2, 5, "fft"])
@pytest.mark.parametrize("n", [1, 2, 6, 7])
def test_w_is_the_product_of_its_rotations(n, layers):
    pairs = fft_pairs(n) if layers == "fft" else brick_pairs(n, layers)
    for field in ("real", "complex"):
        method = Givens(layers=layers, field=field).bind(n).double()
        free = method.initial(torch.Generator().manual_seed(0))
        theta = free[0].tolist()
        phi = free[1].tolist() if field == "complex" else [0.0] * len(theta)
        W = torch.eye(n, dtype=torch.complex128)
        for (p, q), t, f in zip((pair for layer in pairs for pair in layer), theta, phi, strict=True):
            W = rotation(n, p, q, t, f) @ W
        if field == "complex":
            W = torch.polar(torch.ones(n, dtype=torch.float64), free[2]).unsqueeze(1) * W
        torch.testing.assert_close(method(*free).to(W.dtype), W, rtol=0, atol=tolerance(torch.float64, n * n))


@pytest.mark.parametrize("n", [1, 2, 3, 5, 8, 12, 13, 16, 33])
def test_arrangements(n):
    for pairs in (brick_pairs(n, n), fft_pairs(n)):
        for layer in pairs:
            units = [unit for pair in layer for unit in pair]
            assert len(units) == len(set(units))
            assert all(0 <= p < q < n for p, q in layer)
    assert sum(map(len, brick_pairs(n, n))) == n * (n - 1) // 2
    fft = fft_pairs(n)
    assert len(fft) == max(1, math.ceil(math.log2(n)))
    if n & (n - 1) == 0:
        assert all(len(layer) == n // 2 for layer in fft)
    reached = [{unit} for unit in range(n)]
    for layer in fft:
        for p, q in layer:
            reached[p] = reached[q] = reached[p] | reached[q]
    assert reached[0] == set(range(n))
    if n & (n - 1) == 0:
        assert all(units == set(range(n)) for units in reached)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("n", [1, 2, 3, 6, 7, 20])
def test_elimination(n):
    """Every unitary matrix, also one that is sparse, so that entries to eliminate are zero already."""
    permutation = torch.eye(n, dtype=torch.float64)[torch.randperm(n, generator=torch.Generator().manual_seed(0))]
    for W in (haar(n, True), haar(n, False), permutation, torch.eye(n).double(), -torch.eye(n).to(torch.complex128)):
        for layers in (n, n + 3):
            field = "complex" if W.is_complex() else "real"
            method = Givens(layers=layers, field=field).bind(n).double()
            back = method(*method.right_inverse(W))
            torch.testing.assert_close(back, W, rtol=0, atol=tolerance(torch.float64, n * n))
        assert decompose(W, n)[0].shape == (n, n)


@pytest.mark.parametrize("field", ["real", "complex"])
@pytest.mark.parametrize("n", [1, 2, 3, 4, 7])
def test_the_fft_arrangement_spans_the_group_where_its_numbers_are_as_many_as_its_dimensions(n, field):
    """One or two units: then every matrix is taken, as by elimination; else the nearest of a subset."""
    method = Givens(layers="fft", field=field).bind(n).double()
    dimension = n * (n - 1) // 2 if field == "real" else n * n
    assert (method.group == ("SO" if field == "real" else "U")) == (method.count() == dimension) == (n <= 2)
    assert method.group in ("SO", "U", "subset")
    for seed in range(4):
        W = haar(n, field == "complex", torch.Generator().manual_seed(seed))
        if n <= 2:
            torch.testing.assert_close(
                method(*method.right_inverse(W)), W, rtol=0, atol=tolerance(torch.float64, n * n)
            )
        else:
            with pytest.raises(NotOnGroupError):
                method.right_inverse(W)


@pytest.mark.parametrize(
    "method",
    [Givens(layers=3), Givens(layers="fft", field="complex"), Givens(layers=2, field="complex"), RestrictedUnitary()],
    ids=repr,
)
@pytest.mark.parametrize("n", [1, 6, 9])
def test_rows_and_their_adjoint(method, n):
    torch.manual_seed(0)
    bound = method.bind(n).double()
    free = bound.initial()
    W, operands = bound(*free), bound.operands(*free)
    h, g = torch.randn(4, n, dtype=W.dtype), torch.randn(3, n, dtype=W.dtype)
    close = {"rtol": 0, "atol": tolerance(torch.float64, n * n)}
    torch.testing.assert_close(bound.multiply(h, *operands), h @ W.mT, **close)
    torch.testing.assert_close(bound.multiply_adjoint(g, *operands), g @ W.conj(), **close)


def test_restricted_unitary_is_its_equation():
    """D_3 R_2 F^-1 D_2 P R_1 F D_1 from dense factors."""
    n = 6
    method = RestrictedUnitary().bind(n).double()
    phases, reflectors = method.initial(torch.Generator().manual_seed(0))
    D = [torch.diag(torch.polar(torch.ones_like(p), p)) for p in phases]
    R = []
    for v in torch.view_as_complex(reflectors):
        R.append(torch.eye(n, dtype=v.dtype) - 2 * torch.outer(v, v.conj()) / v.abs().square().sum())
    j = torch.arange(n, dtype=torch.float64)
    angle = -2 * math.pi * torch.outer(j, j) / n
    F = torch.polar(torch.full_like(angle, n**-0.5), angle)
    P = torch.eye(n, dtype=F.dtype)[method.permutation]
    W = D[2] @ R[1] @ F.mH @ D[1] @ P @ R[0] @ F @ D[0]
    torch.testing.assert_close(method(phases, reflectors), W, rtol=0, atol=tolerance(torch.float64, n * n))
    flat = torch.zeros_like(reflectors)
    assert method.orthogonality_error(method(phases, flat)) < tolerance(
        torch.float64, n * n
    )  # a reflector of length 0 reflects nothing


@pytest.mark.sampled(7)
@pytest.mark.parametrize("field", ["real", "complex"])
@pytest.mark.parametrize("layers", [1, 2, 3, 5, "fft"])
@pytest.mark.parametrize("n", [2, 3, 5, 12, 17, 40])
def test_few_layers_are_peeled_off(n, layers, field):
    """Also where rotations are by 0 or a right angle, and (real) with other signs than those that are bound."""
    method = Givens(layers=layers, field=field).bind(n).double()
    if method.group != "subset" or (layers not in (1, 2, "fft") and n < 3 * layers):
        return  # the whole group, or units that reach no column alone: by elimination, or by search
    for special in (False, True):
        free = method.initial(torch.Generator().manual_seed(n))
        if special and layers in (1, 2, "fft"):
            free[0][::3], free[0][1::3] = 0.0, math.pi / 2
        if field == "real":
            method.signs[::2] = -1.0
        W = method(*free)
        found = Givens(layers=layers, field=field).bind(n).double()
        torch.testing.assert_close(found(*found.right_inverse(W)), W, rtol=0, atol=tolerance(torch.float64, n * n))
        single = W.to(torch.complex64 if W.is_complex() else torch.float32)
        back = found(*found.right_inverse(single)).to(single.dtype)
        torch.testing.assert_close(back, single, rtol=0, atol=tolerance(torch.float32, n))


@pytest.mark.parametrize("field", ["real", "complex"])
@pytest.mark.parametrize("layers", [1, 2, "fft"])
def test_what_no_layers_make_is_said(layers, field):
    method = Givens(layers=layers, field=field).bind(9).double()
    before = {name: value.clone() for name, value in method.state_dict().items()}
    with pytest.raises(NotOnGroupError, match=r"W to be a product of \d layers .* at Frobenius distance"):
        method.right_inverse(haar(9, field == "complex", torch.Generator().manual_seed(0)))
    assert all(torch.equal(value, before[name]) for name, value in method.state_dict().items())


def test_searching_the_nearest():
    W = haar(7, True, torch.Generator().manual_seed(0))
    method = RestrictedUnitary().bind(7)
    method.initial(torch.Generator().manual_seed(1))
    permutation = method.permutation.clone()
    free, distance = nearest(method, W, starts=2)
    assert torch.equal(method.permutation, permutation)
    assert distance == pytest.approx(float(torch.linalg.matrix_norm(method(*free) - W)))
    assert nearest(method, W, starts=2)[1] == distance
    with pytest.raises(NotOnGroupError, match=r"Frobenius distance .* from the nearest found after 8 starts"):
        Givens(layers=3).bind(4).right_inverse(haar(4, False, torch.Generator().manual_seed(0)))


def test_arguments():
    for bad in ("FFT", 0, 2.5):
        with pytest.raises(ArgumentError, match="layers"):
            Givens(layers=bad)
    with pytest.raises(ArgumentError, match="field"):
        Givens(field="quaternion")


@pytest.mark.parametrize("field", ["real", "complex"])
def test_first_angles_are_uniform_on_the_circle_and_signs_are_plus(field):
    method = Givens(field=field).bind(20)
    if field == "real":
        method.signs.fill_(-1.0)
    for angles in method.initial(torch.Generator().manual_seed(0)):
        assert -math.pi <= float(angles.min()) < -0.7 * math.pi
        assert 0.7 * math.pi < float(angles.max()) <= math.pi
    if field == "real":
        assert torch.equal(method.signs, torch.ones_like(method.signs))


@pytest.mark.parametrize("field", ["real", "complex"])
def test_operands_have_the_precision_of_the_angles(field):
    method = Givens(layers=2, field=field).bind(5)
    free = method.initial(torch.Generator().manual_seed(0))
    for dtype in (torch.float32, torch.float64):
        wanted = dtype if field == "real" else dtype.to_complex()
        given = [value.to(dtype) for value in free]
        assert {value.dtype for value in (*method.operands(*given), method(*given))} == {wanted}


@pytest.mark.parametrize(("field", "group"), [("real", "SO"), ("complex", "U")])
def test_one_rotation_of_two_units_spans_the_group(field, group):
    """Every matrix of it is taken, those of determinant -1 with a sign; three units need three layers."""
    method = Givens(layers=1, field=field).bind(2)
    assert method.group == group
    for seed in range(5):
        torch.manual_seed(seed)
        W = haar(2, field == "complex")
        free = method.right_inverse(W)
        torch.testing.assert_close(method(*free), W, rtol=0, atol=tolerance(torch.float64, 4))
    assert [Givens(layers=L, field=field).bind(3).group for L in (1, 2, 3)] == ["subset", "subset", group]


def test_few_tables_are_kept():
    kept = givens.cached_tables.cache_info().maxsize
    for n in range(2, kept + 9):
        method = Givens(layers=1).bind(n)
        tables = method.tables(torch.device("cpu"))
        assert method.tables(torch.device("cpu")) is tables
    assert givens.cached_tables.cache_info().currsize <= kept
