"""Verification of all outputs and gradients against the reference backend in float64, before anything is timed.

The bound on rounding errors requires a smooth phi. At a kink (0 of leaky ReLU, |z| = -b of modReLU), rounding decides on
which side a unit is, and so its derivative. Sequences that come close to a kink therefore get no gradient in either
computation; the others, always at least one, are compared.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from orthornn.errors import VerificationError
from orthornn.layout import SequenceLayout
from orthornn.modules import OrthogonalRNN
from orthornn.modules.layer import Settings

from .cases import Case, Work
from .networks import OURS, Runnable, output_of

_STEPS = 9
_DRAWS = 50
_EPS = torch.finfo(torch.float32).eps


@dataclass(frozen=True)
class Verification:
    """A comparison: T and sequences compared, and for every tensor the largest error relative to its largest entry.

    bound: what each error must stay under.
    """

    case: str
    T: int
    sequences: int
    errors: dict[str, float]
    bound: float

    @property
    def worst(self) -> str:
        """The tensor with the largest error (or one that is not finite)."""
        return max(self.errors, key=lambda name: (self.errors[name] != self.errors[name], self.errors[name]))

    @property
    def passed(self) -> bool:
        """Every error is finite and under the bound."""
        return all(error <= self.bound for error in self.errors.values())


def verify(case: Case, work: Work) -> Verification:
    """Compare the kernels of a case with the reference; at the case's own n, m and B, over a few steps."""
    steps = min(work.T, _STEPS)
    timed = Runnable.make(OURS, case, work, steps)
    assert isinstance(timed.module, OrthogonalRNN)
    exact = copy.deepcopy(timed.module).double()
    safe = torch.zeros(case.batch, dtype=torch.bool)
    for _ in range(_DRAWS):
        if safe.any():
            break
        timed.x.uniform_()
        safe = _far_from_kinks(exact, timed.x)
    if not safe.any():
        raise VerificationError(
            f"{case.title}: in {_DRAWS} draws no sequence stayed away from the kinks of {work.nonlinearity}, so its "
            f"gradient cannot be compared. Pass --nonlinearity tanh."
        )
    grad = timed.grad * safe.unsqueeze(-1)

    got = output_of(timed.module, timed.x, work.output)
    timed.clear()
    got.backward(grad)
    want = _reference(exact, timed.x, work.output)
    want.backward(grad.double())
    rows = safe.nonzero().squeeze(1)
    errors = {"states": relative_error(got.detach().index_select(-2, rows), want.detach().index_select(-2, rows))}
    for (name, found), expected in zip(timed.module.named_parameters(), exact.parameters()):
        if expected.numel() == 0:  # the scaled Cayley transform of a 1 x 1 matrix trains nothing
            continue
        assert expected.grad is not None
        errors[name] = float("nan") if found.grad is None else relative_error(found.grad, expected.grad)
    return Verification(case.name, steps, len(rows), errors, rounding_bound(steps, case.n))


def rounding_bound(T: int, n: int) -> float:
    """Return the largest relative error that rounding may cause in float32, 8 eps sqrt(T N).

    Rounding errors of T N dependent operations, none of which enlarges an error, add up as a random walk does; 8 is for
    the constants of sums.
    """
    return 8 * _EPS * (T * n) ** 0.5


def require(verifications: Iterable[Verification]) -> None:
    """Raise VerificationError unless all passed."""
    failed = [v for v in verifications if not v.passed]
    if failed:
        listed = "; ".join(f"{v.case}: {v.worst} is off by {v.errors[v.worst]:.2g} of {v.bound:.2g}" for v in failed)
        raise VerificationError(
            f"the kernels do not agree with the reference in float64, so no time and no ratio is reported ({listed}, "
            f"relative to the largest entry). Run the tests in tests/kernels."
        )


def _reference(module: OrthogonalRNN, x: Tensor, output: str) -> Tensor:
    (layer,) = module.layers()
    h0 = x.new_zeros(x.shape[1], module.hidden_size, dtype=torch.float64)
    form = "dense" if module.form == "rotations" else module.form
    settings = Settings(form=form, backend="reference")
    states = layer.run(x.double(), h0, SequenceLayout(*x.shape[:2]), output == "last", settings)
    found = states.last if states.all is None else states.all
    assert found is not None
    return found


@torch.no_grad()
def _far_from_kinks(module: OrthogonalRNN, x: Tensor) -> Tensor:
    """Return which sequences (B,) have no pre-activation within the rounding error of a kink."""
    (layer,) = module.layers()
    states = _reference(module, x, "all")
    before = torch.cat([torch.zeros_like(states[:1]), states[:-1]])
    bias, parameter = layer.bias()
    z = before @ layer.matrix().mT + x.double() @ layer.input_weight(x.double()).mT
    z = z if bias is None else z + bias
    name = module.nonlinearity
    if name == "modrelu":
        assert parameter is not None
        distance = (z.abs() + parameter.clamp(max=0)).abs()
    elif name in ("relu", "leaky_relu", "prelu"):
        distance = z.abs()
    else:
        return torch.ones(x.shape[1], dtype=torch.bool)
    operations = x.shape[0] * module.hidden_size
    rounding = 4 * _EPS * operations**0.5 * float(z.abs().max())  # errors of either sign add up as a square root does
    return (distance > rounding).all(dim=-1).all(dim=0)


def relative_error(found: Tensor, expected: Tensor) -> float:
    """Return the largest difference, relative to the largest entry expected."""
    largest = float(expected.abs().max())
    return float((found.double() - expected).abs().max()) / (largest or 1.0)
