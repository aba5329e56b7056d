"""phi, phi' and the parameter's gradient: against autograd, against closed values, and where phi has no derivative."""

import math
import pickle
from fractions import Fraction

import pytest
import torch

from orthornn import OrthogonalRNN, activations
from orthornn.activations import ACTIVATIONS, get
from orthornn.errors import ArgumentError, ArgumentTypeError
from orthornn.kernels import dense_rnn
from support.tolerances import tolerance

EXACT = tolerance(torch.float64, 10)


def drawn(name, n=9, rows=40, scale=1.0):
    phi = get(name)
    n -= n % 2 if phi.parameter == "pair" else 0
    z = (torch.randn(rows, n, dtype=torch.float64) * scale).requires_grad_()
    size = phi.parameter_size(n)
    parameter = (torch.randn(size, dtype=torch.float64) * 0.5).requires_grad_() if size else None
    return phi, z, parameter


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_backward_is_the_derivative(name):
    for scale in (1.0, 1e-3, 30.0):
        phi, z, parameter = drawn(name, scale=scale)
        h = phi(z, parameter)
        grad = torch.randn_like(h)
        leaves = [z] if parameter is None else [z, parameter]
        expected = torch.autograd.grad(h, leaves, grad)
        saved = h if phi.reads == "state" else z
        grad_z, grad_parameter = phi.backward(grad, saved.detach(), None if parameter is None else parameter.detach())
        # complex modReLU near zero has slopes b/|z|: rounding is relative to the largest of them
        torch.testing.assert_close(grad_z, expected[0], rtol=0, atol=EXACT * float(1 + expected[0].abs().max()))
        if parameter is not None:
            torch.testing.assert_close(grad_parameter.sum(dim=0), expected[1], rtol=EXACT, atol=EXACT * scale * 40)


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_gradcheck_twice(name):
    phi, z, parameter = drawn(name, n=5, rows=3)
    inputs = (z,) if parameter is None else (z, parameter)
    assert torch.autograd.gradcheck(phi, inputs)
    assert torch.autograd.gradgradcheck(phi, inputs)


@pytest.mark.parametrize("name", ACTIVATIONS)
@pytest.mark.parametrize("parameter_value", [-0.5, 0.0, 0.5])
def test_zero_has_a_value_and_a_gradient(name, parameter_value):
    phi = get(name)
    size = phi.parameter_size(6)
    parameter = torch.full((size,), parameter_value, requires_grad=True) if size else None
    z = torch.zeros(2, 6, requires_grad=True)
    h = phi(z, parameter)
    assert torch.equal(h, torch.zeros_like(h))
    h.sum().backward()
    assert z.grad.isfinite().all()
    saved = h if phi.reads == "state" else z
    grad_z, _ = phi.backward(torch.ones_like(h), saved.detach(), None if parameter is None else parameter.detach())
    assert torch.equal(grad_z, z.grad)


@pytest.mark.parametrize("name", ACTIVATIONS)
@pytest.mark.parametrize("parameter_value", [-0.5, 0.5])
@pytest.mark.parametrize("partner", [0.0, 1.0])
def test_a_nan_is_not_lost(name, parameter_value, partner):
    """A loss that is NaN must not reach the parameters as a gradient of zero."""
    phi = get(name)
    size = phi.parameter_size(6)
    parameter = torch.full((size,), parameter_value) if size else None
    z = torch.full((1, 6), partner)
    z[0, 1] = float("nan")
    z.requires_grad_()
    h = phi(z, parameter)
    assert h.isnan().any()
    (by_autograd,) = torch.autograd.grad(h, z, h.detach(), retain_graph=True)
    saved = h if phi.reads == "state" else z
    grad_z, grad_parameter = phi.backward(h.detach(), saved.detach(), parameter)
    assert grad_z.isnan().any()
    assert by_autograd.isnan().any()
    if grad_parameter is not None:
        assert grad_parameter.isnan().any()


@pytest.mark.parametrize("name", [name for name, phi in ACTIVATIONS.items() if phi.parameter_size(6)])
def test_a_parameter_that_is_nan_is_not_lost(name):
    """A bias that has diverged switched units off, and the loss stayed finite."""
    phi = get(name)
    parameter = torch.full((phi.parameter_size(6),), 0.1)
    parameter[1] = float("nan")
    parameter.requires_grad_()
    z = torch.full((2, 6), -1.5, requires_grad=True)
    h = phi(z, parameter)
    lost = torch.zeros(6, dtype=torch.bool)
    lost[[1, 4] if phi.paired else [1]] = True
    assert torch.equal(h.isnan(), lost.expand(2, 6))
    (by_autograd,) = torch.autograd.grad(h, z, h.detach())
    saved = h if phi.reads == "state" else z
    grad_z, _ = phi.backward(h.detach(), saved.detach(), parameter.detach())
    for grad in (by_autograd, grad_z):
        assert torch.equal(grad.isnan(), lost.expand(2, 6))


@pytest.mark.parametrize("name", ["modrelu", "complex_modrelu"])
@pytest.mark.parametrize("b", [0.5, -0.5, float("inf"), float("nan")])
def test_modrelu_of_zero_is_zero_whatever_the_bias(name, b):
    """sign(z) max(0, |z| + b) was 0 times infinity there, and not what the kernels compute."""
    phi = get(name)
    z, parameter = torch.zeros(2, 6, requires_grad=True), torch.full((phi.parameter_size(6),), b, requires_grad=True)
    h = phi(z, parameter)
    assert torch.equal(h, torch.zeros(2, 6))
    for grad in torch.autograd.grad(h.sum(), (z, parameter)):
        assert torch.equal(grad, torch.zeros_like(grad))


def test_closed_values():
    z = torch.tensor([3.0, -4.0, 0.5, -0.25])
    assert torch.equal(get("relu")(z), torch.tensor([3.0, 0.0, 0.5, 0.0]))
    assert torch.equal(get("leaky_relu")(z), torch.maximum(z / 10, z))
    assert torch.equal(get("prelu")(z, torch.tensor([0.5, 0.5, 2.0, 2.0])), torch.tensor([3.0, -2.0, 0.5, -0.5]))
    assert torch.equal(get("modrelu")(z, torch.full((4,), -0.5)), torch.tensor([2.5, -3.5, 0.0, 0.0]))
    assert torch.equal(get("oplu")(z), torch.tensor([3.0, -0.25, 0.5, -4.0]))
    torch.testing.assert_close(get("scaled_tanh")(z, torch.full((4,), 2.0)), torch.tanh(2 * z) / 2)
    assert torch.equal(get("scaled_tanh")(z, torch.zeros(4)), z)


def test_complex_modrelu_is_modrelu_of_complex_numbers():
    z = torch.randn(20, 3, dtype=torch.complex128)
    b = torch.tensor([-0.5, 0.0, 0.7], dtype=torch.float64)
    expected = torch.relu(z.abs() + b) * z / z.abs()
    h = get("complex_modrelu")(torch.cat([z.real, z.imag], dim=-1), b)
    torch.testing.assert_close(torch.complex(h[:, :3], h[:, 3:]), expected, rtol=EXACT, atol=EXACT)


@pytest.mark.parametrize("size", [1e-3, 1e-12, 1e-19, 1e-21, 1e-25, 1e-30, 1e-37, 1e-40])
@pytest.mark.parametrize("b", [-0.1, 0.0])
@pytest.mark.parametrize("direction", [(1.0, 0.0), (0.0, -1.0), (-3.0, 4.0)])
def test_complex_modrelu_of_a_tiny_number_has_the_gradient_of_a_large_one(size, b, direction):
    """Also where squares of |z| underflow: a state that fades away must not turn the gradient into NaN."""
    z = (size * torch.tensor([direction])).requires_grad_()
    parameter = torch.tensor([b], requires_grad=True)
    h = get("complex_modrelu")(z, parameter)
    grad = torch.tensor([[2.0, -0.5]])
    by_z, by_b = torch.autograd.grad(h, (z, parameter), grad)
    active = float(b == 0)
    unit = torch.tensor(direction) / math.hypot(*direction)
    close, denormal = tolerance(torch.float32, 2), torch.finfo(torch.float32).smallest_normal
    torch.testing.assert_close(h.detach(), z.detach() * active, rtol=close, atol=close * denormal)
    torch.testing.assert_close(by_z, grad * active, rtol=close, atol=0)
    torch.testing.assert_close(by_b, (grad * unit).sum(1) * active, rtol=close, atol=0)


@pytest.mark.parametrize("name", [name for name, phi in ACTIVATIONS.items() if phi.keeps_norm])
@pytest.mark.parametrize("n", [1, 2, 7, 8])
def test_norm_keeping_activations_keep_the_norm(name, n):
    phi = get(name)
    if phi.parameter == "pair" and n % 2:
        with pytest.raises(ArgumentError, match="even"):
            phi.parameter_size(n)
        return
    z = torch.randn(50, n, dtype=torch.float64)
    size = phi.parameter_size(n)
    h = phi(z, torch.zeros(size, dtype=torch.float64) if size else None)
    torch.testing.assert_close(h.norm(dim=1), z.norm(dim=1), rtol=EXACT, atol=0)


def test_an_odd_middle_unit_stays_alone_in_oplu():
    z = torch.tensor([[1.0, -7.0, 5.0]])
    assert torch.equal(get("oplu")(z), torch.tensor([[5.0, -7.0, 1.0]]))


def test_scaled_tanh_saturates_without_nan():
    phi, c = get("scaled_tanh"), torch.full((2,), 5.0)
    h = phi(torch.tensor([1e4, -1e4]), c)
    grad_z, grad_c = phi.backward(torch.ones(2), h, c)
    assert torch.equal(grad_z, torch.zeros(2))
    torch.testing.assert_close(grad_c, -h / c)


def test_names_and_slopes():
    with pytest.raises(ArgumentError, match=r"'modrelu'\?"):
        get("modrellu")
    assert get("leaky_relu").slope == 0.1
    assert get("leaky_relu", slope=0.3).slope == 0.3
    third = get("leaky_relu", slope=Fraction(1, 3))
    torch.testing.assert_close(third(torch.tensor([-3.0, 3.0])), torch.tensor([-1.0, 3.0]))
    with pytest.raises(ArgumentError, match="slope"):
        get("tanh", slope=0.3)
    for slope in (0.0, -1.0, float("nan")):
        with pytest.raises(ArgumentError, match="slope"):
            activations.LeakyReLU(slope)
    assert sorted(phi.code for phi in ACTIVATIONS.values()) == list(range(len(ACTIVATIONS)))


@pytest.mark.parametrize("phi", ACTIVATIONS.values(), ids=ACTIVATIONS)
def test_no_activation_takes_a_slope_that_it_does_not_read(phi):
    if phi.name == "leaky_relu":
        assert repr(phi) == "LeakyReLU(slope=0.1)"
        return
    assert phi.slope == 0
    assert repr(phi) == f"{type(phi).__name__}()"
    assert pickle.loads(pickle.dumps(phi)) == phi
    with pytest.raises(TypeError):
        type(phi)(slope=0.3)


@pytest.mark.parametrize("base", [activations.Activation, activations.Tanh])
def test_a_class_of_ones_own_is_refused(base):
    """The compiled kernels would run tanh where forward() is another function, and step() that function."""

    class Twice(base):
        name, code = "tanh", 1

        def __call__(self, z, parameter=None):
            return 2 * torch.tanh(z)

    operands = torch.randn(4, 2, 3), torch.zeros(2, 3), torch.eye(3)
    for make in (lambda phi: OrthogonalRNN(2, 3, nonlinearity=phi), lambda phi: dense_rnn(*operands, phi)):
        make(activations.Tanh())
        with pytest.raises(ArgumentTypeError, match="but got an instance of Twice"):
            make(Twice())


def test_which_activations_pair_units_and_which_keep_the_norm():
    assert {name for name, phi in ACTIVATIONS.items() if phi.paired} == {"complex_modrelu", "oplu"}
    assert {name for name, phi in ACTIVATIONS.items() if phi.keeps_norm} == {
        *("identity", "modrelu", "complex_modrelu", "oplu")
    }


@pytest.mark.parametrize("backend", ["auto", "reference"])
def test_oplu_leaves_a_tied_pair_as_it_is_forwards_and_backwards(backend):
    """Both orders have the same value, and other gradients: the one that stays is the first unit."""
    phi, z = get("oplu"), torch.tensor([[2.0, -1.0, 0.0, 2.0, -1.0]], requires_grad=True)
    grad = torch.arange(1.0, 6.0).unsqueeze(0)
    assert torch.equal(phi.backward(grad, z.detach(), None)[0], grad)
    assert torch.equal(torch.autograd.grad(phi(z), z, grad)[0], grad)
    states = dense_rnn(z.unsqueeze(0), torch.zeros(1, 5), torch.eye(5), "oplu", backend=backend)
    assert torch.equal(torch.autograd.grad(states, z, grad.unsqueeze(0))[0], grad)
