"""The CUDA backend without a GPU: its C++ on an emulation of the device, and the shapes of its launches."""

from __future__ import annotations

import pathlib

import pytest
import torch

from orthornn import activations
from orthornn.kernels.backends import CUDA as CUDA_BACKEND
from orthornn.kernels.backends.cuda import chain, nvrtc
from support import emulation
from support.against_oracle import check_not_finite, close
from support.cases import Case
from support.tolerances import tolerance

SHAPES = [(n, m) for n in (1, 2, 5, 64, 100, 128, 170, 192, 256, 320, 512, 1024) for m in (0, 1, 16, 32, 128) if m <= n]


def check_emulated(case: Case, folder: pathlib.Path, monkeypatch, shape: chain.Shape | None = None) -> None:
    """The public function with the CUDA backend's launches emulated, against the oracle; twice, in two orders."""
    monkeypatch.setattr(CUDA_BACKEND, "unavailable", lambda device: None)
    if shape is not None:
        monkeypatch.setattr(chain, "best", lambda n, m: shape)
    case = case.draw()
    want_tensors = case.to(torch.float64)
    want = case.oracle(want_tensors)
    grad = torch.randn(want.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    expected = torch.autograd.grad(want, case.differentiable(want_tensors), grad, materialize_grads=True)
    runs = []
    for seed in (0, 1):
        monkeypatch.setattr(nvrtc, "load", emulation.loader(folder, seed))
        tensors = case.to(torch.float32)
        out = case.call(tensors, "cuda")
        runs.append([out, *torch.autograd.grad(out, case.differentiable(tensors), grad.float())])
    for found, wanted in zip(runs[0], (want, *expected)):
        close(found, wanted, tolerance(torch.float32, case.steps * case.n))
    assert all(torch.equal(a, b) for a, b in zip(*runs))


@pytest.mark.parametrize("activation", activations.ACTIVATIONS)
def test_cuda_emulated_every_activation(activation, folder, monkeypatch):
    k = list(activations.ACTIVATIONS).index(activation)
    kind = ("packed", "dense", "matrix")[k % 3]
    check_emulated(Case(kind, activation, n=10, m=3, steps=4, packed=k % 2 == 0), folder, monkeypatch)


@pytest.mark.parametrize("bad", [float("nan"), float("-inf")])
def test_cuda_emulated_not_finite(bad, folder, monkeypatch):
    monkeypatch.setattr(CUDA_BACKEND, "unavailable", lambda device: None)
    monkeypatch.setattr(nvrtc, "load", emulation.loader(folder))
    check_not_finite("cuda", "complex_modrelu", bad, torch.device("cpu"), clip=0.5)


def test_cuda_emulated_last_state(folder, monkeypatch):
    check_emulated(Case("packed", "modrelu", n=11, m=3, steps=4, packed=True, output="last"), folder, monkeypatch)


LANES = [(n, m, a, b) for n, m in ((37, 19), (37, 0)) for a in (4, 8, 16, 32) for b in ((4, 8, 16, 32) if m else (4,))]


@pytest.mark.parametrize(
    ("n", "m", "lanes1", "lanes2"),
    [pytest.param(*lanes, marks=[pytest.mark.slow] if lanes != (37, 19, 16, 4) else []) for lanes in LANES],
)
def test_cuda_emulated_shapes(n, m, lanes1, lanes2, folder, monkeypatch):
    """Several passes over the rows, weights partly and wholly in shared memory."""
    if m:
        products = (chain.Product(m, n, 64, lanes1, 1), chain.Product(n, m, 64, lanes2, 0))
    else:
        products = (chain.Product(n, n, 64, lanes1, 1),)
    case = Case("packed" if m else "dense", "oplu", n=n, m=m, steps=3, batch=2)
    check_emulated(case, folder, monkeypatch, chain.Shape(n, m, products))


@pytest.mark.slow
@pytest.mark.parametrize(("n", "m"), [(170, 0), (256, 0), (256, 32), (512, 32), (256, 128)])
def test_cuda_emulated_sizes(n, m, folder, monkeypatch):
    check_emulated(Case("packed" if m else "dense", "modrelu", n=n, m=m, steps=3, batch=2), folder, monkeypatch)


@pytest.mark.parametrize(("n", "m"), SHAPES)
def test_a_shape_covers_its_products_and_fits(n, m):
    shape = chain.best(n, m)
    if shape is None:
        assert 4 * (2 * n * m if m else n * n) > 200 * 1024  # never refused where registers alone would do
        return
    assert shape.bytes <= 227 * 1024
    held = sum(product.passes * product.held for product in shape.products) * 16
    assert shape.threads * (held + chain.RESERVE) <= chain.REGISTERS
    for product in shape.products:
        assert product.passes * 4 * (product.threads // product.lanes) >= product.rows
        assert product.vector >= product.columns
