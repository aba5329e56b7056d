"""One writer a run: an advisory lock that the system releases when its process ends, however it ends."""

from __future__ import annotations

import fcntl
import os
import socket
from pathlib import Path
from typing import IO

from ..errors import LockedError


class Lock:
    """Taken when it is made. LockedError, naming who has it, if another has it."""

    def __init__(self, path: Path) -> None:
        self._file: IO[str] = open(path, "a+", encoding="utf-8")  # noqa: SIM115
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            self._file.seek(0)
            owner = self._file.read().strip() or "another process"
            self._file.close()
            raise LockedError(
                f"{path.parent} is being written by {owner}. Wait for it or stop it; the lock goes with its process."
            ) from error
        self._file.truncate(0)
        self._file.write(f"process {os.getpid()} on {socket.gethostname()}\n")
        self._file.flush()

    def release(self) -> None:
        """Let others write."""
        self._file.close()
