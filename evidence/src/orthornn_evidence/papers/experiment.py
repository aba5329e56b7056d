"""A table or a figure of a paper: a function from a setting (budget, data) to a plan.

    @reproduces("Table 3", section="5.3", published=(Published("ornn, test accuracy", 0.972, "{:.1%}"),), hours=(1, 9))
    def table3(setting: Setting) -> Plan:
        '''Train ...; measure ...'''
        steps = setting.at(smoke=2, laptop=55_000, full=55_000 * 20)
        return Plan({"ornn": RunConfig(...)}, seeds=setting.at(1, 1, 5), tabulate=lambda runs: ResultTable(...))

The experiment has the function's name; the module has the paper's name, or begins with it and an underscore. The decorator
turns the function into an Experiment.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, TypeVar

from orthornn._checks import check_choice
from orthornn.errors import DataError
from orthornn.learn.training import RunConfig

from .result_table import ResultTable, Runs

Budget = Literal["smoke", "laptop", "full"]
BUDGETS: tuple[Budget, ...] = ("smoke", "laptop", "full")
T = TypeVar("T")


@dataclass(frozen=True)
class Published:
    """A cell of a table, or a claim.

    what: system and quantity, in the words of the corresponding Row. value: None for a claim in `words`.
    form: format of the value. statement: whether it is about all rows together, and has no Row.
    """

    what: str
    value: float | None = None
    form: str = "{:.4g}"
    words: str = ""
    statement: bool = False

    @property
    def text(self) -> str:
        """The text in a table."""
        shown = "" if self.value is None else self.form.format(self.value)
        return " ".join(part for part in (shown, self.words) if part)


@dataclass(frozen=True)
class Setting:
    """The budget and the data that a plan depends on.

    data: the folder that holds mnist/, ptb/, music/ and speech/.
    """

    budget: Budget
    data: Path

    def at(self, smoke: T, laptop: T, full: T) -> T:
        """Return one of three, by budget."""
        return {"smoke": smoke, "laptop": laptop, "full": full}[self.budget]

    def folder(self, name: str) -> str:
        """Return the folder of a data set. Raise DataError if it is missing."""
        path = self.data.expanduser() / name
        if not path.is_dir():
            raise DataError(
                f"Expected {name} in {self.data}, but it is missing. Pass the folder that contains it with --data."
            )
        return str(path)


@dataclass(frozen=True)
class Plan:
    """The runs of an experiment, and the function that tabulates them.

    systems: the run of each system by name; its directory has this name, followed by the seed.
    seeds: number of runs of each system, with seeds 0, 1, ...; or one number per system.
    tabulate: returns the report of the existing runs, finished or not. A measurement that trains nothing has no systems and
        measures here.
    beyond_records: tabulate needs more of a run than its record in the results file: weights, spectra or gradients.
    """

    systems: Mapping[str, RunConfig]
    tabulate: Callable[[Runs], ResultTable]
    seeds: int | Mapping[str, int] = 1
    beyond_records: bool = False

    def runs(self) -> dict[tuple[str, int], RunConfig]:
        """Return every run by (system, seed): the first seed of all systems first."""
        counts = {name: self.seeds if isinstance(self.seeds, int) else self.seeds[name] for name in self.systems}
        return {
            (name, seed): dataclasses.replace(config, seed=seed)
            for seed in range(max(counts.values(), default=0))
            for name, config in self.systems.items()
            if seed < counts[name]
        }


@dataclass(frozen=True)
class Experiment:
    """A table, a figure or a claim of a paper, and how to obtain it.

    place, section: position in the paper ("ours" if it is not in the paper).
    hours: expected hours of one core for laptop and full.
    laptop: differences of the laptop budget to the paper.
    shares: the experiment of this paper whose runs it uses, if it trains none.
    """

    paper: str
    name: str
    place: str
    section: str
    summary: str
    published: tuple[Published, ...]
    hours: Mapping[Budget, float]
    laptop: tuple[str, ...]
    make: Callable[[Setting], Plan] = field(repr=False)
    shares: str = ""

    def plan(self, setting: Setting) -> Plan:
        """Return the plan for a budget."""
        check_choice("budget", setting.budget, BUDGETS)
        return self.make(setting)

    def command(self, budget: Budget) -> str:
        """Return its command."""
        return f"orthornn reproduce {self.paper} --only {self.name} --budget {budget}"


def reproduces(
    place: str,
    *,
    section: str,
    published: tuple[Published, ...],
    hours: tuple[float, float],
    laptop: tuple[str, ...] = (),
    shares: str = "",
) -> Callable[[Callable[[Setting], Plan]], Experiment]:
    """Turn a function into an Experiment. hours: Hours of laptop and full. shares: See Experiment."""

    def made(function: Callable[[Setting], Plan]) -> Experiment:
        return Experiment(
            paper=function.__module__.removeprefix(f"{__package__}.").split(".")[0],
            name=function.__name__.replace("_", "-"),
            place=place,
            section=section,
            summary=" ".join((function.__doc__ or "").split()),
            published=published,
            hours={"smoke": 0.01, "laptop": hours[0], "full": hours[1]},
            laptop=laptop,
            make=function,
            shares=shares,
        )

    return made
