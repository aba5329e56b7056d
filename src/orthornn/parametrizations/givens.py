"""Layers of plane rotations (Jing et al., 2016, EURNN; real in Jing et al., 2017, GORU).

W = D F_L ... F_2 F_1.   A layer F_l rotates disjoint pairs of units (p, q), p < q, by

[h_p]     [e^{i phi} cos theta   -sin theta] [h_p]
[h_q]  <- [e^{i phi} sin theta    cos theta] [h_q],

and leaves a unit without a partner unchanged. Complex: theta and phi for every pair, D = diag(e^{i omega}). Real: phi =
0, and D = diag(+-1) is not trained. (The phase acts on the input side of the rotation. On the output side the phases of
the last layer would duplicate D, and n // 2 numbers would have no effect.)

Tunable: odd layers pair (0, 1), (2, 3), ..., even layers (1, 2), (3, 4), ...; L = n layers reach every unitary matrix
(Clements et al., 2016), with n(n-1) + n real numbers; fewer layers reach matrices of bandwidth L.
FFT-like: layer l pairs i with i + 2^(l-1) within blocks of 2^l, l = 1, ..., ceil(log2 n), so for n a power of two every
output depends on every input. For other n, units whose partner would be n or more have no partner in that layer.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from .._checks import check_choice, check_integer, is_plain_eager
from ..errors import NotOnGroupError
from .brick_product import GROUP, brick_product
from .matrices import check_on_group, narrowed, rounding
from .mesh import decompose
from .parametrization import FIELDS, BoundParametrization, Field, Parametrization, group_of_signs, signs_of
from .peeling import is_exact, peel
from .search import refine, search


@dataclass(frozen=True, repr=False)
class Givens(Parametrization):
    """W as a product of L layers of rotations of pairs of units.

    Free tensors: `theta` (K,), layer by layer in the order in which they act, and if complex `phi` (K,) and `omega`
    (n,). K is L(n-1)/2 for odd n and L n/2 - L//2 for even n. Initial values: U[-pi, pi] (as in the authors' code).

    Args:
        layers: Number of layers, L; or ``"fft"`` for the FFT-like arrangement. Default: None, n layers, which span the
            whole group.
        field: ``"real"``, or ``"complex"`` for a unitary W. Default: ``"real"``.
    """

    layers: int | Literal["fft"] | None = None
    field: Field = "real"

    def __post_init__(self) -> None:
        if isinstance(self.layers, str):
            check_choice("layers", self.layers, ("fft",))
        elif self.layers is not None:
            check_integer("layers", self.layers, 1, advice="Or 'fft', or None for the whole group.")
        check_choice("field", self.field, FIELDS)

    def bind(self, n: int) -> BoundGivens:  # noqa: D102
        return BoundGivens(n, self)


def brick_pairs(n: int, layers: int) -> list[list[tuple[int, int]]]:
    """Return the pairs of every layer of the tunable arrangement."""
    return [[(p, p + 1) for p in range(layer % 2, n - 1, 2)] for layer in range(layers)]


def fft_pairs(n: int) -> list[list[tuple[int, int]]]:
    """Return the pairs of every layer of the FFT-like arrangement; a single unit yields one layer without pairs."""
    strides = [2**k for k in range(max(1, (n - 1).bit_length()))]
    return [[(i, i + s) for i in range(n - s) if i % (2 * s) < s] for s in strides]


class Tables(NamedTuple):
    """The pairs of an arrangement as int64 tensors.

    layer, first, second: (K,), the layer and the two units of each pair. partner: (L, n), the other unit of each unit's
    pair, or the unit itself.
    """

    layer: Tensor
    first: Tensor
    second: Tensor
    partner: Tensor


def make_tables(n: int, layers: int, fft: bool, count: int, device: torch.device) -> Tables:
    """Build the tables of an arrangement of `count` pairs, with operations whose shapes do not depend on values."""
    unit = torch.arange(n, device=device)
    layer = torch.arange(layers, device=device).unsqueeze(1)
    partner = unit ^ (1 << layer) if fft else ((unit - layer % 2) ^ 1) + layer % 2
    partner = torch.where((partner >= 0) & (partner < n), partner, unit)
    leads = (partner > unit).flatten().to(torch.int8)
    place = leads.argsort(stable=True, descending=True)[:count]
    return Tables(place // n, place % n, partner.flatten()[place], partner)


@functools.lru_cache(maxsize=32)
def cached_tables(n: int, layers: int, fft: bool, count: int, device: torch.device) -> Tables:
    """Do the same as `make_tables`, cached for the latest arrangements; the tensors are ordinary even in inference
    mode.
    """
    with torch.inference_mode(False):
        return make_tables(n, layers, fft, count, device)


class BoundGivens(BoundParametrization):
    """Buffer of a real product: `signs`, D (n,). Tables that follow from the sizes are not part of the state: see
    `tables`.
    """

    signs: Tensor

    def __init__(self, n: int, description: Givens) -> None:
        super().__init__(n)
        self.field, self.arrangement = description.field, description.layers
        layers = n if description.layers is None else description.layers
        pairs = fft_pairs(n) if layers == "fft" else brick_pairs(n, int(layers))
        self.layers, self._pairs = len(pairs), pairs
        self.names = ("theta",) if self.field == "real" else ("theta", "phi", "omega")
        self._spans = n <= 2 or (layers != "fft" and self.layers >= n)  # one rotation is all of SO(2)
        self._count = sum(map(len, pairs))
        if self.field == "real":
            self.register_buffer("signs", torch.ones(n, dtype=torch.float64, device="cpu"))
        # Nine passes over a row a layer, forward and backward, each of which takes as long as three multiply-adds of a
        # Fourier transform for each number; a complex one counts as four.
        is_complex = self.field == "complex"
        passes, calls = (108, 4 * self.layers + 12) if is_complex else (27, 2 * self.layers + 4)
        self.operator_cost = (passes * n * self.layers, calls)

    @property
    def group(self) -> str:  # type: ignore[override]
        """``"SO"`` or ``"det=-1"``, according to the signs, which right_inverse may have changed; ``"U"``; or
        ``"subset"``.
        """
        if not self._spans:
            return "subset"
        return "U" if self.field == "complex" else group_of_signs(self.signs)

    def tables(self, device: torch.device) -> Tables:
        """Return the tables on a device: they are not buffers, so they need not be saved or moved."""
        captured = device.type == "cuda" and torch.cuda.is_current_stream_capturing()  # into a graph, which owns them
        make = cached_tables if is_plain_eager() and not captured else make_tables
        return make(self.n, self.layers, self.arrangement == "fft", self._count, device)

    @property
    def shapes(self) -> tuple[tuple[int, ...], ...]:  # noqa: D102
        pairs = self._count
        return ((pairs,),) if self.field == "real" else ((pairs,), (pairs,), (self.n,))

    def initial(self, generator: torch.Generator | None = None) -> tuple[Tensor, ...]:
        """Return angles from U[-pi, pi]."""
        if self.field == "real":
            self.signs.fill_(1.0)
        sizes = [shape[0] for shape in self.shapes]
        drawn = torch.rand(sum(sizes), dtype=torch.float64, device="cpu", generator=generator)
        return tuple(part.clone() for part in ((2 * drawn - 1) * math.pi).split(sizes))

    def forward(self, *free: Tensor) -> Tensor:
        """Return the layers applied to I, in double precision."""
        self.check_free(free)
        c, s, d = self.operands(*(value.double() for value in free))
        if self.arrangement != "fft" and self.layers >= GROUP:
            return narrowed(d.unsqueeze(1) * brick_product(c, s), free[0])
        rows = torch.eye(self.n, dtype=c.dtype, device=c.device)
        return narrowed(self.multiply(rows, c, s, d).mT, free[0])

    def operands(self, *free: Tensor) -> tuple[Tensor, ...]:
        """Return (c, s, d) with F_l h = c_l * h + s_l * h[partner_l] and D = diag(d): (L, n), (L, n), (n,)."""
        theta = free[0]
        cosine, sine = torch.cos(theta.double()), torch.sin(theta.double())
        if self.field == "complex":
            phase = torch.polar(torch.ones_like(cosine), free[1].double())
            c = torch.cat([phase * cosine, cosine.to(phase.dtype)])
            s = torch.cat([-sine.to(phase.dtype), phase * sine])
            d = torch.polar(torch.ones_like(free[2], dtype=torch.float64), free[2].double())
        else:
            c, s = torch.cat([cosine, cosine]), torch.cat([-sine, sine])
            d = signs_of(self.signs).to(theta.device)
        layer, first, second, _ = self.tables(theta.device)
        where = (torch.cat([layer, layer]), torch.cat([first, second]))
        ones = c.new_ones(self.layers, self.n)
        c, s = ones.index_put(where, c), torch.zeros_like(ones).index_put(where, s)
        return narrowed(c, theta), narrowed(s, theta), narrowed(d, theta)

    def multiply(self, h: Tensor, *operands: Tensor) -> Tensor:
        """Return W h for rows h (R, n)."""
        c, s, d = operands
        partner = self.tables(h.device).partner
        for layer in range(self.layers):
            h = c[layer] * h + s[layer] * h.index_select(1, partner[layer])
        return d * h

    def multiply_adjoint(self, h: Tensor, *operands: Tensor) -> Tensor:
        """Return W^H h for rows h (R, n)."""
        c, s, d = (value.conj() for value in operands)
        partner = self.tables(h.device).partner
        h = d * h
        for layer in reversed(range(self.layers)):
            h = c[layer] * h + (s[layer] * h).index_select(1, partner[layer])
        return h

    def right_inverse(self, W: Tensor) -> tuple[Tensor, ...]:
        """Return the angles of W; a real W of determinant -1 sets a sign in D.

        With n layers or more, use elimination (Clements et al., 2016; mesh.py). With fewer, and for the FFT-like
        arrangement, take off layer by layer (peeling.py), which is exact for "fft" and for up to two layers. With more
        layers, refine that result, or else a random start, by least squares; a NotOnGroupError then does not prove that
        W is out of reach.
        """
        Q = check_on_group(W, self.n, self.field)
        if not self._spans:
            return self._few_layers(Q, rounding(W))
        theta, phi, diagonal = decompose(Q, self.layers)
        order = self.tables(theta.device)[:2]
        if self.field == "real":
            self.signs.copy_(diagonal)
            return (theta[order],)
        return theta[order], phi[order], diagonal.angle()

    def _few_layers(self, Q: Tensor, allowed: float) -> tuple[Tensor, ...]:
        """Return the angles of a matrix of the subset, and store the signs that they need in the buffer."""
        peeled, exact = peel(Q, self._pairs), is_exact(self._pairs, self.n)
        if peeled is not None:
            theta, phi, diagonal = peeled
            free: tuple[Tensor, ...] = (theta,) if self.field == "real" else (theta, phi, diagonal.angle())
            signs = self.signs.clone() if self.field == "real" else None
            if signs is not None:
                self.signs.copy_(diagonal)
            free, distance = refine(self, free, Q, allowed)
            if distance <= allowed:
                return free
            if signs is not None:
                self.signs.copy_(signs)
            if exact:
                raise NotOnGroupError(
                    f"Expected W to be a product of {self.layers} layers of these rotations, but got a matrix at Frobenius "
                    f"distance {distance:.3g} from the product that fits its parts (rounding allows {allowed:.1g}). Use "
                    f"Givens(), or orthornn.convert, which uses the nearest one it finds."
                )
        return search(self, Q, allowed)
