"""orthogonalize: each parametrization on square weights of torch's own layers."""

import copy
import operator

import pytest
import torch
from torch.nn.utils import prune

from orthornn import (
    Givens,
    Householder,
    MatrixExponential,
    RestrictedUnitary,
    ScaledCayley,
    SpectralMargin,
    Stiefel,
    Unconstrained,
    orthogonalize,
)
from orthornn.errors import ArgumentError, DTypeError, NonFiniteError, NotOnGroupError, ShapeError
from orthornn.optim import CayleySGD, attach, param_groups
from support.tolerances import tolerance

METHODS = [
    Householder(),
    Householder(reflections=3),
    Householder(reflections=2, base="rotations"),
    ScaledCayley(negatives=2),
    SpectralMargin(margin=0),
    SpectralMargin(),
    Stiefel(),
    Unconstrained(),
]


@pytest.mark.parametrize("method", METHODS, ids=repr)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_weight_of_a_linear_layer(method, dtype):
    layer = orthogonalize(torch.nn.Linear(6, 6, dtype=dtype), "weight", method)
    error = torch.linalg.matrix_norm(layer.weight.double().mT @ layer.weight.double() - torch.eye(6).double())
    assert error < tolerance(dtype, 6)
    names = dict(layer.named_parameters())
    assert "weight" not in names
    assert all(name.startswith("parametrizations.weight.original") for name in names if name != "bias")
    expected = sum(value.numel() for value in method.bind(6).initial())
    assert sum(value.numel() for name, value in names.items() if name != "bias") == expected
    layer(torch.randn(3, 6, dtype=dtype)).square().sum().backward()
    assert all(value.grad is not None for value in names.values() if value.numel())


def test_assigning_a_weight():
    layer = orthogonalize(torch.nn.Linear(5, 5), "weight", Householder())
    Q = torch.linalg.qr(torch.randn(5, 5))[0]
    layer.weight = Q
    torch.testing.assert_close(layer.weight, Q, rtol=0, atol=tolerance(torch.float32, 5))
    with pytest.raises(NotOnGroupError, match="orthogonal"):
        layer.weight = 2 * Q


def test_recurrent_weight_and_state_dict():
    rnn = orthogonalize(torch.nn.RNNCell(3, 4), "weight_hh", ScaledCayley(negatives=2))
    twin = orthogonalize(torch.nn.RNNCell(3, 4), "weight_hh", ScaledCayley(negatives=2))
    twin.load_state_dict(rnn.state_dict())
    x = torch.randn(2, 3)
    assert torch.equal(rnn(x), twin(x))


def test_under_autocast_the_weight_stays_float32():
    layer = orthogonalize(torch.nn.Linear(32, 32), "weight", Householder(reflections=4))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        W = layer.weight
    assert W.dtype == torch.float32
    assert torch.linalg.matrix_norm(W.mT @ W - torch.eye(32)) < tolerance(torch.float32, 32)


def test_a_frozen_weight_stays_frozen_and_a_copy_is_equal():
    layer = torch.nn.Linear(5, 5)
    layer.weight.requires_grad_(False)
    orthogonalize(layer, "weight", Householder(reflections=2, base="rotations"))
    assert not layer.weight.requires_grad
    assert torch.equal(copy.deepcopy(layer).weight, layer.weight)
    assert orthogonalize(torch.nn.Linear(5, 5, device="meta"), "weight", ScaledCayley()).weight.is_meta


@pytest.mark.parametrize(
    ("method", "shape"),
    [*((method, (8, 8)) for method in METHODS)]
    + [
        (method, shape) for method in (Householder(), SpectralMargin(margin=0), Stiefel()) for shape in ((5, 8), (8, 5))
    ],
    ids=repr,
)
def test_parameters_are_contiguous(method, shape):
    """Else torch's parameters_to_vector, LBFGS and FSDP refuse them, and safetensors do."""
    layer = orthogonalize(torch.nn.Linear(*shape), "weight", method)
    assert all(parameter.is_contiguous() for parameter in layer.parameters())
    layer.weight = layer.weight.detach()
    assert all(parameter.is_contiguous() for parameter in layer.parameters())


@pytest.mark.parametrize("method", [Householder(), ScaledCayley(), MatrixExponential(), Stiefel()], ids=repr)
def test_a_layer_made_on_meta_is_initialized_as_torch_layers_are(method):
    with torch.device("meta"):
        layer = orthogonalize(torch.nn.Linear(8, 8), "weight", method)
    layer.to_empty(device="cpu")
    for tensor in layer.state_dict().values():
        tensor.zero_()
    for module in layer.modules():
        if hasattr(module, "reset_parameters"):
            module.reset_parameters()
    W = layer.weight.detach()
    torch.testing.assert_close(W @ W.mT, torch.eye(8), rtol=0, atol=1e-5)
    assert not torch.equal(W, torch.eye(8))


def test_training_does_not_write_into_an_assigned_matrix():
    for method in METHODS:
        layer = orthogonalize(torch.nn.Linear(6, 6, dtype=torch.float64), "weight", method)
        Q = layer.weight.detach().clone()
        kept = Q.clone()
        layer.weight = Q
        optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
        layer(torch.randn(4, 6, dtype=torch.float64)).square().sum().backward()
        optimizer.step()
        assert torch.equal(Q, kept)


def test_bad_arguments():
    with pytest.raises(ArgumentError, match=r"Expected Linear.weight without a parametrization"):
        orthogonalize(orthogonalize(torch.nn.Linear(3, 3), "weight", Stiefel()), "weight", Householder())
    with pytest.raises(ShapeError, match=r"Expected Conv1d.weight to be a matrix \(out, in\), but got.*\(4, 3, 2\)"):
        orthogonalize(torch.nn.Conv1d(3, 4, 2), "weight", Householder())
    with pytest.raises(ShapeError, match=r"\(4, 3, 1\)\. A convolution of kernel size 1 is a torch\.nn\.Linear"):
        orthogonalize(torch.nn.Conv1d(3, 4, 1), "weight", Householder())
    with pytest.raises(ShapeError, match=r"\(3,\)\. Pass the name of a matrix"):
        orthogonalize(torch.nn.Linear(3, 3), "bias", Householder())
    model = torch.nn.Sequential(torch.nn.Linear(3, 3))
    for name in ("0.weight", "0"):
        with pytest.raises(
            ArgumentError, match=rf"of Sequential itself, but got '{name}'.*\(module\.0, 'weight', \.\.\.\)"
        ):
            orthogonalize(model, name, Householder())
    with pytest.raises(ArgumentError, match="holds parameters itself, but got Sequential, which has none"):
        orthogonalize(model, "weight", Householder())
    with pytest.raises(ArgumentError, match="init to be one of 'new', 'polar'"):
        orthogonalize(torch.nn.Linear(3, 3), "weight", Householder(), init="old")
    with pytest.raises(ArgumentError, match=r"Did you mean 'weight'\?"):
        orthogonalize(torch.nn.Linear(3, 3), "wieght", Householder())
    with pytest.raises(ArgumentError, match="field='real'"):
        orthogonalize(torch.nn.Linear(3, 3), "weight", Householder(field="complex"))
    with pytest.raises(DTypeError, match=r"to be real, but got torch\.complex64"):
        orthogonalize(torch.nn.Linear(3, 3, dtype=torch.complex64), "weight", Householder())
    with pytest.raises(ArgumentError, match="to be one of orthornn's"):
        orthogonalize(torch.nn.Linear(3, 3), "weight", "householder")
    with pytest.raises(ArgumentError, match="between 1 and 3"):
        orthogonalize(torch.nn.Linear(3, 3), "weight", Householder(reflections=4))


FRAMES = [
    Householder(),
    Householder(unit=True),
    ScaledCayley(),
    ScaledCayley(negatives=1),
    MatrixExponential(),
    MatrixExponential(rebase_every=2),
    Givens(),
    SpectralMargin(margin=0),
    Stiefel(),
]
SHAPES = [(1, 2), (2, 1), (3, 7), (7, 3), (7, 6), (40, 5)]


def defect(W):
    W = W.detach().double()
    gram = W @ W.mT if W.shape[0] < W.shape[1] else W.mT @ W
    return float(torch.linalg.matrix_norm(gram - torch.eye(min(W.shape), dtype=torch.float64)))


def polar(W):
    left, _, right = torch.linalg.svd(W.detach().double(), full_matrices=False)
    return left @ right


def rectangular(rows, columns, dtype=torch.float32):
    return torch.nn.Linear(columns, rows, dtype=dtype)


@pytest.mark.sampled(16)
@pytest.mark.parametrize("method", FRAMES, ids=repr)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_rectangular_weights_are_frames_that_train(shape, dtype, method):
    layer = orthogonalize(rectangular(*shape, dtype), "weight", method)
    assert layer.weight.shape == shape
    assert layer.weight.dtype == dtype
    bound = tolerance(dtype, max(shape))
    assert defect(layer.weight) < bound
    target = torch.randn(shape, dtype=dtype)
    groups = param_groups(layer, lr=0.1, recurrent_lr=0.1)
    on_manifold = [group for group in groups if group["name"] == "manifold"]
    optimizer = CayleySGD(on_manifold, lr=0.1) if on_manifold else torch.optim.SGD(layer.parameters(), lr=0.1)
    attach(layer, optimizer)
    losses = []
    for _ in range(5):
        optimizer.zero_grad()
        loss = (layer.weight - target).square().mean()
        loss.backward()
        losses.append(float(loss.detach()))
        optimizer.step()
        assert defect(layer.weight) < bound
    assert losses[-1] < losses[0]


@pytest.mark.sampled(9)
@pytest.mark.parametrize("method", FRAMES, ids=repr)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_any_frame_can_be_assigned(shape, method):
    layer = orthogonalize(rectangular(*shape, torch.float64), "weight", method)
    # A logarithm takes five square roots, each of which doubles an error.
    bound = tolerance(torch.float64, (64 if isinstance(method, MatrixExponential) else 4) * max(shape))
    for seed in range(3):
        torch.manual_seed(seed)
        W = polar(torch.randn(shape))
        layer.weight = W
        torch.testing.assert_close(layer.weight, W, rtol=0, atol=bound)
    signs = torch.eye(*shape, dtype=torch.float64)
    for sign in (1.0, -1.0):  # coordinate vectors, where a reflector has nothing to do
        layer.weight = sign * signs
        torch.testing.assert_close(layer.weight, sign * signs, rtol=0, atol=bound)
    with pytest.raises(NotOnGroupError, match=f"orthonormal {'rows' if shape[0] < shape[1] else 'columns'}"):
        layer.weight = 2 * W
    with pytest.raises(ShapeError):
        layer.weight = W.mT


@pytest.mark.sampled(9)
@pytest.mark.parametrize("method", [*FRAMES, SpectralMargin(), Unconstrained()], ids=repr)
@pytest.mark.parametrize("shape", [(6, 6), (5, 5), (3, 7), (7, 3)], ids=str)
def test_existing_weights_are_projected_when_asked(shape, method):
    if shape[0] != shape[1] and method not in FRAMES:
        return
    for seed in range(4):  # both determinants
        torch.manual_seed(seed)
        layer = rectangular(*shape, torch.float64)
        expected = polar(layer.weight)
        if method == MatrixExponential() and shape[0] == shape[1] and torch.linalg.det(expected) < 0:
            left, _, right = torch.linalg.svd(layer.weight.detach())
            left[:, -1] *= -1
            expected = left @ right  # the nearest rotation
        bias = layer.bias.detach().clone()
        orthogonalize(layer, "weight", method, init="polar")
        bound = tolerance(torch.float64, (64 if isinstance(method, MatrixExponential) else 4) * max(shape))
        torch.testing.assert_close(layer.weight, expected, rtol=0, atol=bound)
        assert torch.equal(layer.bias, bias)


def test_an_orthogonal_weight_stays_what_it_is():
    layer = torch.nn.Linear(9, 4)
    torch.nn.init.orthogonal_(layer.weight)
    before = layer.weight.detach().clone()
    x = torch.randn(2, 9)
    expected = layer(x)
    orthogonalize(layer, "weight", Householder(), init="polar")
    torch.testing.assert_close(layer.weight, before, rtol=0, atol=tolerance(torch.float32, 9))
    torch.testing.assert_close(layer(x), expected, rtol=0, atol=tolerance(torch.float32, 9) * 9)


def test_a_projection_that_has_no_answer_is_refused():
    with pytest.raises(NotOnGroupError, match=r"reaches the polar factor of Linear\.weight"):
        orthogonalize(torch.nn.Linear(6, 6), "weight", Householder(reflections=2), init="polar")
    with pytest.raises(ArgumentError, match="on meta"):
        orthogonalize(torch.nn.Linear(6, 6, device="meta"), "weight", Householder(), init="polar")
    layer = torch.nn.Linear(6, 6)
    with torch.no_grad():
        layer.weight[2, 3] = float("nan")
    with pytest.raises(NonFiniteError, match=r"Linear\.weight"):
        orthogonalize(layer, "weight", Householder(), init="polar")
    assert not torch.nn.utils.parametrize.is_parametrized(layer)


def test_the_numbers_of_a_rectangular_weight():
    sizes = {Householder(): 7 * 3 - 3, Householder(reflections=2): 7 * 2 - 1, Stiefel(): 21, ScaledCayley(): 21}
    for method, size in sizes.items():
        layer = orthogonalize(torch.nn.Linear(7, 3, bias=False), "weight", method)
        assert sum(p.numel() for p in layer.parameters()) == size


def test_fewer_reflections_than_columns():
    layer = orthogonalize(torch.nn.Linear(3, 6, dtype=torch.float64), "weight", Householder(reflections=2))
    W = layer.weight.detach().clone()
    other = orthogonalize(torch.nn.Linear(3, 6, dtype=torch.float64), "weight", Householder(reflections=2))
    other.weight = W
    torch.testing.assert_close(other.weight, W, rtol=0, atol=tolerance(torch.float64, 24))


def test_gradients_of_rectangular_weights():
    for method in (Householder(), MatrixExponential(), ScaledCayley(negatives=1)):
        for shape in ((5, 3), (3, 5)):
            layer = orthogonalize(rectangular(*shape, torch.float64), "weight", method)
            bound = layer.parametrizations.weight[0].method
            free = tuple(p.detach().requires_grad_() for p in bound.initial())
            assert torch.autograd.gradcheck(bound, free)


@pytest.mark.parametrize(
    ("method", "reason"),
    [
        (Unconstrained(), "it does not keep matrices orthogonal"),
        (SpectralMargin(), "singular values of some columns"),
        (SpectralMargin(margin=None), "singular values of some columns"),
        (Givens(layers=2), "does not reach every orthogonal matrix of size 5"),
        (RestrictedUnitary(), "its matrices are complex"),
        (Stiefel(field="complex"), "its matrices are complex"),
        (Householder(field="complex"), "its matrices are complex"),
        (Householder(base="rotations"), "Expected base='identity'"),
        (Householder(reflections=4), "between 1 and 3, but got 4.*pass None for 3"),
        (Householder(u1="soft"), "as many reflections as rows"),
    ],
    ids=repr,
)
def test_what_has_no_rectangular_form_says_why(method, reason):
    for shape in ((5, 3), (3, 5)):
        layer = rectangular(*shape)
        with pytest.raises(ArgumentError, match=reason):
            orthogonalize(layer, "weight", method)
        assert isinstance(layer.weight, torch.nn.Parameter)


@pytest.mark.parametrize("method", FRAMES, ids=repr)
def test_rectangular_weights_are_saved_copied_and_moved(method):
    layer = orthogonalize(torch.nn.Linear(5, 3), "weight", method)
    twin = orthogonalize(torch.nn.Linear(5, 3), "weight", method)
    twin.load_state_dict(layer.state_dict())
    assert torch.equal(twin.weight, layer.weight)
    assert torch.equal(copy.deepcopy(layer).weight, layer.weight)
    assert orthogonalize(torch.nn.Linear(5, 3, device="meta"), "weight", method).weight.is_meta
    wide = copy.deepcopy(layer).double()
    torch.testing.assert_close(wide.weight.float(), layer.weight, rtol=0, atol=tolerance(torch.float32, 5))
    torch.nn.utils.parametrize.remove_parametrizations(layer, "weight")
    assert torch.equal(layer.weight, twin.weight)


def test_bound_parametrizations_print_what_they_are():
    text = repr(orthogonalize(torch.nn.Linear(5, 3), "weight", Householder()))
    assert "HouseholderFrame(\n          3, 5, reflectors=(12,)" in text
    assert repr(Householder(reflections=2).bind(5)) == "BoundHouseholder(5, group='subset', reflectors=(9,))"
    assert repr(ScaledCayley().bind(4)) == "BoundScaledCayley(4, group='SO', skew=(6,))"
    assert repr(SpectralMargin().bind(3)) == "BoundSpectralMargin(3, group='margin', u=(3, 3), v=(3, 3), spectrum=(3,))"


@pytest.mark.parametrize(
    ("method", "shape"),
    [(Stiefel(), (4, 4)), (Unconstrained(), (4, 4)), (Householder(), (4, 4)), (Stiefel(), (5, 3)), (Stiefel(), (3, 5))],
    ids=repr,
)
def test_what_is_written_into_the_weight_that_was_read_is_lost(method, shape):
    """Stiefel's W is its free tensor, or of a wide weight its transpose; the weight is the caller's own all the same, as
    it is of every other one."""
    layer = orthogonalize(torch.nn.Linear(*shape), "weight", method)
    before = layer.weight.detach().clone()
    layer.weight.detach().numpy()[:] = 7.0
    with torch.no_grad():
        layer.weight.zero_()
    assert torch.equal(layer.weight, before)


@pytest.mark.filterwarnings("ignore:.*weight_norm:FutureWarning")
@pytest.mark.parametrize(
    ("tool", "remove"),
    [
        (torch.nn.utils.weight_norm, "torch.nn.utils.remove_weight_norm"),
        (torch.nn.utils.spectral_norm, "torch.nn.utils.remove_spectral_norm"),
        (lambda layer: prune.random_unstructured(layer, "weight", 0.5), "torch.nn.utils.prune.remove"),
    ],
    ids=["weight_norm", "spectral_norm", "pruning"],
)
def test_what_computes_a_weight_is_named_with_how_to_remove_it(tool, remove):
    layer = tool(torch.nn.Linear(4, 3))
    message = f"but got a tensor that .* computes. Make it permanent first, with {remove}"
    with pytest.raises(ArgumentError, match=message + r"\(layer, 'weight'\)\."):
        orthogonalize(layer, "weight", Householder())
    operator.attrgetter(remove.removeprefix("torch."))(torch)(layer, "weight")
    W = orthogonalize(layer, "weight", Householder()).weight
    torch.testing.assert_close(W @ W.mT, torch.eye(3), rtol=0, atol=tolerance(torch.float32, 4))


@pytest.mark.parametrize(("k", "n"), [(3, 6), (6, 3), (5, 5)])
@pytest.mark.parametrize("init", ["new", "polar"])
def test_unit_reflectors_have_norm_1_whatever_the_shape(k, n, init):
    layer = orthogonalize(torch.nn.Linear(k, n), "weight", Householder(unit=True), init=init)
    (packed,) = [value.detach() for value in layer.parametrizations.weight.parameters()]
    longest, start = max(k, n), 0
    for number in range(min(k, n, longest - 1)):
        length = longest - number
        assert packed[start : start + length].norm() == pytest.approx(1, abs=1e-5)
        start += length


def test_a_lazy_layer_has_to_be_called_first():
    with pytest.raises(ArgumentError, match="Call it once with inputs first"):
        orthogonalize(torch.nn.LazyLinear(2), "weight", Householder())
