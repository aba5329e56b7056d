"""Start of the command `orthornn`, outside of the package: nothing has been imported when it begins.

Importing torch takes a second or more. Python's KeyboardInterrupt can get lost in there, or ends in a traceback; so until
the imports are done Ctrl-C ends the process itself.
"""

from __future__ import annotations

import signal


def main() -> int:
    """Import the command and run it; return the exit status."""
    is_pythons = signal.getsignal(signal.SIGINT) is signal.default_int_handler  # a shell may have it ignored: nohup
    if is_pythons:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from orthornn.lab.cli import main as command

    if is_pythons:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    return command()
