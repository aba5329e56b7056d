"""`orthornn figures KIND RUN ...`: draw the records of runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from .._checks import check_choice
from ..errors import ArgumentError
from ..learn.report import instruments
from ..learn.report.instruments import GradientHistory, SpectrumHistory
from ..learn.report.lines import show
from ..learn.training import read_metrics
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

MANUAL = f"""\
orthornn figures - draw what runs recorded

usage: orthornn figures KIND RUN [RUN ...] [--out FILE] [--force]

kinds:
{chr(10).join(f"  {name:<14} {kind[0]}" for name, kind in KINDS.items())}

RUN is a run directory, or a folder of run directories, such as `orthornn compare` writes. FILE ends in .png, .svg or
.pdf. Default: KIND.png in the run directory or, for several runs, in the folder of the first. An existing file is
replaced only with --force.

`orthornn train ... --record-gradients K` records what gradient-map and gradients draw, every K updates, and
`--record-spectrum K` what spectrum and orthogonality draw.
"""


def main(words: Sequence[str]) -> int:
    """Run the command and return the exit status."""
    if not words or not {"-h", "--help"}.isdisjoint(words):
        print(MANUAL, end="")
        return 0
    kind = check_choice("the kind of figure", words[0], KINDS)
    parts = [part for word in words[1:] for part in (word.split("=", 1) if word.startswith("--out=") else [word])]
    rest, out, force = [part for part in parts if part != "--force"], None, "--force" in parts
    if "--out" in rest:
        place = rest.index("--out")
        if place + 1 >= len(rest) or not rest[place + 1]:
            raise ArgumentError("Expected a file after --out, but got none. Name one, such as --out figure.png.")
        out = Path(rest[place + 1])
        del rest[place : place + 2]
    unknown = [word for word in rest if word.startswith("-")]
    if unknown or not rest:
        came = f"got {unknown[0]}" if unknown else "got no run"
        raise ArgumentError(
            f"Expected a run, but {came}. Write: orthornn figures KIND RUN [RUN ...] [--out FILE] [--force]."
        )
    runs = run_directories([Path(word) for word in rest])
    folders = list(runs.values())
    out = out or (folders[0] if len(folders) == 1 else folders[0].parent) / f"{kind}.png"
    check_choice("the figure's format", out.suffix, (".png", ".svg", ".pdf"))
    check_folder(out.parent)
    check_new_file([out], force)
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
