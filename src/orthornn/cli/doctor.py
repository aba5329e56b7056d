"""`orthornn doctor`: report what this machine and this installation support, and the choices for a network.

orthornn.doctor provides the lines; this command does not need the packages of the other commands.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .. import doctor
from .arguments import read_options

DESCRIPTION = (
    "Reports what this machine and this installation can run. With --n, also reports the form and the backend that a "
    "network of this size gets, and why. Needs no extra."
)


@dataclass(frozen=True)
class DoctorArguments:
    """The options of orthornn doctor."""

    n: int | None = None
    """Hidden size of a network. Default: no network."""
    m: int | None = None
    """Householder reflections of the network. Default: a parametrization without reflections."""
    B: int = 1
    """Sequences per batch."""
    T: int = 784
    """Steps of a sequence."""


def main(words: Sequence[str]) -> int:
    """Run the command and return the exit status."""
    print("\n".join(doctor.report(**vars(read_options(DoctorArguments, "orthornn doctor", DESCRIPTION, words)))))
    return 0
