"""Parametrize any weight of any torch layer, square or rectangular, with torch.nn.utils.parametrize."""

from __future__ import annotations

from typing import Any, Literal, TypeVar, get_args
from weakref import ref

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy
from torch.nn.utils import parametrize

from .._checks import check_choice, check_finite, check_module
from .._recording import recording
from ..errors import ArgumentError, DTypeError, NotOnGroupError, ShapeError
from .frames import StiefelFrame, bind_frame
from .matrices import polar_factor, polar_of_determinant
from .parametrization import BoundParametrization, Parametrization, check_description
from .sharded import sharded_like
from .torch_tools import OLDER_TOOLS, older_tool
from .upkeep import watch

Layer = TypeVar("Layer", bound=nn.Module)
Init = Literal["new", "polar"]


class _Registered(nn.Module):
    """The module that torch.nn.utils.parametrize calls: the free tensors are stored under original0, original1, ...

    On registration torch asks right_inverse for the initial values and gets `initial`. Afterwards `belongs_to` names
    the list that holds the free tensors; a copy of the module belongs to the copy of that list.
    """

    def __init__(self, method: BoundParametrization, initial: tuple[Tensor, ...]) -> None:
        super().__init__()
        self.method = method
        self._initial: tuple[Tensor, ...] | None = initial
        self._list: Any = None  # a weak reference to the list whose first member this is
        watch(self)

    def belongs_to(self, originals: parametrize.ParametrizationList) -> None:
        self._list = ref(originals)

    def forward(self, *free: Tensor) -> Tensor:
        W = self.method(*free)
        # Stiefel's W is its free tensor, or that transposed: what is written into the weight that was read must not reach it.
        is_stored = isinstance(self.method, StiefelFrame) or any(W is tensor for tensor in free)
        return W.clone() if is_stored else W

    def free(self) -> tuple[Tensor, ...]:
        originals = None if self._list is None else self._list()
        if originals is None:  # the parametrization has been removed
            return ()
        names = ["original"] if originals.is_tensor else [f"original{at}" for at in range(originals.ntensors)]
        return tuple(getattr(originals, name) for name in names)

    def trained(self) -> tuple[tuple[Any, ...], ...]:
        return tuple((tensor,) for tensor in self.free())

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_list": None if self._list is None else self._list()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        originals = state.get("_list")
        self._list = None if originals is None else ref(originals)
        watch(self)

    def right_inverse(self, W: Tensor) -> tuple[Tensor, ...]:
        free, self._initial = self._initial, None
        values = self.method.right_inverse(W) if free is None else free
        return tuple(value.to(W.device, W.dtype).contiguous() for value in values)  # LAPACK's lie column by column

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Redraw the free tensors and the random buffers of the parametrization."""
        for tensor, value in zip(self.free(), self.method.initial()):
            tensor.copy_(sharded_like(value, tensor))


@recording()
def orthogonalize(layer: Layer, name: str, parametrization: Parametrization, *, init: Init = "new") -> Layer:
    """Put `layer`'s weight `name` under a parametrization, and initialize it on the set that the parametrization spans.

    A square weight becomes W. For a rectangular weight the rows or the columns become orthonormal, whichever are fewer,
    as with torch.nn.utils.parametrizations.orthogonal. Householder(), Stiefel(), ScaledCayley(), MatrixExponential(),
    Givens() and SpectralMargin(0) support rectangular weights; of those that need no special optimizer, Householder()
    has the fewest numbers.

    Afterwards `layer.weight` is rebuilt on each access (torch.nn.utils.parametrize.cached() caches it), and
    `layer.weight = Q` sets it through right_inverse.

    Args:
        layer: Any module.
        name: Name of one of the layer's parameters, a real matrix (out, in).
        parametrization: Parametrization of W, for real matrices.
        init: ``"new"`` to draw W from the parametrization's initialization, which discards the weight's old values;
            ``"polar"`` to start from the polar factor of the weight, the nearest matrix with orthonormal rows or
            columns. If the parametrization fixes the determinant of a square W and the polar factor has the other one,
            start from the nearest matrix with that determinant. Default: ``"new"``.

    Returns:
        The layer.

    Raises:
        ArgumentTypeError: If ``layer`` is not a module, or ``parametrization`` is not a parametrization.
        ArgumentError: If the name is not a parameter, such as a weight under pruning or the older weight_norm; if the
            parametrization is complex; or if it does not support rectangular weights.
        ShapeError: If the weight is not a matrix.
        DTypeError: If the weight is not real.
        NotOnGroupError: If init="polar" and the parametrization does not reach the polar factor.

    Example::

        >>> layer = orthogonalize(torch.nn.Linear(5, 3), "weight", Householder(), init="polar")
        >>> torch.allclose(layer.weight @ layer.weight.mT, torch.eye(3), atol=1e-6)
        True
    """
    check_module("layer", layer)
    check_description("parametrization", parametrization)
    check_choice("init", init, get_args(Init))
    own = [found for found, _ in layer.named_parameters(recurse=False)]
    if isinstance(name, str) and parametrize.is_parametrized(layer, name):
        kind = type(layer).__name__.removeprefix("Parametrized")
        raise ArgumentError(
            f"Expected {kind}.{name} without a parametrization, but got a parametrized one. Remove it with "
            f"torch.nn.utils.parametrize.remove_parametrizations(layer, {name!r}) first."
        )
    if not isinstance(name, str) or name not in own:
        _check_is_own(layer, name, own)
    weight = getattr(layer, name)
    if is_lazy(weight):
        raise ArgumentError(
            f"Expected {type(layer).__name__}.{name} to have a shape, but its layer has not been called yet. Call it once "
            f"with inputs first."
        )
    if weight.dim() != 2 or not weight.numel():
        advice = {
            0: "Pass the name of a matrix.",
            1: "Pass the name of a matrix.",
            2: "Pass a layer with inputs and outputs.",
        }.get(weight.dim(), "A convolution of kernel size 1 is a torch.nn.Linear over the channels: use that.")
        raise ShapeError(
            f"Expected {type(layer).__name__}.{name} to be a matrix (out, in), but got a shape of "
            f"{tuple(weight.shape)}. {advice}"
        )
    if not weight.is_floating_point():
        raise DTypeError(f"Expected {type(layer).__name__}.{name} to be real, but got {weight.dtype}.")
    rows, columns = weight.shape
    method = parametrization.bind(rows) if rows == columns else bind_frame(parametrization, rows, columns)
    if method.field == "complex":
        raise ArgumentError(
            f"Expected a real parametrization for {type(layer).__name__}.{name}, which is real, but got "
            f"{parametrization!r}. Use field='real'."
        )
    method.to(weight.device)
    initial = method.initial() if init == "new" else _nearest(method, weight.detach(), f"{type(layer).__name__}.{name}")
    registered = _Registered(method, initial)
    parametrize.register_parametrization(layer, name, registered)
    registered.belongs_to(layer.parametrizations[name])  # type: ignore[index, arg-type]
    return layer


def _check_is_own(layer: nn.Module, name: str, own: list[str]) -> None:
    """Raise an error if a name is not a parameter of the layer; if it belongs to an inner layer, name that layer."""
    if isinstance(name, str):
        inside = next((k for k, _ in layer.named_parameters() if k == name or k.startswith(f"{name}.")), None)
        if inside is not None:
            path, last = inside.rsplit(".", 1)
            raise ArgumentError(
                f"Expected name to be a parameter of {type(layer).__name__} itself, but got {name!r}. Pass the layer that "
                f"has it: orthogonalize(module.{path}, {last!r}, ...)."
            )
    if not own:
        raise ArgumentError(
            f"Expected a layer that holds parameters itself, but got {type(layer).__name__}, which has none. Pass one of its "
            f"layers."
        )
    hook = older_tool(layer, name) if isinstance(name, str) else None
    if hook is not None:
        tool, remove = next(words for kind, words in OLDER_TOOLS.items() if isinstance(hook, kind))
        raise ArgumentError(
            f"Expected {type(layer).__name__}.{name} to be a parameter, but got a tensor that {tool} computes. Make it "
            f"permanent first, with torch.nn.utils.{remove}(layer, {name!r})."
        )
    check_choice("name", name, own)


def _nearest(method: BoundParametrization, weight: Tensor, name: str) -> tuple[Tensor, ...]:
    """Free tensors of the polar factor of the weight, or of the nearest matrix with the determinant that `method`
    requires.
    """
    if weight.is_meta:
        raise ArgumentError(f"Expected {name} to have values for init='polar', but it is on meta. Use init='new'.")
    check_finite(name, weight)
    try:
        return method.right_inverse(polar_factor(weight.double()))
    except NotOnGroupError as error:
        if method.group not in ("SO", "det=-1") or weight.shape[0] != weight.shape[1]:
            raise NotOnGroupError(
                f"Expected a parametrization that reaches the polar factor of {name}, but got {method}: {error} Use "
                f"init='new', or Householder()."
            ) from None
    return method.right_inverse(polar_of_determinant(weight.double(), 1.0 if method.group == "SO" else -1.0))
