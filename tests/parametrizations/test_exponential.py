"""The logarithm at its hard points, first values, and the dynamic trivialization."""

from __future__ import annotations

import math

import pytest
import torch

from orthornn import MatrixExponential, OrthogonalRNN
from orthornn.errors import ArgumentError, NotOnGroupError
from orthornn.modules import Transition
from orthornn.parametrizations.logarithm import logarithm
from orthornn.parametrizations.matrices import haar
from support.tolerances import tolerance


def rotations(*angles: float) -> torch.Tensor:
    blocks = [[[math.cos(a), -math.sin(a)], [math.sin(a), math.cos(a)]] for a in angles]
    return torch.block_diag(*torch.tensor(blocks, dtype=torch.float64))


def check(W: torch.Tensor) -> None:
    A = logarithm(W)
    assert torch.equal(A, -A.mH)
    assert A.dtype == W.dtype
    # five square roots double an error five times; the exponential of a norm of pi adds as much again
    bound = tolerance(torch.float64, 64 * W.shape[0])
    torch.testing.assert_close(torch.matrix_exp(A), W, rtol=0, atol=bound)


@pytest.mark.parametrize("n", [1, 2, 3, 6, 7, 40])
def test_logarithms_of_random_matrices(n):
    for seed in range(5):
        check(haar(n, True, torch.Generator().manual_seed(seed)))
        W = haar(n, False, torch.Generator().manual_seed(seed))
        W[:, 0] *= torch.linalg.det(W)
        check(W)


def test_logarithms_of_real_matrices_have_angles_up_to_pi():
    W = haar(9, False, torch.Generator().manual_seed(0))
    W[:, 0] *= torch.linalg.det(W)
    largest = float(torch.linalg.matrix_norm(logarithm(W), 2))
    assert largest <= math.pi * (1 + 1e-12)


@pytest.mark.parametrize("off", [0.0, 1e-15, 1e-12, 1e-9, 1e-6, 1e-3])
def test_eigenvalues_at_and_near_minus_one(off):
    Q = haar(8, False, torch.Generator().manual_seed(1))
    check(Q @ rotations(math.pi - off, off / 3 - math.pi, math.pi - off, 0.4) @ Q.mT)
    check(Q @ rotations(math.pi - off, math.pi, 2 * off - math.pi, math.pi) @ Q.mT)
    V = haar(5, True, torch.Generator().manual_seed(2))
    phases = torch.tensor([math.pi, math.pi - off, off - math.pi, 0.0, 1.0], dtype=torch.float64)
    check((V * torch.polar(torch.ones_like(phases), phases)) @ V.mH)


def test_identity_and_its_negative():
    for W in (torch.eye(6), -torch.eye(6), torch.eye(1)):
        check(W.double())
        check(W.to(torch.complex128))


@pytest.mark.parametrize("init", ["henaff", "cayley"])
def test_first_values_are_rotations_by_the_angles_said(init):
    method = MatrixExponential(init=init).bind(41)
    (skew,) = method.initial(torch.Generator().manual_seed(0))
    angles = torch.linalg.eigvals(method(skew)).angle().abs().sort().values
    largest = math.pi if init == "henaff" else math.tan(math.pi / 4)
    assert float(angles[0]) < 1e-12  # the odd row
    # of 20 uniform angles one lies above 0.8 of the largest but for a chance of 0.8^20 = 1 %, for this seed it does
    assert 0.8 * largest < float(angles[-1]) <= largest


@pytest.mark.parametrize("field", ["real", "complex"])
def test_moving_the_base_changes_nothing_but_the_coordinates(field):
    torch.manual_seed(0)
    transition = Transition(MatrixExponential(field=field, rebase_every=3), 6, dtype=torch.float64)
    optimizer = torch.optim.SGD(transition.parameters(), lr=0.1)
    target = haar(6, field == "complex")
    for update in range(1, 8):
        optimizer.zero_grad()
        W = transition.matrix()
        (W - target).abs().square().sum().backward()
        optimizer.step()
        before = transition.matrix().detach()
        transition.after_update_()
        moved = update % 3 == 0
        assert all(bool(free.any()) != moved for free in transition.free())
        torch.testing.assert_close(transition.matrix().detach(), before, rtol=0, atol=tolerance(torch.float64, 36))
    assert int(transition.method.updates) == 7
    copy = Transition(MatrixExponential(field=field, rebase_every=3), 6, dtype=torch.float64)
    copy.load_state_dict(transition.state_dict())
    assert torch.equal(copy.matrix(), transition.matrix())


def test_the_gradient_at_a_new_base_is_the_riemannian_one():
    """At A = 0 the differential of exp is the identity: dL/dA = skew part of B' dL/dW."""
    torch.manual_seed(0)
    method = MatrixExponential(rebase_every=1).bind(5).double()
    B = haar(5, False)
    (skew,) = method.right_inverse(B)
    assert not skew.any()
    skew.requires_grad_()
    G = torch.randn(5, 5, dtype=torch.float64)
    (found,) = torch.autograd.grad((method(skew) * G).sum(), skew)
    R = B.mT @ G
    row, column = torch.triu_indices(5, 5, offset=1)
    torch.testing.assert_close(found, (R - R.mT)[row, column])


def test_a_thousand_moves_stay_orthogonal_in_float32():
    torch.manual_seed(0)
    rnn = OrthogonalRNN(1, 8, parametrization=MatrixExponential(rebase_every=1))
    (_, transition), *_ = rnn.transitions()
    for _ in range(1000):
        with torch.no_grad():
            transition.skew.add_(0.3 * torch.randn_like(transition.skew))
        transition.after_update_()
    assert transition.method.orthogonality_error(transition.matrix()) < 8 * torch.finfo(torch.float32).eps


def test_arguments_and_determinants():
    with pytest.raises(ArgumentError, match="rebase_every"):
        MatrixExponential(rebase_every=0)
    with pytest.raises(ArgumentError, match="init"):
        MatrixExponential(init="haar")
    W = haar(4, False)
    W[:, 0] *= -torch.linalg.det(W)
    with pytest.raises(NotOnGroupError, match=r"determinant -1.*distance 2"):
        MatrixExponential().bind(4).right_inverse(W)
    moved = MatrixExponential(rebase_every=2).bind(4)
    torch.testing.assert_close(moved(*moved.right_inverse(W)), W, rtol=0, atol=tolerance(torch.float64, 4))


def test_first_values_of_henaff_have_both_signs_and_those_of_cayley_one():
    for init, signs in (("henaff", {-1.0, 0.0, 1.0}), ("cayley", {0.0, 1.0})):
        (skew,) = MatrixExponential(init=init).bind(40).initial(torch.Generator().manual_seed(0))
        assert set(skew.sign().tolist()) == signs


def test_bases_do_not_drift():
    """Rounding of a thousand products adds up; that of one does not."""
    torch.manual_seed(0)
    transition = Transition(MatrixExponential(rebase_every=1), 8, dtype=torch.float64)
    for _ in range(300):
        with torch.no_grad():
            transition.skew.add_(0.3 * torch.randn_like(transition.skew))
        transition.after_update_()
    assert transition.method.orthogonality_error(transition.method.base) < 16 * torch.finfo(torch.float64).eps


@pytest.mark.parametrize("field", ["real", "complex"])
def test_an_average_of_bases_counts_as_the_nearest_orthogonal_one(field):
    method = MatrixExponential(field=field, rebase_every=1).bind(5)
    free = method.right_inverse(haar(5, field == "complex"))
    W = method(*free)
    method.base.mul_(0.9)
    torch.testing.assert_close(method(*free), W, rtol=0, atol=tolerance(torch.float64, 25))


def test_complex_matrices_have_the_precision_of_the_free_tensors_and_come_back():
    W = haar(5, True)
    method = MatrixExponential(field="complex").bind(5)
    free = method.right_inverse(W)
    torch.testing.assert_close(method(*free), W, rtol=0, atol=tolerance(torch.float64, 25))
    assert method(*(value.float() for value in free)).dtype == torch.complex64


def test_drawing_again_begins_the_count_and_the_base_again():
    transition = Transition(MatrixExponential(rebase_every=3), 4)
    for _ in range(4):
        transition.after_update_()
    transition.reset_parameters()
    assert int(transition.method.updates) == 0
    assert torch.equal(transition.method.base, torch.eye(4, dtype=torch.float64))
