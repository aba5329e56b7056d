"""diverged.json of a run among others: the update at which its training diverged, and what was seen then.

The same configuration diverges again, so this is a result: whoever trains many runs stores it, and begins no such run
a second time.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from ..errors import NonFiniteError
from .json_files import read_json, write_json

DIVERGED = "diverged.json"


class Diverged(NamedTuple):
    """The end of a run that diverged, after `step` updates and `seconds`; error: what was seen."""

    step: int
    seconds: float
    error: str


def write_diverged(path: Path | None, step: int, seconds: float, error: NonFiniteError) -> Diverged:
    """Return how a run diverged, and write it into the run's folder, if there is one."""
    found = Diverged(step, seconds, str(error))
    if path is not None:
        write_json(path / DIVERGED, found._asdict(), summed=True)
    return found


def read_diverged(path: Path) -> Diverged | None:
    """Return how the run in a folder diverged; None if it did not. DataError if the file is damaged."""
    if not (path / DIVERGED).exists():
        return None
    return Diverged(**read_json(path / DIVERGED, "Divergence"))
