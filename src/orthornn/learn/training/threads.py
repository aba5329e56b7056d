"""How many threads of torch a run has use for.

The compiled kernels share out the sequences of a batch once per pass. Other networks make a step at a time, and their
threads meet several times in each: while there is little to do between two meetings, they wait more than they work.
"""

from __future__ import annotations

import os
from collections.abc import Iterable

import torch

from ..._checks import check_integer
from ...cores import usable_cores
from ...kernels.backends.cpp import extension
from ...modules import DeltaRNN, OrthogonalBlocks, OrthogonalRNN, ReflectionRNN
from ...saved.network import make_model
from .config import RunConfig

_WHOLE = (OrthogonalRNN, OrthogonalBlocks, ReflectionRNN, DeltaRNN)  # their kernels run over whole sequences
_MOST = 64
SMALL = 2_000_000
"""Multiply-adds of a step of the whole batch from which on a second thread is worth its waiting: an LSTM of 128 units
with 50 sequences has 3.3 million, and is as fast with one thread as with two on two cores that others use too; one of
64 units with 32 sequences takes half as long again with two."""


def useful_threads(config: RunConfig) -> int:
    """Return the number of usable cores, or 1 for a small network that is computed step by step."""
    cores = usable_cores()
    if cores == 1 or config.device != "cpu":
        return cores
    with torch.random.fork_rng(devices=[]):
        core = make_model(config.model, config.task.problem().schema, device="meta").core
    if isinstance(core, _WHOLE) and extension.missing() is None:
        return cores
    per_step = config.batch_size * sum(parameter.numel() for parameter in core.parameters())
    return 1 if per_step < SMALL else cores


def most_threads() -> int:
    """Return how many threads a machine of today has use for; torch ends without a word at some number above."""
    return max(_MOST, os.cpu_count() or 1)


def set_threads(count: int) -> None:
    """Set how many threads torch uses. ArgumentError for less than 1 or more than `most_threads`."""
    torch.set_num_threads(check_integer("threads", count, 1, most_threads()))


def choose_threads(configs: Iterable[RunConfig]) -> None:
    """Let torch use no more threads than each of these runs has use for, unless OMP_NUM_THREADS says how many."""
    if "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(min(torch.get_num_threads(), *map(useful_threads, configs)))
