"""Named presets of the options of `orthornn train`: models and settings that were measured together.

`orthornn train pixel-mnist --recipe blocks --seed 1` is the command with the recipe's options in it; options that are given
too take their place. What a recipe reached is in docs/how_to/stacked_layers.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..._checks import check_choice
from ...errors import ArgumentError

_CLASSIFIER = (
    "--optimizer adamw --decoupled-decay 0.02 --schedule cosine --warmup 100 --label-smoothing 0.05 --clip-norm 1 "
    "--batch-size 100 --head mlp"
)
# Options that exclude one another: one that is given replaces the other in a recipe.
_EITHER = (("steps", "epochs"), ("hidden-size", "parameters"))


@dataclass(frozen=True)
class Recipe:
    """Options under a name. summary: What they are for. options: As they are typed."""

    summary: str
    options: str

    def pairs(self) -> list[tuple[str, str]]:
        """Return (name, value) of each option."""
        words = self.options.split()
        return [(name.removeprefix("--"), value) for name, value in zip(words[::2], words[1::2], strict=True)]


RECIPES = {
    "linear": Recipe(
        "one linear orthogonal layer, two reflections on rotations, and a perceptron: classes of whole sequences",
        f"--model ornn-rotations --nonlinearity identity --reflections 2 --hidden-size 256 --head-width 56 --lr 0.002 "
        f"--epochs 25 {_CLASSIFIER}",
    ),
    "blocks": Recipe(
        "two blocks of strict rotations, the first read every 14 steps: classes of whole sequences",
        f"--model blocks --parameters 16400 --stride 14 --head-width 48 --lr 0.004 --epochs 30 {_CLASSIFIER}",
    ),
    "blocks-decay": Recipe(
        "the same with a trained decay of each rotation, which is not orthogonal",
        f"--model blocks --decay True --parameters 16400 --stride 14 --head-width 48 --lr 0.004 --epochs 30 "
        f"{_CLASSIFIER}",
    ),
}


def expand(words: Sequence[str]) -> list[str]:
    """Return the words with the options of `--recipe NAME` in its place, but for those that are given besides."""
    joined = [part for word in words for part in (word.split("=", 1) if word.startswith("--recipe=") else [word])]
    if "--recipe" not in joined:
        return joined
    at = joined.index("--recipe")
    if at + 1 == len(joined) or "--recipe" in joined[at + 1 :]:
        raise ArgumentError(
            f"Expected one name after --recipe, but got {' '.join(joined[at:])}. Known: {', '.join(RECIPES)}."
        )
    recipe = RECIPES[check_choice("recipe", joined[at + 1], RECIPES)]
    rest = [*joined[:at], *joined[at + 2 :]]
    given = {word[2:].partition("=")[0].replace("_", "-") for word in rest if word.startswith("--")}
    given |= {name.removeprefix("no-") for name in given}
    for pair in _EITHER:
        if given & set(pair):
            given |= set(pair)
    return [*rest, *(word for name, value in recipe.pairs() if name not in given for word in (f"--{name}", value))]
