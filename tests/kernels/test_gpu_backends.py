"""The GPU backends without a GPU: Triton on its interpreter, CUDA C++ on an emulation; and which backend is chosen."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest
import torch

from orthornn import activations
from orthornn.errors import BackendError
from orthornn.kernels import compact_wy_rnn, dense_rnn, dispatch
from orthornn.kernels.backends import CUDA as CUDA_BACKEND
from orthornn.kernels.backends import TRITON
from orthornn.kernels.backends.cuda import chain, nvrtc
from orthornn.kernels.backends.triton import launch
from orthornn.kernels.call import Size
from support import emulation, on_interpreter
from support.against_oracle import check_not_finite, close
from support.cases import Case
from support.tolerances import tolerance

CUDA = torch.device("cuda")
SHAPES = [(n, m) for n in (1, 2, 5, 64, 100, 128, 170, 192, 256, 320, 512, 1024) for m in (0, 1, 16, 32, 128) if m <= n]


def interpreter_problem() -> str | None:
    """Why Triton's interpreter cannot run here, or None."""
    found = importlib.util.find_spec("triton")
    if found is None or found.origin is None:
        return "triton is not installed"
    version = importlib.metadata.version("triton")
    if tuple(int(number) for number in version.split(".")[:2]) < (3, 4):
        return f"the interpreter of Triton {version} stores where a mask of one element is False; 3.4 does not"
    source = pathlib.Path(found.origin).parent / "runtime" / "interpreter.py"
    numpy = tuple(int(number) for number in np.__version__.split(".")[:2])
    if numpy >= (2, 4) and "int(self.handle.data)" in source.read_text():
        return "this Triton's interpreter calls int() on arrays of one element, an error since NumPy 2.4"
    return None


@pytest.mark.skipif(interpreter_problem() is not None, reason=str(interpreter_problem()))
@pytest.mark.parametrize(
    "group",
    [pytest.param(name, marks=[pytest.mark.slow] * (name == "the-other-kinds")) for name in on_interpreter.GROUPS],
)
def test_triton_on_its_interpreter(group):
    here = pathlib.Path(__file__).parent
    environment = os.environ | {
        "TRITON_INTERPRET": "1",
        "PYTHONPATH": os.pathsep.join([*(path for path in sys.path if path), str(here.parent)]),
    }
    done = subprocess.run(
        [sys.executable, "-m", "support.on_interpreter", group], capture_output=True, text=True, env=environment
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.endswith("cases\n")


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


@pytest.mark.parametrize("paired", [False, True])
@pytest.mark.parametrize("n", [1, 2, 7, 33, 70, 128, 129, 170, 192, 193, 1000])
def test_unit_blocks_cover_the_state(n, paired):
    n1, P1, P2 = launch.unit_blocks(n, paired)
    assert n1 <= P1
    assert n - n1 <= P2 <= P1
    assert P1 & (P1 - 1) == P2 & (P2 - 1) == 0
    if paired:
        assert n1 == n - n // 2


def test_what_is_chosen_on_a_gpu(monkeypatch):
    monkeypatch.setattr(nvrtc, "missing", lambda: None)
    monkeypatch.setattr(TRITON, "unavailable", lambda device: None)
    chosen = {
        "cuda": [Size(170), Size(256, 32, 128, 784), Size(1024, 32)],
        "triton": [Size(1024, 512), Size(9, 0)],
        "graph": [Size(512, steps=784, batch=128)],
        "reference": [Size(512, steps=3), Size(512, steps=784, ragged=True)],
    }
    for name, sizes in chosen.items():
        for size in sizes:
            assert dispatch.choose("auto", CUDA, torch.float32, size) == name
            assert name in dispatch.describe(CUDA, size)
    assert dispatch.choose("auto", CUDA, torch.float64, Size(170)) == "reference"
    with pytest.raises(BackendError, match="float32"):
        dispatch.choose("cuda", CUDA, torch.float64, Size(170))
    with pytest.raises(BackendError, match="N=512"):
        dispatch.choose("triton", CUDA, torch.float32, Size(512))


def test_gpu_backends_on_a_cpu_say_why_not():
    x, h0 = torch.zeros(3, 2, 4), torch.zeros(2, 4)
    for backend in ("cuda", "graph", "triton"):
        with pytest.raises(BackendError, match=backend):
            dense_rnn(x, h0, torch.eye(4), "tanh", backend=backend)
        with pytest.raises(BackendError, match=backend):
            compact_wy_rnn(x, h0, torch.ones(4, 1), None, "tanh", backend=backend)
