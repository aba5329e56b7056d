"""Figures, drawn by matplotlib without a display."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from ..._files import write_atomically
from ..._warnings import warn

_LONGEST = 300  # characters of an error in a warning
# Okabe and Ito's colors, which color-blind readers can tell apart
COLORS = ("#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9", "#000000")

Curve = tuple[Sequence[float], Sequence[float]]


@contextmanager
def plain_style() -> Iterator[None]:
    """Inside, and in functions with this as their decorator, matplotlib draws by its defaults, not by the user's
    settings: with text.usetex, say, no text could be drawn without LaTeX.
    """
    import matplotlib

    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        yield


@contextmanager
def or_a_warning(path: Path) -> Iterator[None]:
    """Inside, a warning takes the place of any error: a figure that cannot be drawn costs no result.

    path: That of the figure.
    """
    try:
        yield
    except Exception as error:
        warn(
            f"The figure {path} was not drawn: {type(error).__name__}: {' '.join(str(error).split())[:_LONGEST]}. All "
            f"results are written."
        )


@plain_style()
def learning_curves(path: Path, title: str, curves: Mapping[str, Curve], trivial_loss: float) -> None:
    """Draw the loss against updates, one curve per name, with the trivial baseline as a dashed line.

    The format is the path's suffix: png, svg or pdf.
    """
    figure = canvas((6.4, 4.2))
    axes = figure.add_subplot()
    _draw_curves(axes, curves, trivial_loss)
    axes.set_title(words(title))
    write(figure, path)


@plain_style()
def overview(
    path: Path,
    title: str,
    curves: Mapping[str, Curve],
    trivial_loss: float,
    gradient_norms: Mapping[str, Sequence[float]],
    eigenvalues: Mapping[str, np.ndarray],
) -> None:
    """Draw learning curves, the gradient's norm against the step t, and eigenvalues of the recurrent matrices.

    gradient_norms: by name, ||dL/dh_t|| for t = 0, 1, ...; eigenvalues: by name, complex (N,).
    A name has one color throughout.
    """
    names = list(curves)
    figure = canvas((13.5, 4.5))
    left, middle, right = figure.subplots(1, 3)
    _draw_curves(left, curves, trivial_loss)
    left.set_title("learning")
    for name, norms in gradient_norms.items():
        middle.semilogy(np.maximum(norms, 1e-30), color=color(names, name), label=words(name))
    middle.set_xlabel("step t")
    middle.set_ylabel("norm of the loss's gradient at h(t)")
    middle.set_title("gradient through time")
    _draw_eigenvalues(right, names, eigenvalues)
    figure.suptitle(words(title))
    write(figure, path)


def figure_note(figure: Path) -> str:
    """Return the path of a figure, to end a line of a command's output; nothing if it could not be drawn."""
    return f"   figure: {figure}" if figure.exists() else ""


def words(text: str) -> str:
    """Return text that comes from a user as matplotlib shows it letter by letter.

    Between two dollar signs matplotlib reads mathematics, and it leaves labels that begin with an underscore out of the
    legend; characters that cannot be printed would make the SVG invalid.
    """
    shown = "".join(letter if letter.isprintable() else "\ufffd" for letter in text).replace("$", r"\$")
    return f" {shown}" if shown.startswith("_") else shown


def marker(points: Sequence[Any]) -> str:
    """Return the mark for a curve of one point, of which a line shows nothing."""
    return "o" if len(points) == 1 else ""


def write(figure: Any, path: Path) -> None:
    """Write a figure to a file atomically, in the format of the path's suffix."""
    write_atomically(path, lambda file: figure.savefig(file, dpi=150, format=path.suffix[1:] or "png"))


def canvas(size: tuple[float, float]) -> Any:
    """Return an empty matplotlib figure of this size in inches, which needs no display."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=size, layout="constrained")
    FigureCanvasAgg(figure)  # the figure holds it; pyplot, and with it any display, stays out
    return figure


def color(names: Sequence[str], name: str) -> str:
    """Return the color of `name` among `names`, the same in every panel."""
    return COLORS[names.index(name) % len(COLORS)]


def _draw_curves(axes: Any, curves: Mapping[str, Curve], trivial_loss: float) -> None:
    names = list(curves)
    for name, (steps, losses) in curves.items():
        axes.plot(steps, losses, color=color(names, name), label=words(name), marker=marker(steps))
    axes.axhline(trivial_loss, color="0.4", linestyle="--", linewidth=1, label="trivial baseline")
    axes.set_yscale("log")
    axes.set_xlabel("updates")
    axes.set_ylabel("loss")
    axes.legend(frameon=False, fontsize="small")


def _draw_eigenvalues(axes: Any, names: Sequence[str], eigenvalues: Mapping[str, np.ndarray]) -> None:
    """Draw nested rings, one per model: on one circle they would hide each other."""
    angles = np.linspace(0, 2 * math.pi, 400)
    for ring, (name, values) in enumerate(eigenvalues.items()):
        radius = 1 - ring * min(0.2, 0.9 / len(eigenvalues))
        axes.plot(radius * np.cos(angles), radius * np.sin(angles), color="0.85", linewidth=0.8, zorder=1)
        axes.scatter(
            radius * values.real, radius * values.imag, s=9, color=color(names, name), label=words(name), zorder=2
        )
    axes.set_aspect("equal")
    axes.set_xticks([])
    axes.set_yticks([])
    for side in axes.spines.values():
        side.set_visible(False)
    axes.set_title("eigenvalues of W (one ring per model, scaled from the unit circle)", fontsize="small")
    if eigenvalues:
        axes.legend(frameon=False, fontsize="small", loc="center")
