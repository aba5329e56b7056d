"""Named presets of options: models and settings that were measured together.

docs/results/stacked_layers.md reports the results of the recipes. For user data, the recipes `table` (classes),
`numbers` and `forecast` apply if no recipe is named; `none` disables them. docs/results/own_data.md reports their
results.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from .._checks import check_choice
from .auto import AUTO, CANDIDATES
from .fields import spelled
from .options import Options
from .systems import MODEL_OPTIONS, MODELS, Model
from .tasks import Forecast, Task

SKIPPED: Any = object()
"""Placeholder in a recipe for the skipped steps of a forecast."""
NONE = "none"
"""The name for no recipe."""
_CLASSIFIER = dict(optimizer="adamw", schedule="cosine", warmup=100, label_smoothing=0.05, clip_norm=1, head="mlp")
_TRAINING = dict(
    **dict(optimizer="adamw", lr=0.003, recurrent_lr=0.001, decoupled_decay=0.05, schedule="cosine", warmup=50),
    **dict(clip_norm=1, patience=10),
)
_FORGETTING = dict(model="blocks", decay=True)
_OTHERS = dict(forget_bias=1)  # an LSTM that begins with 5 hardly forgets within a short sequence
# Options that exclude one another: one that is given replaces the other in a recipe.
_EITHER = ({"steps", "epochs"}, {"hidden_size", "parameters"})
_MOST_OF_LAGS = 0.75  # of a recipe's parameters
_WITH_DECAY = {"decay_in", "r_min"}
_WARMUP_PARTS = 5
Say = Callable[[str], object]


@dataclass(frozen=True)
class Recipe:
    """A named set of option values.

    summary: Purpose. options: Options for any model. model: The recipe's model and its options, which apply if this
    model is trained. others: Options for other models that have them.
    """

    summary: str
    options: Mapping[str, Any]
    model: Mapping[str, Any] = field(default_factory=dict)
    others: Mapping[str, Any] = field(default_factory=dict)

    def values(self, own_model: bool = True, others: bool = False, skipped: int = Forecast.skipped) -> dict[str, Any]:
        """Return its options.

        Args:
            own_model: Whether to include the options of the recipe's model.
            others: Whether to include the options for other models.
            skipped: Replacement of `SKIPPED`.
        """
        found = {**(self.model if own_model else {}), **self.options, **(self.others if others else {})}
        return {name: skipped if value is SKIPPED else value for name, value in found.items()}


# fmt: off
RECIPES = {
    "linear": Recipe(
        "one linear orthogonal layer, two reflections on rotations, and a perceptron: classes of whole sequences",
        dict(model="ornn-rotations", nonlinearity="identity", reflections=2, hidden_size=256, head_width=56, lr=0.002,
             epochs=25, batch_size=100, decoupled_decay=0.02, **_CLASSIFIER),
    ),
    "linear-deep": Recipe(
        "one linear orthogonal layer, rotations alone, and two hidden layers that read its last state",
        dict(model="blocks", depth=1, mixing="gelu", state_size=256, hidden_size=48, head_width=48, lr=0.004, epochs=40,
             batch_size=250, decoupled_decay=0.02, **_CLASSIFIER),
    ),
    "blocks": Recipe(
        "two blocks of strict rotations, the first read every 14 steps: classes of whole sequences",
        dict(model="blocks", parameters=16400, stride=14, head_width=48, lr=0.004, epochs=30, batch_size=100,
             decoupled_decay=0.02, **_CLASSIFIER),
    ),
    "blocks-decay": Recipe(
        "the same with a trained decay of each rotation, which is not orthogonal",
        dict(**_FORGETTING, parameters=16400, stride=14, head_width=48, lr=0.004, epochs=30, batch_size=100,
             decoupled_decay=0.02, **_CLASSIFIER),
    ),
    "blocks-first": Recipe(
        "two blocks, of which only the first forgets, with dropout and more weight decay",
        dict(**_FORGETTING, decay_in="first", mixing="gelu", parameters=16400, stride=14, head_width=48, dropout=0.1,
             lr=0.004, epochs=25, batch_size=100, decoupled_decay=0.1, **_CLASSIFIER),
    ),
    "table": Recipe(
        "classes of your own sequences",
        dict(parameters="12k", pool="mean", dropout=0.2, label_smoothing=0.1, **_TRAINING), _FORGETTING, _OTHERS,
    ),
    "numbers": Recipe(
        "numbers from your own sequences",
        dict(parameters="12k", pool="mean", **_TRAINING), dict(**_FORGETTING, angles="inputs"), _OTHERS,
    ),
    "forecast": Recipe(
        "forecasts of your own series", dict(parameters="12k", lags=SKIPPED, **_TRAINING), _FORGETTING, _OTHERS
    ),
}
# fmt: on
OF_TASKS = {"classify": "table", "regress": "numbers", "forecast": "forecast"}
"""The recipe of each task if none is named."""


def with_recipe(options: Options, own_model: bool = True) -> Options:
    """Return the options completed by their recipe; given options take precedence.

    Options of the recipe that are meaningless next to the given ones are left out: those of another model, and the
    width of a head that has none. If no recipe is named, the recipe of the task applies, if it has one (`OF_TASKS`).

    own_model: Whether the recipe chooses the model if none is named; False for a comparison of `models`.
    """
    name, values = options["recipe"] or OF_TASKS.get(options.task.name, NONE), options.values
    if name == NONE:
        return options
    recipe, named = RECIPES[check_choice("recipe", name, [*RECIPES, NONE])], _named(values, own_model)
    searched = own_model and named == [AUTO]
    trains_its_own = not recipe.model or (own_model and not named) or bool({"all", recipe.model["model"]} & {*named})
    found = recipe.values(
        searched or trains_its_own, others=not searched, skipped=values.get("skipped", Forecast.skipped)
    )
    left = {*values} | _meaningless(values) | _of_other_models(found, named, own_model)
    left = left.union(*(pair for pair in _EITHER if pair & {*values}))
    if values.get("every_step") or options.task.output == "all":
        left |= {"pool", "label_smoothing"}
    return options.choosing(**{name: value for name, value in found.items() if name not in left})


def defaults_of(task: type[Task]) -> dict[str, Any]:
    """Return the values that a recipe gives to options in a training on this task that names none of them."""
    return dict(with_recipe(Options(task, {})).chosen)


def limit_warmup(options: Options, task: Task, say: Say) -> Options:
    """Limit a warmup chosen by a recipe to a fifth of the updates, report it, and return the options."""
    warmup = options.chosen.get("warmup", 0)
    limited = min(warmup, options.steps(task) // _WARMUP_PARTS) if warmup else 0
    if limited == warmup:
        return options
    say(f"warmup: {limited}, a fifth of the updates, instead of the recipe's {warmup}   (--warmup chooses another)")
    return options.choosing(warmup=limited)


def leave_room_for_network(options: Options, task: Task, say: Say) -> Options:
    """Raise a parameter budget chosen by a recipe if lags leave little of it, report it, and return the options."""
    lags = options.of_model(task).get("lags")
    if "parameters" not in options.chosen or not lags:
        return options
    budget: int = options["parameters"]
    schema = task.problem().schema
    of_lags = schema["output_size"] * lags * schema["input_size"]
    if of_lags <= _MOST_OF_LAGS * budget:
        return options
    say(
        f"parameters: {budget + of_lags}, the recipe's {budget} plus those of {lags} lags   "
        f"(--parameters or --lags chooses others)"
    )
    return options.choosing(parameters=budget + of_lags)


def say_recipe(options: Options, say: Say) -> None:
    """Report the options that a recipe chose."""
    name = OF_TASKS.get(options.task.name)
    if name is not None and "recipe" not in options.given and options.chosen:
        say(f"recipe {name}: {spelled(options.chosen)}   (--recipe none leaves it out)")


def _named(values: Mapping[str, Any], own_model: bool) -> list[str]:
    return [name.strip() for name in values.get("model" if own_model else "models", "").split(",") if name.strip()]


def _meaningless(values: Mapping[str, Any]) -> set[str]:
    """Return the options that are meaningless next to these, since both together raise an error."""
    found = set()
    if values.get("head") == "linear":
        found.add("head_width")
    if values.get("decay") is False:
        found |= _WITH_DECAY
    if values.get("schedule") == "plateau":
        found.add("warmup")
    if values.get("optimizer", "adamw") != "adamw":
        found.add("decoupled_decay")
    return found


def _of_other_models(recipe: Mapping[str, Any], named: list[str], own_model: bool) -> set[str]:
    """Return the options of a recipe for its model, if other models are trained.

    Args:
        recipe: Options of the recipe.
        named: Names of the models.
        own_model: Whether the recipe chooses the model if none is named.
    """
    own = recipe.get("model", "")
    alone, searched = own_model and named in ([], [own]), own_model and named == [AUTO]
    trained = [own] if alone else list(MODELS) if named == ["all"] else named
    if searched:
        trained = [str(candidate["model"]) for candidate in CANDIDATES.values()]
    kinds = [MODELS[name] for name in trained if name in MODELS] or [Model]
    has = {option for kind in kinds for option in kind.options()}
    left = {option for option in MODEL_OPTIONS if option not in has}
    if not own_model:
        left.add("model")
    if searched:  # some of the candidates forget, and others do not
        left |= {"decay", *_WITH_DECAY}
    return left if alone or own in named else left | {"hidden_size"}
