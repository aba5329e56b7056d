"""Time the delta rule's kernels against a plain torch loop, forward and backward, on one thread.

    python benchmarks/delta_rule.py --out results/bench/delta_rule.json

Gradients are compared first; a difference is an error. Processor time, the least of several runs, all interleaved. Also
measured: memory that the forward pass leaves for the backward pass, and how well a state keeps its norm over 100 000
updates with beta = 2.
"""

from __future__ import annotations

import argparse
import json
import platform
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from orthornn.environment import commit
from orthornn.kernels import delta_rnn
from orthornn.kernels.delta.cpp import UPDATES

SIZES = [  # T, B, M, H, K = V, gate
    (4096, 1, 1, 1, 64, None),
    (4096, 1, 1, 1, 64, "head"),
    (4096, 1, 1, 1, 64, "key"),
    (4096, 1, 2, 1, 64, None),
    (4096, 1, 1, 4, 32, "head"),
    (1024, 8, 1, 2, 64, None),
]


def naive(q: Tensor, k: Tensor, v: Tensor, beta: Tensor, S: Tensor, gate: Tensor | None = None) -> Tensor:
    """The recurrence as anybody would write it: k of length 1."""
    outs = []
    for t in range(q.shape[0]):
        if gate is not None:
            S = (gate[t][..., None, None] if gate.dim() == 3 else gate[t][..., None]) * S
        for i in range(k.shape[2]):
            key = k[t, :, i]
            missing = v[t, :, i] - (key.unsqueeze(-2) @ S).squeeze(-2)
            S = S + (beta[t, :, i, :, None] * key).unsqueeze(-1) * missing.unsqueeze(-2)
        outs.append((q[t].unsqueeze(-2) @ S).squeeze(-2))
    return torch.stack(outs)


def seconds(work: Callable[[], object]) -> float:
    """Return the processor time of one call."""
    start = time.process_time()
    work()
    return time.process_time() - start


def measure(T: int, B: int, M: int, H: int, size: int, gate: str | None, rounds: int) -> dict[str, object]:
    """Return the times of one size, as an entry of the results."""
    tensors = {
        "q": torch.randn(T, B, H, size),
        "k": torch.nn.functional.normalize(torch.randn(T, B, M, H, size), dim=-1),
        "v": torch.randn(T, B, M, H, size),
        "beta": 2 * torch.rand(T, B, M, H),
        "state": torch.randn(B, H, size, size),
    }
    if gate is not None:
        tensors["gate"] = 1 - 0.1 * torch.rand(T, B, H, *(size,) * (gate == "key"))
    leaves = [tensor.requires_grad_() for tensor in tensors.values()]
    weights = torch.randn(T, B, H, size) / T
    names = list(tensors)

    def plain() -> tuple[Tensor, ...]:
        return torch.autograd.grad((naive(*leaves) * weights).sum(), leaves)

    def kernel(backend: str) -> Callable[[], tuple[Tensor, ...]]:
        def run() -> tuple[Tensor, ...]:
            given = dict(zip(names, leaves))
            out, _ = delta_rnn(**given, backend=backend)  # type: ignore[arg-type]
            return torch.autograd.grad((out * weights).sum(), leaves)

        return run

    works = {"loop": plain, "cpp": kernel("cpp"), "chunked": kernel("chunked")}
    times: dict[str, list[float]] = {name: [] for name in works}
    found = {}
    for name, work in works.items():
        times[name].append(seconds(lambda name=name, work=work: found.update({name: work()})))  # type: ignore[misc]
    k = tensors["k"]
    for backend in ("cpp", "chunked"):
        for mine, theirs, name in zip(found[backend], found["loop"], names):
            # The kernels normalize k themselves, so that its gradient has no part along k.
            along = (theirs * k).sum(-1, keepdim=True) * k if name == "k" else 0
            off = float(((mine - (theirs - along)).abs().max() / theirs.abs().max()).detach())
            assert off < 1e-4, (backend, name, off)
    for _ in range(rounds):
        times["loop"].append(seconds(plain))
        times["chunked"] += [seconds(works["chunked"]) for _ in range(2)]
        times["cpp"] += [seconds(works["cpp"]) for _ in range(6)]
    least = {name: round(1000 * min(values), 2) for name, values in times.items()}
    inputs = sum(leaf.numel() for leaf in leaves) * 4
    marks = -(-T * M // UPDATES) * B * H * size * size * 4
    return {
        "T": T, "B": B, "M": M, "heads": H, "keys": size, "values": size, "gate": gate,
        "milliseconds": least,
        "times_faster": {name: round(least["loop"] / least[name], 1) for name in ("cpp", "chunked")},
        "bytes": {"inputs": inputs, "saved_states": marks, "every_state": T * B * H * size * size * 4},
    }  # fmt: skip


def norm(backend: str, steps: int, symbols: int | None) -> float:
    """Return how far the norm of a 64 x 64 state is off after reflections alone, relative, float32."""
    size, generator = 64, torch.Generator().manual_seed(0)
    k = torch.randn(symbols or steps, 1, 1, 1, size, generator=generator)
    if symbols:
        k = k[torch.arange(steps) % symbols]
    q, v = torch.zeros(steps, 1, 1, size), torch.zeros(steps, 1, 1, 1, size)
    state = torch.randn(1, 1, size, size, generator=generator)
    with torch.no_grad():
        _, last = delta_rnn(q, k, v, 2.0, state, backend=backend)
    return abs(float(last.double().norm() / state.double().norm()) - 1)


def main() -> None:
    """Print a table, and write it if asked."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=None)
    parser.add_argument("--rounds", type=int, default=1)
    given = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    entries = []
    print("| T | B | M | heads | K = V | gate | plain loop, ms | kernel, ms | times faster | chunks in torch, ms |")
    for size in SIZES:
        entry = measure(*size, given.rounds)
        entries.append(entry)
        ms, faster = entry["milliseconds"], entry["times_faster"]
        cells = [*size[:5], size[5] or "none", ms["loop"], ms["cpp"], faster["cpp"], ms["chunked"]]  # type: ignore[index]
        print("| " + " | ".join(map(str, cells)) + " |", flush=True)
    off = {
        f"{backend}, {kind}": norm(backend, 100_000, symbols)
        for backend in ("cpp", "chunked")
        for kind, symbols in (("a key for each step", None), ("three keys in turn", 3))
    }
    print(off)
    machine = {"torch": torch.__version__, "python": platform.python_version(), "threads": 1, "dtype": "float32"}
    machine["commit"] = commit()
    record = {"machine": machine, "time": "processor time, least of several interleaved runs", "runs": entries}
    record["norm_off_after_100000_updates"] = off
    if given.out is not None:
        given.out.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
