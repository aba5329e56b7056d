"""The inputs and outputs of a network: description.json, so that a run can be used without its training data.

input_size, output_size    I and O
input                      "tokens" or "real"
output                     "all" (every step) or "last"
says                       "classes" (the largest output wins), "values", or "probabilities" (each output's own)
quantiles                  which quantiles of each forecast the outputs are, those of one forecast together
leads                      how many steps later than its step each input is, where some are; those are the last ones
series, embedding          the names of the series that have a vector of their own, and how many numbers it has; the last
                           input is then the number of the series, or how many there are for any other series
time_unit                  the time between steps that is 1 for the network, where it reads it: in seconds, or in the unit of
                           the column of times; the last input is then the time since the step before
sample_rate                of sounds, in Hz, at which the network reads them. Unless there is `sound`, a step is a sample
sound                      which features of them a step is, and the samples of a window and of a hop
scale, offset, order, columns, channels, vocabulary, labels, target_scale, target_offset, target_transform,
transformed_inputs         what was done to the data, where it was done; see Task.preprocessing
"""

from __future__ import annotations

from typing import Any

from torch import Tensor

from ..tasks import Task


def describe(task: Task) -> dict[str, Any]:
    """Return what description.json holds."""
    targets = task.train_batch(0, 1, 0).targets
    values = targets if isinstance(targets, Tensor) else targets.data
    return {
        "input_size": task.input_size,
        "output_size": task.output_size,
        "input": task.input,
        "output": task.output,
        "says": "values" if values.is_floating_point() else "classes",
        **task.preprocessing(),
    }
