"""Spectral margins: the bounds of eq. 10, the three initializations, what margin 0 and None mean."""

from fractions import Fraction

import numpy as np
import pytest
import torch

from orthornn import SpectralMargin
from orthornn.errors import ArgumentError, NotOnGroupError
from support.tolerances import tolerance

EXACT = tolerance(torch.float64, 100)


@pytest.mark.parametrize("margin", [0.001, 0.1, 1.0, 100.0])
def test_singular_values_stay_within_the_margin(margin):
    method = SpectralMargin(margin=margin).bind(6)
    u, v, p = method.initial()
    for scale in (0.0, 1.0, 30.0):
        free = (u, v, p + scale * torch.randn(6, dtype=torch.float64))
        s = method.singular_values(*free)
        torch.testing.assert_close(s, 2 * margin * (1 / (1 + torch.exp(-free[2])) - 0.5) + 1, rtol=EXACT, atol=0)
        assert (s - 1).abs().max() <= margin + EXACT
        found = torch.linalg.svdvals(method(*free))
        torch.testing.assert_close(found, s.abs().sort(descending=True)[0], rtol=EXACT, atol=EXACT * margin)


@pytest.mark.parametrize("margin", [np.float32(0.1), Fraction(1, 10), 1])
def test_a_margin_may_be_any_real_number(margin):
    """And descriptions that are equal have equal hashes."""
    description = SpectralMargin(margin=margin)
    assert type(description.margin) is float
    assert {description: 1}[SpectralMargin(margin=float(margin))]
    W = description.bind(4)(*description.bind(4).initial())
    assert float((torch.linalg.svdvals(W) - 1).abs().max()) <= margin


def test_margin_zero_has_no_spectrum_and_none_has_a_free_one():
    assert [len(SpectralMargin(margin=m).bind(4).initial()) for m in (0, 0.0, 0.1, None)] == [2, 2, 3, 3]
    method = SpectralMargin(margin=None).bind(4)
    u, v, _ = method.initial()
    s = torch.tensor([3.0, 2.0, 0.5, 0.0], dtype=torch.float64)
    torch.testing.assert_close(torch.linalg.svdvals(method(u, v, s)), s, rtol=0, atol=EXACT)


@pytest.mark.parametrize("margin", [3.0, None])
def test_nonnegative_replaces_what_is_below_zero_by_zero_and_passes_no_gradient_there(margin):
    method, signed = (SpectralMargin(margin=margin, nonnegative=chosen).bind(5) for chosen in (True, False))
    u, v, _ = method.initial()
    p = torch.tensor([-4.0, -2.0, -0.5, 0.0, 3.0], dtype=torch.float64, requires_grad=True)
    s = signed.singular_values(u, v, p).detach()
    assert (s < 0).sum() >= 2
    W = method(u, v, p)
    torch.testing.assert_close(W.detach(), (u * s.clamp(min=0)) @ v.T, rtol=0, atol=EXACT)
    (u.T @ W @ v).diagonal().sum().backward()
    assert torch.equal(p.grad == 0, s < 0)
    with pytest.raises(ArgumentError, match="nonnegative"):
        SpectralMargin(nonnegative="yes")


@pytest.mark.parametrize("margin", [0, 0.2, None])
def test_initializations(margin):
    generator = torch.Generator().manual_seed(0)
    identity = torch.eye(5, dtype=torch.float64)
    found = {}
    for init in ("orthogonal", "identity", "glorot"):
        method = SpectralMargin(margin=margin, init=init).bind(5)
        free = method.initial(generator)
        found[init] = method(*free)
        for basis in free[:2]:
            assert method.orthogonality_error(basis) < EXACT
    torch.testing.assert_close(found["identity"], identity, rtol=0, atol=EXACT)
    assert SpectralMargin().bind(5).orthogonality_error(found["orthogonal"]) < EXACT
    s = torch.linalg.svdvals(found["glorot"])
    if margin is None:
        assert s.max() > 1.2
        assert s.min() < 0.5
    else:
        assert (s - 1).abs().max() <= margin + EXACT


def test_glorot_without_margin_has_the_variance_of_glorot():
    method = SpectralMargin(margin=None, init="glorot").bind(200)
    W = method(*method.initial(torch.Generator().manual_seed(0)))
    assert W.var() == pytest.approx(1 / 200, rel=0.05)


def test_bases_are_named_as_stiefel():
    assert SpectralMargin().bind(3).manifolds == {"u": "stiefel", "v": "stiefel"}


@pytest.mark.parametrize("margin", [0.1, 1.0, 1.5])
def test_right_inverse_strictly_within_the_margin(margin):
    method = SpectralMargin(margin=margin).bind(3)
    Q = torch.linalg.qr(torch.randn(3, 3, dtype=torch.float64))[0]
    for inside in (0.0, 0.5, 1 - 1e-6):
        W = Q * torch.tensor([1.0, 1 + inside * margin, max(1 - inside * margin, 0.0)], dtype=torch.float64)
        free = method.right_inverse(W)
        torch.testing.assert_close(method(*free), W, rtol=0, atol=EXACT)
        assert free[2].isfinite().all()
    for s in (1 + margin * (1 + 1e-9), 3.0):
        with pytest.raises(NotOnGroupError, match=f"Expected singular values strictly within {margin:g} of 1"):
            method.right_inverse(Q * torch.tensor([1.0, s, 1.0], dtype=torch.float64))


def test_bad_arguments_and_matrices():
    for margin in (-0.1, float("nan"), "wide"):
        with pytest.raises(ArgumentError, match="margin"):
            SpectralMargin(margin=margin)
    with pytest.raises(ArgumentError, match=r"'glorot'\?"):
        SpectralMargin(init="glorott")
    with pytest.raises(NotOnGroupError, match=r"within 0.1 of 1, the margin, but got values between 0.5 and 1.5"):
        SpectralMargin(margin=0.1).bind(2).right_inverse(torch.diag(torch.tensor([0.5, 1.5])))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("margin", [1e-17, 1e-15, 1e-12, 1e-7, 1e-3])
def test_a_tiny_margin_has_finite_parameters(margin, dtype):
    """Below the rounding of a singular value, too, where those of an orthogonal matrix are outside of the margin."""
    for init in ("orthogonal", "glorot", "identity"):
        method = SpectralMargin(margin=margin, init=init).bind(5)
        assert all(bool(part.isfinite().all()) for part in method.initial(torch.Generator().manual_seed(0)))
    W = torch.linalg.qr(torch.randn(5, 5, dtype=torch.float64))[0].to(dtype)
    again = method(*(part.to(dtype) for part in method.right_inverse(W)))
    torch.testing.assert_close(again, W, rtol=0, atol=tolerance(dtype, 5))
