"""ReflectionRNN: a recurrent network whose transition is a product of reflections chosen by its input."""

from __future__ import annotations

import math
from typing import ClassVar, Literal, get_args

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .._checks import check_choice, check_factory, check_flag, check_integer, check_positive
from ..activations import Activation, Name
from ..errors import ArgumentError, ShapeError
from ..kernels.call import Options
from ..kernels.checkpointing import Mode
from ..kernels.projection import is_tokens
from ..kernels.reflections import reference
from ..kernels.reflections.call import ReflectionCall
from ..kernels.reflections.functional import check_tokens, segment_of
from ..kernels.reflections.kernel import run
from ..layout import SequenceLayout
from .input_dependent import GATES, Gate, InputDependentNetwork, unit_vectors
from .layer import activation_in
from .network import CheckpointedNetwork, Checks, RecurrentNetwork, Shape, listed
from .sequence_input import check_fits
from .stack import warn_of_dropout

Kind = Literal["reflections", "rotation"]
Base = Literal["fixed", "input"]


class ReflectionRNN(InputDependentNetwork, CheckpointedNetwork):
    r"""A recurrent network whose transition at each step is a product of reflections chosen by the input.

    .. math:: h_t = \phi(g_t \circ H_M \cdots H_1 R_t h_{t-1} + V x_t + b), \quad
              H_i = I - \beta_i k_i k_i' / k_i'k_i

    where the reflectors k_i, the strengths beta_i, the gate g_t and the angles of R_t are linear in x_t. Tokens select
    columns: each symbol has a separate transition, any product of M reflections, and no matrix is built per step. With
    beta = 2 and no gate the transition is orthogonal, and the state keeps its norm over any number of steps. Reflectors
    shorter than 1e-6 fade out: H_i then approaches the identity through matrices that are not orthogonal.

    It takes and returns the same as torch.nn.RNN, including unbatched inputs, tokens and PackedSequence.

    Args:
        input_size: Number of input features or symbols, I.
        hidden_size: Number of hidden units, N.
        num_layers: Number of layers, L. Each layer above the first reads the states of the layer below. Default: 1.
        reflections: Number of reflections, M, at most N / heads. n - 1 reflections represent every permutation of n
            objects; N reflections reach every orthogonal matrix. Default: 1.
        heads: Number of heads, H. Each head has N / H units with separate reflections and strengths. Default: 1.
        transition: ``"reflections"``; or ``"rotation"`` to turn the direction of a vector a into the direction of a
            vector b in their plane, both linear in x_t (the rotation of RUM, Dangovski et al., 2019). Default:
            ``"reflections"``.
        beta: A number in [0, 2] for all strengths, or ``"input"`` for beta = 1 - cos(z) with z linear in x_t, which
            reaches both ends of the interval. Default: 2.
        gate: ``"scalar"`` for one gate per head, ``"diagonal"`` for one per unit, or None for g = 1. Gates are g = 1 /
            (1 + z^2) with z linear in x_t, which reaches 1. Default: None.
        base: The base R: None for the identity, ``"fixed"`` for trained angles shared by all steps, ``"input"`` for
            angles linear in x_t. Default: None.
        additive: Whether to add V x_t + b. Otherwise the input acts only through the transition. Default: True.
        nonlinearity: Name in :data:`orthornn.activations.ACTIVATIONS`, or an :class:`Activation`. Default:
            ``"identity"``.
        bias: Whether the maps from x_t have biases; with modrelu the bias of V x_t is its b. The reflectors of tokens
            do not need one: pass False for tokens. Default: True.
        batch_first: Inputs and outputs are (B, T, ...) instead of (T, B, ...). Default: False.
        dropout: Probability of zeroing an output of every layer except the last, in training. Default: 0.
        bidirectional: Read each layer backwards with a second network as well; outputs have size 2N. Default: False.
        learn_h0: Train the initial state. Otherwise it is zero unless given. Default: False.
        clip_backward: Bound on entries of dL/da_t inside back-propagation. Default: None.
        memory: ``"store"``; or ``"checkpoint"`` to store one state per segment of steps and recompute the others in the
            backward pass. Default: ``"store"``.
        segment: Steps per segment. Default: None, the square root of T.
        device: Device of the parameters.
        dtype: Dtype of the parameters. A network with 16-bit parameters computes in float32.

    Shape:
        - input: (T, B, I), tokens (T, B), (T, I) or a PackedSequence. hx: (L * D, B, N). Output: (T, B, D * N).
        - weight_k_l{k} (M N, I), of a rotation (2N, I); weight_beta_l{k} (M H, I) with ``beta="input"``;
          weight_gate_l{k} (H or N, I); weight_base_l{k} (N // 2, I) with ``base="input"``; weight_ih_l{k} (N, I); and
          bias_..._l{k}, which for ``base="fixed"`` is the angles; activation_l{k}; h0 (L * D, N). A second direction
          has the suffix _reverse.

    Example::

        >>> rnn = ReflectionRNN(120, 8, reflections=4, additive=False, learn_h0=True)  # 120 symbols
        >>> states, h_n = rnn(torch.randint(120, (32, 5)))
        >>> states.shape
        torch.Size([32, 5, 8])
    """

    h0: nn.Parameter | None
    _settable: ClassVar[Checks] = {**InputDependentNetwork._settable, "clip_backward": check_positive}
    _fixed = RecurrentNetwork._fixed | {"heads", "transition", "reflections", "gate", "base", "additive"}

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        *,
        reflections: int = 1,
        heads: int = 1,
        transition: Kind = "reflections",
        beta: float | Literal["input"] = 2.0,
        gate: Gate | None = None,
        base: Base | None = None,
        additive: bool = True,
        nonlinearity: Name | Activation = "identity",
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        learn_h0: bool = False,
        clip_backward: float | None = None,
        memory: Mode = "store",
        segment: int | None = None,
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
        self.transition = check_choice("transition", transition, get_args(Kind))
        advice = f"A head of {hidden_size // heads} units has no use for more."
        self.reflections = check_integer("reflections", reflections, 1, hidden_size // heads, advice)
        self.beta: float | str = beta
        self.gate = None if gate is None else check_choice("gate", gate, GATES)
        self.base = None if base is None else check_choice("base", base, get_args(Base))
        if transition == "rotation" and (reflections != 1 or self.beta != 2.0):
            raise ArgumentError(
                "Expected neither reflections nor beta next to transition='rotation', which is two reflections with "
                f"beta=2, but got reflections={reflections}, beta={beta!r}."
            )
        if transition == "rotation":
            self._fixed |= {"beta"}
        self.additive, self.bias = check_flag("additive", additive), check_flag("bias", bias)
        self.batch_first, self.learn_h0 = batch_first, check_flag("learn_h0", learn_h0)
        self.bidirectional = check_flag("bidirectional", bidirectional)
        self.dropout, self.clip_backward = dropout, clip_backward
        warn_of_dropout(self.dropout, num_layers)
        self.set_memory(memory, segment)
        self.activation = activation_in(nonlinearity, False)
        self.nonlinearity = self.activation.name
        check_factory(device, dtype)
        self.suffixes = [suffix for suffix, _ in self.layer_inputs()]
        self.add_parameters(self._shapes(), device, dtype)
        self.reset_parameters()

    def _shapes(self) -> dict[str, Shape | None]:
        """Return the shapes of the parameters, with None for each parameter that the options leave out."""
        n, half, count = self.hidden_size, self.hidden_size // 2, self.num_reflections
        phi_size, biased = self.activation.parameter_size(n), self.activation.parameter_is_bias
        maps = {
            "k": count * n,
            "beta": count * self.heads if self.beta == "input" else 0,
            "gate": {None: 0, "scalar": self.heads, "diagonal": n}[self.gate],
            "base": half if self.base == "input" else 0,
        }
        shapes: dict[str, Shape | None] = {}
        for suffix, width in self.layer_inputs():
            shapes |= self._map_shapes(maps, suffix, width)
            if self.base == "fixed" and half:
                shapes[f"bias_base_{suffix}"] = (half,)
            shapes[f"weight_ih_{suffix}"] = (n, width) if self.additive else None
            shift = phi_size if biased else n if self.additive else 0
            shapes[f"bias_ih_{suffix}"] = (shift,) if shift and self.bias else None
            shapes[f"activation_{suffix}"] = (phi_size,) if phi_size and not biased else None
        shapes["h0"] = (len(self.suffixes), n) if self.learn_h0 else None
        return shapes

    @property
    def num_reflections(self) -> int:
        """Number of reflections, M; 2 for a rotation."""
        return 2 if self.transition == "rotation" else self.reflections

    def reset_parameters(self) -> None:
        """Redraw all parameters.

        Reflectors are drawn from a normal distribution, which makes their directions uniform; strengths start spread
        over [0, 2], angles over the circle, and gates start near 1. Everything else is initialized as in
        `OrthogonalRNN`.
        """
        bound = 1 / math.sqrt(self.hidden_size)
        for name, parameter in self._parameters.items():
            if parameter is None:
                continue
            kind = name.rpartition("_l")[0]
            if kind in ("weight_k", "bias_k"):
                nn.init.normal_(parameter)
            elif kind == "bias_beta":
                nn.init.uniform_(parameter, 0, math.pi)
            elif kind == "bias_base":
                nn.init.uniform_(parameter, -math.pi, math.pi)
            elif kind in ("weight_gate", "bias_gate"):
                nn.init.uniform_(parameter, -0.1 * bound, 0.1 * bound)
            elif kind == "activation":
                nn.init.constant_(parameter, self.activation.initial)
            elif kind == "bias_ih" and self.activation.parameter_is_bias:
                nn.init.uniform_(parameter, -0.01, 0.01)
            elif name == "h0":
                nn.init.uniform_(parameter, -math.sqrt(1.5) * bound, math.sqrt(1.5) * bound)
            else:
                nn.init.uniform_(parameter, -bound, bound)

    def transition_matrices(self, x: Tensor | None = None, layer: int = 0) -> Tensor:
        """Return W_t = g_t H_M ... H_1 R_t of one layer, forward direction, as matrices.

        Args:
            x: Inputs of that layer, or tokens. Default: None, every symbol in turn.
            layer: k. Default: 0.

        Shape:
            - x: (T, B, I) or (B, I); tokens (T, B) or (B,). Output: (T, B, N, N) or (B, N, N), or (I, N, N) without x.

        Raises:
            ShapeError, DTypeError, DeviceError: If x does not match the layer.
            IndexError: If a token is outside [0, I).
        """
        suffix = self.suffixes[check_integer("layer", layer, 0, self.num_layers - 1) * self.num_directions]
        weight, n = self._parameter(f"weight_k_{suffix}"), self.hidden_size
        if x is None:
            x = torch.arange(weight.shape[1], device=weight.device)
        check_fits("input", x, self._sizes())
        wide, width = not is_tokens(x), weight.shape[1]
        if x.dim() not in (1 + wide, 2 + wide) or (wide and x.shape[-1] != width):
            raise ShapeError(
                f"Expected x of shape (T, B, {width}) or (B, {width}), or tokens (T, B) or (B,), but got {tuple(x.shape)}."
            )
        if not wide:
            check_tokens(x, width)
        lead = x.shape[:-1] if wide else x.shape
        flat = x.reshape(-1) if is_tokens(x) else x.reshape(-1, x.shape[-1])
        k, beta, gate, angles, _ = self._maps(suffix, flat)
        if is_tokens(x):
            k, beta, gate = k[flat], beta[flat], None if gate is None else gate[flat]
            angles = angles if angles is None or angles.dim() == 1 else angles[flat]
        count = k.shape[0]
        h = torch.eye(n, dtype=k.dtype, device=k.device).repeat(count, 1)  # row b N + j is e_j
        if angles is not None:
            h = reference.rotate(h, angles if angles.dim() == 1 else angles.repeat_interleave(n, 0))
        for i in range(k.shape[1]):
            h, _ = reference.reflect(h, k[:, i].repeat_interleave(n, 0), beta[:, i].repeat_interleave(n, 0))
        if gate is not None:
            h = gate.repeat_interleave(n // gate.shape[1], 1).repeat_interleave(n, 0) * h
        return h.view(count, n, n).mT.reshape(*lead, n, n)

    def fold(self) -> nn.Module:
        """Raise an error: the transition differs at each step, so no single W can be folded."""
        raise ArgumentError(
            "Expected a network with one transition, but got a ReflectionRNN, whose transition depends on the input. "
            "transition_matrices(x) returns W for each input."
        )

    def _layer(
        self, suffix: str, x: Tensor, starts: tuple[Tensor, Tensor | None], layout: SequenceLayout, only_last: bool
    ) -> tuple[Tensor | None, Tensor]:
        tokens = is_tokens(x)
        k, beta, gate, angles, add = self._maps(suffix, x)
        parameter = self._wide(f"bias_ih_{suffix}" if self.activation.parameter_is_bias else f"activation_{suffix}")
        if parameter is None and self.activation.parameter is not None:  # modrelu without a bias
            parameter = k.new_zeros(self.activation.parameter_size(self.hidden_size))
        length = segment_of(self.memory, self.segment, layout.length)
        options = Options("reflections", self.activation, self.clip_backward, only_last, segment_length=length)
        index = x.long() if tokens else None
        h0, again = (None if h is None else h.to(k.dtype).expand(layout.batch, self.hidden_size) for h in starts)
        assert h0 is not None
        every, last = run(ReflectionCall(k, beta, gate, angles, add, h0, parameter, again, index, layout, options))
        assert last is not None
        return every, last

    def _maps(self, suffix: str, x: Tensor) -> tuple[Tensor, Tensor, Tensor | None, Tensor | None, Tensor | None]:
        """Return k, beta, gate, angles and V x + b for inputs x (..., I), or for every symbol if x contains tokens."""
        tokens, n, count, heads = is_tokens(x), self.hidden_size, self.num_reflections, self.heads

        def linear(name: str, biased: bool = True) -> Tensor | None:
            weight, bias = self._wide(f"weight_{name}_{suffix}"), self._wide(f"bias_{name}_{suffix}")
            if weight is None:
                return None
            bias = bias if biased else None
            if not tokens:
                return F.linear(x.to(weight.dtype), weight, bias)
            return weight.mT if bias is None else weight.mT + bias

        k = linear("k")
        assert k is not None
        k = k.unflatten(-1, (count, n))
        if self.transition == "rotation":
            k = _rotation_reflectors(k, heads)
        beta = self._strengths(linear("beta"), k, (*k.shape[:-1], heads))
        g = linear("gate")
        gate = None if g is None else 1 / (1 + g * g)
        angles = linear("base") if self.base == "input" else self._wide(f"bias_base_{suffix}")
        return k, beta, gate, angles, linear("ih", not self.activation.parameter_is_bias)

    def extra_repr(self) -> str:
        """Return the constructor's arguments that differ from their defaults."""
        options = self.changed_options(ReflectionRNN, always=("reflections",))
        return f"{self.input_size}, {self.hidden_size}, {listed(options)}"


def _rotation_reflectors(ab: Tensor, heads: int) -> Tensor:
    """Return the reflectors (a, a/|a| + b/|b|) of the rotation from the direction of a to the direction of b, per head.

    ab: (..., 2, N). H(a + b) H(a) a = -H(a + b) a = b for vectors of length 1.
    """
    parts = ab.unflatten(-1, (heads, -1))
    unit = unit_vectors(parts).flatten(-2)
    return torch.stack([unit[..., 0, :], unit[..., 0, :] + unit[..., 1, :]], dim=-2)
