"""`orthornn doctor`: report what this machine and this installation support, and the choices for a network.

With --n, the report includes the form and the backend for a network of this size, with the reason. orthornn.doctor
provides the lines; this command does not need the packages of the other commands.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import NoReturn

from .. import doctor
from ..errors import ArgumentError

DESCRIPTION = (
    "Reports what this machine and this installation can run. With --n, also reports the form and the backend that a "
    "network of this size gets, and why. Needs no extra."
)
HELP = {
    "n": "Hidden size of a network. Default: no network.",
    "m": "Householder reflections of the network. Default: a parametrization without reflections.",
    "B": "Sequences per batch. Default: %(default)s.",
    "T": "Steps of a sequence. Default: %(default)s.",
}
DEFAULTS = {"n": None, "m": None, "B": 1, "T": 784}


class _Parser(argparse.ArgumentParser):
    """A parser whose errors are one line."""

    def error(self, message: str) -> NoReturn:
        raise ArgumentError(f"Expected options of orthornn doctor, but got: {message}. Its --help explains them.")


def main(words: Sequence[str]) -> int:
    """Run the command and return the exit status."""
    parser = _Parser(prog="orthornn doctor", description=DESCRIPTION, allow_abbrev=False)
    for name, text in HELP.items():
        parser.add_argument(f"--{name}", type=int, default=DEFAULTS[name], help=text)
    print("\n".join(doctor.report(**vars(parser.parse_args(list(words))))))
    return 0
