"""The common part of the recurrent networks: their parameters by name, and what torch asks of any network of this kind."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, ClassVar, TypeVar

import torch
from torch import Tensor, nn

from .._checks import check_flag, check_number
from ..activations import ACTIVATIONS
from ..errors import ReadOnlyError, TransformError
from ..layout import SequenceLayout
from .current import current
from .overview import network_html
from .sequence_input import NetworkSizes, check_batch, initial_states

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
    """A network that reads sequences, of one or more layers and one or two directions.

    What every call reads may be set at any time and is checked then; what the parameters were made from is read-only.
    """

    _settable: ClassVar[Checks] = {
        "batch_first": check_flag,
        "dropout": partial(check_number, low=0.0, high=1.0),
    }
    _fixed: ClassVar[frozenset[str]] = frozenset(
        {"input_size", "hidden_size", "num_layers", "num_directions", "bidirectional", "bias", "learn_h0"}
        | {"parametrization", "nonlinearity", "activation", "is_complex", "suffixes", "memory", "segment"}
    )
    input_size: int
    hidden_size: int
    num_layers: int = 1
    bidirectional: bool = False

    def __setattr__(self, name: str, value: Any) -> None:
        check = self._settable.get(name)
        value = value if check is None else check(name, value)
        if self._is_fixed(name, value):
            advice = _ADVICE.get(name, f"Build another {type(self).__name__}.")
            raise ReadOnlyError(f"Expected {name} to stay as the network was built, but got {value!r}. {advice}")
        super().__setattr__(name, value)

    def _is_fixed(self, name: str, value: object) -> bool:
        """Return whether an attribute has a value already that must stay."""
        return name in self._fixed and (name in self.__dict__ or isinstance(getattr(type(self), name, None), property))

    @property
    def num_directions(self) -> int:
        """2 if bidirectional, else 1."""
        return 2 if self.bidirectional else 1

    def layer_inputs(self) -> Iterator[tuple[str, int]]:
        """Yield the suffix of each layer's and direction's parameters, as torch.nn.RNN has it, and its input's features."""
        for k in range(self.num_layers):
            for end in ("", "_reverse")[: self.num_directions]:
                yield f"l{k}{end}", self.hidden_size * self.num_directions if k else self.input_size

    def add_parameters(
        self, shapes: Mapping[str, Shape | None], device: torch.device | str | None, dtype: torch.dtype | None
    ) -> None:
        """Register a parameter without values for each shape, and None for a name that has none.

        Args:
            shapes: By name.
            device, dtype: Of the parameters; None for torch's defaults.
        """
        dtype = dtype or torch.get_default_dtype()
        for name, shape in shapes.items():
            empty = None if shape is None else nn.Parameter(torch.empty(shape, device=device, dtype=dtype))
            self.register_parameter(name, empty)

    def _parameter(self, name: str) -> Any:
        """Return a parameter, or None. As an attribute it would cost ten times as much; see current.py."""
        own = self._parameters
        return own[name] if name in own else current(self, name, called=True)

    def _wide(self, name: str) -> Any:
        """Return a parameter in at least float32, or None."""
        own = self._parameter(name)
        return own.float() if own is not None and own.dtype in (torch.bfloat16, torch.float16) else own

    def initial_states(self, batch: int, h0: Tensor | None = None) -> Tensor:
        """Return the initial states of all layers, or blocks, and directions in one tensor: what ``hx`` and ``restart`` of
        ``forward`` take, and the h of ``step``. It is the caller's own.

        Args:
            batch: B.
            h0: As hx of ``forward``, which is then only checked. Default: None, the trained state or zeros.

        Shape:
            - Output: (L * D, B, N), with other sizes instead of N where a state has them: the shape of hx.

        Raises:
            ShapeError, DTypeError, DeviceError: If h0 does not fit.

        Example::

            >>> from orthornn import ReflectionRNN
            >>> ReflectionRNN(3, 8, num_layers=2).initial_states(5).shape
            torch.Size([2, 5, 8])
        """
        check_batch(batch)
        return torch.stack(self._initial_states(batch, h0))

    def _initial_states(self, batch: int, h0: Tensor | None) -> tuple[Tensor, ...]:
        """Return the initial state (B, N) of every layer, or block, and direction."""
        return initial_states(SequenceLayout(1, batch), h0, self._parameter("h0"), self._sizes())

    def _sizes(self) -> NetworkSizes:
        """Return what an input and a state must fit."""
        raise NotImplementedError

    def changed_options(
        self, constructor: type, always: tuple[str, ...] = (), other: Mapping[str, object] | None = None
    ) -> dict[str, object]:
        """Return the constructor's options that differ from their defaults, and those of ``always``, in its order.

        Args:
            constructor: The class whose options are compared.
            always: Names that are returned in any case. Default: none.
            other: Values of options that are no attributes of their names. Default: None, there are none.
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
        """Refuse torch.jit.script, which calls this first and cannot compile what a transition is made of."""
        raise TransformError(
            "Expected torch.jit.trace, torch.export or `orthornn export`, but got torch.jit.script, whose language has no "
            "parametrizations. Trace this module, with torch.jit.trace(network, (input,)), and script what contains it."
        )

    _repr_html_ = network_html


def listed(options: Mapping[str, object]) -> str:
    """Return options as they are written in a call."""
    return ", ".join(f"{name}={value!r}" for name, value in options.items())
