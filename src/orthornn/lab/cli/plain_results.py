"""Results next to those of plain baselines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ...errors import MissingPackageError
from .. import compare
from ..report.table import Table
from ..training import RunResult
from .lines import say


def show_with_baselines(tables: Sequence[Table], results: Mapping[str, RunResult]) -> list[Table]:
    """Print the results, and the plain baselines of the task; first of all which of them is better.

    Returns:
        All tables that were shown.
    """
    try:
        plain = compare.plain_table(next(iter(results.values())).config.task)
    except MissingPackageError as error:
        tables[-1].notes.append(f"plain baselines were left out: {error}")
        plain = None
    if plain is not None:
        verdict = compare.plain_verdict(results, plain[1])
        if verdict:
            say(verdict)
            print()
        tables = [*tables, plain[0]]
    for place, shown in enumerate(tables):
        if place:
            print()
        shown.show()
    return list(tables)
