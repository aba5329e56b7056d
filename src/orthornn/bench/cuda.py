"""The recurrences on one NVIDIA GPU: verified, then timed beside cuDNN's layers, in one run.

    python -m orthornn.bench.cuda --out FOLDER

Everything is T=784 steps, B=128 sequences, input size 1, float32 unless it says otherwise, forward and backward to all
parameters, timed with CUDA events, the median of REPEATS after a warm-up. Writes FOLDER/cuda.json as it goes, so that a
run cut short leaves what it has. A case whose verification fails is not timed.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import pathlib
import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..kernels import compact_wy_rnn, dense_rnn, plan
from ..modules import OrthogonalRNN
from ..parametrizations import Householder, ScaledCayley

T, B = 784, 128
REPEATS = 7
MNIST_STEPS = 60000 // B  # training steps of one epoch
# Derived limits, microseconds a step forward, one sequence a multiprocessor: (N, M), M None for dense.
LIMITS: dict[tuple[int, int | None], float] = {
    (128, None): 0.17,
    (256, None): 0.4,
    (512, None): 0.4,
    (128, 32): 0.21,
    (256, 32): 0.24,
    (512, 32): 0.32,
    (1024, 32): 0.61,
}
SIZES: list[tuple[int, int | None]] = [
    *((n, None) for n in (128, 170, 256, 360, 512)),
    *((n, m) for n, m in ((128, 32), (256, 32), (512, 32), (1024, 32), (256, 128))),
]
DEVICE = torch.device("cuda")


def milliseconds(run: Callable[[], object], repeats: int = REPEATS) -> float:
    """Median time of a call on the GPU."""
    for _ in range(2):
        run()
    times = []
    for _ in range(repeats):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        run()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end))
    return statistics.median(times)


def _operands(n: int, m: int | None, steps: int, batch: int, dtype: torch.dtype) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(n)

    def normal(*shape: int, scale: float = 1.0) -> Tensor:
        drawn = torch.randn(*shape, generator=generator, dtype=torch.float64) * scale
        return drawn.to(DEVICE, dtype).requires_grad_()

    tensors = {
        "x": normal(steps, batch, 1),
        "weight_ih": normal(n, 1),
        "h0": normal(batch, n, scale=0.1),
        "parameter": normal(n, scale=0.01),
    }
    if m is None:
        W = torch.linalg.qr(torch.randn(n, n, generator=generator, dtype=torch.float64))[0]
        tensors["weight"] = W.to(DEVICE, dtype).requires_grad_()
        return tensors
    angle = torch.randn(n // 2, generator=generator, dtype=torch.float64)
    tensors["weight"] = normal(n, m)
    tensors["c"] = torch.cat([angle.cos(), angle.cos()]).to(DEVICE, dtype)
    tensors["s"] = torch.cat([-angle.sin(), angle.sin()]).to(DEVICE, dtype)
    return tensors


def _call(t: dict[str, Tensor], m: int | None, backend: str, activation: str) -> Tensor:
    parameter = t["parameter"] if activation == "modrelu" else None
    if m is None:
        return dense_rnn(t["x"], t["h0"], t["weight"], activation, parameter, weight_ih=t["weight_ih"], backend=backend)
    base = (t["c"], t["s"])
    return compact_wy_rnn(
        t["x"], t["h0"], t["weight"], base, activation, parameter, weight_ih=t["weight_ih"], backend=backend
    )


def _backends(n: int, m: int | None) -> list[str]:
    size = plan.Size(n, m, B, T)
    names = [name for name, reason in plan.available(DEVICE).items() if reason is None and name != "reference"]
    return [name for name in names if plan.refusal(name, torch.float32, size) is None]


def verify(n: int, m: int | None, backend: str, steps: int = 100, batch: int = 128) -> dict[str, Any]:
    """Largest error of outputs and gradients against the float64 reference, relative to the largest value.

    tanh, which is smooth: at a kink of phi rounding decides the branch, and a gradient may then differ at will.
    The bound is 8 eps steps N, as in the tests. The same call again must give the same bits.
    """
    tensors = _operands(n, m, steps, batch, torch.float32)
    wide = {name: t.detach().double().requires_grad_(t.requires_grad) for name, t in tensors.items()}
    names = [name for name in ("x", "weight_ih", "h0", "weight") if tensors[name].requires_grad]
    want = _call(wide, m, "reference", "tanh")
    grad = torch.randn(want.shape, device=DEVICE, dtype=torch.float64) / want.shape[0]
    wanted = [want.detach(), *torch.autograd.grad(want, [wide[name] for name in names], grad)]
    runs = []
    for _ in range(2):
        out = _call(tensors, m, backend, "tanh")
        runs.append([out.detach(), *torch.autograd.grad(out, [tensors[name] for name in names], grad.float())])
    errors = [float((a - b).abs().max() / b.abs().max()) for a, b in zip(runs[0], wanted)]
    bound = 8 * torch.finfo(torch.float32).eps * steps * n
    same_bits = all(torch.equal(a, b) for a, b in zip(*runs))
    right = all(error <= bound for error in errors)
    return {"errors": dict(zip(["out", *names], errors)), "bound": bound, "same_bits": same_bits, "right": right}


def kernel(n: int, m: int | None, backend: str, batch: int = B) -> dict[str, float]:
    """Microseconds a step of the recurrence alone (modReLU), memory, and the fraction of the derived limit."""
    tensors = _operands(n, m, T, batch, torch.float32)
    leaves = [t for t in tensors.values() if t.requires_grad]
    torch.cuda.reset_peak_memory_stats()
    with torch.no_grad():
        forward = milliseconds(lambda: _call(tensors, m, backend, "modrelu"))
    grad = torch.randn(T, batch, n, device=DEVICE)
    both = milliseconds(lambda: torch.autograd.grad(_call(tensors, m, backend, "modrelu"), leaves, grad))
    row = {"forward_us": forward * 1e3 / T, "both_us": both * 1e3 / T}
    row["peak_MB"] = torch.cuda.max_memory_allocated() / 2**20
    if (n, m) in LIMITS and batch <= 132:
        row["fraction_of_limit"] = LIMITS[n, m] / row["forward_us"]
    return row


def module(core: nn.Module, dtype: torch.dtype = torch.float32) -> dict[str, float]:
    """Milliseconds of forward and backward of a layer to all its parameters, and of a training step of pixel MNIST."""
    core = core.to(DEVICE, dtype)
    x = torch.rand(T, B, 1, device=DEVICE, dtype=dtype)
    readout = nn.Linear(getattr(core, "hidden_size"), 10, device=DEVICE, dtype=dtype)  # noqa: B009
    labels = torch.randint(10, (B,), device=DEVICE)
    parameters = [*core.parameters(), *readout.parameters()]
    optimizer = torch.optim.Adam(parameters, lr=1e-4)

    def both() -> None:
        core.zero_grad()
        core(x)[0].sum().backward()

    def step() -> None:
        optimizer.zero_grad()
        last = core(x, output="last")[0] if isinstance(core, OrthogonalRNN) else core(x)[0][-1]
        F.cross_entropy(readout(last).float(), labels).backward()
        optimizer.step()

    torch.cuda.reset_peak_memory_stats()
    row = {"both_ms": milliseconds(both), "training_step_ms": milliseconds(step)}
    row["peak_MB"] = torch.cuda.max_memory_allocated() / 2**20
    row["mnist_epoch_s"] = row["training_step_ms"] * MNIST_STEPS / 1e3  # data loading not included
    return row


def _peer(make: Callable[[int, int], nn.Module], n: int, dtype: torch.dtype) -> dict[str, float]:
    return module(make(1, n), dtype)


def _layers(n: int) -> dict[str, Callable[[], dict[str, float]]]:
    def at(precision: str, run: Callable[[], dict[str, float]]) -> Callable[[], dict[str, float]]:
        def timed() -> dict[str, float]:
            before = torch.backends.cudnn.allow_tf32
            torch.backends.cudnn.allow_tf32 = precision == "tf32"
            try:
                return run()
            finally:
                torch.backends.cudnn.allow_tf32 = before

        return timed

    layers = {}
    for name, make in (("nn.RNN", nn.RNN), ("nn.LSTM", nn.LSTM)):
        for precision in ("float32", "tf32", "bfloat16"):
            dtype = torch.bfloat16 if precision == "bfloat16" else torch.float32
            layers[f"{name} {precision}"] = at(precision, partial(_peer, make, n, dtype))
    if n >= 64:
        rotations = Householder(reflections=32, base="rotations")
        layers["oRNN m=32"] = lambda: module(OrthogonalRNN(1, n, parametrization=rotations))
    if n <= 512:
        layers["scoRNN"] = lambda: module(OrthogonalRNN(1, n, parametrization=ScaledCayley(negatives=n // 2)))
    return layers


def _attempt(run: Callable[[], Any]) -> Any:
    """What it returns, or its error: one case that fails must not lose the others."""
    try:
        return run()
    except Exception as error:
        return {"failed": f"{type(error).__name__}: {error}"[:2000]}


def run(out: pathlib.Path, seconds: float) -> int:
    """Everything, in order of importance, until the time is over; how many verifications failed."""
    out.mkdir(parents=True, exist_ok=True)
    started, failures = time.monotonic(), 0
    results: dict[str, Any] = {
        "device": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "backends": plan.available(DEVICE),
        "flashrnn": "importable, not timed" if importlib.util.find_spec("flashrnn") else "not installed",
        "verify": {},
        "kernels": {},
        "layers": {},
    }

    def note(kind: str, name: str, row: Any) -> None:
        results[kind][name] = row
        (out / "cuda.json").write_text(json.dumps(results, indent=1))
        shown = row if "failed" in row else {k: round(v, 3) if isinstance(v, float) else v for k, v in row.items()}
        print(f"{kind:8} {name:28} {shown}", flush=True)

    def late() -> bool:
        return time.monotonic() - started > seconds

    for n, m in SIZES:
        for backend in _backends(n, m):
            name = f"{'dense' if m is None else f'wy m={m}'} n={n} {backend}"
            verdict = _attempt(partial(verify, n, m, backend))
            note("verify", name, verdict)
            if not verdict.get("right") or not verdict.get("same_bits"):
                failures += 1
            elif not late():
                note("kernels", name, _attempt(partial(kernel, n, m, backend)))
    for batch in (1, 1024):
        for n, m in ((170, None), (256, 32)):
            for backend in _backends(n, m):
                verdict = results["verify"].get(f"{'dense' if m is None else f'wy m={m}'} n={n} {backend}", {})
                if verdict.get("right") and not late():
                    row = _attempt(partial(kernel, n, m, backend, batch))
                    note("kernels", f"n={n} m={m} B={batch} {backend}", row)
    for n in (170, 256, 512):
        for name, timed in _layers(n).items():
            if not late():
                note("layers", f"n={n} {name}", _attempt(timed))
    _ratios(results)
    print(f"{failures} verifications failed; {time.monotonic() - started:.0f} s; {out / 'cuda.json'}")
    return failures


def _ratios(results: dict[str, Any]) -> None:
    """How many times faster than cuDNN's float32 layers of the same width, whole layers side by side."""
    for n in (170, 256, 512):
        rows = {name: results["layers"].get(f"n={n} {name}", {}).get("both_ms") for name in _layers(n)}
        for ours in ("oRNN m=32", "scoRNN"):
            for peer in ("nn.RNN float32", "nn.LSTM float32"):
                if rows.get(ours) and rows.get(peer):
                    print(f"ratio    n={n} {ours} against {peer}: {rows[peer] / rows[ours]:.2f}")


def main(words: list[str] | None = None) -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m orthornn.bench.cuda", description=__doc__)
    parser.add_argument("--out", type=pathlib.Path, required=True, help="folder for cuda.json")
    parser.add_argument("--seconds", type=float, default=300, help="start no new timing after so long")
    options = parser.parse_args(words)
    if not torch.cuda.is_available():
        print("torch sees no CUDA device: nothing to measure.")
        return 2
    return 1 if run(options.out, options.seconds) else 0


if __name__ == "__main__":
    raise SystemExit(main())
