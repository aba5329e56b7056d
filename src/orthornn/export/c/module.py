"""A check that a module computes the same as its folded network; anything around core and head would be silently lost."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ..._warnings import warn
from ...errors import ArgumentError, CheckpointError
from .folded import Array, FoldedModule, FoldedNetwork
from .reference import follow

_STEPS = 9


@torch.no_grad()
def check_against_module(folded: FoldedNetwork, model: Any, description: dict[str, Any] | None) -> None:
    """Raise an error unless the folded network agrees with the module, up to rounding in the module's dtype.

    If the module has a ``forward``, it is called on (T, 1, I) and (1, T, I), or on tokens (T, 1) and (1, T). Its result, or
    the first of several, is compared at all steps or at the last. If it accepts neither, an OrthornnWarning is issued.

    Raises:
        CheckpointError: If core and head disagree with the folded network.
        ArgumentError: If ``forward`` disagrees with it.
    """
    if isinstance(model, FoldedModule):
        return
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        _compare(folded, model, description)
    finally:
        for module, training in modes:
            module.training = training


def _compare(folded: FoldedNetwork, model: Any, description: dict[str, Any] | None) -> None:
    core = model.core if hasattr(model, "core") else model
    core = core.rnn if hasattr(core, "rnn") else core
    parameter = next(core.parameters())
    x, found, tolerance = follow(folded, _STEPS, float(torch.finfo(parameter.dtype).eps))

    def scaled(y: Array) -> Array:
        if description is None or folded.output_kind != "values":
            return y
        return y * np.asarray(description.get("target_scale", 1)) + np.asarray(description.get("target_offset", 0))

    given = torch.from_numpy(np.ascontiguousarray(folded.prepared(x) if not folded.tokens else x))
    given = given.to(parameter.device) if folded.tokens else given.to(parameter.device, parameter.dtype)
    read = given.unsqueeze(0 if core.batch_first else 1)
    if folded.tokens and isinstance(core, nn.RNN):
        read = torch.nn.functional.one_hot(read, folded.input_size).to(parameter.dtype)
    read, lagged = (read, given.unsqueeze(1)) if folded.vectors is None else model.read(read)[:2]
    states = core(read)[0]
    states = states[0] if core.batch_first else states[:, 0]
    states = torch.view_as_real(states).flatten(-2) if states.is_complex() else states
    states = _pooled(states, folded.reading.pool)
    outputs = model.head(states) if hasattr(model, "head") else states
    if folded.reading.A is not None:
        outputs = outputs + model.recent(lagged, "all")[:, 0]
    expected = outputs.double().cpu().numpy()
    difference = float(np.abs(found - scaled(expected)).max())
    if not difference <= tolerance:
        raise CheckpointError(
            f"Expected the generated network to agree with the module, but they differ by {difference:.2g}."
        )
    name = type(model).__name__
    if not hasattr(model, "head") or type(model).forward is nn.Module.forward:
        return
    returned = [y for y in (_returned(model, given.unsqueeze(d), found.shape) for d in (1, 0)) if y is not None]
    if not returned:
        warn(
            f"The generated code computes head(core(x)), which could not be compared with the forward of {name}: it accepts "
            f"neither (T, 1, ...) nor (1, T, ...), or does not return these outputs. Anything else it computes is left out. "
            f"To silence this: warnings.filterwarnings('ignore', category=orthornn.errors.OrthornnWarning)."
        )
        return
    difference = min(float(np.abs(found[-len(y) :] - scaled(y)).max()) for y in returned)
    if not difference <= tolerance:
        raise ArgumentError(
            f"Expected a network that computes head(core(x)), as the generated code does, but got {name}, whose forward "
            f"differs by {difference:.2g}. Apply the rest to the inputs or the outputs yourself, and pass a module with only "
            f"this core and this head."
        )


def _pooled(outputs: Tensor, pool: str) -> Tensor:
    """Return the input of the head after each step, (T, F), (T, 2F) or (T, 3F), from outputs (T, F)."""
    steps = torch.arange(1, len(outputs) + 1, device=outputs.device).unsqueeze(1)
    parts = {"last": outputs, "mean": outputs.cumsum(0) / steps, "largest": outputs.cummax(0).values}
    names = {"last": ("last",), "mean": ("mean",), "both": ("last", "mean"), "summary": ("last", "mean", "largest")}
    return torch.cat([parts[name] for name in names[pool]], -1)


def _returned(model: Any, x: Tensor, shape: tuple[int, ...]) -> Array | None:
    """Return the outputs of the module's forward, (T, O), or (1, O) for the last step; None if it returns neither."""
    try:
        y = model(x)
    except Exception:  # a user's forward may take other arguments and raise any exception
        return None
    y = y[0] if isinstance(y, tuple) and y else y
    if not isinstance(y, Tensor) or y.is_complex() or y.numel() not in (shape[0] * shape[1], shape[1]):
        return None
    return y.double().cpu().numpy().reshape(-1, shape[1])
