"""Lines of text for the user: on a terminal broken between words, elsewhere as they are."""

from __future__ import annotations

import shutil
import sys
import textwrap

_INDENT = "   "


def say(text: str) -> None:
    """Print a line at once; on a terminal it is broken between words where it is wider than that."""
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
