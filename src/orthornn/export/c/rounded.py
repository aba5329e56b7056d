r"""Quantization-aware fine-tuning: a network with the rounded weights of the C code, trained like any other.

The forward pass uses the weights of fixed.py, the same integers times the same scales; in the backward pass rounding is
the identity (the straight-through estimator of Bengio et al., 2013). Reflectors are normalized and rounded; a reflection
does not depend on the length of its vector, so the transition is a product of exactly the reflections that the C code
applies. In training, noise imitates the rounding of the int16 state: every reflection, the base and the sum round
once, each with the variance s^2/12 of a state whose unit is s.

Numbers that C stores as int32 (biases, thresholds) or as int16 with 14 places (the rotations of the base) are not rounded
here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import PackedSequence

from ..._checks import check_choice
from ..._recording import recording
from ...compact_wy import normalize, product
from ...errors import ArgumentError
from ...kernels.functional import dense_rnn
from . import fixed
from .bounds import Ranges, find_ranges
from .folded import Array, CForm, FoldedLayer, FoldedModule, FoldedNetwork, fold_network, model_of
from .module import check_against_module


class RoundedNetwork(FoldedModule):
    """A network with rounded weights, made by :func:`rounded`.

    Its parameters begin at the weights of the network. `forward` takes what the network takes and returns what it
    returns: (T, B, I), tokens (T, B) or a PackedSequence in; (T, B, O), rows (R, O) of a PackedSequence, or (B, O) of a
    network that is read after the last step out.

    Args:
        network: The folded network; its weights are the initial values.
        bits: Bits of a weight, 8 or 16.
        ranges: Ranges of the states, measured on data. Default: None, states are not rounded.
        description: Description of the run, for the generated files. Default: None.
        threshold: Threshold of the run, for the generated files. Default: None.
    """

    def __init__(
        self,
        network: FoldedNetwork,
        bits: int,
        ranges: Ranges | None = None,
        description: dict[str, Any] | None = None,
        threshold: float | None = None,
    ) -> None:
        super().__init__()
        self.bits, self.description, self.threshold = bits, description, threshold
        self._network = network
        self.layers = nn.ModuleList(
            _RoundedLayer(
                layer,
                bits,
                fixed.LARGEST if k or not network.tokens else 1,
                0.0 if ranges is None else ranges.states[k] / fixed.LARGEST,
            )
            for k, layer in enumerate(network.layers)
        )
        self.Y, self.d = _parameter(network.Y), _parameter(network.d)

    def forward(self, x: Tensor | PackedSequence) -> Tensor:
        """Return the prediction, as described in the class.

        Args:
            x: The input (T, B, I), tokens (T, B), or a PackedSequence.
        """
        packed = x if isinstance(x, PackedSequence) else None
        rows: Tensor = x if packed is None else packed.data  # type: ignore[assignment]
        sizes = None if packed is None else packed.batch_sizes
        last = self._network.last
        for k, layer in enumerate(self.layers):
            rows = layer(rows, sizes, "last" if last and k == len(self.layers) - 1 else "all")
        if last and packed is not None and packed.unsorted_indices is not None:
            rows = rows[packed.unsorted_indices]
        if self.Y is None:
            return rows
        return F.linear(rows, _rounded_rows(self.Y, self.bits, fixed.LARGEST, by_row=True), self.d)

    def network(self) -> FoldedNetwork:
        """Return the current numbers of the network, not rounded."""
        layers = tuple(layer.folded() for layer in self.layers)  # type: ignore[operator]
        return replace(self._network, layers=layers, Y=_array(self.Y), d=_array(self.d))


class _RoundedLayer(nn.Module):
    """One layer. unit: Unit of its int16 state, 0 if unknown. largest: Largest integer that V reads."""

    V: Tensor
    b: Tensor | None
    parameter: Tensor | None
    W: Tensor | None
    U: Tensor | None
    h0: Tensor
    base: Tensor | None
    fixed_W: Tensor | None
    mask: Tensor

    def __init__(self, layer: FoldedLayer, bits: int, largest: int, unit: float) -> None:
        super().__init__()
        self._layer, self.bits, self.largest, self.unit = layer, bits, largest, unit
        for name in ("V", "b", "parameter", "W", "U"):
            self.register_parameter(name, _parameter(getattr(layer, name)))
        base = () if layer.base is None else (layer.base.c, layer.base.s)
        self.register_buffer("h0", torch.from_numpy(layer.h0).float())
        self.register_buffer("base", torch.from_numpy(np.stack(base)).float() if base else None)
        signed = None if layer.transform is None else torch.from_numpy(layer.matrix()).float()
        self.register_buffer("fixed_W", signed)  # of signs, which are not tuned
        mask = torch.ones(layer.U.shape).tril() if layer.U is not None and layer.trapezoid else torch.ones(1)
        self.register_buffer("mask", mask)
        self.roundings = 1 + (layer.base is not None) + (0 if layer.U is None else layer.U.shape[1])

    def forward(self, x: Tensor, sizes: Tensor | None, output: str) -> Tensor:
        """Return the states of inputs (T, B, K), tokens (T, B), or rows with the sizes of their steps."""
        V = _rounded_rows(self.V, self.bits, self.largest)
        a = F.linear(x, V) if x.is_floating_point() else F.embedding(x, V.mT)
        a = a if self.b is None else a + self.b
        noise = 0.0
        if self.training and self.unit:
            noise = torch.randn_like(a) * (self.unit * (self.roundings / 12) ** 0.5)
        phi, parameter = self._layer.phi, self.parameter
        if self._layer.linear:
            a, phi, parameter = phi(a, parameter), "identity", None  # type: ignore[assignment]
        count = int(sizes[0]) if sizes is not None else a.shape[1]
        h0 = self.h0.expand(count, -1)
        return dense_rnn(a + noise, h0, self.matrix(), phi, parameter, batch_sizes=sizes, output=output)  # type: ignore[arg-type]

    def matrix(self) -> Tensor:
        """Return W (N, N) of the rounded weights."""
        base = None if self.base is None else (self.base[0], self.base[1])
        if self.W is not None:
            return _rounded_rows(self.W, self.bits, fixed.LARGEST)
        if self.fixed_W is not None:
            return self.fixed_W
        if self.U is None:
            return product(self.h0.new_zeros(len(self.h0), 0), base)
        U = normalize(self.U * self.mask)
        return product(_straight_through(U, lambda u: fixed.rounded_columns(u, self.bits)), base)

    def folded(self) -> FoldedLayer:
        """Return the layer as numbers."""
        V, U = _array(self.V), None if self.U is None else _array(normalize((self.U * self.mask).double()))
        assert V is not None
        return replace(self._layer, V=V, b=_array(self.b), parameter=_array(self.parameter), W=_array(self.W), U=U)


@recording()
def rounded(network: Any, numbers: str = "int8", *, calibration: Any = None, form: CForm = "auto") -> RoundedNetwork:
    """Return a network that rounds its weights as :func:`orthornn.export.to_c` does, for fine-tuning.

    Train it for a few hundred updates with the same loss and data, and pass it to `to_c`.

    Args:
        network: Same as for :func:`orthornn.export.to_c`.
        numbers: Type of the weights, ``"int8"`` or ``"int16"``. Default: ``"int8"``.
        calibration: Typical raw inputs, in the same form as for `to_c`. If given, training adds noise to the states to
            simulate their rounding. Default: ``None``, no noise.
        form: Form of the transitions, also in the exported network. Default: ``"auto"``.

    Raises:
        ArgumentError: If the network has no C form, or its ``forward`` computes more than its head and core.

    Example::

        >>> from orthornn import Householder, OrthogonalRNN
        >>> tuned = rounded(OrthogonalRNN(3, 8, parametrization=Householder(reflections=2)))
        >>> optimizer = torch.optim.Adam(tuned.parameters(), 1e-3)
        >>> tuned(torch.randn(5, 2, 3)).square().mean().backward()
        >>> optimizer.step()
    """
    check_choice("numbers", numbers, ("int16", "int8"))
    model, description = model_of(network)
    ranges = None
    _check_can_be_tuned(fold_network(model, None, form))
    if calibration is not None:
        ranges = find_ranges(fold_network(model, description, form), calibration, None, None, 1.0)
    folded = fold_network(model, None, form)
    check_against_module(folded, model, None)
    threshold = getattr(network, "threshold", None)
    return RoundedNetwork(folded, int(numbers.removeprefix("int")), ranges, description, threshold)


def _check_can_be_tuned(network: FoldedNetwork) -> None:
    """Raise ArgumentError for a network with parts that a RoundedNetwork does not support."""
    reading = network.reading
    reasons = {
        "OrthogonalBlocks": bool(network.blocks),
        f"pool={reading.pool!r}": reading.pool != "last",
        "lags": reading.A is not None,
        "vectors of series": network.vectors is not None,
        "a perceptron as readout": network.H is not None,
    }
    found = [reason for reason, holds in reasons.items() if holds]
    if found:
        raise ArgumentError(
            f"Expected an OrthogonalRNN with a linear readout of its last step for fine-tuning with rounded weights, but got "
            f"{' and '.join(found)}. Export it to integers without fine-tuning."
        )


def _rounded_rows(A: Tensor, bits: int, largest: int, by_row: bool = False) -> Tensor:
    return _straight_through(A, lambda a: fixed.rounded_rows(a, bits, largest, by_row))


def _straight_through(A: Tensor, rounding: Callable[[Array], Array]) -> Tensor:
    """Return the rounded matrix, with the gradient of A."""
    found = torch.from_numpy(rounding(A.detach().cpu().double().numpy())).to(A)
    return A + (found - A).detach()


def _parameter(values: Array | None) -> nn.Parameter | None:
    return None if values is None else nn.Parameter(torch.from_numpy(values).float())


def _array(tensor: Tensor | None) -> Array | None:
    return None if tensor is None else tensor.detach().cpu().double().numpy()
