"""Pixel MNIST in integers: train two linear layers of rotations, export them as int8 C, and measure what they cost.

    python benchmarks/microcontroller.py FOLDER_OF_MNIST OUT --minutes 80

h_t = R_1 h_{t-1} + relu(v x_t + b_1), g_t = R_2 g_{t-1} + relu(V h_t + b_2), read out after the last pixel. Both recurrences
are linear, so training runs along all steps at once: R^t u is a prefix sum of R^-t u, turned by R^t. The angles are trained.
Prints the test accuracy in float32 and as int8 C, flash and RAM, and with arm-none-eabi-gcc and qemu-system-arm the
instructions of a step on a Cortex-M4. The images for validation are the last 5000 of a permutation of the training images.
"""

from __future__ import annotations

import argparse
import math
import shutil
import sys
import time
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from orthornn import OrthogonalRNN, Unconstrained
from orthornn.export import to_c
from orthornn.lab.systems import SequenceModel
from orthornn.lab.tasks.idx import read_idx
from support.compiled_c import Compiled
from support.devices import on_cortex_m4

T, INNER, OUTER = 784, 5.0, 28.0  # INNER, OUTER: typical sizes of the two states, so that one rate fits all weights


def log_uniform(low: float, high: float, count: int) -> Tensor:
    """Return numbers whose logarithms are uniform."""
    return torch.exp(torch.rand(count) * math.log(high / low) + math.log(low))


def initial(n: int) -> dict[str, Tensor]:
    """Return the initial weights of a network with N units in each layer."""
    half = n // 2
    quarter = torch.cat([torch.rand(half - half // 3) * math.pi / 2, log_uniform(4e-3, 1, half // 3)])

    def signs() -> Tensor:
        return torch.where(torch.rand(half) < 0.5, -1.0, 1.0)

    values = {
        "a1": quarter * signs(),
        "a2": log_uniform(1e-3, 0.5, half) * signs(),
        "V1": torch.randn(n),
        "b1": torch.rand(n) * 0.2 - 0.1,
        "V2": (torch.rand(n, n) * 2 - 1) * math.sqrt(3 / n),
        "b2": torch.zeros(n),
        "Y": (torch.rand(10, n) * 2 - 1) / math.sqrt(n) * 0.3,
        "d": torch.zeros(10),
    }
    return {name: value.requires_grad_() for name, value in values.items()}


def logits(p: dict[str, Tensor], x: Tensor) -> Tensor:
    """x: (T, B) -> (B, 10)."""
    n = len(p["V1"])
    half, t = n // 2, torch.arange(T, dtype=torch.float32)[:, None]
    first, second = torch.relu(x[..., None] * p["V1"] + p["b1"]).split(half, -1)
    c, s = (t * p["a1"]).cos()[:, None], (t * p["a1"]).sin()[:, None]
    P, Q = torch.cumsum(c * first + s * second, 0), torch.cumsum(c * second - s * first, 0)
    h = torch.cat([c * P - s * Q, s * P + c * Q], -1)
    first, second = torch.relu(h @ (p["V2"].mT / INNER) + p["b2"]).split(half, -1)
    c, s = ((T - 1 - t) * p["a2"]).cos(), ((T - 1 - t) * p["a2"]).sin()

    def weighed(u: Tensor, w: Tensor) -> Tensor:
        return torch.einsum("tbh,th->bh", u, w)

    g = torch.cat([weighed(first, c) - weighed(second, s), weighed(first, s) + weighed(second, c)], -1)
    return g @ p["Y"].mT / OUTER + p["d"]


def train(images: Tensor, labels: Tensor, n: int, minutes: float) -> dict[str, Tensor]:
    """Return the weights after so many minutes."""
    order = torch.randperm(len(images))
    rows, held = order[:55000], order[55000:]
    p = initial(n)
    angles, others = [p["a1"], p["a2"]], [value for name, value in p.items() if name not in ("a1", "a2")]
    optimizer = torch.optim.Adam([{"params": others, "lr": 1}, {"params": angles, "lr": 1}], betas=(0.9, 0.99))
    begin, updates, part = time.time(), 0, 0.0
    while part < 1:
        for batch in rows[torch.randperm(len(rows))].split(64)[:-1]:
            part = (time.time() - begin) / (60 * minutes)
            if part >= 1:
                break
            rate = 3e-3 * min(1, (updates + 1) / 200) * (0.5 + 0.5 * math.cos(math.pi * part)) + 1e-6
            for group, factor in zip(optimizer.param_groups, (1, 0.1)):
                group["lr"] = rate * factor
            loss = F.cross_entropy(logits(p, images[batch].float().div(255).t()), labels[batch])
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(list(p.values()), 1.0)
            optimizer.step()
            updates += 1
    print(f"{updates} updates of 64 images, validation accuracy {accuracy(p, images[held], labels[held]):.4f}", flush=True)
    return p


@torch.no_grad()
def accuracy(p: dict[str, Tensor], images: Tensor, labels: Tensor) -> float:
    """Return the share of images whose class has the largest score."""
    right = sum(
        int((logits(p, x.float().div(255).t()).argmax(-1) == y).sum()) for x, y in zip(images.split(100), labels.split(100))
    )
    return right / len(images)


def rotation(angles: Tensor) -> Tensor:
    """Return the matrix (N, N) of plane rotations by angles (N/2,)."""
    c, s = torch.diag(angles.cos()), torch.diag(angles.sin())
    return torch.cat([torch.cat([c, -s], 1), torch.cat([s, c], 1)])


@torch.no_grad()
def network(p: dict[str, Tensor]) -> SequenceModel:
    """Return the weights as a model that can be exported."""
    n = len(p["V1"])
    core = OrthogonalRNN(1, n, 2, parametrization=Unconstrained(), nonlinearity="relu", linear_transition=True)
    core.weight_hh_l0, core.weight_hh_l1 = rotation(p["a1"]), rotation(p["a2"])
    core.weight_ih_l0.copy_(p["V1"][:, None])
    core.weight_ih_l1.copy_(p["V2"] / INNER)
    core.bias_ih_l0.copy_(p["b1"])
    core.bias_ih_l1.copy_(p["b2"])
    head = torch.nn.Linear(n, 10)
    head.weight.copy_(p["Y"] / OUTER)
    head.bias.copy_(p["d"])
    return SequenceModel(core, head, output="last").eval()


def main() -> None:
    """Run the command."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("data", type=Path)
    options.add_argument("out", type=Path)
    options.add_argument("--minutes", type=float, default=80)
    options.add_argument("--units", type=int, default=96)
    options.add_argument("--weights", type=Path, help="a file of an earlier run, in place of training")
    given = options.parse_args()
    torch.manual_seed(0)
    kinds = (("images-idx3-ubyte", 3), ("labels-idx1-ubyte", 1))
    files = [(given.data / f"{part}-{kind}.gz", dimensions) for part in ("train", "t10k") for kind, dimensions in kinds]
    x, y, test_x, test_y = (torch.from_numpy(np.array(read_idx(*file))) for file in files)
    x, test_x, y, test_y = x.flatten(1), test_x.flatten(1), y.long(), test_y.long()
    p = torch.load(given.weights) if given.weights else train(x, y, given.units, given.minutes)
    given.out.mkdir(parents=True, exist_ok=True)
    torch.save({name: value.detach() for name, value in p.items()}, given.out / "weights.pt")
    print(f"float32: test accuracy {accuracy(p, test_x, test_y):.4f}", flush=True)
    description = {"input": "real", "output": "last", "says": "classes", "scale": 1 / 255, "labels": [*map(str, range(10))]}
    run = type("Run", (), {"model": network(p), "description": description})()
    for numbers in ("int8", "int16"):
        made = to_c(run, given.out / numbers, numbers=numbers, calibration=x[:300, :, None].float(), force=True)
        compiled, fixed = Compiled(made, "gcc", ("-O3", "-march=native")), made.integers
        assert fixed is not None
        pixels = fixed.quantize(test_x[..., None].numpy()).astype(np.int16)
        right = sum(int(compiled.run(image).argmax()) == int(label) for image, label in zip(pixels, test_y))
        twin = fixed.run(test_x[:20, :, None].numpy())
        same = all(np.array_equal(compiled.run(image), out) for image, out in zip(pixels, twin))
        share = right / len(test_y)
        print(f"{numbers}: test accuracy {share:.4f}, twin of 20 images equal: {same}\n{made.table()}", flush=True)
        if shutil.which("arm-none-eabi-gcc") and shutil.which("qemu-system-arm"):
            found = on_cortex_m4(given.out / numbers, integers=True)
            assert found.selftest == 0
            print(f"Cortex-M4: {max(found.instructions):.0f} instructions per step, {found.code} bytes of code", flush=True)


if __name__ == "__main__":
    main()
