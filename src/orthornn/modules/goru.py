"""GORU, the gated orthogonal recurrent unit (Jing et al., 2017).

z_t = sigmoid(W_z x_t + U_z h_{t-1} + b_z)                       update gate
r_t = sigmoid(W_r x_t + U_r h_{t-1} + b_r)                       reset gate
c_t = modReLU(W_c x_t + r_t * (W h_{t-1}), b_c)                  W orthogonal or unitary
h_t = z_t * h_{t-1} + (1 - z_t) * c_t

With a unitary W the state is complex: gates are real, one a unit, and read the real and the imaginary part,
U_z, U_r (N, 2N) on [Re h; Im h]; modReLU is then eq. 4 of Mhammedi et al. (2017).

First values (the authors' code): W_z, W_r, W_c, U_z, U_r from U(-0.01, 0.01), b_r = 2, b_z from Glorot's uniform
distribution. b_c is 0 here and 0.01 there: a positive b adds that much to every unit at every step.
"""

from __future__ import annotations

import math
from typing import Literal, overload

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import PackedSequence

from .._checks import check_choice, check_factory, check_flag, check_integer, check_shape
from ..activations import Activation, Name
from ..complex_as_real import complex_state, embed_matrix, embed_state
from ..errors import ArgumentError
from ..kernels.functional import Output
from ..kernels.projection import project
from ..kernels.validation import check_restart_is_used
from ..parametrizations import Givens
from ..parametrizations.parametrization import Parametrization
from .gated import GatedInput
from .layer import BIASED, activation_in, at_least_float32
from .overview import network_html
from .sequence_input import NetworkSizes, check_tensor
from .transition import Transition

_SMALL = 0.01


class GORU(nn.Module):
    """A gated network whose candidate state has an orthogonal or unitary transition.

    Parameters
    ----------
    input_size: I. hidden_size: N.
    parametrization: of W. Default: Givens(layers=2), the paper's with its authors' default capacity.
    nonlinearity: a name of orthornn.activations.ACTIVATIONS without a parameter of its own, or modrelu.
    batch_first: inputs and outputs are (B, T, ...) instead of (T, B, ...).
    learn_h0: the initial state is trained; else it is zero unless given.

    Parameters of the module, S being N or, for a complex state, 2N: weight_ih (2N + S, I), the rows of z, of r and of
    the candidate; weight_gates (2N, S) and bias_gates (2N,), z before r; bias, modReLU's b (N,) or what is added (S,);
    transition.*; h0 (1, N), or (1, N, 2) if complex, with learn_h0.
    """

    h0: nn.Parameter | None

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        *,
        parametrization: Parametrization | None = None,
        nonlinearity: Name | Activation = "modrelu",
        batch_first: bool = False,
        learn_h0: bool = False,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.input_size = check_integer("input_size", input_size, 1)
        self.hidden_size = check_integer("hidden_size", hidden_size, 1)
        parametrization = Givens(layers=2) if parametrization is None else parametrization
        if not isinstance(parametrization, Parametrization):
            raise ArgumentError(
                f"Expected one of orthornn's parametrizations, such as Givens(layers=2), but got {parametrization!r}."
            )
        self.parametrization = parametrization
        self.batch_first, self.learn_h0 = check_flag("batch_first", batch_first), check_flag("learn_h0", learn_h0)
        check_factory(device, dtype)
        dtype = dtype or torch.get_default_dtype()
        self.transition = Transition(self.parametrization, hidden_size, device=device, dtype=dtype)
        self.is_complex = self.transition.method.field == "complex"
        self.activation = activation_in(nonlinearity, self.is_complex)
        self.size = hidden_size * (2 if self.is_complex else 1)
        if self.activation.parameter is not None and self.activation.name not in BIASED:
            raise ArgumentError(
                f"Expected an activation without a parameter, or modrelu, but got {self.activation.name}. Use modrelu, "
                f"tanh or relu."
            )
        biased = self.activation.name in BIASED
        bias_size = self.activation.parameter_size(self.size) if biased else self.size

        def empty(*shape: int) -> nn.Parameter:
            return nn.Parameter(torch.empty(*shape, device=device, dtype=dtype))

        self.weight_ih = empty(2 * hidden_size + self.size, input_size)
        self.weight_gates = empty(2 * hidden_size, self.size)
        self.bias_gates = empty(2 * hidden_size)
        self.bias = empty(bias_size)
        pair = (2,) if self.is_complex else ()
        self.register_parameter("h0", empty(1, hidden_size, *pair) if learn_h0 else None)
        self.reset_parameters(transition=False)

    def reset_parameters(self, transition: bool = True) -> None:
        """Draw all parameters again; h0 is uniform of squared norm 1/2 (Arjovsky et al., 2016)."""
        n = self.hidden_size
        for weight in (self.weight_ih, self.weight_gates):
            nn.init.uniform_(weight, -_SMALL, _SMALL)
        bound = math.sqrt(3 / n)
        nn.init.uniform_(self.bias_gates[:n], -bound, bound)
        nn.init.constant_(self.bias_gates[n:], 2.0)
        nn.init.zeros_(self.bias)
        if self.h0 is not None:
            nn.init.uniform_(self.h0, -math.sqrt(1.5 / n), math.sqrt(1.5 / n))
        if transition:
            self.transition.reset_parameters()

    def transitions(self) -> list[tuple[str, Transition]]:
        """Return (name, Transition), as OrthogonalRNN has it."""
        return [("transition", self.transition)]

    @overload
    def forward(
        self,
        input: Tensor,
        h0: Tensor | None = None,
        output: Output = "all",
        reset: Tensor | None = None,
        restart: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]: ...

    @overload
    def forward(
        self,
        input: PackedSequence,
        h0: Tensor | None = None,
        output: Literal["all"] = "all",
        reset: Tensor | PackedSequence | None = None,
        restart: Tensor | None = None,
    ) -> tuple[PackedSequence, Tensor]: ...

    @overload
    def forward(
        self,
        input: PackedSequence,
        h0: Tensor | None = None,
        *,
        output: Literal["last"],
        reset: Tensor | PackedSequence | None = None,
        restart: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]: ...

    @overload
    def forward(
        self,
        input: PackedSequence,
        h0: Tensor | None,
        output: Literal["last"],
        reset: Tensor | PackedSequence | None = None,
        restart: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]: ...

    def forward(
        self,
        input: Tensor | PackedSequence,
        h0: Tensor | None = None,
        output: Output = "all",
        reset: Tensor | PackedSequence | None = None,
        restart: Tensor | None = None,
    ) -> tuple[Tensor | PackedSequence, Tensor]:
        """Return (states, h_n): states (T, B, N), or with output="last" (B, N), and h_n (1, B, N).

        input: (T, B, I), or (B, T, I) with batch_first; integers without the last dimension are classes, read as
            one-hot vectors; or a PackedSequence.
        h0: (1, B, N); zeros, or the trained state, if not given.
        reset: bool (T, B), or (B, T) with batch_first: true where a new episode starts before step t, whose state
            before is then `restart`; no gradient goes further back. For a PackedSequence: the same, padded to the
            longest sequence, in the batch's own order; or a PackedSequence of the same lengths.
        restart: the state from which episodes start, like h0. Default: h0 if given, else the trained one or zeros.
        """
        check_choice("output", output, ("all", "last"))
        x = GatedInput("GORU", input, self.input_size, self.batch_first, self.weight_ih, reset)
        h = self._initial_state(h0, x)
        if reset is None:
            check_restart_is_used(restart)
        again = h if restart is None else self._initial_state(restart, x, "restart")
        n = self.hidden_size
        gates, candidate = project(x.rows, self.weight_ih, None).split([2 * n, self.size], dim=-1)
        W = self.transition.cached_matrix()
        across = torch.cat([self.weight_gates, (embed_matrix(W) if self.is_complex else W).to(h.dtype)])
        biased = self.activation.name in BIASED
        parameter = self.bias if biased else None

        def step(gates_t: Tensor, candidate_t: Tensor, h: Tensor) -> tuple[Tensor]:
            from_gates, carried = F.linear(h, across).split([2 * n, self.size], dim=-1)
            z, r = torch.sigmoid(gates_t + from_gates).chunk(2, dim=-1)
            if self.is_complex:
                z, r = z.repeat(1, 2), r.repeat(1, 2)
            return (z * h + (1 - z) * self.activation(candidate_t + r * carried, parameter),)

        projected = (gates + self.bias_gates, candidate if biased else candidate + self.bias)
        states, (last,) = x.run(projected, (h,), step, (again,))
        final = self._out(last)
        return (final if output == "last" else x.laid_out(states, self._out)), final.unsqueeze(0)

    def _initial_state(self, h0: Tensor | None, x: GatedInput, name: str = "h0") -> Tensor:
        if h0 is None:
            if self.h0 is None:
                return self.weight_ih.new_zeros(x.batch, self.size)
            own = torch.cat(self.h0.unbind(-1), dim=-1) if self.is_complex else self.h0
            return own.expand(x.batch, self.size)
        check_shape(name, h0, (1, x.batch, self.hidden_size))
        sizes = NetworkSizes(self.input_size, self.hidden_size, 1, self.is_complex, self.batch_first, self.weight_ih)
        check_tensor(name, h0, sizes)
        h = h0[0].to(sizes.state_dtype)
        return x.sorted(embed_state(h) if self.is_complex else h).to(self.weight_ih.dtype)

    def _out(self, h: Tensor) -> Tensor:
        return complex_state(at_least_float32(h)) if self.is_complex else h

    _repr_html_ = network_html

    def extra_repr(self) -> str:
        """Return sizes and parametrization."""
        return (
            f"{self.input_size}, {self.hidden_size}, parametrization={self.parametrization}, "
            f"nonlinearity={self.activation.name!r}"
        )
