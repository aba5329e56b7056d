r"""Householder reflections on rotations, part of which forget.

    W = (I - U T^-1 U') B,    B h = c * h + s * swap(h),    c = g cos(a),  s = -+ g sin(a)

This is `householder.py` with base="rotations", except for the factor g of each pair of units (i, i + N - N//2), or of
the odd unit. The first pairs remember: g is exactly 1. The other pairs are leaky: g = exp(-exp(d)) with a trained d,
and they forget with the time constant exp(-d), in steps. W'W = B'B = diag(g^2), so ||W h|| <=
||h||, with equality on the units that remember.

Initial values: the angles are uniform on the circle, and g is drawn uniformly by area from a ring (rotations.py).
Reflectors are zero on the units that remember and have independent normal entries on the leaky ones, so

    W = [R 0; 0 W_leaky]    up to the order of the units.

The first part rotates its state, neither losing nor mixing it over any number of steps, and the same holds for
gradients there. The second part is an ordinary recurrent network whose past fades. Training couples the two. (If all
units are mixed from the start, everything fades: for a random orthogonal Q, the eigenvalues of Q diag(g) have modulus
at most sqrt(mean g^2) for large N.)

Reflectors start with norm 1. W depends only on their directions, and an optimizer with steps as large as its learning
rate, like Adam, turns them sqrt(N) times faster than reflectors whose entries have variance 1. Their gradient is
orthogonal to them, so their norm grows by about rate^2 N / 2 per update, which slowly lowers the rate of turning;
nothing rescales them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import get_args

import torch
from torch import Tensor

from .._checks import check_choice, check_integer, check_number
from ..compact_wy import Base, packed_size
from ..errors import NotOnGroupError
from .householder import Angles, BoundHouseholder, Householder
from .matrices import check_square, rounding
from .parametrization import Parametrization
from .rotations import RADII, check_radii, decay_of, draw_decay, factors_of


@dataclass(frozen=True, repr=False)
class LeakyHouseholder(Parametrization):
    """Householder reflections on fixed rotations, some of which decay at trained rates; the others keep the norm.

    Free tensors: ``reflectors``, as in :class:`~orthornn.Householder`, and ``decay`` (K,), one entry for each leaky
    pair or odd unit, minus the logarithm of its time constant in steps. The angles of the rotations are the buffer
    ``angles`` (N//2,).

    Args:
        reflections: Number of reflections, m. Default: None, m = N.
        leaky: Share of the pairs that decay, from 0 to 1, rounded down: K = leaky (N - N//2). Default: 0.5.
        radii: Bounds of the ring from which the factors of the leaky pairs are drawn, uniformly by area. Default:
            ``(0.9, 0.999)``.
        angles: Initial angles of the rotations; see :class:`~orthornn.Householder`. Default: ``"full"``.

    Example::

        >>> rnn = OrthogonalRNN(3, 8, parametrization=LeakyHouseholder(reflections=4))
        >>> rnn.transition_l0.decay.shape  # 4 pairs, of which 2 are leaky
        torch.Size([2])
    """

    reflections: int | None = None
    leaky: float = 0.5
    radii: tuple[float, float] = RADII
    angles: Angles = "full"

    def __post_init__(self) -> None:
        if self.reflections is not None:
            check_integer("reflections", self.reflections, 1)
        object.__setattr__(self, "leaky", check_number("leaky", self.leaky, 0, 1))
        object.__setattr__(self, "radii", check_radii(self.radii))
        check_choice("angles", self.angles, get_args(Angles))

    def bind(self, n: int) -> BoundLeakyHouseholder:  # noqa: D102
        check_integer("n", n, 1)
        m = n if self.reflections is None else self.reflections
        check_integer("reflections", m, 1, n, f"Pass reflections={n} for the full orthogonal group.")
        return BoundLeakyHouseholder(n, m, self)


class BoundLeakyHouseholder(BoundHouseholder):
    """The product. The last `leaky_pairs` of the N - N//2 pairs decay."""

    def __init__(self, n: int, m: int, description: LeakyHouseholder) -> None:
        super().__init__(n, m, Householder(m, base="rotations", angles=description.angles))
        self.radii = description.radii
        self.leaky_pairs = int(description.leaky * (n - n // 2))
        self.names = ("reflectors", "decay")

    def _group(self) -> str:
        return "decays"

    @property
    def shapes(self) -> tuple[tuple[int, ...], ...]:  # noqa: D102
        return (packed_size(self.n, self.m),), (self.leaky_pairs,)

    @property
    def memory(self) -> Tensor:  # noqa: D102
        return self._by_unit(torch.arange(self.n - self.n // 2, device="cpu") < self.n - self.n // 2 - self.leaky_pairs)

    def _by_unit(self, pairs: Tensor) -> Tensor:
        """Return a value per unit from one per pair, which includes the odd unit: (N - N//2,) -> (N,)."""
        return torch.cat([pairs, pairs[: self.n // 2]])

    def initial(self, generator: torch.Generator | None = None) -> tuple[Tensor, ...]:
        """Return reflectors of norm 1 in random directions of the leaky units, and the decay.

        A reflector without a leaky unit points in any direction.
        """
        (reflectors,) = super().initial(generator)
        return self._on_leaky_units(reflectors), draw_decay(self.leaky_pairs, self.radii, generator)

    def _on_leaky_units(self, reflectors: Tensor) -> Tensor:
        m = self.m - 1 if self.full else self.m
        column, row = torch.triu_indices(m, self.n, device="cpu")
        memory = self.memory
        leaky = torch.arange(self.n, device="cpu").masked_fill(memory, -1)
        packed = torch.where(memory[row] & (column <= leaky.max()), 0.0, reflectors[: len(row)])
        reflectors = torch.cat([packed, reflectors[len(row) :]])
        self._to_norm_one_(reflectors)
        return reflectors

    def _rotations(self, free: tuple[Tensor, ...], like: Tensor) -> Base:
        base = super()._rotations(free, like)
        assert base is not None
        factors = self._by_unit(factors_of(free[1].to(like.device), self.n - self.n // 2))
        return base[0] * factors, base[1] * factors

    @property
    def acts_after_update(self) -> bool:  # noqa: D102
        return False

    def right_inverse(self, W: Tensor) -> tuple[Tensor, ...]:
        """Return the decay of a W with orthogonal columns, derived from their lengths, and the reflectors of the
        remaining orthogonal matrix; see :class:`~orthornn.Householder`.

        Both columns of a leaky pair must have the same length, below 1, and the columns of the other units length 1.
        """
        wide, half = check_square(W, self.n, "real"), self.n // 2
        squares = wide.square().sum(0)
        first, second = squares[: self.n - half], squares[self.n - half :]
        lengths = torch.cat([(first[:half] + second) / 2, first[half:]]).sqrt()
        decay = decay_of(lengths[len(lengths) - self.leaky_pairs :])
        Q = wide / self._by_unit(factors_of(decay, len(lengths)))
        off = float(torch.linalg.matrix_norm(Q.mT @ Q - torch.eye(self.n, dtype=Q.dtype, device=Q.device)))
        if not off <= rounding(W):
            raise NotOnGroupError(
                f"Expected W to have orthogonal columns, of length 1 for units that remember and of one length below 1 in "
                f"each leaky pair, but got a distance of {off:.3g} (rounding allows "
                f"{rounding(W):.1g}). Use another parametrization, such as Unconstrained()."
            )
        orthogonal = self.description.bind(self.n)
        orthogonal.angles = self.angles
        (reflectors,) = orthogonal.right_inverse(Q.to(W.dtype))
        self._to_norm_one_(reflectors)
        return reflectors, decay
