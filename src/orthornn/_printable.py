"""Text from files, shown on a terminal: what a terminal would obey is escaped."""

from __future__ import annotations

import unicodedata

_JOINERS = "\u200c\u200d"  # between letters of many scripts, and without effect on others


def printable(text: object, keep: str = "\n") -> str:
    r"""Return the text with control characters and halves of surrogate pairs as escapes such as \x1b.

    So are characters that change the direction of writing, or that nothing shows. Column names, labels, file names and
    messages may come from a stranger's file.

    Args:
        text: The text, or an object that is shown as its str().
        keep: Characters to leave as they are. Default: line breaks.

    Example::

        >>> printable("a\x1b[2Jb\u202e")
        'a\\x1b[2Jb\\u202e'
    """
    return "".join(letter if _is_shown(letter) or letter in keep else repr(letter)[1:-1] for letter in str(text))


def _is_shown(letter: str) -> bool:
    return letter.isprintable() or letter in _JOINERS or unicodedata.category(letter) == "Zs"
