"""convert: the same network where the target spans W, else the nearest and a warning with its distance."""

from __future__ import annotations

import warnings

import pytest
import torch
from torch import nn

from orthornn import (
    GORU,
    Givens,
    Householder,
    MatrixExponential,
    OrthogonalRNN,
    OrthogonalRNNCell,
    RestrictedUnitary,
    ScaledCayley,
    SpectralMargin,
    Stiefel,
    Unconstrained,
    convert,
)
from orthornn.errors import ArgumentError, NotOnGroupError
from orthornn.modules import ApproximationWarning, DeltaRNN, ReflectionRNN, Transition
from orthornn.modules.fold import fold
from support.tolerances import tolerance

I, N = 2, 6
REAL = [Householder(), ScaledCayley(), MatrixExponential(), Givens(), Stiefel(), SpectralMargin(margin=0.1)]
COMPLEX = [
    Householder(field="complex"),
    ScaledCayley(field="complex"),
    ScaledCayley(field="complex", phases=True),
    MatrixExponential(field="complex"),
    MatrixExponential(field="complex", rebase_every=3),
    Givens(field="complex"),
    Stiefel(field="complex"),
]


def exact(source, target, **options):
    torch.manual_seed(0)
    network = OrthogonalRNN(I, N, 2, parametrization=source, dtype=torch.float64, learn_h0=True, **options)
    x = torch.randn(4, 3, I, dtype=torch.float64)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        converted = convert(network, target)
    assert converted.parametrization == target
    assert all(t.method.__class__ is target.bind(N).__class__ for _, t in converted.transitions())
    torch.testing.assert_close(converted(x)[0], network(x)[0], rtol=0, atol=tolerance(torch.float64, 4 * N * N))
    assert network.parametrization == source
    return converted


@pytest.mark.parametrize("target", REAL, ids=repr)
@pytest.mark.parametrize("source", [ScaledCayley(), MatrixExponential()], ids=repr)
def test_exact_between_real_methods(source, target):
    converted = exact(source, target)
    converted(torch.randn(4, 3, I, dtype=torch.float64))[0].sum().backward()
    assert all(parameter.grad is not None for parameter in converted.parameters())


@pytest.mark.parametrize("target", COMPLEX, ids=repr)
@pytest.mark.parametrize("source", [ScaledCayley(field="complex"), RestrictedUnitary()], ids=repr)
def test_exact_between_unitary_methods(source, target):
    exact(source, target)


def test_a_transition_that_networks_share_stays_shared():
    first, second = (OrthogonalRNN(I, N, parametrization=Householder(), dtype=torch.float64) for _ in range(2))
    second.transition_l0 = first.transition_l0
    pair = convert(nn.ModuleList([first, second]), Stiefel())
    assert pair[0].transition_l0 is pair[1].transition_l0
    assert isinstance(pair[1].transition_l0.method, Stiefel().bind(N).__class__)
    assert second.transition_l0 is first.transition_l0
    x = torch.randn(4, 3, I, dtype=torch.float64)
    for mine, theirs in zip(pair, (first, second)):
        torch.testing.assert_close(mine(x)[0], theirs(x)[0], rtol=0, atol=tolerance(torch.float64, 40 * N))


def test_a_determinant_out_of_reach_costs_a_distance_of_two():
    torch.manual_seed(0)
    network = OrthogonalRNN(I, N, parametrization=ScaledCayley(negatives=1), dtype=torch.float64)
    with pytest.warns(ApproximationWarning, match=r"transition_l0: 2"):
        converted = convert(network, MatrixExponential())
    assert float(torch.linalg.det(converted.weight_hh_l0.detach())) == pytest.approx(1)
    with pytest.raises(NotOnGroupError, match="determinant"):
        convert(network, MatrixExponential(), approximate=False)
    exact(ScaledCayley(negatives=1), MatrixExponential(rebase_every=5))


def test_fewer_reflections_and_rotations_are_the_nearest_found():
    torch.manual_seed(0)
    network = OrthogonalRNN(I, N, parametrization=Stiefel(), dtype=torch.float64)
    for target in (Householder(reflections=2), Givens(layers=2)):
        with pytest.warns(ApproximationWarning, match="Frobenius distance") as caught:
            converted = convert(network, target)
        said = float(str(caught[0].message).rsplit(": ", 1)[1].rstrip("."))
        W, near = network.weight_hh_l0.detach(), converted.weight_hh_l0.detach()
        assert said == pytest.approx(float(torch.linalg.matrix_norm(near - W)), rel=0.5e-2)  # three digits are printed
        drawn = target.bind(N).double()
        for seed in range(5):
            random = drawn(*drawn.initial(torch.Generator().manual_seed(seed)))
            assert said < float(torch.linalg.matrix_norm(random - W))


def test_any_matrix_goes_to_its_polar_factor_or_into_its_margin():
    torch.manual_seed(0)
    network = OrthogonalRNN(I, N, parametrization=Unconstrained(init="glorot"), dtype=torch.float64)
    W = network.weight_hh_l0.detach()
    left, s, right = torch.linalg.svd(W)
    with pytest.warns(ApproximationWarning):
        orthogonal = convert(network, Householder())
    # the polar factor changes by at most 2 / (sum of the two least singular values) of an error in W (Li, 1995)
    bound = tolerance(torch.float64, N * N) * max(1, 2 / float(s[-1] + s[-2]))
    torch.testing.assert_close(orthogonal.weight_hh_l0, left @ right, rtol=0, atol=bound)
    with pytest.warns(ApproximationWarning):
        margin = convert(network, SpectralMargin(margin=0.5))
    found = torch.linalg.svdvals(margin.weight_hh_l0)
    torch.testing.assert_close(found, s.clamp(0.5005, 1.4995), rtol=0, atol=tolerance(torch.float64, N * N))


def test_the_nearest_rotation_turns_the_least_singular_direction():
    """min ||Q - W|| over SO(n) for det W < 0 is sqrt(sum_i<n (s_i - 1)^2 + (s_n + 1)^2) (Schoenemann, 1966)."""
    torch.manual_seed(0)
    network = OrthogonalRNN(I, N, parametrization=Unconstrained(init="glorot"), dtype=torch.float64)
    W = network.weight_hh_l0.detach().clone()
    W[:, 0] *= -torch.linalg.det(W).sign()
    network.weight_hh_l0 = W
    *large, least = torch.linalg.svdvals(W).tolist()
    nearest = (sum((s - 1) ** 2 for s in large) + (least + 1) ** 2) ** 0.5
    with pytest.warns(ApproximationWarning, match=f"transition_l0: {nearest:.3g}"):
        converted = convert(network, MatrixExponential())
    found = float(torch.linalg.matrix_norm(converted.weight_hh_l0.detach() - W))
    assert found == pytest.approx(nearest, rel=tolerance(torch.float64, 64 * N))


@pytest.mark.parametrize("sign", [1.0, -1.0])
@pytest.mark.parametrize(
    "target",
    [ScaledCayley(), ScaledCayley(negatives=1), Givens(), MatrixExponential(rebase_every=3), Householder(), Stiefel()],
    ids=repr,
)
def test_a_determinant_that_a_buffer_holds_costs_nothing(target, sign):
    """Of any matrix the polar factor is the nearest that is orthogonal, at sqrt(sum_i (s_i - 1)^2)."""
    torch.manual_seed(0)
    network = OrthogonalRNN(I, N, parametrization=Unconstrained(init="glorot"), dtype=torch.float64)
    W = network.weight_hh_l0.detach().clone()
    W[:, 0] *= sign * torch.linalg.det(W).sign()
    network.weight_hh_l0 = W
    with pytest.warns(ApproximationWarning):
        converted = convert(network, target)
    nearest = float((torch.linalg.svdvals(W) - 1).square().sum().sqrt())
    found = float(torch.linalg.matrix_norm(converted.weight_hh_l0.detach() - W))
    assert found == pytest.approx(nearest, rel=tolerance(torch.float64, 64 * N))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
def test_a_copy_has_the_dtype_the_mode_and_what_is_trained_of_its_network(dtype):
    network = OrthogonalRNN(I, N, 2, parametrization=ScaledCayley(), dtype=dtype).eval()
    network.transition_l1.requires_grad_(False)
    converted = convert(network, Householder())
    assert {parameter.dtype for parameter in converted.parameters()} == {dtype}
    assert not any(module.training for module in converted.modules())
    assert [t.requires_grad for _, m in converted.transitions() for t in m.free()] == [True, False]
    assert all(module.training for module in convert(network.train(), Householder()).modules())


@pytest.mark.parametrize(
    ("field", "dtype"), [("real", torch.float32), ("real", torch.bfloat16), ("complex", torch.float32)]
)
def test_a_matrix_that_is_orthogonal_to_its_own_rounding_is_exact(field, dtype):
    torch.manual_seed(0)
    network = OrthogonalRNN(I, 40, parametrization=Stiefel(field=field), dtype=dtype)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        converted = convert(network, Householder(field=field), approximate=False)
    W, found = (n.weight_hh_l0.detach().to(torch.complex128) for n in (network, converted))
    assert torch.linalg.matrix_norm(found - W) <= tolerance(dtype, 8 * 40)
    with torch.no_grad():
        network.transition_l0.free()[0].mul_(1.1)
    with pytest.raises(NotOnGroupError):
        convert(network, Householder(field=field), approximate=False)


@pytest.mark.parametrize("make", [ReflectionRNN, DeltaRNN])
def test_a_transition_that_depends_on_the_input_is_refused(make):
    with pytest.raises(ArgumentError, match=f"but got a {make.__name__}, whose transition depends on the input"):
        convert(nn.Sequential(OrthogonalRNN(I, N), make(N, N)), Householder())


def test_cells_gated_networks_and_errors():
    torch.manual_seed(0)
    cell = OrthogonalRNNCell(I, N, parametrization=ScaledCayley(), dtype=torch.float64)
    x = torch.randn(3, I, dtype=torch.float64)
    torch.testing.assert_close(convert(cell, Householder())(x), cell(x), rtol=0, atol=tolerance(torch.float64, N * N))
    net = GORU(I, N, parametrization=ScaledCayley(), dtype=torch.float64)
    x = x.unsqueeze(0)
    converted = convert(net, Givens())
    torch.testing.assert_close(converted(x)[0], net(x)[0], rtol=0, atol=tolerance(torch.float64, N * N))
    assert converted.parametrization == Givens()
    torch.testing.assert_close(fold(net)(x)[0], net(x)[0], rtol=0, atol=tolerance(torch.float64, N * N))
    frozen = OrthogonalRNN(I, N, parametrization=ScaledCayley()).requires_grad_(False)
    assert not any(p.requires_grad for p in convert(frozen, Householder()).parameters())
    with pytest.raises(ArgumentError, match=r"to be real, like .*, but got complex"):
        convert(net, RestrictedUnitary())
    with pytest.raises(ArgumentError, match="a transition to convert, but got LSTM"):
        convert(torch.nn.LSTM(I, N), Householder())
    with pytest.raises(ArgumentError, match="Expected `to` to be one of orthornn's parametrizations"):
        convert(net, "householder")


def test_convert_draws_no_random_numbers():
    network = OrthogonalRNN(3, 6)
    before = torch.get_rng_state()
    convert(network, ScaledCayley(negatives=3), approximate=True)
    assert torch.equal(torch.get_rng_state(), before)


def test_a_transition_alone_is_converted():
    transition = Transition(Householder(), 5, dtype=torch.float64)
    found = convert(transition, to=Givens())
    assert isinstance(found, Transition)
    assert [*found._modules] == ["method"]
    torch.testing.assert_close(found.matrix(), transition.matrix(), rtol=0, atol=tolerance(torch.float64, 100))
