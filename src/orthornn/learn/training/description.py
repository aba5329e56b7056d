"""The inputs and outputs of a network, in description.json: what is needed to use a run without its training data.

input_size, output_size    I and O
input                      "tokens" or "real"
output                     "all" (every step) or "last"
says                       "classes" (the largest output wins), "values", or "probabilities" (each output separately)
quantiles                  the quantiles of each forecast; the outputs of one forecast are adjacent
leads                      how many steps later than its step each input is, if some are; those inputs come last
series, embedding          the names of the series that have a vector, and its size; the last
                           input is then the number of the series, or how many there are for any other series
time_unit                  the time between steps that is 1 for the network, if it reads it: in seconds, or in the unit of
                           the column of times; the last input is then the time since the previous step
sample_rate                of sounds, in Hz, at which the network reads them. Unless there is `sound`, a step is a sample
sound                      which features of them a step is, and the samples of a window and of a hop
scale, offset, order, columns, channels, vocabulary, labels, target_scale, target_offset, target_transform,
transformed_inputs         the preprocessing of the data, if any; see Task.preprocessing
"""

from __future__ import annotations

from typing import Any

from torch import Tensor

from ..tasks import Task


def describe(task: Task) -> dict[str, Any]:
    """Return the content of description.json."""
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
