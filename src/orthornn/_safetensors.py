"""Tensors in the safetensors format."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from ._optional_packages import import_optional


def save_tensors(tensors: dict[str, Tensor]) -> bytes:
    """Return tensors in the safetensors format. MissingPackageError if that package is missing."""
    owned: set[int] = set()
    separate = dict(tensors)
    for name, tensor in tensors.items():  # two names for one memory cannot be told apart when they are read
        if tensor.untyped_storage().data_ptr() in owned:
            separate[name] = tensor.clone()
        owned.add(tensor.untyped_storage().data_ptr())
    return safetensors().save(separate)


def safetensors() -> Any:
    """Return the package. MissingPackageError, with how to install it, if it is missing."""
    return import_optional("safetensors.torch", "cli", "the safetensors format")
