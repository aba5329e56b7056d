"""The format of a text file with separators, as far as the file itself does not show it."""

from __future__ import annotations

import codecs
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from ..._checks import check_choice
from ...errors import ArgumentError
from .cells import MISSING, is_missing
from .number_marks import Marks

_NO_FILES = (
    "idna",
    "punycode",
    "raw-unicode-escape",
    "undefined",
    "unicode-escape",
    "utf-7",
)  # which no table is written in
_WHOLE = re.compile(r"[+-]?\d+")


class CsvFormat(NamedTuple):
    """The format of a text file, as far as the file itself does not show it.

    separator: Between cells; None for the most frequent of , ; and tab in the first line. decimal: "." or ",".
    thousands: Mark between groups of three digits. missing: Spellings of a missing value, besides the usual ones.
    encoding: Encoding of the characters; None for UTF-8. commas: Columns that have decimal commas, whatever their cells
        show.
    usual: Whether the usual spellings are missing values; if not, only an empty cell is, and `missing`. words: Of
    these, the ones that are words. words_of: By the name of a column, spellings that are words there.
    """

    separator: str | None = None
    decimal: str | None = None
    thousands: str | None = None
    missing: tuple[str, ...] = ()
    encoding: str | None = None
    commas: tuple[str, ...] = ()
    usual: bool = True
    words: tuple[str, ...] = ()
    words_of: tuple[tuple[str, tuple[str, ...]], ...] = ()

    @property
    def marks(self) -> Marks | None:
        """The marks that were given; None if they are to be told from the cells."""
        if self.decimal is None and self.thousands is None:
            return None
        return Marks(self.decimal or ("," if self.thousands == "." else "."), self.thousands)

    def is_missing(self, text: str) -> bool:
        """Return whether a cell is a missing value."""
        if text in self.missing:
            return True
        return text not in self.words and (is_missing(text) if self.usual else not text)

    @property
    def spellings(self) -> set[str]:
        """Return spellings of a missing value, the usual ones as programs write them; `is_missing` knows all of
        them.
        """
        usual = {text for word in MISSING for text in (word, word.upper(), word.capitalize())} | {"NaN"}
        return ((usual if self.usual else {""}) - set(self.words)) | set(self.missing)


def check_encoding(name: str) -> str:
    """Return the name of an encoding of text. ArgumentError if Python knows none of this name."""
    try:
        "1".encode(name)  # LookupError for what is no encoding of text, such as rot13
        known = codecs.lookup(name).name not in _NO_FILES
    except (LookupError, ValueError):
        known = False
    if not known:
        raise ArgumentError(
            f"Expected encoding, --encoding, to be an encoding of text such as latin-1, cp1252, utf-16 or shift-jis, but got "
            f"{name!r}. Name one; without the option, it is utf-8."
        )
    return name


def spellings(text: str | None) -> tuple[str, ...]:
    """Return the spellings of a missing value that `na` lists; a whole number also with up to three zeros as
    decimals.
    """
    found: list[str] = []
    for word in map(str.strip, text.split(",")) if text else []:
        found.append(word)
        if _WHOLE.fullmatch(word):
            found += [f"{word}.{'0' * places}" for places in (1, 2, 3)]
    return tuple(found)


def format_of(options: Mapping[str, Any]) -> CsvFormat:
    """Return how text files are written, by options of a task. ArgumentError for a wrong one."""
    encoding, usual = options.get("encoding"), options.get("default_na", "usual")
    return CsvFormat(
        options.get("separator"),
        options.get("decimal"),
        options.get("thousands"),
        spellings(options.get("na")),
        None if encoding is None else check_encoding(encoding),
        usual=check_choice("default_na", usual, ("usual", "empty")) == "usual",
    )
