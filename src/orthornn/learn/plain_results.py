"""Results next to plain baselines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from .._warnings import quiet
from ..errors import MissingPackageError, OrthornnError
from . import compare
from .report.lines import say
from .report.page import PlainResults
from .report.runs import SavedRun, best_of, by_data, names_of
from .report.table import Table
from .runs.fingerprint import check_data
from .tasks.table_task import TableTask
from .training import RunResult


def with_baselines(tables: Sequence[Table], results: Mapping[str, RunResult]) -> tuple[str, list[Table]]:
    """Return which is better, the networks or the plain baselines of the task, and all tables, with one of the
    baselines.

    The first is empty if there is nothing to compare.
    """
    task = next(iter(results.values())).config.task
    try:
        plain = compare.plain_table(task)
    except MissingPackageError as error:
        tables[-1].notes.append(f"plain baselines were left out: {error}")
        plain = None
    if plain is None:
        return "", list(tables)
    summaries = {name: result.summary() for name, result in results.items()}
    return compare.plain_verdict(task, summaries, plain[1]), [*tables, plain[0]]


def plain_results_of(runs: Sequence[SavedRun]) -> dict[str, PlainResults]:
    """Return the same for saved runs, by the name of their data, with the lines that say why there are none."""
    found = {}
    for data, own in by_data(runs).items():
        best, names = best_of(own), dict(zip(map(id, own), names_of(own)))
        if best is None or not isinstance(best.config.task, TableTask):
            continue
        ended = [run for run in own if run.result is not None]
        asked = next((run for run in ended if getattr(run.config.task, "backtest", None) is not None), best)
        try:
            with quiet():
                _ = best.config.task.problem()  # first, as an error of the task itself tells more
                check_data(best.path, best.config.task)
                plain = compare.plain_table(best.config.task)
                tested = compare.backtested(asked.config.task, {names[id(run)]: run.path for run in ended})
        except (OrthornnError, OSError) as error:
            found[data] = PlainResults(note=f"{data}: plain baselines are left out: {error}")
            continue
        results = {names[id(run)]: run.result for run in ended if run.result is not None}
        found[data] = PlainResults(
            "" if plain is None else compare.plain_verdict(best.config.task, results, plain[1]),
            None if plain is None else plain[0],
            backtest=None if tested is None else compare.backtest_table(tested),
        )
    return found


def show_all(verdict: str, tables: Sequence[Table]) -> None:
    """Print the results; first of all whether the networks or the plain baselines are better."""
    if verdict:
        say(verdict)
        print()
    for place, shown in enumerate(tables):
        if place:
            print()
        shown.show()
