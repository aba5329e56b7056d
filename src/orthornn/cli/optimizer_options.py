"""Options of the optimizer that only some models have a use for."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ..learn.training import Trainer
from .arguments import options_in
from .lines import say

_USED_BY = {  # option: the groups of optim.param_groups that it is for, and what they hold
    "recurrent-optimizer": (frozenset({"recurrent", "spectrum"}), "a recurrent matrix with free parameters"),
    "recurrent-lr": (frozenset({"recurrent", "spectrum", "manifold"}), "an orthogonal recurrent matrix"),
    "manifold": (frozenset({"manifold"}), "a matrix that must stay orthogonal, as spectral and full-urnn have"),
    "manifold-lr": (frozenset({"manifold"}), "a matrix that must stay orthogonal, as spectral and full-urnn have"),
    "spectrum-lr": (frozenset({"spectrum"}), "a spectrum, as spectral has with a margin other than 0"),
}


def announce_unused(words: Sequence[str], trainers: Iterable[Trainer]) -> None:
    """Print which options among the words change the training of none of these models."""
    trainers = list(trainers)
    groups = {group["name"] for trainer in trainers for group in trainer.optimizer.param_groups}
    models = ", ".join(dict.fromkeys(trainer.config.model.name for trainer in trainers))
    for option in (name for name in _USED_BY if name in options_in(words)):
        needed, what = _USED_BY[option]
        if groups.isdisjoint(needed):
            say(f"--{option} has no effect on {models}: it is for {what}.")
