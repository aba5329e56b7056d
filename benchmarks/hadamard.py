"""Networks whose weights are bits: Hadamard(), with ternary weights around it, on two tasks.

    python benchmarks/hadamard.py copying --results results/hadamard.json
    python benchmarks/hadamard.py mnist FOLDER --results results/hadamard.json

copying: ten symbols, recalled after 1000 blanks (variant vorontsov2017), by a linear recurrence h_t = W h_{t-1} + V x_t with
a linear readout of every state. The signs of W, V and the readout are trained together, all straight through: V and the
readout have the values -s, 0 and s.
mnist: pixel MNIST, one pixel per step. h_t = W h_{t-1} + v x_t from h_0 = c v, and scores Y relu(h_784) + d; W and v
are signs, and Y is ternary with a scale per class. Signs are drawn once, since a flip changes W^784 altogether; Y and d are
trained. The images for validation are the last 5000 of a permutation of the training images. The weights are packed into
bytes (signs eight to a byte, ternary numbers five to a byte, scales and d as float32), and the test accuracy is that of the
network that is read back from these bytes.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional as F

from orthornn import Hadamard, OrthogonalRNN
from orthornn.environment import commit
from orthornn.learn.tasks import Copying
from orthornn_evidence.files.idx import read_idx

SEEDS = 3
COPYING = {"units": 256, "blank": 1000, "batch": 16, "updates": 400, "rate": 1e-2, "signs_rate": 3e-4}
MNIST = {"units": 1728, "block": 64, "epochs": 25, "batch": 256, "rate": 2e-3}
START, CENTER, PIXELS = 3.0, 0.13, 784
TRITS = 5  # in a byte: 3^5 = 243


def ternary(w: Tensor, by_row: bool = False) -> Tensor:
    """Return w rounded to -s, 0 and s, s the mean size (of a row), with the gradient of w."""
    s = w.abs().mean(1, keepdim=True) if by_row else w.abs().mean()
    rounded = (w / s).round().clamp(-1, 1) * s
    return rounded.detach() + (w - w.detach())


def copying(seed: int) -> dict[str, Any]:
    """Train on copying and return the recall on held-out sequences, the loss, and the bytes of the weights."""
    torch.manual_seed(seed)
    n, updates = int(COPYING["units"]), int(COPYING["updates"])
    task = Copying(T=int(COPYING["blank"]), variant="vorontsov2017")
    rnn = OrthogonalRNN(10, n, nonlinearity="identity", parametrization=Hadamard(), bias=False, form="dense")
    signs = rnn.get_parameter("transition_l0.signs")
    first = signs.detach() < 0
    V = nn.Parameter(0.3 * torch.randn(n, 10) / math.sqrt(10))
    Y, d = nn.Parameter(torch.randn(10, n) / math.sqrt(n)), nn.Parameter(torch.zeros(10))
    optimizer = torch.optim.Adam([{"params": [signs]}, {"params": [V, Y, d]}])
    problem, objective = task.problem(), task.objective()

    def scores(tokens: Tensor) -> Tensor:
        x = F.one_hot(tokens, 10).float()
        states = functional_call(rnn, {"weight_ih_l0": ternary(V)}, (x,))[0]
        return states @ ternary(Y).mT + d

    started = time.process_time()
    for step in range(updates):
        left = 1 - step / updates
        for group, rate in zip(optimizer.param_groups, (COPYING["signs_rate"], COPYING["rate"])):
            group["lr"] = rate * left
        batch = problem.train(step, int(COPYING["batch"]), seed)
        loss = objective.loss(scores(batch.inputs), batch.targets)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_([V, Y, d], 1.0)
        optimizer.step()
        if step % 50 == 0:
            print(f"copying, seed {seed}, update {step}: loss {loss.item():.5f} of {objective.trivial:.5f}", flush=True)
    minutes = (time.process_time() - started) / 60
    totals: dict[str, list[float]] = {}
    with torch.no_grad():
        for batch in problem.test(int(COPYING["batch"])):
            for name, (total, count) in objective.metrics(scores(batch.inputs), batch.targets).items():
                at = totals.setdefault(name, [0.0, 0])
                at[0], at[1] = at[0] + total, at[1] + count
    found = {name: total / count for name, (total, count) in totals.items()}
    trits = -(-V.numel() // TRITS) - (-Y.numel() // TRITS)
    return {
        **found,
        "trivial": objective.trivial,
        "flipped": int(((signs.detach() < 0) != first).sum()),
        "bytes": n // 8 + trits + 4 * (2 + d.numel()),
        "minutes": minutes,
    }


def response(signs: Tensor, v: Tensor, block: int) -> Tensor:
    """Return W^784 ... W^0 v, (785, n)."""
    W = Hadamard(block=block).bind(len(signs))(signs.double())
    rows = [v.double()]
    for _ in range(PIXELS):
        rows.append(W @ rows[-1])
    return torch.stack(rows[::-1]).float()


def features(images: Tensor, signs: Tensor, v: Tensor, block: int) -> Tensor:
    """Return relu(h_784) for images (B, 784) of bytes."""
    K = response(signs, v, block)
    return torch.cat([torch.relu(START * K[0] + (part / 255 - CENTER) @ K[1:]) for part in images.float().split(2500)])


def packed(signs: Tensor, v: Tensor, Y: Tensor, scales: Tensor, d: Tensor) -> bytes:
    """Return the weights as bytes; Y: (10, n), -1, 0 or 1."""
    bits = [np.packbits((x < 0).numpy(), bitorder="little").tobytes() for x in (signs, v)]
    trits = np.pad((Y.flatten().numpy() + 1).astype(np.uint8), (0, -Y.numel() % TRITS)).reshape(-1, TRITS)
    words = (trits * 3 ** np.arange(TRITS)).sum(1).astype(np.uint8)
    return b"".join([*bits, words.tobytes(), scales.float().numpy().tobytes(), d.float().numpy().tobytes()])


def unpacked(content: bytes, n: int, classes: int = 10) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return (signs, v, scaled Y, d) of the bytes."""
    raw = np.frombuffer(content, np.uint8)
    size, words = n // 8, -(-classes * n // TRITS)
    signs, v = (torch.from_numpy(1.0 - 2.0 * np.unpackbits(raw[at : at + size], bitorder="little")) for at in (0, size))
    trits = raw[2 * size : 2 * size + words, None] // 3 ** np.arange(TRITS) % 3
    Y = torch.from_numpy(trits.astype(np.float32).ravel()[: classes * n] - 1).view(classes, n)
    scales, d = torch.from_numpy(np.frombuffer(content[2 * size + words :], np.float32).copy()).view(2, classes)
    return signs, v, Y * scales.unsqueeze(1), d


def mnist(folder: Path, seed: int) -> dict[str, Any]:
    """Train the readout on pixel MNIST and return accuracies, and the bytes of all weights."""

    def data(name: str) -> tuple[Tensor, Tensor]:
        images, labels = (folder / f"{name}-{kind}-ubyte.gz" for kind in ("images-idx3", "labels-idx1"))
        pixels, classes = read_idx(images, 3), read_idx(labels, 1)
        return torch.from_numpy(pixels.copy()).flatten(1), torch.from_numpy(classes.copy()).long()

    (images, labels), (test_images, test_labels) = data("train"), data("t10k")
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(0))
    images, labels = images[order], labels[order]
    torch.manual_seed(seed)
    n, block, batch = (int(MNIST[name]) for name in ("units", "block", "batch"))
    signs, v = (torch.where(torch.rand(n) < 0.5, -1.0, 1.0) for _ in range(2))
    started = time.process_time()
    rows = features(images, signs, v, block)
    mean, size = rows[:-5000].mean(0), rows[:-5000].std()
    rows = rows.sub_(mean).div_(size)
    inputs, targets = rows[:-5000], labels[:-5000]
    Y, d = nn.Parameter(torch.zeros(10, n)), nn.Parameter(torch.zeros(10))
    with torch.no_grad():  # least squares
        gram = inputs.mT @ inputs + 30 * torch.eye(n)
        Y.copy_(3 * torch.linalg.solve(gram, inputs.mT @ F.one_hot(targets, 10).float()).mT)
    optimizer = torch.optim.Adam([Y, d])
    updates = int(MNIST["epochs"]) * len(inputs) // batch
    for step in range(updates):
        optimizer.param_groups[0]["lr"] = MNIST["rate"] * (1 + math.cos(math.pi * step / updates)) / 2
        chosen = torch.randint(len(inputs), (batch,))
        loss = F.cross_entropy(inputs[chosen] @ ternary(Y, by_row=True).mT + d, targets[chosen])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 500 == 0:
            print(f"mnist, seed {seed}, update {step} of {updates}: loss {loss.item():.4f}", flush=True)
    minutes = (time.process_time() - started) / 60
    with torch.no_grad():
        scales = Y.abs().mean(1)
        rounded = (Y / scales.unsqueeze(1)).round().clamp(-1, 1)
        validation = rows[-5000:] @ (rounded * scales.unsqueeze(1)).mT + d
        offset = d - (rounded * scales.unsqueeze(1)) @ (mean / size)
        content = packed(signs, v, rounded, scales / size, offset)
        signs, v, weights, offset = unpacked(content, n)
        scores = features(test_images, signs, v, block) @ weights.mT + offset
    return {
        "validation": _accuracy(validation, labels[-5000:]),
        "test": _accuracy(scores, test_labels),
        "bytes": len(content),
        "minutes": minutes,
    }


def _accuracy(scores: Tensor, labels: Tensor) -> float:
    return float((scores.argmax(1) == labels).double().mean())


def summary(seeds: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the mean and the worst value of each number over the seeds."""
    mean = {name: sum(seed[name] for seed in seeds) / len(seeds) for name in seeds[0]}
    worst = {name: (min if name in ("recall", "validation", "test") else max)(s[name] for s in seeds) for name in mean}
    return {"mean": mean, "worst": worst}


def main() -> None:
    """Run one of the two tasks and add it to the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("task", choices=("copying", "mnist"))
    parser.add_argument("folder", type=Path, nargs="?", help="of MNIST")
    parser.add_argument("--results", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=SEEDS)
    given = parser.parse_args()
    torch.set_num_threads(1)
    runs: Callable[[int], dict[str, Any]] = (
        copying if given.task == "copying" else lambda seed: mnist(given.folder, seed)
    )
    settings = COPYING if given.task == "copying" else MNIST
    record = json.loads(given.results.read_text("utf-8")) if given.results.exists() else {}
    seeds = [runs(seed) for seed in range(given.seeds)]
    record[given.task] = {"commit": commit(), **settings, **summary(seeds), "seeds": seeds}
    given.results.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(record[given.task], indent=1))


if __name__ == "__main__":
    main()
