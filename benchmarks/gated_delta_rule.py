"""Time the delta rule at the size of deployed networks against the functions of transformers, on one thread.

    python benchmarks/gated_delta_rule.py --out results/bench/gated_delta_rule.json

One sequence, 16 heads, keys and values of 128 numbers, a gate per head: a prompt, forward and with the backward pass, and one
step of decoding. Outputs and gradients are compared with those of transformers first; a difference is an error. Processor
time, the least of several runs, all in turn: the kernel as it chooses, update by update, by products, and transformers.

The limit of each case is derived: 3 K V multiply-adds per step and head forward, 11 K V with the backward pass, at the rate
that torch reaches for a product of large matrices here; for one step of decoding, the time torch takes to copy the state.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import time
from collections.abc import Callable
from pathlib import Path
from unittest import mock

import torch
import transformers
from torch import Tensor
from transformers.models.qwen3_next import modeling_qwen3_next as modeling

from orthornn.environment import commit
from orthornn.kernels import delta_rnn
from orthornn.kernels.backends.cpp import extension
from orthornn.kernels.delta import cpp

HEADS, SIZE = 16, 128
WAYS: dict[str, bool | None] = {"chosen": None, "updates": False, "products": True}
PRODUCTS = {False: 3, True: 11}  # multiply-adds for each entry of a state and step, forward and with the backward pass


def tensors(steps: int) -> dict[str, Tensor]:
    """Return the arguments of `delta_rnn` for one sequence, keys and queries of length 1."""
    q, k = (torch.nn.functional.normalize(torch.randn(steps, 1, HEADS, SIZE), dim=-1) for _ in range(2))
    v, state = torch.randn(steps, 1, 1, HEADS, SIZE), torch.randn(1, HEADS, SIZE, SIZE)
    beta, gate = torch.rand(steps, 1, 1, HEADS), 1 - 0.1 * torch.rand(steps, 1, HEADS)
    return {"q": q, "k": k.unsqueeze(2), "v": v, "beta": beta, "state": state, "gate": gate}


def ours(given: dict[str, Tensor]) -> Tensor:
    """Return what the steps read, (T, 1, heads, V)."""
    return delta_rnn(**given, backend="cpp")[0]  # type: ignore[arg-type]


def theirs(given: dict[str, Tensor]) -> Tensor:
    """Return the same by transformers, which scales queries."""
    one = given["q"].shape[0] == 1
    function = modeling.torch_recurrent_gated_delta_rule if one else modeling.torch_chunk_gated_delta_rule
    k, v, beta = (given[name].squeeze(2).transpose(0, 1) for name in ("k", "v", "beta"))
    q, gate = (given[name].transpose(0, 1) for name in ("q", "gate"))
    out, _ = function(q * SIZE**0.5, k, v, gate.log(), beta, initial_state=given["state"], output_final_state=True)
    return out.transpose(0, 1)


def seconds(work: Callable[[], object]) -> float:
    """Return the processor time of one call."""
    start = time.process_time()
    work()
    return time.process_time() - start


def multiply_adds(size: int = 768, rounds: int = 15) -> float:
    """Return the multiply-adds per second that torch reaches for a product of two square matrices."""
    a, b = torch.randn(2, size, size).unbind()
    return size**3 / min(seconds(lambda: a @ b) for _ in range(rounds))


def copying(rounds: int = 200) -> float:
    """Return the seconds that torch takes to copy the state of all heads into new memory."""
    state = torch.randn(1, HEADS, SIZE, SIZE)
    return min(seconds(state.clone) for _ in range(rounds))


def measure(steps: int, backward: bool, rounds: int) -> dict[str, object]:
    """Return the times of one case, as an entry of the results."""
    given = {name: tensor.requires_grad_(backward) for name, tensor in tensors(steps).items()}
    weights = torch.randn(steps, 1, HEADS, SIZE)

    def run(function: Callable[[dict[str, Tensor]], Tensor]) -> tuple[Tensor, ...]:
        with torch.set_grad_enabled(backward):
            out = function(given)
        return (out.detach(), *(torch.autograd.grad((out * weights).sum(), list(given.values())) if backward else ()))

    def way(by_products: bool | None) -> tuple[Tensor, ...]:
        if by_products is None:
            return run(ours)
        with mock.patch.object(cpp, "by_products", return_value=by_products):
            return run(ours)

    works: dict[str, Callable[[], tuple[Tensor, ...]]] = {
        name: lambda by_products=by_products: way(by_products)  # type: ignore[misc]
        for name, by_products in WAYS.items()
    }
    works["transformers"] = lambda: run(theirs)
    found = {name: work() for name, work in works.items()}
    off = 0.0
    for name in WAYS:
        for mine, want, of in zip(found[name], found["transformers"], ("out", *given)):
            # The kernel normalizes k itself, so that its gradient has no part along k.
            k = given["k"].detach()
            along = (want * k).sum(-1, keepdim=True) * k if of == "k" else 0
            off = max(off, float((mine - (want - along)).abs().max() / want.abs().max()))
    assert off < 1e-4, off
    times = {name: min(values) for name, values in _in_turn(works, rounds).items()}
    limit = copying() if steps == 1 else PRODUCTS[backward] * steps * HEADS * SIZE**2 / multiply_adds()
    return {
        "T": steps,
        "backward": backward,
        "milliseconds": {name: round(1000 * value, 3) for name, value in times.items()},
        "limit_milliseconds": round(1000 * limit, 3),
        "times_faster": round(times["transformers"] / times["chosen"], 2),
        "largest_relative_difference": off,
    }


def _in_turn(works: dict[str, Callable[[], object]], rounds: int) -> dict[str, list[float]]:
    times: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(rounds):
        for name, work in works.items():
            times[name].append(seconds(work))
    return times


def main() -> None:
    """Print the cases, and write them if asked."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=None)
    parser.add_argument("--rounds", type=int, default=15)
    given = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    load = os.getloadavg()[0]
    entries = {
        "forward": measure(1024, False, given.rounds),
        "with_backward": measure(1024, True, given.rounds),
        "decoding": measure(1, False, 40 * given.rounds),
    }
    for name, entry in entries.items():
        print(name, entry)
    machine = {
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "python": platform.python_version(),
        "instructions": extension.native.isa(),
        "threads": 1,
        "dtype": "float32",
        "load": round(load, 1),
        "commit": commit(),
    }
    record = {
        "machine": machine,
        "time": "processor time, least of several runs in turn",
        "heads": HEADS,
        "size": SIZE,
        **entries,
    }
    if given.out is not None:
        given.out.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
