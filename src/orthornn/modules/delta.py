"""DeltaRNN: a recurrent network with a matrix state, erased and written along keys at each step (DeltaNet,
DeltaProduct).
"""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor, nn

from .._checks import check_choice, check_factory, check_flag, check_integer
from ..errors import ArgumentError
from ..kernels.delta.call import DeltaCall
from ..kernels.delta.kernel import run
from ..kernels.projection import cast, is_tokens, project
from ..layout import SequenceLayout
from .input_dependent import GATES, Gate, InputDependentNetwork, unit_vectors
from .network import RecurrentNetwork, Shape, listed
from .stack import warn_of_dropout


class DeltaRNN(InputDependentNetwork):
    r"""A recurrent network whose matrix state is erased and written at each step along keys chosen by the input.

    .. math:: S \leftarrow g_t \circ S_{t-1}, \quad
              S \leftarrow S - \beta_i \hat{k}_i (\hat{k}_i' S - v_i') \text{ for } i = 1, \ldots, M, \quad
              S_t = S, \quad o_t = S_t' \hat{q}_t

    The queries q, keys k, values v, strengths beta and the gate g are linear in x_t; q and k are normalized (vectors
    shorter than 1e-6 fade out instead). The new value replaces the one stored under the same key: this is the delta
    rule. One update per step with beta up to 1 is DeltaNet (Schlag et al., 2021; Yang et al., 2024); several updates
    with beta up to 2 are DeltaProduct (Siems et al., 2025). The transition of S is a product of reflections, as in
    :class:`ReflectionRNN`, shared by all columns.

    It takes and returns the same as torch.nn.RNN, including unbatched inputs, tokens and PackedSequence, except that
    its state has shape (L * D, B, H, K, V).

    Args:
        input_size: Number of input features or symbols, I.
        hidden_size: Size of the output, H V.
        num_layers: Number of layers, L. Each layer above the first reads the outputs of the layer below. Default: 1.
        heads: Number of heads, H. Each head has a separate state (K, V). Default: 1.
        key_size: Size of the keys, K. Default: V = hidden_size / heads.
        updates: Number of updates per step, M. Default: 1.
        beta: A number in [0, 2] for all strengths, or ``"input"`` for beta = 1 - cos(z) with z linear in x_t, which
            reaches both ends of the interval. Default: ``"input"``.
        gate: ``"scalar"`` for one gate per head, ``"diagonal"`` for one per entry of its keys, or None for g = 1. Gates
            are g = 1 / (1 + z^2) with z linear in x_t, which reaches 1. Default: None.
        bias: Whether the maps from x_t have biases. Default: True.
        batch_first: Inputs and outputs are (B, T, ...) instead of (T, B, ...). Default: False.
        dropout: Probability of zeroing an output of every layer except the last, in training. Default: 0.
        bidirectional: Read each layer backwards with a second network as well; outputs have size 2 H V. Default: False.
        learn_h0: Train the initial state. Otherwise it is zero unless given. Default: False.
        device: Device of the parameters.
        dtype: Dtype of the parameters. A network with 16-bit parameters computes in float32.

    Shape:
        - input: (T, B, I), tokens (T, B), (T, I) or a PackedSequence. hx: (L * D, B, H, K, V). Output: (T, B, D * H V).
        - weight_q_l{k} (H K, I); weight_k_l{k} (M H K, I); weight_v_l{k} (M H V, I); weight_beta_l{k} (M H, I) with
          ``beta="input"``; weight_gate_l{k} (H or H K, I); and bias_..._l{k}; h0 (L * D, H, K, V). A second direction
          has the suffix _reverse.

    Example::

        >>> rnn = DeltaRNN(10, 32, heads=2, gate="scalar")
        >>> out, h_n = rnn(torch.randn(50, 3, 10))
        >>> out.shape, h_n.shape
        (torch.Size([50, 3, 32]), torch.Size([1, 3, 2, 16, 16]))
    """

    h0: nn.Parameter | None
    _fixed = RecurrentNetwork._fixed | {"heads", "key_size", "state_shape", "updates", "gate"}

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        *,
        heads: int = 1,
        key_size: int | None = None,
        updates: int = 1,
        beta: float | Literal["input"] = "input",
        gate: Gate | None = None,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        learn_h0: bool = False,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.input_size = check_integer("input_size", input_size, 1)
        self.hidden_size = check_integer("hidden_size", hidden_size, 1)
        self.num_layers = check_integer("num_layers", num_layers, 1)
        self.heads = check_integer("heads", heads, 1)
        if hidden_size % heads:
            raise ArgumentError(f"Expected heads that divide hidden_size={hidden_size}, but got {heads}.")
        self.key_size = hidden_size // heads if key_size is None else check_integer("key_size", key_size, 1)
        self.updates = check_integer("updates", updates, 1)
        self.beta: float | str = beta
        self.gate = None if gate is None else check_choice("gate", gate, GATES)
        self.bias, self.batch_first = check_flag("bias", bias), batch_first
        self.bidirectional, self.learn_h0 = check_flag("bidirectional", bidirectional), check_flag("learn_h0", learn_h0)
        self.dropout = dropout
        warn_of_dropout(self.dropout, num_layers)
        check_factory(device, dtype)
        self.suffixes = [suffix for suffix, _ in self.layer_inputs()]
        self.add_parameters(self._shapes(), device, dtype)
        self.reset_parameters()

    @property
    def state_shape(self) -> tuple[int, int, int]:
        """The sizes H, K and V."""
        return self.heads, self.key_size, self.hidden_size // self.heads

    def _shapes(self) -> dict[str, Shape | None]:
        """Return the shapes of the parameters, with None for each parameter that the options leave out."""
        (H, K, V), M = self.state_shape, self.updates
        maps = {
            "q": H * K,
            "k": M * H * K,
            "v": M * H * V,
            "beta": M * H if self.beta == "input" else 0,
            "gate": {None: 0, "scalar": H, "diagonal": H * K}[self.gate],
        }
        shapes: dict[str, Shape | None] = {}
        for suffix, width in self.layer_inputs():
            shapes |= self._map_shapes(maps, suffix, width)
        shapes["h0"] = (len(self.suffixes), *self.state_shape) if self.learn_h0 else None
        return shapes

    def reset_parameters(self) -> None:
        """Redraw all parameters.

        Queries and keys are drawn from a normal distribution, which makes their directions uniform; strengths start
        spread over [0, 2], and gates start near 1. Values are initialized as in torch.nn.RNN.
        """
        bound = 1 / math.sqrt(self.hidden_size)
        for name, parameter in self._parameters.items():
            if parameter is None:
                continue
            kind = name.rpartition("_l")[0]
            if kind.endswith(("_q", "_k")):
                nn.init.normal_(parameter)
            elif kind == "bias_beta":
                nn.init.uniform_(parameter, 0, math.pi)
            elif kind.endswith("_gate"):
                nn.init.uniform_(parameter, -0.1 * bound, 0.1 * bound)
            else:
                nn.init.uniform_(parameter, -bound, bound)

    def fold(self) -> nn.Module:
        """Raise an error: the transition differs at each step, so no single W can be folded."""
        raise ArgumentError(
            "Expected a network with one transition, but got a DeltaRNN, whose transition depends on the input."
        )

    def _layer(
        self, suffix: str, x: Tensor, starts: tuple[Tensor, Tensor | None], layout: SequenceLayout, only_last: bool
    ) -> tuple[Tensor, Tensor]:
        every, last = run(self._call(suffix, x, starts, layout))
        assert every is not None
        assert last is not None
        every = every.flatten(-2)
        if only_last and layout.length == 0:  # zeros, with the graph of any other sequence
            return every.sum(0).expand(layout.batch, -1), last
        return (layout.last(layout.flatten(every), every[:0]) if only_last else every), last

    def _call(self, suffix: str, x: Tensor, starts: tuple[Tensor, Tensor | None], layout: SequenceLayout) -> DeltaCall:
        """Return the kernel call of one layer and direction, in at least float32."""
        (H, K, V), M = self.state_shape, self.updates
        q = self._queries(suffix, x)
        k, v, z, g = (self._map(name, suffix, x) for name in ("k", "v", "beta", "gate"))
        assert k is not None
        assert v is not None
        k, v = k.unflatten(-1, (M, H, K)), v.unflatten(-1, (M, H, V))
        beta = self._strengths(z, k, k.shape[:-1])
        gate = None if g is None else (1 / (1 + g * g)).unflatten(-1, (H, -1))
        first, again = (None if S is None else cast(S, k.dtype).expand(layout.batch, H, K, V) for S in starts)
        assert first is not None
        return DeltaCall(q, k, v, beta, gate, first, again, layout)

    def _queries(self, suffix: str, x: Tensor) -> Tensor:
        """Return the queries of the steps, (T, B, H, K) or (R, H, K), with length 1."""
        q = self._map("q", suffix, x)
        assert q is not None
        return unit_vectors(q.unflatten(-1, self.state_shape[:2]))

    def _map(self, name: str, suffix: str, x: Tensor) -> Tensor | None:
        """Return a linear map of inputs (..., I) or tokens (...), or None if there is no such map."""
        weight, bias = self._wide(f"weight_{name}_{suffix}"), self._wide(f"bias_{name}_{suffix}")
        if weight is None:
            return None
        return project(x if is_tokens(x) else cast(x, weight.dtype), weight, bias)

    def extra_repr(self) -> str:
        """Return the constructor's arguments that differ from their defaults."""
        options = self.changed_options(DeltaRNN)
        if self.key_size == self.hidden_size // self.heads:
            del options["key_size"]
        return ", ".join([f"{self.input_size}, {self.hidden_size}", *([listed(options)] if options else [])])
