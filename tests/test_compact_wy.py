"""The algebra of products of reflections: against the product itself, LAPACK's orgqr and autograd."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from orthornn import compact_wy
from orthornn.errors import ArgumentError, ShapeError
from support.tolerances import tolerance

SIZES = [(1, 1), (2, 1), (2, 2), (5, 3), (8, 8), (33, 7), (64, 63)]


def plain_product(U):
    """H(u_1) H(u_2) ... for the columns of U, one matrix at a time."""
    W = torch.eye(U.shape[0], dtype=U.dtype)
    for u in U.unbind(1):
        W = W @ (torch.eye(U.shape[0], dtype=U.dtype) - 2 * torch.outer(u, u) / (u @ u))
    return W


@pytest.mark.parametrize(("n", "m"), SIZES)
def test_packing(n, m):
    packed = torch.arange(1.0, 1 + compact_wy.packed_size(n, m))
    U = compact_wy.unpack(packed, n)
    assert U.shape == (n, m)
    assert (U.triu(1) == 0).all()
    assert (U.tril() != 0).sum() == packed.numel()
    assert torch.equal(compact_wy.pack(U), packed)
    assert torch.equal(U[:, 0], packed[:n])  # u_n comes first
    assert compact_wy.packed_reflections(n, packed.numel()) == m
    pairs = torch.stack([packed, -packed], dim=-1)
    assert torch.equal(compact_wy.unpack(pairs, n)[..., 1], -U)


def test_a_size_that_is_no_trapezoid_is_refused():
    with pytest.raises(ShapeError, match="M of at most 4"):
        compact_wy.packed_reflections(4, 8)
    with pytest.raises(ArgumentError, match="between 0 and 4"):
        compact_wy.packed_index(4, 5)


@pytest.mark.parametrize(("n", "m"), SIZES)
def test_proposition_1(n, m):
    packed = torch.randn(compact_wy.packed_size(n, m), dtype=torch.float64)
    U = compact_wy.unpack(packed, n)
    bound = tolerance(torch.float64, n * m)
    torch.testing.assert_close(compact_wy.product(packed, n=n), plain_product(U), rtol=0, atol=bound)
    general = torch.randn(n, m, dtype=torch.float64)
    torch.testing.assert_close(compact_wy.product(general), plain_product(general), rtol=0, atol=bound)


def test_against_lapack():
    """LAPACK's reflectors are I - tau v v' with v_j = 1 and zeros above."""
    V, tau = torch.geqrf(torch.randn(9, 5, dtype=torch.float64))
    U = V.tril(-1) + torch.eye(9, 5, dtype=torch.float64)
    Q = torch.linalg.householder_product(torch.cat([V, V.new_zeros(9, 4)], dim=1), torch.cat([tau, tau.new_zeros(4)]))
    torch.testing.assert_close(compact_wy.product(U), Q, rtol=0, atol=tolerance(torch.float64, 45))


@pytest.mark.sampled(3)
@pytest.mark.parametrize(("n", "m"), [(130, 128), (191, 191), (200, 133)])
@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128])
def test_proposition_1_in_several_blocks(n, m, dtype):
    free = torch.randn(n, m, dtype=dtype)
    for trapezoid, U in [(True, free.tril()), (False, free)]:
        W = torch.eye(n, dtype=dtype)
        for u in U.unbind(1):
            W = W - 2 * torch.outer(W @ u, u.conj()) / u.abs().square().sum()
        found = compact_wy.multiplied_out(U, trapezoid)
        torch.testing.assert_close(found, W, rtol=0, atol=tolerance(torch.float64, n))


@pytest.mark.sampled(1)
@pytest.mark.parametrize("trapezoid", [True, False])
@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128])
@pytest.mark.parametrize(("n", "m"), [(5, 5), (6, 3), (5, 1), (4, 0)])
def test_gradients_of_several_blocks(n, m, dtype, trapezoid, monkeypatch):
    monkeypatch.setattr(compact_wy, "_BLOCK", 2)
    free = torch.randn(n, m, dtype=dtype, requires_grad=True)

    def multiplied_out(U):
        return compact_wy.multiplied_out(U.tril() if trapezoid else U, trapezoid)

    assert torch.autograd.gradcheck(multiplied_out, (free,), check_forward_ad=True)
    assert torch.autograd.gradgradcheck(multiplied_out, (free,))
    each = torch.func.vmap(multiplied_out)(torch.stack([free, 2 * free, -free]).detach())
    for one in each:
        torch.testing.assert_close(one, multiplied_out(free).detach())


@pytest.mark.parametrize(("n", "m"), SIZES)
@pytest.mark.parametrize("based", [False, True])
def test_rows_and_matrix_agree(n, m, based):
    U, h, d = torch.randn(n, m).double(), torch.randn(4, n).double(), torch.randn(4, n).double()
    base = (torch.randn(n).double(), torch.randn(n).double()) if based else None
    W, S = compact_wy.product(U, base), compact_wy.inverse_T(U)
    bound = tolerance(torch.float64, n * m) * 10
    C, _ = compact_wy.reflect(compact_wy.apply_base(h, base), U, S)
    torch.testing.assert_close(C, h @ W.mT, rtol=0, atol=bound)
    e, _ = compact_wy.reflect_transpose(d, U, S)
    torch.testing.assert_close(compact_wy.apply_base_transpose(e, base), d @ W, rtol=0, atol=bound)


@pytest.mark.parametrize("n", [1, 2, 5, 6])
def test_base_is_its_matrix(n):
    c, s, h, e = torch.randn(4, n).double()
    B = torch.stack([compact_wy.apply_base(row, (c, s)) for row in torch.eye(n).double()], dim=1)
    torch.testing.assert_close(compact_wy.apply_base(h, (c, s)), B @ h)
    torch.testing.assert_close(compact_wy.apply_base_transpose(e, (c, s)), B.mT @ e)
    assert torch.equal(compact_wy.swap(compact_wy.swap(h)), h)


@pytest.mark.parametrize(("n", "m"), SIZES)
def test_theorem_2(n, m):
    U = torch.randn(n, m, dtype=torch.float64, requires_grad=True)
    h = torch.randn(6, n, dtype=torch.float64, requires_grad=True)
    d = torch.randn(6, n, dtype=torch.float64)
    C = h @ plain_product(U).mT
    grad_U, grad_h = torch.autograd.grad(C, (U, h), d)
    S = compact_wy.inverse_T(U.detach())
    _, h_tilde = compact_wy.reflect(h.detach(), U.detach(), S)
    found_h, C_tilde = compact_wy.reflect_transpose(d, U.detach(), S)
    found_U = compact_wy.reflector_gradient(U.detach(), h_tilde.mT @ C_tilde, d.mT @ h_tilde, h.detach().mT @ C_tilde)
    bound = tolerance(torch.float64, n * m) * 20
    torch.testing.assert_close(found_h, grad_h, rtol=0, atol=bound)
    torch.testing.assert_close(found_U, grad_U, rtol=bound, atol=bound * float(h_tilde.abs().max() + 1))


def test_normalize_and_its_gradient():
    U = torch.randn(7, 3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(compact_wy.normalize, (U,))
    normalized = compact_wy.normalize(U)
    torch.testing.assert_close((normalized * normalized).sum(dim=0), torch.full((3,), 2.0, dtype=torch.float64))
    grad = torch.randn_like(U)
    expected = torch.autograd.grad(normalized, U, grad)[0]
    found = compact_wy.normalize_backward(grad, U.detach(), normalized.detach())
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close((found * U).sum(dim=0), torch.zeros(3, dtype=torch.float64), rtol=0, atol=1e-14)


@settings(max_examples=60, deadline=None)
@given(
    n=st.integers(1, 12),
    seed=st.integers(0, 10_000),
    scale=st.floats(-35, 35),
    nearness=st.sampled_from([1.0, 1e-3, 1e-8]),
)
def test_always_orthogonal(n, seed, scale, nearness):
    """Whatever the length of the reflectors (10^-35 to 10^35) and however nearly parallel they are."""
    generator = torch.Generator().manual_seed(seed)
    common = torch.randn(n, 1, generator=generator, dtype=torch.float64)
    U = (common + nearness * torch.randn(n, n, generator=generator, dtype=torch.float64)) * 10.0**scale
    W = compact_wy.product(compact_wy.pack(U), n=n)
    error = torch.linalg.matrix_norm(W.mT @ W - torch.eye(n, dtype=torch.float64))
    # S = T^-1 by substitution is off by at most about n eps |S| |T| |S| (Higham, 2002, Theorem 8.5), and U by a factor
    # of norm at most sqrt(2n) on each side: the diagonal of T is 1, what lies above it at most 2.
    S = compact_wy.factors(compact_wy.pack(U), n)[1]
    T = torch.linalg.inv(S)
    growth = torch.linalg.matrix_norm(S.abs() @ T.abs() @ S.abs())
    assert error < tolerance(torch.float64, n) * 2 * n * max(1.0, float(growth))


def test_a_negligible_reflector_is_no_reflection():
    U = torch.tensor([[1.0, 0.0, 1e-32], [2.0, 0.0, 0.0], [0.5, 0.0, 0.0]])
    packed = compact_wy.pack(torch.cat([U[:, :1], torch.zeros(3, 1)], dim=1)).requires_grad_()
    W = compact_wy.product(packed, n=3)
    expected = plain_product(U[:, :1].double())
    torch.testing.assert_close(W.double(), expected, rtol=0, atol=tolerance(torch.float32, 9))
    grad = torch.autograd.grad((W * torch.randn(3, 3)).sum(), packed)[0]
    assert grad.isfinite().all()
    assert (grad[3:] == 0).all()


def test_float32_reflectors_give_float32_accuracy():
    """||W'W - I||_F of the rounded W stays of order eps sqrt(n): T and T^-1 are built in float64."""
    for n, m in ((128, 16), (256, 256)):
        W = compact_wy.product(torch.randn(compact_wy.packed_size(n, m)), n=n)
        assert W.dtype == torch.float32
        error = torch.linalg.matrix_norm(W.double().mT @ W.double() - torch.eye(n).double())
        assert error < 2 * torch.finfo(torch.float32).eps * n**0.5


def test_complex_reflectors_as_real_ones():
    u = torch.randn(6, 4, 2, dtype=torch.float64)
    U = torch.view_as_complex(u)
    W = torch.eye(6, dtype=torch.complex128)
    for column in U.unbind(1):
        W = W @ (torch.eye(6) - 2 * torch.outer(column, column.conj()) / column.abs().square().sum())
    embedded = torch.cat([torch.cat([W.real, -W.imag], dim=1), torch.cat([W.imag, W.real], dim=1)])
    found = compact_wy.product(compact_wy.embed_reflectors(u))
    torch.testing.assert_close(found, embedded, rtol=0, atol=tolerance(torch.float64, 48))


@pytest.mark.parametrize("length", [0.0, 1e-31])
def test_a_negligible_reflector_has_no_gradient(length):
    U = torch.randn(7, 3, dtype=torch.float64)
    U[:, 1] *= length
    U.requires_grad_()
    normalized = compact_wy.normalize(U)
    grad = torch.ones_like(U)
    expected = torch.autograd.grad(normalized, U, grad)[0]
    found = compact_wy.normalize_backward(grad, U.detach(), normalized.detach())
    assert torch.equal(found[:, 1], torch.zeros(7, dtype=torch.float64))
    torch.testing.assert_close(found, expected)
