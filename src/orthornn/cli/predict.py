"""`orthornn predict RUN DATA --out scores.csv`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, field, fields
from pathlib import Path
from typing import Literal

from ..errors import ArgumentError, DataError
from ..learn.files.columns import Table, is_table
from ..learn.files.sequence_files import read_sequences
from ..learn.predict import Loaded, load
from ..learn.predict_tables import forecast_task, heads_of_forecasts, read_table, rows_of_forecasts, times_summary
from ..learn.report.lines import say, show
from ..learn.score_files import write_anomalies, write_forecasts, write_scores, write_table
from ..learn.tasks.forecast import Forecast
from ..learn.tasks.table_source import has_text
from ..learn.tasks.table_task import TableTask
from ..saved.run_files import check_is_run, run_in
from .arguments import read_options
from .outputs import check_folder, check_new_file, check_suffix


@dataclass(frozen=True)
class Marks:
    """The format of a text file if it differs from the training data."""

    separator: str | None = None
    """Separator of columns in DATA. Default: as in training."""
    decimal: Literal[".", ","] | None = None
    """Decimal mark in DATA. Default: as in training."""
    thousands: str | None = None
    """Mark between thousands in DATA. Default: as in training."""
    na: str | None = None
    """Spellings of a missing value in DATA, separated by commas. Default: as in training."""
    default_na: Literal["usual", "empty"] | None = None
    """Spellings of a missing value in DATA without --na: usual, or empty cells only. Default: as in training."""
    encoding: str | None = None
    """Encoding of DATA, such as latin-1. Default: as in training."""

    def read_by(self, loaded: Loaded, data: Path | None) -> Loaded:
        """Return the network set up to read DATA in this format. Raise ArgumentError for a mark that nothing would read."""
        given = {entry.name: getattr(self, entry.name) for entry in fields(Marks)}
        typed = [f"--{name.replace('_', '-')}" for name, mark in given.items() if mark is not None]
        if typed and (data is None or not has_text(data)):
            raise ArgumentError(
                f"Expected {', '.join(typed)} only for a text file, but got {'no file' if data is None else data}. "
                f"{'Name one' if data is None else 'Leave it out'}."
            )
        return loaded.reading(**given)


@dataclass(frozen=True)
class PredictArguments(Marks):
    """The options of orthornn predict."""

    _: KW_ONLY
    run: Path = field(metadata={"positional": "RUN"})
    """Run directory."""
    data: Path = field(metadata={"positional": "DATA"})
    """File with the sequences. For a network trained on your own file: another such file, in any format, with the same
    columns or the same number of features. Otherwise: .npy of shape (count, T) or (count, T, I), .npz with such an x,
    or .csv with one sequence per line.
    """
    out: Path = Path("scores.csv")
    """File to write: one line per prediction, with the scores of every output."""
    force: bool = False
    """Replace the file if it exists."""
    every_step: bool = False
    """For forecasting networks: write one line for every step of DATA, with the forecast made for it. Default: only the
    steps after the end of each series.
    """
    anomalies: bool = False
    """For forecasting networks: write the distance of each value from its forecast, in standard deviations."""
    checkpoint: str = "chosen"
    """Weights to use: best, last, or the step of a checkpoint; chosen is best, or last if nothing was validated."""


DESCRIPTION = (
    "Writes the predictions of a trained network for the sequences of a file, which it scales as its training data."
)


def main(words: Sequence[str]) -> int:
    """Run the command and return the exit status."""
    arguments = read_options(PredictArguments, "orthornn predict", DESCRIPTION, words or ["--help"])
    check_is_run(run_in(arguments.run))  # first what is read, then what is written
    if not arguments.data.exists():
        raise DataError(f"Expected a file with sequences, but {arguments.data} does not exist. Correct the path.")
    check_suffix(arguments.out, (".csv", ".txt"))
    check_folder(arguments.out.parent)
    check_new_file([arguments.out], arguments.force)
    loaded = arguments.read_by(load(arguments.run, arguments.checkpoint), arguments.data)
    task = loaded.config.task
    if arguments.every_step:
        forecast_task(task)
        if arguments.anomalies:
            raise ArgumentError("Expected --every-step or --anomalies, but got both. Name one.")
    if arguments.anomalies:
        scored = loaded.tables.anomalies(arguments.data)
        write_anomalies(arguments.out, scored)
        show(f"{_counted(len(scored))}: {arguments.out}")
        return 0
    if isinstance(task, Forecast) and is_table(arguments.data) and not arguments.every_step:
        later = loaded.tables.forecasts(read_once(loaded, arguments.data))
        rows = (row for one in later for row in rows_of_forecasts(one))
        write_forecasts(arguments.out, heads_of_forecasts(task, later), rows)
        show(f"{_counted(len(later))}, {sum(len(one.steps) for one in later)} step(s) after the end: {arguments.out}")
        return 0
    if isinstance(task, TableTask) and is_table(arguments.data):
        found = loaded.tables.predict(read_once(loaded, arguments.data))
        write_table(arguments.out, found, loaded.labels, loaded.description["output"] == "all")
        show(f"{_counted(len(found))}: {arguments.out}")
        return 0
    sequences, _ = read_sequences(arguments.data, loaded.description["input"] == "tokens")
    prediction = loaded.predict(sequences)
    write_scores(arguments.out, prediction, loaded.labels)
    show(f"{_counted(len(prediction.scores))}: {arguments.out}")
    return 0


def read_once(loaded: Loaded, data: Path) -> Table:
    """Return the table in a file; print the step and the gaps of its times, which may differ from the training data."""
    task = loaded.config.task
    file = read_table(task, loaded.description, data)
    told = times_summary(task, file)
    if told:
        say(f"{data.name}: {told}")
    return file


def _counted(count: int) -> str:
    return f"{count} sequence{'s' if count != 1 else ''}"
