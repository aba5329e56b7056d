"""The Cayley step: on the manifold, downhill, equal to what its formula says and to what another library computes."""

import pytest
import torch

from orthornn.optim.cayley import cayley_update, polar_step
from orthornn.parametrizations.matrices import orthogonality_error
from support.points import SHAPES
from support.tolerances import tolerance


def pair(n, p, dtype=torch.float64):
    return torch.linalg.qr(torch.randn(n, p, dtype=dtype))[0], torch.randn(n, p, dtype=dtype)


@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128])
@pytest.mark.parametrize(("n", "p"), SHAPES)
@pytest.mark.parametrize("lr", [0.0, 1e-3, 1.0])
def test_both_forms_are_the_formula(n, p, dtype, lr):
    M, G = pair(n, p, dtype)
    A = G @ M.mH - M @ G.mH
    identity = torch.eye(n, dtype=dtype)
    expected = torch.linalg.inv(identity + lr / 2 * A) @ (identity - lr / 2 * A) @ M
    found = cayley_update(M, G, lr)
    torch.testing.assert_close(found, expected, rtol=0, atol=tolerance(torch.float64, 4 * n * n))
    assert orthogonality_error(found) < tolerance(torch.float64, 4 * n * n)
    if lr == 0:
        torch.testing.assert_close(found, M, rtol=0, atol=tolerance(torch.float64, n))


@pytest.mark.parametrize("n", [2, 5, 16])
@pytest.mark.parametrize("lr", [1e-3, 0.3])
def test_a_square_step_is_that_of_geoopt(n, lr):
    """Its canonical retraction along -G/2, in the tangent space, is the Cayley step of rate 1 along G."""
    M, G = pair(n, n)
    import geoopt

    manifold = geoopt.CanonicalStiefel()
    expected = manifold.retr(M, -lr / 2 * manifold.egrad2rgrad(M, G))
    torch.testing.assert_close(cayley_update(M, G, lr), expected, rtol=0, atol=tolerance(torch.float64, 10 * n * n))


@pytest.mark.parametrize(("n", "p"), [(5, 4), (9, 3), (16, 1)])
def test_a_tall_step_is_that_of_the_completed_square(n, p):
    """A depends on M and G alone: with M completed to a square matrix and no gradient there the step is the same."""
    M, G = pair(n, p)
    rest = torch.linalg.qr(torch.cat([M, torch.randn(n, n - p, dtype=M.dtype)], dim=1))[0][:, p:]
    square, gradient = torch.cat([M, rest], dim=1), torch.cat([G, torch.zeros(n, n - p, dtype=G.dtype)], dim=1)
    import geoopt

    manifold = geoopt.CanonicalStiefel()
    expected = manifold.retr(square, -0.05 * manifold.egrad2rgrad(square, gradient))[:, :p]
    torch.testing.assert_close(cayley_update(M, G, 0.1), expected, rtol=0, atol=tolerance(torch.float64, 10 * n * n))


@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128])
@pytest.mark.parametrize(("n", "p"), [s for s in SHAPES if s != (1, 1)])
def test_the_slope_at_zero(n, p, dtype):
    """d/d eta Re <G, M(eta)> = -(||G||^2 - Re tr(G^H M G^H M)), which is -||A||^2 / 2 for a square M: never uphill."""
    for _ in range(10):
        M, G = pair(n, p, dtype)
        expected = -(G.abs().square().sum() - ((G.mH @ M) @ (G.mH @ M)).diagonal().sum().real)
        A = G @ M.mH - M @ G.mH
        if n == p:
            torch.testing.assert_close(expected, -A.abs().square().sum() / 2, rtol=1e-10, atol=0)
        eta = 1e-5 / float(torch.linalg.matrix_norm(A))
        moved = [(G.conj() * cayley_update(M, G, step)).sum().real for step in (eta, -eta)]
        slope = (moved[0] - moved[1]) / (2 * eta)
        assert slope < 0
        # central difference: relative curvature 1e-10, rounding eps / 1e-5 over a slope of at least the part kept
        torch.testing.assert_close(slope, expected, rtol=1e-6, atol=1e-6 * float(G.abs().square().sum()))


def test_the_printed_sign_error_of_released_code_climbs():
    """A = G'M - M'G from the left, as in released code, raises a linear loss at many points; ours at none."""
    ours = theirs = 0
    for _ in range(50):
        M, G = pair(6, 6)
        A = G.mT @ M - M.mT @ G
        identity = torch.eye(6, dtype=M.dtype)
        wrong = torch.linalg.solve(identity + 5e-4 * A, (identity - 5e-4 * A) @ M)
        ours += int((G * cayley_update(M, G, 1e-3)).sum() > (G * M).sum())
        theirs += int((G * wrong).sum() > (G * M).sum())
    assert ours == 0
    assert theirs > 10


@pytest.mark.parametrize("size", [1e-2, 1e-4])
def test_a_polar_step_squares_the_error(size):
    M, noise = pair(8, 5)
    off = M + size * noise / torch.linalg.matrix_norm(noise)
    before = orthogonality_error(off)
    after = orthogonality_error(polar_step(off))
    assert after <= 0.75 * before**2 + 0.25 * before**3 + tolerance(torch.float64, 40)
    assert before > 0.1 * size
