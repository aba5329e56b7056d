"""The options that a row of the leaderboard shows: the name of the recipe, and the options that not all rows share."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from string import ascii_uppercase

from orthornn.learn.recipes import RECIPES

_SAID = ("data", "permuted", "variable", "model")  # shown by the page, the title of the table, or another column
_RUN = "orthornn train "
_RATE = "lr"
_FEW = 3  # from this number of rows and of options on, a letter abbreviates common options


def shown_options(commands: Sequence[str]) -> tuple[list[str], str, dict[str, str]]:
    """Return the options of each command, the options that all runs share, and the options behind each letter.

    Shared options are left out of the rows. If several rows differ only in their learning rates, a letter replaces their
    other options: "A --lr 0.004", and {"A": "--epochs 10 --head mlp --clip-norm 1"}.

    If a command has the options of a recipe, except for a few values, `--recipe NAME` replaces them, followed by the options
    that differ. Options that the table shows elsewhere are left out: the data, the system, the variant of the task.

    Args:
        commands: Commands of the rows, as returned by `leaderboard.command`. Controls share nothing with the others.
    """
    found = [_named(_pairs(words)) for words in commands]
    runs = [pairs for words, pairs in zip(commands, found) if words.startswith(_RUN)]
    common = (
        {name: value for name, value in runs[0].items() if all(name in p and p[name] == value for p in runs)}
        if len(runs) > 1
        else {}
    )
    own = [
        {name: value for name, value in pairs.items() if not (words.startswith(_RUN) and name in common)}
        for words, pairs in zip(commands, found)
    ]
    counts = Counter(_without_rate(pairs) for pairs in own)
    repeated = [options for options, rows in counts.items() if min(rows, len(options)) >= _FEW]
    letters = dict(zip(repeated, ascii_uppercase))
    shown = []
    for pairs in own:
        letter = letters.get(_without_rate(pairs))
        rate = {name: value for name, value in pairs.items() if name == _RATE}
        shown.append(f"{letter} {_words(rate)}".strip() if letter else _words(pairs))
    return shown, _words(common), {letter: _words(dict(options)) for options, letter in letters.items()}


def _without_rate(pairs: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    return tuple((name, value) for name, value in pairs.items() if name != _RATE)


def _pairs(words: str) -> dict[str, str]:
    """Return the options of a command by name, in order; "" for one without a value."""
    found: dict[str, str] = {}
    for part in f" {words}".split(" --")[1:]:
        name, _, value = part.strip().replace("=", " ", 1).partition(" ")
        found[name] = value.strip()
    return found


def _named(pairs: Mapping[str, str]) -> dict[str, str]:
    """Return options in which the nearest recipe replaces its options."""
    fits: list[tuple[int, int, str, dict[str, str]]] = []  # the fewest that differ first, then the longest recipe
    if "recipe" not in pairs:
        for recipe, content in RECIPES.items():
            made = {name.replace("_", "-"): str(value) for name, value in content.values().items()}
            if made.keys() <= pairs.keys():
                rest = {name: value for name, value in pairs.items() if made.get(name) != value}
                fits.append((len(rest), -len(made), recipe, rest))
    if fits:
        _, _, recipe, rest = min(fits)
        pairs = {"recipe": recipe, **rest}
    return {name: value for name, value in pairs.items() if name not in _SAID}


def _words(pairs: Mapping[str, str]) -> str:
    return " ".join(f"--{name} {value}".strip() for name, value in pairs.items())
