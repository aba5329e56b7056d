"""Run every kernel, every module and the usual surroundings once on a device: python benchmarks/gpu_smoke.py DEVICE STEPS

One line each, and last a line `SMOKE {...}` with all verdicts as JSON. Nothing that fails stops what comes after it.
"""

from __future__ import annotations

import copy
import json
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from orthornn import (
    GORU,
    DeltaRNN,
    Householder,
    OrthogonalBlocks,
    OrthogonalRNN,
    OrthogonalRNNCell,
    PeepholeLSTM,
    ReflectionRNN,
    ScaledCayley,
    Stiefel,
)
from orthornn.kernels import compact_wy_rnn, dense_rnn, dispatch
from orthornn.kernels.call import Size
from orthornn_evidence.bench.cases import Case
from orthornn_evidence.bench.gpu.recurrence import recurrences, verify

T, B, I, N = 12, 3, 3, 16
CASES = (Case("cayley", 20, 0, 3), Case("wy", 20, 4, 3))
SIZES = ((128, None), (170, None), (256, None), (360, None), (512, None), (256, 32), (512, 32), (1024, 32), (512, 128))
MODULES: dict[str, Callable[..., nn.Module]] = {
    "Householder": partial(OrthogonalRNN, I, N, parametrization=Householder(reflections=3), nonlinearity="tanh"),
    "ScaledCayley": partial(OrthogonalRNN, I, N, 2, parametrization=ScaledCayley(), nonlinearity="tanh"),
    "complex": partial(OrthogonalRNN, I, N, parametrization=Householder(reflections=3, field="complex")),
    "two directions": partial(OrthogonalRNN, I, N, bidirectional=True, learn_h0=True, nonlinearity="tanh"),
    "checkpoint": partial(OrthogonalRNN, I, N, nonlinearity="tanh", memory="checkpoint", segment=5),
    "rotations": partial(OrthogonalRNN, I, N, parametrization=Stiefel(), nonlinearity="identity", form="rotations"),
    "OrthogonalBlocks": partial(OrthogonalBlocks, I, 8, N, depth=2),
    "ReflectionRNN": partial(ReflectionRNN, I, N, reflections=2, heads=2, beta="input", gate="diagonal"),
    "DeltaRNN": partial(DeltaRNN, I, N, heads=2, key_size=3, gate="diagonal"),
    "GORU": partial(GORU, I, N, nonlinearity="tanh"),
    "PeepholeLSTM": partial(PeepholeLSTM, I, N),
    "cell": partial(OrthogonalRNNCell, I, N, nonlinearity="tanh"),
}
WITH_RESETS = ("Householder", "ScaledCayley", "rotations", "OrthogonalBlocks", "ReflectionRNN", "DeltaRNN", "GORU")


def kernels(device: torch.device, steps: int, found: dict[str, str]) -> None:
    """Verify every backend in every precision on two small cases."""
    for case in CASES:
        for one in recurrences(case, device):

            def check(one: Any = one) -> str:
                verdict = verify(one, device, steps)
                words = "right" if verdict["right"] else f"WRONG {verdict}"
                return words + ("" if verdict["same_bits"] else ", other bits the second time")

            note(found, one.name, check)


def difference(device: torch.device, make: Callable[..., nn.Module], reset: bool) -> float:
    """Return the largest error of outputs and gradients in float32, relative to the largest entry in float64 on a CPU."""
    torch.manual_seed(0)
    wide = make(dtype=torch.float64)
    there = copy.deepcopy(wide).float().to(device)
    step = isinstance(wide, OrthogonalRNNCell)
    x = torch.randn(*(() if step else (T,)), B, I)
    mask = (torch.rand(T, B) < 0.3) if reset else None
    results = []
    for module, where, dtype in ((wide, torch.device("cpu"), torch.float64), (there, device, torch.float32)):
        options = {} if mask is None else {"reset": mask.to(where)}
        given = x.to(where, dtype).requires_grad_()
        out = module(given, **options)
        out = out[0] if isinstance(out, tuple) else out
        (out.real.square().sum() if out.is_complex() else out.square().sum()).backward()
        results.append([out, given.grad, *(p.grad for p in module.parameters() if p.grad is not None)])
    assert len(results[0]) == len(results[1])
    return max(
        float((b.detach().cpu() - a.detach()).abs().max() / a.detach().abs().max().clamp_min(1e-30))
        for a, b in zip(*results)
        if a is not None and a.numel()
    )


def modules(device: torch.device, found: dict[str, str]) -> None:
    """Compare every module with itself in float64 on a CPU."""
    for name, make in MODULES.items():
        for reset in (False, True) if name in WITH_RESETS else (False,):

            def check(make: Any = make, reset: bool = reset) -> str:
                error = difference(device, make, reset)
                return f"right, {error:.1e}" if error < 1e-3 else f"WRONG, {error:.1e}"

            note(found, f"{name}, resets" if reset else name, check)


def _net(device: torch.device, n: int = 64) -> nn.Module:
    torch.manual_seed(0)
    return OrthogonalRNN(I, n, parametrization=Householder(reflections=8), nonlinearity="tanh").to(device)


def _same(a: Tensor, b: Tensor) -> str:
    return "right" if torch.equal(a, b) else f"WRONG, off by {float((a - b).abs().max()):.1e}"


def another_thread(device: torch.device) -> str:
    """Launch a kernel in a thread that has not used the device before, with nothing before it."""
    x, h0 = torch.randn(T, B, N, device=device), torch.zeros(B, N, device=device)
    W = torch.eye(N, device=device)
    expected, found = dense_rnn(x, h0, W, "tanh"), []
    thread = threading.Thread(target=lambda: found.append(dense_rnn(x, h0, W, "tanh")))
    thread.start(), thread.join()
    return _same(found[0], expected)


def another_stream(device: torch.device) -> str:
    """Run forward and backward in a stream of the user's."""
    net, x = _net(device), torch.randn(T, B, I, device=device)
    expected = torch.autograd.grad(net(x)[0].sum(), list(net.parameters()))
    stream = torch.cuda.Stream(device)
    stream.wait_stream(torch.cuda.current_stream(device))
    with torch.cuda.stream(stream):
        found = torch.autograd.grad(net(x)[0].sum(), list(net.parameters()))
    stream.synchronize()
    return "; ".join(sorted({_same(a, b) for a, b in zip(found, expected)}))


def captured_by_the_user(device: torch.device) -> str:
    """Capture a training step without its update, replay it on another input."""
    net, x = _net(device), torch.randn(T, B, I, device=device)
    parameters = list(net.parameters())

    def step() -> list[Tensor]:
        return list(torch.autograd.grad(net(x)[0].square().sum(), parameters))

    stream = torch.cuda.Stream(device)
    stream.wait_stream(torch.cuda.current_stream(device))
    with torch.cuda.stream(stream):
        step(), step()
    torch.cuda.current_stream(device).wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = step()
    x.copy_(torch.randn(T, B, I, device=device))
    graph.replay()
    expected = step()
    return "; ".join(sorted({_same(a, b) for a, b in zip(captured, expected)}))


def precision_of_graphs(device: torch.device) -> str:
    """Run one shape under two precisions: what was captured under one is not replayed under the other."""
    n, runs = 512, []
    W = torch.linalg.qr(torch.randn(n, n, dtype=torch.float64))[0]
    x, h0 = torch.randn(32, 64, n, dtype=torch.float64), torch.zeros(64, n, dtype=torch.float64)
    expected = dense_rnn(x, h0, W, "tanh", backend="reference")
    before = torch.get_float32_matmul_precision()
    try:
        for precision in ("highest", "high", "highest"):
            torch.set_float32_matmul_precision(precision)
            out = dense_rnn(*(t.float().to(device) for t in (x, h0, W)), "tanh", backend="graph")
            runs.append(float((out.double().cpu() - expected).abs().max()))
    finally:
        torch.set_float32_matmul_precision(before)
    words = ", ".join(f"{error:.1e}" for error in runs)
    return f"right: {words}" if runs[0] == runs[2] < runs[1] else f"WRONG: errors of ieee, tf32, ieee are {words}"


def autocast(device: torch.device) -> str:
    """Train with states stored in bfloat16."""
    net, x = _net(device), torch.randn(T, B, I, device=device)
    want = net(x)[0]
    with torch.autocast(device.type, torch.bfloat16):
        out = net(x)[0]
    out.float().square().sum().backward()
    error = float((out.float() - want).detach().abs().max())
    return f"right, {error:.1e}" if out.dtype == torch.bfloat16 and error < 0.05 else f"WRONG, {error:.1e}, {out.dtype}"


def nothing_to_do(device: torch.device) -> str:
    """Run calls without steps and without sequences."""
    for steps, batch in ((0, 3), (4, 0), (0, 0)):
        x, h0 = torch.zeros(steps, batch, N, device=device), torch.zeros(batch, N, device=device, requires_grad=True)
        for out in (
            dense_rnn(x, h0, torch.eye(N, device=device), "tanh"),
            compact_wy_rnn(x, h0, torch.ones(N, 1, device=device), None, "tanh"),
        ):
            assert out.shape == (steps, batch, N)
            out.sum().backward()
    return "right"


def training(device: torch.device) -> str:
    """Take 20 steps of Adam."""
    net, x = _net(device), torch.randn(T, B, I, device=device)
    optimizer, losses = torch.optim.Adam(net.parameters(), lr=1e-2), []
    for _ in range(20):
        optimizer.zero_grad()
        loss = (net(x)[0] - 0.5).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    return f"{'right' if losses[-1] < 0.8 * losses[0] else 'WRONG'}: loss {losses[0]:.3f} to {losses[-1]:.3f}"


ANYWHERE = {"autocast": autocast, "no steps, no sequences": nothing_to_do, "training": training}
ON_A_GPU = {
    "another thread": another_thread,
    "another stream": another_stream,
    "a graph of the user": captured_by_the_user,
    "precision of graphs": precision_of_graphs,
}


def note(found: dict[str, str], name: str, check: Callable[[], str]) -> None:
    """Store and print the verdict of a check, or its error."""
    start = time.monotonic()
    try:
        words = check()
        if torch.cuda.is_available():
            torch.cuda.synchronize()
    except Exception as error:
        words = f"FAILED {type(error).__name__}: {error}"[:1500]
    found[name] = words
    print(f"{name:<32} {time.monotonic() - start:6.1f} s  {words}", flush=True)


def main() -> int:
    """Run everything; 1 if something is not right."""
    device, steps = torch.device(sys.argv[1]), int(sys.argv[2])
    on_gpu = device.type == "cuda"
    name = torch.cuda.get_device_name() if on_gpu else "CPU"
    head = {"device": name, "torch": torch.__version__, "cuda": torch.version.cuda}
    print(*(f"{key} {value}" for key, value in head.items()), "python", sys.version.split()[0], flush=True)
    if on_gpu:
        properties = torch.cuda.get_device_properties(0)
        head["capability"] = f"{properties.major}.{properties.minor}"
        head["shared_memory"] = getattr(properties, "shared_memory_per_block_optin", None)
        head["multiprocessors"] = properties.multi_processor_count
        print(*(f"{key} {head[key]}" for key in ("capability", "shared_memory", "multiprocessors")), flush=True)
    for backend, reason in dispatch.available(device).items():
        print(f"{backend:<10} {reason or 'available'}", flush=True)
    for n, m in SIZES:
        print(f"n={n} m={m}: {dispatch.describe(device, Size(n, m, 50, 784))}", flush=True)
    by_kernel: dict[str, str] = {}
    by_module: dict[str, str] = {}
    kernels(device, steps, by_kernel)
    modules(device, by_module)
    for words, check in (ANYWHERE | (ON_A_GPU if on_gpu else {})).items():
        note(by_module, words, partial(check, device))
    bad = [key for key, value in (by_kernel | by_module).items() if not value.startswith("right")]
    print(f"{len(by_kernel) + len(by_module)} checks, {len(bad)} not right: {', '.join(bad) or 'none'}")
    print("SMOKE " + json.dumps(head | {"backends": by_kernel, "modules": by_module}))
    return int(bool(bad))


if __name__ == "__main__":
    raise SystemExit(main())
