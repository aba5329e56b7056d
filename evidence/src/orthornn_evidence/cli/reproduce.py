"""`orthornn reproduce PAPER`: reproduce the tables and figures of a paper."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from orthornn._checks import check_choice
from orthornn._files import write_bytes
from orthornn.cli.arguments import read_options
from orthornn.cli.progress import Display
from orthornn.errors import ArgumentError
from orthornn.kernels import denormals_as_zero
from orthornn.learn.report.lines import show
from orthornn.learn.report.table import Column, Table
from orthornn.learn.training import Progress, Run
from orthornn.learn.training.config import check_device
from orthornn.learn.training.threads import set_threads

from ..papers import PAPERS, Budget, Experiment, Setting, experiments, reproduce
from ..papers.core_hours import core_hours
from ..papers.page import page, renewed
from ..papers.results import results_table


@dataclass(frozen=True)
class ReproduceArguments:
    """The options of orthornn reproduce."""

    paper: str = field(default="", metadata={"positional": "[PAPER]"})
    """Name of the paper. With --list, default: all."""
    only: str = ""
    """Names of the experiments, separated by commas. Default: all."""
    systems: str = ""
    """Names of the systems to train, as in the results, separated by commas. Default: all."""
    seeds: str = ""
    """Seeds to train, separated by commas; seeds trained elsewhere stay in the results. Default: all seeds of the
    budget."""
    budget: Budget = "laptop"
    """smoke: a few updates, to check that everything runs; laptop: hours on two cores, if necessary with fewer seeds or
    updates than the paper; full: as in the paper, with the choices listed on its page in docs/results if the paper is
    silent."""
    data: Path = Path("data")
    """Folder with mnist, ptb, music and speech."""
    runs: Path = Path("runs")
    """Folder of the run directories. Unfinished runs are resumed, finished ones are reused."""
    results: Path | None = None
    """Folder of the results. Default: results; for --budget smoke, smoke-results in --runs."""
    threads: int | None = None
    """Threads of torch. Default: torch's choice."""
    device: str | None = None
    """Device to train on: cpu, cuda, or cuda:N. Default: cpu, or for existing runs the device on which they began."""
    collect: bool = False
    """Only write the results of the existing runs; train and measure nothing."""
    page: Path | None = None
    """Only update this Markdown page between its marks, from the existing results."""
    list: bool = False
    """Only list the experiments, their core hours, and the differences of laptop to the paper."""
    measure: bool = False
    """With --list: measure the core hours on this machine, by a few updates of each network (some minutes)."""


DESCRIPTION = (
    f"Reproduces the tables and figures of a paper ({', '.join(PAPERS)}). Ctrl-C saves; the same command resumes bit "
    "for bit. After every run it writes RESULTS/PAPER/NAME/BUDGET.json and .png."
)


def main(words: Sequence[str]) -> int:
    """Run the command; the exit status."""
    arguments = read_options(ReproduceArguments, "orthornn reproduce", DESCRIPTION, words or ["--help"])
    _check_used(arguments)
    if arguments.list and not arguments.paper:
        for paper in PAPERS:
            _overview(list(experiments(paper).values()), arguments).show()
        return 0
    for option in ("only", "systems", "seeds"):
        text = getattr(arguments, option)
        if text and not _names(text):
            raise ArgumentError(f"Expected names in --{option}, but got {text!r}. Name some, or leave it out for all.")
    known = experiments(arguments.paper)
    chosen = [known[check_choice("experiment", name, known)] for name in _names(arguments.only)] or list(known.values())
    if arguments.list:
        _overview(chosen, arguments).show()
        return 0
    if arguments.threads is not None:
        set_threads(arguments.threads)
    if arguments.device is not None:
        check_device(arguments.device)
    setting = Setting(arguments.budget, arguments.data)
    if arguments.systems:
        systems = dict.fromkeys(system for one in chosen for system, _ in one.plan(setting).runs())
        for name in _names(arguments.systems):
            check_choice("system", name, systems)
    if arguments.seeds:
        planned = {str(seed) for one in chosen for _, seed in one.plan(setting).runs()}
        for name in _names(arguments.seeds):
            check_choice("seed", name, sorted(planned, key=int))
    smoke = arguments.budget == "smoke"
    evidence = arguments.results or (arguments.runs / "smoke-results" if smoke else Path("results"))
    if arguments.page is not None:
        section = page(evidence, chosen)
        text = renewed(arguments.page.read_text(encoding="utf-8"), section)
        write_bytes(arguments.page, text.encode())
        return 0
    with denormals_as_zero():  # also where an experiment trains or times networks by itself
        for experiment in chosen:
            _reproduce(experiment, setting, arguments, evidence)
    return 0


def _check_used(arguments: ReproduceArguments) -> None:
    """Raise ArgumentError for an option that the others leave without effect."""
    if arguments.measure and not arguments.list:
        raise ArgumentError("Expected --measure together with --list, but got it alone. Add --list.")
    if arguments.only and arguments.list and not arguments.paper:
        raise ArgumentError("Expected --only together with a paper, but got it alone. Name the paper.")
    modes = [f"--{name}" for name in ("list", "page", "collect") if getattr(arguments, name)]
    idle = [f"--{name}" for name in ("systems", "seeds", "device") if getattr(arguments, name)]
    if len(modes) > 1 or (modes and idle):
        first, second = (*modes, *idle)[:2]
        raise ArgumentError(
            f"Expected {first} without {second}, which has no effect next to it, but got both. Leave one of them out."
        )


def _reproduce(experiment: Experiment, setting: Setting, arguments: ReproduceArguments, evidence: Path) -> None:
    if not experiment.plan(setting).systems:
        if arguments.collect:
            show(f"{experiment.name}: left as it is, because it has no run directories")
            return
        where = "" if arguments.device in (None, "cpu") else " on the CPU"
        show(f"{experiment.name}: measuring{where}, for about {experiment.hours[setting.budget]:.2g} h")
    content = reproduce(
        experiment,
        setting,
        arguments.runs,
        evidence,
        train=not arguments.collect,
        only_systems=_names(arguments.systems) or None,
        only_seeds=[int(name) for name in _names(arguments.seeds)] or None,
        device=arguments.device,
        on_progress=_Shown(),
    )
    results_table(content).show()
    show(f"results: {evidence / experiment.paper / experiment.name}\n")


class _Shown:
    """A display for one run after another."""

    def __init__(self) -> None:
        self._name: str | None = None
        self._display: Display | None = None

    def __call__(self, name: str, run: Run, progress: Progress) -> None:
        if name != self._name or self._display is None:
            self._name, self._display = name, Display(run.config.task.objective().trivial_loss)
        self._display({name: progress})


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def _overview(chosen: Sequence[Experiment], arguments: ReproduceArguments) -> Table:
    columns = [Column("name", left=True), Column("place", left=True), Column("laptop, h"), Column("full, h")]
    hours = "hours on one core of this machine, measured" if arguments.measure else "approximate hours on one core"
    shown = Table(f"{chosen[0].paper}: {hours}", [*columns, Column("what", left=True)])
    for one in chosen:
        costs = [_hours(one, budget, arguments) for budget in ("laptop", "full")]
        shown.rows.append([one.name, one.place, *costs, one.summary])
        shown.notes += [f"{one.name}, laptop: {difference}" for difference in one.laptop]
    return shown


def _hours(one: Experiment, budget: Budget, arguments: ReproduceArguments) -> str:
    if one.shares:
        return f"({one.shares})"
    measured = 0.0
    if arguments.measure:
        show(f"measuring {one.paper}, {one.name}, {budget}")
        measured = core_hours(one.plan(Setting(budget, arguments.data)))
    return f"{float(f'{measured or one.hours[budget]:.2g}'):g}"
