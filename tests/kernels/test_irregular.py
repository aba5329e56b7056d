"""Rotations over irregular time: both backends against matrix exponentials of the generator, differentiated by autograd."""

from __future__ import annotations

import math
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx

from orthornn import activations
from orthornn.kernels import irregular
from orthornn.kernels.call import Options
from orthornn.kernels.irregular import IrregularCall
from orthornn.layout import SequenceLayout
from support.tolerances import tolerance

SIZES = torch.tensor([5, 5, 3, 1, 1])
NAMES = ("x", "angles", "rates", "dt", "h0", "restart")


@dataclass(frozen=True)
class Case:
    n: int = 6
    batch: int = 5
    steps: int = 5
    ragged: bool = False
    resets: bool = False
    only_last: bool = False
    segment: int | None = None
    spread: float = 1.0  # of log dt

    def call(self, seed: int = 0, dtype: torch.dtype = torch.float64, backend: str = "auto") -> IrregularCall:
        generator = torch.Generator().manual_seed(seed)

        def normal(*shape: int) -> Tensor:
            return torch.randn(*shape, dtype=torch.float64, generator=generator)

        n, half = self.n, self.n // 2
        rows = (int(SIZES.sum()),) if self.ragged else (self.steps, self.batch)
        rates = normal(n - half).exp()
        rates[: (n - half) // 2] = 0  # those that keep the norm
        x, angles, dt, h0 = (
            normal(*rows, n),
            3 * normal(half),
            (self.spread * normal(*rows)).exp(),
            normal(self.batch, n),
        )
        resets = torch.rand(*rows, generator=generator) < 0.4 if self.resets else None
        layout = SequenceLayout.of(x, SIZES if self.ragged else None, self.batch, resets)
        options = Options("irregular", activations.get("identity"), None, self.only_last, backend, self.segment)
        restart = normal(self.batch, n).to(dtype) if self.resets else None
        return IrregularCall(x.to(dtype), angles, rates, dt, h0.to(dtype), restart, layout, options)


CASES = [
    Case(),
    Case(n=1),
    Case(n=7, resets=True),
    Case(n=2, only_last=True),
    Case(n=9, ragged=True),
    Case(n=35, ragged=True, resets=True, only_last=True),
    Case(n=8, ragged=True, resets=True, segment=2),
    Case(n=18, steps=7, batch=3, segment=3, only_last=True),
    Case(n=5, batch=37, steps=3, resets=True),
    Case(n=12, steps=1, batch=1),
    Case(n=4, spread=4.0),
]
IDS = [repr(case)[5:-1] for case in CASES]


def by_exponentials(call: IrregularCall) -> Tensor:
    """The states that are wanted, with exp(G dt) of every row by torch.linalg.matrix_exp."""
    angles, rates, layout = call.angles, call.rates, call.layout
    n, half = call.h0.shape[1], angles.shape[0]
    G = torch.diag(-torch.cat([rates, rates[:half]]))
    pairs = torch.arange(half)
    G = G.index_put((pairs, pairs + n - half), angles).index_put((pairs + n - half, pairs), -angles)
    h, states, ended = call.h0, [], []
    steps = zip(layout.split(layout.flatten(call.x)), layout.split(layout.flatten(call.dt)), layout.split_resets())
    for x, dt, reset in steps:
        ended.append(h[x.shape[0] :])
        h = h[: x.shape[0]]
        if reset is not None:
            h = torch.where(reset, call.restart[: x.shape[0]], h)
        h = torch.einsum("bij,bj->bi", torch.linalg.matrix_exp(dt[:, None, None] * G), h) + x
        states.append(h)
    return torch.cat([h, *reversed(ended)]) if call.options.only_last else torch.cat(states)


def with_leaves(call: IrregularCall) -> tuple[IrregularCall, list[Tensor]]:
    leaves = [None if t is None else t.detach().clone().requires_grad_() for t in call.tensors()]
    return call.with_tensors(leaves), [t for t in leaves if t is not None]


@pytest.mark.parametrize("backend", ["cpp", "reference"])
@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_states_and_gradients_are_those_of_matrix_exponentials(case, backend):
    call, leaves = with_leaves(case.call(backend=backend))
    wanted = irregular.run(call).wanted.reshape(-1, case.n)
    expected = by_exponentials(call)
    torch.testing.assert_close(wanted, expected, rtol=1e-12, atol=1e-12)
    weights = torch.randn(expected.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    found = torch.autograd.grad(wanted, leaves, weights)
    for name, own, other in zip(NAMES, found, torch.autograd.grad(expected, leaves, weights)):
        torch.testing.assert_close(own, other, rtol=1e-10, atol=1e-10, msg=lambda text, name=name: f"{name}: {text}")


@pytest.mark.parametrize("case", CASES[:7], ids=IDS[:7])
def test_gradients_against_differences(case):
    call, leaves = with_leaves(case.call(2))
    there = [t is not None for t in call.tensors()]

    def states(*tensors: Tensor) -> Tensor:
        given = iter(tensors)
        return irregular.run(call.with_tensors([next(given) if here else None for here in there])).wanted

    assert torch.autograd.gradcheck(states, leaves, fast_mode=True)


def test_second_derivatives():
    call, leaves = with_leaves(Case(n=5, batch=2, steps=3).call(3))
    assert torch.autograd.gradgradcheck(
        lambda *t: irregular.run(call.with_tensors([*t, None])).wanted, leaves, fast_mode=True
    )


@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_float32_agrees_with_float64(case):
    call, leaves = with_leaves(case.call(dtype=torch.float32))
    wide, wide_leaves = with_leaves(case.call())
    found, expected = irregular.run(call).wanted, irregular.run(wide).wanted
    weights = torch.ones_like(expected)
    grads = torch.autograd.grad(found, leaves, weights.float())
    exact = torch.autograd.grad(expected, wide_leaves, weights)
    for own, other in zip((found, *grads), (expected, *exact)):
        scale = float(other.detach().abs().max()) if other.numel() else 1.0
        torch.testing.assert_close(own.double(), other, rtol=0, atol=tolerance(torch.float32, case.n) * max(scale, 1))


@pytest.mark.parametrize("angle", [0.0, 1e-300, 1.0, 1e3, 700000.0, 1e7, 1e15])
def test_an_angle_of_any_size(angle):
    """sin and cos to the last digits of 1, within the reach of the reduction and beyond it."""
    angles = angle * torch.linspace(0.5, 1.5, 67, dtype=torch.float64)
    n, layout = 2 * len(angles), SequenceLayout(1, 1)
    h0 = torch.cat([torch.ones_like(angles), torch.zeros_like(angles)]).unsqueeze(0)
    zero = h0.new_zeros(1, 1, n)
    options = Options("irregular", activations.get("identity"))
    call = IrregularCall(zero, angles, torch.zeros_like(angles), h0.new_ones(1, 1), h0, None, layout, options)
    top, low = irregular.run(call).last[0].split(len(angles))
    expected = [(math.cos(a), -math.sin(a)) for a in angles.tolist()]
    found = torch.stack([top, low], 1)
    assert (
        float((found - torch.tensor(expected, dtype=torch.float64)).abs().max()) <= 2 * torch.finfo(torch.float64).eps
    )


@pytest.mark.parametrize("rate", [1e-12, 0.3, 20.0, 700.0, 1e5, math.inf])
def test_a_rate_of_any_size(rate):
    rates = rate * torch.linspace(0.5, 1.0, 9, dtype=torch.float64)
    h0, layout = torch.ones(1, 9, dtype=torch.float64), SequenceLayout(1, 1)
    options = Options("irregular", activations.get("identity"))
    call = IrregularCall(
        h0.new_zeros(1, 1, 9), h0.new_zeros(4), rates[:5], h0.new_ones(1, 1), h0, None, layout, options
    )
    expected = torch.exp(-torch.cat([rates[:5], rates[:4]]))
    torch.testing.assert_close(irregular.run(call).last[0], expected, rtol=1e-15, atol=1e-300)


def test_a_rate_of_zero_keeps_the_norm_over_many_irregular_steps():
    generator = torch.Generator().manual_seed(0)
    steps, n = 20000, 6
    dt = torch.rand(steps, 1, dtype=torch.float64, generator=generator) + 0.1
    h0 = torch.randn(1, n, dtype=torch.float64, generator=generator)
    zero = h0.new_zeros(n // 2)
    options = Options("irregular", activations.get("identity"), only_last=True)
    call = IrregularCall(h0.new_zeros(steps, 1, n), zero + 1.3, zero, dt, h0, None, SequenceLayout(steps, 1), options)
    last = irregular.run(call).last
    assert abs(float(last.norm() / h0.norm()) - 1) < 4 * steps**0.5 * torch.finfo(torch.float64).eps
    whole = irregular.turned(h0, zero + 1.3, zero, dt.sum(0))
    torch.testing.assert_close(last, whole, rtol=0, atol=1e-10)


def test_threads_and_company_change_no_bit_of_a_sequence():
    case = Case(n=11, batch=9, steps=6)
    call = case.call()
    every = irregular.run(call).all
    alone = call._replace(x=call.x[:, 4:5], dt=call.dt[:, 4:5], h0=call.h0[4:5], layout=SequenceLayout(case.steps, 1))
    assert torch.equal(irregular.run(alone).all[:, 0], every[:, 4])
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(1 if threads > 1 else 2)
        assert torch.equal(irregular.run(call).all, every)
    finally:
        torch.set_num_threads(threads)


@pytest.mark.parametrize(
    "case", [Case(), Case(n=7, ragged=True, resets=True), Case(segment=2, only_last=True)], ids=repr
)
def test_a_graph_has_the_same_states(case):
    call = case.call()
    leaves = [t for t in call.tensors() if t is not None]

    def states(*tensors: Tensor) -> Tensor:
        given = [*tensors, *[None] * (len(NAMES) - len(tensors))]
        return irregular.run(call.with_tensors(given)).wanted

    graph = make_fx(states)(*leaves)
    assert any("irregular" in str(node.target) for node in graph.graph.nodes)
    assert torch.equal(graph(*leaves), states(*leaves))


def test_a_sequence_without_steps():
    call = Case(steps=0).call()
    states = irregular.run(call)
    assert states.all.shape == (0, 5, 6)
    assert torch.equal(states.last, call.h0)


def test_under_vmap():
    call = Case(n=3, batch=2, steps=4).call()
    angles = torch.stack([call.angles, 2 * call.angles])
    found = torch.func.vmap(lambda a: irregular.run(call._replace(angles=a)).last)(angles)
    each = torch.stack([irregular.run(call._replace(angles=a)).last for a in angles])
    torch.testing.assert_close(found, each, rtol=1e-13, atol=1e-13)
