"""The LSTM of the papers, with or without peepholes (Hochreiter & Schmidhuber, 1997; Gers & Schmidhuber, 2000).

i_t = sigmoid(W_i x_t + U_i h_{t-1} + p_i * c_{t-1} + b_i)
f_t = sigmoid(W_f x_t + U_f h_{t-1} + p_f * c_{t-1} + b_f)
c_t = f_t * c_{t-1} + i_t * tanh(W_c x_t + U_c h_{t-1} + b_c)
o_t = sigmoid(W_o x_t + U_o h_{t-1} + p_o * c_t + b_o)
h_t = o_t * tanh(c_t)

4N(I + N + 1) numbers, and 3N for the peepholes p. One bias a gate, as the papers count; torch.nn.LSTM has two.
"""

from __future__ import annotations

import math
from typing import Literal, overload

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import PackedSequence

from .._checks import check_choice, check_factory, check_flag, check_integer, check_number, check_same, check_shape
from ..errors import ArgumentTypeError
from ..kernels.functional import Output
from ..kernels.projection import project
from ..kernels.validation import check_restart_is_used
from ..parametrizations.matrices import haar
from .gated import GatedInput
from .overview import network_html


class PeepholeLSTM(nn.Module):
    """An LSTM whose gates also see the cell.

    Parameters
    ----------
    input_size: I. hidden_size: N.
    peepholes: False leaves p out: torch.nn.LSTM with one bias.
    forget_bias: the initial value of b_f. 1: Jozefowicz et al., 2015; 5: Mhammedi et al., 2017.
    init: "uniform": all weights from U(-1/sqrt(N), 1/sqrt(N)), as in torch.nn.LSTM; "orthogonal": each of U_i, U_f,
        U_c, U_o from the Haar measure, the W by Glorot's uniform distribution. Other biases and peepholes are 0.
    batch_first: inputs and outputs are (B, T, ...) instead of (T, B, ...).
    learn_state: the initial h and c are trained (Mhammedi et al., 2017, as their counts show); else they are zero.

    Parameters of the module: weight_ih (4N, I), weight_hh (4N, N), bias (4N,), in the order i, f, c, o; peepholes
    (3, N) of i, f, o; h0 and c0 (1, N).
    """

    peepholes: nn.Parameter | None
    h0: nn.Parameter | None
    c0: nn.Parameter | None

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        *,
        peepholes: bool = True,
        forget_bias: float = 1.0,
        init: Literal["uniform", "orthogonal"] = "uniform",
        batch_first: bool = False,
        learn_state: bool = False,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.input_size = check_integer("input_size", input_size, 1)
        self.hidden_size = n = check_integer("hidden_size", hidden_size, 1)
        self.forget_bias = check_number("forget_bias", forget_bias)
        self.init = check_choice("init", init, ("uniform", "orthogonal"))
        self.batch_first = check_flag("batch_first", batch_first)
        check_factory(device, dtype)
        check_flag("peepholes", peepholes)
        check_flag("learn_state", learn_state)

        def empty(*shape: int) -> nn.Parameter:
            return nn.Parameter(torch.empty(*shape, device=device, dtype=dtype))

        self.weight_ih, self.weight_hh, self.bias = empty(4 * n, input_size), empty(4 * n, n), empty(4 * n)
        self.register_parameter("peepholes", empty(3, n) if peepholes else None)
        self.register_parameter("h0", empty(1, n) if learn_state else None)
        self.register_parameter("c0", empty(1, n) if learn_state else None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw all parameters again."""
        n = self.hidden_size
        bound = 1 / math.sqrt(n)
        if self.init == "orthogonal":
            nn.init.xavier_uniform_(self.weight_ih)
            with torch.no_grad():
                self.weight_hh.copy_(torch.cat([haar(n, False) for _ in range(4)]))
        else:
            nn.init.uniform_(self.weight_ih, -bound, bound)
            nn.init.uniform_(self.weight_hh, -bound, bound)
        nn.init.zeros_(self.bias)
        nn.init.constant_(self.bias[n : 2 * n], self.forget_bias)
        for name in ("peepholes", "h0", "c0"):
            if getattr(self, name) is not None:
                nn.init.zeros_(getattr(self, name))

    @overload
    def forward(
        self,
        input: Tensor,
        state: tuple[Tensor, Tensor] | None = None,
        output: Output = "all",
        reset: Tensor | None = None,
        restart: tuple[Tensor, Tensor] | None = None,
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]: ...

    @overload
    def forward(
        self,
        input: PackedSequence,
        state: tuple[Tensor, Tensor] | None = None,
        output: Literal["all"] = "all",
        reset: Tensor | PackedSequence | None = None,
        restart: tuple[Tensor, Tensor] | None = None,
    ) -> tuple[PackedSequence, tuple[Tensor, Tensor]]: ...

    @overload
    def forward(
        self,
        input: PackedSequence,
        state: tuple[Tensor, Tensor] | None = None,
        *,
        output: Literal["last"],
        reset: Tensor | PackedSequence | None = None,
        restart: tuple[Tensor, Tensor] | None = None,
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]: ...

    @overload
    def forward(
        self,
        input: PackedSequence,
        state: tuple[Tensor, Tensor] | None,
        output: Literal["last"],
        reset: Tensor | PackedSequence | None = None,
        restart: tuple[Tensor, Tensor] | None = None,
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]: ...

    def forward(
        self,
        input: Tensor | PackedSequence,
        state: tuple[Tensor, Tensor] | None = None,
        output: Output = "all",
        reset: Tensor | PackedSequence | None = None,
        restart: tuple[Tensor, Tensor] | None = None,
    ) -> tuple[Tensor | PackedSequence, tuple[Tensor, Tensor]]:
        """Return (states, (h_n, c_n)): states (T, B, N), or with output="last" (B, N); h_n and c_n (1, B, N).

        input: (T, B, I), or (B, T, I) with batch_first; integers without the last dimension are classes, read as
            one-hot vectors; or a PackedSequence.
        state: (h_0, c_0), each (1, B, N); zeros, or the trained ones, if not given.
        reset: bool (T, B), or (B, T) with batch_first: true where a new episode starts before step t, whose state
            before is then `restart`; no gradient goes further back. For a PackedSequence: the same, padded to the
            longest sequence, in the batch's own order; or a PackedSequence of the same lengths.
        restart: the state from which episodes start, like state. Default: state if given, else the trained one or
        zeros.
        """
        check_choice("output", output, ("all", "last"))
        x = GatedInput("PeepholeLSTM", input, self.input_size, self.batch_first, self.weight_ih, reset)
        first = self._initial_state(state, x)
        if reset is None:
            check_restart_is_used(restart)
        again = first if restart is None else self._initial_state(restart, x, "restart")
        p = self.peepholes

        def step(x_t: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
            i, f, g, o = (x_t + F.linear(h, self.weight_hh)).split(self.hidden_size, dim=-1)
            if p is not None:
                i, f = i + p[0] * c, f + p[1] * c
            c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
            return torch.sigmoid(o if p is None else o + p[2] * c) * torch.tanh(c), c

        projected = (project(x.rows, self.weight_ih, self.bias),)
        states, (h_n, c_n) = x.run(projected, first, step, again)
        out = h_n if output == "last" else x.laid_out(states, lambda rows: rows)
        return out, (h_n.unsqueeze(0), c_n.unsqueeze(0))

    def _initial_state(
        self, state: tuple[Tensor, Tensor] | None, x: GatedInput, what: str = "state"
    ) -> tuple[Tensor, Tensor]:
        n = self.hidden_size
        if state is not None:
            if not isinstance(state, (tuple, list)) or len(state) != 2:
                kind = type(state).__name__
                raise ArgumentTypeError(f"Expected {what} to be a pair of tensors (h_0, c_0), but got {kind}.")
            for name, value in zip(("h_0", "c_0"), state):
                check_shape(name, value, (1, x.batch, n))
                check_same("weight_ih", self.weight_ih, **{name: value})
            return x.sorted(state[0][0]), x.sorted(state[1][0])
        if self.h0 is None or self.c0 is None:
            zero = self.weight_ih.new_zeros(x.batch, n)
            return zero, zero
        return self.h0.expand(x.batch, n), self.c0.expand(x.batch, n)

    _repr_html_ = network_html

    def extra_repr(self) -> str:
        """Return sizes and options."""
        return f"{self.input_size}, {self.hidden_size}, peepholes={self.peepholes is not None}, init={self.init!r}"
