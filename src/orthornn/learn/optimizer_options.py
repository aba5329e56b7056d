"""Options of the optimizer that only some models use."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable

from .training import Trainer

_USED_BY = {  # option: the groups of optim.param_groups that it is for, and what they hold
    "recurrent_optimizer": (frozenset({"recurrent", "spectrum"}), "a recurrent matrix with free parameters"),
    "recurrent_lr": (frozenset({"recurrent", "spectrum", "manifold"}), "an orthogonal recurrent matrix"),
    "manifold": (frozenset({"manifold"}), "a matrix that must stay orthogonal, as spectral and full-urnn have"),
    "manifold_lr": (frozenset({"manifold"}), "a matrix that must stay orthogonal, as spectral and full-urnn have"),
    "spectrum_lr": (frozenset({"spectrum"}), "a spectrum, as spectral has with a margin other than 0"),
}


def say_unused(given: Container[str], trainers: Iterable[Trainer], say: Callable[[str], object]) -> None:
    """Report given options that do not change the training of any of these models."""
    trainers = list(trainers)
    groups = {group["name"] for trainer in trainers for group in trainer.optimizer.param_groups}
    models = ", ".join(dict.fromkeys(trainer.config.model.name for trainer in trainers))
    for option, (needed, what) in _USED_BY.items():
        if option in given and groups.isdisjoint(needed):
            say(f"--{option.replace('_', '-')} has no effect on {models}: it is for {what}.")
