"""Scaled Cayley: Theorems 3.1 and 3.2, section 4.2, Kahan's bound."""

from __future__ import annotations

import math

import pytest
import scipy.linalg
import torch

from orthornn import ScaledCayley
from orthornn.errors import ArgumentError
from orthornn.parametrizations.matrices import haar
from support.tolerances import tolerance

EXACT = tolerance(torch.float64, 300)


def skew_matrix(n, skew):
    A = torch.zeros(n, n, dtype=torch.float64)
    A[tuple(torch.triu_indices(n, n, 1))] = skew
    return A - A.mT


@pytest.mark.parametrize(("n", "rho"), [(1, 0), (1, 1), (2, 1), (5, 2), (6, 6), (9, 3)])
def test_theorem_3_1(n, rho):
    method = ScaledCayley(negatives=rho).bind(n)
    skew = torch.randn(n * (n - 1) // 2, dtype=torch.float64)
    assert [value.shape for value in method.initial()] == [skew.shape]
    A = skew_matrix(n, skew)
    D = torch.diag(torch.cat([torch.ones(n - rho), -torch.ones(rho)]).double())
    identity = torch.eye(n, dtype=torch.float64)
    expected = torch.from_numpy(scipy.linalg.solve((identity + A).numpy(), ((identity - A) @ D).numpy()))
    torch.testing.assert_close(method(skew), expected, rtol=0, atol=EXACT)
    assert torch.linalg.det(method(skew)) == pytest.approx((-1.0) ** rho)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("field", ["real", "complex"])
def test_theorem_3_2_against_autograd_through_the_solve(field):
    n = 7
    method = ScaledCayley(negatives=3, field=field).bind(n).double()
    free = tuple((value + 0.4 * torch.randn_like(value)).requires_grad_() for value in method.initial())
    A = method.matrix_A(*free)
    identity = torch.eye(n, dtype=A.dtype)
    W = torch.linalg.solve(identity + A, (identity - A) @ torch.diag(method.D.to(A.dtype)))
    weights = torch.randn_like(W)
    expected = torch.autograd.grad((W * weights).real.sum(), free)
    found = torch.autograd.grad((method(*free) * weights).real.sum(), free)
    for a, b in zip(found, expected):
        torch.testing.assert_close(a, b, rtol=EXACT, atol=EXACT)
    assert torch.autograd.gradgradcheck(
        lambda *t: torch.view_as_real(method(*t)) if field == "complex" else method(*t), free
    )


@pytest.mark.parametrize("n", [6, 7])
@pytest.mark.parametrize("rho", [0, 2, 3, 6])
def test_initialization_of_section_4_2(n, rho):
    """Eigenvalues e^{+-it}, t in [0, pi/2], of whole blocks; negated under D; +-1 of a split block; one alone if n is odd."""
    method = ScaledCayley(negatives=rho).bind(n)
    W = method(*method.initial(torch.Generator().manual_seed(n)))
    # Blocks of D from the front: rows (0, 1), (2, 3), ...; D's last rho entries are negative.
    signs = [1] * (n - rho) + [-1] * rho
    expected_real_signs, ones = [], []
    for j in range(0, n - 1, 2):
        if signs[j] == signs[j + 1]:
            expected_real_signs += [signs[j]] * 2
        else:
            ones += [1, -1]
    if n % 2:
        ones.append(signs[-1])
    eigenvalues = torch.linalg.eigvals(W)
    on_axis = eigenvalues[eigenvalues.imag.abs() < 1e-12].real.round().tolist()
    assert sorted(on_axis) == sorted(ones)
    others = eigenvalues[eigenvalues.imag.abs() >= 1e-12].real
    assert int((others > 0).sum()) == expected_real_signs.count(1)
    assert int((others < 0).sum()) == expected_real_signs.count(-1)
    assert torch.linalg.det(W) == pytest.approx((-1.0) ** rho)


def test_angles_of_the_initialization_are_uniform():
    method = ScaledCayley().bind(4000)
    (skew,) = method.initial(torch.Generator().manual_seed(0))
    t = 2 * torch.atan(skew[skew != 0])
    assert t.shape == (2000,)
    assert t.max() <= math.pi / 2
    assert t.mean() == pytest.approx(math.pi / 4, abs=0.05)
    assert t.std() == pytest.approx(math.pi / 2 / math.sqrt(12), abs=0.03)


def test_the_papers_example_of_an_eigenvalue_near_minus_one():
    """W with eigenvalues -0.99999 +- 0.00447i needs |a| = 447 without D; with D a bounded one does."""
    s = math.sqrt(1 - 0.99999**2)
    W = torch.tensor([[-0.99999, -s], [s, -0.99999]], dtype=torch.float64)
    A = torch.linalg.solve(torch.eye(2).double() + W, torch.eye(2).double() - W)
    assert A.abs().max() == pytest.approx(447.212, abs=0.01)
    method = ScaledCayley().bind(2)
    (skew,) = method.right_inverse(W)
    assert skew.abs().max() <= 1
    torch.testing.assert_close(method(skew), W, rtol=0, atol=EXACT)


@pytest.mark.parametrize("n", [1, 2, 3, 8, 25])
@pytest.mark.parametrize("field", ["real", "complex"])
def test_kahans_bound_on_any_matrix(n, field):
    identity = torch.eye(n, dtype=torch.float64)
    matrices = [haar(n, field == "complex", torch.Generator().manual_seed(seed)) for seed in range(6)]
    matrices += [identity, -identity, identity.flip(0), identity.roll(1, 0), -identity.roll(1, 0)]
    for W in matrices:
        W = W.to(torch.complex128) if field == "complex" else W
        method = ScaledCayley(field=field).bind(n)
        free = method.right_inverse(W)
        torch.testing.assert_close(method(*free), W, rtol=0, atol=EXACT)
        largest = 1.0 if field == "real" else math.sqrt(2)
        assert all(
            float(value.norm(dim=-1).max() if value.dim() == 2 else value.abs().max()) <= largest + 1e-9
            for value in free
            if value.numel()
        )
        assert set(method.D.tolist()) <= {-1.0, 1.0}


def test_the_signs_that_right_inverse_finds_are_state():
    """det W may change the group; a state_dict carries D, and initial() brings back the described one."""
    method = ScaledCayley(negatives=2).bind(5)
    assert method.group == "SO"
    W = haar(5, False, torch.Generator().manual_seed(0))
    W[:, 0] *= -torch.linalg.det(W).sign()
    free = method.right_inverse(W)
    assert method.group == "det=-1"
    other = ScaledCayley(negatives=2).bind(5)
    other.load_state_dict(method.state_dict())
    assert other.group == "det=-1"
    assert torch.equal(other(*free), method(*free))
    method.initial()
    assert method.D.tolist() == [1, 1, 1, -1, -1]
    assert ScaledCayley(negatives=3).bind(5).to("meta").group == "det=-1"


def test_the_papers_counts():
    for n, count in ((170, 14365), (190, 17955), (360, 64620), (512, 130816)):
        assert sum(value.numel() for value in ScaledCayley(negatives=n // 2).bind(n).initial()) == count
    assert sum(value.numel() for value in ScaledCayley(field="complex").bind(9).initial()) == 81


def test_bad_arguments():
    with pytest.raises(ArgumentError, match="between 0 and 5, but got 6"):
        ScaledCayley(negatives=6).bind(5)
    with pytest.raises(ArgumentError, match="at least 0, but got -1"):
        ScaledCayley(negatives=-1)
    with pytest.raises(ArgumentError, match=r"'real'\?"):
        ScaledCayley(field="reel")


def test_phases_start_on_the_whole_circle_and_are_trained():
    """Maduranga et al., 2018: W = (I + A)^-1 (I - A) diag(e^{i theta})."""
    method = ScaledCayley(field="complex", phases=True).bind(40).double()
    skew, diagonal, phases = method.initial(torch.Generator().manual_seed(0))
    assert float(phases.min()) < 1
    assert float(phases.max()) > 5
    assert not diagonal.any()
    A = method.matrix_A(skew, diagonal)
    eye = torch.eye(40, dtype=A.dtype)
    expected = torch.linalg.inv(eye + A) @ (eye - A) @ torch.diag(torch.exp(1j * phases))
    torch.testing.assert_close(method(skew, diagonal, phases), expected, rtol=0, atol=tolerance(torch.float64, 40))
    with pytest.raises(ArgumentError, match="phases=True"):
        ScaledCayley(phases=True)


@pytest.mark.sampled(13)
@pytest.mark.parametrize("options", [{}, {"field": "complex"}, {"field": "complex", "phases": True}], ids=str)
@pytest.mark.parametrize("n", [2, 3, 4, 5, 6, 8])
def test_the_negative_identity_to_rounding_is_represented(n, options):
    """Where W = -D, I + W D is nothing but rounding, which may have a small condition number."""
    for seed in range(20):
        Q = haar(n, False, torch.Generator().manual_seed(seed))
        W = -(Q @ Q.mT)
        method = ScaledCayley(**options).bind(n).double()
        W = W.to(torch.complex128) if method.field == "complex" else W
        found = method(*method.right_inverse(W))
        torch.testing.assert_close(found, W, rtol=0, atol=EXACT)
