"""From matrices back to reflectors: what m reflections reach, to what accuracy, and what they do not."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from orthornn import Householder
from orthornn.compact_wy import pack, unpack
from orthornn.errors import NotOnGroupError
from orthornn.parametrizations.matrices import haar
from orthornn.parametrizations.reduction import towards
from support.tolerances import tolerance


def product_of_any(n, r, generator, fixed=0):
    """A product of r real reflections without any zeros in their vectors, but that it fixes the first coordinates."""
    W = torch.eye(n, dtype=torch.float64)
    for _ in range(r):
        u = torch.randn(n, dtype=torch.float64, generator=generator)
        u[:fixed] = 0
        W = W - torch.outer(u, 2 / (u @ u) * (u @ W))
    return W


def assert_found(method, W, dtype=torch.float64):
    """The free tensors of W rounded to `dtype` give W back to the accuracy of `dtype`."""
    narrow = W.to(dtype.to_complex() if W.is_complex() else dtype)
    free = method.right_inverse(narrow)
    torch.testing.assert_close(method(*free), W, rtol=0, atol=tolerance(dtype, 4 * method.n))
    return free


@pytest.mark.sampled(1)
@pytest.mark.parametrize("n", [2, 3, 5, 12])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
def test_every_product_of_m_reflections_is_reached(n, dtype):
    """Also one whose vectors are no trapezoid; any rank up to m; and no more, the rank being named."""
    generator = torch.Generator().manual_seed(n)
    for m in range(1, n):
        method = Householder(reflections=m).bind(n)
        for r in range(n + 1):
            for fixed in range(n - r + 1):
                W = product_of_any(n, r, generator, fixed)
                if r <= m:
                    assert_found(method, W, dtype)
                else:
                    with pytest.raises(NotOnGroupError, match=rf"<= {m}, .* but got rank {r}. Pass reflections={r}"):
                        method.right_inverse(W.to(dtype))


@settings(max_examples=150, deadline=None)
@given(
    n=st.integers(2, 14),
    share=st.floats(0, 1),
    seed=st.integers(0, 10**6),
    head=st.floats(-14, 0),
    rest=st.floats(-14, 0),
    dtype=st.sampled_from([torch.float64, torch.float32]),
)
def test_nearly_fixed_coordinates_cost_no_accuracy(n, share, seed, head, rest, dtype):
    """e_1 ... e_m moved by as little as 1e-14: the vectors are then badly determined by W, their product is not."""
    generator = torch.Generator().manual_seed(seed)
    m = 1 + int(share * (n - 2))
    method = Householder(reflections=m).bind(n)
    U = unpack(method.initial(generator)[0], n)
    U[0, 0] *= 10**head
    U[: (m + 1) // 2, 1:] *= 10**rest
    assert_found(method, method(pack(U)), dtype)


@pytest.mark.parametrize("distance", [1e-3, 1e-7, 1e-11])
def test_nearly_no_reflections(distance):
    """Rotations by almost nothing: products of almost equal reflections."""
    generator = torch.Generator().manual_seed(0)
    for n, m in ((4, 2), (9, 4), (9, 8)):
        method = Householder(reflections=m).bind(n)
        U = unpack(method.initial(generator)[0], n)
        for j in range(0, m - 1, 2):
            U[j + 1 :, j] = U[j + 1 :, j + 1] + distance * U[j + 1 :, j]
            U[j, j] *= distance
        assert_found(method, method(pack(U)))


def test_small_rotations_of_single_precision_are_kept():
    """Turned by less than what a float32 matrix of this size may be wrong by as a whole, yet far above one entry's eps."""
    n, angle = 64, torch.tensor(5e-5, dtype=torch.float64)
    W = torch.eye(n, dtype=torch.float64)
    W[3, 3] = W[9, 9] = angle.cos()
    W[9, 3], W[3, 9] = angle.sin(), -angle.sin()
    method = Householder(reflections=4).bind(n)
    back = method(*method.right_inverse(W.float()))
    torch.testing.assert_close(back, W, rtol=0, atol=tolerance(torch.float32))


@pytest.mark.parametrize("field", ["real", "complex"])
def test_reflectors_are_as_long_as_drawn_ones_and_zero_only_where_the_determinant_needs_it(field):
    n, m = 7, 5
    identity = torch.eye(n, dtype=torch.complex128 if field == "complex" else torch.float64)
    method = Householder(reflections=m, field=field).bind(n)
    for r in range(m + 1):
        inner = Householder(reflections=max(r, 1), field=field).bind(n)
        W = inner(*inner.initial(torch.Generator().manual_seed(r))) if r else identity
        (free,) = assert_found(method, W)
        norms = (
            unpack(free, n).flatten(2).norm(dim=-1).norm(dim=0) if field == "complex" else unpack(free, n).norm(dim=0)
        )
        wanted = (torch.arange(n, n - m, -1).double() * (2 if field == "complex" else 1)).sqrt()
        if (m - r) % 2:
            wanted[-1] = 0
        torch.testing.assert_close(norms, wanted, rtol=1e-12, atol=0)


def test_complex_products_reached():
    """Generic ones to 1e-9; those that fix leading coordinates where the vectors that are left do."""
    for seed in range(60):
        generator = torch.Generator().manual_seed(seed)
        n = 2 + seed % 9
        m = 1 + seed % (n - 1)
        method = Householder(reflections=m, field="complex").bind(n)
        W = method(*method.initial(generator))
        back = method(*method.right_inverse(W))
        torch.testing.assert_close(back, W, rtol=0, atol=1e-9)
        # Two reflections that fix the first coordinates: their product has eigenvalues e^{+-i t}, and any two fit.
        if n >= 5 and m >= 2:
            pair = Householder(reflections=2, field="complex").bind(n - 2)
            W = torch.eye(n, dtype=torch.complex128)
            W[2:, 2:] = pair(*pair.initial(generator))
            assert_found(method, W)


def test_complex_matrices_not_reached():
    identity = torch.eye(5, dtype=torch.complex128)
    method = Householder(reflections=3, field="complex").bind(5)
    with pytest.raises(NotOnGroupError, match=r"rank\(W - I\) <= 3, .* but got rank 5. Pass reflections=5\.$"):
        method.right_inverse(haar(5, True, torch.Generator().manual_seed(0)))
    # Of rank 1, but no reflection: the phase of its eigenvalue is not -1. Of rank 2 with both phases on one side.
    for phases in ([0, 0, 1.0, 0, 0], [0, 0, 0, 1.0, 2.0], [0.5, 0, 0, 0, -0.5]):
        W = torch.diag(torch.exp(1j * torch.tensor(phases, dtype=torch.float64)))
        with pytest.raises(NotOnGroupError, match=r"Frobenius distance .* is not enough. Pass reflections=5"):
            method.right_inverse(W)
        full = Householder(field="complex").bind(5)
        torch.testing.assert_close(full(*full.right_inverse(W)), W, rtol=0, atol=tolerance(torch.float64, 20))
    with pytest.raises(NotOnGroupError, match=r"rank\(W B\^-1 - I\) <= 1"):
        Householder(reflections=1, field="complex", base="rotations").bind(5).right_inverse(identity.roll(1, 0))


@pytest.mark.parametrize("cosine", [-1.0, -0.5, 0.0, 0.5, 1 - 1e-10, 1.0])
def test_towards_has_full_relative_accuracy(cosine):
    """u = q - e_0, its first entry known to a few eps of itself even where q_0 rounds to 1."""
    sine = 10.0**-12 if cosine == 1.0 else (1 - cosine) ** 0.5 * (1 + cosine) ** 0.5
    q = torch.tensor([cosine, sine], dtype=torch.float64)
    u = towards(q)
    exact = cosine - 1 if cosine <= 0 else -(sine**2) / (1 + cosine)
    assert float(u[0]) == pytest.approx(exact, rel=1e-14)
    image = q - u * (2 * (u @ q) / (u @ u)) if float(u.norm()) else q
    torch.testing.assert_close(image, torch.tensor([1.0, 0.0]).double(), rtol=0, atol=tolerance(torch.float64, 2))


def test_large_matrices_are_quick_and_exact():
    method = Householder(reflections=40).bind(150)
    W = method(*method.initial(torch.Generator().manual_seed(0)))
    assert_found(method, W)
