"""model.safetensors, read with care: its header before its tensors, its checksum, and no number that is not finite.

The header names every tensor with its shape and dtype; it is compared with the model that config.json and
description.json describe, built without memory, before anything is allocated for either.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from .._files import open_to_read
from .._safetensors import safetensors
from ..errors import CheckpointError, DataError

_LARGEST_HEADER = 1 << 24  # bytes


_LARGEST = 1 << 44  # bytes of a file


_LISTED = 3


REMEDY = "Restore it, or take another checkpoint."


_DTYPES = {
    "BOOL": torch.bool,
    "U8": torch.uint8,
    "I8": torch.int8,
    "I16": torch.int16,
    "I32": torch.int32,
    "I64": torch.int64,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "F32": torch.float32,
    "F64": torch.float64,
}


class Header(NamedTuple):
    """size: bytes of the file. tensors: (shape, dtype) by name."""

    size: int
    tensors: dict[str, tuple[tuple[int, ...], torch.dtype]]

    @property
    def numbers(self) -> int:
        """The number of entries of all tensors together."""
        return sum(math.prod(shape) for shape, _ in self.tensors.values())


def read_header(path: Path) -> Header:
    """Return the header of a safetensors file. CheckpointError if it is damaged or does not fit the file's size."""
    try:
        with open_to_read(path, _LARGEST) as file:
            size = file.seek(0, 2)
            file.seek(0)
            length = int.from_bytes(file.read(8), "little")
            if size < 8 or length > min(size - 8, _LARGEST_HEADER):
                raise CheckpointError(
                    f"Expected {path} to begin with a header, but got {size} bytes without a whole one: it is "
                    f"truncated or modified. {REMEDY}"
                )
            plain = json.loads(file.read(length).decode("utf-8"))
            return Header(size, _tensors(plain, size - 8 - length))
    except CheckpointError:
        raise
    except OSError as error:
        reason = str(error) if isinstance(error, DataError) else f"Expected to read {path}, but got: {error.strerror}."
        raise CheckpointError(f"{reason} {REMEDY}") from error
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise CheckpointError(
            f"Expected {path} to fit its header, but got others: it is truncated or modified. {REMEDY}"
        ) from error


def check_header(path: Path, expected: Mapping[str, Tensor]) -> None:
    """Raise CheckpointError unless the tensors in a file have these names, shapes and dtypes."""
    found = read_header(path).tensors
    wanted = {name: (tuple(tensor.shape), tensor.dtype) for name, tensor in expected.items()}
    wrong = [name for name in dict.fromkeys((*wanted, *found)) if found.get(name) != wanted.get(name)]
    if wrong:
        listed = "; ".join(
            f"{name[:80]}: {_shape(found.get(name))}, not {_shape(wanted.get(name))}" for name in wrong[:_LISTED]
        )
        more = f"; and {len(wrong) - _LISTED} more" if len(wrong) > _LISTED else ""
        raise CheckpointError(
            f"Expected {path} to have the weights that the config.json of its run describes, but got: {listed}{more}. "
            f"Restore the one that was changed."
        )


def read_weights(path: Path, expected: Mapping[str, Tensor], sha256: str | None) -> dict[str, Tensor]:
    """Return the tensors in a file.

    Args:
        path: The file.
        expected: Tensors with the required names, shapes and dtypes, on any device.
        sha256: The checksum in result.json; None if that file is missing.

    Raises:
        CheckpointError: If it is damaged, does not fit, or holds a number that is not finite.
    """
    load = safetensors().load
    check_header(path, expected)
    size = read_header(path).size
    try:
        with open_to_read(path, size) as file:
            content = file.read(size)
        found = hashlib.sha256(content).hexdigest()
        if sha256 is not None and found != sha256:
            raise CheckpointError(
                f"{path} is truncated or modified: its sha256 is {found[:12]}..., result.json has {sha256[:12]}... "
                f"The weights in checkpoints/ have separate checksums: load them with checkpoint='best' or a step."
            )
        tensors = load(content)
    except CheckpointError:
        raise
    except OSError as error:
        raise CheckpointError(f"Expected to read {path}, but got: {error.strerror or error}. {REMEDY}") from error
    except Exception as error:  # safetensors has an error class of its own in each version
        raise CheckpointError(f"Expected {path} to hold tensors, but got: {error}. {REMEDY}") from error
    check_finite(tensors, path)
    return tensors


def check_finite(weights: Mapping[str, Any], path: Path) -> None:
    """Raise CheckpointError if a weight is NaN or infinite: such a network predicts nothing."""
    for name, tensor in weights.items():
        if isinstance(tensor, Tensor) and not bool(torch.isfinite(tensor).all()):
            raise CheckpointError(
                f"{path} holds numbers that are not finite, in {name}: its scores would mean nothing. Take another "
                f"checkpoint."
            )


def _tensors(plain: dict[str, Any], size: int) -> dict[str, tuple[tuple[int, ...], torch.dtype]]:
    found = {}
    for name, entry in plain.items():
        if name == "__metadata__":
            continue
        shape, dtype, (start, end) = tuple(entry["shape"]), _DTYPES[entry["dtype"]], entry["data_offsets"]
        if not all(type(number) is int and number >= 0 for number in (*shape, start, end)):
            raise ValueError("a size is not a number")
        if end > size or end - start != math.prod(shape) * dtype.itemsize:
            raise ValueError("a tensor does not fit the file")
        found[name] = (shape, dtype)
    return found


def _shape(entry: tuple[tuple[int, ...], torch.dtype] | None) -> str:
    return "none" if entry is None else f"{str(entry[1]).removeprefix('torch.')} {entry[0]}"
