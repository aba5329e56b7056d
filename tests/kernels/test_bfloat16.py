"""Rows stored in bfloat16 beside a float32 transition, in every backend: what holds of them is in halved.py."""

from __future__ import annotations

import pytest
import torch

from orthornn.errors import DTypeError
from orthornn.kernels import compact_wy_rnn, dense_rnn
from orthornn.kernels.backends import CUDA
from orthornn.kernels.backends.cuda import backend as cuda_backend
from orthornn.kernels.backends.cuda import cluster, nvrtc
from orthornn.kernels.backends.cuda.product import Product
from support import emulation
from support.against_oracle import BACKENDS, DEVICE
from support.cases import Case
from support.halved import EMPTY, INPUTS, ROUNDING, alternating, check_halved, halved


@pytest.mark.sampled(3)
@pytest.mark.parametrize("shift", [0, 1, 2])
@pytest.mark.parametrize("backend", BACKENDS)
def test_every_activation(backend, shift):
    for case in alternating(shift):
        check_halved(case, backend, DEVICE)


@pytest.mark.parametrize("backend", BACKENDS)
def test_inputs_and_no_steps(backend):
    for case in INPUTS:
        check_halved(case, backend, DEVICE)
    for case in EMPTY:
        drawn = case.draw()
        tensors = halved(drawn, torch.float32, DEVICE)
        out = drawn.call(tensors, backend)
        assert out.dtype == torch.bfloat16
        grad_h0 = torch.autograd.grad(out.float().sum(), tensors["h0"], allow_unused=True, materialize_grads=True)[0]
        assert torch.equal(grad_h0, torch.full_like(grad_h0, case.output == "last"))


@pytest.mark.sampled(1)
@pytest.mark.parametrize("case", [alternating(0)[k] for k in (1, 7, 8)] + INPUTS[4:5], ids=lambda case: case.activation)
def test_cuda_emulated(case, folder, monkeypatch):
    monkeypatch.setattr(CUDA, "unavailable", lambda device: None)
    monkeypatch.setattr(nvrtc, "load", emulation.loader(folder))
    check_halved(case, "cuda", torch.device("cpu"))


def test_cuda_emulated_clusters(folder, monkeypatch):
    monkeypatch.setattr(CUDA, "unavailable", lambda device: None)
    monkeypatch.setattr(nvrtc, "load", emulation.loader(folder))
    shape = cluster.Shape(9, 2, Product(8, 9, 32, 8, 1), 2)
    monkeypatch.setattr(cuda_backend, "_shape", lambda size: shape)
    check_halved(Case("dense", "modrelu", n=9, steps=4, batch=3), "cuda", torch.device("cpu"))


@pytest.mark.parametrize("output", ["all", "last"])
def test_what_is_kept_takes_half_the_bytes(output):
    T, B, n, m = 50, 3, 20, 4
    sizes = []
    for dtype in (torch.float32, torch.bfloat16):
        case = Case("packed", "modrelu", n=n, m=m, steps=T, batch=B, inputs=None, output=output).draw()
        tensors = case.to(torch.float32, DEVICE) | {"x": case.tensors["x"].to(DEVICE, dtype).requires_grad_()}
        saved: dict[int, int] = {}
        with torch.autograd.graph.saved_tensors_hooks(
            lambda tensor, saved=saved: saved.setdefault(tensor.data_ptr(), tensor.nbytes) and tensor,
            lambda tensor: tensor,
        ):
            case.call(tensors)
        sizes.append(sum(saved.values()))
    # Besides the parameters: states (N), h~ (M) and the projected input itself (N) of every row.
    assert sizes[0] - sizes[1] == 2 * T * B * (2 * n + m)


def test_dtypes_that_do_not_go_together():
    case = INPUTS[2].draw()
    tensors = case.to(torch.float32)
    for changed in ({"x"}, {"weight_ih"}, {"h0"}, {"weight"}):
        mixed = tensors | {name: tensors[name].detach().bfloat16() for name in changed}
        with pytest.raises(DTypeError):
            case.call(mixed)
    with pytest.raises(DTypeError, match="float16"):
        case.call(tensors | {name: tensors[name].detach().half() for name in ("x", "weight_ih")})


def test_compiled_and_under_transforms():
    torch.manual_seed(0)
    x, h0, W = torch.randn(4, 3, 6).bfloat16(), torch.randn(3, 6), torch.linalg.qr(torch.randn(6, 6))[0]
    U = torch.randn(6, 2)
    for call in (
        lambda x, h0: dense_rnn(x, h0, W, "tanh", output="last"),
        lambda x, h0: compact_wy_rnn(x, h0, U, None, "modrelu", torch.zeros(6)),
    ):
        leaf = x.clone().requires_grad_()
        want = call(leaf, h0)
        expected = torch.autograd.grad(want.float().sum(), leaf)[0]
        compiled = torch.compile(call, fullgraph=True, backend="aot_eager")
        other = x.clone().requires_grad_()
        got = compiled(other, h0)
        assert got.dtype == torch.bfloat16
        assert torch.equal(got, want)
        assert torch.equal(torch.autograd.grad(got.float().sum(), other)[0], expected)
        by_func = torch.func.grad(lambda h, call=call: call(x, h).float().sum())(h0)
        by_node = torch.autograd.grad(call(x, h0.requires_grad_()).float().sum(), h0)[0]
        # Only phi' is read off rounded numbers: each step's is off by at most a rounding and the chain multiplies them.
        scale = float(by_func.abs().max())
        assert float((by_func - by_node).abs().max()) <= 4 * 2 * ROUNDING * (1 + scale) * 6**0.5
        h0 = h0.detach()


def test_with_segments_only_the_output_is_rounded():
    case = Case("packed", "tanh", n=6, m=3, steps=7, memory="checkpoint", segment=2).draw()
    tensors, wide = halved(case, torch.float32, DEVICE), halved(case, torch.float32, DEVICE)
    wide |= {name: wide[name].detach().float().requires_grad_() for name in ("x", "weight_ih")}
    out, want = case.call(tensors), case.call(wide)
    assert torch.equal(out, want.bfloat16())
    grad = torch.ones_like(out)
    grads = torch.autograd.grad(out, case.differentiable(tensors), grad)
    for found, expected in zip(grads, torch.autograd.grad(want, case.differentiable(wide), grad.float())):
        assert torch.equal(found, expected.to(found.dtype))
