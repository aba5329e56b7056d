"""Options that only some runs use: of some models, of some optimizers, or next to another option."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable

from .training import Trainer


def _has_group(*names: str) -> Callable[[Trainer], bool]:
    """Return whether the optimizer of a run has one of these groups of optim.param_groups."""
    return lambda trainer: any(group["name"] in names for group in trainer.optimizer.param_groups)


def _uses_rmsprop(trainer: Trainer) -> bool:
    own = trainer.config.optimizer
    on_manifold = own.manifold == "cayley-rmsprop" and _has_group("manifold")(trainer)
    return on_manifold or any(name is not None and name.startswith("rmsprop") for name in (own.name, own.recurrent))


_STAYS = "a matrix that must stay orthogonal, as spectral and full-urnn have"
_USED_BY: dict[str, tuple[Callable[[Trainer], bool], str]] = {  # option: whether a run uses it, and what it is for
    "recurrent_optimizer": (_has_group("recurrent", "spectrum"), "a recurrent matrix with free parameters"),
    "recurrent_lr": (_has_group("recurrent", "spectrum", "manifold"), "an orthogonal recurrent matrix"),
    "manifold": (_has_group("manifold"), _STAYS),
    "manifold_lr": (_has_group("manifold"), _STAYS),
    "reorthogonalize_every": (_has_group("manifold"), _STAYS),
    "spectrum_lr": (_has_group("spectrum"), "a spectrum, as spectral has with a margin other than 0"),
    "rmsprop_decay": (_uses_rmsprop, "an optimizer that is RMSprop"),
    "record_sequences": (lambda trainer: trainer.config.record.gradients is not None, "--record-gradients"),
    "train_size": (
        lambda trainer: trainer.config.task.steps_per_epoch(1) is not None,
        "a variant with a fixed training set",
    ),
}


def say_unused(given: Container[str], trainers: Iterable[Trainer], say: Callable[[str], object]) -> None:
    """Report given options that do not change the training of any of these models."""
    trainers = list(trainers)
    models = ", ".join(dict.fromkeys(trainer.config.model.name for trainer in trainers))
    for option, (uses, what) in _USED_BY.items():
        if option in given and not any(map(uses, trainers)):
            say(f"--{option.replace('_', '-')} has no effect on {models}: it is for {what}.")
