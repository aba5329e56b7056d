"""A CUDA capture without a GPU: values are on the CPU, and whoever reads one on the host fails, as CUDA would."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch

_READS = ["__bool__", "__float__", "__int__", "__index__", "item", "tolist", "numpy", "nonzero", "cpu"]
_CHECKED = ["solve", "inv", "cholesky", "eigh", "eigvals", "svd", "qr", "slogdet", "cond", "pinv", "matrix_exp"]


def begin(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the package believe, until the patches are undone, that a CUDA graph is being captured."""
    for name, module in list(sys.modules.items()):
        if name.startswith("orthornn.") and hasattr(module, "is_captured"):
            monkeypatch.setattr(module, "is_captured", lambda tensor: True)
    for name in _READS:
        monkeypatch.setattr(torch.Tensor, name, _refusal(f"Tensor.{name}"))
    for name in _CHECKED:
        monkeypatch.setattr(torch.linalg, name, _refusal(f"torch.linalg.{name}"))
    for name in ("equal", "allclose", "tensor", "matrix_exp"):  # torch.tensor copies from the host
        monkeypatch.setattr(torch, name, _refusal(f"torch.{name}"))


def _refusal(name: str) -> Callable[..., Any]:
    def refuse(*_: object, **__: object) -> Any:
        raise AssertionError(f"{name} waits for the device")

    return refuse
