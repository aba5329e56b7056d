"""Train classifiers of pixel MNIST for certificates, and measure how many classes no change of an image can alter.

    python -m orthornn_evidence.certificates pixels --data FOLDER/mnist --out results/certificates

linear        a linear orthogonal recurrence with a linear readout
block         a linear orthogonal recurrence, and a perceptron that reads its last state (OrthogonalBlocks of depth 1)
block, plain  the same without margin training
oplu          an orthogonal recurrence with the nonlinearity oplu at each of the 784 steps
lstm          torch's LSTM; of its global Lipschitz bound the logarithm is stored (lstm.py)

The loss is cross-entropy and, in margin training, `penalties.certified_margin` in energy, whose eps grows from 0 over the
first half of the updates. Certificates and attack are measured on the first test images. Training stores its state every
few updates below `--unfinished` and resumes; each network is stored as its measurement ends.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from orthornn import Householder, OrthogonalBlocks, OrthogonalRNN, Rotations
from orthornn._files import write_bytes
from orthornn.certify import bound, certified_radius
from orthornn.environment import environment
from orthornn.errors import ArgumentError
from orthornn.learn.systems.build import count_parameters
from orthornn.learn.systems.sequence_model import SequenceModel
from orthornn.penalties import certified_margin

from ..once_parser import OnceParser
from ..tasks import PixelMNIST
from .attack import still_right, without_clipping
from .lstm import log10_in_energy, log10_influences

SIZES = (0.1, 0.3, 1.0)
"""Energies of the changes: Euclidean norm over the image, with pixels in [0, 1]."""
_AT_ONCE = 250
_STORED = 50  # updates from one stored state of a training to the next


@dataclass(frozen=True)
class Budget:
    """How networks are trained and measured.

    Attributes:
        units: Of the state. batch, seed: Of the training batches.
        images: Test images of certificates and attack. attack: Its updates.
    """

    units: int = 64
    batch: int = 100
    seed: int = 0
    images: int = 500
    attack: int = 20


@dataclass(frozen=True)
class Training:
    """How one network is trained: Adam's rate, updates, and eps and strength of the margin penalty."""

    updates: int
    rate: float
    eps: float = 0.0
    strength: float = 0.0


TRAININGS: Mapping[str, Training] = {
    "linear": Training(1100, 3e-3, 0.5, 1.0),
    "block": Training(1100, 3e-3, 0.5, 1.0),
    "block, plain": Training(1100, 3e-3),
    "oplu": Training(1650, 2e-3, 0.1, 1.0),
    "lstm": Training(2200, 3e-3),
}


def made(name: str, units: int) -> SequenceModel:
    """Return a network with its initial values."""
    if name == "linear":
        core: Any = OrthogonalRNN(1, units, nonlinearity="identity", parametrization=Rotations())
    elif name == "oplu":
        core = OrthogonalRNN(1, units, nonlinearity="oplu", parametrization=Householder(units // 4, base="rotations"))
    elif name == "lstm":
        core = nn.LSTM(1, units)
        with torch.no_grad():  # forget gates that remember for 1 to 784 steps (Tallec & Ollivier, 2018)
            remembered = torch.empty(units).uniform_(1, 783).log()
            core.bias_ih_l0.zero_()
            core.bias_hh_l0.zero_()
            core.bias_ih_l0[:units], core.bias_ih_l0[units : 2 * units] = -remembered, remembered
    else:
        core = OrthogonalBlocks(1, units // 2, units, mixing="mlp", decay=False)
    return SequenceModel(core, nn.Linear(units // 2 if name.startswith("block") else units, 10))


def trained(
    name: str, task: PixelMNIST, training: Training, budget: Budget, file: Path | None = None
) -> tuple[SequenceModel, float]:
    """Return a network after its training, which resumes from a file and stores its state there, and processor seconds."""
    torch.manual_seed(budget.seed)
    model = made(name, budget.units)
    optimizer = torch.optim.Adam(model.parameters(), training.rate)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, training.updates)
    parts: dict[str, Any] = {"model": model, "optimizer": optimizer, "schedule": schedule}
    done, spent, began = 0, 0.0, time.process_time()
    if file is not None and file.exists():
        stored = torch.load(file)
        for key, part in parts.items():
            part.load_state_dict(stored[key])
        done, spent = stored["updates"], stored["seconds"]
    problem = task.problem()
    for update in range(done, training.updates):
        batch = problem.train(update, budget.batch, budget.seed)
        scores = model(batch.inputs)
        loss = F.cross_entropy(scores, batch.targets)
        if training.strength:
            eps = training.eps * min(1.0, 2 * update / training.updates)
            loss = loss + certified_margin(
                model, scores, batch.targets, eps, len(batch.inputs), "energy", training.strength
            )
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        if file is not None and ((update + 1) % _STORED == 0 or update + 1 == training.updates):
            seconds = spent + time.process_time() - began
            state = {key: part.state_dict() for key, part in parts.items()}
            file.parent.mkdir(parents=True, exist_ok=True)
            temporary = file.with_suffix(".new")
            torch.save({**state, "updates": update + 1, "seconds": seconds}, temporary)
            temporary.replace(file)
    return model, spent + time.process_time() - began


def untrained_bounds(budget: Budget, steps: int) -> dict[str, float]:
    """Return log10 of how far the state of an LSTM moves at most per energy before training, after 1, 28 and all steps."""
    torch.manual_seed(budget.seed)
    lstm = cast(nn.LSTM, made("lstm", budget.units).core)
    return {f"{count}": log10_in_energy(log10_influences(lstm, count, 0.0, 1.0)) for count in (1, 28, steps)}


def shares(radii: Tensor) -> dict[str, float]:
    """Return the share of images whose radius is above each size."""
    return {f"{eps:g}": float((radii > eps).double().mean()) for eps in SIZES}


def measured(model: SequenceModel, task: PixelMNIST, budget: Budget) -> dict[str, Any]:
    """Return accuracy, certified accuracy, and accuracy under attack on the same images."""
    without_clipping(model)
    batch = next(task.problem().test(budget.images))
    x, targets = batch.inputs, batch.targets
    steps = len(x)
    found: dict[str, Any] = {"images": len(targets)}
    found["accuracy"] = float((model(x).argmax(1) == targets).double().mean())
    if isinstance(model.core, nn.LSTM):
        log = log10_in_energy(log10_influences(model.core, steps, 0.0, 1.0))
        scores, Y = model(x).double(), cast(nn.Linear, model.head).weight.double()
        margins = scores.gather(1, targets[:, None]) - scores
        apart = torch.linalg.vector_norm(Y[targets][:, None] - Y[None], dim=-1)
        radii = torch.where(apart > 0, margins / apart.clamp_min(1e-300), torch.inf).amin(1).clamp_min(0).log10() - log
        found["certified"] = {f"{eps:g}": float((radii > math.log10(eps)).double().mean()) for eps in SIZES}
        found["log10_of_the_bound"] = log + math.log10(float(torch.linalg.matrix_norm(Y, 2)))
        found["log10_of_the_median_radius"] = float(radii.median()) if radii.median() > -math.inf else None
    else:
        radii = certified_radius(model, x, targets, "energy")
        found["certified"], found["median_radius"] = shares(radii), float(radii.median())
        found["bound"] = bound(model, 1.0, steps, "energy")
        one = certified_radius(model, x, targets, "one")
        found["one_pixel"] = float((one > 1).double().mean())
    found["attacked"] = {}
    for eps in SIZES:
        right = [
            still_right(model, x[:, k : k + _AT_ONCE], targets[k : k + _AT_ONCE], eps, budget.attack)
            for k in range(0, len(targets), _AT_ONCE)
        ]
        found["attacked"][f"{eps:g}"] = float(torch.cat(right).double().mean())
    return found


def run(file: Path, task: PixelMNIST, names: Sequence[str], budget: Budget, unfinished: Path) -> None:
    """Train and measure the networks that a file does not have yet, and store each.

    ArgumentError if the file has another budget.
    """
    record: dict[str, Any] = {"budget": asdict(budget), "runs": []}
    if file.exists():
        record = json.loads(file.read_text(encoding="utf-8"))
        if record["budget"] != asdict(budget):
            raise ArgumentError(
                f"Expected the budget of {file}, {record['budget']}, but got {asdict(budget)}. Write another file."
            )
    command = ["python", "-m", "orthornn_evidence.certificates", "pixels"]
    if "log10_of_untrained_lstm" not in record:
        record["log10_of_untrained_lstm"] = untrained_bounds(budget, task.steps)
        write_bytes(file, (json.dumps(record, indent=1) + "\n").encode())
    for name in names:
        training = TRAININGS[name]
        if any((one["network"], one["training"]) == (name, asdict(training)) for one in record["runs"]):
            continue
        here = {**environment(), "command": command}
        model, seconds = trained(name, task, training, budget, unfinished / f"{name.replace(', ', '-')}.pt")
        found = {
            "network": name,
            "training": asdict(training),
            "parameters": count_parameters(model),
            "cpu_seconds": round(seconds, 1),
            **measured(model, task, budget),
            "environment": here,
        }
        if file.exists():  # another process may train other networks
            record = json.loads(file.read_text(encoding="utf-8"))
        record["runs"] = [one for one in record["runs"] if one["network"] != name] + [found]
        write_bytes(file, (json.dumps(record, indent=1) + "\n").encode())
        print(json.dumps({key: value for key, value in found.items() if key != "environment"}), flush=True)


def main(words: Sequence[str]) -> int:
    """Run the command; the exit status."""
    parser = OnceParser(prog="orthornn_evidence.certificates pixels", description=__doc__.splitlines()[0])
    parser.add_argument("--data", default="data/mnist", help="folder with the files of MNIST")
    parser.add_argument("--networks", nargs="+", default=list(TRAININGS), choices=list(TRAININGS))
    parser.add_argument("--unfinished", type=Path, default=Path("runs/certificates"), help="where training is stored")
    parser.add_argument("--out", type=Path, required=True, help="the folder of the results")
    given = parser.parse_args(words)
    torch.set_num_threads(1)
    given.out.mkdir(parents=True, exist_ok=True)
    run(given.out / "pixel-mnist.json", PixelMNIST(data=given.data), given.networks, Budget(), given.unfinished)
    return 0
