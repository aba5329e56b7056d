"""The words of a command: its options with their values, each given once, and what is no option.

An option is typed `--a-b VALUE`, `--a_b VALUE` or `--a-b=VALUE`, a switch `--force` or `--no-force`; words after `--` are
no options.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from .errors import ArgumentError

_OPTION = re.compile(r"--[A-Za-z][\w-]*")


class Given(NamedTuple):
    """An option among the words. typed: Without its values. joined: Whether its value follows an equals sign."""

    typed: str
    values: list[str]
    joined: bool


def split_words(
    words: Sequence[str], count: Callable[[str], int], advice: str = "Give it once."
) -> tuple[list[Given], list[str]]:
    """Return the options among the words, and the other words.

    Args:
        words: Words behind the name of a command.
        count: Returns how many values follow an option as it is typed; fewer do if another option comes first.
        advice: What to do about an option that is given twice.

    Raises:
        ArgumentError: If an option is given twice, in whatever spelling.
    """
    found: list[Given] = []
    left, rest = list(words), []
    while left:
        word = left.pop(0)
        if word == "--":
            rest += left
            break
        typed, equals, text = word.partition("=")
        if not _is_option(word):
            rest.append(word)
            continue
        values = [text] if equals else []
        while not equals and left and len(values) < count(typed) and left[0] != "--" and not _is_option(left[0]):
            values.append(left.pop(0))
        found.append(Given(typed, values, bool(equals)))
    _check_once(found, advice)
    return found, rest


def _is_option(word: str) -> bool:
    return _OPTION.fullmatch(word.partition("=")[0]) is not None


def _check_once(options: Iterable[Given], advice: str) -> None:
    same: dict[str, list[Given]] = {}
    for one in options:
        name = one.typed.replace("_", "-").replace("--no-", "--", 1)
        same.setdefault(name, []).append(one._replace(typed=one.typed.replace("_", "-")))
    for name, given in same.items():
        if len(given) > 1:
            spellings = [one.typed for one in given]
            values = spellings if len({*spellings}) > 1 else [" ".join(one.values) for one in given]
            often = "twice" if len(given) == 2 else f"{len(given)} times"
            listed = f": {', '.join(values[:-1])} and {values[-1]}" if all(values) else ""
            raise ArgumentError(f"Expected {name} once, but got it {often}{listed}. {advice}")
