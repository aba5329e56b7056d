"""`orthornn evaluate RUN [DATA]`."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path

from ..errors import DataError
from ..learn.files.columns import is_table
from ..learn.files.sequence_files import read_sequences
from ..learn.predict import load
from ..learn.report.lines import show
from ..learn.runs.fingerprint import check_data
from ..learn.tasks.table_task import TableTask
from ..learn.training import Trainer
from .arguments import read_options
from .predict import Marks, read_once


@dataclass(frozen=True)
class EvaluateArguments(Marks):
    """The options of orthornn evaluate."""

    _: KW_ONLY
    run: Path = field(metadata={"positional": "RUN"})
    """Run directory."""
    data: Path | None = field(default=None, metadata={"positional": "[DATA]"})
    """File with sequences and their targets. For a network trained on your own file: another such file, in any format.
    Otherwise: .npz with sequences x and targets y. Default: the test data of the task.
    """
    checkpoint: str = "chosen"
    """Weights to use: best, last, or the step of a checkpoint; chosen is best, or last if nothing was validated."""


DESCRIPTION = "Prints the loss and the metrics of a trained network on sequences with known targets."


def main(words: Sequence[str]) -> int:
    """Run the command and return the exit status."""
    arguments = read_options(EvaluateArguments, "orthornn evaluate", DESCRIPTION, words or ["--help"])
    loaded = arguments.read_by(load(arguments.run, arguments.checkpoint), arguments.data)
    if arguments.data is None:
        folder = loaded.directory or arguments.run  # of a search, that of its result
        if not loaded.config.task.files():
            check_data(folder, loaded.config.task)
        trainer = Trainer(dataclasses.replace(loaded.config, device="cpu"))
        trainer.model = loaded.model
        metrics = trainer.evaluate(loaded.config.task.problem().test(loaded.config.evaluation_batch), loaded.threshold)
        check_data(folder, loaded.config.task)  # now, as the task may have fetched them first
    elif isinstance(loaded.config.task, TableTask) and is_table(arguments.data):
        metrics = loaded.tables.evaluate(read_once(loaded, arguments.data))
    else:
        sequences, targets = read_sequences(arguments.data, loaded.description["input"] == "tokens")
        if targets is None:
            raise DataError(f"Expected a .npz with x and y, but {arguments.data} has no targets.")
        metrics = loaded.evaluate(sequences, targets)
    show("   ".join(f"{name} {value:.6g}" for name, value in metrics.items()))
    return 0
