"""Start of the command `orthornn`, outside of the package: nothing has been imported when it begins.

Importing torch takes a second or more. Python's KeyboardInterrupt can get lost in there, or ends in a traceback; so until
the imports are done Ctrl-C ends the process itself.
"""

from __future__ import annotations

import os
import signal
import sys


def main() -> int:
    """Import the command and run it; return the exit status."""
    _wait_without_computing()
    is_pythons = signal.getsignal(signal.SIGINT) is signal.default_int_handler  # a shell may have it ignored: nohup
    if is_pythons:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from orthornn.lab.cli import main as command

    if is_pythons:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    return command()


def _wait_without_computing() -> None:
    """Have torch's threads sleep while they wait for each other, unless the user has chosen how they wait.

    As OpenMP has it they compute in a loop: fast on cores that nobody else uses, and on others a small network took from ten
    times to two hundred times as long. The library reads the variable when torch loads it. `orthornn bench` leaves it out,
    since it times torch's layers as others run them.
    """
    chosen = {"OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME"} & os.environ.keys()
    if not chosen and sys.argv[1:2] != ["bench"]:
        os.environ["OMP_WAIT_POLICY"] = "passive"
