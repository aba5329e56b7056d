"""`--recipe NAME` of `orthornn train` and `orthornn compare`: the options of a preset in its place.

`orthornn train pixel-mnist --recipe blocks --seed 1` is the command with the recipe's options in it; options that are given
too take their place.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..._checks import check_choice
from ...errors import ArgumentError
from ..recipes import NONE, OF_TASKS, RECIPES, SKIPPED
from ..tasks import Forecast
from .arguments import options_in
from .lines import say

# Options that exclude one another: one that is given replaces the other in a recipe.
_EITHER = (("steps", "epochs"), ("hidden-size", "parameters"))


def expand(words: Sequence[str], own_model: bool = True) -> list[str]:
    """Return the words with the options of `--recipe NAME` in its place, but for those that are given besides.

    Without the option the task's recipe counts, if it has one (`OF_TASKS`).

    Args:
        words: The task, and options as they are typed.
        own_model: Whether the recipe chooses the model, if none is named.
    """
    joined = [part for word in words for part in (word.split("=", 1) if word.startswith("--recipe=") else [word])]
    rest, name = joined, OF_TASKS.get(joined[0], NONE) if joined and not {"-h", "--help"} & {*joined} else NONE
    if "--recipe" in joined:
        at = joined.index("--recipe")
        if at + 1 == len(joined) or "--recipe" in joined[at + 1 :]:
            raise ArgumentError(
                f"Expected one name after --recipe, but got {' '.join(joined[at:])}. Known: {', '.join(RECIPES)}."
            )
        name, rest = joined[at + 1], [*joined[:at], *joined[at + 2 :]]
    if name == NONE:
        return rest
    recipe = RECIPES[check_choice("recipe", name, [*RECIPES, NONE])]
    given = {word[2:].partition("=")[0].replace("_", "-") for word in rest if word.startswith("--")}
    given |= {name.removeprefix("no-") for name in given}
    for pair in _EITHER:
        if given & set(pair):
            given |= set(pair)
    pairs = recipe.pairs(own_model and not (recipe.model and "model" in given))
    skipped = str(options_in(rest).get("skipped", Forecast.skipped))
    pairs = [(name, skipped if value == SKIPPED else value) for name, value in pairs]
    return [*rest, *(word for name, value in pairs if name not in given for word in (f"--{name}", value))]


def announce_recipe(words: Sequence[str], expanded: Sequence[str]) -> None:
    """Print which options a recipe chose that nobody named."""
    name = OF_TASKS.get(words[0]) if words else None
    if name is None or any(word.partition("=")[0] == "--recipe" for word in words):
        return
    chosen = expanded[len(words) :]
    if chosen:
        say(f"recipe {name}: {' '.join(chosen)}   (--recipe none leaves it out)")
