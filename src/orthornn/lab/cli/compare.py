"""`orthornn compare TASK`: several models of equal size, side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..._files import write_atomically
from .. import compare
from ..report.figures import learning_curves
from ..report.pictures import curves_with_bands, save
from ..report.runs import groups, read_runs
from ..systems import MODELS, model_named
from .arguments import RunArguments, TaskT, announce, own_data, parse
from .lines import show
from .outputs import check_new_files
from .plain_results import show_with_baselines
from .progress import Display
from .recipes import announce_recipe, expand, limit_warmup

SUMMARY = (
    "Trains the models in turns, from the same seed and on the same batches, and leaves a run directory "
    "each, "
    "a table and a figure."
)


@dataclass(frozen=True)
class CompareArguments(RunArguments[TaskT]):
    """The options of orthornn compare."""

    models: str = "ornn,ornn-rotations,scornn,lstm"
    """Which models, separated by commas, or all. `orthornn compare --help` lists them."""
    seeds: int = 1
    """Runs of every model, with seeds from --seed upwards. Five or more, if a difference is to be shown."""
    recipe: str | None = None
    """Options under a name, as for orthornn train. For your own data the options of table or forecast count without it."""


def main(words: Sequence[str]) -> int:
    """Run the command; the exit status."""
    words = own_data(words) if words else words
    expanded = expand(words, own_model=False)
    announce_recipe(words, expanded)
    arguments = parse("compare", SUMMARY, lambda task: CompareArguments[task], expanded)  # type: ignore[valid-type]
    arguments = limit_warmup(arguments, words)
    names = [name.strip() for name in arguments.models.split(",") if name.strip()]
    if names == ["all"]:
        names = list(MODELS)
    options = arguments.given_model_options()
    configs = compare.configs(arguments.config(model_named(), None), names, options)
    configs = compare.with_seeds(configs, arguments.seeds)
    folder = arguments.folder("compare")
    check_new_files([folder / "table.txt", folder / "curves.png"])
    comparison = compare.Comparison(configs, folder, arguments.seconds)
    try:
        announce(arguments.task)
        with Display(arguments.task.trivial_loss, arguments.seconds) as display:
            comparison.train(display)
        results = comparison.finish()
    finally:
        comparison.close()
    tables = [compare.table(results)]
    if arguments.seeds > 1:
        tables.append(compare.summary(results))
    tables = show_with_baselines(tables, results)
    text = "\n\n".join(shown.plain() for shown in tables) + "\n"
    write_atomically(folder / "table.txt", lambda file: file.write(text.encode()))
    figure = folder / "curves.png"
    if arguments.seeds == 1:
        learning_curves(figure, arguments.task.name, compare.curves(results), arguments.task.trivial_loss)
    else:
        runs = groups(read_runs([folder]))
        save(curves_with_bands(runs, "train", "loss", arguments.task.trivial_loss), figure)
    show(f"results: {folder}   figure: {figure}")
    return 0
