"""`orthornn generate RUN --prompt TEXT`: text from a network that learned to predict characters."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from .._checks import check_integer
from ..learn.predict import load
from ..learn.report.lines import show
from .arguments import read_options


@dataclass(frozen=True)
class GenerateArguments:
    """The options of orthornn generate."""

    run: Path = field(metadata={"positional": "RUN"})
    """Run directory of a network trained on the task characters."""
    prompt: str = ""
    """Text to continue. Default: none."""
    temperature: float = 1.0
    """Divisor of the logits: values below 1 make likely characters more likely; 0 always selects the likeliest."""
    length: int = 500
    """Maximum number of characters to draw. The end of a line counts as one, if the network knows it."""
    seed: int = 0
    """Seed of the draws."""
    checkpoint: str = "chosen"
    """Weights to use: best, last, or the step of a checkpoint; chosen is best, or last if nothing was validated."""


DESCRIPTION = "Prints text that a trained network draws, one character at a time."


def main(words: Sequence[str]) -> int:
    """Run the command and return the exit status."""
    arguments = read_options(GenerateArguments, "orthornn generate", DESCRIPTION, words or ["--help"])
    length = check_integer("length", arguments.length, 1)
    loaded = load(arguments.run, arguments.checkpoint)
    drawn = loaded.generate(arguments.prompt, temperature=arguments.temperature, seed=arguments.seed)
    drawn = itertools.islice(drawn, length)
    first = next(drawn, "")  # a prompt that the network cannot read is an error here
    show(arguments.prompt + first, end="")
    for symbol in drawn:
        show(symbol, end="")
    print()
    return 0
