"""Ctrl-C and SIGTERM as a wish to stop after the update at hand."""

from __future__ import annotations

import signal
import threading
from types import FrameType, TracebackType
from typing import Any


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
