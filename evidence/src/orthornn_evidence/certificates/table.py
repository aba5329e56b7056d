"""The stored certificates as tables."""

from __future__ import annotations

import json
from pathlib import Path

from orthornn._checks import check_choice

from ..markdown import markdown_table
from .pixels import SIZES, TRAININGS


def certificates(results: Path, kind: str, network: str = "", key: str = "", eps: str = "") -> str:
    """Return the table of "pixels" or "tanks" in results/certificates, or one share of the pixels in percent.

    Args:
        results: The folder of the evidence.
        kind: The table.
        network: Of the pixels. Default: the whole table.
        key: "accuracy", "certified" or "attacked".
        eps: Size of the change, but for the accuracy.

    Raises:
        ArgumentError: If the kind, or the network, is another one.
    """
    check_choice("kind", kind, ("pixels", "tanks"))
    if network:
        record = json.loads((results / "certificates" / "pixel-mnist.json").read_text(encoding="utf-8"))
        runs = {run["network"]: run for run in record["runs"]}
        found = runs[check_choice("network", network, tuple(runs))][key]
        return f"{100 * (found[eps] if eps else found):.0f}"
    return {"pixels": _pixels, "tanks": _tanks}[kind](results / "certificates")


def _percent(share: float) -> str:
    return f"{100 * share:.1f}"


def _pixels(folder: Path) -> str:
    record = json.loads((folder / "pixel-mnist.json").read_text(encoding="utf-8"))
    runs = {run["network"]: run for run in record["runs"]}
    rows = []
    for name in TRAININGS:
        if name not in runs:
            rows.append([name, "unfinished", *[""] * (len(SIZES) + 3)])
            continue
        run = runs[name]
        minutes = f"{run['cpu_seconds'] / 60:.1f}"
        pairs = [
            f"{_percent(run['certified'][f'{eps:g}'])} to {_percent(run['attacked'][f'{eps:g}'])}" for eps in SIZES
        ]
        if "bound" in run:
            size, one = f"{run['bound']:.3g}", _percent(run["one_pixel"])
        else:
            size, one = f"10^{run['log10_of_the_bound']:.0f}", "0.0"
        rows.append([name, run["parameters"], minutes, _percent(run["accuracy"]), *pairs, one, size])
    titles = ["network", "parameters", "minutes", "accuracy", *(f"ε = {eps:g}" for eps in SIZES), "one pixel", "bound"]
    return "\n".join(markdown_table(titles, rows))


def _tanks(folder: Path) -> str:
    record = json.loads((folder / "tanks.json").read_text(encoding="utf-8"))
    rows = []
    for run in sorted(record["runs"], key=lambda run: (run["network"], run["n"], run["T"])):
        cells = [run["network"], run["n"], run["T"], f"{run['attack']:.3g}"]
        for way in ("closed form", "program"):
            seconds = run["seconds"][way]
            cells += [f"{run[way] / run['attack']:.3g}", f"{seconds:.2g}" if seconds < 10 else f"{seconds:.0f}"]
        rows.append(cells)
    titles = ["network", "n", "T", "attack", "closed form", "seconds", "program", "seconds"]
    return "\n".join(markdown_table(titles, rows))
