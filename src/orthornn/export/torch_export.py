"""Two files for torch.export.load: model.pt2 and step.pt2."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import torch

from .._checks import check_flag
from .._files import write_together
from .graphs import example_resets, prepare
from .held_steps import warn_of_held_steps
from .network import Network
from .units import warn_of_large_offsets
from .verify import check


def to_torch_export(
    model: Network, folder: str | Path, description: dict[str, Any] | None = None, *, resets: bool = False
) -> list[Path]:
    """Write model.pt2 and step.pt2 for torch.export.load, and check both against the module on random input.

    Args:
        model: The network.
        folder: Output folder; it is created if it does not exist.
        description: Same as in `to_onnx`. Default: None.
        resets: Same as in `to_onnx`. Default: ``False``.
    """
    warn_of_large_offsets(description)
    warn_of_held_steps(description)
    model, sequence, step, (x, state) = prepare(model, description)
    T, B = torch.export.Dim("T", min=1), torch.export.Dim("B", min=1)
    whole_sizes: tuple[dict[int, Any], ...] = ({0: T, 1: B},)
    step_sizes: tuple[dict[int, Any], ...] = ({0: B}, {1: B})
    given, given_step = (x,), (x[0], state)
    if check_flag("resets", resets):
        sequence.check_resets()
        mask = example_resets(x)
        given, given_step = (x, mask), (x[0], state, mask[0])  # type: ignore[assignment]
        whole_sizes, step_sizes = (*whole_sizes, {0: T, 1: B}), (*step_sizes, {0: B})
    programs = [
        torch.export.export(sequence, given, dynamic_shapes=whole_sizes),
        torch.export.export(step, given_step, dynamic_shapes=step_sizes),
    ]
    contents = [_saved(program) for program in programs]
    whole, single = (torch.export.load(io.BytesIO(content)).module() for content in contents)
    check(model, whole, single, step, resets=resets)
    return write_together(Path(folder), dict(zip(("model.pt2", "step.pt2"), contents)))


def _saved(program: Any) -> bytes:
    """Return the bytes that torch.export.save writes."""
    file = io.BytesIO()
    torch.export.save(program, file)
    return file.getvalue()
