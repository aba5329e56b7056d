"""The two base classes of every parametrization: a description, and the module it becomes when bound to a size.

A description (`Householder(reflections=32)`) is a small immutable value that can be compared, printed and pickled.
`bind(n)` creates a module for one N x N matrix: it has only buffers (values that are not trained), no parameters, and
maps free real tensors to W. The free tensors belong to the module that trains them: a recurrent layer, or
torch.nn.utils.parametrize.

N is the hidden size; a complex matrix is built from real tensors whose last dimension of size 2 is (real, imaginary).
"""

from __future__ import annotations

import difflib
import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import fields
from typing import Literal, get_args

import torch
from torch import Tensor, nn

from .._checks import check_integer, check_shape
from ..compact_wy import Base
from ..errors import ArgumentError, ArgumentTypeError, DeviceError, DTypeError
from .matrices import orthogonality_error

Field = Literal["real", "complex"]
FIELDS: tuple[str, ...] = get_args(Field)

#: The values of `BoundParametrization.group` whose matrices are orthogonal or unitary.
ORTHOGONAL_GROUPS = ("O", "SO", "det=-1", "U", "subset")


def signs_of(buffer: Tensor) -> Tensor:
    """Return a buffer of signs as exactly -1 or 1, in float64: a moving average of buffers produces numbers in
    between.
    """
    return torch.where(buffer < 0, -1.0, 1.0).double()


def group_of_signs(buffer: Tensor, negatives: int = 0) -> str:
    """Return "SO" or "det=-1" by the number of negative signs in a buffer, or by `negatives` if it has no values
    yet.
    """
    count = negatives if buffer.is_meta or type(buffer) is not Tensor else int((buffer < 0).sum())
    return "SO" if count % 2 == 0 else "det=-1"


class Parametrization(ABC):
    """A description. Subclasses are frozen dataclasses and check their arguments in __post_init__."""

    def __repr__(self) -> str:
        """Return the constructor's call, omitting arguments that have their default value."""
        given = [
            f"{f.name}={getattr(self, f.name)!r}"
            for f in fields(self)  # type: ignore[arg-type]
            if getattr(self, f.name) != f.default
        ]
        return f"{type(self).__name__}({', '.join(given)})"

    @abstractmethod
    def bind(self, n: int) -> BoundParametrization:
        """Return the module that maps free tensors to W (N, N).

        Args:
            n: Size of the matrix, N.

        Raises:
            ArgumentError: If the description does not support N.
        """


def check_description(name: str, value: object, example: str = "Householder()") -> None:
    """Raise ArgumentTypeError unless `value` is a parametrization, such as ``example``."""
    if isinstance(value, Parametrization):
        return
    advice = ""
    if isinstance(value, type) and issubclass(value, Parametrization):
        advice = f" Call the class: {value.__name__}()."
    elif isinstance(value, BoundParametrization):
        advice = " Pass the description itself, before bind()."
    elif isinstance(value, str):
        names = _names()
        letters = value.lower().replace("_", "").replace("-", "")
        near = [known for known in names if len(letters) > 2 and letters in known.lower()]
        near = near or difflib.get_close_matches(value, names, n=1)
        others = [known for known in names if known not in near]
        hint = f" Did you mean {' or '.join(f'{known}()' for known in near)}?" if near else ""
        advice = f"{hint} Pass an object, not its name; {'the others' if near else 'they'} are {', '.join(others)}."
    raise ArgumentTypeError(
        f"Expected {name} to be one of orthornn's parametrizations, such as {example}, but got {value!r}.{advice}"
    )


def _names() -> list[str]:
    """Return the names of orthornn's parametrizations."""
    found, kinds = [], list(Parametrization.__subclasses__())
    while kinds:
        kind = kinds.pop()
        kinds += kind.__subclasses__()
        found += [kind.__name__] * kind.__module__.startswith("orthornn.")
    return sorted(found)


class BoundParametrization(nn.Module, ABC):
    """Free real tensors -> W, for one matrix.

    Attributes:
        n: Size of W.
        field: "real" or "complex".
        names: Names of the free tensors, in the order in which `forward` takes them.
        group: Set that W ranges over: "O", "SO", "det=-1", "U", "subset" (of O or U), "margin" (singular values within
            a margin), "contractions" (orthogonal except for one singular value of at most 1), "decays" (singular values
            of at most 1), or "all" (any matrix).
        num_reflections: Number of columns of the U of `compact`; None if there is no such form.
        operator_cost: (multiply-adds for one row, torch operations for one step) of applying W without building it;
            None if this is not possible.
        manifolds: The manifold ("stiefel") of each free tensor that an optimizer must keep on a manifold, by name.
    """

    names: tuple[str, ...]
    n: int
    field: Field = "real"
    group: str = "O"
    num_reflections: int | None = None
    operator_cost: tuple[int, int] | None = None
    manifolds: dict[str, str]

    def __init__(self, n: int) -> None:
        super().__init__()
        self.n = check_integer("n", n, 1)
        self.manifolds = {}

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> BoundParametrization:
        """Move the buffers but keep their precision: `.bfloat16()` is for trained tensors, and W is built in
        float64.
        """
        before = dict(self._buffers)
        super()._apply(fn, recurse)
        for name, buffer in before.items():
            moved = self._buffers[name]
            if buffer is not None and moved is not None and moved.dtype != buffer.dtype:
                self._buffers[name] = buffer.to(moved.device)
        return self

    @property
    @abstractmethod
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        """The shapes of the free tensors, in the order of `names`."""

    def check_free(self, free: tuple[Tensor, ...]) -> None:
        """Raise unless the free tensors match `names` in number and shape, and are dense, real and on one device.

        Args:
            free: The free tensors, in the order of `names`.

        Raises:
            ArgumentError, ArgumentTypeError, ShapeError, DTypeError, DeviceError: If they do not.
        """
        device = getattr(free[0], "device", None) if len(free) > 1 else None
        fits = [
            isinstance(value, Tensor)
            and value.shape == shape
            and value.is_floating_point()
            and value.layout == torch.strided
            and (value is free[0] or value.device == device)
            for value, shape in zip(free, self.shapes)
        ]
        if len(free) == len(self.names) and all(fits):
            return
        if len(free) != len(self.names):
            raise ArgumentError(
                f"Expected {len(self.names)} free tensors ({', '.join(self.names)}), but got {len(free)}."
            )
        for name, value, shape in zip(self.names, free, self.shapes):
            check_shape(name, value, shape)
            if not value.is_floating_point():
                raise DTypeError(f"Expected {name} to be real and floating-point, but got {value.dtype}.")
            if value.device != free[0].device:
                raise DeviceError(
                    f"Expected {name} on {free[0].device}, as {self.names[0]} is, but got {value.device}. Move it with "
                    f".to()."
                )

    @abstractmethod
    def initial(self, generator: torch.Generator | None = None) -> tuple[Tensor, ...]:
        """Return initial free tensors, float64 on the CPU, and redraw the random buffers of this module.

        Args:
            generator: Random number generator, on the CPU. Default: None, torch's default generator.
        """

    def reset_parameters(self) -> None:
        """Redraw the random buffers; FSDP calls this on every module with tensors when it leaves the meta device."""
        if self._buffers:
            self.initial()

    @abstractmethod
    def forward(self, *free: Tensor) -> Tensor:
        """Return W (N, N), real or complex, built in float64 and cast to the precision of the free tensors;
        differentiable.

        Args:
            free: The free tensors, in the order of `names`.
        """

    def surrogate(self, *free: Tensor) -> Tensor | None:
        """Return the smooth matrix whose gradient `forward` passes on, if W is constant almost everywhere in the free
        tensors (straight-through gradients); otherwise None.

        Args:
            free: The free tensors, in the order of `names`.
        """
        return None

    @abstractmethod
    def right_inverse(self, W: Tensor) -> tuple[Tensor, ...]:
        """Return free tensors (and set this module's buffers in place) with forward(*free) == W.

        Args:
            W: The matrix (N, N), real or complex.

        Raises:
            NotOnGroupError: If W is outside the set that this parametrization spans; the message names the distance.
        """

    @property
    def memory(self) -> Tensor | None:
        """Units that start as a memory: W rotates their state, does not mix it with other units and keeps its norm.

        Bool (N,) on the CPU; None if W does not distinguish between units.
        """
        return None

    def count(self) -> int:
        """Return the number of trainable numbers as the papers count them: all numbers of the free tensors."""
        return sum(math.prod(shape) for shape in self.shapes)

    def compact(self, *free: Tensor) -> tuple[Tensor, Base] | None:
        """Return (U, B) with W = (I - U T^-1 U') B, in the real embedding if W is complex; None if there is no such
        form.

        U is packed reflectors (P,) or a matrix (N, M); see orthornn.compact_wy.

        Args:
            free: The free tensors, in the order of `names`.
        """
        return None

    def flow(self, *free: Tensor) -> tuple[Tensor, Tensor] | None:
        """Return (angles (N//2,), rates (N - N//2,)) in float64 if W is one unit of time of a flow of plane rotations:
        over a time t the pairs (i, i + N - N//2) turn by angle t and are scaled by exp(-rate t). Otherwise return None.

        Args:
            free: The free tensors, in the order of `names`.
        """
        return None

    @property
    def flows(self) -> bool:
        """True if `flow` returns a value; by default, if the class overrides it."""
        return type(self).flow is not BoundParametrization.flow

    def operands(self, *free: Tensor) -> tuple[Tensor, ...]:
        """Return the tensors that `multiply` reads, computed once per sequence from the free tensors, in their
        precision.

        The result contains all tensors that `multiply` reads, buffers included: the module may have other tensors when
        the backward pass runs.

        Args:
            free: The free tensors, in the order of `names`.
        """
        return ()

    def multiply(self, h: Tensor, *operands: Tensor) -> Tensor:
        """Return W h, computed through the structure of W, if `operator_cost` is not None.

        Args:
            h: Rows (R, N).
            operands: Result of `operands`.
        """
        raise NotImplementedError

    def multiply_adjoint(self, h: Tensor, *operands: Tensor) -> Tensor:
        """Return W^H h, computed through the structure of W.

        Args:
            h: Rows (R, N).
            operands: Result of `operands`.
        """
        raise NotImplementedError

    @property
    def acts_after_update(self) -> bool:
        """True if `after_update_` does something; by default, if the class overrides it."""
        return type(self).after_update_ is not BoundParametrization.after_update_

    def after_update_(self, *free: Tensor) -> None:
        """Apply, in place, the corrections required after an optimizer has changed the free tensors.

        Args:
            free: The free tensors, in the order of `names`.
        """
        return None

    def extra_repr(self) -> str:
        """Return the size, the group and the shapes of the free tensors."""
        shapes = ", ".join(f"{name}={shape}" for name, shape in zip(self.names, self.shapes))
        return f"{self.n}, group={self.group!r}, {shapes}"

    def orthogonality_error(self, W: Tensor) -> float:
        """Return ||W^H W - I||_F, computed in float64.

        Args:
            W: The matrix (N, N), real or complex.
        """
        return orthogonality_error(W)
