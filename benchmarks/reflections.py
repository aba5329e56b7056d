"""Time the kernel of input-dependent reflections against a plain torch loop, forward and backward, on one thread.

    python benchmarks/reflections.py --out results/bench/reflections.json

Gradients are compared first; a difference is an error. Processor time, the least of several runs, the two interleaved.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from orthornn.environment import environment
from orthornn.kernels import reflection_rnn

SIZES = [(4096, 1, 64, 1), (4096, 1, 64, 2), (4096, 1, 64, 4), (1024, 16, 64, 2)]  # T, B, N, M


def naive(k: Tensor, beta: Tensor, x: Tensor, h0: Tensor) -> Tensor:
    """The recurrence as anybody would write it: k of length 1."""
    h, states = h0, []
    for k_t, beta_t, x_t in zip(k, beta, x):
        for i in range(k.shape[2]):
            h = h - beta_t[:, i] * (k_t[:, i] * h).sum(-1, keepdim=True) * k_t[:, i]
        h = h + x_t
        states.append(h)
    return torch.stack(states)


def seconds(work: Callable[[], object]) -> float:
    """Return the processor time of one call."""
    start = time.process_time()
    work()
    return time.process_time() - start


def measure(T: int, B: int, N: int, M: int) -> dict[str, float]:
    """Return the times of one size, as an entry of the results."""
    k = torch.nn.functional.normalize(torch.randn(T, B, M, N), dim=-1).requires_grad_()
    beta = (2 * torch.rand(T, B, M, 1)).requires_grad_()
    x, h0 = torch.randn(T, B, N).requires_grad_(), torch.randn(B, N).requires_grad_()
    leaves, weights = [k, beta, x, h0], torch.randn(T, B, N) / T

    def plain() -> tuple[Tensor, ...]:
        return torch.autograd.grad((naive(k, beta, x, h0) * weights).sum(), leaves)

    def kernel() -> tuple[Tensor, ...]:
        return torch.autograd.grad((reflection_rnn(k, beta, h0, x=x) * weights).sum(), leaves)

    slow, fast = [seconds(plain)], [seconds(kernel)]
    for mine, theirs, name in zip(kernel(), plain(), ("k", "beta", "x", "h0")):
        # The kernel normalizes k itself, so that its gradient has no part along k.
        along = (theirs * k).sum(-1, keepdim=True) * k if name == "k" else 0
        off = float(((mine - (theirs - along)).abs().max() / theirs.abs().max()).detach())
        assert off < 1e-4, (name, off)
    for _ in range(2):
        slow.append(seconds(plain))
        fast += [seconds(kernel) for _ in range(5)]
    return {"T": T, "B": B, "N": N, "M": M, "loop": min(slow), "kernel": min(fast)}


def main() -> None:
    """Print a table, and write it if asked."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, help="a JSON file for the times in seconds")
    given = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    entries = []
    print("| T | B | N | M | plain loop, ms | kernel, ms | times faster |\n|---|---|---|---|---|---|---|")
    for T, B, N, M in SIZES:
        entries.append(measure(T, B, N, M))
        slow, fast = 1000 * entries[-1]["loop"], 1000 * entries[-1]["kernel"]
        print(f"| {T} | {B} | {N} | {M} | {slow:.0f} | {fast:.2f} | {slow / fast:.0f} |", flush=True)
    if given.out is not None:
        record = {"environment": environment(), "runs": entries}
        given.out.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
