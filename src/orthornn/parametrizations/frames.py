"""Rectangular weights with orthonormal columns or rows, whichever are fewer: points of a Stiefel manifold.

A frame X (n, k), n > k, has orthonormal columns. A weight with fewer rows than columns is X'. Let E be the first k
columns of the identity.

Householder            X = H_n(u_n) ... H_{n-k+1}(u_{n-k+1}) E: every frame, nk - k(k-1)/2 numbers; H_{n-k} and below
                       would leave E as it is.
Stiefel                X itself, which an optimizer leaves on the manifold.
ScaledCayley, MatrixExponential, Givens and whatever else spans O(n) or SO(n)
                       X = Q E with Q (n, n): every frame, because k < n leaves a column to choose the determinant by
                       (ScaledCayley with fixed signs: all but a set of measure zero).
                       It has the numbers of Q, some of which turn only what E leaves out.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from .. import compact_wy
from .._checks import check_finite, check_integer, check_shape
from ..errors import ArgumentError, DTypeError, NotOnGroupError
from .householder import BoundHouseholder, Householder
from .matrices import polar_factor, rounding
from .parametrization import BoundParametrization, Parametrization
from .reduction import reduce_frame
from .search import search
from .stiefel import Stiefel
from .unconstrained import Unconstrained

SUPPORTED = "Householder(), Stiefel(), ScaledCayley(), MatrixExponential(), Givens() and SpectralMargin(0)"


def bind_frame(parametrization: Parametrization, rows: int, columns: int) -> BoundFrame:
    """Return the module that maps free tensors to a weight (rows, columns), rows != columns.

    Raises:
        ArgumentError: If the parametrization has no rectangular form; the message states the reason.
    """
    n, k = max(rows, columns), min(rows, columns)
    if isinstance(parametrization, Stiefel) and parametrization.field == "real":
        return StiefelFrame(rows, columns)
    if isinstance(parametrization, Householder) and parametrization.field == "real":
        return HouseholderFrame(rows, columns, _reflections(parametrization, n, k))
    if isinstance(parametrization, Unconstrained):
        raise _refused(parametrization, rows, columns, "it does not keep matrices orthogonal")
    method = parametrization.bind(n)
    if method.field == "complex":
        raise _refused(parametrization, rows, columns, "its matrices are complex")
    if method.group in ("margin", "all"):
        reason = "the singular values of some columns of U S V' may leave the bounds of the whole matrix"
        raise _refused(parametrization, rows, columns, reason)
    if method.group not in ("O", "SO", "det=-1"):
        raise _refused(parametrization, rows, columns, f"it does not reach every orthogonal matrix of size {n}")
    return FactorFrame(rows, columns, method)


def _refused(parametrization: Parametrization, rows: int, columns: int, reason: str) -> ArgumentError:
    return ArgumentError(
        f"Expected a parametrization of rectangular weights for a weight of shape ({rows}, {columns}), but got "
        f"{parametrization!r}: {reason}. Use one of {SUPPORTED}."
    )


def _reflections(parametrization: Householder, n: int, k: int) -> BoundHouseholder:
    """Return the square matrix's parametrization, limited to the reflections that act on k columns."""
    if parametrization.base != "identity":
        raise ArgumentError(
            f"Expected base='identity' for a rectangular weight, but got {parametrization!r}: if rotations mix columns of "
            f"the weight with columns outside it, reflections do not reach every frame. Use base='identity'."
        )
    m = k if parametrization.reflections is None else parametrization.reflections
    advice = f"Only {k} reflections act on {k} orthonormal vectors of length {n}; pass None for {k}."
    check_integer("reflections", m, 1, k, advice)
    method = replace(parametrization, reflections=m).bind(n)
    assert isinstance(method, BoundHouseholder)
    return method


class BoundFrame(BoundParametrization):
    """Free tensors -> a real weight (rows, columns) with orthonormal rows or columns; n is the longer side, k the
    shorter.
    """

    def __init__(self, rows: int, columns: int) -> None:
        super().__init__(max(rows, columns))
        self.k = check_integer("the shorter side of the weight", min(rows, columns), 1, self.n - 1)
        self.is_wide = columns > rows

    def frame(self, *free: Tensor) -> Tensor:
        """Return X (n, k), differentiable, in the precision of the free tensors."""
        raise NotImplementedError

    def from_frame(self, X: Tensor, allowed: float) -> tuple[Tensor, ...]:
        """Return free tensors of X (n, k), which is orthonormal to float64. allowed: The distance that rounding
        explains.
        """
        raise NotImplementedError

    def forward(self, *free: Tensor) -> Tensor:
        """Return the weight (rows, columns)."""
        self.check_free(free)
        X = self.frame(*free)
        return X.mT if self.is_wide else X

    def right_inverse(self, W: Tensor) -> tuple[Tensor, ...]:
        """Return free tensors of a weight (rows, columns); raise NotOnGroupError, with the distance, if it is not a
        frame.
        """
        shape = (self.k, self.n) if self.is_wide else (self.n, self.k)
        check_shape("W", W, shape)
        if not W.is_floating_point():
            raise DTypeError(
                f"Expected a real floating-point W, but got {W.dtype}. Convert it with .to(torch.float64)."
            )
        check_finite("W", W)
        X = W.detach().mT if self.is_wide else W.detach()
        error, allowed = self.orthogonality_error(W), rounding(X)
        if error > allowed:
            kind = "rows" if self.is_wide else "columns"
            raise NotOnGroupError(
                f"Expected W of shape {shape} with orthonormal {kind}, but got a distance from them of {error:.3g} "
                f"(Frobenius norm of the Gram matrix minus I; rounding of {W.dtype} allows {allowed:.1g}). Take "
                f"its polar factor."
            )
        return self.from_frame(polar_factor(X.double()), allowed)

    def extra_repr(self) -> str:
        """Return the shapes of the weight and of the free tensors."""
        rows, columns = (self.k, self.n) if self.is_wide else (self.n, self.k)
        return ", ".join(
            [str(rows), str(columns), *(f"{name}={shape}" for name, shape in zip(self.names, self.shapes))]
        )

    def orthogonality_error(self, W: Tensor) -> float:
        """Return ||X'X - I||_F in float64."""
        return super().orthogonality_error(W.mT if self.is_wide else W)


class StiefelFrame(BoundFrame):
    """The frame as its own free tensor `weight`, (n, k), even if the weight is its transpose."""

    names: tuple[str, ...] = ("weight",)

    def __init__(self, rows: int, columns: int) -> None:
        super().__init__(rows, columns)
        self.manifolds = {"weight": "stiefel"}

    @property
    def shapes(self) -> tuple[tuple[int, ...], ...]:  # noqa: D102
        return ((self.n, self.k),)

    def count(self) -> int:
        """Return the dimension of the manifold."""
        return self.n * self.k - self.k * (self.k + 1) // 2

    def initial(self, generator: torch.Generator | None = None) -> tuple[Tensor, ...]:
        """Return a uniformly distributed frame: the first k columns of a matrix from the Haar measure."""
        Q, R = torch.linalg.qr(torch.randn(self.n, self.k, dtype=torch.float64, device="cpu", generator=generator))
        return (Q * torch.sgn(R.diagonal()),)

    def frame(self, *free: Tensor) -> Tensor:  # noqa: D102
        return free[0]

    def from_frame(self, X: Tensor, allowed: float) -> tuple[Tensor, ...]:  # noqa: D102
        return (X,)


class FactorFrame(BoundFrame):
    """The first k columns of a square orthogonal matrix with the parametrization `method`."""

    def __init__(self, rows: int, columns: int, method: BoundParametrization) -> None:
        super().__init__(rows, columns)
        self.method = method
        self.names, self.manifolds = method.names, method.manifolds

    @property
    def shapes(self) -> tuple[tuple[int, ...], ...]:  # noqa: D102
        return self.method.shapes

    def initial(self, generator: torch.Generator | None = None) -> tuple[Tensor, ...]:
        """Return the initial values of the square matrix."""
        return self.method.initial(generator)

    def frame(self, *free: Tensor) -> Tensor:  # noqa: D102
        return self.method(*free)[:, : self.k]

    def from_frame(self, X: Tensor, allowed: float) -> tuple[Tensor, ...]:
        """Return the free tensors of X extended by n - k columns. The sign of the last column makes the determinant 1,
        or -1 if the parametrization requires it.
        """
        rest = torch.linalg.qr(X, mode="complete").Q[:, self.k :]
        Q = torch.cat([X, rest], dim=1)
        wanted = -1.0 if self.method.group == "det=-1" else 1.0
        if float(torch.linalg.slogdet(Q)[0]) != wanted:
            Q[:, -1] *= -1
        return self.method.right_inverse(Q)

    @property
    def acts_after_update(self) -> bool:  # noqa: D102
        return self.method.acts_after_update

    def after_update_(self, *free: Tensor) -> None:  # noqa: D102
        self.method.after_update_(*free)


class HouseholderFrame(FactorFrame):
    """Reflections of the first k columns of the identity; the square matrix is never built."""

    method: BoundHouseholder

    def frame(self, *free: Tensor) -> Tensor:  # noqa: D102
        U, S = compact_wy.factors(free[0].double(), self.n)
        E = torch.eye(self.n, self.k, dtype=U.dtype, device=U.device)
        return (E - U @ (S @ U[: self.k].mT)).to(free[0].dtype)

    def from_frame(self, X: Tensor, allowed: float) -> tuple[Tensor, ...]:
        """Return one reflector per column; with fewer reflections than columns, search for an exact representation."""
        if self.method.m < self.k:
            free = search(self, X.mT if self.is_wide else X, allowed)
        else:
            free = (compact_wy.pack(reduce_frame(X)[0]),)
        if self.method.description.unit:
            self.method._to_norm_one_(free[0])
        return free
