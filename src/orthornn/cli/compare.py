"""`orthornn compare TASK`: several models of equal size, side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .._files import write_bytes
from ..learn import compare
from ..learn.optimizer_options import say_unused
from ..learn.options import RunOptions
from ..learn.own_data import options_for
from ..learn.plain_results import show_all, with_baselines
from ..learn.recipes import say_recipe, with_recipe
from ..learn.report.figures import figure_note, learning_curves, or_a_warning
from ..learn.report.lines import say, show
from ..learn.report.pictures import curves_with_bands, save
from ..learn.report.runs import groups, read_runs
from ..learn.shown import Printed
from ..learn.systems import MODELS, model_named
from ..learn.train import completed
from ..learn.training.threads import choose_threads
from .outputs import check_new_files
from .progress import Display
from .task_arguments import data_and_options

SUMMARY = (
    "Trains several models in turns, from the same seed and on the same batches, and writes a run directory for each, a "
    "table and a figure. Ctrl-C saves; the same command with the same --out resumes. If a model diverges, the others are "
    "trained to their end, and the exit status is 2."
)


@dataclass(frozen=True)
class CompareOptions(RunOptions):
    """The options of orthornn compare."""

    models: str = "ornn,ornn-rotations,scornn,lstm"
    """Names of the models, separated by commas, or all; `orthornn compare --help` lists them."""
    seeds: int = 1
    """Runs per model, with seeds from --seed upwards. Use five or more to show that models differ."""
    seconds: float | None = None
    """Seconds of training of all runs together. Each has an equal share; time that one does not use goes to the others.
    Default: no limit.
    """
    recipe: str | None = None
    """Named preset of options, as for orthornn train, but without its model. Default: the preset of the task for your
    own data, otherwise none.
    """


def main(words: Sequence[str]) -> int:
    """Run the command and return the exit status."""
    data, given = data_and_options("compare", SUMMARY, CompareOptions, words)
    options = with_recipe(
        options_for(data, given, say, command=CompareOptions, prog="orthornn compare"), own_model=False
    )
    say_recipe(options, say)
    options, task = completed(options, Printed())
    names = [name.strip() for name in options["models"].split(",") if name.strip()]
    if names == ["all"]:
        names = list(MODELS)
    configs = compare.configs(options.config(task, model_named()), names, options.of_model(task))
    configs = compare.with_seeds(configs, options["seeds"])
    if options["threads"] is None:
        choose_threads(configs.values())
    folder = options.folder("compare")
    table, figure = folder / "table.txt", folder / "curves.png"
    if not compare.is_begun(folder):
        check_new_files([table, figure])
    with compare.Comparison(configs, folder, options["seconds"]) as comparison:
        for line in task.summary_lines():
            say(line)
        say_unused(options.given, (run.trainer for run in comparison.runs.values()), say)
        with Display(task.objective().trivial_loss, options["seconds"]) as display:
            comparison.train(display)
        results = comparison.finish()
        shown = [
            compare.table(results, comparison.diverged),
            *([compare.summary(results)] if options["seeds"] > 1 else []),
        ]
        verdict, tables = with_baselines(shown, results)
        tested = compare.backtested(task, {name: folder / name for name in results})
        tables += [] if tested is None else [compare.backtest_table(tested)]
        text = "\n\n".join(one.plain() for one in tables) + "\n"
        write_bytes(table, text.encode())
        with or_a_warning(figure):
            if options["seeds"] == 1:
                learning_curves(figure, task.name, compare.curves(results), task.objective().trivial_loss)
            else:
                runs = groups(read_runs([folder]))
                save(curves_with_bands(runs, "train", "loss", task.objective().trivial_loss), figure)
    show_all(verdict, tables)  # after the files: whoever reads this may be gone
    show(f"results: {folder}{figure_note(figure)}")
    return 2 if comparison.diverged else 0
