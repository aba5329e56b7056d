"""The figures of a report: curves with bands over seeds, spectra, gradient norms. Formats: svg, pdf, png."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ...diagnostics import hidden_gradient_norms
from ...errors import ArgumentError, OrthornnError
from ...modules import OrthogonalRNN
from ..runs.fingerprint import check_data
from ..systems import SequenceModel
from ..tasks import Task
from ..training import load_model
from .figures import COLORS, _draw_eigenvalues, canvas, color, marker, plain_style, words, write
from .runs import SavedRun, standings

SIZE = (5.6, 3.6)  # inches; a figure is legible on a phone, too
_SEQUENCES = 10
_LONGEST = 2000  # steps over which a gradient is followed
_LARGEST = 10_000_000  # of a number in a task's description, for data to be made of it


@plain_style()
def curves_with_bands(groups: Mapping[str, Sequence[SavedRun]], kind: str, entry: str, trivial: float | None) -> Any:
    """Return the mean of `entry` over seeds against updates, and a band from the least to the greatest.

    A mean covers all seeds of a group: if only some have a value, as after one has stopped, each has a separate thin
    line. More than seven groups would be indistinguishable: the best by validation have colors, the others are gray.
    """
    figure = canvas(SIZE)
    axes = figure.add_subplot()
    names = best_groups(groups)
    for name, runs in sorted(groups.items(), key=lambda pair: pair[0] in names):
        seeds = [{record["step"]: record[entry] for record in run.of_kind(kind) if entry in record} for run in runs]
        steps = sorted(set.intersection(*map(set, seeds)))
        values = [[seed[step] for seed in seeds] for step in steps]
        own = color(names, name) if name in names else "0.8"
        for seed in seeds:
            rest = sorted(step for step in seed if not steps or step >= steps[-1])
            axes.plot(rest, [seed[step] for step in rest], color=own, linewidth=0.5, zorder=1)
        if name not in names:  # behind the others
            axes.plot(steps, [np.mean(v) for v in values], color=own, linewidth=0.8, zorder=1)
            continue
        label = f"{name} ({len(runs)} seeds)" if len(runs) > 1 else name
        axes.plot(steps, [np.mean(v) for v in values], color=own, label=words(label), marker=marker(steps))
        if len(runs) > 1:
            axes.fill_between(steps, [min(v) for v in values], [max(v) for v in values], color=own, alpha=0.2)
    if len(groups) > len(names):
        axes.plot([], [], color="0.8", linewidth=0.8, label=f"{len(groups) - len(names)} others")
    if trivial is not None:
        axes.axhline(trivial, color="0.4", linestyle="--", linewidth=1, label="trivial baseline")
    if entry == "loss":
        axes.set_yscale("log")
    axes.set_xlabel("updates")
    axes.set_ylabel(f"{kind} {entry}")
    axes.legend(frameon=False, fontsize="small")
    return figure


def best_groups(groups: Mapping[str, Sequence[SavedRun]]) -> list[str]:
    """Return the names of the groups whose curves have colors, in their order: the best seven by validation."""
    if len(groups) <= len(COLORS):
        return list(groups)
    best = standings(groups).best_first()[: len(COLORS)]
    return [name for name in groups if name in best]


@plain_style()
def eigenvalues(models: Mapping[str, SequenceModel]) -> Any | None:
    """Return the eigenvalues of the first recurrent matrix of each orthogonal network, or None without such a
    network.
    """
    found = {}
    for name, model in models.items():
        if isinstance(model.core, OrthogonalRNN):
            W = next(iter(model.core.transitions()))[1].matrix().detach()
            found[name] = torch.linalg.eigvals(W.to(torch.complex128)).numpy()
    if not found:
        return None
    figure = canvas((5.0, 5.0))
    _draw_eigenvalues(figure.add_subplot(), list(models), found)
    return figure


@plain_style()
def gradient_norms(models: Mapping[str, SequenceModel], tasks: Mapping[str, Task]) -> Any | None:
    """Return ||dL/dh_t|| against t on validation sequences; None if no network can be traced."""
    figure = canvas(SIZE)
    axes = figure.add_subplot()
    for name, model in models.items():
        norms = _norms(model, tasks[name])
        if norms is not None:
            axes.semilogy(np.maximum(norms, 1e-30), color=color(list(models), name), label=words(name))
    if not axes.lines:
        return None
    axes.set_xlabel("step t")
    axes.set_ylabel("norm of the loss's gradient at h(t)")
    axes.legend(frameon=False, fontsize="small")
    return figure


@plain_style()
def recorded_spectra(groups: Mapping[str, Sequence[SavedRun]]) -> Any | None:
    """Return the range of the singular values during training, if runs recorded it."""
    figure = canvas(SIZE)
    axes = figure.add_subplot()
    for name, runs in groups.items():
        records = runs[0].of_kind("spectrum")
        layers = {record.get("layer") for record in records}
        for layer in sorted(map(str, layers)):
            own = [record for record in records if str(record.get("layer")) == layer]
            steps, shade = [record["step"] for record in own], color(list(groups), name)
            axes.plot(steps, [record["mean"] for record in own], color=shade, label=words(f"{name} {layer}"))
            low, high = ([record[end] for record in own] for end in ("min", "max"))
            axes.fill_between(steps, low, high, color=shade, alpha=0.2)
    if not axes.lines:
        return None
    axes.set_xlabel("updates")
    axes.set_ylabel("singular values of W: mean, least, greatest")
    axes.legend(frameon=False, fontsize="small")
    return figure


def trained_models(groups: Mapping[str, Sequence[SavedRun]]) -> tuple[dict[str, SequenceModel], list[str]]:
    """Return the model of the first seed of the best groups, and a line for each that cannot be had."""
    models, notes = {}, []
    for name in best_groups(groups):
        runs = groups[name]
        try:
            models[name] = load_model(runs[0].path)[1]
        except OrthornnError as error:
            notes.append(f"{name}: no pictures of its network: {error}")
    return models, notes


def with_unchanged_data(
    models: Mapping[str, SequenceModel], groups: Mapping[str, Sequence[SavedRun]]
) -> tuple[dict[str, SequenceModel], list[str]]:
    """Return the models whose runs began with the data that are there now, and a line for each of the others."""
    found, notes = {}, []
    for name, model in models.items():
        run = groups[name][0]
        try:
            check_data(run.path, run.config.task)
            found[name] = model
        except (OrthornnError, OSError) as error:
            notes.append(f"{name}: no picture of its gradients: {error}")
    return found, notes


@plain_style()
def as_svg(figure: Any) -> str:
    """Return the figure as SVG text."""
    import matplotlib

    text = io.StringIO()
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "orthornn"}):
        figure.savefig(text, format="svg", metadata={"Date": None})
    return text.getvalue()


@plain_style()
def save(figure: Any, path: Path) -> None:
    """Write the figure to a file atomically, in the format of its suffix."""
    write(figure, path)


def _norms(model: SequenceModel, task: Task) -> np.ndarray | None:
    entries = fields(task)  # type: ignore[arg-type]
    sizes = [v for entry in entries if type(v := getattr(task, entry.name)) is int and "seed" not in entry.name]
    if max(sizes, default=0) > _LARGEST or getattr(task, "T", 0) > _LONGEST:
        return None
    if getattr(task, "download", False):  # a report fetches nothing
        task = replace(task, download=False)  # type: ignore[type-var]
    try:
        inputs, targets = next(iter(task.problem().validation(_SEQUENCES)), (None, None))
    except OrthornnError:
        return None
    if not isinstance(inputs, Tensor) or len(inputs) > _LONGEST:
        return None
    try:
        norms = hidden_gradient_norms(model, inputs, lambda prediction: task.objective().loss(prediction, targets))
    except ArgumentError:  # a kind of core whose states cannot be followed
        return None
    return norms[-1].detach().numpy()
