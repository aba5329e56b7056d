"""Start of the command `orthornn`, outside of the package: nothing has been imported when it begins.

Importing torch takes seconds. What needs no network is answered before: the manual, the version, an unknown command. Python's
KeyboardInterrupt can get lost in the import, or ends in a traceback; so until it is done Ctrl-C ends the process itself.
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
    status = _answer()
    if status is not None:
        return status
    from orthornn.cli import main as command

    if is_pythons:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    return command()


def _answer() -> int | None:
    """Print what needs no import; return the exit status, or None if the command is to run, or to say what went wrong."""
    from .manual import asked, unknown

    words = sys.argv[1:]
    if "--traceback" in words:
        return None
    text, stream, status = asked(words), sys.stdout, 0
    if text is None:
        error = unknown(words[0])
        if error is None:
            return None
        text, stream, status = f"orthornn: {error}\n", sys.stderr, 2
    try:
        stream.write(text)
        stream.flush()
    except (OSError, ValueError, AttributeError):  # a full disk, a reader that has gone, no letter for it, no stream
        return None
    return status


def _wait_without_computing() -> None:
    """Have torch's threads sleep while they wait for each other, unless the user has chosen how they wait.

    As OpenMP has it they compute in a loop: fast on cores that nobody else uses, but next to other programs a small network
    takes 5 to 200 times as long. The library reads the variable when torch loads it. `orthornn bench` leaves it out, since it
    times torch's layers as others run them.
    """
    chosen = {"OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME"} & os.environ.keys()
    if not chosen and sys.argv[1:2] != ["bench"]:
        os.environ["OMP_WAIT_POLICY"] = "passive"
