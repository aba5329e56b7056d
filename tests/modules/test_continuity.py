"""A trained network computes one function: by steps and whole, in every form, backend and precision, and exported.

Every default is trained first. Each is a network that never lengthens a difference between two states, or forgets it, so that
what rounding changes stays what rounding is. (modReLU with b > 0, which is no default, jumps at 0: a difference there is b.)
"""

from __future__ import annotations

import copy
import functools
import math

import pytest
import torch
from torch import nn

import orthornn
from orthornn import DeltaRNN, OrthogonalBlocks, OrthogonalRNN, ReflectionRNN
from orthornn.activations import get
from orthornn.diagnostics import hidden_gradient_norms
from orthornn.kernels.backends import BACKENDS

N, T = 48, 1000
FLOAT32 = 1e-4  # of the largest state, after T steps
BFLOAT16 = 4 * 2.0**-8
BFLOAT16_STEPS = 2.0**-9 * T**0.5  # the state is rounded after each step, and these errors add up like a random walk
DEFAULTS = {
    "OrthogonalRNN": lambda: OrthogonalRNN(5, N),
    "two layers": lambda: OrthogonalRNN(5, N, num_layers=2),
    "linear": lambda: OrthogonalRNN(5, N, nonlinearity="identity"),
    "other parametrization": lambda: OrthogonalRNN(5, N, parametrization=orthornn.ScaledCayley()),
    "unitary": lambda: OrthogonalRNN(5, N // 2, parametrization=orthornn.RestrictedUnitary()),
    "OrthogonalBlocks": lambda: OrthogonalBlocks(5, N),
    "ReflectionRNN": lambda: ReflectionRNN(5, N),
    "DeltaRNN": lambda: DeltaRNN(5, N // 4),
}
EVERY = pytest.mark.parametrize("name", DEFAULTS)


def batch(generator: torch.Generator, steps: int = 60, size: int = 16) -> tuple[torch.Tensor, torch.Tensor]:
    """One of four symbols in the first step, then noise: the first tutorial's."""
    labels = torch.randint(4, (size,), generator=generator)
    x = torch.zeros(steps, size, 5)
    x[0, torch.arange(size), labels] = 1
    x[:, :, 4] = 0.1 * torch.randn(steps, size, generator=generator)
    return x, labels


@functools.cache
@torch.enable_grad()
def trained(name: str) -> nn.Module:
    """A default network after 150 updates with Adam."""
    torch.manual_seed(0)
    net, readout, generator = DEFAULTS[name](), nn.LazyLinear(4), torch.Generator().manual_seed(0)
    readout(flat(net(batch(generator)[0])[0][-1]))
    optimizer = torch.optim.Adam([*net.parameters(), *readout.parameters()], 3e-3)
    for _ in range(150):
        x, labels = batch(generator)
        loss = nn.functional.cross_entropy(readout(flat(net(x)[0][-1])), labels)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
    assert loss.item() < math.log(4)
    return net.eval()


def flat(states: torch.Tensor) -> torch.Tensor:
    return torch.view_as_real(states).flatten(-2) if states.is_complex() else states


def inputs() -> torch.Tensor:
    return batch(torch.Generator().manual_seed(1), T, 3)[0]


@functools.cache
def expected(name: str) -> torch.Tensor:
    """The outputs (T, B, F) of the whole-sequence call in float64."""
    with torch.no_grad():
        return flat(copy.deepcopy(trained(name)).double()(inputs().double())[0])


def check(name: str, found: torch.Tensor, bound: float) -> None:
    want = expected(name)
    off = (flat(found).double() - want).abs().max() / want.abs().max()
    assert float(off) < bound, name


@EVERY
@torch.no_grad()
def test_whole_sequences(name):
    check(name, trained(name)(inputs())[0], FLOAT32)


@EVERY
@torch.no_grad()
def test_step_by_step(name):
    net, h, outputs = trained(name), None, []
    for x in inputs():
        y, h = net.step(x, h)
        outputs.append(y)
    check(name, torch.stack(outputs), FLOAT32)


@pytest.mark.parametrize("form", ["dense", "compact_wy", "operator"])
@pytest.mark.parametrize("name", ["OrthogonalRNN", "two layers", "linear", "other parametrization", "unitary"])
@torch.no_grad()
def test_every_form(name, form):
    net = copy.deepcopy(trained(name))
    net.form = form
    check(name, net(inputs())[0], FLOAT32)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", ["OrthogonalRNN", "linear", "other parametrization"])
@torch.no_grad()
def test_every_backend(name, backend):
    reason = BACKENDS[backend].unavailable(torch.device("cpu"))
    if reason is not None:
        pytest.skip(reason)
    net = trained(name)
    layer, (h,) = net.layers()[0], net._initial_states(3, None)
    layout = orthornn.layout.SequenceLayout(T, 3)
    settings = net._settings()._replace(backend=backend, form="dense")
    check(name, layer.run(inputs(), h, layout, False, settings).all, FLOAT32)


@EVERY
@torch.no_grad()
def test_automatic_mixed_precision(name):
    net, h, outputs = trained(name), None, []
    with torch.autocast("cpu", torch.bfloat16):
        check(name, net(inputs())[0], BFLOAT16)
        for x in inputs():
            y, h = net.step(x, h)
            outputs.append(y)
    check(name, torch.stack(outputs), BFLOAT16_STEPS)


@EVERY
@torch.no_grad()
def test_exported_graphs(name):
    net = trained(name)
    program = torch.export.export(net, (inputs(),))
    check(name, program.module()(inputs())[0], FLOAT32)


def test_a_network_that_jumps_computes_several():
    """modReLU with b > 0: why it is no default."""
    phi, b = get("modrelu"), torch.tensor([0.3])
    tiny = torch.tensor([1e-30])
    assert float(phi(tiny, b) - phi(-tiny, b)) == pytest.approx(0.6)
    assert abs(float(phi(tiny, -b) - phi(-tiny, -b))) <= 2e-30


def pixels(generator: torch.Generator, steps: int, size: int) -> torch.Tensor:
    """Numbers in [0, 1] of which most are 0, as those of MNIST: mean .13, deviation .31."""
    ink = torch.rand(steps, size, 1, generator=generator) < 0.19
    return ink * (0.4 + 0.6 * torch.rand(steps, size, 1, generator=generator))


@pytest.mark.parametrize("of", ["noise", "pixels"])
@pytest.mark.parametrize(
    "options",
    [
        {},
        *({"nonlinearity": name} for name in ("identity", "modrelu", "oplu", "prelu", "scaled_tanh")),
        *(
            {"parametrization": method}
            for method in (
                orthornn.Householder(),
                orthornn.Householder(reflections=16, base="rotations"),
                orthornn.ScaledCayley(),
                orthornn.RestrictedUnitary(),
                orthornn.Givens(layers=2),
            )
        ),
    ],
    ids=str,
)
def test_gradients_reach_the_first_of_784_steps(options, of):
    """At initialization, the norm of the gradient at the first step is at least a tenth of that at the last."""
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(784, 8, 1, generator=generator) if of == "noise" else pixels(generator, 784, 8)
    net = OrthogonalRNN(1, 128, **options)
    weights = torch.randn(128, generator=generator)
    norms = hidden_gradient_norms(net, x, lambda states: (states[-1] * weights).real.sum())
    assert float(norms[0, 0] / norms[0, -1]) >= 0.1


@pytest.mark.parametrize("of", ["noise", "pixels"])
def test_gradients_reach_the_first_of_784_steps_of_blocks(of):
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(784, 8, 1, generator=generator) if of == "noise" else pixels(generator, 784, 8)
    net = OrthogonalBlocks(1, 64, depth=2)
    norms = hidden_gradient_norms(net, x, lambda outputs: outputs[-1].square().sum())
    assert float((norms[:, 0] / norms[:, -1]).min()) >= 0.1


@pytest.mark.parametrize("name", ["tanh", "relu", "leaky_relu"])
def test_some_nonlinearities_take_the_gradient_away(name):
    """Each step shrinks it: leaky_relu by about sqrt((1 + slope^2) / 2). None of them is a default."""
    torch.manual_seed(0)
    net = OrthogonalRNN(1, 128, nonlinearity=name, parametrization=orthornn.Householder(16, base="rotations"))
    x = torch.randn(784, 8, 1, generator=torch.Generator().manual_seed(0))
    norms = hidden_gradient_norms(net, x, lambda states: states[-1].square().sum())
    assert float(norms[0, 0] / norms[0, -1]) < 0.1
