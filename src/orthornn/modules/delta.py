"""DeltaRNN: a recurrent network with a matrix state that each step erases and writes along keys (DeltaNet, DeltaProduct)."""

from __future__ import annotations

import math
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from .._checks import check_choice, check_factory, check_flag, check_integer
from ..errors import ArgumentError
from ..kernels.delta.call import DeltaCall
from ..kernels.delta.kernel import run
from ..kernels.projection import cast, is_tokens, project
from ..layout import SequenceLayout
from .input_dependent import GATES, Gate, InputDependentNetwork, check_strength, unit_vectors
from .network import Checks, RecurrentNetwork, Shape, listed
from .sequence_input import NetworkSizes
from .stack import warn_of_dropout


class DeltaRNN(InputDependentNetwork):
    r"""A recurrent network whose state is a matrix that each step erases and writes along keys that the input chooses.

    .. math:: S \leftarrow g_t \circ S_{t-1}, \quad
              S \leftarrow S - \beta_i \hat{k}_i (\hat{k}_i' S - v_i') \text{ for } i = 1, \ldots, M, \quad
              S_t = S, \quad o_t = S_t' \hat{q}_t

    with queries q, keys k, values v, strengths beta and the gate g linear in x_t, and q and k normalized (vectors
    shorter than 1e-6 fade out instead). The value that was stored under a key is replaced by the new one: the delta rule.
    One update per step and beta up to 1 is DeltaNet (Schlag et al., 2021; Yang et al., 2024); several, and beta
    up to 2, is DeltaProduct (Siems et al., 2025). The transition of S is a product of reflections like that of
    :class:`ReflectionRNN`, shared by all columns.

    It takes and returns what torch.nn.RNN does, unbatched inputs, tokens and PackedSequence included; only its state has
    a shape of its own, (L * D, B, H, K, V).

    Args:
        input_size: Number of input features, or of symbols, I.
        hidden_size: Size of the output, H V.
        num_layers: Number of layers, L. Layers above the first read the outputs of the one below. Default: 1.
        heads: H. Each head has a state (K, V) of its own. Default: 1.
        key_size: K. Default: V = hidden_size / heads.
        updates: M. Default: 1.
        beta: A number in [0, 2] for all strengths, or ``"input"``: then beta = 1 - cos(z) with z linear in x_t, so that
            both ends are reached. Default: ``"input"``.
        gate: None for 1; ``"scalar"``, one per head, or ``"diagonal"``, one per entry of its keys: g = 1 / (1 + z^2) with z
            linear in x_t, so that 1 is reached. Default: None.
        bias: Whether the maps from x_t have biases. Default: True.
        batch_first: Inputs and outputs are (B, T, ...) instead of (T, B, ...). Default: False.
        dropout: Probability of zeroing an output of every layer but the last, in training. Default: 0.
        bidirectional: A second network reads each layer backwards; outputs have size 2 H V. Default: False.
        learn_h0: Train the initial state; it is zero otherwise, unless given. Default: False.
        device: Of the parameters.
        dtype: Of the parameters. With 16-bit ones it computes in float32.

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
    _settable: ClassVar[Checks] = {**RecurrentNetwork._settable, "beta": check_strength}
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

    def _is_fixed(self, name: str, value: object) -> bool:
        has_maps = name == "beta" and "beta" in self.__dict__ and "input" in (self.beta, value)
        return has_maps or super()._is_fixed(name, value)

    @property
    def state_shape(self) -> tuple[int, int, int]:
        """H, K, V."""
        return self.heads, self.key_size, self.hidden_size // self.heads

    def _shapes(self) -> dict[str, Shape | None]:
        """Return the shapes of the parameters; None for one that the options leave out."""
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
            for name, size in maps.items():
                shapes[f"weight_{name}_{suffix}"] = (size, width) if size else None
                shapes[f"bias_{name}_{suffix}"] = (size,) if size and self.bias else None
        shapes["h0"] = (len(self.suffixes), *self.state_shape) if self.learn_h0 else None
        return shapes

    def reset_parameters(self) -> None:
        """Draw all parameters again.

        Queries and keys are normal, so that their directions are uniform; strengths start spread over [0, 2], and gates
        near 1. Values start as in torch.nn.RNN.
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
        """Refuse: the transition is another one at each step, so there is no one W to fold into."""
        raise ArgumentError(
            "Expected a network with one transition, but got a DeltaRNN, whose transition depends on the input."
        )

    def _sizes(self) -> NetworkSizes:
        """Return what an input must fit."""
        weight = self._parameter(f"weight_k_{self.suffixes[0]}")
        count = len(self.suffixes)
        return NetworkSizes(self.input_size, self.hidden_size, count, False, self.batch_first, weight, self.state_shape)

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
        if z is None:
            assert not isinstance(self.beta, str)
            beta = k.new_full((*k.shape[:-1], M, H), self.beta)
        else:
            beta = (1 - torch.cos(z)).unflatten(-1, (M, H))
        gate = None if g is None else (1 / (1 + g * g)).unflatten(-1, (H, -1))
        first, again = (None if S is None else cast(S, k.dtype).expand(layout.batch, H, K, V) for S in starts)
        assert first is not None
        k, v = k.unflatten(-1, (M, H, K)), v.unflatten(-1, (M, H, V))
        return DeltaCall(q, k, v, beta, gate, first, again, layout)

    def _queries(self, suffix: str, x: Tensor) -> Tensor:
        """Return what the steps read, (T, B, H, K) or (R, H, K), of length 1."""
        q = self._map("q", suffix, x)
        assert q is not None
        return unit_vectors(q.unflatten(-1, self.state_shape[:2]))

    def _map(self, name: str, suffix: str, x: Tensor) -> Tensor | None:
        """Return a linear map of inputs (..., I) or of tokens (...), or None if there is none."""
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
