"""Warnings at the user's line, however deep in the library they arise."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from .errors import OrthornnWarning

# Between a user's line and a warning: this package, and what calls it on the user's behalf.
_BETWEEN = {
    *("orthornn", "orthornn_command", "torch", "sklearn", "joblib"),
    *("functools", "contextlib", "threading", "concurrent", "importlib", "_frozen_importlib"),
}


def warn(message: str, category: type[Warning] = OrthornnWarning) -> None:
    """Warn at the innermost line outside of this package, or at the caller's line if a thread has no other."""
    caller = frame = sys._getframe(1)
    outer: FrameType | None = frame
    while outer is not None and _name(outer).partition(".")[0] in _BETWEEN:
        outer = outer.f_back
    frame = caller if outer is None else outer
    registry = frame.f_globals.setdefault("__warningregistry__", {})
    warnings.warn_explicit(message, category, frame.f_code.co_filename, frame.f_lineno, _name(frame), registry)


@contextmanager
def quiet() -> Iterator[None]:
    """Say nothing inside: for data that are read once more, of which the same was said before."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", OrthornnWarning)
        yield


def _name(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__") or "<unknown>")
