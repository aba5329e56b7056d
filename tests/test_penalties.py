"""Penalties: their values by hand, their gradients, where they are zero."""

import pytest
import torch
from torch import nn

from orthornn import OrthogonalRNN, Rotations, SpectralMargin, Unconstrained
from orthornn.certify import certified_accuracy, certified_radius, movements
from orthornn.errors import ArgumentError, DTypeError, ShapeError
from orthornn.learn.systems.sequence_model import SequenceModel
from orthornn.modules.tracing import tracing
from orthornn.penalties import (
    certified_margin,
    gradient_norm,
    norm_stabilizer,
    soft_orthogonality,
    spectrum_prior,
    weight_decay,
)
from support.tolerances import tolerance


@pytest.mark.sampled(1)
@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128])
def test_soft_orthogonality(dtype):
    """||W^H W - I||^2 = sum (s^2 - 1)^2; gradient 4 W (W^H W - I); descent along it ends on the manifold."""
    W = torch.randn(5, 3, dtype=dtype, requires_grad=True)
    penalty = soft_orthogonality(W, 0.5)
    s = torch.linalg.svdvals(W.detach())
    torch.testing.assert_close(penalty.detach(), 0.5 * (s**2 - 1).square().sum(), rtol=1e-12, atol=0)
    penalty.backward()
    D = W.detach()
    expected = 0.5 * 4 * D @ (D.mH @ D - torch.eye(3, dtype=dtype))
    torch.testing.assert_close(W.grad, expected, rtol=1e-10, atol=1e-12)
    assert float(soft_orthogonality(torch.linalg.qr(D)[0])) < tolerance(torch.float64, 10)
    optimizer = torch.optim.SGD([W], lr=0.02)
    for _ in range(2000):
        optimizer.zero_grad()
        soft_orthogonality(W).backward()
        optimizer.step()
    assert float(soft_orthogonality(W.detach())) < 1e-12


def test_autocast_leaves_the_precision_of_penalties():
    """W'W - I of an orthogonal W would be rounding alone, and its gradient noise."""
    W = torch.linalg.qr(torch.randn(16, 16))[0].requires_grad_()
    core, x = OrthogonalRNN(3, 16, nonlinearity="tanh"), torch.randn(6, 2, 3)
    with tracing({"core": core}) as traces:
        states = core(x)[0]
    (trace,) = traces["core"]
    (delta,) = torch.autograd.grad(states.square().sum(), trace.projected, retain_graph=True)
    found = []
    for enabled in (False, True):
        with torch.autocast("cpu", enabled=enabled):
            penalties = (soft_orthogonality(W), gradient_norm(trace, delta))
        weights = (W, core.transition_l0.reflectors)
        found.append([*penalties, *map(lambda p, w: torch.autograd.grad(p, w)[0], penalties, weights)])
    for plain, cast in zip(*found):
        assert torch.equal(plain, cast)


def test_spectrum_prior_and_weight_decay():
    s = torch.tensor([1.0, 3.0, -1.0], requires_grad=True)
    penalty = spectrum_prior(s, 0.25)
    penalty.backward()
    assert (penalty.item(), s.grad.tolist()) == (2.0, [0.0, 1.0, -1.0])
    W = torch.randn(4, 4, dtype=torch.complex128)
    torch.testing.assert_close(weight_decay(W, 2.0), 2 * torch.linalg.svdvals(W).square().sum(), rtol=1e-12, atol=0)


def test_the_prior_reaches_the_spectrum_through_the_margin():
    core = OrthogonalRNN(2, 4, parametrization=SpectralMargin(0.5), dtype=torch.float64)
    transition = core.transition_l0
    torch.nn.init.constant_(transition.spectrum, 1.0)
    for _ in range(300):
        penalty = spectrum_prior(transition.method.singular_values(*transition.free()))
        (gradient,) = torch.autograd.grad(penalty, [transition.spectrum])
        with torch.no_grad():
            transition.spectrum -= gradient
    assert transition.spectrum.abs().max() < 1e-6


def test_the_norm_stabilizer_of_no_sequences_and_of_large_states_in_16_bits():
    """It was NaN, and infinity."""
    empty = torch.zeros(5, 0, 4, requires_grad=True)
    norm_stabilizer(empty).backward()
    assert norm_stabilizer(empty) == 0
    assert empty.grad is not None
    large = 300 * torch.arange(1, 4, dtype=torch.float16).view(3, 1, 1)
    assert norm_stabilizer(large).item() == 90_000
    assert norm_stabilizer(large).dtype == torch.float32


def test_the_norm_stabilizer():
    states = torch.tensor([[[3.0, 4.0]], [[0.0, 1.0]], [[0.0, 0.0]]], requires_grad=True)
    penalty = norm_stabilizer(states, strength=2.0)
    assert penalty.item() == pytest.approx(2 * (16 + 1) / 2)
    penalty.backward()
    assert states.grad.isfinite().all()  # also at the state 0
    assert norm_stabilizer(states, torch.zeros(1, 2)).item() == pytest.approx((25 + 16 + 1) / 3)
    core = OrthogonalRNN(1, 5, nonlinearity="identity", bias=False, dtype=torch.float64)
    kept = core(torch.zeros(9, 2, 1, dtype=torch.float64), torch.randn(1, 2, 5, dtype=torch.float64))[0]
    assert norm_stabilizer(kept).item() < tolerance(torch.float64, 100)


@pytest.mark.parametrize("nonlinearity", ["identity", "tanh", "prelu", "modrelu", "oplu"])
def test_the_gradient_norm_penalty_by_hand(nonlinearity):
    """Every step by an explicit Jacobian of a_{k+1} with respect to a_k; its gradient by finite differences of W."""
    T, B, n = 6, 2, 4
    core = OrthogonalRNN(
        3, n, parametrization=SpectralMargin(None), nonlinearity=nonlinearity, gain=1.2, dtype=torch.float64
    )
    layer = core.layers()[0]
    _, parameter = layer.bias()
    with tracing({"": core}) as notes:
        loss = (core(torch.randn(T, B, 3, dtype=torch.float64))[0] - 0.3).square().sum()
    (trace,) = notes[""]
    (delta,) = torch.autograd.grad(loss, trace.projected, retain_graph=True)
    a, W = trace.preactivations().detach(), layer.matrix().detach()
    torch.testing.assert_close(layer.activation(a, parameter), trace.states, rtol=1e-12, atol=1e-14)

    def expected(W):
        total = 0.0
        for k in range(T - 1):
            for b in range(B):
                slope = torch.autograd.functional.jacobian(lambda z: layer.activation(z, parameter), a[k, b])
                jacobian = 1.2 * W @ slope
                before = delta[k + 1, b].norm()
                if before > 0:
                    total += float((jacobian.mT @ delta[k + 1, b]).norm() / before - 1) ** 2
        return total / ((T - 1) * B)

    penalty = gradient_norm(trace, delta)
    assert penalty.item() == pytest.approx(expected(W), rel=1e-10)
    (gradient,) = torch.autograd.grad(penalty, [core.transition_l0.spectrum])
    U, V = core.transition_l0.u.detach(), core.transition_l0.v.detach()
    step = 1e-6
    by_differences = [
        (expected(W + step * U[:, [i]] @ V[:, [i]].mT) - expected(W - step * U[:, [i]] @ V[:, [i]].mT)) / (2 * step)
        for i in range(n)
    ]
    torch.testing.assert_close(gradient, torch.tensor(by_differences).double(), rtol=1e-5, atol=1e-8)


def test_an_orthogonal_linear_network_pays_nothing_for_its_gradients():
    core = OrthogonalRNN(2, 6, parametrization=SpectralMargin(0.0), nonlinearity="identity", dtype=torch.float64)
    with tracing({"": core}) as notes:
        loss = core(torch.randn(5, 3, 2, dtype=torch.float64))[0][-1].sum()
    (trace,) = notes[""]
    (delta,) = torch.autograd.grad(loss, trace.projected, retain_graph=True)
    assert gradient_norm(trace, delta).item() < tolerance(torch.float64, 100)
    # a loss that ends before the sequence does: steps without gradient count as 0
    assert gradient_norm(trace, torch.zeros_like(delta)).item() == 0


def test_a_step_that_restarts_hands_no_gradient_on_and_counts_as_none():
    core = OrthogonalRNN(2, 6, parametrization=SpectralMargin(0.0), nonlinearity="identity", dtype=torch.float64)
    reset = torch.zeros(5, 3, dtype=torch.bool)
    reset[2, 1] = reset[0, 0] = reset[4, 2] = True
    with tracing({"": core}) as notes:
        loss = core(torch.randn(5, 3, 2, dtype=torch.float64), reset=reset)[0].sum()
    (trace,) = notes[""]
    (delta,) = torch.autograd.grad(loss, trace.projected, retain_graph=True)
    assert bool((delta[2, 1] != 0).any())
    assert gradient_norm(trace, delta).item() < tolerance(torch.float64, 100)


@pytest.mark.parametrize("nonlinearity", ["prelu", "modrelu"])
def test_the_gradient_norm_penalty_moves_the_transition_and_the_gain_alone(nonlinearity):
    core = OrthogonalRNN(2, 4, parametrization=SpectralMargin(), nonlinearity=nonlinearity, learn_gain=True, gain=1.2)
    with tracing({"": core}) as notes:
        loss = core(torch.randn(5, 3, 2))[0].square().sum()
    (trace,) = notes[""]
    (delta,) = torch.autograd.grad(loss, trace.projected, retain_graph=True)
    gradient_norm(trace, delta).backward()
    moved = {name for name, parameter in core.named_parameters() if parameter.grad is not None}
    assert moved == {"gain_l0", "transition_l0.u", "transition_l0.v", "transition_l0.spectrum"}


def test_bad_input():
    for penalty in (soft_orthogonality, weight_decay):
        with pytest.raises(ShapeError, match="W to have shape"):
            penalty(torch.zeros(3))
        with pytest.raises(ArgumentError, match="strength"):
            penalty(torch.eye(2), -1.0)
    with pytest.raises(ShapeError, match="s to have"):
        spectrum_prior(torch.eye(2))
    with pytest.raises(ShapeError, match="two steps"):
        norm_stabilizer(torch.zeros(1, 2, 3))
    with pytest.raises(ShapeError, match="h0"):
        norm_stabilizer(torch.zeros(2, 2, 3), torch.zeros(2, 4))
    core = OrthogonalRNN(2, 3)
    with tracing({"": core}) as notes:
        core(torch.zeros(1, 1, 2))
    (trace,) = notes[""]
    with pytest.raises(ShapeError, match="delta to have shape"):
        gradient_norm(trace, torch.zeros(2, 1, 3))
    with pytest.raises(ShapeError, match="two steps"):
        gradient_norm(trace, torch.zeros(1, 1, 3))


@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128], ids=str)
def test_second_derivatives_where_a_penalty_begins(dtype):
    """|x|^2 by abs() has none at 0: at an orthogonal W, or at an entry of zero."""
    W = torch.eye(3, dtype=dtype)
    assert torch.autograd.gradgradcheck(soft_orthogonality, W.clone().requires_grad_())
    assert torch.autograd.gradgradcheck(weight_decay, W.clone().requires_grad_())
    (grad,) = torch.autograd.grad(soft_orthogonality(W.requires_grad_()), W, create_graph=True)
    v = torch.randn(3, 3, dtype=dtype)
    (found,) = torch.autograd.grad((grad * v.conj()).sum().real, W)
    exact = 4 * (v + v.mH)  # the second derivative of ||W'W - I||^2 at I, along v
    torch.testing.assert_close(found, exact)


def test_a_spectrum_is_real():
    with pytest.raises(DTypeError, match="Expected singular values s to be real"):
        spectrum_prior(torch.ones(3) * 1j)


def classifier(**options):
    core = OrthogonalRNN(2, 7, **options).double()
    return SequenceModel(core, nn.Linear(7 * core.num_directions, 3).double())


@pytest.mark.parametrize("mode", ["every", "energy", "one"])
def test_certified_margin_is_zero_exactly_where_every_sequence_is_certified(mode):
    model, x = classifier(nonlinearity="tanh"), torch.randn(6, 9, 2).double()
    scores = model(x).detach()
    targets = scores.argmax(1)
    radius = certified_radius(model, x, targets, mode)
    least, most = float(radius.min()), float(radius.max())
    assert certified_margin(model, scores, targets, 0.99 * least, 6, mode) == 0
    assert certified_margin(model, scores, targets, 1.01 * least, 6, mode) > 0
    assert certified_margin(model, scores, targets, 0.0, 6, mode) == 0
    moved = movements(model, 6, mode).detach()
    short = [max(0, *(2 * most * moved[y, j] - (s[y] - s[j]) for j in range(3))) for s, y in zip(scores, targets)]
    penalty = certified_margin(model, scores, targets, 2 * most, 6, mode, strength=0.5).detach()
    torch.testing.assert_close(penalty, 0.5 * torch.stack([torch.as_tensor(one) for one in short]).mean())


@pytest.mark.parametrize(
    "options",
    [
        {"nonlinearity": "tanh", "parametrization": Unconstrained("glorot")},
        {"nonlinearity": "prelu", "gain": 0.9, "learn_gain": True},
        {"nonlinearity": "relu", "parametrization": SpectralMargin(None, init="glorot"), "num_layers": 2},
        {"nonlinearity": "identity", "bidirectional": True, "parametrization": Rotations(decay=True)},
    ],
)
def test_the_gradient_of_certified_margin(options):
    """By finite differences, along a random direction of all parameters."""
    model, x = classifier(**options), torch.randn(5, 4, 2).double()
    targets, parameters = torch.tensor([0, 1, 2, 0]), list(model.parameters())
    if options["nonlinearity"] == "prelu":
        with torch.no_grad():
            model.core.activation_l0[2] = 1.4

    def penalty():
        return certified_margin(model, model(x), targets, 0.3, 5)

    directions = [torch.randn_like(parameter) for parameter in parameters]
    gradients = torch.autograd.grad(penalty(), parameters, allow_unused=True)
    slope = sum((g * d).sum() for g, d in zip(gradients, directions) if g is not None)
    values, step = [], 1e-6
    with torch.no_grad():
        for sign in (1, -2):
            for parameter, direction in zip(parameters, directions):
                parameter += sign * step * direction
            values.append(penalty())
    torch.testing.assert_close((values[0] - values[1]) / (2 * step), slope, rtol=1e-5, atol=1e-6)


def test_training_with_certified_margin_certifies_more():
    torch.manual_seed(0)
    x = torch.randn(8, 64, 2)
    targets = (x[0, :, 0] > 0).long()
    shares = []
    for strength in (0.0, 5.0):
        torch.manual_seed(1)
        model = SequenceModel(OrthogonalRNN(2, 16, nonlinearity="oplu"), nn.Linear(16, 2))
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
        for _ in range(100):
            scores = model(x)
            loss = nn.functional.cross_entropy(scores, targets)
            loss = loss + certified_margin(model, scores, targets, 0.2, 8, "energy", strength)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        shares.append(certified_accuracy(model.eval(), x, targets, 0.2, "energy"))
    assert shares[1] > shares[0] + 0.1
