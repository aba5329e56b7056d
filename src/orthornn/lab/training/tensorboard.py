"""Records for TensorBoard: numbers as scalars, lists of numbers (spectra, gradient norms) as histograms."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from ...errors import CheckpointError, MissingPackageError


class TensorBoard:
    """An observer of a run; every record is written under its kind, at its step."""

    def __init__(self, folder: Path) -> None:
        if folder.is_symlink():
            raise CheckpointError(
                f"Expected {folder} to be a folder of the run itself, but got a symbolic link. Remove it."
            )
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as error:
            raise MissingPackageError.named("--tensorboard", "tensorboard", "tensorboard") from error
        self._writer = SummaryWriter(str(folder))

    def __call__(self, record: dict[str, Any]) -> None:
        """Write one record."""
        kind, step = record["kind"], record["step"]
        for name, value in record.items():
            tag = f"{kind}/{name}"
            if name in ("kind", "step"):
                continue
            if isinstance(value, (int, float)) and not isinstance(value, bool):
                self._writer.add_scalar(tag, value, step)
            elif isinstance(value, str):
                self._writer.add_text(tag, value, step)
            else:
                self._spread(tag, value, step)
        if kind in ("validation", "test"):
            self._writer.flush()

    def _spread(self, tag: str, value: Any, step: int) -> None:
        """Write a list as a histogram, a mapping entry by entry."""
        if isinstance(value, dict):
            for name, entry in value.items():
                self._spread(f"{tag}/{name}", entry, step)
        elif isinstance(value, (int, float)):
            self._writer.add_scalar(tag, value, step)
        elif isinstance(value, list) and value:
            numbers = torch.tensor(value, dtype=torch.float64).flatten()
            self._writer.add_histogram(tag, numbers, step)
            self._writer.add_scalar(f"{tag}/largest", float(numbers.max()), step)
            self._writer.add_scalar(f"{tag}/smallest", float(numbers.min()), step)
