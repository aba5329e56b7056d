"""The text of a training: the data and the choices, its progress, and its results next to plain baselines.

`orthornn.train` prints it, the command adds bars and a figure, and a training without either is silent.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import torch

from ..saved.json_files import write_json
from . import compare
from .auto import Search
from .plain_results import show_all, with_baselines
from .report.lines import say, show
from .report.progress import ProgressLines
from .report.table import Column, Table
from .systems import SequenceModel
from .tasks import Classify, Forecast, Task
from .tasks.abilities import output_files, write_outputs
from .tasks.classification_metrics import classification_scores
from .tasks.decision_threshold import read_threshold
from .tasks.table_data import IGNORED
from .training import Progress, RunResult, load_model

CLASS_SCORES = "class_scores.json"
BACKTEST = "backtest.json"
_MOST = 12  # classes of a matrix that is printed
Display = contextlib.AbstractContextManager[Callable[[Mapping[str, Progress]], None]]


class Silent:
    """Shows nothing, and writes no more than the run."""

    def say(self, text: str) -> None:
        """Show a line."""

    def display(self, trivial_loss: float, limit: float | None) -> Display:
        """Return a context in which progress is shown. limit: Seconds, or None."""
        return contextlib.nullcontext(lambda progress: None)

    def files(self, task: Task) -> list[str]:
        """Return the names of the files that it writes into the run directory."""
        return []

    def searched(self, name: str, search: Search) -> None:
        """Show which candidate a search has chosen."""

    def ended(self, result: RunResult, folder: Path) -> None:
        """Show the result of a run."""


class Printed(Silent):
    """Prints, and writes what a task has to be looked at or listened to."""

    def say(self, text: str) -> None:
        """Print a line."""
        say(text)

    def display(self, trivial_loss: float, limit: float | None) -> Display:
        """Return lines now and then."""
        return ProgressLines(trivial_loss, limit)

    def files(self, task: Task) -> list[str]:
        """Return the scores by class, the errors of a backtest, and what the task writes."""
        own = [CLASS_SCORES] if isinstance(task, Classify) else []
        own += [BACKTEST] if isinstance(task, Forecast) and task.backtest is not None else []
        return [*own, *output_files(task)]

    def searched(self, name: str, search: Search) -> None:
        """Print the candidates."""
        search.table().show()
        show(f"\nchosen by validation: {name}\n")

    def ended(self, result: RunResult, folder: Path) -> None:
        """Write the files, and print the tables."""
        try:
            tables = _tables(result, folder)
            figure = self.figure(result, folder)  # before the tables: whoever reads those may be gone
            backtests = _backtests(result, folder)
            verdict, tables = with_baselines(tables, {result.config.model.name: result})
            show_all(verdict, [*tables, *backtests])
            show(f"run directory: {folder}{figure}")
        except KeyboardInterrupt:  # all of the run is there, and perhaps nothing has named its folder
            show(f"run directory: {folder}")
            raise

    def figure(self, result: RunResult, folder: Path) -> str:
        """Draw what there is to be drawn; return what to say of it."""
        return ""


def _tables(result: RunResult, folder: Path) -> list[Table]:
    """Return the tables of a run, having written the files that are behind them."""
    task = result.config.task
    result.model.eval()
    outcomes = write_outputs(task, result.model, folder)
    shown = compare.table({result.config.model.name: result})
    if result.best:
        best = {
            "update" if key == "step" else key: value
            for key, value in result.best.items()
            if not key.endswith("seconds")
        }
        shown.notes.append(f"best validation: {_listed(best)}")
    if result.best_test and result.best_test != result.test and result.best.get("step") != result.steps:
        shown.notes.append(
            f"test of the last weights: {_listed(result.test)}; predict, evaluate and export use them with --checkpoint last"
        )
    if result.whole_test:
        shown.notes.append(f"test of whole series, as predict and streams process them: {_listed(result.whole_test)}")
    shown.notes.extend(outcomes)
    if not isinstance(task, Classify):
        return [shown]
    return [shown, class_table(task, load_model(folder, "chosen")[1], folder, result.threshold)]


def _backtests(result: RunResult, folder: Path) -> list[Table]:
    """Write backtest.json into the run directory, if it is asked for; return a table of it."""
    task = result.config.task
    found = compare.backtested(task, {result.config.model.name: folder})
    if found is None:
        return []
    assert isinstance(task, Forecast)
    names = task.table().sequences.names
    origins = [{"series": str(names[one.series]), "steps": (one.rows - one.start).tolist()} for one in found.origins]
    content = {"origins": origins, "errors": found.errors, "notes": found.notes}
    write_json(folder / BACKTEST, content, summed=True)
    return [compare.backtest_table(found)]


def _listed(metrics: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {value:.4g}" for name, value in metrics.items())


@torch.no_grad()
def class_table(task: Classify, model: SequenceModel, folder: Path, threshold: float | None) -> Table:
    """Write class_scores.json into the run directory; return a table of the confusion matrix with F1, balanced accuracy
    and ROC-AUC below.
    """
    names = task.table().classes
    probabilities, classes = [], []
    for inputs, targets in task.problem().test(250):
        rows, wanted = task.objective().rows(model(inputs), targets)
        probabilities.append(rows.double().softmax(-1)[wanted != IGNORED].numpy())
        classes.append(wanted[wanted != IGNORED].numpy())
    found = classification_scores(np.concatenate(probabilities), np.concatenate(classes), threshold)
    write_json(folder / CLASS_SCORES, {"classes": names, **found}, summed=True)
    columns = [Column("class", left=True), *(Column(f"as {name}") for name in names), Column("found")]
    if len(names) > _MOST:
        columns = [columns[0], columns[-1]]
    shown = Table("test, by class", columns)
    for name, row, hits in zip(names, found["confusion"], np.diag(found["confusion"]).tolist()):
        share = f"{hits / sum(row):.1%}" if sum(row) else "-"
        shown.rows.append([name, *([] if len(names) > _MOST else map(str, row)), share])
    if threshold is not None:
        asked = isinstance(read_threshold(str(task.threshold)), float)
        by = "as asked" if asked else f"by {task.threshold} on validation"
        shown.notes.append(f"threshold: {names[1]} from a probability of {threshold:.4g} on, {by}")
    area = "" if found["roc_auc"] is None else f", ROC-AUC {found['roc_auc']:.4f}"
    shown.notes.append(f"macro F1 {found['f1']:.4f}, balanced accuracy {found['balanced_accuracy']:.4f}{area}")
    return shown
