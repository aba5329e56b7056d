"""`--recipe NAME` of `orthornn train` and `orthornn compare`: the options of a preset in its place.

`orthornn train pixel-mnist --recipe blocks --seed 1` is the command with the recipe's options in it; options that are given
too take their place.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from .._checks import check_choice
from ..errors import ArgumentError
from ..learn.auto import AUTO, CANDIDATES
from ..learn.recipes import NONE, OF_TASKS, RECIPES, SKIPPED, Recipe
from ..learn.systems import MODEL_OPTIONS, MODELS, Model
from ..learn.tasks import TASKS, Forecast
from .arguments import ArgumentsT, options_in
from .lines import say

# Options that exclude one another: one that is given replaces the other in a recipe.
_EITHER = (("steps", "epochs"), ("hidden-size", "parameters"))
_MOST_OF_LAGS = 0.75  # of a recipe's parameters
_WITH_DECAY = {"decay-in", "r-min"}


def expand(words: Sequence[str], own_model: bool = True) -> list[str]:
    """Return the words with the options of `--recipe NAME` in its place, but for those that are given besides.

    Options of the recipe that have no meaning next to those that are given are left out too: those of another model, and
    the width of a head that has none. Without the option the task's recipe counts, if it has one (`OF_TASKS`).

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
    values = options_in(rest)
    given = {word[2:].partition("=")[0].replace("_", "-") for word in rest if word.startswith("--")}
    given |= {name.removeprefix("no-") for name in given}
    for pair in _EITHER:
        if given & set(pair):
            given |= set(pair)
    searched = own_model and _named(values, own_model) == [AUTO]
    pairs = recipe.pairs(searched or _trains_its_own(recipe, values, own_model), others=not searched)
    given |= _meaningless(values) | _of_other_models(dict(pairs), values, own_model)
    if "every-step" in values or (joined[0] in TASKS and TASKS[joined[0]].output == "all"):
        given |= {"pool", "label-smoothing"}
    skipped = str(values.get("skipped", Forecast.skipped))
    pairs = [(name, skipped if value == SKIPPED else value) for name, value in pairs]
    return [*rest, *(word for name, value in pairs if name not in given for word in (f"--{name}", value))]


def _trains_its_own(recipe: Recipe, values: Mapping[str, str], own_model: bool) -> bool:
    """Return whether the recipe's own model is trained, or among those that are compared."""
    named = _named(values, own_model)
    return not recipe.model or (own_model and not named) or "all" in named or recipe.model.split()[1] in named


def _named(values: Mapping[str, str], own_model: bool) -> list[str]:
    return [name.strip() for name in values.get("model" if own_model else "models", "").split(",") if name.strip()]


def _meaningless(values: Mapping[str, str]) -> set[str]:
    """Return the options that have no meaning next to these, which are errors together."""
    found = set()
    if values.get("head") == "linear":
        found.add("head-width")
    if values.get("decay", "").lower() == "false":
        found |= _WITH_DECAY
    if values.get("schedule") == "plateau":
        found.add("warmup")
    if values.get("optimizer", "adamw") != "adamw" and values.get("recurrent-optimizer") != "adamw":
        found.add("decoupled-decay")
    return found


def _of_other_models(recipe: Mapping[str, str], values: Mapping[str, str], own_model: bool) -> set[str]:
    """Return the options of a recipe that belong to its own model, if that is not, or not only, what is trained.

    Args:
        recipe: Its options.
        values: Those that are given.
        own_model: Whether the recipe chooses the model, if none is named.
    """
    named, own = _named(values, own_model), recipe.get("model", "")
    alone, searched = own_model and named in ([], [own]), own_model and named == [AUTO]
    trained = [own] if alone else MODELS if named == ["all"] else named
    if searched:
        trained = [str(candidate["model"]) for candidate in CANDIDATES.values()]
    kinds = [MODELS[name] for name in trained if name in MODELS] or [Model]
    has = {option for kind in kinds for option in kind.options()}
    left = {option.replace("_", "-") for option in MODEL_OPTIONS if option not in has}
    if not own_model:
        left.add("model")
    if searched:  # some of the candidates forget, and others do not
        left |= {"decay", *_WITH_DECAY}
    return left if alone or own in named else left | {"hidden-size"}


def limit_warmup(arguments: ArgumentsT, words: Sequence[str], announced: bool = True) -> ArgumentsT:
    """Return the arguments with at most a fifth of the updates as warmup, if a recipe chose it.

    Args:
        arguments: Those of the expanded words.
        words: As they were typed: a warmup among them stays.
        announced: Whether a line tells it.
    """
    if not arguments.warmup or "warmup" in options_in(words):
        return arguments
    limited = arguments.limited_warmup()
    if limited == arguments.warmup:
        return arguments
    if announced:
        say(
            f"warmup: {limited}, a fifth of the updates, in place of the recipe's {arguments.warmup}   "
            f"(--warmup chooses another)"
        )
    return dataclasses.replace(arguments, warmup=limited)


def leave_room_for_network(arguments: ArgumentsT, words: Sequence[str], announced: bool = True) -> ArgumentsT:
    """Return the arguments with more parameters, if a recipe chose their number and lags leave a network few of them.

    Args:
        arguments: Those of the expanded words.
        words: As they were typed: a number of parameters among them stays.
        announced: Whether a line tells it.
    """
    given, task = arguments.given_model_options(), arguments.task
    budget, lags = given.get("parameters"), given.get("lags")
    if budget is None or not lags or {"parameters", "hidden-size"} & options_in(words).keys():
        return arguments
    of_lags = task.output_size * lags * task.input_size
    if of_lags <= _MOST_OF_LAGS * budget:
        return arguments
    if announced:
        say(
            f"parameters: {budget + of_lags}, the recipe's {budget} and those of {lags} lags   "
            f"(--parameters or --lags chooses others)"
        )
    options = dataclasses.replace(arguments.model_options, parameters=str(budget + of_lags))
    return dataclasses.replace(arguments, model_options=options)


def announce_recipe(words: Sequence[str], expanded: Sequence[str]) -> None:
    """Print which options a recipe chose that nobody named."""
    name = OF_TASKS.get(words[0]) if words else None
    if name is None or any(word.partition("=")[0] == "--recipe" for word in words):
        return
    chosen = expanded[len(words) :]
    if chosen:
        say(f"recipe {name}: {' '.join(chosen)}   (--recipe none leaves it out)")
