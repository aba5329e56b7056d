"""Data to learn from: batches for training, validation and test, and what a network must know of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from ..._checks import check_integer


class Batch(NamedTuple):
    """inputs: (T, B, I) float32, or (T, B) int64 where the input is "tokens"; packed if lengths differ.

    targets: the classes or values to predict. At every step: (T, B) int64 or (T, B, O) float32, packed like the
        inputs. At the last: (B,) int64 or (B, O) float32, in the order of the batch, not of the packing.
    """

    inputs: Any  # Tensor | PackedSequence: each task has one of them, or both
    targets: Any


def in_batches(count: int, batch_size: int, make: Callable[[np.ndarray], Batch]) -> Iterator[Batch]:
    """Yield what `make` makes of the numbers of `count` sequences, in order, at most `batch_size` of them each time."""
    check_integer("batch_size", batch_size, 1)
    for start in range(0, count, batch_size):
        yield make(np.arange(start, min(start + batch_size, count)))


@dataclass(frozen=True)
class Problem:
    """Data, equal for equal arguments, which makes a run resumable at any step without the state of a generator.

    Args:
        schema: The content of description.json: what is needed to use a network without its training data.
        train: Returns the batch of a step (0, 1, ...), from (step, batch_size, seed).
        validation: Returns the validation sequences, always the same ones, in batches of at most a size.
        test: Returns the test sequences likewise.

    The schema travels with the weights. It has

    input_size, output_size    I and O
    input                      "tokens" (int64 classes, read as one-hot) or "real"
    output                     "all" (every step) or "last"
    says                       "classes" (the largest output wins), "values", or "probabilities" (each output separately)

    and what was done to the data, so that new data can be treated alike; what is absent was not done:

    scale, offset              the input is raw * scale + offset (numbers, or one a channel)
    order                      the raw steps, in the order in which they are read
    vocabulary, labels         the symbols of the token classes; the names of the outputs
    columns, channels          the columns of a table, and the inputs that they become
    target_scale, target_offset    the output of the network is (raw - target_offset) / target_scale
    target_transform           "log" or "log1p", which comes before these for targets, and before scale and offset for the
                               inputs of which "transformed_inputs" has the places
    quantiles                  the quantiles of each forecast; the outputs of one forecast are adjacent
    leads                      how many steps later than its step each input is, if some are; those inputs come last
    series, embedding          the names of the series that have a vector, and its size; the last
                               input is then the number of the series, or how many there are for any other series
    time_unit                  the time between steps that is 1 for the network, if it reads it: in seconds, or in the unit
                               of the column of times; the last input is then the time since the previous step
    sample_rate                of sounds, in Hz, at which the network reads them. Unless there is `sound`, a step is a sample
    sound                      which features of them a step is, and the samples of a window and of a hop
    """

    schema: dict[str, Any]
    train: Callable[[int, int, int], Batch]
    validation: Callable[[int], Iterator[Batch]]
    test: Callable[[int], Iterator[Batch]]
