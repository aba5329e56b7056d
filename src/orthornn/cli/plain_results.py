"""Results next to those of plain baselines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..errors import MissingPackageError
from ..learn import compare
from ..learn.report.table import Table
from ..learn.training import RunResult
from .lines import say


def with_baselines(tables: Sequence[Table], results: Mapping[str, RunResult]) -> tuple[str, list[Table]]:
    """Return which is better, the networks or the plain baselines of the task, and all tables, with one of the baselines.

    The first is empty where there is nothing to compare.
    """
    try:
        plain = compare.plain_table(next(iter(results.values())).config.task)
    except MissingPackageError as error:
        tables[-1].notes.append(f"plain baselines were left out: {error}")
        plain = None
    if plain is None:
        return "", list(tables)
    return compare.plain_verdict(results, plain[1]), [*tables, plain[0]]


def show_all(verdict: str, tables: Sequence[Table]) -> None:
    """Print the results; first of all whether the networks or the plain baselines are better."""
    if verdict:
        say(verdict)
        print()
    for place, shown in enumerate(tables):
        if place:
            print()
        shown.show()
