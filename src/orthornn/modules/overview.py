"""An overview of a network for notebooks: its layers, shapes, parameter counts, and the orthogonality error of W."""

from __future__ import annotations

import torch
from torch import nn

from .._html import table_html
from ..parametrizations.matrices import orthogonality_error
from .transition import Transition


def network_html(network: nn.Module) -> str:
    """Return a table of the modules with parameters: names, classes, shapes, and ||W'W - I|| of each transition."""
    rows: list[list[str]] = []
    total = 0
    for name, module in network.named_modules():
        own = dict(module.named_parameters(recurse=False))
        if not own:
            continue
        count = sum(parameter.numel() for parameter in own.values())
        shapes = ", ".join(f"{key} {_shape(value)}" for key, value in own.items())
        rows.append([name or "(itself)", type(module).__name__, shapes, f"{count:,}", _error(module)])
        total += count
    trained = sum(parameter.numel() for parameter in network.parameters() if parameter.requires_grad)
    frozen = f", {total - trained:,} of them not trained" if trained != total else ""
    return table_html(
        f"{type(network).__name__}: {total:,} parameters{frozen}",
        ["module", "class", "shapes", "parameters", "||W'W - I||"],
        rows,
        left=[True, True, True, False, False],
    )


def _shape(parameter: nn.Parameter) -> str:
    if isinstance(parameter, nn.UninitializedParameter):
        return "(not yet known)"
    return " x ".join(map(str, parameter.shape)) or "1"


@torch.no_grad()
def _error(module: nn.Module) -> str:
    """Return ||W'W - I||_F in float64, or empty text for other modules and for a transition without values."""
    if not isinstance(module, Transition) or any(parameter.is_meta for parameter in module.parameters()):
        return ""
    return f"{orthogonality_error(module.matrix()):.1e}"
