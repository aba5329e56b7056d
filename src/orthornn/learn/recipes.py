"""Named presets of the options of `orthornn train`: models and settings that were measured together.

What a recipe reached is in docs/results/stacked_layers.md. For the user's own data the recipes `table` (classes), `numbers`
and `forecast` count where no recipe is named; `--recipe none` is the command without one. What they reached is in
docs/results/own_data.md. cli/recipes.py puts their options into a command.
"""

from __future__ import annotations

from dataclasses import dataclass

_CLASSIFIER = "--optimizer adamw --schedule cosine --warmup 100 --label-smoothing 0.05 --clip-norm 1 --head mlp"
_TRAINING = (
    "--optimizer adamw --lr 0.003 --recurrent-lr 0.001 --decoupled-decay 0.05 --schedule cosine --warmup 50 --clip-norm 1 "
    "--patience 10"
)
_OTHERS = "--forget-bias 1"  # an LSTM that begins with 5 hardly forgets within a short sequence
NONE = "none"
"""The name that stands for no recipe."""
SKIPPED = "SKIPPED"
"""In a recipe: the value of --skipped, if it is given."""


@dataclass(frozen=True)
class Recipe:
    """Options under a name.

    summary: What they are for. options: As they are typed, for any model. model: The recipe's own model and options for it,
    which count if this model is trained. others: Options for other models that have them.
    """

    summary: str
    options: str
    model: str = ""
    others: str = ""

    def pairs(self, own_model: bool = True, others: bool = False) -> list[tuple[str, str]]:
        """Return (name, value) of each option. own_model, others: Whether those of the model, and of others, are among
        them.
        """
        words = [
            *(self.model.split() if own_model else []),
            *self.options.split(),
            *(self.others.split() if others else []),
        ]
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
        f"--parameters 12k --pool mean --dropout 0.2 --label-smoothing 0.1 {_TRAINING}",
        "--model blocks --decay True",
        _OTHERS,
    ),
    "numbers": Recipe(
        "numbers from your own sequences",
        f"--parameters 12k --pool mean {_TRAINING}",
        "--model blocks --decay True --angles inputs",
        _OTHERS,
    ),
    "forecast": Recipe(
        "forecasts of your own series",
        f"--parameters 12k --lags {SKIPPED} {_TRAINING}",
        "--model blocks --decay True",
        _OTHERS,
    ),
}
OF_TASKS = {"classify": "table", "regress": "numbers", "forecast": "forecast"}
"""The recipe of a task where none is named."""
