"""Scaled Cayley transform (Helfrich et al., 2018, Theorem 3.1).

W = (I + A)^-1 (I - A) D,   A skew-symmetric (skew-Hermitian if complex),   D = diag(+-1), its last rho entries -1.

Every orthogonal W has this form with some D and |a_ij| <= 1 (Kahan, 2006). With D fixed, W ranges over all orthogonal
matrices with det W = det D = (-1)^rho and I + W D nonsingular; in the complex case over all unitary W with I + W D
nonsingular.

Gradient (Theorem 3.2; docs/derivations/parametrizations.md): with V = (I + A)^-H (dL/dW) (D^H + W^H), dL/dA = V^H - V.
Here with P = (I + A)^-1: W = (2 P - I) D, so D^H + W^H = 2 D^H P^H and V = 2 P^H (dL/dW) D^H P^H.

With phases (Maduranga et al., 2018, scuRNN), D = diag(+-e^{i theta_j}) with trained theta. Every unitary W has this
form.
With Z = W D^-1, dL/dd_j = sum_i conj(z_ij) (dL/dW)_ij.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from .._checks import check_choice, check_flag, check_integer, is_transformed
from ..errors import ArgumentError
from .matrices import check_on_group, narrowed, solve
from .parametrization import FIELDS, BoundParametrization, Field, Parametrization, group_of_signs, signs_of
from .skew import block_diagonal, skew_matrix, skew_numbers, skew_shapes

Init = Literal["blocks", "zero", "uniform"]


@dataclass(frozen=True, repr=False)
class ScaledCayley(Parametrization):
    """An orthogonal matrix given by the scaled Cayley transform, W = (I + A)^-1 (I - A) D.

    Free tensors: `skew`, the n(n-1)/2 numbers a_ij (i < j, row by row; (n(n-1)/2, 2) if complex), and if complex
    `diagonal`, (n,): a_jj = i diagonal_j. With phases=True the `phases` of D, (n,), are a third free tensor.

    Args:
        negatives: Number of entries of D that are -1, rho; the others are 1. Default: 0.
        field: ``"real"``, or ``"complex"`` for a skew-Hermitian A and a unitary W. Default: ``"real"``.
        phases: Train D's entries as phases, initialized from U[0, 2 pi] as in the authors' code. Requires
            ``field="complex"``. Default: False.
        init: Initial A. ``"blocks"``: as in section 4.2 of the paper. For comparison: ``"zero"``: A = 0, so W = D;
            ``"uniform"``: every a_ij from U(-sqrt(3/n), sqrt(3/n)), as in Glorot's initialization. Default:
            ``"blocks"``.
    """

    negatives: int = 0
    field: Field = "real"
    phases: bool = False
    init: Init = "blocks"

    def __post_init__(self) -> None:
        check_integer("negatives", self.negatives, 0)
        check_choice("init", self.init, get_args(Init))
        check_choice("field", self.field, FIELDS)
        check_flag("phases", self.phases)
        if self.phases and self.field != "complex":
            raise ArgumentError(
                "Expected phases=True only with field='complex', but got field='real', for which D holds signs. Use "
                "field='complex'."
            )

    def bind(self, n: int) -> BoundScaledCayley:  # noqa: D102
        check_integer("n", n, 1)
        check_integer("negatives", self.negatives, 0, n, f"The matrix has {n} rows.")
        if self.field == "real":
            return BoundScaledCayley(n, self.negatives, self.init)
        return (BoundPhasedCayley if self.phases else BoundComplexScaledCayley)(n, self.negatives, self.init)


class _Cayley(torch.autograd.Function):
    """(A, d) -> W, both in double precision; d is the diagonal of D. The gradient needs only matrix products."""

    @staticmethod
    def forward(ctx: Any, A: Tensor, d: Tensor) -> Tensor:
        P = _resolvent(A)
        ctx.save_for_backward(A, d, P)
        return _transform(P, d)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor | None]:
        # Of differentiable operations, so that higher derivatives go through it.
        A, d, P = ctx.saved_tensors  # once: activation checkpointing unpacks them once
        P = _resolvent(A) if torch.is_grad_enabled() else P
        V = 2 * (P.mH @ (grad * d.conj()) @ P.mH)
        # -V is the gradient for an unstructured A; the map from the free numbers to A makes V^H - V of it.
        grad_d = (_transform(P, torch.ones_like(d)).conj() * grad).sum(dim=0) if ctx.needs_input_grad[1] else None
        return -V, grad_d


def _cayley(A: Tensor, d: Tensor) -> Tensor:
    if torch.compiler.is_compiling() or is_transformed():
        return _transform(_resolvent(A), d)
    return _Cayley.apply(A, d)


def _resolvent(A: Tensor) -> Tensor:
    """Return P = (I + A)^-1. Its norm is at most 1: the singular values of I + A are at least 1."""
    identity = torch.eye(A.shape[0], dtype=A.dtype, device=A.device)
    return solve(identity + A, identity)


def _transform(P: Tensor, d: Tensor) -> Tensor:
    """Return W = (2 P - I) D, since I - A = 2 I - (I + A)."""
    return 2 * P * d - torch.diag(d)


class BoundScaledCayley(BoundParametrization):
    """The real transform. Buffer `D`: the diagonal of D, (N,)."""

    names: tuple[str, ...] = ("skew",)
    D: Tensor

    def __init__(self, n: int, negatives: int, init: Init = "blocks") -> None:
        super().__init__(n)
        self.negatives, self.init = negatives, init
        self.register_buffer("D", self._initial_D())

    @property
    def group(self) -> str:  # type: ignore[override]
        """ "SO" or "det=-1", according to the signs in D, which right_inverse may have changed; "U" if complex."""
        return "U" if self.field == "complex" else group_of_signs(self.D, self.negatives)

    @property
    def shapes(self) -> tuple[tuple[int, ...], ...]:  # noqa: D102
        return skew_shapes(self.n, self.field)

    def _initial_D(self) -> Tensor:
        D = torch.ones(self.n, dtype=torch.float64, device="cpu")
        D[self.n - self.negatives :] = -1
        return D

    def _block_values(self, generator: torch.Generator | None) -> Tensor:
        """Return s_j of section 4.2: sqrt((1 - cos t_j)/(1 + cos t_j)) = tan(t_j/2), t_j ~ U[0, pi/2]: (n // 2,)."""
        t = torch.rand(self.n // 2, dtype=torch.float64, device="cpu", generator=generator) * (math.pi / 2)
        return torch.tan(t / 2)

    def initial(self, generator: torch.Generator | None = None) -> tuple[Tensor, ...]:
        """Return the initial values of section 4.2: A has blocks [[0, s_j], [-s_j, 0]] on the diagonal, and D is as
        described.

        W then has eigenvalues e^{+-i t_j}, or -e^{+-i t_j} for a block on which D is -1. An odd rho splits one block
        into (+1, -1): its two eigenvalues are 1 and -1. An odd n leaves one row by itself, with eigenvalue +-1.
        """
        self.D.copy_(self._initial_D())
        if self.init == "blocks":
            return skew_numbers(block_diagonal(self._block_values(generator), self.n))
        above = torch.zeros(self.n * (self.n - 1) // 2, dtype=torch.float64, device="cpu")
        if self.init == "uniform":
            uniform = torch.rand(above.shape, dtype=above.dtype, device="cpu", generator=generator)
            above = math.sqrt(3 / self.n) * (2 * uniform - 1)
        return (above,)

    def matrix_A(self, skew: Tensor, diagonal: Tensor | None = None) -> Tensor:
        """Return A (N, N), built from its free numbers, in double precision."""
        return skew_matrix(self.n, skew, diagonal)

    def forward(self, *free: Tensor) -> Tensor:  # noqa: D102
        self.check_free(free)
        A = self.matrix_A(*free)
        return narrowed(_cayley(A, signs_of(self.D).to(A.device, A.dtype)), free[0])

    def right_inverse(self, W: Tensor) -> tuple[Tensor, ...]:
        """Return the free numbers of an A with |a_ij| <= 1, and set the buffer D to signs that make this possible. If
        complex, |a_jj| <= 1 and |a_ij| <= sqrt(2).

        D keeps its signs, except that one changes if det D and det W differ. Then signs i and j are flipped as long as
        some |a_ij| > 1 (docs/derivations/parametrizations.md). The number of negatives may therefore change.
        """
        return skew_numbers(self._invert(check_on_group(W, self.n, self.field)))

    def _invert(self, Q: Tensor) -> Tensor:
        """Return A for the signs D that this function finds and stores in the buffer.

        Flipping the signs of a set of rows multiplies |det(I + Q D)| by the corresponding principal minor of A: a_ij^2
        for two rows of a real A; |a_jj| for one row and ||a_ij|^2 + a_ii a_jj| for two rows of a complex A. Flip while
        one exceeds 1.
        """
        D = self._nonsingular_signs(Q)
        identity = torch.eye(self.n, dtype=Q.dtype, device=Q.device)
        while True:
            A = 2 * torch.linalg.inv(identity + Q * D) - identity
            A = (A - A.mH) / 2
            diagonal = A.diagonal()
            minors = (torch.outer(diagonal, diagonal) - A * A.mT).abs()
            minors = minors - torch.diag(minors.diagonal()) + torch.diag(diagonal.abs())
            worst = int(minors.argmax())
            # A margin of rounding, so that a minor of 1 exactly is not flipped for ever.
            if minors.flatten()[worst] <= 1 + 64 * self.n * torch.finfo(torch.float64).eps:
                self.D.copy_(D.real)
                return A
            i, j = divmod(worst, self.n)
            D[i] = -D[i]
            if i != j:
                D[j] = -D[j]

    def _nonsingular_signs(self, Q: Tensor) -> Tensor:
        """Return signs D with det D = det Q and I + Q D well away from singular.

        I + Q D = Q (Q^H + D). In Gaussian elimination of Q^H + D, the k-th pivot is s + d_k, and d_1 ... d_{k-1}
        determine s; d_k = sign(Re s) makes its modulus at least 1, so |det(I + Q D)| >= 1. Then Q D does not have the
        eigenvalue -1, so det Q D = 1 in the real case.
        """
        n = self.n
        D = signs_of(self.D).to(Q.device, Q.dtype)
        if self.field == "real" and torch.linalg.slogdet(Q)[0] != torch.prod(D):
            D[-1] = -D[-1]
        identity = torch.eye(n, dtype=Q.dtype, device=Q.device)
        if torch.linalg.svdvals(identity + Q * D)[-1] > 1e-8:  # not its condition: it may be nothing but rounding
            return D
        work = Q.mH.clone()
        for k in range(n):
            D[k] = 1.0 if work[k, k].real >= 0 else -1.0
            work[k, k] += D[k]
            work[k + 1 :, k + 1 :] -= torch.outer(work[k + 1 :, k], work[k, k + 1 :]) / work[k, k]
        return D


class BoundComplexScaledCayley(BoundScaledCayley):
    """The complex transform: A = -A^H."""

    names: tuple[str, ...] = ("skew", "diagonal")
    field: Field = "complex"

    def initial(self, generator: torch.Generator | None = None) -> tuple[Tensor, ...]:
        """Return the real initialization with a_jj = 0."""
        (skew,) = super().initial(generator)
        diagonal = torch.zeros(self.n, dtype=torch.float64, device="cpu")
        return torch.stack([skew, torch.zeros_like(skew)], dim=-1), diagonal


class BoundPhasedCayley(BoundComplexScaledCayley):
    """The complex transform with D = diag(D_j e^{i phases_j}), the signs D_j a buffer."""

    names: tuple[str, ...] = ("skew", "diagonal", "phases")

    @property
    def shapes(self) -> tuple[tuple[int, ...], ...]:  # noqa: D102
        return *skew_shapes(self.n, "complex"), (self.n,)

    def initial(self, generator: torch.Generator | None = None) -> tuple[Tensor, ...]:
        """Return the real initialization of A with a_jj = 0, and phases from U[0, 2 pi]."""
        free = super().initial(generator)
        phases = torch.rand(self.n, dtype=torch.float64, device="cpu", generator=generator)
        return *free, 2 * math.pi * phases

    def forward(self, skew: Tensor, diagonal: Tensor, phases: Tensor) -> Tensor:  # type: ignore[override]  # noqa: D102
        self.check_free((skew, diagonal, phases))
        d = signs_of(self.D).to(phases.device) * torch.polar(
            torch.ones_like(phases, dtype=torch.float64), phases.double()
        )
        return narrowed(_cayley(self.matrix_A(skew, diagonal), d), skew)

    def right_inverse(self, W: Tensor) -> tuple[Tensor, ...]:
        """Return the free tensors of the transform without phases, and zero phases: the buffer D stores the signs."""
        free = super().right_inverse(W)
        return *free, torch.zeros_like(free[1])
