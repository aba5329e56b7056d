"""The default for tables on every set next to other networks and to plain methods: runs, stored results, and a page.

    python -m orthornn.lab.own_data.results run --made FOLDER --series FOLDER --digits FOLDER --out results/own-data
    python -m orthornn.lab.own_data.results page --out results/own-data

`run` skips what is stored already, so that it resumes; `--sets`, `--methods` and `--seeds` choose. Every network has the same
training and the same budget of parameters; only `default` and the rows named pooled read the mean of all outputs. `page`
writes docs/results/own_data.md from all that is stored: means over seeds, wins and losses.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import sys
import time
import warnings
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import torch

from ..._files import write_atomically
from ..._printable import printable
from ...errors import DataError, OrthornnError
from ..cli.arguments import read_options
from ..cli.recipes import NONE, expand
from ..cli.train import TrainArguments
from ..report.runs import chosen
from ..systems import model_named
from ..training import train
from ..training.json_files import checked, read_json
from .sets import SETS, Places

METHODS = {
    "default": "",
    "lstm": "--model lstm --forget-bias 1 --pool last",
    "lstm, pooled": "--model lstm --forget-bias 1",
    "gru": "--model gru --pool last",
    "goru": "--model goru --pool last",
    "strict": "--model blocks",
    "before": f"--recipe {NONE}",
}
"""Options of `orthornn train` by the name of the row."""
STEPS = 200
NOISE = 2.0  # standard errors of a difference up to which two methods are level


def run(places: Places, name: str, method: str, seed: int) -> dict[str, Any]:
    """Train one network on one set and return what is stored of it."""
    task = SETS[name](places)
    words = [task.name, *METHODS[method].split(), "--steps", str(STEPS), "--seed", str(seed)]
    arguments = read_options(TrainArguments[type(task)], "orthornn train", "", expand(words)[1:])  # type: ignore[misc]
    arguments = dataclasses.replace(arguments, task=task)
    start = time.process_time()
    result = train(arguments.config(model_named(arguments.model, **arguments.given_model_options()), None))
    validation, test = chosen(result.summary())
    return {
        "set": name,
        "method": method,
        "seed": seed,
        "options": METHODS[method],
        "parameters": result.parameters,
        "validation": validation,
        "test": test,
        "updates": result.steps,
        "cpu_seconds": round(time.process_time() - start, 1),
    }


def plain(places: Places, name: str) -> dict[str, Any]:
    """Return what is stored of the plain methods on a set: all of them, the one that validation chooses first."""
    task = SETS[name](places)
    sign = -1 if task.higher_is_better else 1
    found = sorted(task.plain_baselines(), key=lambda one: sign * one.validation[task.metric])
    sizes = [sum(1 for _ in task.validation(1)), sum(1 for _ in task.test(1))]
    return {
        "set": name,
        "task": task.name,
        "metric": task.metric,
        "higher_is_better": task.higher_is_better,
        "trivial": task.trivial_metric,
        "steps": task.steps,
        "inputs": task.input_size,
        "pieces": [task.steps_per_epoch(1), *sizes],
        "methods": [one._asdict() for one in found],
    }


def run_all(places: Places, out: Path, sets: Sequence[str], methods: Sequence[str], seeds: int) -> None:
    """Run what is not stored yet, a seed of everything before the next."""
    for name in sets:
        _store(out / f"{name}-plain.json", lambda name=name: plain(places, name))
    for seed in range(seeds):
        for name in sets:
            for method in methods:
                file = out / f"{name}-{method.replace(', ', '-')}-seed{seed}.json"
                _store(file, lambda name=name, method=method, seed=seed: run(places, name, method, seed))


def _store(file: Path, make: Any) -> None:
    if file.exists():
        return
    file.parent.mkdir(parents=True, exist_ok=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        content = json.dumps(make(), indent=1).encode() + b"\n"
    write_atomically(file, lambda stream: stream.write(content))
    print(file, flush=True)


def read(out: Path) -> tuple[dict[str, dict[str, Any]], dict[tuple[str, str], list[dict[str, Any]]]]:
    """Return what is stored: the plain methods by set, and the runs by (set, method)."""
    about: dict[str, dict[str, Any]] = {}
    runs: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for file in sorted(out.glob("*.json")):
        entry = read_json(file, "Objects")
        checked(entry, "StoredMethods" if "methods" in entry else "StoredRun", str(file))
        if "methods" in entry:
            about[entry["set"]] = entry
        else:
            runs.setdefault((entry["set"], entry["method"]), []).append(entry)
    return about, runs


def level(one: Sequence[float], other: Sequence[float]) -> bool:
    """Return whether the means of two methods differ by no more than their seeds leave open."""
    if len(one) < 2 or len(other) < 2:
        return math.isclose(fmean(one), fmean(other), rel_tol=1e-3)
    error = (stdev(one) ** 2 / len(one) + stdev(other) ** 2 / len(other)) ** 0.5
    return abs(fmean(one) - fmean(other)) <= NOISE * error


def page(out: Path) -> str:
    """Return the page of all that is stored."""
    about, runs = read(out)
    names = [name for name in SETS if name in about]
    methods = [method for method in METHODS if any((name, method) in runs for name in names)]
    lines = [_HEAD, f"| set | sequences | {' | '.join(methods)} | best plain method |"]
    lines.append(f"|---|---|{'---:|' * len(methods)}---|")
    verdicts = {method: {"wins": 0, "level": 0, "losses": 0} for method in (*methods[1:], "best plain method")}
    for name in names:
        entry = about[name]
        metric, sign = entry["metric"], 1 if entry["higher_is_better"] else -1
        without = [m for m in methods for one in runs.get((name, m), []) if metric not in one["test"]]
        if without:
            raise DataError(f"Expected a test {metric} in the runs of {without[0]} on {name}, but got one without it.")
        values = {m: [one["test"][metric] for one in runs.get((name, m), [])] for m in methods}
        best = entry["methods"][0] if entry["methods"] else None
        its = "" if best is None else f"{_shown(best['test'][metric], sign)}, {best['name']}"
        cells = [_cell(values[m], sign) for m in methods]
        lines.append(f"| {name} ({metric}) | {', '.join(map(str, entry['pieces']))} | {' | '.join(cells)} | {its} |")
        own = values.get("default", [])
        others = {m: values[m] for m in methods[1:]}
        if best is not None:
            others["best plain method"] = [best["test"][metric]] * max(2, len(own))
        for method, theirs in others.items():
            if own and theirs:
                better = sign * (fmean(own) - fmean(theirs)) > 0
                verdicts[method]["level" if level(own, theirs) else "wins" if better else "losses"] += 1
    lines += [
        "",
        "## Wins and losses of the default",
        "",
        "| against | wins | level | losses |",
        "|---|---:|---:|---:|",
    ]
    lines += [f"| {method} | {v['wins']} | {v['level']} | {v['losses']} |" for method, v in verdicts.items()]
    lines += ["", *_seconds(methods, runs), "", _COMMANDS, *(f"| {m} | `{METHODS[m] or '(none)'}` |" for m in methods)]
    return "\n".join(lines) + "\n"


def _seconds(methods: Sequence[str], runs: dict[tuple[str, str], list[dict[str, Any]]]) -> list[str]:
    """Return a line on what training cost."""
    spent = {m: [one["cpu_seconds"] for (_, own), all_ in runs.items() if own == m for one in all_] for m in methods}
    each = ", ".join(f"{m} {fmean(seconds):.1f}" for m, seconds in spent.items() if seconds)
    return [f"Mean processor seconds of a training run, on a shared two-core machine: {each}."]


def _cell(values: Sequence[float], sign: int) -> str:
    if not values:
        return ""
    spread = f" ± {_shown(stdev(values), sign)}" if len(values) > 1 else ""
    return f"{_shown(fmean(values), sign)}{spread}{'' if len(values) == 3 else f' ({len(values)})'}"


def _shown(value: float, sign: int) -> str:
    return f"{100 * value:.1f}" if sign > 0 else f"{value:.3g}"


_HEAD = f"""\
# Your own data: the default on many sets

Written by `python -m orthornn.lab.own_data.results page` from the files in `results/own-data`.

Test accuracy in percent, or the test loss (mean squared error of standardized targets) where the metric is loss. Mean and
standard deviation over three seeds; another number of seeds is in parentheses. The weights are those of the best validation.
All networks have at most 12000 parameters, {STEPS} updates of up to 32 sequences, and the training of the recipe, which by
itself makes 600: networks that learn slowly, such as the LSTM on `sensors`, have not converged. The plain method is the one
with the best validation. "sequences": pieces for training, validation and test.

The sets `sensors`, `events` and `oscillator` are made by `orthornn.lab.own_data.sets`; `digits` are spoken digits of six
speakers (Jakobovski et al., free-spoken-digit-dataset, 20 log-mel bands, numbers 0 to 4 of each speaker for the test); the
others are from the UCR/UEA archive and the files of the package aeon, with their own test parts or the default split.
"""
_COMMANDS = """\
## Commands

    orthornn train FILE --target COLUMN --steps 200 --seed SEED OPTIONS
    python -m orthornn.lab.own_data.results run --made FOLDER --series FOLDER --digits FOLDER --out results/own-data

| row | options |
|---|---|"""


def main(words: Sequence[str] | None = None) -> int:
    """Run the command; the exit status."""
    parser = argparse.ArgumentParser(prog="python -m orthornn.lab.own_data.results", description=__doc__)
    parser.add_argument("command", choices=("run", "page"))
    parser.add_argument("--out", type=Path, default=Path("results/own-data"))
    parser.add_argument("--page", type=Path, default=Path("docs/results/own_data.md"))
    for name in ("made", "series", "digits"):
        parser.add_argument(f"--{name}", type=Path)
    parser.add_argument("--sets", nargs="*", default=list(SETS), choices=list(SETS))
    parser.add_argument("--methods", nargs="*", default=list(METHODS), choices=list(METHODS))
    parser.add_argument("--seeds", type=int, default=3)
    given = parser.parse_args(words)
    try:
        if given.command == "run":
            torch.set_num_threads(1)
            places = Places(given.made or given.out / "made", given.series, given.digits)
            run_all(places, given.out, given.sets, given.methods, given.seeds)
        else:
            text = page(given.out)
            write_atomically(given.page, lambda file: file.write(text.encode()))
            print(given.page)
    except OrthornnError as error:
        print(f"orthornn: {printable(error)}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
