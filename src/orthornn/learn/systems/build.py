"""A model built: its core with a readout, at its width or at the largest that meets its parameter budget.

A count is the number of trainable scalars as the papers count them: a matrix that is held on the Stiefel manifold
counts that manifold's dimension (n^2 for U(n)), not the entries it is stored in; see BoundParametrization.count.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import torch
from torch import nn

from ..._checks import check_integer
from ...errors import ArgumentError
from ...modules import GORU, OrthogonalBlocks, OrthogonalRNN, Transition
from ...modules.network import check_takes_dt
from .model import DEFAULT_HIDDEN_SIZE, Model, OrthogonalModel, Where
from .pooling import PARTS
from .recent_steps import RecentSteps
from .registry import model_named
from .sequence_model import SequenceModel
from .series_vectors import LARGEST_VECTOR, SeriesVectors

_HEAD_WIDTH = 64


def build(
    model: str | Model,
    input_size: int,
    output_size: int,
    *,
    output: Literal["all", "last"] = "last",
    tokens: bool = False,
    known_inputs: int = 0,
    last_input: tuple[int, int] | Literal["elapsed"] | None = None,
    device: torch.device | str | int | None = None,
    dtype: torch.dtype | None = None,
    **options: Any,
) -> SequenceModel:
    """Build a model; its initial values come from torch's global generator.

    Args:
        model: A model, or the name of one, whose size and options then follow as keywords; see the model's class.
        input_size: I.
        output_size: O.
        output: ``"all"`` to read out every step, ``"last"`` for the last step only; see :class:`SequenceModel`.
        tokens: Whether the input is int64 classes 0..input_size - 1.
        known_inputs: How many of the inputs, the last ones, are values of later steps, known ahead.
        last_input: What the last input is; those that are known ahead are before it. (S, K): the number of one of S
            series, which have vectors of K numbers. "elapsed": the time since the step before, which a core of
            rotations turns and decays over. Default: None, a number like the others.
        device: Device of the parameters.
        dtype: Dtype of the parameters.
        **options: ``hidden_size`` or ``parameters``, and the options of the model of this name.

    Raises:
        ArgumentError: If there is no such model, if both sizes are given, if no width meets the budget, or if the model
            does not have an option.

    Example::

        >>> build("lstm", 1, 10, parameters=5000).core.hidden_size
        33
    """
    if isinstance(model, str):
        model = model_named(model, **options)
    elif options:
        raise ArgumentError(
            f"Expected no options next to a model, but got {', '.join(options)}. Give them to the model."
        )
    check_integer("input_size", input_size, 1)
    check_integer("output_size", output_size, 1)
    check_integer("known_inputs", known_inputs, 0, input_size)
    read, of_core = input_size, input_size
    elapsed, series = last_input == "elapsed", None if isinstance(last_input, str) else last_input
    if series is not None:
        check_integer("series", series[0], 1)
        check_integer("embedding", series[1], 1, LARGEST_VECTOR)
        read, of_core = input_size - 1, input_size - 1 + series[1]
    if elapsed:
        check_integer("input_size", input_size, 2)
        read = of_core = input_size - 1
    chosen = model

    def at_width(width: int, device: torch.device | str | int | None) -> SequenceModel:
        where: Where = {"device": device, "dtype": dtype}
        core = chosen.core(of_core, width, {**where, **chosen.layering()})
        if isinstance(chosen, OrthogonalModel):
            assert isinstance(core, (OrthogonalRNN, OrthogonalBlocks))
            core.set_memory(chosen.memory or "store", chosen.segment)
        if output == "all" and isinstance(core, OrthogonalBlocks) and core.stride > 1:
            raise ArgumentError(
                f"Expected stride=1 for a prediction at every step, but got stride={core.stride}. Leave the stride out."
            )
        if elapsed:
            check_takes_dt(core)
        pool = chosen.pool if chosen.pool is not None and output == "last" else "last"
        head = make_head(chosen, _features(core, width) * PARTS[pool], output_size, where)
        recent = RecentSteps(chosen.lags, read, output_size, known_inputs, **where) if chosen.lags and read else None
        if recent is not None and tokens:
            raise ArgumentError(f"Expected lags only with inputs of numbers, but got lags={chosen.lags} with tokens.")
        return SequenceModel(
            core,
            head,
            output=output,
            token_classes=input_size if tokens else None,
            pool=pool,
            dropout=chosen.dropout or 0.0,
            recent=recent,
            series=None if series is None else SeriesVectors(*series, **where),
            elapsed=elapsed,
        )

    if chosen.parameters is None:
        width = DEFAULT_HIDDEN_SIZE if chosen.hidden_size is None else chosen.hidden_size
        return at_width(check_integer("hidden_size", width, 1), device)
    check_integer("parameters", chosen.parameters, 1)
    width = _width_within(
        chosen.parameters,
        lambda width: count_parameters(at_width(width, "meta")),
        smallest=chosen.smallest_width,
        name=chosen.name,
    )
    return at_width(width, device)


def make_head(model: Model, features: int, output_size: int, where: Where) -> nn.Linear | nn.Sequential:
    """Return the head of a model with its initial values, which come from torch's global generator.

    Matrices follow the papers (uniform Glorot, bias 0) if the model requests it; all other heads follow
    torch.nn.Linear.
    """
    if model.head == "mlp":
        width = _HEAD_WIDTH if model.head_width is None else model.head_width
        return nn.Sequential(nn.Linear(features, width, **where), nn.GELU(), nn.Linear(width, output_size, **where))
    head = nn.Linear(features, output_size, **where)
    if model.glorot_readout:
        nn.init.xavier_uniform_(head.weight)
        nn.init.zeros_(head.bias)
    return head


def count_parameters(model: nn.Module) -> int:
    """Return the number of trainable scalars, as the papers count them."""
    total = sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)
    for module in model.modules():
        if isinstance(module, Transition) and all(free.requires_grad for free in module.free()):
            total += module.method.count() - sum(free.numel() for free in module.free())
    return total


def _features(core: nn.Module, width: int) -> int:
    """Return how many real numbers an output of the core has."""
    if isinstance(core, OrthogonalBlocks):
        return width
    complex_state = isinstance(core, (OrthogonalRNN, GORU)) and core.is_complex
    return width * (2 if complex_state else 1) * (2 if getattr(core, "bidirectional", False) else 1)


def _width_within(budget: int, count: Callable[[int], int], smallest: int, name: str) -> int:
    """Return the largest width whose count does not exceed the budget; `count` must not fall as the width grows."""
    if count(smallest) > budget:
        raise ArgumentError(
            f"Expected parameters of at least {count(smallest)}, which the smallest {name} here has, of width "
            f"{smallest}, but got "
            f"{budget}. Raise parameters."
        )
    low, high = smallest, 2 * smallest
    while count(high) <= budget:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if count(middle) <= budget else (low, middle)
    return low
