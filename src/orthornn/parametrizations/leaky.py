r"""Householder reflections on rotations, of which a part forgets.

    W = (I - U T^-1 U') B,    B h = c * h + s * swap(h),    c = g cos(a),  s = -+ g sin(a)

as `householder.py` has it with base="rotations", but for the factor g of each pair of units (i, i + N - N//2), or of the odd
unit: 1 exactly for the first pairs, which remember, and g = exp(-exp(d)) with a trained d for the others, which are
leaky and forget with the time constant exp(-d), in steps. W'W = B'B = diag(g^2), so that ||W h|| <= ||h||, with
equality on the units that remember.

Initial values. The angles are uniform on the circle, and g is drawn uniform by area on a ring (rotations.py). Reflectors are
zero on the units that remember and have independent normal entries on the leaky ones, so that

    W = [R 0; 0 W_leaky]    up to the order of the units.

The first part is turned, and neither lost nor mixed, over any number of steps, and so are gradients there; the second part is
an ordinary recurrent network whose past fades. Training couples them. (If all units are mixed from the start, everything
fades: of Q diag(g) with a random orthogonal Q the eigenvalues have modulus at most sqrt(mean g^2) for large N.)

Reflectors begin with norm 1. W depends on their directions alone, and an optimizer whose steps have the size of its rate,
like Adam, turns them sqrt(N) times as fast as those whose entries have variance 1. Their gradient is orthogonal to them, so
their norm grows by about rate^2 N / 2 per update, which slowly lowers the rate of turning; nothing rescales them.
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
    """Householder reflections on fixed rotations, of which a part decays at trained rates; the others keep the norm.

    Free tensors: ``reflectors``, as those of :class:`~orthornn.Householder`, and ``decay`` (K,), one for each leaky
    pair or odd unit, minus the logarithm of its time constant in steps. The angles of the rotations are the buffer ``angles``
    (N//2,).

    Args:
        reflections: m. Default: None, as many as W has rows.
        leaky: Share of the pairs that decay, from 0 to 1, rounded down: K = leaky (N - N//2). Default: 0.5.
        radii: Bounds of the ring on which the factors of the leaky pairs are drawn, uniform by area. Default:
            ``(0.9, 0.999)``.
        angles: How those of the rotations are drawn; see :class:`~orthornn.Householder`. Default: ``"full"``.

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
        """Return what belongs to each pair, and to the odd unit, for every unit: (N - N//2,) -> (N,)."""
        return torch.cat([pairs, pairs[: self.n // 2]])

    def initial(self, generator: torch.Generator | None = None) -> tuple[Tensor, ...]:
        """Return reflectors of norm 1 in random directions of the leaky units, and the decay.

        A reflector that has no leaky unit points in any direction.
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
        """Return the decay of a W whose columns are orthogonal, by their lengths, and the reflectors of what remains; see
        :class:`~orthornn.Householder`.

        The columns of a leaky pair must have one length, below 1, and those of the other units length 1.
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
                f"Expected the columns of W to be orthogonal, those of the units that remember of length 1 and those of each "
                f"leaky pair of one length below 1, but got a distance of {off:.3g}, where rounding allows "
                f"{rounding(W):.1g}. Use another parametrization, such as Unconstrained()."
            )
        orthogonal = self.description.bind(self.n)
        orthogonal.angles = self.angles
        (reflectors,) = orthogonal.right_inverse(Q.to(W.dtype))
        self._to_norm_one_(reflectors)
        return reflectors, decay
