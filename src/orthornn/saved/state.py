"""The state of a run as tensors and JSON: no pickles.

`split` takes a nested value apart into tensors by name and a JSON value that refers to them; `join` puts it together
again, with every key, tuple and number as it was.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

_TENSOR, _TUPLE, _ITEMS = "@tensor", "@tuple", "@items"


def split(value: object, name: str, tensors: dict[str, Tensor]) -> Any:
    """Return the JSON form of `value`; its tensors go into `tensors` under names that begin with `name`.

    Raises TypeError for what has neither form.
    """
    if isinstance(value, Tensor):
        tensors[name] = value.detach().cpu().contiguous()
        return {_TENSOR: name}
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, (list, tuple)):
        entries = [split(entry, f"{name}.{index}", tensors) for index, entry in enumerate(value)]
        return {_TUPLE: entries} if isinstance(value, tuple) else entries
    if isinstance(value, Mapping):
        if all(isinstance(key, str) and not key.startswith("@") for key in value):
            return {key: split(entry, f"{name}.{key}", tensors) for key, entry in value.items()}
        pairs = [[key, split(entry, f"{name}.{key}", tensors)] for key, entry in value.items()]
        if all(isinstance(key, (str, int)) for key in value):
            return {_ITEMS: pairs}
    raise TypeError(f"{name} is {type(value).__name__}, which a checkpoint cannot hold")


def join(plain: Any, tensors: Mapping[str, Tensor]) -> Any:
    """Return the value that `split` took apart."""
    if isinstance(plain, list):
        return [join(entry, tensors) for entry in plain]
    if not isinstance(plain, dict):
        return plain
    if _TENSOR in plain:
        return tensors[plain[_TENSOR]]
    if _TUPLE in plain:
        return tuple(join(entry, tensors) for entry in plain[_TUPLE])
    if _ITEMS in plain:
        return {key: join(entry, tensors) for key, entry in plain[_ITEMS]}
    return {key: join(entry, tensors) for key, entry in plain.items()}
