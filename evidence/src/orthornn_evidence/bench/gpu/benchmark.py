"""Measure in order of importance, until the time is up; results are written after every row, and runs can be resumed."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch

from orthornn._files import write_bytes
from orthornn.environment import environment
from orthornn.errors import VerificationError
from orthornn.kernels import dispatch

from ..cases import Case, Work
from ..tables import RESULTS, write_results
from . import layers, recurrence
from .precision import PRECISIONS
from .tables import tables

# The sizes at B = 50 first, since the goals are for them, and the epochs; then one sequence, and more than the GPU has
# multiprocessors.
_SIZES = ("cayley-170", "wy-256-32", "cayley-256", "cayley-128", "cayley-512", "wy-512-32")
CASES = (
    *(f"{size}-b50" for size in _SIZES),
    *("cayley-170-b128", "cayley-512-b128", "wy-512-32-b128"),
    *(f"{size}-b{batch}" for batch in (1, 512) for size in _SIZES),
    *("cayley-360-b50", "wy-1024-32-b50", "wy-256-128-b50"),
)
EPOCHS = ("cayley-170-b128", "cayley-512-b128", "wy-512-32-b128")
KINDS = ("verify", "recurrences", "layers", "epochs")


@dataclass(frozen=True)
class BenchmarkPlan:
    """The measurements of a run. seconds: no new measurement begins after so many. folder: of results.json and
    table.txt.
    """

    folder: Path
    cases: Sequence[Case] = field(default_factory=lambda: [Case.parse(name) for name in CASES])
    work: Work = field(default_factory=lambda: Work(device="cuda"))
    rounds: int = 7
    seconds: float = 300.0


def run(plan: BenchmarkPlan, say: Callable[[str], object] = print) -> dict[str, Any]:
    """Run the measurements that the folder lacks, and return all results.

    A row that fails is stored with its error, and tried again by the next run. VerificationError, when all else is
    done, if a backend does not agree with the reference; it is not timed.
    """
    device, started = torch.device(plan.work.device), time.monotonic()
    results = _begun(plan, device)

    def attempt(kind: str, name: str, measure: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        row = results[kind].get(name)
        late = time.monotonic() - started > plan.seconds
        if (row is not None and "failed" not in row) or late:
            return row or {"failed": "the time was over"}
        try:
            row = measure()
        except Exception as error:  # one case that fails must not lose the others
            row = {"failed": f"{type(error).__name__}: {error}"[:2000]}
        results[kind][name] = row
        write_results(plan.folder, results, tables(results))
        say(f"{kind}: {name}: {_shown(row)}")
        return row

    steps = min(plan.work.T, 100)
    for case in plan.cases:  # whole layers on the backends that run them
        for one in recurrence.recurrences(case, device):
            if one.is_chosen(device):
                attempt("verify", one.name, partial(recurrence.verify, one, device, steps))
        attempt("layers", case.name, partial(layers.measure, case, plan.work, plan.rounds))
        if case.name in EPOCHS:
            for precision in PRECISIONS:
                measure = partial(layers.epoch, case, plan.work, precision, plan.rounds)
                attempt("epochs", f"{case.name} {precision}", measure)
    for case in plan.cases:  # and the recurrences alone, on every backend
        for one in recurrence.recurrences(case, device):
            verdict = attempt("verify", one.name, partial(recurrence.verify, one, device, steps))
            if verdict.get("right") and verdict.get("same_bits"):
                attempt("recurrences", one.name, partial(recurrence.measure, one, device, plan.work.T, plan.rounds))
    results["seconds"] += time.monotonic() - started
    write_results(plan.folder, results, tables(results))
    _require(results)
    return results


def _begun(plan: BenchmarkPlan, device: torch.device) -> dict[str, Any]:
    """Return the folder's results if they are of this device, torch, commit and work, else empty ones."""
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else environment()["processor"]
    backends = dispatch.available(device)
    key = {
        "device": name,
        "torch": torch.__version__,
        "commit": environment()["commit"],
        "T": plan.work.T,
        "nonlinearity": plan.work.nonlinearity,
    }
    path = plan.folder / RESULTS
    if path.exists():
        found = json.loads(path.read_text())
        if {k: found.get(k) for k in key} == key:
            return found
        write_bytes(path.with_suffix(".before.json"), path.read_bytes())
    chosen = {
        case.name: dispatch.describe(device, recurrence.Recurrence(case, "", "float32").size) for case in plan.cases
    }
    empty: dict[str, Any] = {kind: {} for kind in KINDS}
    return {**key, "environment": environment(), "backends": backends, "chosen": chosen, "seconds": 0.0, **empty}


def _shown(row: dict[str, Any]) -> str:
    if "failed" in row:
        return row["failed"].splitlines()[0]
    if "networks" in row:
        return ", ".join(f"{name} {one['us_per_step']:.3g} us" for name, one in row["networks"].items())
    plain = {k: v for k, v in row.items() if isinstance(v, (bool, int, float))}
    return ", ".join(f"{k} {v:.3g}" if isinstance(v, float) else f"{k} {v}" for k, v in plain.items())


def _require(results: dict[str, Any]) -> None:
    wrong = [name for name, row in results["verify"].items() if not (row.get("right") and row.get("same_bits"))]
    if wrong:
        raise VerificationError(
            f"{len(wrong)} of {len(results['verify'])} verifications failed or were not possible, and these are not "
            f"timed: {', '.join(wrong)}. {RESULTS} has their errors; run make test-gpu."
        )
