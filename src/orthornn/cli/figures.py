"""`orthornn figures KIND RUN ...`: draw the records of runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .._checks import check_choice
from ..errors import ArgumentError
from ..learn.report import instruments
from ..learn.report.instruments import GradientHistory, SpectrumHistory
from ..learn.report.lines import show
from ..learn.training import read_metrics
from .arguments import read_options
from .outputs import check_folder, check_new_file

KINDS: dict[str, tuple[str, Any, Callable[[Path, Mapping[str, Any]], None]]] = {
    "gradient-map": (
        "the gradient's norm over updates and time steps, one panel per run",
        GradientHistory,
        instruments.gradient_map,
    ),
    "spectrum": (
        "mean, spread, least and largest singular value over updates, one panel per run",
        SpectrumHistory,
        instruments.spectrum_evolution,
    ),
    "orthogonality": ("distance from orthogonality over updates", SpectrumHistory, instruments.orthogonality_error),
    "gradients": (
        "the gradient's norm at each time step, first and last record",
        GradientHistory,
        instruments.gradient_through_time,
    ),
}

DESCRIPTION = (
    "Draws what runs recorded. KIND is one of: "
    + "; ".join(f"{name}, {kind[0]}" for name, kind in KINDS.items())
    + ". `orthornn train ... --record-gradients K` records what gradient-map and gradients draw, every K updates, and "
    "`--record-spectrum K` what spectrum and orthogonality draw."
)


@dataclass(frozen=True)
class FiguresArguments:
    """The options of orthornn figures."""

    kind: str = field(metadata={"positional": "KIND"})
    """Kind of the figure."""
    runs: tuple[Path, ...] = field(default=(), metadata={"positional": "RUN [RUN ...]"})
    """Run directories, or folders of run directories, such as `orthornn compare` writes."""
    out: Path | None = None
    """File that ends in .png, .svg or .pdf. Default: KIND.png in the run directory or, for several runs, in the folder of the
    first."""
    force: bool = False
    """Replace the file if it exists."""


def main(words: Sequence[str]) -> int:
    """Run the command and return the exit status."""
    arguments = read_options(FiguresArguments, "orthornn figures", DESCRIPTION, words or ["--help"])
    kind = check_choice("the kind of figure", arguments.kind, KINDS)
    if not arguments.runs:
        raise ArgumentError("Expected a run, but got no run. Write: orthornn figures KIND RUN [RUN ...].")
    runs = run_directories(arguments.runs)
    folders = list(runs.values())
    out = arguments.out or (folders[0] if len(folders) == 1 else folders[0].parent) / f"{kind}.png"
    check_choice("the figure's format", out.suffix, (".png", ".svg", ".pdf"))
    check_folder(out.parent)
    check_new_file([out], arguments.force)
    _, history, draw = KINDS[kind]
    histories = {}
    for name, folder in runs.items():
        try:
            histories[name] = history.of(read_metrics(folder / "metrics.jsonl"))
        except ArgumentError as error:
            raise ArgumentError(f"{folder}: {error}") from None
    out.parent.mkdir(parents=True, exist_ok=True)
    draw(out, histories)
    show(f"figure: {out}")
    return 0


def run_directories(paths: Sequence[Path]) -> dict[str, Path]:
    """Return, by name, the run directories among `paths` and directly below them. Raise ArgumentError if there is
    none.
    """
    found: list[Path] = []
    for path in paths:
        inside = [path] if (path / "metrics.jsonl").exists() else sorted(p.parent for p in path.glob("*/metrics.jsonl"))
        if not inside:
            raise ArgumentError(
                f"Expected a run directory or a folder of some, but {path} has no metrics.jsonl. Name another folder."
            )
        found += inside
    names = [path.resolve().name for path in found]
    unique = len(set(names)) == len(names)
    return {name if unique else str(path): path for name, path in zip(names, found)}
