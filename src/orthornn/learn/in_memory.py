"""The training of a network in memory, by the options and in the loop of every other one; nothing is written or
shown.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

from ..cores import limited_threads
from ..errors import NonFiniteError
from .fit import Fit
from .options import Options
from .runs.selection import BestWeights, Selection
from .systems import Model, SequenceModel
from .tasks import Task
from .training.guards import SMALLER_UPDATES
from .training.threads import useful_threads
from .training.trainer import Trainer


class Fitted(NamedTuple):
    """A network that was trained in memory: with the weights of the best validation, its metrics, and the updates
    made.
    """

    model: SequenceModel
    best: Mapping[str, float]
    steps: int


def train_in_memory(
    task: Task, model: Model, options: Mapping[str, Any], smaller_updates: str = SMALLER_UPDATES
) -> Fitted:
    """Train a network on a task; the test is not looked at.

    A validation whose loss is not finite ends the training, if there is a better one to return.

    Args:
        task: Data and loss.
        model: The network.
        options: Values of the options of a training by name.
        smaller_updates: What errors tell to do for smaller updates.

    Raises:
        ArgumentError: If an option is unknown or has an invalid value.
        NonFiniteError: If the training loss, or the loss of the first validation, is NaN or infinite.
    """
    config = Options(task, options).config(task, model)
    config.optimizer.check_learns()
    trainer = Trainer(config, smaller_updates=smaller_updates)
    best = BestWeights(Selection(task.metric, higher_is_better=task.higher_is_better), config.patience)
    fit = Fit(trainer, [best], validate_first=trainer.warm)
    with limited_threads(useful_threads(config)):
        try:
            fit.advance(lambda seconds: False)
            fit.finish(test=False)
        except NonFiniteError:
            if best.selection.best is None or fit.validation is None or math.isfinite(fit.validation["loss"]):
                raise
    best.load(trainer.model)
    assert best.selection.best is not None
    return Fitted(trainer.model.eval(), best.selection.best, trainer.step)
