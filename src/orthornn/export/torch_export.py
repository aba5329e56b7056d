"""Two files for torch.export.load: model.pt2 and step.pt2."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from .graphs import prepare
from .network import Network
from .verify import check


def to_torch_export(model: Network, folder: Path, description: dict[str, Any] | None = None) -> list[Path]:
    """Write model.pt2 and step.pt2, for torch.export.load; checked against the module on random input.

    description: as in `to_onnx`.
    """
    sequence, step, (x, state) = prepare(model, description)
    T, B = torch.export.Dim("T", min=1), torch.export.Dim("B", min=1)
    programs = [
        torch.export.export(sequence, (x,), dynamic_shapes=({0: T, 1: B},)),
        torch.export.export(step, (x[0], state), dynamic_shapes=({0: B}, {1: B})),
    ]
    written = [folder / "model.pt2", folder / "step.pt2"]
    for program, path in zip(programs, written):
        torch.export.save(program, path)
    whole, single = (torch.export.load(path).module() for path in written)
    check(model, whole, single, step)
    return written
