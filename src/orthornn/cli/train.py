"""`orthornn train TASK`: one model, one task, one run directory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from .. import compare
from ..errors import ArgumentError
from ..report.figures import learning_curves
from ..training import RunConfig, read_config, train
from .arguments import RunArguments, TaskT, parse
from .outcome import outcome
from .progress import Display

SUMMARY = (
    "Trains one model and leaves a run directory: config.json, environment.json, metrics.jsonl, model.pt, curves.png."
)


@dataclass(frozen=True)
class TrainArguments(RunArguments[TaskT]):
    """The options of orthornn train."""

    model: str = "ornn-rotations"
    """Which model: ornn, ornn-rotations, scornn, spectral, lstm, gru or rnn."""


def main(words: Sequence[str]) -> int:
    """Run the command; the exit status."""
    if words and words[0] == "--config":
        config, folder = _from_file(words[1:])
    else:
        arguments = parse("train", SUMMARY, lambda task: TrainArguments[task], words)  # type: ignore[valid-type]
        config = arguments.config(arguments.model, arguments.seconds)
        folder = arguments.folder(arguments.model)
    name = config.model.name
    with Display(config.task.trivial_loss, config.max_seconds) as display:
        result = train(config, folder, lambda progress: display({name: progress}))
    outcomes = outcome(config.task, result.model, folder)
    shown = compare.table({name: result})
    if result.best:
        shown.notes.append("best validation: " + ", ".join(f"{key} {value:.4g}" for key, value in result.best.items()))
    shown.notes.extend(outcomes)
    shown.show()
    figure = folder / "curves.png"
    curves = {kind: compare.curves({name: result}, kind)[name] for kind in ("train", "validation")}
    curves = {kind: curve for kind, curve in curves.items() if curve[0]}
    learning_curves(figure, f"{config.task.name}, {name}", curves, result.trivial_loss)
    print(f"run directory: {folder}   figure: {figure}")
    return 0


def _from_file(words: Sequence[str]) -> tuple[RunConfig, Path]:
    """`orthornn train --config FILE --out FOLDER`: the run that a config.json describes, again."""
    if len(words) != 3 or words[1] != "--out":
        raise ArgumentError("a run from a file is: orthornn train --config FILE --out FOLDER.")
    return read_config(Path(words[0])), Path(words[2])
