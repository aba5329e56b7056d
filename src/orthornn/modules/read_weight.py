"""Detect in-place changes to a matrix W that was read from a network: W is computed, so they change only a copy.

`nn.init.eye_(rnn.weight_hh_l0)` or `rnn.weight_hh_l0.copy_(Q)` raises an error at the network's next call. torch has no
read-only tensors, and a tensor subclass that refuses changes could not be an input of torch.compile.
"""

from __future__ import annotations

import weakref
from typing import NamedTuple

import torch
from torch import Tensor

from .._checks import is_captured, is_plain_eager
from .._warnings import warn
from ..errors import ReadOnlyError


class Read(NamedTuple):
    """A matrix W that was read.

    Attributes:
        name: Name of the attribute that the user read.
        first: The tensor that the user got, until the first check: afterwards torch may use other memory for it.
        held: The same tensor, as long as somebody else holds it.
        alias: A tensor with its memory and its version, without its graph.
        version: Its version when read; None if torch does not count versions of it.
        values: Its values when read, until the first check: torch does not count changes through `.data` and NumPy.
            None on devices where comparing would block.
    """

    name: str
    first: Tensor | None
    held: weakref.ref[Tensor]
    alias: Tensor
    version: int | None
    values: Tensor | None


def read(name: str, W: Tensor) -> tuple[Read, ...]:
    """Return the facts needed to detect changes to W, the reader's copy; nothing if more than autograd tracks it."""
    if not is_plain_eager() or W.is_meta or is_captured(W):
        return ()
    alias = W.detach()
    version = None if W.is_inference() else W._version
    return (Read(name, W, weakref.ref(W), alias, version, alias.clone() if W.is_cpu else None),)


def check_unchanged(reads: tuple[Read, ...]) -> tuple[Read, ...]:
    """Return the matrices that may still be changed.

    Raises:
        ReadOnlyError: If one has been changed in place. Changes that torch does not count, through `.data`, NumPy or
            another tensor, cause a warning instead.
    """
    for name, first, _, alias, version, values in reads:
        moved = first is not None and first.untyped_storage()._cdata != alias.untyped_storage()._cdata
        advice = f"Assign a matrix, as in rnn.{name} = W; to change a copy of your own, take rnn.{name}.clone()."
        if moved or (version is not None and alias._version != version):
            raise ReadOnlyError(
                f"Expected {name} to be read or assigned, since it is computed from other parameters, but the result was "
                f"changed in place, as by copy_(), .data or torch.nn.init, which leaves the network unchanged. {advice}"
            )
        if values is not None and not _are_equal(alias, values):
            warn(
                f"The value read from {name} was changed through .data, NumPy or another tensor, which leaves the network "
                f"unchanged: {name} is computed from other parameters. {advice} That also silences this warning."
            )
    return tuple(
        [one._replace(first=None, values=None) for one in reads if one.first is not None or one.held() is not None]
    )


def _are_equal(one: Tensor, other: Tensor) -> bool:
    return torch.equal(one, other) or bool(((one == other) | (one.isnan() & other.isnan())).all())
