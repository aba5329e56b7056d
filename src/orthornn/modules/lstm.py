"""The LSTM of the papers, with or without peepholes (Hochreiter & Schmidhuber, 1997; Gers & Schmidhuber, 2000).

The docstring of the class contains the equations. The LSTM has 4N(I + N + 1) parameters, plus 3N for the peepholes p,
with one bias per gate as in the papers; torch.nn.LSTM has two.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar, Literal, overload

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import PackedSequence

from .._checks import check_choice, check_factory, check_flag, check_integer, check_number
from ..errors import ArgumentTypeError
from ..kernels.projection import cast, is_tokens, project
from ..kernels.validation import Output, check_restart_is_used
from ..layout import SequenceLayout
from ..parametrizations.matrices import haar
from .gated import run_steps
from .network import Checks, RecurrentNetwork, listed
from .sequence_input import NetworkSizes, SequenceInput, check_batch, initial_states

Pair = tuple[Tensor, Tensor]


class PeepholeLSTM(RecurrentNetwork):
    r"""An LSTM whose gates also read the cell state (Gers & Schmidhuber, 2000).

    .. math:: i_t = \sigma(W_i x_t + U_i h_{t-1} + p_i \circ c_{t-1} + b_i), \\
              f_t = \sigma(W_f x_t + U_f h_{t-1} + p_f \circ c_{t-1} + b_f), \\
              c_t = f_t \circ c_{t-1} + i_t \circ \tanh(W_c x_t + U_c h_{t-1} + b_c), \\
              o_t = \sigma(W_o x_t + U_o h_{t-1} + p_o \circ c_t + b_o), \qquad h_t = o_t \circ \tanh(c_t)

    Under autocast its products are rounded to 16 bits, as in torch.nn.LSTM; states have the dtype of the weights.

    torch.compile and torch.export unroll the loop over the steps, as they do for torch.nn.LSTM: a graph serves one T
    and any B, and pads a PackedSequence to its longest sequence. To export a network for any T, use torch.nn.LSTM with
    :func:`orthornn.export.to_torch_export`.

    Args:
        input_size: Number of input features, I.
        hidden_size: Number of hidden units, N.
        peepholes (bool): Whether to use p. Without it the network is torch.nn.LSTM with one bias. Default: True.
        forget_bias: Initial value of b_f. Default: 1 (Jozefowicz et al., 2015); Mhammedi et al. (2017) use 5.
        init: ``"uniform"`` to draw all weights from U(-1/sqrt(N), 1/sqrt(N)), as torch.nn.LSTM does; ``"orthogonal"``
            to draw each of U_i, U_f, U_c, U_o from the Haar measure and the W from Glorot's uniform distribution. Other
            biases and peepholes are 0. Default: ``"uniform"``.
        batch_first: Inputs and outputs are (B, T, ...) instead of (T, B, ...). Default: False.
        learn_state: Train the initial h and c, as Mhammedi et al. (2017) do, judging by their parameter counts.
            Otherwise they are zero unless given. Default: False.
        device, dtype: Same as for torch.nn.LSTM.

    Shape:
        - input: (T, B, I), tokens (T, B), (T, I) or a PackedSequence. hx: two tensors (1, B, N). Output: (T, B, N).
        - weight_ih (4N, I), weight_hh (4N, N) and bias (4N,), in the order i, f, c, o; peepholes (3, N) of i, f, o; h0
          and c0 (1, N).

    Example::

        >>> lstm = PeepholeLSTM(3, 8)
        >>> states, (h_n, c_n) = lstm(torch.randn(20, 5, 3))
        >>> states.shape, c_n.shape
        (torch.Size([20, 5, 8]), torch.Size([1, 5, 8]))
    """

    peepholes: nn.Parameter | None
    weight_ih: nn.Parameter
    weight_hh: nn.Parameter
    bias: nn.Parameter
    h0: nn.Parameter | None
    c0: nn.Parameter | None
    _settable: ClassVar[Checks] = {
        **RecurrentNetwork._settable,
        "forget_bias": check_number,
        "init": partial(check_choice, allowed=("uniform", "orthogonal")),
    }
    _fixed = (RecurrentNetwork._fixed - {"bias"}) | {"learn_state"}  # here it is a parameter
    _start_names = ("state", "state")

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
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.input_size = check_integer("input_size", input_size, 1)
        self.hidden_size = n = check_integer("hidden_size", hidden_size, 1)
        self.num_layers, self.bidirectional = 1, False
        self.forget_bias, self.init, self.batch_first = forget_bias, init, batch_first
        check_factory(device, dtype)
        check_flag("peepholes", peepholes)
        self.learn_state = check_flag("learn_state", learn_state)

        shapes = {"weight_ih": (4 * n, input_size), "weight_hh": (4 * n, n), "bias": (4 * n,)}
        state = (1, n) if learn_state else None
        self.add_parameters(
            {**shapes, "peepholes": (3, n) if peepholes else None, "h0": state, "c0": state}, device, dtype
        )
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Redraw all parameters."""
        n = self.hidden_size
        bound = 1 / math.sqrt(n)
        if self.init == "orthogonal":
            nn.init.xavier_uniform_(self.weight_ih)
            if not self.weight_hh.is_meta:
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

    @overload  # type: ignore[override]
    def forward(
        self,
        input: Tensor,
        hx: Pair | None = None,
        output: Output = "all",
        state: Pair | None = None,
        reset: Tensor | None = None,
        restart: Pair | None = None,
        dt: Tensor | PackedSequence | None = None,
    ) -> tuple[Tensor, Pair]: ...

    @overload
    def forward(
        self,
        input: PackedSequence,
        hx: Pair | None = None,
        output: Literal["all"] = "all",
        state: Pair | None = None,
        reset: Tensor | PackedSequence | None = None,
        restart: Pair | None = None,
        dt: Tensor | PackedSequence | None = None,
    ) -> tuple[PackedSequence, Pair]: ...

    @overload
    def forward(
        self,
        input: PackedSequence,
        hx: Pair | None = None,
        *,
        output: Literal["last"],
        state: Pair | None = None,
        reset: Tensor | PackedSequence | None = None,
        restart: Pair | None = None,
        dt: Tensor | PackedSequence | None = None,
    ) -> tuple[Tensor, Pair]: ...

    @overload
    def forward(
        self,
        input: PackedSequence,
        hx: Pair | None,
        output: Literal["last"],
        state: Pair | None = None,
        reset: Tensor | PackedSequence | None = None,
        restart: Pair | None = None,
        dt: Tensor | PackedSequence | None = None,
    ) -> tuple[Tensor, Pair]: ...

    def forward(
        self,
        input: Tensor | PackedSequence,
        hx: Pair | None = None,
        output: Output = "all",
        state: Pair | None = None,
        reset: Tensor | PackedSequence | None = None,
        restart: Pair | None = None,
        dt: Tensor | PackedSequence | None = None,
    ) -> tuple[Tensor | PackedSequence, Pair]:
        """Return the states h of every step, and the final (h_n, c_n).

        Arguments, layouts and errors are the same as for :meth:`OrthogonalRNN.forward`, except that a state is a pair
        (h, c).

        Args:
            state: Alias of hx.
            dt: Not supported: this network is not exact between steps.

        Shape:
            - hx, state, restart: two tensors (1, B, N), or (1, N) unbatched.
            - Output: (T, B, N) in the layout of the input, or (B, N) with ``output="last"``; h_n and c_n (1, B, N).
        """
        given: tuple[Any, ...] = (input, hx, output, state, reset, restart, dt)
        out, final = super().forward(*given)
        return out, _separate(final)

    def step(  # type: ignore[override]
        self,
        x: Tensor,
        state: Pair | None = None,
        reset: Tensor | None = None,
        restart: Pair | None = None,
        dt: Tensor | None = None,
    ) -> tuple[Tensor, Pair]:
        """Return (output (B, N), (h, c)) of one time step.

        Args:
            x: Inputs (B, I), or tokens (B,).
            state: (h, c), each (1, B, N). Default: None, the trained states or zeros.
            reset, restart: Same as in :meth:`OrthogonalRNN.step`, with a pair (h, c) to restart from.
            dt: Not supported, as in `forward`.

        Raises:
            Same as :meth:`OrthogonalRNN.step`.
        """
        given: tuple[Any, ...] = (x, state, reset, restart, dt)
        out, final = super().step(*given)
        return out, _separate(final)

    def _starts(self, given: SequenceInput, name: str, start: Pair | None, restart: Pair | None) -> tuple[Pair, Pair]:
        first = self._states(name, start, given.initial_states)
        if given.layout.resets is None:
            check_restart_is_used(restart)
            return first, first
        return first, self._states("restart", restart, given.initial_states)

    def _forward(self, given: SequenceInput, states: Pair, restarts: Pair, only_last: bool) -> tuple[Tensor, Tensor]:
        # Each is read once: torch's parametrizations compute it anew, and spectral_norm another one, at each access.
        weight_ih, weight_hh, p = given.sizes.weight, self.weight_hh, self.peepholes

        def step(x_t: Tensor, h: Tensor, c: Tensor) -> Pair:
            i, f, g, o = (x_t + F.linear(h, weight_hh)).split(self.hidden_size, dim=-1)
            if p is not None:
                i, f = i + p[0] * c, f + p[1] * c
            c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
            return torch.sigmoid(o if p is None else o + p[2] * c) * torch.tanh(c), c

        rows = given.layout.flatten(given.x)
        rows = rows if is_tokens(rows) else cast(rows, weight_ih.dtype)
        projected = (project(rows, weight_ih, self.bias),)
        every, (h_n, c_n) = run_steps(given.layout, projected, states, step, restarts)
        return h_n if only_last else every, torch.stack([h_n, c_n])

    def initial_states(self, batch: int, state: Pair | None = None) -> Pair:  # type: ignore[override]
        """Return the initial states (h, c), each (1, B, N), for ``hx`` and ``restart`` of ``forward``. The tensors are
        new: the caller may change them.

        Args:
            batch: B.
            state: Same as hx of ``forward``, which is then only checked. Default: None, the trained states or zeros.

        Raises:
            ShapeError, DTypeError, DeviceError: If the pair does not match the network.

        Example::

            >>> h, c = PeepholeLSTM(3, 8).initial_states(5)
            >>> h.shape, c.shape
            (torch.Size([1, 5, 8]), torch.Size([1, 5, 8]))
        """
        check_batch(batch)
        h, c = self._states("state", state, partial(initial_states, SequenceLayout(1, batch), self._sizes()))
        return h.unsqueeze(0).clone(), c.unsqueeze(0).clone()

    def _sizes(self) -> NetworkSizes:
        """Return the requirements on an input and a state."""
        return NetworkSizes(self.input_size, self.hidden_size, 1, False, self.batch_first, self.weight_ih)

    def _states(self, name: str, pair: Pair | None, begin: Callable[..., Any]) -> Pair:
        """Return (h, c), each (B, N): the given states, the trained ones, or zeros.

        begin: `initial_states` of the batch, for one tensor.
        """
        if pair is None:
            (h,), (c,) = (begin(None, own) for own in (self.h0, self.c0))
            return h, c
        if not isinstance(pair, (tuple, list)) or len(pair) != 2:
            kind = type(pair).__name__
            raise ArgumentTypeError(f"Expected {name} to be a pair of tensors (h_0, c_0), but got {kind}.")
        (h,), (c,) = (begin(own, None, f"{name}[{k}]") for k, own in enumerate(pair))
        return h, c

    def extra_repr(self) -> str:
        """Return the constructor's arguments that differ from their defaults."""
        other = {"peepholes": self.peepholes is not None}
        options = self.changed_options(PeepholeLSTM, ("peepholes", "init"), other)
        return f"{self.input_size}, {self.hidden_size}, {listed(options)}"


def _separate(final: Tensor) -> Pair:
    """Return h and c, each (1, ...), from both in one tensor (2, ...). As in torch.nn.LSTM neither is a view, so that
    detach_() and changes in place of one of them are allowed and leave the other as it is.
    """
    return final[:1].clone(), final[1:].clone()
