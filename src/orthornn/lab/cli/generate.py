"""`orthornn generate RUN --prompt TEXT`: text from a network that learned to predict characters."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from ..._checks import check_integer
from ..predict import load
from .arguments import read_options
from .lines import show


@dataclass(frozen=True)
class GenerateArguments:
    """The options of orthornn generate."""

    run: Annotated[Path, tyro.conf.Positional]
    """The run directory, of the task characters."""
    prompt: str = ""
    """What the text begins with."""
    temperature: float = 1.0
    """Divides the logits: below 1 likelier characters are drawn even more often; 0 takes the likeliest."""
    length: int = 500
    """Characters to draw, at most; the end of a line, where the network knows one, is drawn like any other."""
    seed: int = 0
    """Of the draws."""
    checkpoint: str = "chosen"
    """Whose weights: last, best, or the step of a checkpoint; chosen: the best, or the last where nothing was validated."""


DESCRIPTION = "Prints text that a trained network continues, a character at a time."


def main(words: Sequence[str]) -> int:
    """Run the command; the exit status."""
    arguments = read_options(GenerateArguments, "orthornn generate", DESCRIPTION, words or ["--help"])
    length = check_integer("length", arguments.length, 1)
    loaded = load(arguments.run, arguments.checkpoint)
    drawn = loaded.generate(arguments.prompt, temperature=arguments.temperature, seed=arguments.seed)
    show(arguments.prompt, end="")
    for symbol in itertools.islice(drawn, length):
        show(symbol, end="")
    print()
    return 0
