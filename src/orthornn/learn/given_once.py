"""Options that are given twice, of which a parser would take the last without a word."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Sequence
from itertools import pairwise

from ..errors import ArgumentError

OPTION = re.compile(r"--[A-Za-z][\w-]*")
"""How an option is typed, without its value."""


def repeated(words: Sequence[str]) -> tuple[str, list[str]] | None:
    """Return the first option that is among the words twice, and its values as they are typed; None if there is none.

    Options have no other spellings than `--a-b VALUE`, `--a_b VALUE`, `--a-b=VALUE` and, for switches, `--no-a-b`. What
    is behind a `--` is not an option.
    """
    found: dict[str, list[tuple[str, str]]] = {}
    words = list(words[: words.index("--")]) if "--" in words else list(words)
    for word, after in pairwise([*words, "--"]):
        name, equals, value = word.partition("=")
        if not OPTION.fullmatch(name):
            continue
        if not equals:
            value = "" if after.startswith("--") else after
        name = name.replace("_", "-")
        found.setdefault(name.replace("--no-", "--", 1), []).append((name, value))
    for key, given in found.items():
        if len(given) > 1:
            spellings = {name for name, _ in given}
            return key, [name for name, _ in given] if len(spellings) > 1 else [value for _, value in given]
    return None


def check_given_once(words: Sequence[str]) -> None:
    """Raise ArgumentError if an option is among the words twice."""
    found = repeated(words)
    if found is not None:
        raise ArgumentError(f"{told(*found)} Give it once.")


def parse_given_once(parser: argparse.ArgumentParser, words: Sequence[str] | None) -> argparse.Namespace:
    """Return the words parsed by a parser without abbreviations; a repeated option is an error of the parser.

    words: Default: the words of the command line.
    """
    words = sys.argv[1:] if words is None else words
    found = repeated(words)
    if found is not None:
        parser.error(f"{told(*found)} Give it once.")
    return parser.parse_args(words)


def told(name: str, values: Sequence[str]) -> str:
    """Return the sentence about an option that is given several times. values: As `repeated` returns them."""
    often = "twice" if len(values) == 2 else f"{len(values)} times"
    listed = f": {', '.join(values[:-1])} and {values[-1]}" if all(values) else ""
    return f"Expected {name} once, but got it {often}{listed}."
