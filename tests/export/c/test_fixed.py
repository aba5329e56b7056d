"""The parts of the integer arithmetic, against exact rational numbers and against float64; and what must not overflow."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
import torch

from orthornn import Householder, OrthogonalRNN
from orthornn.errors import ArgumentError
from orthornn.export.c import fixed
from orthornn.export.c.bounds import find_ranges
from orthornn.export.c.folded import Base, fold_network

INT32 = 2**31


def integers(core, x, bits=16, form="auto"):
    folded = fold_network(core, form=form)
    return folded, fixed.quantize(folded, bits, find_ranges(folded, x, None, None, 1.25))


@pytest.mark.parametrize("top", [1e-12, 1e-3, 0.7, 1.0, 300.0, 2.0**27])
def test_a_multiplier_rounds_to_the_nearest_and_cuts_at_its_reach(top):
    factors, largest = top * np.array([1.0, 0.61, 1e-3]), INT32 - 1
    made = fixed.Multiplier.of(factors, largest, "a test")
    assert np.abs(made.m).max() < INT32
    for size in (0, 1, 7, 12345, 2**20 + 1, largest):
        for value in (size, -size):
            found = made(np.full(3, value)).tolist()
            held = value if made.limit is None else max(-made.limit, min(made.limit, value))
            for one, m, factor in zip(found, made.m.tolist(), factors.tolist()):
                exact = Fraction(held) * m / 2**made.shift
                assert abs(one - exact) <= Fraction(1, 2)
                assert one == (exact + Fraction(1, 2)).__floor__()
                assert abs(one) <= fixed.REACH + 1
                if held == value and abs(value * factor) < fixed.REACH:
                    assert abs(one - value * factor) <= 0.5 + abs(value) * 2.0**-made.shift


@pytest.mark.parametrize("bits", [8, 16])
@pytest.mark.parametrize("k", [1, 2, 500, 517, 700, 1000, 1999])
def test_no_sum_of_a_row_or_a_reflector_overflows(k, bits):
    """Of equal entries, all of which may be rounded upwards."""
    for entry in (1.0, 0.37, -3e-5):
        q = fixed.FixedMatrix.of(np.full((2, k), entry), bits, 1.0, "A").q
        assert np.abs(q).sum(1).max() * fixed.LARGEST < INT32
        U = np.full((k, 1), entry)
        assert np.abs(fixed.FixedReflections.of(U, bits).q).sum(0).max() * fixed.LARGEST < INT32


@pytest.mark.parametrize("bits", [8, 16])
@pytest.mark.parametrize("small", [0.0, 0.01, 0.1, 1.0])
@pytest.mark.parametrize("n", [1, 2, 60, 1000])
def test_no_product_of_a_reflection_overflows(n, small, bits):
    """For the worst of all states, by Python's integers; one entry is larger than the others."""
    U = np.full((n, 1), small)
    U[n // 2] = 1.0
    made = fixed.FixedReflections.of(U, bits)
    q = made.q[:, 0].tolist()
    total = sum(abs(value) for value in q) * fixed.LARGEST
    k = (total * int(made.m[0]) + (1 << (made.shift - 1))) >> made.shift
    assert max(abs(value) for value in q) * k + (1 << (made.places - 1)) < INT32
    assert abs(total * int(made.m[0])) < 2**63


@pytest.mark.parametrize("gain", [1e-3, 0.5, 32767 / 2**15, 1.0, 2.0, 100.0, 16000.0])
def test_a_base_holds_its_gain_and_overflows_for_no_state(gain):
    base = Base(np.array([gain, -gain, gain]), np.array([gain, 0.0, -gain]))
    made = fixed.FixedBase.of(base)
    for values, exact in ((made.c, base.c), (made.s, base.s)):
        assert np.abs(values).max() <= fixed.LARGEST
        assert np.abs(values / 2.0**made.places - exact).max() <= 2.0 ** -(made.places + 1)
    worst = (np.abs(made.c) + np.abs(made.s)).max() * fixed.LARGEST + (1 << (made.places - 1))
    assert worst < INT32
    with pytest.raises(ArgumentError, match="gain that int16 can hold"):
        fixed.FixedBase.of(Base(np.array([4e4]), np.array([0.0])))


@pytest.mark.parametrize("unit", [1e-7, 3e-6, 1e-3])
def test_scaled_tanh_of_any_sign_and_of_zero(unit):
    """tanh(cz)/c is even in c, and z itself at c = 0; to the interpolation of the table and one unit of the result."""
    c = np.array([1.0, -1.0, 0.25, -3.0, 0.0])
    made = fixed.FixedTanh.of(c, unit)
    z = np.unique(np.concatenate([np.arange(-40, 41), np.linspace(-(2**28), 2**28, 4001).astype(np.int64)]))[:, None]
    found = made(np.broadcast_to(z, (len(z), 5)))
    assert np.array_equal(found[:, 4], z[:, 0])
    assert np.array_equal(found[:, 0], found[:, 1])
    assert np.array_equal(found, -made(np.broadcast_to(-z, (len(z), 5))))
    assert np.array_equal(fixed.FixedTanh.of(np.zeros(1), unit)(z), z)  # also where no other unit sets the scale
    exact = np.tanh(c[:4] * z * unit) / c[:4]
    allowed = (1 / 32**2 / 8 + 1 / 32767 + 2.0**-15) / np.abs(c[:4]) + unit
    assert (np.abs(found[:, :4] * unit - exact) <= allowed).all()


def test_of_many_units_some_may_be_linear():
    torch.manual_seed(0)
    core = OrthogonalRNN(2, 6, nonlinearity="scaled_tanh")
    with torch.no_grad():
        core.activation_l0.copy_(torch.tensor([1.0, -1.0, 0.0, 0.5, -0.5, 0.0]))
    x = torch.randn(4, 60, 2)
    _, made = integers(core, x)
    with torch.no_grad():
        expected = core(x.transpose(0, 1))[0].transpose(0, 1).numpy()
    assert np.abs(made.run(x.numpy()) * made.output_scale - expected).max() < 2e-3 * np.abs(expected).max()


@pytest.mark.parametrize("nonlinearity", ["tanh", "scaled_tanh", "leaky_relu"])
def test_states_are_not_cut_between_reflections(nonlinearity):
    """Those of tanh are near 1 all of them, and a reflection gathers them in one unit."""
    torch.manual_seed(0)
    core = OrthogonalRNN(3, 30, parametrization=Householder(reflections=4), nonlinearity=nonlinearity)
    with torch.no_grad():
        core.weight_ih_l0.mul_(5)
    x = torch.randn(8, 100, 3)
    errors = {}
    for form in ("reflections", "dense"):
        folded, made = integers(core, x, form=form)
        assert folded.layers[0].form == form
        with torch.no_grad():
            expected = core(x.transpose(0, 1))[0].transpose(0, 1).numpy()
        error = made.run(x.numpy()) * made.output_scale - expected
        errors[form] = np.sqrt((error**2).mean()) / np.abs(expected).max()
    assert max(errors.values()) < 1e-3


def test_an_initial_state_larger_than_tanh_is_held():
    core = OrthogonalRNN(2, 5, nonlinearity="tanh", learn_h0=True)
    with torch.no_grad():
        core.h0.copy_(torch.tensor([[3.0, -3.0, 0.1, 0.0, 2.0]]))
    for ranges in ((torch.randn(2, 9, 2), None), (None, (-1.0, 1.0))):
        folded = fold_network(core)
        made = fixed.quantize(folded, 16, find_ranges(folded, *ranges, None, 1.25)).layers[0]
        assert np.abs(made.h0 * made.scale - core.h0.detach().numpy()).max() <= made.scale


def test_a_bias_beyond_all_sums_saturates():
    core = OrthogonalRNN(2, 4, nonlinearity="tanh")
    with torch.no_grad():
        core.bias_ih_l0.copy_(torch.tensor([1e9, -1e9, 0.0, 1e5]))
    x = torch.randn(2, 9, 2)
    _, made = integers(core, x)
    assert np.abs(made.layers[0].b).max() <= fixed.REACH
    y = made.run(x.numpy()) * made.output_scale
    assert np.abs(y[..., [0, 1, 3]] - [1.0, -1.0, 1.0]).max() < 1e-3


def test_slopes_are_at_most_two():
    for slopes, refused in (([2.0, -2.0, 0.5], False), ([2.01, 0.0, 0.0], True), ([0.0, -2.01, 0.0], True)):
        core = OrthogonalRNN(1, 3, nonlinearity="prelu")
        with torch.no_grad():
            core.activation_l0.copy_(torch.tensor(slopes))
        if refused:
            with pytest.raises(ArgumentError, match=r"slopes between -2 and 2 for integers, but layer 0 has 2\.01"):
                integers(core, torch.randn(1, 5, 1))
        else:
            x = torch.randn(1, 5, 1)
            y = integers(core, x)[1]
            with torch.no_grad():
                expected = core(x.transpose(0, 1))[0][:, 0].numpy()
            assert np.abs(y.run(x.numpy())[0] * y.output_scale - expected).max() < 2e-3 * np.abs(expected).max()


def test_outputs_in_unlike_units_keep_their_digits():
    """A second output of a small unit was rounded with the first one's, and constant."""
    torch.manual_seed(0)
    core = OrthogonalRNN(2, 12, nonlinearity="tanh")
    head = torch.nn.Linear(12, 2)
    with torch.no_grad():
        head.weight.mul_(torch.tensor([[1500.0], [0.08]]))
        head.bias.mul_(torch.tensor([1500.0, 0.08]))
    network = torch.nn.Module()
    network.core, network.head = core, head
    x = torch.randn(4, 30, 2)
    for bits in (8, 16):
        _, made = integers(network, x, bits=bits)
        found = made.run(x.numpy()) * made.output_scale
        with torch.no_grad():
            wanted = head(core(x.transpose(0, 1))[0].transpose(0, 1)).numpy()
        off = np.square(found - wanted).mean((0, 1)) / wanted.reshape(-1, 2).var(0)
        assert (off < (0.05 if bits == 8 else 1e-4)).all()
    with torch.no_grad():
        head.weight[1] *= 1e-8
        head.bias[1] *= 1e-8
    with pytest.raises(ArgumentError, match="outputs of similar size"):
        integers(network, x)


def test_what_integers_would_lose_is_refused():
    core = OrthogonalRNN(1, 6, nonlinearity="tanh")
    with torch.no_grad():
        core.weight_ih_l0.fill_(1.0)
        core.bias_ih_l0.fill_(-300.0)
    with pytest.raises(ArgumentError, match="Center the inputs"):
        integers(core, 300 + torch.rand(3, 9, 1))
    with pytest.raises(ArgumentError, match="inputs of similar size"):
        integers(OrthogonalRNN(2, 6, nonlinearity="tanh"), torch.randn(3, 9, 2) * torch.tensor([1e5, 1.0]))


@pytest.mark.parametrize("c", [1e-5, 1e-3, 1e-2])
def test_scaled_tanh_of_a_small_parameter_is_the_identity(c):
    core = OrthogonalRNN(2, 6, nonlinearity="scaled_tanh")
    with torch.no_grad():
        core.activation_l0.fill_(c)
    x = torch.randn(3, 20, 2)
    _, made = integers(core, x, bits=16)
    found = made.run(x.numpy()) * made.output_scale
    with torch.no_grad():
        wanted = core(x.transpose(0, 1))[0].transpose(0, 1).numpy()
    assert np.abs(found - wanted).max() < 0.05 * wanted.std()


@pytest.mark.parametrize("largest", [1.0, 0.5, 32766.9 / 2**19, 2.0**-15])
def test_no_sum_of_a_rotation_overflows(largest):
    """With half a unit to round it, which grows with the binary places."""
    made = fixed.FixedBase.of(Base(np.full(2, largest), np.full(2, largest)))
    sums = (np.abs(made.c) + np.abs(made.s)).max() * fixed.LARGEST + (1 << (made.places - 1))
    assert sums < INT32
    h = np.array([[fixed.LARGEST, fixed.LARGEST]])
    wanted = min(2 * largest, 1.0) * fixed.LARGEST
    assert np.abs(made(h) - wanted).max() <= 1 + fixed.LARGEST * 2.0 ** (1 - made.places)
