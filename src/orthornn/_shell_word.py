"""Paths in the commands that messages name: one word for the shell, and no option."""

from __future__ import annotations

import shlex
from pathlib import Path


def shell_word(path: str | Path) -> str:
    """Return a path as written in a command: quoted if it has spaces or other special characters, with ./ in front
    of a leading dash.

    Example::

        >>> shell_word("my runs/a"), shell_word("-a"), shell_word("runs/a")
        ("'my runs/a'", './-a', 'runs/a')
    """
    text = str(path)
    return shlex.quote(f"./{text}" if text.startswith("-") else text)
