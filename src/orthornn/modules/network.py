"""The common base of the recurrent networks: their parameters by name, and the interface that torch expects."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, ClassVar, Literal, TypeVar, overload

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from .._checks import check_choice, check_flag, check_number
from ..activations import ACTIVATIONS
from ..errors import ArgumentError, ReadOnlyError, TransformError
from ..kernels.checkpointing import Mode
from ..kernels.projection import at_least_float32
from ..kernels.validation import OUTPUTS, Output, check_memory
from ..layout import SequenceLayout
from .current import before_step, current
from .overview import network_html
from .sequence_input import NetworkSizes, SequenceInput, check_batch, initial_states, one_initial_state

Shape = tuple[int, ...]
Self = TypeVar("Self", bound="RecurrentNetwork")  # typing has one from Python 3.11 on
Checks = Mapping[str, Callable[[str, Any], Any]]
_ADVICE = {
    "parametrization": "Convert the network with orthornn.convert.",
    "memory": "Call set_memory(memory, segment).",
    "segment": "Call set_memory(memory, segment).",
    "gain": "It is trained: write into the parameters gain_l{k}.",
}


class RecurrentNetwork(nn.Module):
    """A network that reads sequences, with one or more layers and one or two directions.

    Settings that every call reads may be changed at any time and are checked on assignment; settings that determined
    the parameters are read-only: `_fixed` has their names, to which a constructor adds those that its options fix.
    """

    _settable: ClassVar[Checks] = {
        "batch_first": check_flag,
        "dropout": partial(check_number, low=0.0, high=1.0),
    }
    _fixed: frozenset[str] = frozenset(
        {"input_size", "hidden_size", "num_layers", "num_directions", "bidirectional", "bias", "learn_h0"}
        | {"parametrization", "nonlinearity", "activation", "is_complex", "suffixes", "memory", "segment"}
    )
    input_size: int
    hidden_size: int
    num_layers: int = 1
    bidirectional: bool = False
    _by_default: frozenset[str] = frozenset()
    """Options that the constructor was not given, which loading an old state_dict may therefore replace."""
    _start_names: ClassVar[tuple[str, str]] = ("h0", "h")  # of an initial state, in forward (next to hx) and in step

    def __setattr__(self, name: str, value: Any) -> None:
        check = self._settable.get(name)
        value = value if check is None else check(name, value)
        if self._is_fixed(name, value):
            advice = _ADVICE.get(name, f"Build another {type(self).__name__}.")
            raise ReadOnlyError(f"Expected {name} to stay as the network was built, but got {value!r}. {advice}")
        super().__setattr__(name, value)

    def _is_fixed(self, name: str, value: object) -> bool:
        """Return whether an attribute already has a value that must not change."""
        return name in self._fixed and (name in self.__dict__ or isinstance(getattr(type(self), name, None), property))

    @property
    def num_directions(self) -> int:
        """2 if bidirectional, else 1."""
        return 2 if self.bidirectional else 1

    def layer_inputs(self) -> Iterator[tuple[str, int]]:
        """Yield the suffix of each layer's and direction's parameters, as in torch.nn.RNN, and its number of input
        features.
        """
        for k in range(self.num_layers):
            for end in ("", "_reverse")[: self.num_directions]:
                yield f"l{k}{end}", self.hidden_size * self.num_directions if k else self.input_size

    def add_parameters(
        self, shapes: Mapping[str, Shape | None], device: torch.device | str | int | None, dtype: torch.dtype | None
    ) -> None:
        """Register an uninitialized parameter for each shape, and None for each name without a shape.

        Args:
            shapes: Shapes by name.
            device, dtype: Device and dtype of the parameters; None for torch's defaults.
        """
        dtype = dtype or torch.get_default_dtype()
        for name, shape in shapes.items():
            empty = None if shape is None else nn.Parameter(torch.empty(shape, device=device, dtype=dtype))
            self.register_parameter(name, empty)

    def _parameter(self, name: str) -> Any:
        """Return a parameter, or None. Attribute access would cost ten times as much; see current.py."""
        own = self._parameters
        return own[name] if name in own else current(self, name, called=True)

    def _wide(self, name: str) -> Any:
        """Return a parameter in at least float32, or None."""
        own = self._parameter(name)
        return None if own is None else at_least_float32(own)

    def initial_states(self, batch: int, h0: Tensor | None = None) -> Tensor:
        """Return the initial states of all layers or blocks and directions in one tensor, for ``hx`` and ``restart`` of
        ``forward`` and for h of ``step``. The tensor is new: the caller may change it.

        Args:
            batch: B.
            h0: Same as hx of ``forward``, which is then only checked. Default: None, the trained state or zeros.

        Shape:
            - Output: (L * D, B, N), the shape of hx; some networks have other sizes instead of N.

        Raises:
            ShapeError, DTypeError, DeviceError: If h0 does not match the network.

        Example::

            >>> from orthornn import ReflectionRNN
            >>> ReflectionRNN(3, 8, num_layers=2).initial_states(5).shape
            torch.Size([2, 5, 8])
        """
        check_batch(batch)
        return torch.stack(self._initial_states(batch, h0))

    def _initial_states(self, batch: int, h0: Tensor | None) -> tuple[Tensor, ...]:
        """Return the initial state (B, N) of every layer, or block, and direction."""
        return initial_states(SequenceLayout(1, batch), self._sizes(), h0, self._parameter("h0"))

    @overload
    def forward(
        self,
        input: Tensor,
        hx: Tensor | None = None,
        output: Output = "all",
        h0: Tensor | None = None,
        reset: Tensor | None = None,
        restart: Tensor | None = None,
        dt: Tensor | None = None,
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
        dt: Tensor | PackedSequence | None = None,
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
        dt: Tensor | PackedSequence | None = None,
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
        dt: Tensor | PackedSequence | None = None,
    ) -> tuple[Tensor, Tensor]: ...

    def forward(
        self,
        input: Tensor | PackedSequence,
        hx: Tensor | None = None,
        output: Output = "all",
        h0: Tensor | None = None,
        reset: Tensor | PackedSequence | None = None,
        restart: Tensor | None = None,
        dt: Tensor | PackedSequence | None = None,
    ) -> tuple[Tensor | PackedSequence, Tensor]:
        """Return the outputs of the last layer at every step, and the final state of every layer and direction.

        All sequence networks take the same arguments. Some classes replace (B, N) by other sizes, as their
        documentation says: the states of a DeltaRNN, the outputs of OrthogonalBlocks.

        Args:
            input: (T, B, I), or (B, T, I) with batch_first; (T, I) unbatched; or a PackedSequence. Integers without the
                last dimension are tokens, read as one-hot vectors of size I.
            hx: The initial state (L * D, B, N), or (L * D, N) unbatched. Default: None, the trained state or zeros.
            output: ``"all"``; or ``"last"`` to return only the last output (B, D * N), which avoids a gradient of T * B
                * N numbers for the last layer. As in torch's h_n, the reverse direction contributes its state at t = 0,
                after the whole sequence; ``"all"`` returns this state at the first step.
            h0: Alias of hx.
            reset: bool (T, B), or (B, T) with batch_first; (T,) unbatched. True if a new episode starts before step t:
                its previous state is then ``restart``, and no gradient passes to earlier steps. For a PackedSequence,
                pass the mask padded to the longest sequence, in the order of the batch, or a PackedSequence with the
                same lengths. A reset before step t separates t - 1 from t in both directions: the reverse direction
                restarts before it reads t - 1. Default: None, no resets.
            restart: The state from which episodes start, with the shape of hx. Default: None, the trained state or
                zeros, even if hx is given: hx may be carried over from an earlier segment, which new episodes do not
                continue.
            dt: Time since the previous step, (T, B), or (B, T) with batch_first; (T,) unbatched; for a PackedSequence
                in the same forms as reset. Must be positive, in the unit of time in which the network turns by its
                angles once. A linear recurrence of rotations is exact over any dt (docs/derivations/irregular_time.md);
                other networks do not support it. The state before the first step, or after a reset, is also moved by
                the dt of that step. In the reverse direction, the dt of the first step read is 1. Default: None, 1
                everywhere.

        Returns:
            The outputs (T, B, D * N) in the layout of the input, and h_n (L * D, B, N). The backward pass reads the
            returned states: modify a copy instead of changing them in place, which makes autograd raise an error.

        Raises:
            ShapeError, DTypeError, DeviceError: If an input or a state does not match the network. Outside autocast, an
                input of higher precision than the weights raises DTypeError.
            IndexError: If a token is outside [0, I).
            ArgumentError: If a time is not positive and finite, or the network does not support dt.
        """
        check_choice("output", output, OUTPUTS)
        only_last = output == "last"
        name, start = one_initial_state(**{"hx": hx, self._start_names[0]: h0})
        if dt is not None:
            check_takes_dt(self)
        given = SequenceInput.of(input, self._sizes(), reset, dt)
        states, restarts = self._starts(given, name, start, restart)
        return given.out(*self._forward(given, states, restarts, only_last), only_last)

    def step(
        self,
        x: Tensor,
        h: Tensor | None = None,
        reset: Tensor | None = None,
        restart: Tensor | None = None,
        dt: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Run one time step, for streams, and return (output (B, N), h (L, B, N)).

        W is cached between steps if no gradient is required, and in training inside
        torch.nn.utils.parametrize.cached(). Dropout is not applied. If x has no batch dimension, neither do the output,
        h, reset, restart and dt: (N,), (L, N), (), (L, N) and (). Other sizes are the same as in `forward`.

        Args:
            x: (B, I), tokens (B,), or (I,) unbatched.
            h: The state (L, B, N) after the previous step. Default: None, the trained state or zeros.
            reset: bool (B,), True if a new episode starts with this step. Default: None, no reset.
            restart: The state (L, B, N) from which episodes start instead of h. Default: None, the trained state or
                zeros.
            dt: Time since the previous step, (B,), as in `forward`. Default: None, 1.

        Raises:
            ArgumentError: If the network is bidirectional or has a stride, or dt is invalid, as in `forward`.
            ShapeError, DTypeError, DeviceError: If an input or a state does not match the network.
            IndexError: If a token is outside [0, I).
        """
        self._check_steps()
        before_step(self)
        if dt is not None:
            check_takes_dt(self)
        given = SequenceInput.of_step(x, self._sizes(), reset, dt=dt)
        states = self._step_states(given, self._start_names[1], h, restart)
        return given.out(*self._advance(given, states), True)  # type: ignore[return-value]

    def _without_dt(self) -> str | None:
        """Return the property that prevents the network from moving its state by a time, or None."""
        return type(self).__name__

    def _check_steps(self) -> None:
        """Raise unless the network can run step by step."""
        if self.bidirectional:
            raise ArgumentError(
                "Expected a unidirectional network in step(), but got bidirectional=True. Call it with whole sequences."
            )

    def _starts(self, given: SequenceInput, name: str, start: Any, restart: Any) -> tuple[Any, Any]:
        """Return the checked states (B, N) of each layer and direction from which `_forward` begins and restarts; the
        latter are None without resets.

        Args:
            given: The input.
            name: The user's name for the initial state.
            start, restart: The user's arguments, or None.
        """
        learned = self._parameter("h0")
        return given.initial_states(start, learned, name), given.restarts(restart, learned)

    def _step_states(self, given: SequenceInput, name: str, h: Any, restart: Any) -> tuple[Tensor, ...]:
        """Return the checked state (B, N) of each layer before one step; the arguments are the same as for
        `_starts`.
        """
        return given.begun(*self._starts(given, name, h, restart))

    def _forward(self, given: SequenceInput, states: Any, restarts: Any, only_last: bool) -> tuple[Tensor, Tensor]:
        """Return (outputs, or with ``only_last`` the last ones, and h_n) in the layout of the rows of ``given``."""
        raise NotImplementedError

    def _advance(self, given: SequenceInput, states: tuple[Tensor, ...]) -> tuple[Tensor, Tensor]:
        """Return (output (B, N), h (L, B, N)) of one step, whose rows are (B, I), from the states of `_step_states`."""
        return self._forward(given.as_sequence(), states, (None,) * len(states), True)

    def _sizes(self) -> NetworkSizes:
        """Return the requirements on an input and a state."""
        raise NotImplementedError

    def changed_options(
        self, constructor: type, always: tuple[str, ...] = (), other: Mapping[str, object] | None = None
    ) -> dict[str, object]:
        """Return the constructor's options that differ from their defaults, and all options in ``always``, in its
        order.

        Args:
            constructor: The class whose options are compared.
            always: Names of options to return in any case. Default: none.
            other: Values of options that are not attributes of the same name. Default: None, there are none.
        """
        found, other = {}, {} if other is None else {**other}
        phi = getattr(self, "activation", None)
        if phi is not None and phi != ACTIVATIONS.get(phi.name):  # with a slope of its own
            other["nonlinearity"] = phi
        for name, parameter in inspect.signature(constructor).parameters.items():
            if parameter.default is not inspect.Parameter.empty:
                value = other[name] if name in other else getattr(self, name, parameter.default)
                if name in always or value != parameter.default:
                    found[name] = value
        return found

    def flatten_parameters(self) -> None:
        """Do nothing; torch.nn.RNN has this method."""

    def __prepare_scriptable__(self: Self) -> Self:
        """Raise an error for torch.jit.script, which calls this first and cannot compile a transition."""
        raise TransformError(
            "Expected torch.jit.trace, torch.export or `orthornn export`, but got torch.jit.script, whose language has no "
            "parametrizations. Trace this module, with torch.jit.trace(network, (input,)), and script what contains it."
        )

    _repr_html_ = network_html


def check_takes_dt(network: nn.Module) -> None:
    """Raise ArgumentError unless a network is exact between steps and can therefore take the times between them."""
    found = network._without_dt() if isinstance(network, RecurrentNetwork) else type(network).__name__
    if found is not None:
        raise ArgumentError(
            f"Expected dt only for a linear recurrence of rotations, which is exact between steps, but got {found}. Use "
            f"OrthogonalBlocks, or OrthogonalRNN(nonlinearity='identity', parametrization=Rotations()), or leave dt out."
        )


class CheckpointedNetwork(RecurrentNetwork):
    """A network that can avoid storing all states for its backward pass."""

    memory: Mode
    segment: int | None

    def set_memory(self, memory: Mode, segment: int | None = None) -> None:
        """Choose what to save for the backward pass, as in the constructor.

        Args:
            memory: ``"store"`` or ``"checkpoint"``.
            segment: Steps between two stored states, with ``memory="checkpoint"``. Default: None, the number that
                minimizes peak memory.

        Raises:
            ArgumentError: For another mode, a segment below 1, a segment with ``memory="store"``, or ``"checkpoint"``
                with ``form="operator"``.
        """
        check_memory(memory, segment)
        self._use_memory(memory, segment)
        vars(self).update(memory=memory, segment=segment)

    def _use_memory(self, memory: Mode, segment: int | None) -> None:
        """Raise if this network does not support the setting, and apply it to its parts."""


def listed(options: Mapping[str, object]) -> str:
    """Return options formatted as in a call."""
    return ", ".join(f"{name}={value!r}" for name, value in options.items())
