"""Named presets of the options of `orthornn train`: models and settings that were measured together.

`orthornn train pixel-mnist --recipe blocks --seed 1` is the command with the recipe's options in it; options that are given
too take their place. What a recipe reached is in docs/how_to/stacked_layers.md.

For the user's own data the recipes `table` (classes), `numbers` and `forecast` count where no recipe is named; `--recipe
none` is the command without one. What they reached is in docs/results/own_data.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..._checks import check_choice
from ...errors import ArgumentError
from ..tasks import Forecast
from .arguments import options_in
from .lines import say

_CLASSIFIER = "--optimizer adamw --schedule cosine --warmup 100 --label-smoothing 0.05 --clip-norm 1 --head mlp"
# Options that exclude one another: one that is given replaces the other in a recipe.
_EITHER = (("steps", "epochs"), ("hidden-size", "parameters"))


_TRAINING = (
    "--optimizer adamw --lr 0.003 --recurrent-lr 0.001 --decoupled-decay 0.05 --schedule cosine --warmup 50 --clip-norm 1 "
    "--patience 10"
)
NONE = "none"
_SKIPPED = "SKIPPED"  # the value of --skipped, if it is given


@dataclass(frozen=True)
class Recipe:
    """Options under a name.

    summary: What they are for. options: As they are typed, for any model. model: Options of the recipe's own model, with its
    name; they count if no other model is named.
    """

    summary: str
    options: str
    model: str = ""

    def pairs(self, own_model: bool = True) -> list[tuple[str, str]]:
        """Return (name, value) of each option. own_model: Whether those of the model are among them."""
        words = [*(self.model.split() if own_model else []), *self.options.split()]
        return [(name.removeprefix("--"), value) for name, value in zip(words[::2], words[1::2], strict=True)]


RECIPES = {
    "linear": Recipe(
        "one linear orthogonal layer, two reflections on rotations, and a perceptron: classes of whole sequences",
        f"--model ornn-rotations --nonlinearity identity --reflections 2 --hidden-size 256 --head-width 56 --lr 0.002 "
        f"--epochs 25 --batch-size 100 --decoupled-decay 0.02 {_CLASSIFIER}",
    ),
    "linear-deep": Recipe(
        "one linear orthogonal layer, rotations alone, and two hidden layers that read its last state",
        "--model blocks --depth 1 --mixing gelu --state-size 256 --hidden-size 48 --head-width 48 --lr 0.004 --epochs 40 "
        f"--batch-size 250 --decoupled-decay 0.02 {_CLASSIFIER}",
    ),
    "blocks": Recipe(
        "two blocks of strict rotations, the first read every 14 steps: classes of whole sequences",
        f"--model blocks --parameters 16400 --stride 14 --head-width 48 --lr 0.004 --epochs 30 "
        f"--batch-size 100 --decoupled-decay 0.02 {_CLASSIFIER}",
    ),
    "blocks-decay": Recipe(
        "the same with a trained decay of each rotation, which is not orthogonal",
        f"--model blocks --decay True --parameters 16400 --stride 14 --head-width 48 --lr 0.004 --epochs 30 "
        f"--batch-size 100 --decoupled-decay 0.02 {_CLASSIFIER}",
    ),
    "blocks-first": Recipe(
        "two blocks, of which only the first forgets, with dropout and more weight decay",
        f"--model blocks --decay True --decay-in first --mixing gelu --parameters 16400 --stride 14 --head-width 48 "
        f"--dropout 0.1 --lr 0.004 --epochs 25 --batch-size 100 --decoupled-decay 0.1 {_CLASSIFIER}",
    ),
    "table": Recipe(
        "classes of your own sequences",
        f"--parameters 12k --pool mean --dropout 0.2 {_TRAINING}",
        "--model blocks --decay True",
    ),
    "numbers": Recipe(
        "numbers from your own sequences",
        f"--parameters 12k --pool mean {_TRAINING}",
        "--model blocks --decay True",
    ),
    "forecast": Recipe(
        "forecasts of your own series",
        f"--parameters 12k --lags {_SKIPPED} {_TRAINING}",
        "--model blocks --decay True",
    ),
}
OF_TASKS = {"classify": "table", "regress": "numbers", "forecast": "forecast"}
"""The recipe of a task where none is named."""


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
    pairs = [(name, skipped if value == _SKIPPED else value) for name, value in pairs]
    return [*rest, *(word for name, value in pairs if name not in given for word in (f"--{name}", value))]


def announce_recipe(words: Sequence[str], expanded: Sequence[str]) -> None:
    """Print which options a recipe chose that nobody named."""
    name = OF_TASKS.get(words[0]) if words else None
    if name is None or any(word.partition("=")[0] == "--recipe" for word in words):
        return
    chosen = expanded[len(words) :]
    if chosen:
        say(f"recipe {name}: {' '.join(chosen)}   (--recipe none leaves it out)")
