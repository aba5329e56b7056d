"""Householder: Theorem 1 and its hard cases, determinants, unit eigenvalues, u_1, ranks."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from orthornn import Householder, OrthogonalRNN
from orthornn.compact_wy import unpack
from orthornn.errors import ArgumentError, NotOnGroupError
from orthornn.optim import attach
from support.tolerances import tolerance

EXACT = tolerance(torch.float64, 300)


def oracle(method, free, n):
    """H_n(u_n) ... H_1(u_1) B as a product of matrices, from the packed vectors."""
    reflectors = free[0].detach().double()
    is_complex = method.field == "complex"
    flat = torch.view_as_complex(reflectors.contiguous()) if is_complex else reflectors
    dtype = flat.dtype
    W, at = torch.eye(n, dtype=dtype), 0
    count = n - 1 if method.full else method.m
    for j in range(count):
        u = torch.cat([torch.zeros(j, dtype=dtype), flat[at : at + n - j]])
        at += n - j
        W = W @ (torch.eye(n, dtype=dtype) - 2 * torch.outer(u, u.conj()) / (u.conj() @ u).real)
    if method.full and is_complex:
        return W @ torch.diag(torch.exp(1j * free[1].detach().double()))
    if method.full:
        W = W @ torch.diag(torch.cat([torch.ones(n - 1, dtype=dtype), torch.sign(flat[-1]).reshape(1)]))
    return W


@pytest.mark.parametrize("field", ["real", "complex"])
@pytest.mark.parametrize(("n", "m"), [(1, 1), (2, 1), (2, 2), (5, 3), (6, 6), (9, 8)])
def test_equations_6_to_9(n, m, field):
    method = Householder(reflections=m, field=field).bind(n)
    free = method.initial()
    torch.testing.assert_close(method(*free), oracle(method, free, n), rtol=0, atol=EXACT)


@pytest.mark.parametrize("train_angles", [False, True])
@pytest.mark.parametrize("field", ["real", "complex"])
@pytest.mark.parametrize(("n", "m"), [(1, 1), (2, 2), (5, 2), (6, 3), (7, 7)])
def test_rotations_stand_to_the_right(n, m, field, train_angles):
    """W = (product of reflections) R: R rotates the pairs (i, i + n - n//2), or multiplies by phases."""
    method = Householder(reflections=m, field=field, base="rotations", train_angles=train_angles).bind(n)
    free = method.initial(torch.Generator().manual_seed(n))
    angles = (free[-1] if train_angles else method.angles).double()
    assert angles.shape == (n if field == "complex" else n // 2,)
    if field == "complex":
        R = torch.diag(torch.exp(1j * angles))
    else:
        R = torch.eye(n, dtype=torch.float64)
        for i, angle in enumerate(angles.tolist()):
            k = i + n - n // 2
            R[i, i] = R[k, k] = math.cos(angle)
            R[i, k], R[k, i] = -math.sin(angle), math.sin(angle)
    expected = oracle(method, free, n)
    if field == "complex" and m == n:  # theta and the angles are both diagonal
        assert torch.equal(free[1], free[1].clamp(-math.pi, math.pi))
    torch.testing.assert_close(method(*free), expected @ R, rtol=0, atol=EXACT)


@pytest.mark.parametrize(("n", "m"), [(1, 1), (4, 4), (6, 2), (256, 32)])
def test_the_papers_counts(n, m):
    free = Householder(reflections=m).bind(n).initial()
    assert sum(value.numel() for value in free) == n * m - m * (m - 1) // 2
    complex_free = Householder(field="complex").bind(n).initial()
    assert sum(value.numel() for value in complex_free) == (n * (n + 1) - 2) + n  # u_2 .. u_n of C^k, and theta


def hard_cases(n):
    identity = torch.eye(n, dtype=torch.float64)
    generator = torch.Generator().manual_seed(n)
    reversed_rows = identity.flip(0)
    signs = torch.where(torch.rand(n, generator=generator) < 0.5, -1.0, 1.0).double()
    noise = torch.linalg.qr(identity + 1e-7 * torch.randn(n, n, dtype=torch.float64, generator=generator))
    noisy = noise[0] * noise[1].diagonal().sign()
    almost = torch.linalg.qr(identity + 1e-15 * torch.randn(n, n, dtype=torch.float64, generator=generator))
    return {
        "I": identity,
        "-I": -identity,
        "reversal": reversed_rows,
        "shift": identity.roll(1, 0),
        "permutation": identity[torch.randperm(n, generator=generator)],
        "signs": torch.diag(signs),
        "one reflection": torch.diag(torch.cat([torch.ones(n - 1), -torch.ones(1)]).double()),
        "first reflection": torch.diag(torch.cat([-torch.ones(1), torch.ones(n - 1)]).double()),
        "I + 1e-7 noise": noisy,
        "-I + 1e-7 noise": -noisy,
        "I + rounding": almost[0] * almost[1].diagonal().sign(),
    }


@pytest.mark.sampled(1)
@pytest.mark.parametrize("n", [1, 2, 3, 6, 17])
@pytest.mark.parametrize("base", ["identity", "rotations"])
def test_theorem_1_hard_cases(n, base):
    for name, W in hard_cases(n).items():
        for dtype in (torch.float64, torch.float32):
            method = Householder(base=base).bind(n)
            method.initial(torch.Generator().manual_seed(1))
            free = method.right_inverse(W.to(dtype))
            assert (method(*free) - W).abs().max() < tolerance(dtype, n), name
            norms = unpack(free[0][:-1], n).norm(dim=0)
            drawn = torch.arange(n, 1, -1, dtype=torch.float64).sqrt()
            torch.testing.assert_close(norms, drawn, rtol=EXACT, atol=0, msg=name)  # none is zero: each can be trained
        for complex_W in (W.to(torch.complex128), 1j * W.to(torch.complex128)):
            method = Householder(field="complex").bind(n)
            assert (method(*method.right_inverse(complex_W)) - complex_W).abs().max() < EXACT, name


@pytest.mark.parametrize("n", [4, 7])
def test_determinants(n):
    for m in range(1, n):
        method = Householder(reflections=m).bind(n)
        assert torch.linalg.det(method(*method.initial())) == pytest.approx((-1.0) ** m)
    method = Householder().bind(n)
    found = set()
    for seed in range(12):
        free = method.initial(torch.Generator().manual_seed(seed))
        sign = round(float(torch.linalg.det(method(*free))))
        assert sign == (-1) ** (n - 1) * int(free[0][-1])
        found.add(sign)
    assert found == {-1, 1}


@pytest.mark.parametrize("field", ["real", "complex"])
@pytest.mark.parametrize(("n", "m"), [(40, 6), (40, 7), (41, 6), (41, 7), (7, 1), (8, 1)])
def test_unit_eigenvalues(n, m, field):
    """n - m eigenvalues are 1 without rotations. With them none is, but for one of a real W with odd n - m: 1 and -1
    together have the parity of n, and -1 that of m, since det W = (-1)^m.
    """

    def units(method):
        eigenvalues = torch.linalg.eigvals(method(*method.initial(torch.Generator().manual_seed(0))))
        return int(((eigenvalues - 1).abs() < 1e-9).sum())

    assert units(Householder(reflections=m, field=field).bind(n)) == n - m
    left = (n - m) % 2 if field == "real" else 0
    assert units(Householder(reflections=m, field=field, base="rotations").bind(n)) == left


@pytest.mark.parametrize("angles", ["full", "quarter", "log"])
def test_angles(angles):
    import math

    method = Householder(reflections=1, base="rotations", angles=angles).bind(2001)
    method.initial(torch.Generator().manual_seed(0))
    drawn = method.angles.double()
    reach = math.pi / 2 if angles == "quarter" else math.pi
    assert drawn.shape == (1000,)
    assert drawn.abs().max() <= reach
    assert drawn.abs().max() > 0.9 * reach
    assert (drawn > 0).double().mean() == pytest.approx(0.5, abs=0.08)
    if angles == "log":  # uniform in the logarithm: half of the angles below the geometric mean of the ends
        assert (drawn.abs() < math.sqrt(1e-3 * math.pi)).double().mean() == pytest.approx(0.5, abs=0.08)


def test_the_papers_reset_cannot_change_the_sign_of_u1():
    """Adam at rate .01 on a loss that wants the other sign, u_1 reset to +-1 after each update: no flip."""
    u1 = torch.nn.Parameter(torch.ones(()))
    optimizer = torch.optim.Adam([u1], lr=0.01)
    for _ in range(2000):
        optimizer.zero_grad()
        (u1 + 1).square().backward()
        optimizer.step()
        with torch.no_grad():
            u1.copy_(torch.where(u1 <= 0, -1.0, 1.0))
        assert u1 == 1


def test_u1_as_a_sign_has_no_gradient_and_soft_has_one():
    for u1 in ("sign", "soft"):
        method = Householder(u1=u1).bind(4)
        reflectors = method.initial(torch.Generator().manual_seed(0))[0].requires_grad_()
        if u1 == "soft":
            with torch.no_grad():
                reflectors[-1] = 0.3
        W = method(reflectors)
        grad = torch.autograd.grad((W * torch.randn(4, 4).double()).sum(), reflectors)[0]
        assert (grad[-1] != 0) == (u1 == "soft")
        singular = torch.linalg.svdvals(W.detach())
        assert singular[-1] == pytest.approx(0.3 if u1 == "soft" else 1.0)
        with torch.no_grad():
            reflectors[-1] = 1.7
            method.after_update_(reflectors)
        assert reflectors[-1] == (1.0 if u1 == "soft" else 1.7)


def test_what_u1_means_outside_its_range():
    """A sign: 0 counts as -1, as in the paper. Soft: clamped also where no update has clamped it yet."""
    reflectors = Householder().bind(3).initial(torch.Generator().manual_seed(0))[0]
    for value, sign in ((-2.0, -1), (0.0, -1), (1e-30, 1), (5.0, 1)):
        reflectors[-1] = value
        assert torch.linalg.det(Householder().bind(3)(reflectors)) == pytest.approx(sign)
    for value in (-1.7, 1.7):
        reflectors[-1] = value
        assert Householder().bind(3).orthogonality_error(Householder(u1="soft").bind(3)(reflectors)) < EXACT


@settings(max_examples=40, deadline=None)
@given(
    n=st.integers(2, 10),
    seed=st.integers(0, 1000),
    nearness=st.sampled_from([1.0, 1e-4, 1e-12, 0.0]),
    exponent=st.integers(-25, 25),
    field=st.sampled_from(["real", "complex"]),
)
def test_orthogonal_for_ill_conditioned_reflectors(n, seed, nearness, exponent, field):
    """Nearly parallel, equal, tiny and huge reflectors."""
    generator = torch.Generator().manual_seed(seed)
    method = Householder(reflections=n - 1, field=field).bind(n)
    (free,) = method.initial(generator)
    at, column = 0, torch.randn(n, *free.shape[1:], generator=generator, dtype=torch.float64)
    for j in range(n - 1):
        free[at : at + n - j] = (column[j:] + nearness * free[at : at + n - j]) * 10.0**exponent
        at += n - j
    assert method.orthogonality_error(method(free)) < tolerance(torch.float64, n * n)


def test_zero_reflectors():
    method = Householder(reflections=3).bind(5)
    free = torch.zeros(12, requires_grad=True)
    W = method(free)
    assert torch.equal(W, torch.eye(5))
    W.sum().backward()
    assert torch.equal(free.grad, torch.zeros(12))


@pytest.mark.sampled(6)
@pytest.mark.parametrize("base", ["identity", "rotations"])
@pytest.mark.parametrize("n", [1, 2, 5, 8])
def test_soft_u1_is_found_again(n, base):
    """W = Q diag(1, ..., 1, u_1) R for u_1 inside [-1, 1], and nothing else."""
    method = Householder(u1="soft", base=base).bind(n)
    free = method.initial(torch.Generator().manual_seed(n))[0]
    for u1 in (-1.0, -0.3, 0.0, 1e-9, 0.7, 1.0):
        free[-1] = u1
        W = method(free)
        back = method.right_inverse(W)[0]
        torch.testing.assert_close(method(back), W, rtol=0, atol=EXACT)
        assert abs(float(back[-1])) == pytest.approx(abs(u1), abs=EXACT)
    for scale in (1.5, 0.5):
        with pytest.raises(NotOnGroupError, match="except for the length of its last column") as caught:
            method.right_inverse(W * (scale if n > 1 else 1.5))
        assert "distance" in str(caught.value)


def test_bad_arguments():
    for arguments, n, message in (
        ({"reflections": 200}, 128, "between 1 and 128, but got 200. Pass reflections=128"),
        ({"reflections": 0}, 4, "at least 1, but got 0"),
        ({"field": "complx"}, 4, r"'complex'\?"),
        ({"base": "rotation"}, 4, r"'rotations'\?"),
        ({"u1": "hard"}, 4, "u1"),
        ({"angles": "quarter"}, 4, "base"),
        ({"u1": "soft", "reflections": 2}, 4, "u1='soft'"),
        ({"reflections": True}, 4, "True"),
        ({"base": "rotations", "angles": "ful"}, 4, r"'full'\?"),
    ):
        with pytest.raises(ArgumentError, match=message):
            Householder(**arguments).bind(n)


@pytest.mark.parametrize(("n", "m"), [(2, 1), (5, 3), (7, 7)])
def test_unit_reflectors_keep_their_norm_and_change_no_matrix(n, m):
    method = Householder(reflections=m, unit=True).bind(n)
    (packed,) = method.initial(torch.Generator().manual_seed(n))
    count = m - 1 if m == n else m

    def norms():
        return unpack(packed[: packed.numel() - (m == n)], n)[:, :count].norm(dim=0)

    one = torch.ones(count, dtype=torch.float64)
    torch.testing.assert_close(norms(), one, rtol=0, atol=tolerance(torch.float64, n))
    u1 = packed[-1].clone()
    packed[: packed.numel() - (m == n)] *= 3.5
    before = method(packed)
    method.after_update_(packed)
    torch.testing.assert_close(norms(), one, rtol=0, atol=tolerance(torch.float64, n))
    torch.testing.assert_close(method(packed), before, rtol=0, atol=EXACT)
    assert m < n or packed[-1] == u1


@pytest.mark.parametrize(("n", "m"), [(1, 1), (5, 3), (8, 8)])
def test_unit_reflectors_of_a_matrix_have_norm_1(n, m):
    """An optimizer's first step after an assignment must turn them as much as any other."""
    made = Householder(reflections=m).bind(n)
    W = made(*made.initial(torch.Generator().manual_seed(n)))
    method = Householder(reflections=m, unit=True).bind(n)
    (packed,) = method.right_inverse(W)
    torch.testing.assert_close(method(packed), W, rtol=0, atol=EXACT)
    count = m - 1 if m == n else m
    norms = unpack(packed[: packed.numel() - (m == n)], n)[:, :count].norm(dim=0)
    torch.testing.assert_close(norms, torch.ones_like(norms), rtol=0, atol=tolerance(torch.float64, n))


def test_the_optimizer_brings_reflectors_back_to_norm_1():
    rnn = OrthogonalRNN(1, 5, parametrization=Householder(reflections=3, unit=True))
    optimizer = torch.optim.Adam(rnn.parameters(), lr=0.1)
    attach(rnn, optimizer)
    rnn(torch.randn(4, 2, 1))[0].sum().backward()
    before = rnn.transition_l0.reflectors.detach().clone()
    optimizer.step()
    after = rnn.transition_l0.reflectors.detach()
    assert not torch.equal(after, before)
    bound = tolerance(torch.float32, 5)
    torch.testing.assert_close(unpack(after, 5).norm(dim=0), torch.ones(3), rtol=0, atol=bound)


def test_unit_reflectors_are_real():
    with pytest.raises(ArgumentError, match="real reflectors"):
        Householder(unit=True, field="complex")


def test_unit_leaves_a_soft_u1_as_it_is():
    method = Householder(unit=True, u1="soft").bind(4)
    (packed,) = method.initial(torch.Generator().manual_seed(0))
    packed[-1] = 0.3
    method.after_update_(packed)
    assert packed[-1] == 0.3


def test_complex_matrices_have_the_precision_of_the_free_tensors_and_phases_all_around():
    method = Householder(field="complex").bind(60)
    free = method.initial(torch.Generator().manual_seed(0))
    assert -math.pi < float(free[1].min()) < -0.8 * math.pi
    assert 0.8 * math.pi < float(free[1].max()) < math.pi
    assert method(*(value.float() for value in free)).dtype == torch.complex64


def test_unit_leaves_a_zero_reflector_at_zero():
    method = Householder(reflections=2, unit=True).bind(4)
    (packed,) = method.initial(torch.Generator().manual_seed(0))
    packed[:4] = 0
    kept = packed.clone()
    method.after_update_(packed)
    torch.testing.assert_close(packed, kept, rtol=0, atol=EXACT)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("scale", [1e-38, 1e-31, 1e-29, 1e-25, 1e25, 1e37, 1e200])
@pytest.mark.parametrize("m", [3, 6])
def test_unit_changes_no_matrix_whatever_the_lengths(m, scale, dtype):
    """Also where squares leave the range of the dtype, and where a reflector is too short to represent a reflection."""
    if scale > torch.finfo(dtype).max:
        pytest.skip("no number of this dtype")
    method = Householder(reflections=m, unit=True).bind(6)
    packed = method.initial(torch.Generator().manual_seed(m))[0].to(dtype)
    packed[6:11] *= scale
    before = method(packed)
    method.after_update_(packed)
    torch.testing.assert_close(method(packed), before, rtol=0, atol=tolerance(dtype, 6))
    lengths = unpack(packed[: packed.numel() - (m == 6)], 6).double().norm(dim=0)
    if scale >= 1e-29:
        torch.testing.assert_close(lengths, torch.ones_like(lengths), rtol=0, atol=tolerance(dtype, 6))


def test_a_seed_gives_the_same_network_under_every_default_dtype():
    found = []
    for dtype in (torch.float32, torch.float64, torch.bfloat16):
        before = torch.get_default_dtype()
        torch.set_default_dtype(dtype)
        try:
            torch.manual_seed(3)
            found.append(OrthogonalRNN(2, 5, parametrization=Householder(), dtype=torch.float32).state_dict())
        finally:
            torch.set_default_dtype(before)
    for other in found[1:]:
        assert all(torch.equal(value, other[name]) for name, value in found[0].items())
