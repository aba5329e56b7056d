"""`orthornn doctor`: report what this machine and this installation can do, and what would be chosen for a network.

With --n: the form and the backend that a network of this size gets, with the reason. The lines are those of
orthornn.doctor; this command needs none of the packages of the others.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from ... import doctor

HELP = {
    "n": "Hidden size of the network in question. Default: no network is in question.",
    "m": "Its Householder reflections. Default: a parametrization without a compact form.",
    "B": "Sequences in a batch. Default: %(default)s.",
    "T": "Steps of a sequence. Default: %(default)s.",
}
DEFAULTS = {"n": None, "m": None, "B": 1, "T": 784}


def main(words: Sequence[str]) -> int:
    """Run the command; the exit status."""
    parser = argparse.ArgumentParser(prog="orthornn doctor", description=__doc__, allow_abbrev=False)
    for name, text in HELP.items():
        parser.add_argument(f"--{name}", type=int, default=DEFAULTS[name], help=text)
    print("\n".join(doctor.report(**vars(parser.parse_args(list(words))))))
    return 0
