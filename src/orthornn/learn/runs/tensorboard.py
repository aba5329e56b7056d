"""Records for TensorBoard: numbers as scalars, lists of numbers (spectra, gradient norms) as histograms."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from ...errors import CheckpointError, MissingPackageError


class TensorBoard:
    """An observer of a run; every record is written under its kind, at its step.

    The folder is made with the first record, when it is certain that the run begins or resumes.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._refuse_link()
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as error:
            raise MissingPackageError.named("tensorboard (--tensorboard)", "tensorboard", "tensorboard") from error
        self._kind: Callable[[str], Any] = SummaryWriter

    def _refuse_link(self) -> None:
        if self._folder.is_symlink():
            raise CheckpointError(
                f"Expected {self._folder} to be a folder of the run itself, but got a symbolic link. Remove it."
            )

    @cached_property
    def _writer(self) -> Any:
        self._refuse_link()
        return self._kind(str(self._folder))

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
