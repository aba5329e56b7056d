"""The closed form next to a semidefinite program: networks that predict the levels of two tanks.

    python -m orthornn_evidence.certificates tanks --out results/certificates

Water runs from the first tank into the second and from there away, with sqrt(level) as the speed, and two pumps fill the
tanks. A network reads the pumps at each step and predicts both levels after the last one. For each size and length the two
bounds in energy are stored with their seconds, and the most that an attack by power iteration finds: no bound is below it.
The program is that of RNN-SDP (sdp.py), solved by Clarabel.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from orthornn import OrthogonalRNN, Unconstrained
from orthornn._files import write_bytes
from orthornn.certify import bound
from orthornn.environment import environment
from orthornn.learn.systems.sequence_model import SequenceModel
from orthornn.learn.tasks.streams import stream

from ..once_parser import OnceParser
from .attack import most_moved, without_clipping
from .sdp import sdp_bound

CASES = [(n, T) for T in (10, 30, 100) for n in (8, 16, 32)]
NETWORKS = ("ours", "torch.nn.RNN")
UPDATES, TRAINED = 600, 100
"""Of training, and the length of its sequences."""
_VERSIONS = ("cvxpy-base", "clarabel")


def levels(pumps: np.ndarray, rate: float = 0.1) -> np.ndarray:
    """Return the levels (B, 2) of two tanks that are empty at first, after pumps (T, B, 2) >= 0 were on."""
    found = np.zeros(pumps.shape[1:])
    for flow in pumps:
        out = np.sqrt(found)
        found = np.maximum(found + rate * (flow - out + np.column_stack([np.zeros(len(out)), out[:, 0]])), 0)
    return found


def batch(steps: int, count: int, seed: int, step: int) -> tuple[Tensor, Tensor]:
    """Return pumps (T, B, 2), which change every 10 steps, and the levels after them (B, 2)."""
    random = stream("train", seed, step)
    pumps = random.uniform(0, 1, (-(-steps // 10), count, 2)).repeat(10, 0)[:steps]
    return torch.from_numpy(pumps).float(), torch.from_numpy(levels(pumps)).float()


def trained(name: str, n: int) -> tuple[SequenceModel, float]:
    """Return a network after its training, and its mean squared error over the variance of the levels."""
    torch.manual_seed(0)
    core = (
        OrthogonalRNN(2, n, nonlinearity="tanh")
        if name == "ours"
        else OrthogonalRNN(2, n, nonlinearity="tanh", parametrization=Unconstrained(init="uniform"))
    )
    model = SequenceModel(core, nn.Linear(n, 2))
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, UPDATES)
    for update in range(UPDATES):
        pumps, answers = batch(TRAINED, 32, 0, update)
        loss = F.mse_loss(model(pumps), answers)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
    with torch.no_grad():
        pumps, answers = batch(TRAINED, 500, 1, 0)
        error = float(F.mse_loss(model(pumps), answers) / answers.var())
    return without_clipping(model.double()), error  # type: ignore[return-value]


def compared(model: SequenceModel, steps: int) -> dict[str, Any]:
    """Return both bounds with their processor seconds, and what an attack finds."""
    core, head = cast(OrthogonalRNN, model.core), cast(nn.Linear, model.head)
    (layer,) = core.layers()
    parts = (layer.transition.matrix() * layer.gain, layer.weight_ih, head.weight)
    W, V, Y = (part.detach().numpy() for part in parts)
    started = time.process_time()
    closed = bound(model, 1.0, steps, "energy")
    between = time.process_time()
    program = sdp_bound(W, V, Y, steps)
    ended = time.process_time()
    pumps = batch(steps, 20, 2, steps)[0].double()
    attack = max(most_moved(model, pumps, eps) for eps in (1e-3, 0.3))
    seconds = {"closed form": round(between - started, 4), "program": round(ended - between, 3)}
    return {"closed form": closed, "program": program, "attack": attack, "seconds": seconds}


def run(file: Path, cases: Sequence[tuple[int, int]]) -> None:
    """Compare what a file does not have yet, and store each."""
    record: dict[str, Any] = {"environments": [], "runs": []}
    if file.exists():
        record = json.loads(file.read_text(encoding="utf-8"))
    versions = {name: metadata.version(name) for name in _VERSIONS}
    command = ["python", "-m", "orthornn_evidence.certificates", "tanks"]
    record["environments"].append({**environment(), **versions, "command": command})
    models: dict[tuple[str, int], tuple[SequenceModel, float]] = {}
    for n, steps in cases:
        for name in NETWORKS:
            if any((one["network"], one["n"], one["T"]) == (name, n, steps) for one in record["runs"]):
                continue
            if (name, n) not in models:
                models[name, n] = trained(name, n)
            model, error = models[name, n]
            found = {"network": name, "n": n, "T": steps, "error": error, **compared(model, steps)}
            record["runs"].append({**found, "environment": len(record["environments"]) - 1})
            write_bytes(file, (json.dumps(record, indent=1) + "\n").encode())
            print(json.dumps(found), flush=True)


def main(words: Sequence[str]) -> int:
    """Run the command; the exit status."""
    parser = OnceParser(prog="orthornn_evidence.certificates tanks", description=__doc__.splitlines()[0])
    parser.add_argument("--units", nargs="+", type=int, default=[8, 16, 32], help="sizes n")
    parser.add_argument("--steps", nargs="+", type=int, default=[10, 30, 100], help="lengths T")
    parser.add_argument("--out", type=Path, required=True, help="the folder of the results")
    given = parser.parse_args(words)
    torch.set_num_threads(1)
    given.out.mkdir(parents=True, exist_ok=True)
    run(given.out / "tanks.json", [(n, T) for n, T in CASES if n in given.units and T in given.steps])
    return 0
