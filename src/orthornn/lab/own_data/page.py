"""The page of the results on many sets: means over seeds, wins and losses."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import fmean, stdev
from typing import Any

from .cells import OPTIONS, is_current
from .sets import SETS

NOISE = 2.0  # standard errors of a difference up to which two methods are level
_EARLIER = "\\*"


def level(one: Sequence[float], other: Sequence[float]) -> bool:
    """Return whether the means of two methods differ by no more than their seeds leave open."""
    if len(one) < 2 or len(other) < 2:
        return math.isclose(fmean(one), fmean(other), rel_tol=1e-3)
    error = (stdev(one) ** 2 / len(one) + stdev(other) ** 2 / len(other)) ** 0.5
    return abs(fmean(one) - fmean(other)) <= NOISE * error


def page(about: Mapping[str, dict[str, Any]], stored: Sequence[dict[str, Any]]) -> str:
    """Return the page.

    Args:
        about: The plain methods by set. stored: The cells.
    """
    runs, earlier = _rows(stored)
    names = [name for name in SETS if name in about]
    methods = [method for method in OPTIONS if any((name, method) in runs for name in names)]
    lines = [_HEAD, f"| set | sequences | {' | '.join(methods)} | best plain method |"]
    lines.append(f"|---|---|{'---:|' * len(methods)}---|")
    verdicts = {method: {"wins": 0, "level": 0, "losses": 0} for method in (*methods[1:], "best plain method")}
    for name in names:
        entry = about[name]
        metric, sign = entry["metric"], 1 if entry["higher_is_better"] else -1
        values = {m: [one["test"][metric] for one in runs.get((name, m), [])] for m in methods}
        best = entry["methods"][0] if entry["methods"] else None
        its = "" if best is None else f"{_shown(best['test'][metric], sign)}, {best['name']}"
        cells = [_cell(values[m], sign) for m in methods]
        mark = f" {_EARLIER}" if name in earlier else ""
        pieces = ", ".join(map(str, entry["pieces"]))
        lines.append(f"| {name} ({metric}){mark} | {pieces} | {' | '.join(cells)} | {its} |")
        own = values.get("default", [])
        others = {m: values[m] for m in methods[1:]}
        if best is not None:
            others["best plain method"] = [best["test"][metric]] * max(2, len(own))
        for method, theirs in others.items():
            if own and theirs:
                better = sign * (fmean(own) - fmean(theirs)) > 0
                verdicts[method]["level" if level(own, theirs) else "wins" if better else "losses"] += 1
    lines += ["", _NOTE] if earlier & set(names) else []
    lines += [
        "",
        "## Wins and losses of the default",
        "",
        "| against | wins | level | losses |",
        "|---|---:|---:|---:|",
    ]
    lines += [f"| {method} | {v['wins']} | {v['level']} | {v['losses']} |" for method, v in verdicts.items()]
    lines += ["", *_seconds(methods, runs), "", _COMMANDS, *(f"| {m} | `{OPTIONS[m] or '(none)'}` |" for m in methods)]
    return "\n".join(lines) + "\n"


def _rows(stored: Sequence[dict[str, Any]]) -> tuple[dict[tuple[str, str], list[dict[str, Any]]], set[str]]:
    """Return the cells by (set, row), and the sets of which only earlier, shorter trainings are stored; never both."""
    current = {entry["set"] for entry in stored if is_current(entry) and entry["method"] == "default"}
    runs: dict[tuple[str, str], list[dict[str, Any]]] = {}
    earlier = set()
    for entry in stored:
        if is_current(entry) == (entry["set"] in current):
            runs.setdefault((entry["set"], entry["method"]), []).append(entry)
            earlier |= set() if is_current(entry) else {entry["set"]}
    return runs, earlier


def _seconds(methods: Sequence[str], runs: Mapping[tuple[str, str], list[dict[str, Any]]]) -> list[str]:
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


_HEAD = """\
# Your own data: the default on many sets

Written by `python -m orthornn.lab.own_data.results page` from the files in `results/own-data`.

Test accuracy in percent, or the test loss (mean squared error of standardized targets) where the metric is loss. Mean and
standard deviation over three seeds; another number of seeds is in parentheses. The weights are those of the best validation.
Every network is what `orthornn train` trains with the row's options: at most 12000 parameters, 600 updates of up to 32
sequences (an epoch, if that is more), and an end after ten validations without a better one. `auto` searches for two minutes.
The plain method is the one with the best validation. "sequences": pieces for training, validation and test.

The sets `sensors`, `events` and `oscillator` are made by `orthornn.lab.own_data.sets`; `digits` are spoken digits of six
speakers (Jakobovski et al., free-spoken-digit-dataset, 20 log-mel bands, numbers 0 to 4 of each speaker for the test); the
others are from the UCR/UEA archive and the files of the package aeon, with their own test parts or the default split.
"""
_NOTE = f"""\
{_EARLIER} measured with 200 updates, a third of what the command makes: networks that learn slowly, such as the LSTM on
`sensors`, have not converged. The other sets are measured with the command's own updates."""
_COMMANDS = """\
## Commands

    orthornn train FILE --target COLUMN --seed SEED OPTIONS
    python -m orthornn.lab.own_data.results run --made FOLDER --series FOLDER --digits FOLDER --out results/own-data

`plan` in the place of `run` prints what is missing and the processor time that it takes.

| row | options |
|---|---|"""
