"""The experiments of the papers: one folder or file per paper, one function per table or figure.

experiment.py   the definition of an experiment: published numbers, cost, and a plan for each budget
result_table.py the runs of a plan as rows, conclusions and a figure
reproduce.py    running and resuming a plan
data.py         tasks on the user's data
results.py      the output files: JSON and figure
"""

from __future__ import annotations

import importlib
import pkgutil

from orthornn._checks import check_choice

from .experiment import BUDGETS, Budget, Experiment, Plan, Published, Setting, reproduces
from .reproduce import reproduce
from .result_table import ResultTable, Row, Runs, Trained

__all__ = [
    "BUDGETS",
    "PAPERS",
    "Budget",
    "Experiment",
    "Plan",
    "Published",
    "ResultTable",
    "Row",
    "Runs",
    "Setting",
    "Trained",
    "experiments",
    "reproduce",
    "reproduces",
]

PAPERS = tuple(sorted(found.name for found in pkgutil.iter_modules(__path__) if found.name[-4:].isdigit()))
"""The papers: every folder or file here whose name ends in a year."""


def experiments(paper: str) -> dict[str, Experiment]:
    """Return the experiments of a paper by name, section by section."""
    check_choice("paper", paper, PAPERS)
    package = importlib.import_module(f".{paper}", __name__)
    sections = getattr(package, "SECTIONS", (package,))
    every = [found for section in sections for found in vars(section).values() if isinstance(found, Experiment)]
    return {found.name: found for found in every}
