"""Only the recurrence, on every backend that has it: verified against the float64 reference, then timed.

The input is already projected, (T, B, N), so the time covers only the chain and its gradient products.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from orthornn.activations import Name
from orthornn.kernels import compact_wy_rnn, dense_rnn, dispatch
from orthornn.kernels.backends import BACKENDS, GRAPH
from orthornn.kernels.call import Size

from ..cases import Case
from ..timing import Contender, interleave
from .precision import Precision, arithmetic, bound

# Derived limits in microseconds per forward step, one sequence per multiprocessor: (n, m), m = 0 for dense.
LIMITS = {
    (128, 0): 0.17,
    (256, 0): 0.4,
    (512, 0): 0.4,
    (128, 32): 0.21,
    (256, 32): 0.24,
    (512, 32): 0.32,
    (1024, 32): 0.61,
}
_MULTIPROCESSORS = 132
_VERIFIED_STEPS = 100


@dataclass(frozen=True)
class Recurrence:
    """A case on a backend in some precision."""

    case: Case
    backend: str
    precision: Precision

    @property
    def name(self) -> str:
        """Its key in the results."""
        return f"{self.case.name} {self.backend} {self.precision}"

    @property
    def size(self) -> Size:
        """The size from which a backend is chosen."""
        return Size(self.case.n, self.case.m or None, self.case.batch, 784)

    def is_chosen(self, device: torch.device) -> bool:
        """Return whether a layer of this case runs on this backend."""
        return self.backend == dispatch.choose("auto", device, torch.float32, self.size)


def recurrences(case: Case, device: torch.device) -> list[Recurrence]:
    """Return the backends that can run a case, each in the precisions that change its computation."""
    found = []
    for backend, reason in dispatch.available(device).items():
        if reason is not None or backend == "reference":
            continue
        one = Recurrence(case, backend, "float32")
        if BACKENDS[backend].unsupported(torch.float32, one.size) is not None:
            continue
        found += [one, Recurrence(case, backend, "bfloat16")]
        if backend == GRAPH.name:  # the others multiply without tensor cores
            found.append(Recurrence(case, backend, "tf32"))
    return found


def _operands(one: Recurrence, steps: int, device: torch.device) -> dict[str, Tensor]:
    """Return the operands in float32, x as it is stored."""
    case, generator = one.case, torch.Generator().manual_seed(one.case.n)
    n = case.n

    def normal(*shape: int, scale: float = 1.0) -> Tensor:
        return (torch.randn(*shape, generator=generator) * scale).to(device).requires_grad_()

    tensors = {"x": normal(steps, case.batch, n), "h0": normal(case.batch, n, scale=0.1)}
    tensors["parameter"] = normal(n, scale=0.01)
    if case.m:
        angle = torch.randn(n // 2, generator=generator)
        middle = [torch.ones(n % 2)]
        tensors["weight"] = normal(n, case.m)
        tensors["c"] = torch.cat([angle.cos(), *middle, angle.cos()]).to(device)
        tensors["s"] = torch.cat([-angle.sin(), *(0 * one for one in middle), angle.sin()]).to(device)
    else:
        W = torch.linalg.qr(torch.randn(n, n, generator=generator, dtype=torch.float64))[0]
        tensors["weight"] = W.float().to(device).requires_grad_()
    if one.precision == "bfloat16":
        tensors["x"] = tensors["x"].detach().bfloat16().requires_grad_()
    return tensors


def _call(one: Recurrence, t: dict[str, Tensor], activation: Name, backend: str) -> Tensor:
    parameter = t["parameter"] if activation == "modrelu" else None
    if not one.case.m:
        return dense_rnn(t["x"], t["h0"], t["weight"], activation, parameter, backend=backend)
    return compact_wy_rnn(t["x"], t["h0"], t["weight"], (t["c"], t["s"]), activation, parameter, backend=backend)


def verify(one: Recurrence, device: torch.device, steps: int = _VERIFIED_STEPS) -> dict[str, Any]:
    """Return the largest errors of states and gradients, relative to the largest entries; and the same bits a second
    time.

    With tanh, which is smooth: at a kink of phi rounding decides the branch, and a gradient may then differ at will.
    """
    tensors = _operands(one, steps, device)
    wide = {
        name: (t if t.dtype == torch.bfloat16 else t.double()).detach().requires_grad_(t.requires_grad)
        for name, t in tensors.items()
    }
    names = ("x", "h0", "weight")
    want = _call(one, wide, "tanh", "reference")
    grad = (torch.randn(want.shape, generator=torch.Generator().manual_seed(1)) / steps).to(device)
    wanted = [want.detach(), *torch.autograd.grad(want, [wide[name] for name in names], grad.to(want.dtype))]
    runs = []
    with arithmetic(one.precision):
        for _ in range(2):
            out = _call(one, tensors, "tanh", one.backend)
            grads = torch.autograd.grad(out, [tensors[name] for name in names], grad.to(out.dtype))
            runs.append([out.detach(), *grads])
    errors = [float((a.double() - b.double()).abs().max() / b.double().abs().max()) for a, b in zip(runs[0], wanted)]
    allowed = bound(one.precision, steps, one.case.n)
    return {
        "errors": dict(zip(("states", *names), errors)),
        "bound": allowed,
        "same_bits": all(torch.equal(a, b) for a, b in zip(*runs)),
        "right": all(error <= allowed for error in errors),
    }


def measure(one: Recurrence, device: torch.device, steps: int, rounds: int) -> dict[str, Any]:
    """Return the microseconds per step forward, and forward and backward, the fraction of the derived limit, peak
    memory.
    """
    tensors = _operands(one, steps, device)
    leaves = [t for t in tensors.values() if t.requires_grad]

    def synchronize() -> None:
        if device.type == "cuda":
            torch.cuda.synchronize(device)

    def forward() -> None:
        with torch.no_grad():
            _call(one, tensors, "modrelu", one.backend)

    grad = torch.randn(steps, one.case.batch, one.case.n, dtype=tensors["x"].dtype, device=device)

    def both() -> None:
        torch.autograd.grad(_call(one, tensors, "modrelu", one.backend), leaves, grad)

    with arithmetic(one.precision):
        memory = peak_bytes(both, device)
        timed = interleave(
            [Contender(name, run, synchronize=synchronize) for name, run in (("forward", forward), ("both", both))],
            rounds,
        )
    row: dict[str, Any] = {f"{name}_us": 1e6 * timing.median / steps for name, timing in timed.items()}
    limit = LIMITS.get((one.case.n, one.case.m))
    if limit is not None and one.case.batch <= _MULTIPROCESSORS:
        row["fraction_of_limit"] = limit / row["forward_us"]
    return row | {"peak_bytes": memory}


def peak_bytes(run: Any, device: torch.device) -> int | None:
    """Return how far the device's allocated memory rises during a run that is not the first; None on a CPU."""
    run()
    if device.type != "cuda":
        return None
    torch.cuda.synchronize(device)
    before = torch.cuda.memory_allocated(device)
    torch.cuda.reset_peak_memory_stats(device)
    run()
    torch.cuda.synchronize(device)
    return torch.cuda.max_memory_allocated(device) - before
