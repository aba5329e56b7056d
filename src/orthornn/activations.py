"""Activations phi and their derivatives: one table for kernels, cells and tests.

h = phi(z) acts on the last dimension, of size N. A pair is (i, N - N//2 + i) for i < N//2: unit i of the first half
with unit i of the second; an odd middle unit has no partner. In the real embedding of a complex state (Mhammedi et al.,
2017, section 3) a pair is the real and the imaginary part of one complex unit.

name             phi                                              parameter    source
identity         z                                                -            Vorontsov et al., 2017 (copying)
tanh             tanh z                                           -
scaled_tanh      tanh(c z) / c                                    c, per unit  Nguyen-Duy et al., 2023; z at c = 0
relu             max(0, z)                                        -
leaky_relu       z if z > 0, else slope z (default 1/10)          -            Mhammedi et al., 2017, section 5
prelu            z if z > 0, else a z                             a, per unit  He et al., 2015
modrelu          sign(z) max(0, |z| + b)                          b, per unit  Helfrich et al., 2018, eq. 3
complex_modrelu  max(0, |z| + b) z / |z| with |z| over the pair   b, per pair  Mhammedi et al., 2017, eq. 4
oplu             (max, min) of the pair                           -            Chernodub & Nowicki, 2016

At points without a derivative: relu takes 0; leaky_relu and prelu take the slope; modrelu and complex_modrelu are 0
with derivative 0 at z = 0; oplu preserves the order of a tie, where its derivative jumps. If the units of a pair are
equal up to rounding, float32 and float64 may order them differently, and then gradients through time differ by
percents, whichever code computes them.

A backward pass saves one number per unit and step: the state h if phi' can be recovered from it (`reads == "state"`),
otherwise the pre-activation z (`reads == "preactivation"`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import torch
from torch import Tensor

from ._checks import check_choice, check_number
from .errors import ArgumentError, ArgumentTypeError

__all__ = ["ACTIVATIONS", "Activation", "Name", "get"]

#: The names in :data:`ACTIVATIONS`, for type checkers.
Name = Literal["identity", "tanh", "scaled_tanh", "relu", "leaky_relu", "prelu", "modrelu", "complex_modrelu", "oplu"]


@dataclass(frozen=True)
class Activation:
    """A nonlinearity and its derivative."""

    name: ClassVar[str]
    code: ClassVar[int]  # the number by which native kernels know it
    parameter: ClassVar[Literal["unit", "pair"] | None] = None
    parameter_is_bias: ClassVar[bool] = False  # whether phi's parameter is the layer's bias
    reads: ClassVar[Literal["state", "preactivation"]] = "state"
    paired: ClassVar[bool] = False  # whether phi acts on pairs of units
    keeps_norm: ClassVar[bool] = False  # ||phi(z)|| = ||z|| (for modrelu: at b = 0)
    initial: ClassVar[float] = 0.0  # the parameter's usual initial value
    linear: ClassVar[float | None] = (
        None  # that with which phi is the identity, or so close to it that training can leave it
    )
    slope: ClassVar[float] = 0.0  # of leaky_relu below 0: there it is an argument

    def __call__(self, z: Tensor, parameter: Tensor | None = None) -> Tensor:
        """Return phi(z), differentiable by autograd any number of times. z: (..., N); parameter: (N,) or (N//2,)."""
        raise NotImplementedError

    def backward(self, grad: Tensor, saved: Tensor, parameter: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """Return dL/dz and dL/dparameter (not yet summed over rows) from dL/dh.

        Args:
            grad: dL/dh.
            saved: h or z, depending on `reads`.
            parameter: Parameter of phi, or None if it has none.

        Shape:
            - grad, saved: (..., N). parameter: (N,) or (N//2,). dL/dz: (..., N); dL/dparameter: (..., N) or (...,
              N//2), or None.
        """
        raise NotImplementedError

    def parameter_size(self, hidden_size: int) -> int:
        """Return the number of trainable parameters of phi for a state.

        Args:
            hidden_size: N, the number of real numbers in the state.

        Raises:
            ArgumentError: If phi cannot act on a state of this size.
        """
        if self.parameter is None:
            return 0
        return hidden_size if self.parameter == "unit" else hidden_size // 2


def _halves(z: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return the first units of the pairs, the units without a partner (0 or 1), and the second units."""
    half = z.shape[-1] // 2
    return z.split([half, z.shape[-1] - 2 * half, half], dim=-1)


class Identity(Activation):
    """phi(z) = z."""

    name, code, keeps_norm = "identity", 0, True

    def __call__(self, z: Tensor, parameter: Tensor | None = None) -> Tensor:
        return z

    def backward(self, grad: Tensor, saved: Tensor, parameter: Tensor | None) -> tuple[Tensor, Tensor | None]:
        return grad, None


class Tanh(Activation):
    """phi' = 1 - h^2."""

    name, code = "tanh", 1

    def __call__(self, z: Tensor, parameter: Tensor | None = None) -> Tensor:
        return torch.tanh(z)

    def backward(self, grad: Tensor, saved: Tensor, parameter: Tensor | None) -> tuple[Tensor, Tensor | None]:
        return grad * (1 - saved * saved), None


_TERMS = 14  # of a series in t^2 < 1/16, for float64


class ScaledTanh(Activation):
    """phi(z) = tanh(cz)/c.

    With t = c h = tanh(cz): phi' = 1 - t^2 and dphi/dc = (z (1 - t^2) - h)/c, where z = atanh(t)/c. At |t| = 1 the
    product atanh(t) (1 - t^2) has the limit 0; at c = 0, phi(z) = z and dphi/dc = 0. For small t the difference
    cancels, so the series of atanh is used: dphi/dc = -t h^2 (2/3 + 2/15 t^2 + ... + 2/((2k - 1)(2k + 1)) t^(2k - 2) +
    ...).
    """

    name, code, parameter, initial, linear = "scaled_tanh", 2, "unit", 1.0, 0.01  # at 0, c has the gradient 0

    def __call__(self, z: Tensor, parameter: Tensor | None = None) -> Tensor:
        assert parameter is not None
        linear = parameter == 0
        c = torch.where(linear, torch.ones_like(parameter), parameter)
        return torch.where(linear, z, torch.tanh(c * z) / c)

    def backward(self, grad: Tensor, saved: Tensor, parameter: Tensor | None) -> tuple[Tensor, Tensor | None]:
        assert parameter is not None
        t = parameter * saved
        derivative = 1 - t * t
        linear, saturated = parameter == 0, t.abs() >= 1
        c = torch.where(linear, torch.ones_like(parameter), parameter)
        z = torch.atanh(torch.where(saturated, torch.zeros_like(t), t)) / c
        series = torch.zeros_like(t)
        for k in range(_TERMS, 0, -1):
            series = series * t * t + 2 / ((2 * k - 1) * (2 * k + 1))
        grad_c = torch.where(t.abs() < 0.25, -t * saved * saved * series, (z * derivative - saved) / c)
        return grad * derivative, grad * grad_c


class ReLU(Activation):
    """phi' = 1 if h > 0, else 0; a NaN passes the gradient on, as in torch."""

    name, code = "relu", 3

    def __call__(self, z: Tensor, parameter: Tensor | None = None) -> Tensor:
        return torch.relu(z)

    def backward(self, grad: Tensor, saved: Tensor, parameter: Tensor | None) -> tuple[Tensor, Tensor | None]:
        return torch.where(saved <= 0, torch.zeros_like(grad), grad), None


@dataclass(frozen=True)
class LeakyReLU(Activation):
    """phi' = 1 if h > 0, else the slope; h has the sign of z because the slope is positive.

    Args:
        slope: Slope of phi below 0. Default: 1/10.
    """

    name, code = "leaky_relu", 4

    slope: float = 0.1  # type: ignore[misc]

    def __post_init__(self) -> None:
        object.__setattr__(self, "slope", check_number("slope", self.slope, low=0.0))
        if self.slope == 0:
            raise ArgumentError("Expected slope to be positive, but got 0. Use nonlinearity='relu'.")

    def __call__(self, z: Tensor, parameter: Tensor | None = None) -> Tensor:
        return torch.where(z > 0, z, self.slope * z)

    def backward(self, grad: Tensor, saved: Tensor, parameter: Tensor | None) -> tuple[Tensor, Tensor | None]:
        return torch.where(saved > 0, grad, self.slope * grad), None


class PReLU(Activation):
    """phi' = 1 if z > 0, else a; dphi/da = min(0, z). The slope a may have any sign, so h does not determine z."""

    name, code, parameter, reads, initial, linear = "prelu", 5, "unit", "preactivation", 0.25, 1.0

    def __call__(self, z: Tensor, parameter: Tensor | None = None) -> Tensor:
        assert parameter is not None
        return torch.where(z > 0, z, parameter * z)

    def backward(self, grad: Tensor, saved: Tensor, parameter: Tensor | None) -> tuple[Tensor, Tensor | None]:
        assert parameter is not None
        zero = torch.zeros_like(grad)
        return torch.where(saved > 0, grad, parameter * grad), torch.where(saved > 0, zero, grad * saved)


class ModReLU(Activation):
    """phi' = 1 and dphi/db = sign(h) if h != 0, else both are 0."""

    name, code, parameter, parameter_is_bias, keeps_norm = "modrelu", 6, "unit", True, True

    def __call__(self, z: Tensor, parameter: Tensor | None = None) -> Tensor:
        assert parameter is not None
        return torch.where(z == 0, torch.zeros_like(z), torch.sign(z) * torch.relu(z.abs() + parameter))

    def backward(self, grad: Tensor, saved: Tensor, parameter: Tensor | None) -> tuple[Tensor, Tensor | None]:
        return torch.where(saved != 0, grad, torch.zeros_like(grad)), grad * torch.sign(saved)


class ComplexModReLU(Activation):
    """modReLU on pairs: phi(z) = (1 + b/r) z for a pair z with r = |z| > 0 and r + b > 0.

    dL/dz = (1 + b/r) g - b (z.g) z / r^3 and dphi/db = z / r. Otherwise phi = 0 and both are 0; if r or b is NaN, phi
    is NaN.
    """

    name, code, parameter, parameter_is_bias = "complex_modrelu", 7, "pair", True
    reads, paired, keeps_norm = "preactivation", True, True

    def parameter_size(self, hidden_size: int) -> int:
        if hidden_size % 2:
            raise ArgumentError(
                f"Expected hidden_size to be even, since complex_modrelu pairs the units, but got {hidden_size}."
            )
        return hidden_size // 2

    def __call__(self, z: Tensor, parameter: Tensor | None = None) -> Tensor:
        assert parameter is not None
        real, _, imaginary = _halves(z)
        # z / |z| does not depend on the scale, which is taken out as a constant: autograd then divides by nothing whose
        # square could underflow, and a unit that is not active has gradient 0, not 0 times infinity.
        largest = torch.maximum(real.abs(), imaginary.abs()).detach()
        at_zero = largest == 0
        unit = torch.where(at_zero, torch.ones_like(largest), largest)
        real, imaginary = real / unit, imaginary / unit
        length = torch.hypot(torch.where(at_zero, torch.ones_like(real), real), imaginary)
        size = unit * length + parameter
        active = ~(at_zero | (size <= 0))  # NaN, of z or of b, is not lost
        size = torch.where(active, size, torch.zeros_like(size))
        return torch.cat([size * (part / length) for part in (real, imaginary)], dim=-1)

    def backward(self, grad: Tensor, saved: Tensor, parameter: Tensor | None) -> tuple[Tensor, Tensor | None]:
        (real, _, imaginary), (g_real, _, g_imaginary) = _halves(saved), _halves(grad)
        assert parameter is not None
        zero, at_zero = torch.zeros_like(real), (real == 0) & (imaginary == 0)
        modulus = torch.hypot(torch.where(at_zero, torch.ones_like(real), real), imaginary)
        active, scale = ~(at_zero | (modulus + parameter <= 0)), (modulus + parameter) / modulus
        unit_real, unit_imaginary = real / modulus, imaginary / modulus
        along = torch.where(active, unit_real * g_real + unit_imaginary * g_imaginary, zero)
        shrink = parameter * along / modulus
        grad_real = torch.where(active, scale * g_real - shrink * unit_real, zero)
        grad_imaginary = torch.where(active, scale * g_imaginary - shrink * unit_imaginary, zero)
        return torch.cat([grad_real, grad_imaginary], dim=-1), along


class OPLU(Activation):
    """A permutation of each pair, so phi' is that permutation; z determines which one, but h does not."""

    name, code, reads, paired, keeps_norm = "oplu", 8, "preactivation", True, True

    def __call__(self, z: Tensor, parameter: Tensor | None = None) -> Tensor:
        first, alone, second = _halves(z)
        keep = first >= second
        return torch.cat([torch.where(keep, first, second), alone, torch.where(keep, second, first)], dim=-1)

    def backward(self, grad: Tensor, saved: Tensor, parameter: Tensor | None) -> tuple[Tensor, Tensor | None]:
        (first, _, second), (g_first, g_alone, g_second) = _halves(saved), _halves(grad)
        keep = first >= second
        grad_first, grad_second = torch.where(keep, g_first, g_second), torch.where(keep, g_second, g_first)
        return torch.cat([grad_first, g_alone, grad_second], dim=-1), None


#: Every activation by its name.
ACTIVATIONS: dict[str, Activation] = {
    activation.name: activation
    for activation in (
        Identity(),
        Tanh(),
        ScaledTanh(),
        ReLU(),
        LeakyReLU(),
        PReLU(),
        ModReLU(),
        ComplexModReLU(),
        OPLU(),
    )
}
_KINDS = frozenset(map(type, ACTIVATIONS.values()))


def get(activation: str | Activation, slope: float | None = None) -> Activation:
    """Return the activation with a given name.

    Args:
        activation: Name in :data:`ACTIVATIONS`; an :class:`Activation` is returned unchanged.
        slope: Slope of leaky_relu below 0; only for leaky_relu. Default: None, the slope of the activation, 1/10.

    Raises:
        ArgumentError: If the name is unknown, or a slope is given for another activation.
        ArgumentTypeError: If the activation is of a custom class: the kernels select phi by its number and would run
            another phi.
    """
    if not isinstance(activation, Activation):
        activation = ACTIVATIONS[check_choice("nonlinearity", activation, ACTIVATIONS)]
    elif type(activation) not in _KINDS:
        raise ArgumentTypeError(
            f"Expected an activation whose formula the kernels know, but got an instance of "
            f"{type(activation).__name__}. Pass one of {', '.join(ACTIVATIONS)}."
        )
    if slope is None:
        return activation
    if not isinstance(activation, LeakyReLU):
        raise ArgumentError(
            f"Expected slope only with leaky_relu, but got slope={slope} with {activation.name}. Leave it out."
        )
    return replace(activation, slope=slope)
