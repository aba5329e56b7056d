"""`orthornn compare TASK`: several models of equal size, side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .._files import write_bytes
from ..learn import compare
from ..learn.report.figures import learning_curves, or_a_warning, told
from ..learn.report.pictures import curves_with_bands, save
from ..learn.report.runs import groups, read_runs
from ..learn.systems import MODELS, model_named
from .arguments import RunArguments, TaskT, announce, choose_threads, own_data, parse
from .lines import show
from .optimizer_options import announce_unused
from .outputs import check_new_files
from .plain_results import show_all, with_baselines
from .progress import Display
from .recipes import announce_recipe, expand, leave_room_for_network, limit_warmup

SUMMARY = (
    "Trains several models in turns, from the same seed and on the same batches, and writes a run directory for each, a "
    "table and a figure. Ctrl-C saves; the same command with the same --out resumes. If a model diverges, the others are "
    "trained to their end, and the exit status is 2."
)


@dataclass(frozen=True)
class CompareArguments(RunArguments[TaskT]):
    """The options of orthornn compare."""

    models: str = "ornn,ornn-rotations,scornn,lstm"
    """Names of the models, separated by commas, or all; `orthornn compare --help` lists them."""
    seeds: int = 1
    """Runs per model, with seeds from --seed upwards. Use five or more to show that models differ."""
    seconds: float | None = None
    """Seconds of training of all runs together. Each has an equal share; what one leaves of its own goes to the others.
    Default: no limit."""
    recipe: str | None = None
    """Named preset of options, as for orthornn train, without its model. Default: for your own data that of the task,
    else none."""


def main(words: Sequence[str]) -> int:
    """Run the command; the exit status."""
    words = own_data(words) if words else words
    expanded = expand(words, own_model=False)
    announce_recipe(words, expanded)
    arguments = parse("compare", SUMMARY, lambda task: CompareArguments[task], expanded)  # type: ignore[valid-type]
    arguments = leave_room_for_network(limit_warmup(arguments, words), words)
    names = [name.strip() for name in arguments.models.split(",") if name.strip()]
    if names == ["all"]:
        names = list(MODELS)
    options = arguments.given_model_options()
    configs = compare.configs(arguments.config(model_named(), None), names, options)
    configs = compare.with_seeds(configs, arguments.seeds)
    if arguments.threads is None:
        choose_threads(configs.values())
    folder = arguments.folder("compare")
    table, figure = folder / "table.txt", folder / "curves.png"
    if not compare.is_begun(folder):
        check_new_files([table, figure])
    with compare.Comparison(configs, folder, arguments.seconds) as comparison:
        announce(arguments.task)
        announce_unused(words, (run.trainer for run in comparison.runs.values()))
        with Display(arguments.task.trivial_loss, arguments.seconds) as display:
            comparison.train(display)
        results = comparison.finish()
        shown = [
            compare.table(results, comparison.diverged),
            *([compare.summary(results)] if arguments.seeds > 1 else []),
        ]
        verdict, tables = with_baselines(shown, results)
        text = "\n\n".join(one.plain() for one in tables) + "\n"
        write_bytes(table, text.encode())
        with or_a_warning(figure):
            if arguments.seeds == 1:
                learning_curves(figure, arguments.task.name, compare.curves(results), arguments.task.trivial_loss)
            else:
                runs = groups(read_runs([folder]))
                save(curves_with_bands(runs, "train", "loss", arguments.task.trivial_loss), figure)
    show_all(verdict, tables)  # after the files: whoever reads this may be gone
    show(f"results: {folder}{told(figure)}")
    return 2 if comparison.diverged else 0
