"""Ctrl-C and SIGTERM: as a wish to stop after the update at hand, and SIGTERM as an exception.

The exception lets a command remove incomplete files before it ends.
"""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType, TracebackType
from typing import Any

from ...errors import CheckpointError, Interrupted


class StopSignals:
    """A context manager; `received` is the number of the first SIGINT or SIGTERM, or None.

    at_once: Set it if there are no updates to wait for; the first signal then raises KeyboardInterrupt.

    The second signal does what it would do without this: Ctrl-C interrupts at once, SIGTERM ends the process. Outside
    the main thread, in which Python does not allow handlers, it does nothing.
    """

    def __init__(self) -> None:
        self.received: int | None = None
        self.at_once = False
        self._before: dict[int, Any] = {}

    def __enter__(self) -> StopSignals:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._before[number] = signal.signal(number, self._receive)
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, where: TracebackType | None) -> None:
        self._restore()

    def _receive(self, number: int, frame: FrameType | None) -> None:
        self.received = number
        self._restore()
        if self.at_once:
            raise KeyboardInterrupt

    def _restore(self) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._before.clear()


class Terminated(KeyboardInterrupt):
    """SIGTERM has come."""


@contextlib.contextmanager
def terminable() -> Iterator[None]:
    """Raise Terminated inside at SIGTERM, which else ends the process at once.

    Nothing changes if SIGTERM already has a handler, or outside the main thread, in which Python does not allow
    handlers.
    """
    if threading.current_thread() is not threading.main_thread() or signal.getsignal(signal.SIGTERM) != signal.SIG_DFL:
        yield
        return
    signal.signal(signal.SIGTERM, _terminate)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def output_refused(error: OSError, ended: str) -> Interrupted | CheckpointError:
    """Return what to raise where the reader of the output is gone, or its disk is full. ended: What that ended, and how
    it is resumed.
    """
    reason = f"Expected the output to be taken, but got: {error.strerror or error}. {ended}"
    if isinstance(error, BrokenPipeError):  # Windows has the error, and not the signal
        return Interrupted(reason, getattr(signal, "SIGPIPE", 13))
    return CheckpointError(reason)


def _terminate(number: int, frame: FrameType | None) -> None:
    raise Terminated
