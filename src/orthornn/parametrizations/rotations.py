r"""Plane rotations with trained angles, in a fixed basis, with an optional decay below 1.

    W h = c * h + s * swap(h),    c = g cos(a), s = g sin(a) on the first half of the units, -g sin(a) on the second

swap exchanges the two halves of the units (compact_wy.py), so the units (i, i + N - N//2) turn by the angle a_i and are
scaled by g_i; for odd N the middle unit is only scaled, by g or 1. A step costs O(N).

g = 1 exactly unless ``decay=True``. In that case the last pairs, by default all, are leaky, with g = exp(-exp(d)) and a
trained d. This g is in (0, 1) for every d, and reaches 1 only if exp(-exp(d)) rounds to 1. Its time constant is exp(-d)
steps.

A linear recurrence with any W of SO(n) consists of rotations in the basis of W's planes, and the input and output
weights next to it absorb a change of basis. So a linear layer that trains only the angles loses only matrices W with
determinant -1. A nonlinear layer loses much more: the planes do not mix.

Related networks: LRU (Orvieto et al., 2023) has a complex diagonal W with g exp(ia), g = exp(-exp(d)), drawn from a
ring (`radii`); this equals rotations with decay. RotRNN (Biegun et al., 2024) rotates in a trained orthogonal basis,
with one g per head. S5 (Smith et al., 2023) obtains a complex diagonal W by discretizing a continuous system. LinOSS
(Rusch & Rus, 2025) has two units per oscillator, and W from an implicit (or implicit-explicit) discretization.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import get_args

import torch
from torch import Tensor

from .._checks import check_choice, check_flag, check_integer, check_number
from ..compact_wy import Base, apply_base
from ..errors import ArgumentError, ArgumentTypeError, NotOnGroupError
from .householder import Angles, draw_angles
from .matrices import check_square, rounding
from .parametrization import BoundParametrization, Parametrization

RADII = (0.9, 0.999)  # of the ring of the leaky pairs
_SMALLEST = 1e-12  # 1 - g, and g, of a decay that right_inverse can represent


def check_radii(radii: object) -> tuple[float, float]:
    """Return the bounds of a ring; raise an error unless they are two numbers in (0, 1), the smaller first."""
    if not isinstance(radii, (tuple, list)) or len(radii) != 2:
        raise ArgumentTypeError(f"Expected radii to be a pair of numbers, but got {radii!r}.")
    low, high = (check_number("radii", radius, 0, 1) for radius in radii)
    if not (0 < low <= high < 1):
        raise ArgumentError(
            f"Expected 0 < low <= high < 1 for radii=(low, high), but got ({low:g}, {high:g}). Leave decay=False for "
            f"rotations of radius 1."
        )
    return low, high


def draw_decay(count: int, radii: tuple[float, float], generator: torch.Generator | None) -> Tensor:
    """Return d such that g = exp(-exp(d)) is uniform by area on a ring: (count,), float64 on the CPU."""
    low, high = radii
    uniform = torch.rand(count, dtype=torch.float64, device="cpu", generator=generator)
    return decay_of((uniform * (high**2 - low**2) + low**2).sqrt())


def decay_of(factors: Tensor) -> Tensor:
    """Return d with exp(-exp(d)) = g, after clamping g to [1e-12, 1 - 1e-12]."""
    return torch.log(-torch.log(factors.clamp(_SMALLEST, 1 - _SMALLEST)))


def factors_of(decay: Tensor, pairs: int) -> Tensor:
    """Return the factors of all pairs, (pairs,) in float64: 1, except for the last ones, which decay."""
    kept = decay.new_ones(pairs - len(decay), dtype=torch.float64)
    return torch.cat([kept, torch.exp(-torch.exp(decay.double()))])


@dataclass(frozen=True, repr=False)
class Rotations(Parametrization):
    """Rotations of pairs of units with trained angles; with decay a trained factor in (0, 1) scales each.

    Free tensors: ``angles`` (N//2,); with ``decay`` also ``decay`` (K,), one entry for each leaky pair or odd unit.

    Args:
        angles: Initial angles: ``"full"``, U(-pi, pi); ``"quarter"``, U(-pi/2, pi/2); or ``"log"``, a random sign times
            log-uniform in (1e-3, pi). Default: ``"full"``.
        decay: Scale each rotation by a trained factor, which makes W a contraction instead of orthogonal. Default:
            ``False``.
        radii: Bounds of the ring from which the factors are drawn, uniformly by area as in LRU. Only with ``decay``.
            Default: ``(0.9, 0.999)``.
        leaky: Share of the pairs that decay, from 0 to 1, rounded down: K = leaky (N - N//2). The other pairs keep the
            norm. Only with ``decay``. Default: 1.

    Example::

        >>> rnn = OrthogonalRNN(3, 8, nonlinearity="identity", parametrization=Rotations())
        >>> rnn.transition_l0.angles.shape
        torch.Size([4])
    """

    angles: Angles = "full"
    decay: bool = False
    radii: tuple[float, float] = RADII
    leaky: float = 1.0

    def __post_init__(self) -> None:
        check_choice("angles", self.angles, get_args(Angles))
        check_flag("decay", self.decay)
        object.__setattr__(self, "radii", check_radii(self.radii))
        object.__setattr__(self, "leaky", check_number("leaky", self.leaky, 0, 1))
        for name in ("radii", "leaky"):
            if not self.decay and getattr(self, name) != getattr(type(self), name):
                raise ArgumentError(
                    f"Expected {name} only with decay=True, but got decay=False. Leave one of them out."
                )

    def bind(self, n: int) -> BoundRotations:  # noqa: D102
        return BoundRotations(check_integer("n", n, 1), self)


class BoundRotations(BoundParametrization):
    """N//2 rotations of the pairs (i, i + N - N//2)."""

    num_reflections = 0  # reflections of its compact form

    def __init__(self, n: int, description: Rotations) -> None:
        super().__init__(n)
        self.description, self.decays = description, description.decay
        self.leaky_pairs = int(description.leaky * (n - n // 2)) if self.decays else 0
        self.names = ("angles", "decay") if self.decays else ("angles",)
        self.group = "decays" if self.decays else "subset"

    @property
    def shapes(self) -> tuple[tuple[int, ...], ...]:  # noqa: D102
        half = self.n // 2
        return ((half,), (self.leaky_pairs,)) if self.decays else ((half,),)

    def initial(self, generator: torch.Generator | None = None) -> tuple[Tensor, ...]:  # noqa: D102
        angles = draw_angles(self.n // 2, self.description.angles, generator)
        if not self.decays:
            return (angles,)
        return angles, draw_decay(self.leaky_pairs, self.description.radii, generator)

    def turns(self, *free: Tensor) -> tuple[Tensor, Tensor]:
        """Return (c, s) of W h = c * h + s * swap(h), each (N,), in float64."""
        angles = free[0].double()
        cosine, sine = angles.cos(), angles.sin()
        single = cosine.new_ones(self.n % 2)
        c, s = torch.cat([cosine, single, cosine]), torch.cat([sine, single - 1, -sine])
        if not self.decays:
            return c, s
        factors = factors_of(free[1], self.n - self.n // 2)
        factors = torch.cat([factors, factors[: self.n // 2]])
        return c * factors, s * factors

    def flow(self, *free: Tensor) -> tuple[Tensor, Tensor]:  # noqa: D102
        kept = free[0].new_zeros(self.n - self.n // 2 - self.leaky_pairs, dtype=torch.float64)
        rates = torch.cat([kept, torch.exp(free[1].double())]) if self.decays else kept
        return free[0].double(), rates

    def compact(self, *free: Tensor) -> tuple[Tensor, Base]:  # noqa: D102
        self.check_free(free)
        dtype = free[0].dtype
        c, s = self.turns(*free)
        return free[0].new_zeros(0), (c.to(dtype), s.to(dtype))

    def forward(self, *free: Tensor) -> Tensor:  # noqa: D102
        self.check_free(free)
        identity = torch.eye(self.n, dtype=torch.float64, device=free[0].device)
        return apply_base(identity, self.turns(*free)).mT.to(free[0].dtype)

    def right_inverse(self, W: Tensor) -> tuple[Tensor, ...]:
        """Return the angles, and the decay, of a W that consists of rotations of these pairs; raise NotOnGroupError for
        any other W.
        """
        wide, half = check_square(W, self.n, "real"), self.n // 2
        first = torch.arange(half, device=W.device)
        second = first + self.n - half
        cosine = (wide[first, first] + wide[second, second]) / 2
        sine = (wide[first, second] - wide[second, first]) / 2
        free: tuple[Tensor, ...] = (torch.atan2(sine, cosine),)
        if self.decays:
            radii = torch.cat([torch.hypot(cosine, sine), wide.diagonal()[half : self.n - half]])
            free = (*free, decay_of(radii[len(radii) - self.leaky_pairs :]))
        off = float(torch.linalg.matrix_norm(self(*free) - wide))
        clamped = 2 * _SMALLEST * self.n**0.5 if self.decays else 0.0  # of radii at 0 and 1
        if not off <= rounding(W) + clamped:
            what = "scaled rotations" if self.decays else "rotations"
            raise NotOnGroupError(
                f"Expected W to consist of {what} of the pairs (i, i + {self.n - half}), but got a distance of {off:.3g} "
                f"from the nearest. Use another parametrization, such as Householder()."
            )
        return free
