"""The values that travel from a recurrence's public function to a backend and back. This module computes nothing.

A `Call` holds everything about one run of  h_t = phi(W h_{t-1} + V x_t + b)  over a batch of sequences: the tensors,
the division of rows into steps, and the options. `Call.tensors` defines the order of the tensors; only `Needs` and
`Gradients` repeat it.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

from torch import Tensor

from .. import activations
from ..activations import Activation
from ..compact_wy import Base, packed_reflections
from ..layout import SequenceLayout

Kind = Literal["dense", "compact_wy", "rotations", "reflections", "irregular"]


class Options(NamedTuple):
    """The options of a call: everything that is not a tensor.

    Attributes:
        kind: Form of the transition: "dense" is W (N, N); "compact_wy" is reflectors, U (N, M) or packed (P,), with the
            base (c, s); "rotations" is W in the basis of its rotations (c, s); "reflections" have separate reflectors
            for each step (reflections/call.py); "irregular" are rotations over irregular time (irregular/call.py).
        activation: phi.
        clip: Bound on entries of dL/da_t inside back-propagation, or None.
        only_last: Return only the last state of each sequence.
        backend: Name of a backend, or "auto".
        segment_length: Steps between two stored states with ``memory="checkpoint"``; None to store all states.
    """

    kind: Kind
    activation: Activation
    clip: float | None = None
    only_last: bool = False
    backend: str = "auto"
    segment_length: int | None = None

    def changed(self, **changes: Any) -> Options:
        """Return the options with some changed, without ``_replace``, which torch.compile cannot trace before torch
        2.9.
        """
        return Options(*[changes.get(name, value) for name, value in zip(_OPTIONS, list(self))])  # type: ignore[arg-type]

    def to_spec(self) -> str:
        """Return the options as a string, for custom operators."""
        phi = self.activation
        # float() of a float: with torch.compile(dynamic=True) it is a symbol, which no string takes.
        clip, segment = "-" if self.clip is None else float(self.clip), self.segment_length or "-"
        return f"{self.kind} {phi.name} {float(phi.slope)} {int(self.only_last)} {self.backend} {clip} {segment}"

    @staticmethod
    @functools.lru_cache(maxsize=256)
    def from_spec(spec: str) -> Options:
        """Return the options described by `to_spec`."""
        kind, name, slope, only_last, backend, clip, segment = spec.split()
        phi = activations.get(name, float(slope) if name == "leaky_relu" else None)
        return Options(
            kind,  # type: ignore[arg-type]
            phi,
            None if clip == "-" else float(clip),
            only_last == "1",
            backend,
            None if segment == "-" else int(segment),
        )


class Call(NamedTuple):
    """One run of a recurrence.

    Attributes:
        x: Inputs (T, B, I), projected inputs (T, B, N) if ``weight_ih`` is None, or tokens (T, B); flat rows (R, ...)
            if the layout is ragged.
        weight_ih: V (N, I), or None.
        bias: b (N,), or None.
        h0: The initial state (B, N).
        weight: W (N, N), or reflectors, or W in the basis of its rotations (which only receives the gradient).
        c, s: The base of reflectors, or the rotations, each (N,); None for the identity as a base.
        parameter: phi's trainable vector, or None.
        restart: The state (B, N) that replaces h_{t-1} at the resets of the layout; None without resets.
        layout: The division of the rows into steps.
        options: All other options.
        factors: (U, S) of the reflectors, if they are already computed.
    """

    x: Tensor
    weight_ih: Tensor | None
    bias: Tensor | None
    h0: Tensor
    weight: Tensor
    c: Tensor | None
    s: Tensor | None
    parameter: Tensor | None
    restart: Tensor | None
    layout: SequenceLayout
    options: Options
    factors: tuple[Tensor, Tensor] | None = None

    def changed(self, **changes: Any) -> Call:
        """Return the call with some entries changed; see `Options.changed`."""
        return Call(*[changes.get(name, value) for name, value in zip(_CALL, list(self))])  # type: ignore[arg-type]

    def with_transition(self, kind: Kind, weight: Tensor, c: Tensor | None = None, s: Tensor | None = None) -> Call:
        """Return the call with this transition. Setting entry by entry takes a third of the time of `changed`."""
        x, weight_ih, bias, h0, _, _, _, parameter, restart, layout, options, _ = self
        _, activation, clip, only_last, backend, segment_length = options
        options = Options(kind, activation, clip, only_last, backend, segment_length)
        return Call(x, weight_ih, bias, h0, weight, c, s, parameter, restart, layout, options)

    def with_tensors(self, tensors: Sequence[Tensor | None]) -> Call:
        """Return the call with these tensors, in the order of `tensors`."""
        return Call(*tensors, self.layout, self.options)  # type: ignore[arg-type, call-arg]

    def tensors(self) -> tuple[Tensor | None, ...]:
        """Return the differentiable tensors, in the order of `Needs` and `Gradients`."""
        return self[:_TENSORS]  # type: ignore[return-value]

    def layout_tensors(self) -> tuple[Tensor | None, ...]:
        """Return the tensors of the layout."""
        return self.layout.batch_sizes, self.layout.resets

    def are_rows(self) -> tuple[bool, ...]:
        """Return the tensors that have a row for every step and sequence: x."""
        return (True, *(False,) * (_TENSORS - 1))

    def contiguous(self) -> Call:
        """Return the call with contiguous rows."""
        return self._replace(x=self.x.contiguous())

    def part(self, rows: slice, layout: SequenceLayout, h: Tensor) -> Call:
        """Return the call of one segment: these rows, starting from the state h (B, N) before them."""
        x, restart = layout.unflatten(self.rows[rows]), self.restart
        if restart is not None:
            restart = restart[: layout.batch].contiguous()
        return self._replace(x=x, h0=h[: layout.batch].contiguous(), restart=restart, layout=layout)

    @property
    def returns_all(self) -> bool:
        """Whether all states are returned, instead of only the last ones."""
        return not self.options.only_last

    def spec(self) -> str:
        """Return the options as a string, for custom operators."""
        return self.options.to_spec()

    @property
    def rows(self) -> Tensor:
        """x as flat rows (R, ...)."""
        return self.layout.flatten(self.x)

    @property
    def base(self) -> Base:
        """(c, s), or None."""
        return None if self.c is None or self.s is None else (self.c, self.s)

    @property
    def num_reflections(self) -> int | None:
        """M, or None if the transition is not given by reflectors."""
        if self.options.kind != "compact_wy":
            return None
        weight = self.weight
        return weight.shape[1] if weight.dim() == 2 else packed_reflections(self.h0.shape[1], weight.shape[0])

    def size(self) -> Size:
        """Return the sizes that the choice of a backend depends on."""
        layout, options = self.layout, self.options
        return Size(
            self.h0.shape[1],
            self.num_reflections,
            self.h0.shape[0],
            layout.length,
            layout.is_ragged,
            options.activation.paired,
            options.kind == "rotations",
            layout.resets is not None,
        )


_OPTIONS, _CALL = Options._fields, Call._fields
_TENSORS = _CALL.index("layout")


class Size(NamedTuple):
    """The sizes that the choice of a backend depends on, in addition to device and dtype.

    Attributes:
        n: N. m: M, or None if the transition is not given by reflectors. batch: B. steps: T.
        ragged: Whether sequences have unequal lengths. paired: Whether phi acts on pairs of units.
        rotations: Whether the transition is given as rotations.
        resets: Whether sequences may restart.
    """

    n: int
    m: int | None = None
    batch: int = 1
    steps: int = 1
    ragged: bool = False
    paired: bool = False
    rotations: bool = False
    resets: bool = False


class Needs(NamedTuple):
    """Flags of the tensors of a call that require a gradient."""

    x: bool
    weight_ih: bool
    bias: bool
    h0: bool
    weight: bool
    c: bool
    s: bool
    parameter: bool
    restart: bool = False


class Gradients(NamedTuple):
    """The gradients of a call's tensors; None if not required. The gradient of x has flat rows (R, ...)."""

    x: Tensor | None = None
    weight_ih: Tensor | None = None
    bias: Tensor | None = None
    h0: Tensor | None = None
    weight: Tensor | None = None
    c: Tensor | None = None
    s: Tensor | None = None
    parameter: Tensor | None = None
    restart: Tensor | None = None


class States(NamedTuple):
    """The result of a call, or the gradient of the result.

    Attributes:
        all: Every state, (T, B, N), or (R, N) for a ragged batch; None if only the last states are returned, or if
            there is no gradient.
        last: The last state of each sequence (B, N); None only as a gradient.
    """

    all: Tensor | None
    last: Tensor | None

    @property
    def wanted(self) -> Tensor:
        """The states that the caller requested: all of them, or only the last ones."""
        found = self.last if self.all is None else self.all
        assert found is not None
        return found


class Residuals(NamedTuple):
    """The tensors that a forward pass saves for the backward pass.

    Attributes:
        states: All states as in `States`, if phi' can be computed from them; otherwise they are recomputed from
            pre-activations.
        preactivations: (R, N), if phi' reads them.
        h_tilde: h~ of Theorem 2, (R, M), for compact WY.
        U: (N, M), for packed reflectors. S: (M, M), for compact WY.
        starts: With checkpointing, only the state before every segment, (S, B, N).
    """

    states: Tensor | None = None
    preactivations: Tensor | None = None
    h_tilde: Tensor | None = None
    U: Tensor | None = None
    S: Tensor | None = None
    starts: Tensor | None = None
