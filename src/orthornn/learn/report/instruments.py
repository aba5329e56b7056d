"""Figures of what was recorded while networks were trained; runs/recording.py describes the records.

gradient_map           ||dL/dh_t|| over (update, time step)                    Vorontsov et al., 2017, Fig. 4
spectrum_evolution     mean, spread, least and largest singular value          Vorontsov et al., 2017, Fig. 5
orthogonality_error     ||W'W - I||_F over updates                              Helfrich et al., 2018, Fig. 4
gradient_through_time  ||dL/dh_t|| against t, early and late in training       Helfrich et al., 2018, Fig. 5

Each takes the records of several runs by name, draws one panel or one curve per run, and writes the format that the
path's suffix names.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ...errors import ArgumentError
from .figures import canvas, color, plain_style, words, write

_FLOOR = 1e-30  # what a zero is drawn as on a logarithmic axis
_DECADES = 6.0  # at most, below the largest norm; what is smaller has the darkest color

Records = Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class GradientHistory:
    """updates: (K,). norms: (K, T), of the first layer."""

    updates: np.ndarray
    norms: np.ndarray

    @classmethod
    def of(cls, records: Records) -> GradientHistory:
        """Return the "gradients" records among `records`. ArgumentError if there are none."""
        chosen = _of_kind(records, "gradients", "--record-gradients")
        return cls(np.array([r["step"] for r in chosen]), np.array([r["norms"][0] for r in chosen], dtype=float))


@dataclass(frozen=True)
class SpectrumHistory:
    """Each (K,): updates; mean, std, min, max of the singular values and the errors of the first recurrent matrix.

    manifold_error is None if no tensor must stay on a manifold.
    """

    updates: np.ndarray
    mean: np.ndarray
    std: np.ndarray
    min: np.ndarray
    max: np.ndarray
    orthogonality_error: np.ndarray
    manifold_error: np.ndarray | None

    @classmethod
    def of(cls, records: Records) -> SpectrumHistory:
        """Return the "spectrum" records of the first layer among `records`. ArgumentError if there are none."""
        chosen = _of_kind(records, "spectrum", "--record-spectrum")
        chosen = [r for r in chosen if r["layer"] == chosen[0]["layer"]]
        columns = {key: np.array([r[key] for r in chosen]) for key in ("mean", "std", "min", "max")}
        bases = np.array([r["manifold_error"] for r in chosen]) if "manifold_error" in chosen[0] else None
        errors = np.array([r["error"] for r in chosen])
        steps = np.array([r["step"] for r in chosen])
        return cls(steps, orthogonality_error=errors, manifold_error=bases, **columns)


@plain_style()
def gradient_map(path: Path, runs: Mapping[str, GradientHistory]) -> None:
    """Draw one panel per run: the gradient's norm over (update, time step), each update divided by its largest."""
    figure = canvas((4.2 * min(3, len(runs)) + 0.8, 3.2 * math.ceil(len(runs) / 3)))
    draw_gradient_map(figure, runs)
    write(figure, path)


def draw_gradient_map(figure: Any, runs: Mapping[str, GradientHistory]) -> None:
    """Draw the same into a figure."""
    panels = _panels(figure, len(runs))
    shown = {}
    for name, run in runs.items():
        largest = np.maximum(run.norms.max(axis=1, keepdims=True), _FLOOR)
        shown[name] = np.log10(np.maximum(run.norms / largest, _FLOOR))
    lowest = float(np.clip(min(values.min() for values in shown.values()), -_DECADES, -1))
    image = None
    for axes, (name, run) in zip(panels, runs.items()):
        image = axes.pcolormesh(
            _edges(run.updates), np.arange(run.norms.shape[1] + 1), shown[name].T, vmin=lowest, vmax=0, rasterized=True
        )
        axes.set_title(words(name))
        axes.set_xlabel("updates")
        axes.set_ylabel("time step t")
    bar = figure.colorbar(image, ax=panels)
    bar.set_label("norm of the gradient at h(t), log10, largest = 0")


@plain_style()
def spectrum_evolution(path: Path, runs: Mapping[str, SpectrumHistory]) -> None:
    """Draw one panel per run: the singular values' mean and one standard deviation about it, the least and the
    largest.
    """
    figure = canvas((4.2 * min(3, len(runs)), 3.2 * math.ceil(len(runs) / 3)))
    draw_spectrum_evolution(figure, runs)
    write(figure, path)


def draw_spectrum_evolution(figure: Any, runs: Mapping[str, SpectrumHistory]) -> None:
    """Draw the same into a figure."""
    for axes, (name, run) in zip(_panels(figure, len(runs)), runs.items()):
        axes.fill_between(run.updates, run.mean - run.std, run.mean + run.std, color="#009E73", alpha=0.3, linewidth=0)
        axes.plot(run.updates, run.max, color="#0072B2", label="largest")
        axes.plot(run.updates, run.mean, color="#009E73", label="mean ± std")
        axes.plot(run.updates, run.min, color="#D55E00", label="least")
        axes.ticklabel_format(axis="y", useOffset=False)
        if np.ptp(np.concatenate([run.min, run.max])) < 1e-4:  # else rounding would be magnified into a picture
            axes.set_ylim(0.999, 1.001)
        axes.set_title(words(name))
        axes.set_xlabel("updates")
        axes.set_ylabel("singular values of W")
        axes.legend(frameon=False, fontsize="small")


@plain_style()
def orthogonality_error(path: Path, runs: Mapping[str, SpectrumHistory]) -> None:
    """Draw ||W'W - I||_F of every run over its updates; dashed, the same of the tensors on a manifold."""
    figure = canvas((6.4, 4.2))
    axes = figure.add_subplot()
    names = list(runs)
    for name, run in runs.items():
        axes.plot(run.updates, np.maximum(run.orthogonality_error, _FLOOR), color=color(names, name), label=words(name))
        if run.manifold_error is not None:
            axes.plot(run.updates, np.maximum(run.manifold_error, _FLOOR), color=color(names, name), linestyle="--")
    axes.set_yscale("log")
    axes.set_xlabel("updates")
    axes.set_ylabel("||W'W - I||   (dashed: what stays on the manifold)")
    axes.legend(frameon=False, fontsize="small")
    write(figure, path)


@plain_style()
def gradient_through_time(path: Path, runs: Mapping[str, GradientHistory]) -> None:
    """Draw the gradient's norm against t: left at the first record of every run, right at the last."""
    figure = canvas((10.5, 4.2))
    names = list(runs)
    panels = figure.subplots(1, 2, sharey=True)
    for axes, place, title in zip(panels, (0, -1), ("at the first record", "at the last record")):
        for name, run in runs.items():
            label = words(f"{name}, update {run.updates[place]}")
            axes.semilogy(np.maximum(run.norms[place], _FLOOR), color=color(names, name), label=label)
        axes.set_title(title)
        axes.set_xlabel("time step t")
        axes.legend(frameon=False, fontsize="small")
    panels[0].set_ylabel("norm of the loss's gradient at h(t)")
    write(figure, path)


def _of_kind(records: Records, kind: str, option: str) -> list[Mapping[str, Any]]:
    chosen = [record for record in records if record["kind"] == kind]
    if not chosen:
        raise ArgumentError(f'Expected "{kind}" records, but got none. Train with {option} 20, for example.')
    return chosen


def _panels(figure: Any, count: int) -> list[Any]:
    rows = math.ceil(count / 3)
    axes = figure.subplots(rows, min(3, count), squeeze=False).flatten().tolist()
    for empty in axes[count:]:
        empty.set_visible(False)
    return axes[:count]


def _edges(updates: np.ndarray) -> np.ndarray:
    """Return borders (K + 1,) of cells that begin at each update."""
    step = updates[-1] - updates[-2] if len(updates) > 1 else 1
    return np.append(updates, updates[-1] + step)
