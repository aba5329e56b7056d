"""The default for tables on every set next to other networks and to plain methods: runs, stored results, and a page.

    python -m orthornn_evidence.own_data.results plan --out results/own-data
    python -m orthornn_evidence.own_data.results run --made FOLDER --series FOLDER --digits FOLDER --out results/own-data
    python -m orthornn_evidence.own_data.results page --out results/own-data

`run` trains the missing cells, the most important first (cells.py), each like `orthornn train` with the row's options. It can
be stopped at any time: an unfinished cell resumes from its last checkpoint, at most a minute old. `--sets`, `--methods` and
`--seeds` select cells, `--minutes` bounds the processor time. `plan` prints the missing cells and their cost. `page` writes
docs/results/own_data.md from all stored results: means over seeds, wins and losses.
"""

from __future__ import annotations

import json
import shutil
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from orthornn._files import write_bytes
from orthornn.environment import commit
from orthornn.errors import DataError, Interrupted, OrthornnError
from orthornn.learn.compare import best_baselines_first
from orthornn.learn.tasks.abilities import plain_baselines
from orthornn.saved.json_files import read_json

from ..once_parser import OnceParser
from . import cells
from .cells import Cell, Costs, is_current
from .page import page
from .sets import SETS, Places


def plain(places: Places, name: str) -> dict[str, Any]:
    """Return the results of the plain methods on a data set, the best by validation first."""
    task = cells.asked(places, name).make_task()
    found = best_baselines_first(task, plain_baselines(task))
    sizes = [sum(1 for _ in task.problem().validation(1)), sum(1 for _ in task.problem().test(1))]
    return {
        "set": name,
        "task": task.name,
        "metric": task.metric,
        "higher_is_better": task.higher_is_better,
        "trivial": task.objective().trivial_metric,
        "steps": task.steps,
        "inputs": task.problem().schema["input_size"],
        "pieces": [task.steps_per_epoch(1), *sizes],
        "methods": [one._asdict() for one in found],
    }


def read(out: Path) -> tuple[dict[str, dict[str, Any]], list[dict[str, Any]]]:
    """Return the stored results: the plain methods by data set, and the cells."""
    about: dict[str, dict[str, Any]] = {}
    runs: list[dict[str, Any]] = []
    for file in sorted(out.glob("*.json")):
        entry = read_json(file, "Objects")
        if not isinstance(entry.get("set"), str) or not ("methods" in entry or {"method", "seed"} <= entry.keys()):
            raise DataError(f"Expected {file} to be a stored result, but got other entries. Remove it.")
        if "methods" in entry:
            about[entry["set"]] = entry
        else:
            runs.append(entry)
    return about, runs


def missing(out: Path, wanted: Sequence[Cell]) -> list[tuple[Cell, float]]:
    """Return the missing cells, in order, with the largest processor time of each in seconds."""
    about, runs = read(out)
    there = {(entry["set"], entry["method"], entry["seed"]) for entry in runs if is_current(entry)}
    costs = Costs(about, runs)
    return [(cell, costs.seconds(cell)) for cell in wanted if tuple(cell) not in there]


def show_plan(out: Path, wanted: Sequence[Cell]) -> None:
    """Print the missing cells by row and seed, and a bound on their processor time in minutes."""
    left: dict[tuple[str, int], list[float]] = {}
    for cell, seconds in missing(out, wanted):
        left.setdefault((cell.method, cell.seed), []).append(seconds)
    total = 0.0
    for (method, seed), own in left.items():
        total += sum(own)
        print(
            f"{method:<14} seed {seed}   {len(own):>3} sets   {sum(own) / 60:>6.1f} min   {total / 60:>6.1f} min in all"
        )
    print(f"{sum(map(len, left.values()))} cells are missing: at most {total / 60:.0f} minutes of processor time")


def run_all(places: Places, out: Path, wanted: Sequence[Cell], minutes: float | None) -> None:
    """Train the missing cells until `minutes` minutes of processor time have passed."""
    about, _ = read(out)
    for name in dict.fromkeys(cell.set for cell in wanted):
        if name not in about:
            _store(out / f"{name}-plain.json", plain(places, name))
    left = missing(out, wanted)
    for place, (cell, _) in enumerate(left):
        if minutes is not None and time.process_time() > 60 * minutes:
            print(f"{minutes:g} minutes are over; the same command continues", flush=True)
            return
        folder = places.made / "runs" / cell.name
        _store(out / f"{cell.name}.json", cells.trained(places, cell, folder))
        shutil.rmtree(folder, ignore_errors=True)
        rest = sum(seconds for _, seconds in left[place + 1 :]) / 60
        print(f"   {len(left) - place - 1} cells, at most {rest:.0f} minutes of processor time left", flush=True)


def _store(file: Path, content: dict[str, Any]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    write_bytes(file, (json.dumps(content | {"commit": commit()}, indent=1) + "\n").encode())
    print(file, flush=True)


def main(words: Sequence[str] | None = None) -> int:
    """Run the command and return the exit status."""
    parser = OnceParser(prog="python -m orthornn_evidence.own_data.results", description=__doc__)
    parser.add_argument("command", choices=("run", "plan", "page"))
    parser.add_argument("--out", type=Path, default=Path("results/own-data"))
    parser.add_argument("--page", type=Path, default=Path("docs/results/own_data.md"))
    for name in ("made", "series", "digits"):
        parser.add_argument(f"--{name}", type=Path)
    parser.add_argument("--sets", nargs="*", default=list(SETS), choices=list(SETS))
    parser.add_argument("--methods", nargs="*", default=list(cells.OPTIONS), choices=list(cells.OPTIONS))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--minutes", type=float)
    given = parser.parse_args(words)
    wanted = cells.in_order(given.sets, given.methods, given.seeds)
    try:
        if given.command == "run":
            torch.set_num_threads(1)
            places = Places(given.made or given.out / "made", given.series, given.digits)
            run_all(places, given.out, wanted, given.minutes)
        elif given.command == "plan":
            show_plan(given.out, wanted)
        else:
            text = page(*read(given.out))
            write_bytes(given.page, text.encode())
            print(given.page)
    except (Interrupted, KeyboardInterrupt):
        print("orthornn: stopped; the same command continues", file=sys.stderr)
        return 130
    except OrthornnError as error:
        print(f"orthornn: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
