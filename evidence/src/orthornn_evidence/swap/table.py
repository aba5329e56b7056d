"""The tables of the suite: a line per script, a column per layer, each at the better of its two learning rates."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean, stdev
from typing import Any, NamedTuple

from orthornn._checks import check_choice

from ..markdown import markdown_table
from .layers import LAYERS, MEASURE
from .scripts import SCRIPTS

VIEWS = {"width": 0, "time": 1}
"""Equal width, for the updates of the script; equal processor time."""
NOISE = 2.0  # two layers are level if they differ by at most this many standard errors


class Score(NamedTuple):
    """The scores of all seeds at a layer's better rate. signed: With a sign such that more is better."""

    values: list[float]
    sign: int

    @property
    def mean(self) -> float:
        """The mean, with the sign."""
        return self.sign * fmean(self.values)

    def is_worse(self, other: Score) -> bool:
        """Return whether this mean is worse than another by more than the seeds leave open."""
        return other.mean - self.mean > NOISE * _error(self.values, other.values)


class Line(NamedTuple):
    """A script: its metric, the score of a prediction that ignores the input, and the scores of the trained layers."""

    script: str
    metric: str
    chance: float
    scores: dict[str, Score]

    @property
    def is_learned(self) -> bool:
        """Whether a layer is better than an answer that ignores the input."""
        return any(score.mean > score.sign * self.chance for score in self.scores.values())


def lines(results: Path, view: str) -> list[Line]:
    """Return the stored results in the order of the scripts. A run that diverged counts as chance."""
    place, found = VIEWS[check_choice("view", view, VIEWS)], []
    for name in SCRIPTS:
        file = results / "swap" / f"{name}.json"
        if not file.exists():
            continue
        stored = json.loads(file.read_text(encoding="utf-8"))
        sign, chance = (1 if stored["higher_is_better"] else -1), stored["chance"]
        scores = {}
        for layer in LAYERS:
            rates: dict[float, list[float]] = {}
            for cell in stored["cells"]:
                if cell["layer"] == layer:
                    score = cell["scores"][place]
                    rates.setdefault(cell["rate"], []).append(chance if score is None else score)
            if rates:
                scores[layer] = max((Score(values, sign) for values in rates.values()), key=lambda score: score.mean)
        if scores:
            found.append(Line(name, stored["metric"], chance, scores))
    return found


def swap(results: Path, kind: str) -> str:
    """Return the Markdown for a page: the table of a view, or "verdicts", "costs", "front", or "short", a sentence.

    Raises:
        ArgumentError: If the kind is another one.
    """
    check_choice("kind", kind, (*VIEWS, *_KINDS))
    return table(results, kind) if kind in VIEWS else _KINDS[kind](results)


def table(results: Path, view: str) -> str:
    """Return the table of a view; the best mean of a line is bold."""
    found = lines(results, view)
    layers = [layer for layer in LAYERS if any(layer in line.scores for line in found)]
    rows = []
    for line in found:
        best = max(score.mean for score in line.scores.values())
        row = [line.script, line.metric, _shown(line.chance, line.metric)]
        for layer in layers:
            score = line.scores.get(layer)
            text = "" if score is None else _cell(score, line.metric)
            row.append(f"**{text}**" if score is not None and score.mean == best else text)
        rows.append(row)
    return "\n".join(markdown_table(["script", "score", "chance", *layers], rows, right=range(2, 3 + len(layers))))


def front(results: Path) -> str:
    """Return the table of equal processor time for the README: the layers of torch and ours, without chance and spreads."""
    found, layers = lines(results, "time"), [layer for layer in LAYERS if layer not in _FORMER]
    rows = []
    for line in found:
        best = max(score.mean for layer, score in line.scores.items() if layer in layers)
        cells = {layer: _shown(fmean(score.values), line.metric) for layer, score in line.scores.items()}
        bold = {layer: f"**{text}**" if line.scores[layer].mean == best else text for layer, text in cells.items()}
        kind = "%" if line.metric == "accuracy" else "loss"
        rows.append([f"{line.script} ({kind})", *(bold.get(layer, "") for layer in layers)])
    return "\n".join(
        markdown_table(["script", *(f"`{layer}`" for layer in layers)], rows, right=range(1, 1 + len(layers)))
    )


class Verdict(NamedTuple):
    """A comparison of two layers in a view: the scripts with both, and those in which the first is better or worse."""

    both: list[str]
    better: list[str]
    worse: list[str]

    @classmethod
    def of(cls, results: Path, view: str, ours: str, theirs: str) -> Verdict:
        """Compare the stored results."""
        found = [one for one in lines(results, view) if one.is_learned and {ours, theirs} <= one.scores.keys()]
        worse = [line.script for line in found if line.scores[ours].is_worse(line.scores[theirs])]
        better = [line.script for line in found if line.scores[theirs].is_worse(line.scores[ours])]
        return cls([line.script for line in found], better, worse)

    def __str__(self) -> str:
        names = f" ({', '.join(self.worse)})" if self.worse else ""
        return f"in {len(self.better)} of {len(self.both)} scripts, worse in {len(self.worse)}{names}"


def verdicts(results: Path) -> str:
    """Return sentences, as items of a list: in how many scripts our layers are worse or better than torch's."""
    items = []
    for ours in _OURS:
        for view, words in (("time", "with the processor time of `nn.LSTM`"), ("width", "at equal width and updates")):
            each = {theirs: Verdict.of(results, view, ours, theirs) for theirs in _THEIRS}
            known = [f"better than `{theirs}` {verdict}" for theirs, verdict in each.items() if verdict.both]
            items += [f"- `{ours}` {words}: {'; '.join(known)}."] if known else []
    return "\n".join(items)


def short(results: Path) -> str:
    """Return the sentence of the README."""
    rnn, lstm = (Verdict.of(results, "time", _OURS[0], theirs) for theirs in _THEIRS)
    return (
        f"in {len(rnn.both)} scripts that differ only in the layer, with equal processor time, it is better than `nn.RNN` in "
        f"{len(rnn.better)} and worse in {len(rnn.worse)}, better than `nn.LSTM` in {len(lstm.better)} and worse in "
        f"{len(lstm.worse)}"
    )


def costs(results: Path) -> str:
    """Return a table of the milliseconds of an update."""
    rows = []
    for name in SCRIPTS:
        file = results / "swap" / f"{name}.json"
        if file.exists():
            seconds: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))["seconds"]
            rows.append([name, *(f"{1000 * seconds[layer]:.0f}" if layer in seconds else "" for layer in LAYERS)])
    return "\n".join(markdown_table(["script", *LAYERS], rows, right=range(1, 1 + len(LAYERS))))


def _error(one: Sequence[float], other: Sequence[float]) -> float:
    """Return the standard error of the difference of two means; of one seed each a thousandth of their size."""
    if len(one) < 2 or len(other) < 2:
        return max(abs(fmean(one)), abs(fmean(other))) / 1000
    return (stdev(one) ** 2 / len(one) + stdev(other) ** 2 / len(other)) ** 0.5


def _cell(score: Score, metric: str) -> str:
    mean = _shown(fmean(score.values), metric)
    if len(score.values) < 2:
        return mean
    places = len(mean.partition(".")[2])
    spread = stdev(score.values) * (100 if metric == "accuracy" else 1)
    return f"{mean} ± {spread:.{places}f}"


def _shown(value: float, metric: str) -> str:
    return f"{100 * value:.1f}" if metric == "accuracy" else f"{value:.3f}"


_OURS = ("OrthogonalRNN", "OrthogonalBlocks")
_THEIRS = ("nn.RNN", MEASURE)
_FORMER = ("modReLU",)
_KINDS = {"verdicts": verdicts, "costs": costs, "short": short, "front": front}
