"""The unitary matrix of the uRNN, with restricted capacity (Arjovsky et al., 2016, eq. 6).

W = D_3 R_2 F^-1 D_2 P R_1 F D_1,

D_j = diag(e^{i phases_j}), R_j = I - 2 v_j v_j^H / ||v_j||^2 with complex v_j, F the unitary discrete Fourier
transform, P a fixed random permutation. The form has 7n real numbers and costs O(n log n) per product W h, by the FFT.
For n > 7 the numbers are fewer than the n^2 dimensions of U(n) (Wisdom et al., 2016). Seven directions have no effect:
lengths and phases of the v_j, two phases shared by the D_j, and a rotation of v_2 and F^-1 D_2 P v_1 in their plane,
which leaves the product of the two reflections unchanged. The Jacobian's rank at random points is min(n^2, 7n - 7) (n >
1): for n >= 6 W cannot reach all of U(n).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from .._checks import is_plain_eager
from ..errors import ArgumentError
from .matrices import as_complex, check_on_group, narrowed, rounding
from .parametrization import BoundParametrization, Parametrization
from .search import search

_SMALLEST = 1e-30  # ||v||^2 below this counts as this: a reflector of length 0 is the identity


@dataclass(frozen=True, repr=False)
class RestrictedUnitary(Parametrization):
    """The unitary matrix of the uRNN: phases, reflections and Fourier transforms.

    Free tensors: `phases` (3, n), `reflectors` (2, n, 2), as (real, imaginary).

    Initial values (section 4): phases U[-pi, pi], reflectors U[-1, 1].
    """

    def bind(self, n: int) -> BoundRestrictedUnitary:  # noqa: D102
        return BoundRestrictedUnitary(n)


class BoundRestrictedUnitary(BoundParametrization):
    """Buffer `permutation` (n,): (P h)_i = h[permutation_i]."""

    names = ("phases", "reflectors")
    field = "complex"
    group = "subset"
    permutation: Tensor

    def __init__(self, n: int) -> None:
        super().__init__(n)
        self.register_buffer("permutation", torch.arange(n, device="cpu"))
        self._found_right: tuple[int, int] | None = None  # the permutation, and its version, that was looked at
        fft = 2.5 * n * math.log2(max(n, 2))
        self.operator_cost = (round(2 * fft + 3 * 4 * n + 2 * 8 * n), 40)

    @property
    def shapes(self) -> tuple[tuple[int, ...], ...]:  # noqa: D102
        return (3, self.n), (2, self.n, 2)

    def initial(self, generator: torch.Generator | None = None) -> tuple[Tensor, ...]:
        """Return phases from U[-pi, pi] and reflectors from U[-1, 1]; redraw the permutation."""
        self.permutation.copy_(torch.randperm(self.n, generator=generator, device="cpu"))
        phases = torch.rand(3, self.n, dtype=torch.float64, device="cpu", generator=generator)
        reflectors = torch.rand(2, self.n, 2, dtype=torch.float64, device="cpu", generator=generator)
        return (2 * phases - 1) * math.pi, 2 * reflectors - 1

    def _check_permutation(self) -> None:
        """Raise ArgumentError if the permutation contains an entry twice, as after a moving average of buffers."""
        permutation = self.permutation
        if not is_plain_eager() or permutation.is_meta or permutation.is_inference():
            return
        seen = id(permutation), permutation._version
        if self._found_right == seen:  # on a GPU, what follows waits for it
            return
        if not torch.equal(permutation.sort().values, torch.arange(self.n, device=permutation.device)):
            raise ArgumentError(
                f"Expected the buffer permutation to contain each of 0 to {self.n - 1} once, but got duplicates, as after a "
                f"moving average with use_buffers=True. Average only the parameters, or copy this buffer from the network."
            )
        self._found_right = seen

    def operands(self, *free: Tensor) -> tuple[Tensor, ...]:
        """Return (d, v, p): the diagonals (3, n), the reflectors scaled to length sqrt(2) (2, n), complex, the
        permutation.

        Raise ArgumentError if the buffer `permutation` is not a permutation.
        """
        self._check_permutation()
        phases, reflectors = free[0].double(), free[1].double()
        squared = reflectors.square().sum(dim=(1, 2), keepdim=True).clamp(min=_SMALLEST)
        d = torch.polar(torch.ones_like(phases), phases)
        v = as_complex(reflectors * torch.sqrt(2 / squared))
        return narrowed(d, free[0]), narrowed(v, free[0]), self.permutation.to(d.device)

    def multiply(self, h: Tensor, *operands: Tensor) -> Tensor:
        """Return W h for rows h (R, n)."""
        d, v, permutation = operands
        h = _reflect(_fourier(h * d[0]), v[0])
        h = _inverse_fourier(h.index_select(1, permutation) * d[1])
        return _reflect(h, v[1]) * d[2]

    def multiply_adjoint(self, h: Tensor, *operands: Tensor) -> Tensor:
        """Return W^H h for rows h (R, n)."""
        d, v, permutation = operands[0].conj(), *operands[1:]
        h = _fourier(_reflect(h * d[2], v[1])) * d[1]
        h = torch.zeros_like(h).index_copy(1, permutation, h)
        return _inverse_fourier(_reflect(h, v[0])) * d[0]

    def forward(self, *free: Tensor) -> Tensor:
        """Return W applied to I, in double precision."""
        self.check_free(free)
        rows = torch.eye(self.n, dtype=torch.complex128, device=free[0].device)
        return narrowed(self.multiply(rows, *self.operands(*(value.double() for value in free))).mT, free[0])

    def right_inverse(self, W: Tensor) -> tuple[Tensor, ...]:
        """Search by least squares from several starts, since no closed form exists.

        If no exact solution is found, raise NotOnGroupError with the smallest distance. This does not prove that none
        exists: W may be outside the set, have another permutation, or the search may have stopped short.
        """
        return search(self, check_on_group(W, self.n, self.field), rounding(W))


def _fourier(h: Tensor) -> Tensor:
    """Return F h for rows h, also for zero rows, which MKL's transform does not accept."""
    return torch.fft.fft(h, norm="ortho") if h.shape[0] else h


def _inverse_fourier(h: Tensor) -> Tensor:
    return torch.fft.ifft(h, norm="ortho") if h.shape[0] else h


def _reflect(h: Tensor, v: Tensor) -> Tensor:
    """Return (I - v v^H) h for rows h."""
    return h - (h @ v.conj()).unsqueeze(1) * v
