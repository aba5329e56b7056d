"""The options that a row of the leaderboard shows: the recipe by its name, and what the other rows do not have."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from string import ascii_uppercase

from orthornn.learn.recipes import RECIPES

_SAID = ("data", "permuted", "variable", "model")  # by the page, the title of the table, or another column
_RUN = "orthornn train "
_RATE = "lr"
_FEW = 3  # rows, and options, that get a letter in common


def shown_options(commands: Sequence[str]) -> tuple[list[str], str, dict[str, str]]:
    """Return the options of each command, those that all runs have in common, and those for which a letter stands.

    The ones in common are left out of the rows. Several rows with the same options, but for their learning rates, have a
    letter in the place of those: "A --lr 0.004", and {"A": "--epochs 10 --head mlp --clip-norm 1"}.

    A command whose options are those of a recipe, but for the values of some, has `--recipe NAME` in their place, with the
    options that differ. What the table says elsewhere is left out: the data, the system, the variant of the task.

    Args:
        commands: Of the rows, as `leaderboard.command` makes them. Those of controls share nothing with the others.
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
    """Return options with the nearest recipe in the place of its own."""
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
