"""The base of the networks whose transition depends on the input: layers, directions, steps and 16-bit weights."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Literal, get_args

import torch
from torch import Tensor

from .._checks import REAL_DTYPES, check_dtype, check_number
from ..errors import ArgumentTypeError
from ..kernels.interception import is_autocast, no_autocast
from ..kernels.projection import cast
from ..kernels.reflections import reference
from ..kernels.reflections.call import SHORTEST
from ..layout import SequenceLayout
from .network import Checks, RecurrentNetwork, Shape
from .sequence_input import NetworkSizes, SequenceInput, Starts
from .stack import Stack

Gate = Literal["scalar", "diagonal"]
GATES: tuple[str, ...] = get_args(Gate)


def check_strength(name: str, beta: object) -> float | str:
    """Return a strength as a float, or "input"; raise ArgumentError or ArgumentTypeError for other values."""
    if not isinstance(beta, str):
        return check_number(name, beta, 0.0, 2.0, "2 is a reflection, 1 is a projection, 0 is the identity.")
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

    S is the size of one state: N in a ReflectionRNN, (H, K, V) in a DeltaRNN, whose ``state_shape`` it is.
    """

    _settable: ClassVar[Checks] = {**RecurrentNetwork._settable, "beta": check_strength}
    heads: int
    beta: float | str
    bias: bool
    batch_first: bool
    dropout: float
    suffixes: list[str]

    def _is_fixed(self, name: str, value: object) -> bool:
        turns_map = name == "beta" and "beta" in self.__dict__ and "input" in (self.beta, value)
        return turns_map or super()._is_fixed(name, value)

    def _map_shapes(self, maps: Mapping[str, int], suffix: str, width: int) -> dict[str, Shape | None]:
        """Return the shapes of the maps from the inputs of a layer, by the sizes of their outputs; 0 for none."""
        shapes: dict[str, Shape | None] = {}
        for name, size in maps.items():
            shapes[f"weight_{name}_{suffix}"] = (size, width) if size else None
            shapes[f"bias_{name}_{suffix}"] = (size,) if size and self.bias else None
        return shapes

    def _strengths(self, z: Tensor | None, k: Tensor, shape: tuple[int, ...]) -> Tensor:
        """Return the strengths in this shape, (..., M, H). z: Their map (..., M H), or None. k: For dtype and device."""
        if z is not None:
            return (1 - torch.cos(z)).unflatten(-1, shape[-2:])
        assert not isinstance(self.beta, str)
        return k.new_full(shape, self.beta)

    def _sizes(self) -> NetworkSizes:
        """Return the requirements on an input and a state."""
        weight, matrix = self._parameter(f"weight_k_{self.suffixes[0]}"), getattr(self, "state_shape", None)
        count = len(self.suffixes)
        return NetworkSizes(self.input_size, self.hidden_size, count, False, self.batch_first, weight, matrix)

    def _forward(
        self, given: SequenceInput, states: tuple[Tensor, ...], restarts: Starts, only_last: bool
    ) -> tuple[Tensor, Tensor]:
        dropout = self.dropout if self.training else 0.0
        stack = Stack(given.x, given.layout, self.num_layers, self.num_directions, dropout, only_last)
        for index, suffix in enumerate(self.suffixes):
            rows, order, ends = stack.enter(index)
            stack.leave(*self._run(suffix, rows, (states[index], restarts[index]), order, ends))
        return stack.x, stack.final_states()

    def _advance(self, given: SequenceInput, states: tuple[Tensor, ...]) -> tuple[Tensor, Tensor]:
        x, layout, finals = given.x.unsqueeze(0), SequenceLayout(1, given.layout.batch), []
        for suffix, state in zip(self.suffixes, states):
            every, last = self._run(suffix, x, (state, None), layout, False)
            assert every is not None
            x = every
            finals.append(last)
        return x[0], torch.stack(finals)

    def _run(
        self, suffix: str, x: Tensor, starts: tuple[Tensor, Tensor | None], layout: SequenceLayout, only_last: bool
    ) -> tuple[Tensor | None, Tensor]:
        """Do the same as `_layer`, outside autocast and in the dtype of the weights."""
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

        The outputs are None if they equal the last states. starts: The initial state and, if there are resets, the
        state to restart from.
        """
        raise NotImplementedError
