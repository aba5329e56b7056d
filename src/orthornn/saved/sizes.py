"""Refuse sizes that no machine, or no file of weights, can hold, before any memory is asked for."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..errors import ArgumentError, CheckpointError
from ..learn.systems import DEFAULT_HIDDEN_SIZE, Blocks, Model
from ..learn.systems.pooling import PARTS
from .weights_file import Header

# Widths from which on it matters that building most networks costs N^2 numbers, also on the meta device: their first
# matrix is made on the CPU.
_WIDE = 2048
_BYTES = 16  # a number, its gradient and an optimizer's two
_GROWTH = 4  # of the numbers of any network from N to N + 1, at most


def check_memory(config: Model, description: dict[str, Any]) -> None:
    """Raise ArgumentError if training this network needs more memory than the machine has, by the least that it may
    need.
    """
    N = config.hidden_size
    numbers = config.parameters or 0
    if N is not None:
        numbers = N * (description["input_size"] + description["output_size"])
        if not config.narrow:
            numbers += (config.given().get("depth") or 1) * N * N // 2
    there = memory()
    if there is not None and _BYTES * numbers > there:
        asked = f"parameters={config.parameters}" if N is None else f"hidden_size={N}"
        raise ArgumentError(
            f"Expected a network that fits this machine's {there / 1e9:.3g} GB of memory, but got {config.name} with "
            f"{asked}, which needs at least {_BYTES * numbers / 1e9:.3g} GB to train. Lower it."
        )


def check_against_header(config: Model, description: dict[str, Any], header: Header, path: Path) -> None:
    """Raise CheckpointError if config.json asks for a network that these weights cannot be of."""
    first, last = ("head.0.weight", "head.2.weight") if config.head == "mlp" else ("head.weight", "head.weight")
    shape, out = (header.tensors.get(name, ((), None))[0] for name in (first, last))
    if len(shape) != 2 or len(out) != 2 or out[0] != description["output_size"]:
        raise _mismatch(path, f"{last} is {out}, and output_size is {description['output_size']}")
    pool = config.pool if config.pool is not None and description["output"] == "last" else "last"
    parts = PARTS[pool] * (2 if config.given().get("bidirectional") and not isinstance(config, Blocks) else 1)
    width, rest = divmod(shape[1], parts)
    N = config.hidden_size
    if config.parameters is None:
        N = DEFAULT_HIDDEN_SIZE if N is None else N
        if rest or width not in (N, 2 * N):
            raise _mismatch(path, f"{first} is {shape}, and hidden_size is {N}")
    elif config.parameters > _GROWTH * (header.numbers + description["input_size"] + description["output_size"]):
        raise _mismatch(path, f"it holds {header.numbers} numbers, and the budget is {config.parameters}")
    else:
        N = width // 2
    if N > _WIDE and not config.narrow and header.numbers < N * (N - 1) // 2:
        raise _mismatch(path, f"it holds {header.numbers} numbers, too few for a {config.name} of width {N}")
    layers = config.given().get("layers")
    if isinstance(layers, int) and layers * (N - 1) > _GROWTH * (header.numbers + N):
        raise _mismatch(path, f"it holds {header.numbers} numbers, too few for {layers} layers of width {N}")
    if description["input_size"] > header.numbers:
        raise _mismatch(path, f"it holds {header.numbers} numbers, and input_size is {description['input_size']}")


def on_meta(build: Any) -> dict[str, Tensor]:
    """Return the state_dict of what `build(device="meta")` makes; torch's random numbers are as they were."""
    with torch.random.fork_rng(devices=[]):
        return build(device="meta").state_dict()


def memory() -> int | None:
    """Return the bytes of memory of this machine; None if the system does not report them."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, AttributeError):
        return None


def _mismatch(path: Path, what: str) -> CheckpointError:
    return CheckpointError(f"the weights in {path} do not fit the config.json of their run: {what}.")
