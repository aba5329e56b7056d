"""Train networks on MNIST, one row of pixels a step, and certify what they say, on one thread.

    python benchmarks/certificates.py --data MNIST --out results/certificates.json

Pixels are divided by 255. Every network has 64 units and is trained for ten epochs on 60 000 images with one seed, with the cross-entropy alone
or with the hinge on certified margins as well; nothing is chosen on the test images. eps is the Euclidean norm of a change of
the whole image ("energy"). The attack follows the gradient of the margin from every image for 30 steps; the share of images
that it leaves right is an upper bound of every certified accuracy.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import torch
from orthornn_evidence.files.idx import read_idx
from torch import Tensor, nn

import orthornn
from orthornn.certify import certified_radius
from orthornn.environment import environment
from orthornn.learn.systems.sequence_model import SequenceModel
from orthornn.penalties import certified_margin

EPS = (0.1, 0.3, 1.0)
UNITS, EPOCHS, BATCH, RATE = 64, 10, 100, 2e-3
NETWORKS: dict[str, tuple[str, float]] = {  # nonlinearity, strength of the penalty
    "oplu": ("oplu", 0.0),
    "oplu, margin": ("oplu", 1.0),
    "linear": ("identity", 0.0),
    "linear, margin": ("identity", 1.0),
}


def images(folder: Path, part: str) -> tuple[Tensor, Tensor]:
    """Return rows (28, images, 28) in [0, 1], and labels."""
    pixels = torch.as_tensor(read_idx(folder / f"{part}-images-idx3-ubyte.gz", 3).copy()).float() / 255
    labels = torch.as_tensor(read_idx(folder / f"{part}-labels-idx1-ubyte.gz", 1).copy()).long()
    return pixels.view(-1, 28, 28).transpose(0, 1).contiguous(), labels


def trained(nonlinearity: str, strength: float, x: Tensor, y: Tensor) -> SequenceModel:
    """Return a network after its training. The margins that the penalty asks for are those of the middle eps."""
    torch.manual_seed(0)
    method = orthornn.Householder(32, base="rotations")
    core = orthornn.OrthogonalRNN(28, UNITS, parametrization=method, nonlinearity=nonlinearity)  # type: ignore[arg-type]
    model = SequenceModel(core, nn.Linear(UNITS, 10))
    updates = EPOCHS * (len(y) // BATCH)
    optimizer = torch.optim.Adam(model.parameters(), lr=RATE)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, updates)
    for update in range(updates):
        if update % (len(y) // BATCH) == 0:
            order = torch.randperm(len(y))
        rows = order[update * BATCH % len(y) :][:BATCH]
        scores = model(x[:, rows])
        loss = nn.functional.cross_entropy(scores, y[rows])
        if strength:
            loss = loss + certified_margin(model, scores, y[rows], EPS[1], len(x), "energy", strength)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    return model.eval()


def withstood(model: SequenceModel, x: Tensor, y: Tensor, eps: float, updates: int = 30) -> Tensor:
    """Return which images (B,) a projected gradient attack leaves right."""
    right, change = model(x).argmax(1) == y, torch.zeros_like(x)
    for _ in range(updates):
        change.requires_grad_()
        scores = model(x + change)
        right &= scores.argmax(1) == y
        others = scores.scatter(1, y[:, None], -torch.inf).amax(1)
        (gradient,) = torch.autograd.grad((others - scores.gather(1, y[:, None])[:, 0]).sum(), change)
        step = gradient / gradient.norm(dim=(0, 2), keepdim=True).clamp_min(1e-30)
        change = change.detach() + eps / 4 * step
        change = change * (eps / change.norm(dim=(0, 2), keepdim=True)).clamp_max(1)
    return right & (model(x + change).argmax(1) == y)


def measured(model: SequenceModel, x: Tensor, y: Tensor) -> dict[str, Any]:
    """Return accuracy, certified accuracies, and accuracies under attack on the first thousand images."""
    radii = certified_radius(model, x, y, "energy")
    found = {"accuracy": float((radii > 0).double().mean()), "median_radius": float(radii.median())}
    model = model.double()
    for eps in EPS:
        found[f"certified_{eps:g}"] = float((radii > eps).double().mean())
        found[f"attacked_{eps:g}"] = float(withstood(model, x[:, :1000].double(), y[:1000], eps).double().mean())
    return found


def main() -> None:
    """Run the program."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    torch.set_num_threads(1)
    x, y = images(options.data, "train")
    test = images(options.data, "t10k")
    found: dict[str, Any] = {}
    for name, (nonlinearity, strength) in NETWORKS.items():
        found[name] = measured(trained(nonlinearity, strength, x, y), *test)
        print(name, found[name], flush=True)
    found["environment"] = environment()
    options.out.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
