"""A parser of words that refuses an option given twice, of which argparse would take the last without a word."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from orthornn._command_words import split_words
from orthornn.errors import ArgumentError


class OnceParser(argparse.ArgumentParser):
    """A parser without abbreviations. An option that is given twice is one of its errors."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **{"allow_abbrev": False, **options})

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Return the words parsed. args: Default: the words of the command line."""
        words = sys.argv[1:] if args is None else list(args)
        try:
            split_words(words, lambda typed: 1)
        except ArgumentError as error:
            self.error(str(error))
        return super().parse_args(words, namespace)
