"""`orthornn report RUNS ...`: one HTML page about runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from ..._checks import check_choice
from ..report.page import write_report
from ..report.runs import read_runs
from .arguments import read_options
from .lines import show
from .outputs import check_folder, check_new_file, check_suffix


@dataclass(frozen=True)
class ReportArguments:
    """The options of orthornn report."""

    runs: Annotated[tuple[Path, ...], tyro.conf.Positional]
    """Run directories, or folders above them."""
    out: Path = Path("report.html")
    """The page to write."""
    figures: str = ""
    """Formats in which the figures are also written, next to the page: svg, pdf, png, separated by commas."""
    force: bool = False
    """Replace the page, and its figures, if they are there."""


DESCRIPTION = (
    "Writes one self-contained HTML page: a table to sort, loss curves with bands over seeds, spectra, gradient norms, "
    "what the configurations differ in. It opens without a network, from a mail or a disk."
)


def main(words: Sequence[str]) -> int:
    """Run the command; the exit status."""
    arguments = read_options(ReportArguments, "orthornn report", DESCRIPTION, words or ["--help"])
    formats = [
        check_choice("figures", name.strip(), ("svg", "pdf", "png")) for name in arguments.figures.split(",") if name
    ]
    check_suffix(arguments.out, (".html", ".htm"))
    check_folder(arguments.out.parent)
    check_new_file([arguments.out], arguments.force)
    for path in write_report(read_runs(arguments.runs), arguments.out, formats, replace=arguments.force):
        show(path)
    return 0
