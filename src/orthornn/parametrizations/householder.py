"""Products of Householder reflections (Mhammedi et al., 2017, eqs. 6-9; complex ones in section 4.3).

Real:     W = H_n(u_n) ... H_{n-m+1}(u_{n-m+1}) B,          u_k of R^k,
          at m = n: W = H_n(u_n) ... H_2(u_2) H_1(u_1) B,   H_1(u_1) = diag(1, ..., 1, u_1).
Complex:  the same with u_k of C^k, at m = n: W = H^_n(u_n) ... H^_2(u_2) H^_1(theta), H^_1(theta) = diag(e^{i theta}).

The base B is I, or R with base="rotations": fixed or trained 2x2 rotations of the pairs (i, i + n - n//2) of a real
state, or phases e^{i phi_j} of a complex one. Without R, a product of m < n reflections has at least n - m eigenvalues
equal to 1 (docs/derivations/parametrizations.md). At m = n the complex phases theta already are such a base.

With m = n all of O(n), or U(n), is reached (Theorem 1, Corollary 1). det W = (-1)^m det B for m < n; at m = n it is
(-1)^(n-1) u_1 det B, and u_1 is fixed at initialization, because gradient steps are continuous and the two components
of O(n) are not connected.

H(u) depends only on the direction of u. A reflector whose entries are all below compact_wy.NEGLIGIBLE represents no
reflection (H = I) and has gradient zero.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor

from .. import compact_wy
from .._checks import check_choice, check_flag, check_integer
from ..compact_wy import Base
from ..errors import ArgumentError, NotOnGroupError
from .matrices import check_on_group, check_square, narrowed, rounding
from .parametrization import FIELDS, BoundParametrization, Field, Parametrization
from .reduction import reduce_orthogonal, reduce_rank, reduce_unitary

Angles = Literal["full", "quarter", "log"]
_FEWEST_RADIANS = 1e-3  # of the log-uniform angles


def draw_angles(count: int, how: Angles, generator: torch.Generator | None) -> Tensor:
    """Return angles (count,) of rotations, float64 on the CPU: "full", "quarter" or "log"; see `Householder`."""
    uniform = torch.rand(count, dtype=torch.float64, device="cpu", generator=generator)
    if how == "log":
        sign = torch.rand(count, dtype=torch.float64, device="cpu", generator=generator).sub(0.5).sign()
        return sign * torch.exp(uniform * math.log(math.pi / _FEWEST_RADIANS)) * _FEWEST_RADIANS
    reach = math.pi if how == "full" else math.pi / 2
    return (2 * uniform - 1) * reach


@dataclass(frozen=True, repr=False)
class Householder(Parametrization):
    """A product of Householder reflections and a base.

    Free tensors: `reflectors`, packed one after another, u_n first: (nm - m(m-1)/2,). Complex reflectors have a last
    dimension of 2; at m = n they exclude u_1, which `phases` (n,) replaces. With train_angles also `angles`.

    Args:
        reflections: Number of reflections, m. Default: None, m = n, which spans the whole group.
        field: ``"real"``, or ``"complex"`` for a unitary W. Default: ``"real"``.
        base: ``"identity"``, or ``"rotations"`` with angles in the buffer (or free tensor) `angles`. Default:
            ``"identity"``.
        u1: How to use the last entry of `reflectors`, u_1, at m = n. ``"sign"``: only its sign counts (u_1 <= 0 is read
            as -1); it is drawn at initialization and has gradient zero. ``"soft"``: any number in [-1, 1] (Mhammedi et
            al., 2017, section 6), clamped after each update; W is orthogonal only if it is +-1. Default: ``"sign"``.
        angles: Initial angles of base="rotations": ``"full"``, U(-pi, pi); ``"quarter"``, U(-pi/2, pi/2); or ``"log"``,
            a random sign times log-uniform in (1e-3, pi). Default: ``"full"``.
        train_angles: Whether these angles are a free tensor; otherwise they are a buffer. Default: False.
        unit: Whether reflectors start with norm 1 and are rescaled to norm 1 after each update (released code of
            Mhammedi et al., 2017). W depends only on directions, but an optimizer with steps as large as its learning
            rate, like Adam, turns a reflector of norm 1 sqrt(n) times faster than one whose entries have variance 1.
            Not available for complex reflectors. Default: False.
    """

    reflections: int | None = None
    field: Field = "real"
    base: Literal["identity", "rotations"] = "identity"
    u1: Literal["sign", "soft"] = "sign"
    angles: Angles = "full"
    train_angles: bool = False
    unit: bool = False

    def __post_init__(self) -> None:
        if self.reflections is not None:
            check_integer("reflections", self.reflections, 1)
        check_choice("field", self.field, FIELDS)
        check_choice("base", self.base, ("identity", "rotations"))
        check_choice("u1", self.u1, ("sign", "soft"))
        check_choice("angles", self.angles, get_args(Angles))
        check_flag("train_angles", self.train_angles)
        check_flag("unit", self.unit)
        if self.base == "identity" and (self.train_angles or self.angles != "full"):
            raise ArgumentError("Expected angles and train_angles only with base='rotations', but got base='identity'.")
        if self.unit and self.field == "complex":
            raise ArgumentError("Expected unit=True only with real reflectors, but got field='complex'.")

    def bind(self, n: int) -> BoundHouseholder:  # noqa: D102
        check_integer("n", n, 1)
        m = n if self.reflections is None else self.reflections
        group = "unitary" if self.field == "complex" else "orthogonal"
        check_integer("reflections", m, 1, n, f"Pass reflections={n} for the full {group} group.")
        if self.u1 == "soft" and (self.field == "complex" or m < n):
            raise ArgumentError(
                f"Expected u1='soft' only with real matrices of as many reflections as rows, but got "
                f"field={self.field!r}, reflections={m} of {n}."
            )
        return BoundComplexHouseholder(n, m, self) if self.field == "complex" else BoundHouseholder(n, m, self)


class BoundHouseholder(BoundParametrization):
    """The real product. `m` is the number of reflections, H_1 included."""

    angles: Tensor

    def __init__(self, n: int, m: int, description: Householder) -> None:
        super().__init__(n)
        self.m, self.description, self.field = m, description, description.field
        self.full = m == n
        self.num_reflections = (m - 1 if self.full else m) * (2 if self.field == "complex" else 1)
        self.trains_angles = description.base == "rotations" and description.train_angles
        self.names = ("reflectors", *self._more_names(), *(("angles",) if self.trains_angles else ()))
        self.group = self._group()
        if description.base == "rotations" and not self.trains_angles:
            self.register_buffer("angles", torch.zeros(self._angle_count(), dtype=torch.float64, device="cpu"))

    def _more_names(self) -> tuple[str, ...]:
        return ()

    def _group(self) -> str:
        if not self.full:
            return "subset"
        return "O" if self.description.u1 == "sign" else "contractions"

    def _angle_count(self) -> int:
        return self.n // 2

    @property
    def shapes(self) -> tuple[tuple[int, ...], ...]:  # noqa: D102
        reflectors = (compact_wy.packed_size(self.n, self.m),)
        return (reflectors, (self._angle_count(),)) if self.trains_angles else (reflectors,)

    def _with_angles(self, free: tuple[Tensor, ...], generator: torch.Generator | None) -> tuple[Tensor, ...]:
        if self.description.base == "identity":
            return free
        angles = draw_angles(self._angle_count(), self.description.angles, generator)
        if self.trains_angles:
            return *free, angles
        self.angles.copy_(angles)
        return free

    def initial(self, generator: torch.Generator | None = None) -> tuple[Tensor, ...]:
        """Return reflectors with independent standard normal entries, whose directions are uniform on the sphere.

        (The paper draws the entries uniformly. Only directions matter, and uniform entries would favor the corners of a
        cube.) u_1 is -1 or 1 with equal probability.
        """
        reflectors = torch.randn(self.shapes[0], dtype=torch.float64, device="cpu", generator=generator)
        if self.full:
            is_positive = torch.rand((), dtype=torch.float32, device="cpu", generator=generator) < 0.5
            reflectors[-1] = torch.where(is_positive, 1.0, -1.0)  # no branch on a value: fake tensors have none
        if self.description.unit:
            self._to_norm_one_(reflectors)
        return self._with_angles((reflectors,), generator)

    def _to_norm_one_(self, reflectors: Tensor) -> None:
        """Scale each reflector to norm 1, whatever its length; W does not change.

        u_1, the last one at m = n, does not change, nor does a negligible reflector, which represents no reflection.
        """
        m = self.m - 1 if self.full else self.m
        packed = reflectors[: compact_wy.packed_size(self.n, m)]
        lengths = torch.arange(self.n, self.n - m, -1, device=packed.device)
        largest = torch.segment_reduce(packed.abs(), "max", lengths=lengths, unsafe=True)
        scaled = largest > compact_wy.NEGLIGIBLE
        # A power of two scales without rounding; the squares below are then in range in any dtype.
        exponent = torch.frexp(torch.where(scaled, largest, 1)).exponent
        size = len(packed)
        packed.mul_(torch.ldexp(torch.ones_like(largest), -exponent).repeat_interleave(lengths, output_size=size))
        norms = torch.segment_reduce(packed.square(), "sum", lengths=lengths, unsafe=True).sqrt()
        packed.div_(torch.where(scaled, norms, 0.5).repeat_interleave(lengths, output_size=size))

    def _rotations(self, free: tuple[Tensor, ...], like: Tensor) -> Base:
        """Return (c, s) of the base R in float64, or None."""
        if self.description.base == "identity":
            return None
        angles = (free[-1] if self.trains_angles else self.angles).to(like.device, torch.float64)
        middle = [angles.new_zeros(1)] if self.n % 2 else []
        signed = torch.cat([-angles, *middle, angles])
        return signed.cos(), signed.sin()

    def _H1(self, u1: Tensor) -> Tensor:
        """Return the diagonal of H_1(u_1): (n,), float64."""
        return torch.cat([torch.ones(self.n - 1, dtype=torch.float64, device=u1.device), u1.double().reshape(1)])

    def _base(self, free: tuple[Tensor, ...], u1: Tensor | None) -> Base:
        """Return (c, s) of H_1(u_1) R in float64, or None."""
        base = self._rotations(free, free[0])
        if u1 is None:
            return base
        H1 = self._H1(u1)
        return (H1, torch.zeros_like(H1)) if base is None else (H1 * base[0], H1 * base[1])

    def _u1(self, reflectors: Tensor) -> Tensor:
        last = reflectors[-1]
        if self.description.u1 == "soft":
            return last.clamp(-1, 1)
        return torch.where(last > 0, 1.0, -1.0).to(last.dtype)

    def compact(self, *free: Tensor) -> tuple[Tensor, Base]:  # noqa: D102
        self.check_free(free)
        reflectors = free[0]
        base = self._base(free, self._u1(reflectors) if self.full else None)
        U = reflectors[:-1] if self.full else reflectors
        return U, None if base is None else (base[0].to(U.dtype), base[1].to(U.dtype))

    def forward(self, *free: Tensor) -> Tensor:  # noqa: D102
        self.check_free(free)
        reflectors = free[0].double()
        W = compact_wy.product(reflectors[:-1] if self.full else reflectors, n=self.n)
        if self.full:
            W = W * self._H1(self._u1(reflectors))
        return compact_wy.apply_base_transpose(W, self._rotations(free, reflectors)).to(free[0].dtype)

    @property
    def acts_after_update(self) -> bool:  # noqa: D102
        return self.description.u1 == "soft" or self.description.unit

    @torch.no_grad()
    def after_update_(self, *free: Tensor) -> None:  # noqa: D102
        if self.description.u1 == "soft":
            free[0][-1].clamp_(-1, 1)
        if self.description.unit:
            self._to_norm_one_(free[0])

    def right_inverse(self, W: Tensor) -> tuple[Tensor, ...]:
        """Return reflectors by the constructive proof of Theorem 1, or for m < n of
        docs/derivations/parametrizations.md.

        The second proof requires rank(W B^-1 - I) <= m.

        Fixed rotations are used as they are bound. Trained angles are set to zero, so for m < n a matrix built with
        other angles is out of reach.
        """
        soft = self.description.u1 == "soft"
        Q = check_square(W, self.n, self.field) if soft else check_on_group(W, self.n, self.field)
        zero = torch.zeros(self._angle_count(), dtype=torch.float64, device=W.device)
        rotations = self._rotations((zero,), Q)
        if rotations is not None:
            Q = Q @ self._dense(rotations).mT
        if self.full:
            length = 1.0
            if soft:
                Q, length = self._split_u1(Q, rounding(W))
            U, u1 = reduce_orthogonal(Q)
            packed = torch.cat([compact_wy.pack(U), (u1 * length).reshape(1)])
        else:
            packed = compact_wy.pack(reduce_rank(Q, self.m, rounding(W), self._target()))
        if self.description.unit:
            self._to_norm_one_(packed)
        return (packed, zero) if self.trains_angles else (packed,)

    def _target(self) -> str:
        """Return the part of W that the reflections must represent, for messages."""
        return "W" if self.description.base == "identity" else "W B^-1"

    def _dense(self, base: tuple[Tensor, Tensor]) -> Tensor:
        identity = torch.eye(self.n, dtype=torch.float64, device=base[0].device)
        return compact_wy.apply_base(identity, base).mT

    def _split_u1(self, M: Tensor, tolerance: float) -> tuple[Tensor, float]:
        """Return Q and u in [-1, 1] with M = Q diag(1, ..., 1, u), Q orthogonal; raise NotOnGroupError if none
        exist.
        """
        left, _, right = torch.linalg.svd(M[:, :-1], full_matrices=True)
        Q = torch.cat([left[:, :-1] @ right, left[:, -1:]], dim=1)
        u = float((Q[:, -1] @ M[:, -1]).clamp(-1, 1))
        distance = float(torch.linalg.matrix_norm(M - torch.cat([Q[:, :-1], u * Q[:, -1:]], dim=1)))
        if distance > tolerance:
            raise NotOnGroupError(
                f"Expected {self._target()} to be orthogonal except for the length of its last column, at most 1, but got "
                f"a distance of {distance:.3g} (rounding allows {tolerance:.1g}). Take its polar factor, or "
                f"Unconstrained()."
            )
        return Q, u


class BoundComplexHouseholder(BoundHouseholder):
    """The complex product; at m = n its last factor is H^_1(theta)."""

    field: Field = "complex"

    def _more_names(self) -> tuple[str, ...]:
        return ("phases",) if self.full else ()

    def _group(self) -> str:
        return "U" if self.full else "subset"

    def _angle_count(self) -> int:
        return self.n

    def initial(self, generator: torch.Generator | None = None) -> tuple[Tensor, ...]:
        """Return reflectors with independent standard normal parts, phases theta from U(-pi, pi)."""
        reflectors = torch.randn(self.shapes[0], dtype=torch.float64, device="cpu", generator=generator)
        if not self.full:
            return self._with_angles((reflectors,), generator)
        theta = torch.rand(self.n, dtype=torch.float64, device="cpu", generator=generator)
        return self._with_angles((reflectors, (2 * theta - 1) * math.pi), generator)

    @property
    def shapes(self) -> tuple[tuple[int, ...], ...]:  # noqa: D102
        reflectors = (compact_wy.packed_size(self.n, self.m - 1 if self.full else self.m), 2)
        return (reflectors, *((self.n,) for _ in self.names[1:]))

    def _phases(self, free: tuple[Tensor, ...]) -> Tensor | None:
        """Return the phases of B (N,) in float64, or None: theta, the phases of the rotations, or their sum."""
        total = free[1].double() if self.full else None
        if self.description.base == "rotations":
            angles = (free[-1] if self.trains_angles else self.angles).double().to(free[0].device)
            total = angles if total is None else total + angles
        return total

    def _reflectors(self, free: tuple[Tensor, ...]) -> Tensor:
        """Return the reflectors, scaled to norm sqrt(2): (N, M, 2) in float64."""
        self.check_free(free)
        reflectors = compact_wy.unpack(free[0].double(), self.n)
        stacked = compact_wy.normalize(torch.cat(reflectors.unbind(-1)))
        return torch.stack(stacked.chunk(2), dim=-1)

    def compact(self, *free: Tensor) -> tuple[Tensor, Base]:  # noqa: D102
        U, phases, dtype = compact_wy.embed_reflectors(self._reflectors(free)), self._phases(free), free[0].dtype
        if phases is None:
            return U.to(dtype), None
        cosine, sine = phases.cos(), phases.sin()
        return U.to(dtype), (torch.cat([cosine, cosine]).to(dtype), torch.cat([-sine, sine]).to(dtype))

    def forward(self, *free: Tensor) -> Tensor:  # noqa: D102
        W = compact_wy.multiplied_out(torch.view_as_complex(self._reflectors(free)), trapezoid=True)
        phases = self._phases(free)
        if phases is not None:
            W = W * torch.polar(torch.ones_like(phases), phases)
        return narrowed(W, free[0])

    def right_inverse(self, W: Tensor) -> tuple[Tensor, ...]:
        """Return reflectors of any unitary matrix if m = n, or of a product of m reflections if m < n, with trained
        angles again set to zero.

        A complex reflection I - 2uu*/||u||^2 maps q to e_j only if q_j is real. Most unitary matrices, even with rank(W
        B^-1 - I) <= m, are therefore not such a product; NotOnGroupError names the rank or the remaining distance.
        """
        Q = check_on_group(W, self.n, self.field)
        zero = torch.zeros(self.n, dtype=torch.float64, device=W.device)
        if self.description.base == "rotations" and not self.trains_angles:
            Q = Q * torch.exp(-1j * self.angles.double().to(W.device))
        if self.full:
            U, theta = reduce_unitary(Q)
            free: tuple[Tensor, ...] = (compact_wy.pack(torch.view_as_real(U)), theta)
        else:
            U = reduce_rank(Q, self.m, rounding(W), self._target())
            free = (compact_wy.pack(torch.view_as_real(U)),)
        return (*free, zero) if self.trains_angles else free
