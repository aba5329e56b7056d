"""GORU, the gated orthogonal recurrent unit (Jing et al., 2017); the equations are in the docstring of the class.

With a unitary W the state is complex. Gates are real, one per unit, and read both the real and the imaginary part: U_z,
U_r are (N, 2N) and act on [Re h; Im h]. modReLU is then eq. 4 of Mhammedi et al. (2017).

Initial values (as in the authors' code): W_z, W_r, W_c, U_z, U_r from U(-0.01, 0.01), b_r = 2, b_z from Glorot's
uniform distribution. One difference: b_c is 0 here and 0.01 there, since a positive b adds that much to every unit at
every step.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn

from .._checks import check_factory, check_flag, check_integer
from ..activations import Activation, Name
from ..complex_as_real import complex_state, embed_matrix, embed_state
from ..errors import ArgumentError
from ..kernels.interception import is_autocast, no_autocast
from ..kernels.product import product
from ..kernels.projection import at_least_float32, cast, is_tokens, project
from ..layout import SequenceLayout
from ..parametrizations import Givens
from ..parametrizations.parametrization import Parametrization, check_description
from .fold import fold
from .gated import run_steps
from .layer import activation_in
from .network import RecurrentNetwork, listed
from .sequence_input import NetworkSizes, SequenceInput, Starts
from .transition import Transition

DEFAULT_LAYERS = 2  # of rotations, as in the papers of GORU and EURNN
_SMALL = 0.01


class GORU(RecurrentNetwork):
    r"""A gated network whose candidate state has an orthogonal or unitary transition (Jing et al., 2017).

    .. math:: z_t = \sigma(W_z x_t + U_z h_{t-1} + b_z), \qquad r_t = \sigma(W_r x_t + U_r h_{t-1} + b_r), \\
              c_t = \phi(W_c x_t + r_t \circ (W h_{t-1})), \qquad h_t = z_t \circ h_{t-1} + (1 - z_t) \circ c_t

    where z is the update gate, r the reset gate, and W is orthogonal or unitary. phi is modReLU by default, and b_c is
    its bias; other nonlinearities add b_c to their argument.

    Under autocast, and with 16-bit weights, GORU computes in float32: a 16-bit W is not orthogonal.

    torch.compile and torch.export unroll the loop over the steps: a graph serves one T and any B, and pads a
    PackedSequence to its longest sequence. To export a network with a real state for any T, use
    :func:`orthornn.export.to_torch_export`.

    Args:
        input_size: Number of input features, I.
        hidden_size: Number of hidden units, N.
        parametrization: Parametrization of W. Default: None, ``Givens(layers=2)``, as in the paper, with the default
            capacity of the authors' code.
        nonlinearity: Name in :data:`orthornn.activations.ACTIVATIONS`, or an :class:`Activation`: modrelu or one
            without a parameter. Default: ``"modrelu"``.
        batch_first: Inputs and outputs are (B, T, ...) instead of (T, B, ...). Default: False.
        learn_h0: Train the initial state. Otherwise it is zero unless given. Default: False.
        device, dtype: Same as for torch.nn.GRU.

    Shape:
        - input: (T, B, I), tokens (T, B), (T, I) or a PackedSequence. hx: (1, B, N). Output: (T, B, N).
        - With S = N, or S = 2N for a complex state: weight_ih (2N + S, I), the rows of z, r and the candidate in this
          order; weight_gates (2N, S) and bias_gates (2N,), z before r; bias, which is modReLU's b (N,) or the added
          bias (S,); transition.*, the free tensors of W; h0 (1, N), or (1, N, 2) if complex.

    Example::

        >>> goru = GORU(3, 8)
        >>> states, h_n = goru(torch.randn(20, 5, 3))
        >>> states.shape, h_n.shape
        (torch.Size([20, 5, 8]), torch.Size([1, 5, 8]))
    """

    weight_ih: nn.Parameter
    weight_gates: nn.Parameter
    bias_gates: nn.Parameter
    bias: nn.Parameter
    h0: nn.Parameter | None
    _fixed = (RecurrentNetwork._fixed - {"bias"}) | {"size"}  # here it is a parameter

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        *,
        parametrization: Parametrization | None = None,
        nonlinearity: Name | Activation = "modrelu",
        batch_first: bool = False,
        learn_h0: bool = False,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.input_size = check_integer("input_size", input_size, 1)
        self.hidden_size = check_integer("hidden_size", hidden_size, 1)
        self.num_layers, self.bidirectional = 1, False
        parametrization = Givens(layers=DEFAULT_LAYERS) if parametrization is None else parametrization
        check_description("parametrization", parametrization, "Givens(layers=2)")
        self.parametrization = parametrization
        self.batch_first, self.learn_h0 = batch_first, check_flag("learn_h0", learn_h0)
        check_factory(device, dtype)
        dtype = dtype or torch.get_default_dtype()
        self.transition = Transition(self.parametrization, hidden_size, device=device, dtype=dtype)
        self.is_complex = self.transition.method.field == "complex"
        self.activation = activation_in(nonlinearity, self.is_complex)
        self.nonlinearity = self.activation.name
        self.size = hidden_size * (2 if self.is_complex else 1)
        if self.activation.parameter is not None and not self.activation.parameter_is_bias:
            raise ArgumentError(
                f"Expected an activation without a parameter, or modrelu, but got {self.activation.name}. Use modrelu, "
                f"tanh or relu."
            )
        biased = self.activation.parameter_is_bias
        bias_size = self.activation.parameter_size(self.size) if biased else self.size

        pair = (2,) if self.is_complex else ()
        shapes = {
            "weight_ih": (2 * hidden_size + self.size, input_size),
            "weight_gates": (2 * hidden_size, self.size),
            "bias_gates": (2 * hidden_size,),
            "bias": (bias_size,),
            "h0": (1, hidden_size, *pair) if learn_h0 else None,
        }
        self.add_parameters(shapes, device, dtype)
        self._reset_all_but_transition()

    def reset_parameters(self) -> None:
        """Redraw all parameters; h0 is uniform with squared norm 1/2, or 1 if complex (Arjovsky et al., 2016)."""
        self.transition.reset_parameters()  # first, as in the constructor: a seed gives the same values in both
        self._reset_all_but_transition()

    def _reset_all_but_transition(self) -> None:
        n = self.hidden_size
        for weight in (self.weight_ih, self.weight_gates):
            nn.init.uniform_(weight, -_SMALL, _SMALL)
        bound = math.sqrt(3 / n)
        nn.init.uniform_(self.bias_gates[:n], -bound, bound)
        nn.init.constant_(self.bias_gates[n:], 2.0)
        nn.init.zeros_(self.bias)
        if self.h0 is not None:
            nn.init.uniform_(self.h0, -math.sqrt(1.5 / n), math.sqrt(1.5 / n))

    def transitions(self) -> list[tuple[str, Transition]]:
        """Return (name, Transition), as in OrthogonalRNN."""
        return [("transition", self.transition)]

    def _forward(
        self, given: SequenceInput, states: tuple[Tensor, ...], restarts: Starts, only_last: bool
    ) -> tuple[Tensor, Tensor]:
        layout, weight_ih = given.layout, given.sizes.weight
        multiply = product if is_autocast(weight_ih) else torch.matmul
        with no_autocast(weight_ih):
            rows, wide = layout.flatten(given.x), at_least_float32(weight_ih)
            every, last = self._states(rows, wide, states[0], restarts[0], layout, multiply)
        h_n = self._out(last, weight_ih.dtype)
        return h_n if only_last else self._out(every, weight_ih.dtype), torch.stack([h_n])

    def _states(
        self,
        rows: Tensor,
        weight_ih: Tensor,
        first: Tensor,
        again: Tensor | None,
        layout: SequenceLayout,
        multiply: Callable[[Tensor, Tensor], Tensor],
    ) -> tuple[Tensor, Tensor]:
        """Return the states of every step and the last state of each sequence, real and in at least float32.

        rows: (R, I), or tokens (R,). weight_ih: In at least float32. first: h_0. again: The state to restart from if
        there are resets. multiply: The product of the state with the weights of one step.
        """
        n, bias = self.hidden_size, at_least_float32(self.bias)
        rows = rows if is_tokens(rows) else cast(rows, weight_ih.dtype)
        gates, candidate = project(rows, weight_ih, None).split([2 * n, self.size], dim=-1)
        W, h = self.transition.cached_matrix(), self._in(first, weight_ih.dtype)
        across = torch.cat([at_least_float32(self.weight_gates), embed_matrix(W) if self.is_complex else W]).mT
        biased = self.activation.parameter_is_bias
        parameter = bias if biased else None

        def step(gates_t: Tensor, candidate_t: Tensor, h: Tensor) -> tuple[Tensor]:
            from_gates, carried = multiply(h, across).split([2 * n, self.size], dim=-1)
            z, r = torch.sigmoid(gates_t + from_gates).chunk(2, dim=-1)
            if self.is_complex:
                z, r = z.repeat(1, 2), r.repeat(1, 2)
            return (z * h + (1 - z) * self.activation(candidate_t + r * carried, parameter),)

        projected = (gates + self.bias_gates, candidate if biased else candidate + bias)
        states, (last,) = run_steps(layout, projected, (h,), step, (h if again is None else self._in(again, h.dtype),))
        return states, last

    def fold(self) -> GORU:
        """Return a copy whose transition is a plain matrix W, for inference and export."""
        return fold(self)

    def _sizes(self) -> NetworkSizes:
        """Return the requirements on an input, which is real, and on a state."""
        first = (self.input_size, self.hidden_size, 1, self.is_complex, self.batch_first, self.weight_ih)
        return NetworkSizes(*first, real_input=True)

    def _in(self, h: Tensor, dtype: torch.dtype) -> Tensor:
        return cast(embed_state(h) if self.is_complex else h, dtype)

    def _out(self, h: Tensor, dtype: torch.dtype) -> Tensor:
        return complex_state(h) if self.is_complex else cast(h, dtype)

    def extra_repr(self) -> str:
        """Return the constructor's arguments that differ from their defaults."""
        options = self.changed_options(GORU, always=("parametrization", "nonlinearity"))
        return f"{self.input_size}, {self.hidden_size}, {listed(options)}"
