"""Detection of changes in place of a matrix W that was read from a network, which computes it: they change a copy only.

`nn.init.eye_(rnn.weight_hh_l0)` or `rnn.weight_hh_l0.copy_(Q)` is an error of the network's next call, since torch has no
tensor that is only to be read: a subclass that refuses could not be an input of torch.compile.
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
    """A matrix that was read.

    Attributes:
        name: What the user read.
        first: The tensor that the user got, up to the first check: then torch may have another memory for it.
        held: The same, while somebody else holds it.
        alias: Its memory and its version, without its graph.
        version: Its version then; None where torch counts none.
        values: Its values then, up to the first check: torch does not count what `.data` and NumPy change. None on devices,
            for which comparing would wait.
    """

    name: str
    first: Tensor | None
    held: weakref.ref[Tensor]
    alias: Tensor
    version: int | None
    values: Tensor | None


def read(name: str, W: Tensor) -> tuple[Read, ...]:
    """Return what is to be known of W, the reader's own copy; nothing where more than autograd follows."""
    if not is_plain_eager() or W.is_meta or is_captured(W):
        return ()
    alias = W.detach()
    version = None if W.is_inference() else W._version
    return (Read(name, W, weakref.ref(W), alias, version, alias.clone() if W.is_cpu else None),)


def check_unchanged(reads: tuple[Read, ...]) -> tuple[Read, ...]:
    """Return those of the matrices that may still be changed.

    Raises:
        ReadOnlyError: If one has been changed in place. A warning if its memory has been, in a way that torch does not count:
            by `.data`, NumPy or another tensor.
    """
    for name, first, _, alias, version, values in reads:
        moved = first is not None and first.untyped_storage()._cdata != alias.untyped_storage()._cdata
        advice = f"Assign a matrix, as in rnn.{name} = W; to change a copy of your own, take rnn.{name}.clone()."
        if moved or (version is not None and alias._version != version):
            raise ReadOnlyError(
                f"Expected {name} only to be read or assigned, since it is computed from other parameters, but got what was "
                f"read changed in place, as by copy_(), .data or torch.nn.init, which leaves the network as it was. {advice}"
            )
        if values is not None and not _are_equal(alias, values):
            warn(
                f"What was read of {name} has been changed through .data, NumPy or another tensor, which leaves the network "
                f"as it was: {name} is computed from other parameters. {advice} That silences this, too."
            )
    return tuple(
        [one._replace(first=None, values=None) for one in reads if one.first is not None or one.held() is not None]
    )


def _are_equal(one: Tensor, other: Tensor) -> bool:
    return torch.equal(one, other) or bool(((one == other) | (one.isnan() & other.isnan())).all())
