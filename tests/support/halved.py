"""Calls whose rows are stored in bfloat16 beside a float32 transition, and what holds of them.

The state that goes from step to step is not rounded, so every state is off by its own rounding and by what float32
arithmetic is off by. And a backward pass is that of the float64 reference on the same stored numbers, to the tolerance
of float32.
"""

from __future__ import annotations

import torch
from torch import Tensor

from orthornn import activations
from support.cases import Case
from support.tolerances import tolerance

ROUNDING = torch.finfo(torch.bfloat16).eps / 2  # to the nearest
KINDS = ("dense", "packed", "matrix")


def halved(case: Case, dtype: torch.dtype, device: torch.device) -> dict[str, Tensor]:
    """The case's tensors, x and V in bfloat16, all others in dtype and with the values that x and V leave them."""
    tensors = case.to(dtype, device)
    for name in ("x", "weight_ih"):
        if name in tensors and tensors[name].is_floating_point():
            tensors[name] = case.tensors[name].to(device, torch.bfloat16).requires_grad_()
    return tensors


def run(case: Case, tensors: dict[str, Tensor], backend: str, grad: Tensor, stored: list[Tensor] | None = None):
    """Output, gradients, and what was stored for the backward pass in bfloat16; or with `stored` in its place."""
    saved: list[Tensor] = []

    def pack(tensor: Tensor) -> Tensor:
        if tensor.dtype != torch.bfloat16:
            return tensor
        saved.append(tensor.detach())
        return saved[-1] if stored is None else stored[len(saved) - 1].to(tensor.device)

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        out = case.call(tensors, backend)
    return out, torch.autograd.grad(out, case.differentiable(tensors), grad, materialize_grads=True), saved


def near(found: Tensor, expected: Tensor, bound: float, rounding: float = ROUNDING) -> None:
    """Within bound of the largest entry, and where found is bfloat16 within its own rounding besides."""
    expected = expected.detach().double()
    largest = float(expected.abs().max()) if expected.numel() else 0.0
    allowed = bound * (1 + largest) + (rounding if found.dtype == torch.bfloat16 else 0.0) * expected.abs()
    excess = (found.detach().double().cpu() - expected).abs() - allowed
    assert (excess <= 0).all(), float(excess.max())


def check_halved(case: Case, backend: str, device: torch.device) -> None:
    case = case.draw()
    got, wide = halved(case, torch.float32, device), halved(case, torch.float64, torch.device("cpu"))
    exact = {name: t.double() if t.is_floating_point() else t for name, t in wide.items()}
    want = case.oracle(exact)
    grad = torch.randn(want.shape, generator=torch.Generator().manual_seed(1)).bfloat16()
    out, grads, stored = run(case, got, backend, grad.to(device))
    assert out.dtype == torch.bfloat16
    bound = tolerance(torch.float32, case.steps * case.n)
    if case.inputs is None and not case.bias:
        near(out, want, bound)
    else:  # each step's projected row is rounded, after its bias was
        largest = float(want.detach().abs().max()) + 2 * float(exact["x"].detach().abs().max())
        near(out, want, bound + 2 * case.steps * ROUNDING * largest)
    _, expected, mine = run(case, wide, "reference", grad, stored)
    assert len(stored) == len(mine) >= 1
    for found, wanted in zip(grads, expected):
        near(found, wanted, bound, 2 * ROUNDING)  # both are rounded


def alternating(shift: int) -> list[Case]:
    """Every activation, with kinds of transition, layouts and outputs taking turns; projected rows."""
    return [
        Case(
            KINDS[(k + shift) % 3],
            name,
            n=7 if name == "oplu" else 6,
            packed=(k + shift) % 2 == 0,
            output=("all", "last")[(k + shift) // 2 % 2],
            inputs=None,
            bias=False,
            steps=4,
            m=3,
        )
        for k, name in enumerate(activations.ACTIVATIONS)
    ]


INPUTS = [Case(kind, "modrelu", n=5, m=2, steps=3, inputs=i, clip=0.1) for kind in KINDS for i in (None, 0, 2, 9)]
EMPTY = [Case(kind, "oplu", n=4, m=2, steps=0, output=output) for kind in KINDS[:2] for output in ("all", "last")]
