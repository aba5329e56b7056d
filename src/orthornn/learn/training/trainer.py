"""The model that a configuration describes, with its optimizer and its updates."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from ..._recording import recording
from ...errors import ArgumentError, DeviceError
from ...saved.network import make_model
from ...saved.sizes import check_memory
from ..systems import SequenceModel
from ..systems.input_angles import sequences_of
from ..tasks.abilities import warm_start
from . import guards
from .config import RunConfig
from .learner import Learner, check_parts
from .penalized import check_penalties
from .processes import Processes

_FIRST = 256  # sequences that a model may look at before its first update, and the numbers in them
_NUMBERS = 1 << 22
_NUMBERS_WITH_TIMES = 1 << 17  # whose spectrum is no fast Fourier transform


class Trainer(Learner):
    """The model of a run and its updates, with the random numbers of the run's seed.

    warm: Whether initial values of the model are from the training data.
    """

    def __init__(
        self,
        config: RunConfig,
        processes: Processes | None = None,
        smaller_updates: str = guards.SMALLER_UPDATES,
    ) -> None:
        processes, task = processes or Processes(), config.task
        objective = task.objective()
        check_parts(objective, config, processes)
        outside = torch.get_rng_state()
        torch.manual_seed(config.seed)
        try:
            model, self.warm = _built(config)
            super().__init__(task.problem(), objective, model, config, processes, smaller_updates)
        finally:
            torch.set_rng_state(outside)


@recording()
def _built(config: RunConfig) -> tuple[SequenceModel, bool]:
    """Return a model with its initial values, and whether they are from the training data."""
    task = config.task
    if config.device != "cpu" and not torch.cuda.is_available():
        raise DeviceError(
            f"device is {config.device!r}, but torch {torch.__version__} sees no CUDA device. Use a machine with "
            f"an NVIDIA GPU and a CUDA build of torch, or device 'cpu'."
        )
    description = task.problem().schema
    check_memory(config.model, description)
    model = make_model(config.model, description)
    check_penalties(model, config.penalties)
    config.model.start(model.core, _first_sequences(config, model), model.elapsed)
    return model, warm_start(task, model)


def _first_sequences(config: RunConfig, model: SequenceModel) -> Iterator[torch.Tensor]:
    """Yield training sequences (T, I) as the core reads them, without vectors of series: 256, or all of an epoch; fewer if
    they are long, or have times.
    """
    task, size, numbers = config.task, config.batch_size, 0
    train = task.problem().train
    batches, every = -(-_FIRST // size), task.steps_per_epoch(size)
    for step in range(batches if every is None else max(1, min(batches, every))):
        inputs = train(step, size, config.seed).inputs
        if model.token_classes is not None:
            raise ArgumentError(
                f"Expected inputs of numbers, whose frequencies angles='inputs' asks for, but {task.name} has tokens. Pass "
                f"other angles, --angles full."
            )
        for sequence in sequences_of(inputs):
            yield sequence if model.series is None else sequence[:, :-1]
            numbers += sequence.numel()
            if numbers >= (_NUMBERS_WITH_TIMES if model.elapsed else _NUMBERS):
                return
