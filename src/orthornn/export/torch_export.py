"""Two files for torch.export.load: model.pt2 and step.pt2."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import torch

from .._files import write_together
from .graphs import prepare
from .held_steps import warn_of_held_steps
from .network import Network
from .units import warn_of_large_offsets
from .verify import check


def to_torch_export(model: Network, folder: str | Path, description: dict[str, Any] | None = None) -> list[Path]:
    """Write model.pt2 and step.pt2, for torch.export.load; checked against the module on random input.

    Args:
        model: The network.
        folder: Where the files are written; it is made if it is missing.
        description: As in `to_onnx`. Default: None.
    """
    warn_of_large_offsets(description)
    warn_of_held_steps(description)
    model, sequence, step, (x, state) = prepare(model, description)
    T, B = torch.export.Dim("T", min=1), torch.export.Dim("B", min=1)
    programs = [
        torch.export.export(sequence, (x,), dynamic_shapes=({0: T, 1: B},)),
        torch.export.export(step, (x[0], state), dynamic_shapes=({0: B}, {1: B})),
    ]
    contents = [_saved(program) for program in programs]
    whole, single = (torch.export.load(io.BytesIO(content)).module() for content in contents)
    check(model, whole, single, step)
    return write_together(Path(folder), dict(zip(("model.pt2", "step.pt2"), contents)))


def _saved(program: Any) -> bytes:
    """Return what torch.export.save writes."""
    file = io.BytesIO()
    torch.export.save(program, file)
    return file.getvalue()
