"""The base of the networks whose transition depends on the input: layers, directions, steps and 16-bit weights."""

from __future__ import annotations

from typing import Literal, get_args, overload

import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence

from .._checks import REAL_DTYPES, check_choice, check_dtype, check_number
from ..errors import ArgumentTypeError
from ..kernels.functional import Output
from ..kernels.interception import is_autocast, no_autocast
from ..kernels.projection import cast
from ..kernels.reflections import reference
from ..kernels.reflections.call import SHORTEST
from ..layout import SequenceLayout
from .current import before_step
from .network import RecurrentNetwork
from .sequence_input import SequenceInput, check_step, one_initial_state, step_states, unbatched_step
from .stack import Stack

Gate = Literal["scalar", "diagonal"]
GATES: tuple[str, ...] = get_args(Gate)


def check_strength(name: str, beta: object) -> float | str:
    """Return a strength as a float, or "input", or raise ArgumentError or ArgumentTypeError."""
    if not isinstance(beta, str):
        return check_number(name, beta, 0.0, 2.0, "2 is a reflection, 1 a projection, 0 the identity.")
    if beta == "input":
        return beta
    raise ArgumentTypeError(f"Expected {name} to be a number in [0, 2] or 'input', but got {beta!r}.")


def unit_vectors(x: Tensor) -> Tensor:
    """Return x / max(|x|, SHORTEST) along the last dimension; lengths are summed in double precision."""
    x, _ = reference.scale_down(x, 1)
    length = torch.linalg.vector_norm(x, dim=-1, keepdim=True, dtype=torch.float64)
    return x / length.clamp_min(SHORTEST).to(x.dtype)


class InputDependentNetwork(RecurrentNetwork):
    """A network of L layers, each of which chooses its transition at each step; `_layer` is one layer and direction.

    S is the size of one state: N in a ReflectionRNN, (H, K, V) in a DeltaRNN.
    """

    dropout: float
    suffixes: list[str]

    @overload
    def forward(
        self,
        input: Tensor,
        hx: Tensor | None = None,
        output: Output = "all",
        h0: Tensor | None = None,
        reset: Tensor | None = None,
        restart: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]: ...

    @overload
    def forward(
        self,
        input: PackedSequence,
        hx: Tensor | None = None,
        output: Literal["all"] = "all",
        h0: Tensor | None = None,
        reset: Tensor | PackedSequence | None = None,
        restart: Tensor | None = None,
    ) -> tuple[PackedSequence, Tensor]: ...

    @overload
    def forward(
        self,
        input: PackedSequence,
        hx: Tensor | None = None,
        *,
        output: Literal["last"],
        h0: Tensor | None = None,
        reset: Tensor | PackedSequence | None = None,
        restart: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]: ...

    @overload
    def forward(
        self,
        input: PackedSequence,
        hx: Tensor | None,
        output: Literal["last"],
        h0: Tensor | None = None,
        reset: Tensor | PackedSequence | None = None,
        restart: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]: ...

    def forward(
        self,
        input: Tensor | PackedSequence,
        hx: Tensor | None = None,
        output: Output = "all",
        h0: Tensor | None = None,
        reset: Tensor | PackedSequence | None = None,
        restart: Tensor | None = None,
    ) -> tuple[Tensor | PackedSequence, Tensor]:
        """Return the outputs of the last layer for every step, and the final state of every layer and direction.

        The outputs, N per direction, are the states of a ReflectionRNN, and what a DeltaRNN reads from its states.

        Arguments, layouts and errors are those of :meth:`OrthogonalRNN.forward`. ``output="last"`` returns the output of
        the final states: of the forward direction at each sequence's last step, of the reverse one at t = 0, as torch's
        h_n.

        Shape:
            - hx, h0, restart: (L * D, B, N), in a DeltaRNN (L * D, B, H, K, V); without B if unbatched.
            - Output: (T, B, D * N) in the layout of the input, or (B, D * N) with ``output="last"``; h_n as hx.
        """
        check_choice("output", output, ("all", "last"))
        sizes = self._sizes()
        given = SequenceInput.of(input, sizes, reset)
        name, h0 = one_initial_state(hx=hx, h0=h0)
        h = given.initial_states(h0, self._parameter("h0"), sizes, name)
        restarts = given.restarts(restart, self._parameter("h0"), sizes)
        only_last, dropout = output == "last", self.dropout if self.training else 0.0
        stack = Stack(given.x, given.layout, self.num_layers, self.num_directions, dropout, only_last)
        for index, suffix in enumerate(self.suffixes):
            rows, order, ends = stack.enter(index)
            stack.leave(*self._run(suffix, rows, (h[index], restarts[index]), order, ends))
        return given.out(stack.x, stack.final_states(), only_last)

    def step(
        self, x: Tensor, h: Tensor | None = None, reset: Tensor | None = None, restart: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Return (output (B, N), states h) of one time step from x (B, I) or tokens (B,) and h.

        Arguments and errors are those of :meth:`OrthogonalRNN.step`; h and restart are (L, B, N), in a DeltaRNN
        (L, B, H, K, V).
        """
        sizes = self._sizes()
        if not check_step(x, sizes, self.bidirectional):
            return unbatched_step(self.step, x, h, sizes, reset, restart)
        states = step_states(x, h, self._parameter("h0"), sizes, reset, restart)
        before_step(self)
        layout, finals = SequenceLayout(1, x.shape[0]), []
        x = x.unsqueeze(0)
        for suffix, state in zip(self.suffixes, states):
            every, last = self._run(suffix, x, (state, None), layout, False)
            assert every is not None
            x = every
            finals.append(last)
        return x[0], torch.stack(finals)

    def _run(
        self, suffix: str, x: Tensor, starts: tuple[Tensor, Tensor | None], layout: SequenceLayout, only_last: bool
    ) -> tuple[Tensor | None, Tensor]:
        """Return what `_layer` does, computed outside autocast, in the dtype of the weights."""
        weight = self._parameter(f"weight_k_{suffix}")
        check_dtype("the network's weights", weight, (*REAL_DTYPES, torch.bfloat16, torch.float16))
        if is_autocast(weight):
            with no_autocast(weight):
                return self._run(suffix, x, starts, layout, only_last)
        out, last = self._layer(suffix, x, starts, layout, only_last)
        return None if out is None else cast(out, weight.dtype), cast(last, weight.dtype)

    def _layer(
        self, suffix: str, x: Tensor, starts: tuple[Tensor, Tensor | None], layout: SequenceLayout, only_last: bool
    ) -> tuple[Tensor | None, Tensor]:
        """Return the outputs of one layer and direction, all or with only_last the last ones, and the last states.

        The outputs are None where they are the last states. starts: The initial state, and with resets the state to
        restart from.
        """
        raise NotImplementedError
