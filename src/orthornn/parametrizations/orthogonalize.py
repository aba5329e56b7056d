"""Any square weight of any torch layer under a parametrization, by torch.nn.utils.parametrize."""

from __future__ import annotations

from typing import Any, TypeVar
from weakref import ref

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from .._checks import check_choice
from ..errors import ArgumentError, DTypeError, ShapeError
from .base import BoundParametrization, Parametrization
from .upkeep import watch

Layer = TypeVar("Layer", bound=nn.Module)


class _Registered(nn.Module):
    """What torch.nn.utils.parametrize calls: the free tensors stand under original0, original1, ...

    On registration torch asks right_inverse for the first values; it gets those that were drawn.
    """

    def __init__(self, method: BoundParametrization) -> None:
        super().__init__()
        self.method = method
        self._drawn: tuple[Tensor, ...] | None = method.initial()
        self._free: tuple[Any, ...] = ()  # weak references to what was last asked for
        watch(self)

    def forward(self, *free: Tensor) -> Tensor:
        if not torch.compiler.is_compiling():
            self._free = tuple(map(ref, free))
        return self.method(*free)

    def free(self) -> tuple[Tensor, ...]:
        free = tuple(reference() for reference in self._free)
        return () if None in free else free

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_free": ()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        watch(self)

    def right_inverse(self, W: Tensor) -> tuple[Tensor, ...]:
        free, self._drawn = self._drawn, None
        return tuple(f.to(W.device, W.dtype) for f in (self.method.right_inverse(W) if free is None else free))


def orthogonalize(layer: Layer, name: str, parametrization: Parametrization) -> Layer:
    """Put `layer`'s square weight `name` under a parametrization, initialised on the set that it spans.

    The weight's old values are lost: the parametrization draws its own. Afterwards `layer.weight` is W, built anew at
    each access (torch.nn.utils.parametrize.cached() keeps it), and `layer.weight = Q` sets it through right_inverse.

    Returns the layer. Raises ArgumentError for a name that is no parameter or a complex parametrization; ShapeError for
    a weight that is not square; DTypeError for one that is not real.
    """
    if not isinstance(parametrization, Parametrization):
        raise ArgumentError(
            f"parametrization must be one of orthornn's, such as Householder(); got {parametrization!r}."
        )
    if parametrize.is_parametrized(layer, name):
        raise ArgumentError(
            f"{type(layer).__name__}.{name} has a parametrization already. Take it off with "
            f"torch.nn.utils.parametrize.remove_parametrizations(layer, {name!r}) first."
        )
    check_choice("name", name, [found for found, _ in layer.named_parameters(recurse=False)])
    weight = getattr(layer, name)
    if weight.dim() != 2 or weight.shape[0] != weight.shape[1]:
        raise ShapeError(f"{type(layer).__name__}.{name} must be a square matrix; got {tuple(weight.shape)}.")
    if not weight.is_floating_point():
        raise DTypeError(f"{type(layer).__name__}.{name} must be real; got {weight.dtype}.")
    method = parametrization.bind(weight.shape[0])
    if method.field == "complex":
        raise ArgumentError(f"{type(layer).__name__}.{name} is real; got {parametrization!r}. Use field='real'.")
    method.to(weight.device)
    parametrize.register_parametrization(layer, name, _Registered(method))
    return layer
