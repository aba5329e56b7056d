"""`orthornn report RUNS ...`: write one HTML page about runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from .._checks import check_choice
from ..errors import ArgumentError
from ..learn.plain_results import plain_results_of
from ..learn.report.lines import show
from ..learn.report.page import write_report
from ..learn.report.runs import read_runs
from .arguments import read_options
from .outputs import check_folder, check_new_file, check_suffix


@dataclass(frozen=True)
class ReportArguments:
    """The options of orthornn report."""

    runs: tuple[Path, ...] = field(default=(), metadata={"positional": "RUN [RUN ...]"})
    """Run directories, or folders that contain some."""
    out: Path = Path("report.html")
    """HTML file to write."""
    figures: str = ""
    """Formats in which to write the figures next to the page as well, separated by commas: svg, pdf, png. Default:
    none.
    """
    force: bool = False
    """Replace the page and its figures if they exist."""


DESCRIPTION = (
    "Writes one self-contained HTML page: a sortable table, loss curves with bands over seeds, spectra, gradient norms, and "
    "how the configurations differ. It opens without a network connection."
)


def main(words: Sequence[str]) -> int:
    """Run the command and return the exit status."""
    arguments = read_options(ReportArguments, "orthornn report", DESCRIPTION, words or ["--help"])
    if not arguments.runs:
        raise ArgumentError(
            "Expected a run directory, or a folder of some, but got none. Name one: orthornn report runs."
        )
    formats = [
        check_choice("figures", name.strip(), ("svg", "pdf", "png"))
        for name in arguments.figures.split(",")
        if name.strip()
    ]
    runs = read_runs(arguments.runs)  # first what is read, then what is written
    check_suffix(arguments.out, (".html", ".htm"))
    check_folder(arguments.out.parent)
    check_new_file([arguments.out], arguments.force)
    for path in write_report(runs, arguments.out, formats, arguments.force, plain_results_of(runs)):
        show(path)
    return 0
