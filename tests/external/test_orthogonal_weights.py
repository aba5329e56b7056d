"""What torch's parametrizations.orthogonal, geotorch and torch-householder ask of orthogonal weights.

The oracles are torch's own: householder_product, matrix_exp, polar factors by the SVD.
"""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrize

from orthornn import Givens, Householder, MatrixExponential, ScaledCayley, SpectralMargin, Stiefel, orthogonalize
from orthornn.optim import CayleySGD
from orthornn.parametrizations.frames import bind_frame
from support.tolerances import tolerance

SHAPES = [(4, 4), (5, 5), (3, 5), (5, 3), (1, 4), (4, 1)]
FREE = [Householder(), ScaledCayley(), ScaledCayley(negatives=1), MatrixExponential(), Givens()]
EVERY = pytest.mark.parametrize("method", [*FREE, Stiefel(), SpectralMargin(margin=0)], ids=repr)
SHAPE = pytest.mark.parametrize("shape", SHAPES, ids=str)
EXACT = tolerance(torch.float64, 64 * 5)


def linear(shape, dtype=torch.float64):
    return nn.Linear(shape[1], shape[0], bias=False, dtype=dtype)


def is_frame(W, bound=EXACT):
    gram = W @ W.mT if W.shape[0] < W.shape[1] else W.mT @ W
    return float(torch.linalg.matrix_norm(gram - torch.eye(min(W.shape), dtype=W.dtype)).detach()) <= bound


def polar(W):
    left, _, right = torch.linalg.svd(W.detach(), full_matrices=False)
    return left @ right


# As torch.nn.utils.parametrizations.orthogonal


@EVERY
@SHAPE
def test_the_weight_is_orthogonal_and_the_layer_uses_it(shape, method):
    layer = orthogonalize(linear(shape), "weight", method)
    assert parametrize.is_parametrized(layer, "weight")
    assert layer.weight.shape == shape
    assert is_frame(layer.weight)
    x = torch.randn(3, shape[1], dtype=torch.float64)
    torch.testing.assert_close(layer(x), x @ layer.weight.mT)
    shorter = min(shape)
    if shape[0] >= shape[1]:  # columns: lengths are kept
        torch.testing.assert_close(layer(x).norm(dim=1), x.norm(dim=1))
    assert int(torch.linalg.matrix_rank(layer.weight.detach())) == shorter


@EVERY
@SHAPE
def test_an_orthogonal_weight_survives_and_another_is_projected(shape, method):
    for start in (torch.nn.init.orthogonal_(torch.empty(shape, dtype=torch.float64)), torch.randn(shape).double()):
        layer = linear(shape)
        with torch.no_grad():
            layer.weight.copy_(start)
        nearest = polar(start)
        if method == MatrixExponential() and shape[0] == shape[1] and float(torch.linalg.det(nearest)) < 0:
            continue  # no exponential of a skew matrix
        orthogonalize(layer, "weight", method, init="polar")
        torch.testing.assert_close(layer.weight, nearest, rtol=0, atol=EXACT)


@EVERY
@SHAPE
def test_assignment_takes_frames_and_refuses_others(shape, method):
    layer, other = (orthogonalize(linear(shape), "weight", method) for _ in range(2))
    W = other.weight.detach().clone()
    layer.weight = W
    torch.testing.assert_close(layer.weight, W, rtol=0, atol=EXACT)
    with pytest.raises(ValueError, match=r"orthogonal|orthonormal|singular values"):
        layer.weight = torch.randn(shape, dtype=torch.float64)


@EVERY
@SHAPE
def test_the_parametrization_can_be_taken_off(shape, method):
    layer = orthogonalize(linear(shape), "weight", method)
    W = layer.weight.detach().clone()
    parametrize.remove_parametrizations(layer, "weight")
    assert torch.equal(layer.weight, W)
    assert isinstance(layer.weight, nn.Parameter)
    layer = orthogonalize(linear(shape), "weight", method)
    parametrize.remove_parametrizations(layer, "weight", leave_parametrized=True)
    assert is_frame(layer.weight)


@EVERY
def test_caching_builds_the_weight_once(method):
    layer = orthogonalize(linear((5, 3)), "weight", method)
    with parametrize.cached():
        assert layer.weight is layer.weight
    if not isinstance(method, Stiefel):  # whose parameter is the weight
        assert layer.weight is not layer.weight


@EVERY
@SHAPE
def test_state_dicts_and_copies(shape, method):
    layer, other = (orthogonalize(linear(shape), "weight", method) for _ in range(2))
    other.load_state_dict(layer.state_dict())
    assert torch.equal(other.weight, layer.weight)
    assert torch.equal(copy.deepcopy(layer).weight, layer.weight)
    assert "weight" not in layer.state_dict()


def test_what_is_no_matrix_is_refused():
    with pytest.raises(ValueError, match="matrix"):
        orthogonalize(nn.Linear(3, 4), "bias", Householder())
    with pytest.raises(ValueError, match="matrix"):
        orthogonalize(nn.Conv2d(3, 4, 2), "weight", Householder())
    with pytest.raises(ValueError, match="name to be one of"):
        orthogonalize(nn.Linear(3, 4, bias=False), "bias", Householder())


# As geotorch


@EVERY
@pytest.mark.parametrize("shape", [(5, 5), (3, 5), (5, 3)], ids=str)
def test_training_stays_on_the_manifold_and_approaches_the_nearest_frame(shape, method):
    """Over frames <W, M> is largest at M's polar factor."""
    layer = orthogonalize(linear(shape), "weight", method)
    # a frame near the first one, which is in the same component of O(n)
    M = polar(layer.weight.detach() + 0.2 * torch.randn(shape, dtype=torch.float64))
    manifold = isinstance(method, (Stiefel, SpectralMargin))
    optimizer = CayleySGD(layer.parameters(), lr=0.1) if manifold else torch.optim.SGD(layer.parameters(), lr=0.1)
    distances = []
    for _ in range(15):
        optimizer.zero_grad()
        loss = (layer.weight - M).square().sum()
        loss.backward()
        distances.append(float(loss.detach()))
        optimizer.step()
        assert is_frame(layer.weight)
    assert distances == sorted(distances, reverse=True)
    assert distances[-1] < 0.7 * distances[0]


@pytest.mark.parametrize("n", [1, 2, 5, 8])
def test_the_exponential_is_that_of_torch(n):
    method = MatrixExponential().bind(n)
    (skew,) = method.initial()
    skew = torch.randn_like(skew).requires_grad_()
    A = torch.zeros(n, n, dtype=torch.float64)
    row, column = torch.triu_indices(n, n, 1)
    A = A.index_put((row, column), skew)
    wanted = torch.matrix_exp(A - A.mT)
    torch.testing.assert_close(method(skew), wanted, rtol=0, atol=EXACT)
    if n > 1:
        weights = torch.randn(n, n, dtype=torch.float64)
        (found,), (theirs,) = (torch.autograd.grad((W * weights).sum(), skew) for W in (method(skew), wanted))
        torch.testing.assert_close(found, theirs, rtol=0, atol=EXACT)


@EVERY
@SHAPE
def test_drawing_anew_gives_another_frame_and_right_inverse_its_numbers(shape, method):
    bound = method.bind(shape[0]) if shape[0] == shape[1] else bind_frame(method, *shape)
    bound.double()
    frames = [bound(*bound.initial(torch.Generator().manual_seed(seed))) for seed in range(3)]
    assert all(is_frame(W) for W in frames)
    if shape not in ((1, 4), (4, 1)):
        assert not torch.equal(frames[0], frames[1])
    for W in frames:
        torch.testing.assert_close(bound(*bound.right_inverse(W)), W, rtol=0, atol=EXACT)


# As torch-householder


@pytest.mark.parametrize("shape", [(5, 3), (3, 5), (7, 1), (9, 8)], ids=str)
def test_reflections_are_the_product_that_lapack_makes(shape):
    """The value and the gradient of torch.linalg.householder_product, whose vectors begin with 1."""
    bound = bind_frame(Householder(), *shape)
    (packed,) = bound.initial()
    packed.requires_grad_()
    n, k = max(shape), min(shape)
    columns, start = [], 0
    for j in range(k):
        u = packed[start : start + n - j]
        columns.append(torch.cat([u.new_zeros(j), u / u[0]]))
        start += n - j
    V = torch.stack(columns, dim=1)
    wanted = torch.linalg.householder_product(V, 2 / V.square().sum(dim=0))
    wanted = wanted.mT if shape[0] < shape[1] else wanted
    found = bound(packed)
    torch.testing.assert_close(found, wanted, rtol=0, atol=EXACT)
    weights = torch.randn(shape, dtype=torch.float64)
    (mine,), (theirs,) = (torch.autograd.grad((W * weights).sum(), packed) for W in (found, wanted))
    # u / u[0] enlarges rounding by the inverse of its head
    heads = min(abs(float(column.detach()[column.detach() != 0].abs().max() ** -1)) for column in columns)
    torch.testing.assert_close(mine, theirs, rtol=0, atol=EXACT / heads)


def test_frames_of_single_precision_are_built_in_double():
    bound = bind_frame(Householder(), 200, 40)
    (packed,) = bound.initial()
    narrow, wide = bound(packed.float()), bound(packed.float().double())
    torch.testing.assert_close(narrow.double(), wide, rtol=0, atol=torch.finfo(torch.float32).eps)
