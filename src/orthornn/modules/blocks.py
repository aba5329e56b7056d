r"""Stacked linear orthogonal recurrences with pointwise nonlinearities between them.

    h_t = W h_{t-1} + V norm(u_t) + b          W: rotations of pairs of units, of which most forget
    u_t  <-  skip(u_t) + mix(h_t)              mix: a gated linear unit, or a perceptron

The recurrence of a block is linear, so it runs as plane rotations in O(S) per step, and its last state is one matrix
product (docs/how_to/stacked_layers.md). The nonlinear parts have no memory. Building W from rotations with trained
angles costs no generality: V and mix absorb any change of basis. By default a quarter of the rotations keep the norm,
and the others decay at trained rates.

Related networks and how they differ: LRU (Orvieto et al., 2023) has a complex diagonal W inside the unit circle,
initialized on a ring (`decay`, `radii`), and scales the input by trained factors, initially sqrt(1 - g^2). S5 (Smith et
al., 2023) obtains W and V by discretizing a continuous system. RotRNN (Biegun et al., 2024) rotates in a trained
orthogonal basis, with one decay per head. LinOSS (Rusch & Rus, 2025) uses forced oscillators. All of them except
LinOSS-IMEX forget in every pair of units; here W is orthogonal with ``decay=False``.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional as F
from torch.nn.utils.rnn import PackedSequence

from .._checks import check_choice, check_factory, check_flag, check_integer
from ..errors import ArgumentError, ShapeError
from ..kernels.checkpointing import Mode, segment_length
from ..kernels.cost_model import Linear
from ..kernels.interception import is_observed
from ..kernels.projection import cast, is_tokens, project
from ..kernels.validation import check_restart_is_used
from ..layout import SequenceLayout, replace_first_rows
from ..parametrizations import Rotations
from ..parametrizations.parametrization import Parametrization, check_description
from .current import before_step
from .fold import fold
from .forms import FORMS, Form, reads_groups
from .layer import Layer, Settings
from .network import CheckpointedNetwork, RecurrentNetwork, listed
from .rnn import OrthogonalRNN
from .sequence_input import NetworkSizes, SequenceInput, initial_states
from .stack import through_segments, warn_of_dropout
from .state_of_0_1_0 import STATE_VERSION, lacks_decay, may_be_first
from .tracing import is_watched

Mixing = Literal["glu", "gelu", "mlp"]
Norm = Literal["layer", "rms", "none"]
MIXINGS: tuple[str, ...] = get_args(Mixing)
NORMS: tuple[str, ...] = get_args(Norm)
_EXPANSION = 2
_LEAKY = 0.75  # share of the rotations that decay, by default


class OrthogonalBlocks(CheckpointedNetwork):
    r"""A stack of blocks: normalization, a linear orthogonal recurrence, a pointwise nonlinearity, a residual
    connection.

    The first block reads the input without normalization, and its residual connection is a matrix (d_model, I). The
    other arguments and the shapes match :class:`OrthogonalRNN`, with ``d_model`` output features and states of
    ``state_size``.

    Args:
        input_size: Number of input features, I.
        d_model: Features of the outputs, and between blocks.
        state_size: Number of units of each recurrence, S. Must be even if the recurrence consists of rotations only.
            Default: None, twice ``d_model``.
        depth: Number of blocks. Default: 1.
        parametrization: Parametrization of W, or one per block, all real or all complex. Default: None,
            :class:`~orthornn.Rotations`, plane rotations with trained angles.
        decay: Which rotations are scaled by a trained factor in (0, 1), which makes W non-orthogonal: ``"part"``, three
            quarters of them; ``True``, all; ``False``, none. Only with ``parametrization=None``. Default: ``"part"``.
        radii: Ring from which the initial factors are drawn, uniformly by area (LRU). Only with ``decay``. Default:
            ``(0.9, 0.999)``.
        mixing: ``"glu"``: A h * sigmoid(C h), biases included; ``"gelu"``: gelu(A h); ``"mlp"``: C gelu(A h), with
            ``expansion * d_model`` units. Default: ``"glu"``.
        expansion: Units per feature of ``mixing="mlp"``. Only with ``mixing="mlp"``. Default: 2.
        stride: Read only every ``stride``-th state of the first block, ending with the last step. The blocks above run
            at this rate and return ceil(T / stride) outputs. The residual connection of the first block reads the
            inputs of all steps since the previous reading or since the start of the episode. Not supported by
            PackedSequence and `step`, nor by resets with ``bidirectional``. Default: 1.
        norm: Normalization of the inputs of every block except the first: ``"layer"``, ``"rms"`` or ``"none"``.
            Default: ``"layer"``.
        residual: Whether blocks add their input to their output. Default: ``True``.
        dropout: Probability of zeroing an output of every block except the last, in training. Default: 0.
        bias: Whether the recurrences have a bias. Default: ``True``.
        batch_first: Inputs and outputs are (B, T, ...) instead of (T, B, ...). Default: ``False``.
        bidirectional: Give each block a second recurrence that reads its input backwards; the mixing reads both.
            Default: ``False``.
        learn_h0: Train the initial states. Otherwise they are zero unless given. Default: ``False``.
        form: Same as in :class:`OrthogonalRNN`. Default: ``"auto"``.
        memory: ``"checkpoint"`` processes all blocks segment by segment and stores only the states before each segment.
            With ``bidirectional`` or a stride, each recurrence does this separately. Default: ``"store"``.
        segment: Steps per segment. Default: None, the number that minimizes peak memory.
        device, dtype: Same as for torch.nn.RNN.

    Shape:
        - input: (T, B, I), or tokens (T, B) as one-hot vectors; unbatched (T, I); a PackedSequence. T is at least 1.
        - hx, h_n: (depth * D, B, S), D = 2 if bidirectional, otherwise 1.
        - output: (T, B, d_model), or (ceil(T / stride), B, d_model) with a stride. With ``output="last"`` it is (B,
          d_model), the output of each sequence's last step, t = T - 1. If bidirectional, that output reads the states
          of both directions at this step, and the reverse direction has read only this step. In contrast, h_n holds the
          reverse state at t = 0.

    Example::

        >>> net = OrthogonalBlocks(1, 16, 32, depth=2)
        >>> out, h_n = net(torch.randn(50, 4, 1), output="last")
        >>> out.shape, h_n.shape
        (torch.Size([4, 16]), torch.Size([2, 4, 32]))
    """

    _fixed = RecurrentNetwork._fixed | {"d_model", "state_size", "depth", "decay", "mixing", "expansion"}
    _fixed |= {"stride", "norm", "residual"}
    _version = STATE_VERSION

    def __init__(
        self,
        input_size: int,
        d_model: int,
        state_size: int | None = None,
        depth: int = 1,
        *,
        parametrization: Parametrization | Sequence[Parametrization] | None = None,
        decay: bool | Literal["part"] = "part",
        radii: tuple[float, float] | None = None,
        mixing: Mixing = "glu",
        expansion: int = _EXPANSION,
        stride: int = 1,
        norm: Norm = "layer",
        residual: bool = True,
        dropout: float = 0.0,
        bias: bool = True,
        batch_first: bool = False,
        bidirectional: bool = False,
        learn_h0: bool = False,
        form: Form = "auto",
        memory: Mode = "store",
        segment: int | None = None,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.input_size = check_integer("input_size", input_size, 1)
        self.d_model = check_integer("d_model", d_model, 1)
        self.state_size = 2 * d_model if state_size is None else check_integer("state_size", state_size, 1)
        self.depth = check_integer("depth", depth, 1)
        decay = decay if isinstance(decay, str) and decay == "part" else check_flag("decay", decay)
        check_choice("form", form, FORMS)
        is_chosen = decay != "part" or parametrization is not None or form == "rotations"
        self._by_default = frozenset() if is_chosen else frozenset({"decay"})
        methods = _per_block(parametrization, depth)
        methods = [_recurrent(method, self.state_size, decay, radii, form) for method in methods]
        self.mixing, self.norm = check_choice("mixing", mixing, MIXINGS), check_choice("norm", norm, NORMS)
        self.expansion = _check_expansion(expansion, mixing)
        self.stride = check_integer("stride", stride, 1)
        self.residual, self.batch_first = check_flag("residual", residual), batch_first
        self.dropout = dropout
        warn_of_dropout(self.dropout, depth)
        self.bidirectional = check_flag("bidirectional", bidirectional)
        check_factory(device, dtype)
        factory = {"device": device, "dtype": dtype or torch.get_default_dtype()}
        self.blocks = nn.ModuleList()
        for k in range(depth):
            recurrence = OrthogonalRNN(
                d_model if k else input_size,
                self.state_size,
                parametrization=methods[k % len(methods)],
                nonlinearity="identity",
                bias=bias,
                bidirectional=bidirectional,
                learn_h0=learn_h0,
                form=form,
                **factory,  # type: ignore[arg-type]
            )
            self.blocks.append(_Block(recurrence, d_model, k == 0, self, factory))
        _check_one_field(self.blocks)
        self.set_memory(memory, segment)

    def _is_fixed(self, name: str, value: object) -> bool:
        in_blocks = name in ("radii", "bias", "learn_h0", "form")
        return in_blocks or super()._is_fixed(name, value)

    @property
    def hidden_size(self) -> int:  # type: ignore[override]
        """Number of output features, named as in torch.nn.RNN."""
        return self.d_model

    @property
    def num_layers(self) -> int:  # type: ignore[override]
        """Number of blocks, named as in torch.nn.RNN."""
        return self.depth

    @property
    def is_complex(self) -> bool:
        """Whether the states are complex."""
        return self._first.is_complex

    @property
    def parametrization(self) -> Parametrization | list[Parametrization]:
        """Parametrization of W; a list with one entry per block if they differ."""
        methods: list[Parametrization] = [block.recurrence.parametrization for block in self.blocks]  # type: ignore[union-attr, misc]
        return methods[0] if all(method == methods[0] for method in methods) else methods

    @property
    def decay(self) -> bool:
        """Whether trained factors below 1 scale the rotations of a block."""
        transitions = (found for block in self.blocks for _, found in block.recurrence.transitions())  # type: ignore[union-attr, operator]
        return any(transition.method.group == "decays" for transition in transitions)

    @property
    def _first(self) -> OrthogonalRNN:
        return self.blocks[0].recurrence  # type: ignore[return-value]

    def _use_memory(self, memory: Mode, segment: int | None) -> None:
        if self.bidirectional or self.stride > 1:  # otherwise all blocks share the segments
            for block in self.blocks:  # of which the first refuses what the others would
                block.recurrence.set_memory(memory, segment)  # type: ignore[union-attr, operator]

    def reset_parameters(self) -> None:
        """Redraw all parameters: recurrences as in OrthogonalRNN, the matrices between them as in torch.nn.Linear."""
        for block in self.blocks:
            block.reset_parameters()  # type: ignore[operator]

    def _starts(
        self, given: SequenceInput, name: str, start: Tensor | None, restart: Tensor | None
    ) -> tuple[tuple[Tensor, ...] | None, tuple[Tensor, ...] | None]:
        """Return the given states, or None for the initial states of the recurrences."""
        layout = given.layout
        if layout.resets is None:
            check_restart_is_used(restart)
        elif self.stride > 1 and self.bidirectional:
            raise ArgumentError(
                f"Expected no reset with stride={self.stride} and bidirectional=True, but got a reset mask. Build it with "
                f"stride=1 or one direction."
            )
        if layout.length == 0:
            raise ShapeError(f"Expected at least one step, but got an input of shape {tuple(given.x.shape)}.")
        if self.stride > 1 and layout.is_ragged:
            raise ArgumentError(
                f"Expected sequences of equal length with stride={self.stride}, but got a PackedSequence. Pass each length "
                f"separately, or use stride=1."
            )
        states = None if start is None else given.initial_states(start, None, name)
        return states, None if restart is None else given.initial_states(restart, None, "restart")

    def _forward(
        self,
        given: SequenceInput,
        states: tuple[Tensor, ...] | None,
        restarts: tuple[Tensor, ...] | None,
        only_last: bool,
    ) -> tuple[Tensor, Tensor]:
        x, layout, D = given.x, given.layout, self.num_directions
        if self._in_segments(x):
            return self._run_segments(x, states, layout, only_last, restarts)
        finals = []
        for k, block in enumerate(self.blocks):
            own = slice(k * D, (k + 1) * D)
            h, again = (None if each is None else torch.stack(each[own]) for each in (states, restarts))
            x, h_n = block(x, layout, h, only_last and k == self.depth - 1, again)
            if k == 0 and self.stride > 1:
                starts = _group_starts(layout, self.stride)
                restarts_above = None if starts is None else starts.any(-1).flatten()
                layout = SequenceLayout(-(-layout.length // self.stride), layout.batch, resets=restarts_above)
            x = F.dropout(x, self.dropout, self.training and k < self.depth - 1)
            finals.append(h_n)
        return x, torch.cat(finals)

    def _initial_states(self, batch: int, h0: Tensor | None) -> tuple[Tensor, ...]:
        if h0 is not None:
            return initial_states(SequenceLayout(1, batch), self._sizes(), h0, None)
        return tuple([state for block in self.blocks for state in block.recurrence._initial_states(batch, None)])  # type: ignore[union-attr, operator]

    def _sizes(self) -> NetworkSizes:
        """Return the requirements on an input."""
        weight = self._first._parameter("weight_ih_l0")
        count = self.depth * self.num_directions
        return NetworkSizes(self.input_size, self.state_size, count, self.is_complex, self.batch_first, weight)

    def _in_segments(self, x: Tensor) -> bool:
        """Return whether all blocks process the sequence together, one segment at a time."""
        if self.memory == "store" or self.bidirectional or self.stride > 1:
            return False
        traced = any(block.recurrence._traces is not None for block in self.blocks)  # type: ignore[union-attr]
        return not (traced or is_observed(x)) and x.numel() > 0

    def _run_segments(
        self,
        x: Tensor,
        states: tuple[Tensor, ...] | None,
        layout: SequenceLayout,
        only_last: bool,
        restarts: tuple[Tensor, ...] | None,
    ) -> tuple[Tensor, Tensor]:
        """Do the same as `forward`, but store only the states before each segment.

        Transitions that cost more than O(S) to build are built once, before the first segment. Sequences that have
        ended keep their last state and output.
        """
        own = self._initial_states(layout.batch, None) if states is None or layout.resets is not None else ()
        states = own if states is None else states
        steps = self.segment or segment_length(layout.length, self.state_size, 0)
        dropout = self.dropout if self.training else 0.0  # now: the mode may be another one in the backward pass
        again = None if layout.resets is None else torch.stack(own if restarts is None else restarts)
        layers = [block.segment_layer() for block in self.blocks]  # type: ignore[operator]
        tensors, repeating = [_tensors(block) for block in self.blocks], False

        def through(rows: Tensor, h: Tensor, part: SequenceLayout) -> tuple[Tensor, Tensor]:
            finals = []
            for k, (block, layer) in enumerate(zip(self.blocks, layers)):
                restart = None if again is None else again[k : k + 1, : part.batch]
                given = (rows, part, h[k : k + 1], only_last and k == self.depth - 1, restart, layer)
                rows, h_n = _call_with(tensors[k], block, given) if repeating else block(*given)
                rows = F.dropout(rows, dropout, k < self.depth - 1)
                finals.append(h_n)
            return rows, torch.cat(finals)

        outs: list[Tensor] = []
        h_n = torch.stack(states)
        reads = (*self.parameters(), again)
        # A submodule may draw random numbers where the network does not.
        for out, after in through_segments(through, x, h_n, layout, steps, reads, random=True):
            h_n = after
            assert out is not None
            if only_last and outs:
                outs[0] = replace_first_rows(outs[0], out)
            else:
                outs.append(out)
        repeating = True  # from here on, segments run in the backward pass
        return torch.cat(outs), cast(h_n, self._first.layers()[0].state_dtype())

    def _without_dt(self) -> str | None:
        if self.stride > 1:
            return f"stride={self.stride}, with which blocks read several steps at once"
        return next(filter(None, (block.recurrence._without_dt() for block in self.blocks)), None)  # type: ignore[union-attr, operator]

    def _check_steps(self) -> None:
        """Raise unless the network can run step by step."""
        if self.bidirectional or self.stride > 1:
            found = "bidirectional=True" if self.bidirectional else f"stride={self.stride}"
            raise ArgumentError(
                f"Expected a network that reads forwards and returns an output at each step, but got {found}. Call "
                f"forward() on whole sequences instead."
            )

    def _step_states(
        self, given: SequenceInput, name: str, h: Tensor | None, restart: Tensor | None
    ) -> tuple[Tensor, ...]:
        states, restarts = self._starts(given, name, h, restart)
        used = states is None or (restarts is None and given.layout.resets is not None)
        own = self._initial_states(given.layout.batch, None) if used else ()
        return given.begun(states or own, restarts or own)

    def _advance(self, given: SequenceInput, states: tuple[Tensor, ...]) -> tuple[Tensor, Tensor]:
        x, finals = given.x, []
        for block, state in zip(self.blocks, states):
            x, last = block.step(x, state, given)  # type: ignore[operator]
            finals.append(last)
        return x, torch.cat(finals)

    def fold(self) -> OrthogonalBlocks:
        """Return a copy whose transitions are plain matrices W, for inference and export."""
        return fold(self)

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *arguments: Any) -> None:
        """Load a state_dict of this class, or of its first version, whose rotations did not decay by default."""
        local_metadata: dict[str, Any] = arguments[0]
        parts = [(f"{prefix}blocks.{k}.recurrence.", block.recurrence) for k, block in enumerate(self.blocks)]
        old = may_be_first(local_metadata) and all(part._is_whole(state_dict, own) for own, part in parts)  # type: ignore[union-attr, operator]
        if old and self.decay and "decay" in self._by_default and lacks_decay(state_dict, parts[0][0]):
            for block in self.blocks:
                block.recurrence._replace_transitions(Rotations())  # type: ignore[union-attr, operator]
            vars(self).update(_by_default=frozenset(), _version=1)  # of what it saves
        super()._load_from_state_dict(state_dict, prefix, *arguments)

    def extra_repr(self) -> str:
        """Return the constructor's arguments that differ from their defaults."""
        first = self._first
        inner = {"bias": first.bias, "learn_h0": first.learn_h0, "form": first.form}
        options = self.changed_options(OrthogonalBlocks, ("depth", "parametrization", "mixing"), inner)
        for name in ("decay", "state_size"):  # the parametrization has the first
            options.pop(name, None)
        return f"{self.input_size}, {self.d_model}, {self.state_size}, {listed(options)}"


class _Block(nn.Module):
    """One block. reads_input: Whether it is the first block, which reads the input without normalization."""

    def __init__(
        self, recurrence: OrthogonalRNN, d_model: int, reads_input: bool, of: OrthogonalBlocks, factory: dict[str, Any]
    ) -> None:
        super().__init__()
        norms = {"layer": nn.LayerNorm, "rms": nn.RMSNorm, "none": None}
        kind = None if reads_input else norms[of.norm]
        self.norm = None if kind is None else kind(d_model, **factory)
        self.recurrence = recurrence
        self.skip = None
        if of.residual and reads_input:
            self.skip = nn.Linear(recurrence.input_size * of.stride, d_model, bias=False, **factory)
        self.residual, self.stride = of.residual, of.stride if reads_input else 1
        read = recurrence.hidden_size * recurrence.num_directions * (2 if recurrence.is_complex else 1)
        self.mix: nn.Sequential
        if of.mixing == "glu":
            self.mix = nn.Sequential(nn.Linear(read, 2 * d_model, **factory), nn.GLU())
        elif of.mixing == "gelu":
            self.mix = nn.Sequential(nn.Linear(read, d_model, **factory), nn.GELU())
        else:
            inner = of.expansion * d_model
            self.mix = nn.Sequential(nn.Linear(read, inner, **factory), nn.GELU(), nn.Linear(inner, d_model, **factory))

    def reset_parameters(self) -> None:
        """Redraw all parameters."""
        for module in (self.norm, self.recurrence, self.skip, *self.mix):
            if hasattr(module, "reset_parameters"):
                module.reset_parameters()

    def segment_layer(self) -> Layer | None:
        """Return the recurrence to use for all segments. Its transition is fixed to its current value, unless it is
        O(S) and applied by its structure. Return None if a hook must see each call: the states between segments are
        then rounded like h_n.
        """
        recurrence = self.recurrence
        if is_watched(recurrence, OrthogonalRNN) or is_watched(self, _Block):
            return None
        (layer,) = recurrence.layers()
        by_structure = layer.transition.num_reflections == 0 or recurrence.form == "operator"
        return layer if by_structure else layer.built()

    def forward(
        self,
        x: Tensor,
        layout: SequenceLayout,
        h: Tensor | None,
        only_last: bool,
        restart: Tensor | None = None,
        layer: Layer | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Return the outputs of all steps or of each sequence's last step, and h_n (D, B, S).

        Args:
            x: (T, B, ...), or flat rows of a ragged batch. layout: The division of the rows into steps.
            h: The initial states (D, B, S), or None.
            only_last: Return the last step only.
            restart: The states (D, B, S) from which sequences restart at the resets of the layout, or None.
            layer: Result of `segment_layer`. The recurrence then has one direction, h is given, and h_n is not rounded.
        """
        recurrence = self.recurrence
        one_way = not recurrence.bidirectional
        u = x if self.norm is None else self.norm(x)
        read = PackedSequence(u, layout.batch_sizes) if layout.is_ragged else u
        starts = None if self.stride == 1 else _group_starts(layout, self.stride)
        if self.stride > 1 and not only_last and starts is None:
            states, h_n = _strided(recurrence, u, h, self.stride)
            return self._out(self._groups(x, None), states), h_n
        reset, dt = (_as_given(rows, layout) for rows in (layout.resets, layout.dt))
        if layer is not None and h is not None:
            again = None if restart is None else restart[0]
            every, last = layer.run(u, h[0], layout, only_last, recurrence._settings(), again, carried=True)
            assert last is not None
            states, h_n = cast(last, layer.state_dtype()) if every is None else every, last.unsqueeze(0)
        else:
            h = None if h is None else cast(h, recurrence._sizes().state_dtype)
            output: Literal["last", "all"] = "last" if only_last and one_way else "all"
            states, h_n = recurrence(read, h, output, reset=reset, restart=restart, dt=dt)
            states = states.data if isinstance(states, PackedSequence) else states
        if not only_last and self.stride > 1:
            return self._out(self._groups(x, starts), _thinned(states, self.stride)), h_n
        if only_last:
            ends = None if starts is None else starts[-1:]
            x = layout.last(layout.flatten(x), x) if self.stride == 1 else self._groups(x[-self.stride :], ends)[0]
            states = states if one_way else layout.last(layout.flatten(states), states)
        return self._out(x, states), h_n

    def _groups(self, x: Tensor, starts: Tensor | None) -> Tensor:
        """Return the inputs (G, B, stride I) of the residual connection: the inputs of every group of steps, with zeros
        for steps missing from the first group and for steps before the last start of an episode.

        starts: bool (G, B, stride), whether an episode starts before each step; None if none does.
        """
        if self.skip is None:
            return x
        patches = _patches(self._vectors(x), self.stride)
        if starts is None:
            return patches
        after = starts.flip(-1).cumsum(-1).flip(-1) - starts.long()  # starts after each step, in its group
        return torch.where(after.unsqueeze(-1) == 0, patches.unflatten(-1, (self.stride, -1)), 0).flatten(-2)

    def step(self, x: Tensor, state: Tensor, given: SequenceInput) -> tuple[Tensor, Tensor]:
        """Return (output (B, d_model), h (1, B, S)) of one step from x (B, ...) and a state (B, S). given: The
        input.
        """
        before_step(self.recurrence)
        u = x if self.norm is None else self.norm(x)
        read = SequenceInput(u, given.layout, given.is_batched, given.sizes, None)
        out, h_n = self.recurrence._advance(read, (state,))
        return self._out(x, out), h_n

    def _out(self, x: Tensor, states: Tensor) -> Tensor:
        if states.is_complex():
            states = cast(torch.view_as_real(states).flatten(-2), self._dtype)
        out = self.mix(states)
        if not self.residual:
            return out
        if self.skip is None:
            return x + out
        if is_tokens(x) and type(self.skip) is nn.Linear and not is_watched(self.skip, nn.Linear):
            return out + project(x, self.skip.weight, None)
        return out + self.skip(self._vectors(x))

    def _vectors(self, x: Tensor) -> Tensor:
        """Return inputs in the form that the residual connection takes, with tokens as one-hot vectors."""
        return cast(F.one_hot(x.long(), self.recurrence.input_size) if is_tokens(x) else x, self._dtype)

    @property
    def _dtype(self) -> torch.dtype:
        """Dtype that linear layers read. It is not taken from the layers, which may have been replaced, as for
        quantization.
        """
        return self.recurrence._parameter("weight_ih_l0").dtype


def _as_given(rows: Tensor | None, layout: SequenceLayout) -> Tensor | PackedSequence | None:
    """Return a value of the layout for each row in the form that networks take, or None if there is none."""
    if rows is None:
        return None
    return layout.unflatten(rows) if layout.batch_sizes is None else PackedSequence(rows, layout.batch_sizes)


def _strided(recurrence: OrthogonalRNN, x: Tensor, h: Tensor | None, stride: int) -> tuple[Tensor, Tensor]:
    """Return the states (G, B, D S) of the last step and of every stride-th step before it, and h_n (D, B, S)."""
    length = x.shape[0]
    plain = not (recurrence.bidirectional or recurrence.is_complex or is_tokens(x) or recurrence.form != "auto")
    plain = plain and recurrence.clip_backward is None and not recurrence.linear_transition
    plain = plain and not is_watched(recurrence, OrthogonalRNN) and not torch.jit.is_tracing()
    # A program of torch.export for any size: a choice by its cost would limit it to the sizes that have the same one.
    plain = plain and not any(isinstance(size, torch.SymInt) for size in x.shape[:2])
    if not plain or length <= stride or recurrence.memory != "store" or not _groups_pay(recurrence, x, stride):
        states, h_n = recurrence(x, h)
        return _thinned(states, stride), h_n
    first = (length - 1) % stride
    start, before = recurrence(x[: first + 1], h)
    (layer,) = recurrence.layers()
    states = layer.every_kth(x[first + 1 :], before[0], stride, Settings())
    if states is None:
        states, h_n = recurrence(x, h)
        return _thinned(states, stride), h_n
    states = torch.cat([start[first:], states])
    return states, states[-1:].clone()


def _patches(x: Tensor, stride: int) -> Tensor:
    """Return x (T, B, I) in groups of steps, (G, B, stride I), the first padded with zeros for missing steps."""
    length = x.shape[0]
    if isinstance(length, torch.SymInt):
        back = torch.cat([x.new_zeros(stride - 1, *x.shape[1:]), x]).flip(0)
        return torch.cat([back[j : j + length : stride].flip(0) for j in reversed(range(stride))], -1)
    missing = x.new_zeros(-length % stride, *x.shape[1:])
    return torch.cat([missing, x]).unflatten(0, (-1, stride)).transpose(1, 2).flatten(2)


def _group_starts(layout: SequenceLayout, stride: int) -> Tensor | None:
    """Return whether an episode starts before each step of every group, bool (G, B, stride); None without resets."""
    if layout.resets is None:
        return None
    return _patches(layout.resets.view(layout.length, layout.batch, 1), stride)


def _thinned(x: Tensor, stride: int) -> Tensor:
    """Return the last entry of x (T, ...) and every stride-th entry before it, (ceil(T / stride), ...).

    In a graph for any T, entries are taken from the end, in slices of length ceil(T / stride). torch.export does not
    know that other expressions for this number are equal to it, such as the length of a slice that begins at (T - 1) %
    stride.
    """
    if isinstance(x.shape[0], torch.SymInt):
        return x.flip(0)[::stride].flip(0)
    return x[(x.shape[0] - 1) % stride :: stride]


def _groups_pay(recurrence: OrthogonalRNN, x: Tensor, stride: int) -> bool:
    """Return whether one product per group of steps costs less than processing step by step."""
    m = recurrence.layers()[0].transition.num_reflections
    length, batch, inputs = x.shape
    return reads_groups(Linear(recurrence.hidden_size, m, batch, length, True, False, True), inputs, stride)


def _tensors(block: nn.Module) -> dict[str, Tensor]:
    """Return the current parameters and buffers of a block by name."""
    return {**dict(block.named_parameters()), **dict(block.named_buffers())}


def _call_with(tensors: Mapping[str, Tensor], block: nn.Module, arguments: tuple[Any, ...]) -> Any:
    """Call a block with the tensors of its forward pass: torch.func.functional_call has restored the block's own
    tensors by the time of the backward pass.
    """
    if torch.compiler.is_compiling() or all(map(operator.is_, _tensors(block).values(), tensors.values())):
        return block(*arguments)
    return functional_call(block, dict(tensors), arguments)


def _per_block(
    given: Parametrization | Sequence[Parametrization] | None, depth: int
) -> Sequence[Parametrization] | list[None]:
    """Return one parametrization for all blocks, or one per block."""
    if given is None or not isinstance(given, (list, tuple)):
        return [given]  # type: ignore[return-value]
    if len(given) != depth:
        raise ArgumentError(
            f"Expected one parametrization, or one for each of {depth} blocks, but got {len(given)}. Pass {depth}."
        )
    return given


def _check_expansion(expansion: int, mixing: str) -> int:
    """Return the number of units per feature of a perceptron, or raise ArgumentError if no perceptron takes them."""
    check_integer("expansion", expansion, 1)
    if mixing != "mlp" and expansion != _EXPANSION:
        raise ArgumentError(
            f"Expected expansion only with mixing='mlp', but got expansion={expansion} with mixing={mixing!r}. Leave one of "
            f"them out."
        )
    return expansion


def _check_one_field(blocks: nn.ModuleList) -> None:
    """Raise ArgumentError if some blocks have complex states and others have real ones, since h_n could not hold
    both.
    """
    complex_states = [bool(block.recurrence.is_complex) for block in blocks]
    if len(set(complex_states)) > 1:
        raise ArgumentError(
            f"Expected states that are all real or all complex, but got complex states only in block "
            f"{', '.join(str(k) for k, one in enumerate(complex_states) if one)} of {len(blocks)}. Pass "
            f"parametrizations of one field."
        )


def _recurrent(
    given: Parametrization | None, state_size: int, decay: bool | str, radii: tuple[float, float] | None, form: str
) -> Parametrization:
    """Return the parametrization of the recurrences; ArgumentError for options that contradict each other."""
    if given is not None:
        check_description("parametrization", given, "Rotations()")
    if decay == "part" and (given is not None or form == "rotations"):
        decay = False
    if radii is not None and not decay:
        raise ArgumentError(f"Expected radii only with decay=True, but got radii={radii}. Pass decay=True.")
    if given is not None and decay:
        raise ArgumentError(
            f"Expected decay only for pure rotations, but got parametrization={given!r}. Leave parametrization out, or "
            f"pass Rotations(decay=True)."
        )
    if given is None:
        ring: dict[str, Any] = {} if radii is None else {"radii": radii}
        leaky: dict[str, Any] = {"leaky": _LEAKY} if decay == "part" else {}
        given = Rotations(decay=bool(decay), **ring, **leaky)
    if isinstance(given, Rotations):
        if state_size % 2:
            raise ArgumentError(
                f"Expected an even state_size for rotations of pairs, but got {state_size}. Pass {state_size + 1}."
            )
        if given.decay and form == "rotations":
            raise ArgumentError(
                "Expected form='auto' with decay, but got form='rotations', which needs an orthogonal W. Leave form out: "
                "rotations alone cost O(state_size) per step anyway."
            )
    return given
