"""Lines of text for the user, which may hold names from a stranger's file: what a terminal would obey is escaped."""

from __future__ import annotations

import shutil
import sys
import textwrap

from ..._printable import printable

_INDENT = "   "


def say(text: str) -> None:
    """Print a line at once; on a terminal, break it between words if it is too wide."""
    text = printable(text)
    if sys.stdout.isatty():
        width = max(40, shutil.get_terminal_size().columns - 1)
        text = textwrap.fill(
            text,
            width,
            subsequent_indent=_INDENT,
            break_long_words=False,
            break_on_hyphens=False,
            replace_whitespace=False,
            drop_whitespace=True,
        )
    print(text, flush=True)


def show(text: object, end: str = "\n") -> None:
    """Print text at once, with its own line breaks only."""
    print(printable(text, keep="\n\t"), end=end, flush=True)
