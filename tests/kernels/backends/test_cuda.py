"""The CUDA backend without a GPU: its C++ on an emulation of the device, and the shapes of its launches."""

from __future__ import annotations

import contextlib
import ctypes
import pathlib
import subprocess
import types

import pytest
import torch

from orthornn import activations
from orthornn.errors import BackendError
from orthornn.kernels.backends import CUDA as CUDA_BACKEND
from orthornn.kernels.backends import REFERENCE
from orthornn.kernels.backends.cuda import backend, chain, cluster, multiprocessor, nvrtc, recurrence, rotations
from orthornn.kernels.backends.cuda.product import RESERVE, Product, cost, registers, resident
from orthornn.kernels.call import Call, Options, Size
from orthornn.layout import SequenceLayout
from support import emulation
from support.against_oracle import DEVICE, check_clip, check_not_finite, check_parameter_is_nan, close
from support.cases import Case
from support.tolerances import tolerance

SHAPES = [(n, m) for n in (1, 2, 5, 64, 100, 128, 170, 192, 256, 320, 512, 1024) for m in (0, 1, 16, 32, 128) if m <= n]


def check_emulated(
    case: Case, folder: pathlib.Path, monkeypatch, shape: recurrence.Shape | None = None, orders: int = 2
) -> None:
    """The public function with the CUDA backend's launches emulated, against the oracle, in several orders of threads."""
    monkeypatch.setattr(CUDA_BACKEND, "unavailable", lambda device: None)
    if shape is not None:
        monkeypatch.setattr(backend, "_shape", lambda size: shape)
    case = case.draw()
    want_tensors = case.to(torch.float64)
    want = case.oracle(want_tensors)
    grad = torch.randn(want.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    expected = torch.autograd.grad(want, case.differentiable(want_tensors), grad, materialize_grads=True)
    runs = []
    for seed in range(orders):
        monkeypatch.setattr(nvrtc, "load", emulation.loader(folder, seed))
        tensors = case.to(torch.float32)
        out = case.call(tensors, "cuda")
        runs.append([out, *torch.autograd.grad(out, case.differentiable(tensors), grad.float())])
    for found, wanted in zip(runs[0], (want, *expected)):
        close(found, wanted, tolerance(torch.float32, case.steps * case.n))
    assert all(torch.equal(a, b) for run in runs[1:] for a, b in zip(runs[0], run))


@pytest.mark.sampled(1)
@pytest.mark.parametrize("activation", activations.ACTIVATIONS)
def test_cuda_emulated_every_activation(activation, folder, monkeypatch):
    k = list(activations.ACTIVATIONS).index(activation)
    kind = ("packed", "dense", "matrix")[k % 3]
    check_emulated(Case(kind, activation, n=10, m=3, steps=4, packed=k % 2 == 0), folder, monkeypatch)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("bad", [float("nan"), float("-inf")])
def test_cuda_emulated_not_finite(bad, folder, monkeypatch):
    monkeypatch.setattr(CUDA_BACKEND, "unavailable", lambda device: None)
    monkeypatch.setattr(nvrtc, "load", emulation.loader(folder))
    check_not_finite("cuda", "complex_modrelu", bad, torch.device("cpu"), clip=0.5)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("activation", ["modrelu", "complex_modrelu", "scaled_tanh"])
def test_cuda_emulated_parameter_that_is_nan(activation, folder, monkeypatch):
    monkeypatch.setattr(CUDA_BACKEND, "unavailable", lambda device: None)
    monkeypatch.setattr(nvrtc, "load", emulation.loader(folder))
    check_parameter_is_nan("cuda", activation, torch.device("cpu"))


@pytest.mark.slow
def test_cuda_emulated_last_state(folder, monkeypatch):
    check_emulated(Case("packed", "modrelu", n=11, m=3, steps=4, packed=True, output="last"), folder, monkeypatch)


RESETS = {
    "at random": (None, Case("dense", "tanh", n=9, steps=9, reset="random", restart=True)),
    "compact WY": (None, Case("packed", "modrelu", n=11, m=3, steps=9, packed=True, reset="random", restart=True)),
    "in pairs": (None, Case("matrix", "complex_modrelu", n=10, steps=8, reset="random", restart=True)),
    "the last states": (None, Case("packed", "identity", n=7, steps=8, packed=True, reset="random", output="last")),
    "from h_0": (None, Case("dense", "scaled_tanh", n=6, steps=5, reset="random")),
    "every step": (None, Case("packed", "tanh", n=6, steps=5, reset="all", restart=True)),
    "the first step": (None, Case("dense", "oplu", n=6, steps=5, reset="first", restart=True)),
    "the last step": (None, Case("packed", "tanh", n=6, steps=5, reset="last", restart=True)),
    "no step": (None, Case("dense", "tanh", n=6, steps=4, reset="none", restart=True)),
    "segments": (None, Case("packed", "tanh", n=6, steps=7, reset="random", memory="checkpoint", segment=3)),
    "in a cluster": (2, Case("dense", "tanh", n=10, steps=9, batch=3, packed=True, reset="random", restart=True)),
    "in a cluster, last": (2, Case("dense", "modrelu", n=10, steps=6, batch=5, reset="random", output="last")),
    "WY in a cluster": (2, Case("packed", "tanh", n=10, m=3, steps=6, reset="random", restart=True)),
    "all of a cluster": (2, Case("dense", "tanh", n=10, steps=4, reset="all", restart=True)),
}


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", RESETS)
def test_cuda_emulated_resets(name, folder, monkeypatch):
    blocks, case = RESETS[name]
    shape = None if blocks is None else cluster.Shape(10, blocks, Product(8, 10, 32, 8, 1), 2)
    check_emulated(case, folder, monkeypatch, shape)


@pytest.mark.parametrize("shape", [None, cluster.Shape(6, 2, Product(4, 6, 32, 16, 1), 2, 2)])
@pytest.mark.parametrize("kind", ["dense", "rotations"])
def test_cuda_emulated_not_finite_ends_with_its_episode(kind, shape, folder, monkeypatch):
    monkeypatch.setattr(CUDA_BACKEND, "unavailable", lambda device: None)
    monkeypatch.setattr(nvrtc, "load", emulation.loader(folder))
    monkeypatch.setattr(rotations, "PIECE", 2)
    if shape is not None:
        monkeypatch.setattr(backend, "_shape", lambda size: shape)
    case = Case(kind, "identity" if kind == "rotations" else "tanh", n=6, steps=7, batch=2, reset="none").draw()
    tensors = case.to(torch.float32)
    with torch.no_grad():
        tensors["x"][2, 0] = float("nan")
    tensors["reset"][4, 0] = True
    out = case.call(tensors, "cuda")
    assert out[2:4, 0].isnan().any(-1).all()
    assert out[:2].isfinite().all()
    assert out[4:].isfinite().all()
    assert out[:, 1].isfinite().all()
    (by_x,) = torch.autograd.grad(out[4:].square().sum(), tensors["x"], retain_graph=True)
    assert by_x[4:].isfinite().all()
    assert (by_x[:4, 0].nan_to_num() == 0).all()
    (by_h0,) = torch.autograd.grad(out[3, 1].sum(), tensors["h0"])
    assert by_h0[1].isfinite().all()


LANES = [(n, m, a, b) for n, m in ((37, 19), (37, 0)) for a in (4, 8, 16, 32) for b in ((4, 8, 16, 32) if m else (4,))]


@pytest.mark.parametrize(
    ("n", "m", "lanes1", "lanes2"),
    [pytest.param(*lanes, marks=[pytest.mark.slow] if lanes != (37, 19, 16, 4) else []) for lanes in LANES],
)
def test_cuda_emulated_shapes(n, m, lanes1, lanes2, folder, monkeypatch):
    """Several passes over the rows, weights partly and wholly in shared memory."""
    if m:
        products = (Product(m, n, 64, lanes1, 1), Product(n, m, 64, lanes2, 0))
    else:
        products = (Product(n, n, 64, lanes1, 1),)
    case = Case("packed" if m else "dense", "oplu", n=n, m=m, steps=3, batch=2)
    check_emulated(case, folder, monkeypatch, chain.Shape(n, m, products))


CLUSTERS = [(2, 16, 1, 1), (4, 4, 1, 2), (2, 16, 4, 1), (1, 8, 2, 1)]
SLOW_CLUSTERS = [(8, 8, 1, 1), (8, 8, 2, 2), (4, 8, 2, 3), (1, 32, 4, 2), (2, 32, 8, 1), (4, 16, 2, 1)]


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("count", "lanes", "side", "turns"),
    [*CLUSTERS, *(pytest.param(*one, marks=pytest.mark.slow) for one in SLOW_CLUSTERS)],
)
@pytest.mark.parametrize(("kind", "packed", "output"), [("dense", True, "all"), ("packed", False, "last")])
def test_cuda_emulated_clusters(count, lanes, side, turns, kind, packed, output, folder, monkeypatch):
    """A block with fewer rows than the others, weights partly in shared memory, and a cluster with fewer sequences."""
    n = 37
    share = -(-n // (4 * count)) * 4
    threads = share // 4 * lanes // 32 * 32 + 32
    shape = cluster.Shape(n, count, Product(share, n, threads, lanes, 1), side, turns)
    case = Case(kind, "modrelu", n=n, m=3, steps=4, batch=3, packed=packed, output=output)
    check_emulated(case, folder, monkeypatch, shape)


@pytest.mark.parametrize(("side", "turns"), [(1, 1), pytest.param(2, 2, marks=pytest.mark.slow)])
def test_cuda_emulated_clusters_of_which_several_warps_send(side, turns, folder, monkeypatch):
    """Warps of a block go on at their own pace, so that one may send while others still read the state before."""
    shape = cluster.Shape(160, 2, Product(80, 160, 192, 8, 5), side, turns)
    case = Case("dense", "modrelu", n=160, steps=6, batch=side * turns)
    check_emulated(case, folder, monkeypatch, shape, orders=12)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("activation", [name for name, one in activations.ACTIVATIONS.items() if not one.paired])
def test_cuda_emulated_every_activation_of_clusters(activation, folder, monkeypatch):
    shape = cluster.Shape(10, 2, Product(8, 10, 32, 8, 1), 2)
    check_emulated(Case("dense", activation, n=10, steps=3, batch=3), folder, monkeypatch, shape)


ONE = cluster.Shape(6, 2, Product(4, 6, 32, 16, 1), 2, 2)  # of several sequences


@pytest.mark.slow
@pytest.mark.skipif(DEVICE.type != "cpu", reason="the emulation is for a CPU")
def test_cuda_emulated_clipping_in_clusters(folder, monkeypatch):
    monkeypatch.setattr(CUDA_BACKEND, "unavailable", lambda device: None)
    monkeypatch.setattr(nvrtc, "load", emulation.loader(folder))
    monkeypatch.setattr(backend, "_shape", lambda size: ONE)
    check_clip("cuda", "dense")


@pytest.mark.sampled(1)
@pytest.mark.parametrize("bad", [float("nan"), float("-inf")])
def test_cuda_emulated_not_finite_in_clusters(bad, folder, monkeypatch):
    monkeypatch.setattr(CUDA_BACKEND, "unavailable", lambda device: None)
    monkeypatch.setattr(nvrtc, "load", emulation.loader(folder))
    monkeypatch.setattr(backend, "_shape", lambda size: ONE)
    check_not_finite("cuda", "modrelu", bad, torch.device("cpu"), clip=0.5)


@pytest.mark.slow
def test_the_bits_of_a_sequence_do_not_hang_on_those_beside_it(folder, monkeypatch):
    monkeypatch.setattr(CUDA_BACKEND, "unavailable", lambda device: None)
    monkeypatch.setattr(nvrtc, "load", emulation.loader(folder))
    case = Case("dense", "tanh", n=22, steps=5, batch=4).draw()
    found = []
    for side, turns in ((1, 1), (4, 1), (2, 2)):
        shape = cluster.Shape(22, 2, Product(12, 22, 64, 16, 1), side, turns)
        monkeypatch.setattr(backend, "_shape", lambda size, shape=shape: shape)
        tensors = case.to(torch.float32)
        out = case.call(tensors, "cuda")
        found.append([out, *torch.autograd.grad(out.square().sum(), case.differentiable(tensors))])
    assert all(torch.equal(a, b) for others in found[1:] for a, b in zip(found[0], others))


@pytest.mark.parametrize("n", [38, 128, 256, 300, 512, 768])
@pytest.mark.parametrize("batch", [0, 1, 50, 512])
def test_a_cluster_covers_its_rows_and_fits(n, batch):
    shape = cluster.best(n, batch)
    assert shape is not None
    assert shape.bytes <= 227 * 1024
    assert shape.product.rows * (shape.count - 1) < n <= shape.product.rows * shape.count
    assert shape.product.passes == 1
    assert 4 * (shape.threads // shape.product.lanes) >= shape.product.rows
    assert shape.product.vector >= n
    assert 4 * shape.side <= shape.product.lanes
    assert shape.threads * (16 * shape.product.held + RESERVE) <= multiprocessor.REGISTERS
    assert batch <= shape.clusters(batch) * shape.sequences < batch + shape.sequences
    assert shape.blocks(batch) == shape.clusters(batch) * shape.count


@pytest.mark.parametrize("n", [100, 170, 256, 360, 512, 768])
def test_more_sequences_cost_more_and_are_taken_together(n):
    """A GPU that is not full takes one more sequence for nothing; one that is full takes several in a cluster."""
    costs = [cluster.best(n, batch).cost(batch) for batch in (1, 8, 64, 512, 4096)]
    assert costs == sorted(costs)
    assert costs[-1] > costs[0]
    assert cluster.best(n, 4096).sequences > 1
    assert cluster.best(n, 1).sequences == 1 or cluster.best(n, 1).count == 1
    one = cluster.best(n, 512)
    assert all(one.cost(512) <= other.cost(512) for other in cluster.shapes(n))


def test_blocks_that_share_a_multiprocessor_share_its_issue_slots():
    assert cost(132, 132, 2, 100, 10) == 110  # each has its own
    assert cost(133, 132, 2, 100, 10) == 120  # some share
    assert cost(133, 132, 1, 100, 10) == 220  # one after the other
    assert cost(2 * 132 * 3, 132, 2, 100, 10) == 3 * 120
    assert cost(0, 132, 2, 100, 10) == 110
    assert resident(128, 8, 10_000) == 2
    assert resident(128, 8, 200_000) == 1
    assert resident(512, 12, 10_000) == 1


ROTATIONS = {
    "one step": (16, Case("rotations", "identity", n=1, batch=1, steps=1)),
    "a part of a piece": (16, Case("rotations", "identity", n=5, batch=2, steps=13)),
    "a piece and a part": (16, Case("rotations", "identity", n=6, batch=2, steps=20, gain=0.9)),
    "a whole number of pieces": (2, Case("rotations", "identity", n=7, steps=4)),
    "pieces of pieces": (2, Case("rotations", "identity", n=2, batch=1, steps=17)),
    "two blocks of pairs": (2, Case("rotations", "identity", n=131, batch=1, steps=3, inputs=None)),
    "the last state": (2, Case("rotations", "identity", n=4, batch=2, steps=7, output="last")),
    "the last state of one": (2, Case("rotations", "identity", n=3, steps=1, output="last")),
    "no step": (16, Case("rotations", "identity", n=3, steps=0, output="last")),
    "segments": (2, Case("rotations", "identity", n=5, steps=7, memory="checkpoint", segment=3)),
    "resets": (2, Case("rotations", "identity", n=5, steps=23, reset="random", restart=True)),
    "resets in pieces of pieces": (2, Case("rotations", "identity", n=4, steps=40, reset="random", gain=0.9)),
    "resets, the last state": (3, Case("rotations", "identity", n=4, steps=11, reset="random", output="last")),
    "a reset before each step": (2, Case("rotations", "identity", n=5, steps=6, reset="all", restart=True)),
    "a reset before the first": (2, Case("rotations", "identity", n=5, steps=9, reset="first", restart=True)),
    "a reset before the last": (
        2,
        Case("rotations", "identity", n=5, steps=9, reset="last", restart=True, output="last"),
    ),
    "segments with resets": (
        2,
        Case("rotations", "identity", n=5, steps=7, reset="random", memory="checkpoint", segment=3),
    ),
}


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", ROTATIONS)
def test_cuda_emulated_rotations(name, folder, monkeypatch):
    piece, case = ROTATIONS[name]
    monkeypatch.setattr(rotations, "PIECE", piece)
    check_emulated(case, folder, monkeypatch)


def rotations_call(T: int, h0: torch.Tensor, c: torch.Tensor, s: torch.Tensor) -> Call:
    """A call whose weight is not read."""
    B, n = h0.shape
    options = Options("rotations", activations.get("identity"))
    return Call(
        torch.zeros(T, B, n), None, None, h0, torch.zeros(n, n), c, s, None, None, SequenceLayout(T, B), options
    )


@pytest.mark.parametrize("n", [1, 6, 7])
@pytest.mark.parametrize("last", [False, True])
def test_cuda_emulated_rotations_with_any_coefficients(n, last, folder, monkeypatch):
    """Blocks that are no rotations, and an odd middle with s in it, next to the reference."""
    monkeypatch.setattr(nvrtc, "load", emulation.loader(folder))
    monkeypatch.setattr(rotations, "PIECE", 2)
    T, B = 11, 2
    c, s = 0.6 * torch.randn(2, n, dtype=torch.float64)
    call = rotations_call(T, torch.randn(B, n), c, s)
    x, grad = torch.randn(T * B, n), torch.randn(B if last else T * B, n)
    expected = [call.layout.flatten(REFERENCE.scan(call, x).states), *REFERENCE.scan_backward(call, grad, last, x)[:2]]
    found = [
        call.layout.flatten(CUDA_BACKEND.scan(call, x).states),
        *CUDA_BACKEND.scan_backward(call, grad, last, x)[:2],
    ]
    for mine, theirs in zip(found, expected):
        close(mine, theirs.double(), tolerance(torch.float32, 4 * T))


@pytest.mark.parametrize("piece", [16, 10_000])
def test_cuda_emulated_rotations_of_ten_thousand_steps(piece, folder, monkeypatch):
    """The angle of a float32 coefficient is off by up to 6e-8, 6e-4 in all; rounding of states has no direction."""
    monkeypatch.setattr(rotations, "PIECE", piece)
    T, half = 10_000, 3
    angles = torch.linspace(0.3, 2.9, half, dtype=torch.float64)
    c, s = angles.cos().repeat(2), torch.cat([-angles.sin(), angles.sin()])
    h0 = torch.randn(1, 2 * half, generator=torch.Generator().manual_seed(0))
    first, second = h0.double().split(half, dim=1)
    wanted = torch.cat(
        [
            (T * angles).cos() * first - (T * angles).sin() * second,
            (T * angles).cos() * second + (T * angles).sin() * first,
        ],
        dim=1,
    )
    monkeypatch.setattr(nvrtc, "load", emulation.loader(folder))
    errors = []
    for turns in ((c, s), (c.float().double(), s.float().double())):
        call = rotations_call(T, h0, *turns)
        errors.append(float((rotations.forward(call, call.rows)[-1] - wanted).abs().max() / h0.abs().max()))
    assert errors[0] <= tolerance(torch.float32, 100) / 8
    assert errors[1] > 10 * errors[0]


def test_many_sequences_or_steps_or_units_of_rotations_fit_a_grid(monkeypatch):
    """The second and third axes of a grid end at 65535."""
    grids: list[tuple[int, int, int]] = []
    launches = types.SimpleNamespace(launch=lambda name, blocks, arguments: grids.append(blocks))
    monkeypatch.setattr(nvrtc, "load", lambda *given: launches)
    for T, B, n in ((1, 70_000, 1), (70_000, 1, 1), (1, 1, 70_000)):
        c, s = torch.ones(n, dtype=torch.float64), torch.zeros(n, dtype=torch.float64)
        rotations._scan(torch.zeros(T * B, n), torch.zeros(B, n), (c, s), torch.zeros(T, B, n))
    assert max(max(pieces, pairs) for _, pieces, pairs in grids) < 65536
    assert max(sequences for sequences, _, _ in grids) == 70_000


def test_rotations_need_equal_lengths_in_float32():
    size, single = Size(9, rotations=True), torch.float32
    assert CUDA_BACKEND.unsupported(single, size) is None
    assert CUDA_BACKEND.unsupported(single, size._replace(n=100_000)) is None
    assert "sequences of equal lengths" in CUDA_BACKEND.unsupported(single, size._replace(ragged=True))
    assert CUDA_BACKEND.unsupported(single, size._replace(resets=True)) is None
    assert "in float32" in CUDA_BACKEND.unsupported(torch.float64, size)
    assert CUDA_BACKEND.describe(size) == "cuda: pieces of the sequence in parallel"


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
    assert shape.threads * (held + RESERVE) <= multiprocessor.REGISTERS
    for product in shape.products:
        assert product.passes * 4 * (product.threads // product.lanes) >= product.rows
        assert product.vector >= product.columns


@pytest.mark.sampled(1)
@pytest.mark.parametrize("kernel", ["forward", "scan"])
def test_more_rows_than_an_int_can_count(kernel, folder, tmp_path):
    """T B > 2^31: the first sequence alone, in files with holes, of which 4 pages each are in use."""
    batch, steps = 2**30, 4
    rows = {
        name: torch.from_file(str(tmp_path / name), shared=True, size=batch * steps, dtype=torch.float32)
        for name in ("x", "states")
    }
    rows["x"][::batch] = torch.tensor([1.0, 2.0, 3.0, 4.0])
    sizes = {"steps": steps, "batch": batch}
    if kernel == "scan":
        kernels = emulation.loader(folder)(rotations.PROGRAM, {"THREADS": rotations.THREADS}, 0)
        c, s = torch.ones(1, dtype=torch.float64), torch.zeros(1, dtype=torch.float64)
        arguments = rotations.Arguments.of(**rows, **sizes, c=c, s=s, n=1, length=steps, power=1, reverse=True)
    else:
        shape = chain.Shape(1, 0, (Product(1, 1, 32, 4, 1),))
        macros = dict.fromkeys(("CODE", "UNIT", "PAIR", "KEEP", "BASE", "PACKED", "LAST", "CLIP", "HALVED"), 0)
        kernels = emulation.loader(folder)(shape.program, shape.macros | macros, shape.bytes)
        h0, W = torch.zeros(1), torch.ones(1)
        arguments = recurrence.Arguments.of(**rows, **sizes, h0=h0, first=W)
    kernels.launch(kernel, (1, 1, 1), arguments)
    assert rows["states"][::batch].tolist() == ([10.0, 9.0, 7.0, 4.0] if kernel == "scan" else [1.0, 3.0, 6.0, 10.0])


class FakeDriver:
    """Stands for libcuda: notes the names of its functions as they are called, and fails where it is told to."""

    def __init__(self, context: int = 7, failing: str = "") -> None:
        self.context, self.failing, self.calls = context, failing, []

    def __getattr__(self, name):
        def function(*given):
            self.calls.append(name)
            if name == "cuCtxGetCurrent":
                given[0]._obj.value = self.context
            if name == "cuGetErrorName":
                given[1]._obj.value = b"CUDA_ERROR_OF_A_TEST"
            return 700 if name == self.failing else 0

        return function


@pytest.fixture
def gpu(monkeypatch):
    """A machine that seems to have a GPU; returns a function that sets its driver."""
    monkeypatch.setattr(torch.cuda, "device", lambda device: contextlib.nullcontext())
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: types.SimpleNamespace(cuda_stream=5))
    monkeypatch.setattr(nvrtc, "compile_source", lambda source, macros, capability: nvrtc.Compiled(b"code", ""))

    def install(driver: FakeDriver) -> FakeDriver:
        monkeypatch.setattr(nvrtc, "_driver", lambda: driver)
        return driver

    return install


def module() -> nvrtc.Module:
    return nvrtc.Module(chain.Shape.program, {"THREADS": 32}, 100, torch.device("cuda", 0))


def test_a_thread_without_a_context_gets_the_one_of_the_device(gpu):
    driver = gpu(FakeDriver())
    kernels = module()
    assert "cuCtxSetCurrent" not in driver.calls
    driver.context, driver.calls = 0, []
    kernels.launch("forward", (3, 1, 1), recurrence.Arguments.of(steps=1, batch=3))
    assert driver.calls == ["cuCtxGetCurrent", "cuDevicePrimaryCtxRetain", "cuCtxSetCurrent", "cuLaunchKernel"]


@pytest.mark.parametrize(
    ("failing", "words"),
    [
        ("cuModuleLoadData", "cuModuleLoadData"),
        ("cuFuncSetAttribute", "100 bytes of shared memory"),
        ("cuLaunchKernel", "launching backward"),
    ],
)
def test_errors_of_the_driver_have_names(failing, words, gpu):
    gpu(FakeDriver(failing=failing))
    with pytest.raises(BackendError, match=rf"{words} failed: CUDA_ERROR_OF_A_TEST \(700\)"):
        module().launch("backward", (3, 1, 1), recurrence.Arguments.of(steps=1, batch=3))


def test_clusters_at_once_are_asked_of_the_driver(gpu, monkeypatch):
    """The launch that it is asked about, as the driver reads it."""

    class Driver(FakeDriver):
        def cuOccupancyMaxActiveClusters(self, found, function, config):
            launch = config._obj
            attribute = ctypes.cast(launch.attributes, ctypes.POINTER(ctypes.c_uint * 18))[0]
            self.asked = list(launch.sizes), launch.attribute_count, list(attribute)[:5]
            found._obj.value = 30
            return 0

    monkeypatch.setattr(nvrtc, "_compile", lambda *_: nvrtc.Compiled(b"code", ""))
    driver = gpu(Driver())
    assert nvrtc.clusters_at_once(torch.device("cuda", 0), 4, 1000) == 30
    assert driver.asked == ([4, 1, 1, 32, 1, 1, 1000], 1, [4, 0, 4, 1, 1])
    assert driver.calls[-1] == "cuModuleUnload"
    nvrtc.clusters_at_once.cache_clear()


def test_clusters_at_once_without_a_gpu_are_those_of_an_h200(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(cluster, "_at_once", {})
    assert [cluster.at_once(count) for count in cluster.BLOCKS] == [132, 66, 30, 15]


@pytest.fixture
def asked(gpu, monkeypatch):
    """A machine that seems to have a GPU with half the multiprocessors of an H200; what its driver was asked."""
    asked = []
    monkeypatch.setattr(cluster, "_at_once", {})
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(multiprocessor, "number", lambda: 66)
    monkeypatch.setattr(multiprocessor, "shared_limit", lambda: multiprocessor.SHARED)
    monkeypatch.setattr(multiprocessor, "has_clusters", lambda: True)
    monkeypatch.setattr(nvrtc, "missing", lambda device: None)

    def answer(device, count, shared):
        asked.append((device.index, count))
        return {1: 66, 2: 33, 4: 16, 8: 0}[count]

    monkeypatch.setattr(nvrtc, "clusters_at_once", answer)
    cluster.best.cache_clear()
    yield asked
    cluster.best.cache_clear()


def test_the_driver_is_asked_once_and_for_the_current_gpu_alone(asked, monkeypatch):
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 1)
    for _ in range(2):
        assert cluster.at_once(4) == 16
    assert asked == [(1, 4)]


def test_clusters_that_do_not_run_are_not_taken(asked):
    assert cluster.best(512, 50).count < 8
    assert cluster.best(800, 50) is None


@pytest.mark.parametrize("why", ["an error", "a capture", "no NVRTC"])
def test_clusters_are_chosen_where_the_driver_cannot_be_asked(why, asked, monkeypatch):
    """As on an H200, in proportion; and it is asked later."""
    with monkeypatch.context() as context:
        if why == "a capture":
            context.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
        elif why == "no NVRTC":
            context.setattr(nvrtc, "missing", lambda device: "libnvrtc was not found")
        else:

            def fail(device, count, shared):
                raise BackendError("cuOccupancyMaxActiveClusters failed: CUDA_ERROR_OUT_OF_MEMORY (2).")

            context.setattr(nvrtc, "clusters_at_once", fail)
        assert [cluster.at_once(count) for count in cluster.BLOCKS] == [66, 33, 15, 7]
        assert cluster.best(512, 50).count == 8
    assert cluster.at_once(4) == 16


def test_reflections_in_one_multiprocessor_need_no_answer(asked):
    backend._least.cache_clear()
    assert isinstance(backend._least(100, 16, 50, False), chain.Shape)
    assert asked == []
    backend._least.cache_clear()


def test_a_thread_has_the_registers_of_its_quarter():
    """As ptxas reports for these numbers of threads on sm_90."""
    limits = {32: 255, 192: 255, 256: 255, 288: 168, 320: 168, 352: 168, 384: 168, 416: 128, 512: 128}
    assert {threads: registers(threads) for threads in limits} == limits


def test_kernels_are_not_loaded_inside_a_capture(gpu, monkeypatch):
    driver = gpu(FakeDriver())
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    with pytest.raises(BackendError, match="before the capture"):
        module()
    assert "cuModuleLoadData" not in driver.calls


@pytest.fixture
def fresh():
    """Without what `nvrtc` remembers."""
    caches = nvrtc._library, nvrtc.missing
    for cache in caches:
        cache.cache_clear()
    yield
    for cache in caches:
        cache.cache_clear()


def test_the_other_half_of_libnvrtc_is_found_in_its_folder(folder, tmp_path, fresh, monkeypatch):
    """That of CUDA 13.0 looks for libnvrtc-builtins where the system does, which is not where wheels put it."""
    places = {"libnvrtc-builtins.so.99.0": "int builtins;", "libnvrtc.so.99": LIBRARY}
    for name, text in places.items():
        (tmp_path / "source.c").write_text(text)
        command = [emulation.COMPILER, "-xc", "-shared", "-fPIC", f"-Wl,-soname,{name}", str(tmp_path / "source.c")]
        subprocess.run([*command, "-o", str(tmp_path / name), "-ldl"], check=True)
    monkeypatch.setattr(nvrtc, "_candidates", lambda: iter([tmp_path / "libnvrtc.so.99"]))
    assert nvrtc.version() == (99, 0)


LIBRARY = """
#include <dlfcn.h>
int nvrtcVersion(int* major, int* minor) {
    *major = 99, *minor = 0;
    return dlopen("libnvrtc-builtins.so.99.0", RTLD_NOW) ? 0 : 7;
}
const char* nvrtcGetErrorString(int status) { return "NVRTC_ERROR_BUILTIN_OPERATION_FAILURE"; }
"""


def test_a_gpu_that_libnvrtc_does_not_know_is_reported(gpu, fresh, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.version, "cuda", "99.0")
    monkeypatch.setattr(nvrtc, "_candidates", lambda: iter([]))
    assert "libnvrtc of CUDA 99.0 was not found" in nvrtc.missing(torch.device("cuda"))
    nvrtc._library.cache_clear(), nvrtc.missing.cache_clear()

    def refuse(*given):
        raise BackendError("invalid value for --gpu-architecture")

    monkeypatch.setattr(nvrtc, "_library", lambda: object())
    monkeypatch.setattr(nvrtc, "_compile", refuse)
    assert "cannot compile for this GPU: invalid value" in CUDA_BACKEND.unavailable(torch.device("cuda"))


@pytest.mark.skipif(nvrtc.version() is None, reason="no libnvrtc is installed")
@pytest.mark.parametrize("capability", [(8, 0), (9, 0)])
def test_machine_code(capability):
    shape = chain.best(38, 5)
    macros = {"CODE": 6, "UNIT": 1, "PAIR": 0, "KEEP": 0, "BASE": 1, "LAST": 0, "CLIP": 1, "HALVED": 0, "PACKED": 0}
    compiled = nvrtc.compile_source(shape.program.source, shape.macros | macros, capability)
    assert compiled.code[:4] == b"\x7fELF"
    assert set(nvrtc.resources(compiled.log)) == set(shape.program.kernels)
    compiled = nvrtc.compile_source(rotations.PROGRAM.source, {"THREADS": rotations.THREADS}, capability)
    assert nvrtc.resources(compiled.log)["scan"][1:4] == (0, 0, 0)  # neither a stack nor spills


def test_the_report_of_the_assembler():
    report = """ptxas info    : Compiling entry function 'backward' for 'sm_90'
ptxas info    : Function properties for backward
ptxas         .     24 bytes stack frame, 20 bytes spill stores, 28 bytes spill loads
ptxas info    : Used 255 registers, used 1 barriers, 24 bytes cumulative stack size
ptxas info    : Compiling entry function 'forward' for 'sm_90'
ptxas info    : Function properties for forward
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 40 registers, used 1 barriers, 512 bytes smem, 152 bytes cmem[0]
"""
    assert nvrtc.resources(report) == {
        "backward": nvrtc.Resources(255, 24, 20, 28, 0),
        "forward": nvrtc.Resources(40, 0, 0, 0, 512),
    }
