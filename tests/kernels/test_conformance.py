"""Every backend of every recurrence against a plain float64 loop: outputs and all gradients, at awkward sizes."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from orthornn import activations
from orthornn.kernels import dense_rnn
from orthornn.kernels.backends import BACKENDS as ALL_BACKENDS
from orthornn.kernels.backends.cpp import extension
from orthornn.kernels.call import Size
from support.against_oracle import (
    BACKENDS,
    DEVICE,
    DTYPES,
    check,
    check_clip,
    check_not_finite,
    check_parameter_is_nan,
)
from support.cases import Case


@pytest.mark.sampled(10)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("activation", activations.ACTIVATIONS)
@pytest.mark.parametrize("kind", ["dense", "packed", "matrix"])
@pytest.mark.parametrize("backend", BACKENDS)
def test_every_activation_layout_and_output(backend, kind, activation, dtype):
    for packed in (False, True):
        for output in ("all", "last"):
            for n in (6, 10):
                check(Case(kind, activation, n=n, m=3, packed=packed, output=output), backend, dtype)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(
    "case",
    [
        Case(n=1, m=1, batch=1),
        Case(n=2, m=1, steps=1),
        Case(n=17, m=16, batch=1, activation="modrelu"),
        Case(n=33, m=33, batch=5, activation="leaky_relu"),
        Case(n=64, m=5, batch=13, steps=19, activation="oplu"),
        Case(n=100, m=37, batch=7, steps=63, activation="modrelu"),
        Case(n=65, m=8, batch=31, steps=5, activation="relu", packed=True),
        Case(n=19, m=4, batch=1, steps=40, activation="identity", packed=True),
        Case(n=7, m=0, base=True),
        Case(n=7, m=3, base=False),
    ],
    ids=lambda case: f"n{case.n}m{case.m}B{case.batch}T{case.steps}{case.activation}",
)
@pytest.mark.parametrize("kind", ["dense", "packed", "matrix"])
@pytest.mark.parametrize("backend", BACKENDS)
def test_awkward_sizes(backend, kind, case, dtype):
    for inputs in (None, 0, 1, 2, 9):
        check(replace(case, kind=kind, inputs=inputs), backend, dtype)
    check(replace(case, kind=kind, output="last", bias=False), backend, dtype)


@pytest.mark.parametrize("output", ["all", "last"])
@pytest.mark.parametrize("backend", BACKENDS)
def test_a_size_that_takes_a_cluster_of_a_gpu(backend, output):
    check(Case("dense", "modrelu", n=341, steps=4, batch=5, packed=True, output=output), backend, torch.float32)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("batch", [150, 423])
@pytest.mark.parametrize("backend", BACKENDS)
def test_more_sequences_than_a_gpu_has_multiprocessors(backend, batch, packed):
    """A cluster takes several of them, of unequal lengths, and the last one fewer."""
    check(Case("dense", "tanh", n=197, steps=5, batch=batch, packed=packed), backend, torch.float32)


@pytest.mark.sampled(15)
@pytest.mark.parametrize("gain", [0.9, 1.05])
@pytest.mark.parametrize("kind", ["dense", "packed"])
@pytest.mark.parametrize("base", [False, True])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("backend", BACKENDS)
def test_gain(backend, dtype, base, kind, gain):
    check(Case(kind, "modrelu", n=9, m=4, base=base, gain=gain), backend, dtype)


@pytest.mark.parametrize("kind", ["dense", "packed"])
@pytest.mark.parametrize("backend", BACKENDS)
def test_no_steps_and_no_sequences(backend, kind):
    for steps, batch in ((0, 3), (4, 0), (0, 0)):
        for output in ("all", "last"):
            for activation in ("modrelu", "oplu"):
                case = Case(kind, activation, n=6, m=2, steps=steps, batch=batch, output=output).draw()
                tensors = case.to(torch.float32, DEVICE)
                out = case.call(tensors, backend)
                assert out.shape == ((batch, 6) if output == "last" else (steps, batch, 6))
                grads = torch.autograd.grad(
                    out.sum(), case.differentiable(tensors), allow_unused=True, materialize_grads=True
                )
                assert all(grad.isfinite().all() for grad in grads)
                if steps == 0 and output == "last":
                    assert torch.equal(out, tensors["h0"])
                    assert torch.equal(grads[3], torch.ones_like(grads[3]))


@pytest.mark.parametrize("activation", ["modrelu", "oplu"])
@pytest.mark.parametrize("output", ["all", "last"])
@pytest.mark.parametrize("backend", BACKENDS)
def test_numbers_kept_for_the_backward_pass(backend, output, activation):
    """At most T B (N + M) numbers of the sequence, besides the parameters' own size; the paper needs N M T."""
    T, B, n, m = 50, 3, 20, 4
    tensors = (
        Case("packed", activation, n=n, m=m, steps=T, batch=B, inputs=1, output=output).draw().to(torch.float32, DEVICE)
    )
    saved: dict[int, int] = {}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        saved[tensor.data_ptr()] = tensor.numel()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        Case("packed", activation, n=n, m=m, steps=T, batch=B, inputs=1, output=output).call(tensors, backend)
    own = sum(t.numel() for t in tensors.values()) + n * m + m * m
    assert sum(saved.values()) <= T * B * (n + m) + own
    assert sum(saved.values()) >= T * B * (n + m)


@pytest.mark.parametrize("kind", ["dense", "packed"])
@pytest.mark.parametrize("backend", BACKENDS)
def test_the_same_bits_again(backend, kind):
    for inputs in (2, 0):  # 0: tokens, whose gradients are sums over rows
        case = Case(kind, "modrelu", n=40, m=7, steps=30, batch=6, inputs=inputs).draw()
        runs = []
        for _ in range(2):
            tensors = case.to(torch.float32, DEVICE)
            out = case.call(tensors, backend)
            runs.append([out, *torch.autograd.grad(out.square().sum(), case.differentiable(tensors))])
        assert all(torch.equal(a, b) for a, b in zip(*runs))


@pytest.mark.parametrize("activation", activations.ACTIVATIONS)
@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
def test_what_is_not_finite_goes_the_same_way_in_every_backend(activation, bad):
    for backend in BACKENDS:
        check_not_finite(backend, activation, bad)
        check_not_finite(backend, activation, bad, clip=0.5)


@pytest.mark.parametrize("activation", [name for name, phi in activations.ACTIVATIONS.items() if phi.parameter_size(6)])
@pytest.mark.parametrize("backend", BACKENDS)
def test_a_parameter_that_is_nan_is_not_lost(backend, activation):
    check_parameter_is_nan(backend, activation)


@pytest.mark.parametrize("kind", ["dense", "packed"])
@pytest.mark.parametrize("backend", BACKENDS)
def test_clip_is_elementwise_inside_back_propagation(backend, kind):
    check_clip(backend, kind)


class Sabotaged:
    """The compiled extension, but one number of one output stays as it was before the call. Notes what is unwritten."""

    def __init__(self, compiled, output=None):
        self.compiled, self.output, self.unwritten = compiled, output, set()

    def __getattr__(self, name):
        function = getattr(self.compiled, name)

        def call(*given, **arguments):
            tensors = {key: value for key, value in arguments.items() if isinstance(value, torch.Tensor)}
            empty = {key for key, value in tensors.items() if value.numel() and value.is_floating_point()}
            self.unwritten |= {(name, key) for key in empty if tensors[key].isnan().all()}
            slot = tensors[self.output[1]].view(-1)[-1:] if self.output is not None and self.output[0] == name else None
            before = None if slot is None else slot.clone()
            result = function(*given, **arguments)
            if slot is not None:
                slot.copy_(before)
            return result

        return call if callable(function) else function


@pytest.mark.skipif("cpp" not in BACKENDS, reason="the compiled kernels are missing")
@pytest.mark.parametrize("activation", ["tanh", "modrelu"])
@pytest.mark.parametrize("kind", ["dense", "packed"])
def test_a_kernel_that_leaves_a_number_of_an_output_unwritten_is_caught(kind, activation, monkeypatch):
    """The memory of outputs holds NaN before the call (conftest.py), so that no comparison with the oracle can pass."""
    caught, unwritten = set(), set()
    for output in ("all", "last"):  # what the caller does not read, no comparison sees
        case, intact = Case(kind, activation, n=6, m=3, output=output), Sabotaged(extension.native)
        with monkeypatch.context() as patch:
            patch.setattr(extension, "native", intact)
            check(case, "cpp", torch.float64)
        unwritten |= intact.unwritten
        for slot in intact.unwritten:
            with monkeypatch.context() as patch:
                patch.setattr(extension, "native", Sabotaged(extension.native, slot))
                try:
                    check(case, "cpp", torch.float64)
                except AssertionError:
                    caught.add(slot)
    assert caught == unwritten
    names = {name for _, name in unwritten}
    assert names >= {"states", "last", "grad_h0", "grad_bias"} | ({"h_tilde"} if kind == "packed" else {"grad_W"})


@pytest.mark.parametrize("c", [1e-7, 1e-5, 1e-3, 0.1, 0.34, 0.36, 0.49, 0.7, 2.0, 20.0, -1e-4, 0.0])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("backend", BACKENDS)
def test_the_gradient_of_scaled_tanh_by_its_parameter(backend, dtype, c):
    """Also where c is small, and the two terms of (z (1 - t^2) - h) / c agree in most digits; by mpmath in 60 digits."""
    mpmath = pytest.importorskip("mpmath")
    if reason := ALL_BACKENDS[backend].unsupported(dtype, Size(4, None, 1, 1)):
        pytest.skip(reason)
    z = torch.tensor([-1.3, -0.2, 0.7, 0.71], dtype=dtype, device=DEVICE)
    parameter = torch.full_like(z, c).requires_grad_()
    out = dense_rnn(z.view(1, 1, -1), z.new_zeros(1, 4), z.new_zeros(4, 4), "scaled_tanh", parameter, backend=backend)
    (found,) = torch.autograd.grad(out.sum(), parameter)
    with mpmath.workdps(60):
        exact = [
            mpmath.diff(lambda c, z=z: mpmath.tanh(c * z) / c, parameter[0].item()) if c else 0 for z in z.tolist()
        ]
        expected = torch.tensor([float(value) for value in exact], dtype=dtype, device=DEVICE)
    # 1 - t^2 is rounded by 2 epsilon, and z (1 - t^2) by 2 |c z| times that of h
    torch.testing.assert_close(found, expected, rtol=30 * max(1, abs(c)) * torch.finfo(dtype).eps, atol=0)
