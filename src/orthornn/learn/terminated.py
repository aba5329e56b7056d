"""SIGTERM as an exception, which lets a command remove incomplete files before it ends."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType


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


def _terminate(number: int, frame: FrameType | None) -> None:
    raise Terminated
