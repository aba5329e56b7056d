"""The predictions of a network as CSV files, in which no text is a formula to a spreadsheet."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np

from .._files import system_errors, write_atomically
from ..errors import ArgumentError
from .files.cells import is_number
from .predict_arrays import Prediction
from .tasks.table_series import Series

_FORMULA = tuple("=+-@\t\r\n'\uff1d\uff0b\uff0d\uff20")  # how a cell begins that a spreadsheet may take for a formula


def write_scores(path: Path, prediction: Prediction, labels: Sequence[str]) -> None:
    """Write a CSV: sequence, step if there is one prediction per step, label if there are classes, and the scores.

    Text that a spreadsheet would take for a formula is written with an apostrophe in front; see `escaped`.

    Raises:
        ArgumentError: If it cannot be written; then nothing of it is left.
    """
    scores = prediction.scores
    labeled = (
        [] if prediction.labels is None else [prediction.labels[place]] for place in np.ndindex(scores.shape[:-1])
    )
    places = np.ndindex(scores.shape[:-1])
    heads = ["sequence", *(["step"] if scores.ndim == 3 else [])]
    rows = ([*place, *label, *scores[place]] for place, label in zip(places, labeled))
    _write_rows(path, heads, prediction.labels is not None, labels, rows)


def write_table(path: Path, found: list[tuple[Series, Prediction]], labels: Sequence[str], steps: bool) -> None:
    """Write the same for the sequences of a table, by their names, with the times of the steps if they exist.

    steps: whether there is a prediction at every step.
    """
    timed = steps and found[0][0].times is not None
    rows = (
        [
            one.name,
            *([one.steps[t]] if steps else []),
            *([one.times[one.steps[t]]] if timed and one.times is not None else []),
            *([] if said.labels is None else [said.labels[t]]),
            *said.scores[t],
        ]
        for one, said in found
        for t in range(len(said.scores))
    )
    heads = ["sequence", *(["step"] if steps else []), *(["time"] if timed else [])]
    _write_rows(path, heads, found[0][1].labels is not None, labels, rows)


def write_forecasts(path: Path, heads: Sequence[str], rows: Iterable[list[Any]]) -> None:
    """Write a CSV of forecasts; see `predict_tables.heads_of_forecasts`."""
    _write(path, heads, rows)


def write_anomalies(path: Path, found: list[tuple[Series, np.ndarray]]) -> None:
    """Write a CSV with sequence, step, perhaps time, and score of `TablePredictor.anomalies`, which is empty if missing."""
    timed = found[0][0].times is not None
    rows = (
        [one.name, step, *([] if one.times is None else [one.times[step]]), "" if np.isnan(score) else score]
        for one, scores in found
        for step, score in enumerate(scores)
    )
    _write_rows(path, ["sequence", "step", *(["time"] if timed else [])], False, ["of the anomaly"], rows)


def _write_rows(path: Path, heads: list[str], labeled: bool, labels: Sequence[str], rows: Iterable[list[Any]]) -> None:
    _write(path, [*heads, *(["label"] if labeled else []), *(f"score {label}" for label in labels)], rows)


def _write(path: Path, heads: Sequence[str], rows: Iterable[list[Any]]) -> None:
    def write(file: IO[bytes]) -> None:
        text = io.TextIOWrapper(file, encoding="utf-8", errors="backslashreplace", newline="")
        writer = csv.writer(text)
        writer.writerow(heads)
        writer.writerows([_cell(cell) for cell in row] for row in rows)
        text.detach()

    with system_errors(f"to write the scores to {path}", "Choose another place.", ArgumentError):
        write_atomically(path, write)


def escaped(text: str) -> str:
    """Return text as a cell of a CSV file that no spreadsheet takes for a formula.

    A cell that begins with = + - @ (or their full-width forms), a tab or a line break, and is not a number, gets an
    apostrophe in front, as in the input of a spreadsheet; so does one that begins with an apostrophe. Removing one
    leading apostrophe therefore restores every name.

    Example::

        >>> escaped("=HYPERLINK(0)"), escaped("-1.5"), escaped("low")
        ("'=HYPERLINK(0)", '-1.5', 'low')
    """
    return f"'{text}" if text.startswith(_FORMULA) and not is_number(text) else text


def _cell(cell: Any) -> Any:
    """Return numbers with all digits of a score (values may be far from 0, and close together), and text escaped."""
    if isinstance(cell, np.floating):
        return f"{cell:.7g}" if cell.dtype == np.float32 else repr(float(cell))
    return escaped(str(cell)) if isinstance(cell, str) else cell
