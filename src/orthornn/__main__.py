"""`python -m orthornn` is the command `orthornn`."""

from __future__ import annotations

import sys

from orthornn_command import main

if __name__ == "__main__":
    sys.exit(main())
