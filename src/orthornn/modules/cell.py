"""OrthogonalRNNCell: torch.nn.RNNCell with a parametrized hidden-to-hidden matrix."""

from __future__ import annotations

import inspect
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor, nn

from .._checks import check_shape
from ..activations import Activation, Name
from ..errors import ReadOnlyError
from ..kernels.validation import check_restart_is_used
from ..parametrizations.parametrization import Parametrization
from .current import before_step
from .overview import network_html
from .rnn import OrthogonalRNN
from .sequence_input import SequenceInput, check_fits, one_initial_state

Value = TypeVar("Value")


class _Read(Generic[Value]):
    """An attribute of the cell's network, read on the cell."""

    def __init__(self, name: str, doc: str) -> None:
        self._name, self.__doc__ = name, doc

    def __get__(self, cell: OrthogonalRNNCell | None, kind: type) -> Value:
        return self if cell is None else getattr(cell.rnn, self._name)  # type: ignore[return-value]


class OrthogonalRNNCell(nn.Module):
    r"""One time step of a recurrent network with a parametrized hidden-to-hidden matrix.

    .. math:: h' = \phi(g W h + V x + b)

    The cell wraps an :class:`OrthogonalRNN` of one layer, ``rnn``, which holds the parameters. Without gradients W is
    cached between calls, so a stream costs one matrix-vector product per step. In training, put the loop over steps
    inside ``torch.nn.utils.parametrize.cached()`` to build W once instead of in each step.

    Args:
        input_size: Number of input features, I.
        hidden_size: Number of hidden units, N.
        parametrization: Parametrization of W. Default: None, the default of :class:`OrthogonalRNN`.
        nonlinearity: Name in :data:`orthornn.activations.ACTIVATIONS`, or an :class:`Activation`. Default: None, the
            default of :class:`OrthogonalRNN`.
        bias: Whether to use a bias vector. For modrelu and complex_modrelu it is the b of the activation; for other
            activations it is added to the pre-activation. Default: True.
        learn_h0: Train the initial state. Otherwise it is zero unless given. Default: False.
        gain: Factor g of W. With g < 1 the network forgets, which an orthogonal W never does. Default: 1.
        learn_gain: Train the gain. Default: False.
        device, dtype: Same as for torch.nn.RNNCell.

    Shape:
        - input: (B, I), tokens (B,), or (I,). hx, h': (B, N), or (N,).

    Example::

        >>> cell, h = OrthogonalRNNCell(3, 8), None
        >>> with torch.nn.utils.parametrize.cached():
        ...     for x in torch.randn(20, 5, 3):
        ...         h = cell(x, h)
        >>> h.shape
        torch.Size([5, 8])
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        *,
        parametrization: Parametrization | None = None,
        nonlinearity: Name | Activation | None = None,
        bias: bool = True,
        learn_h0: bool = False,
        gain: float = 1.0,
        learn_gain: bool = False,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.rnn = OrthogonalRNN(
            input_size,
            hidden_size,
            parametrization=parametrization,
            nonlinearity=nonlinearity,
            bias=bias,
            learn_h0=learn_h0,
            gain=gain,
            learn_gain=learn_gain,
            device=device,
            dtype=dtype,
        )

    def __setattr__(self, name: str, value: Any) -> None:
        if name in _OPTIONS or name in _WEIGHTS:
            own, found = (f"{name}_l0", type(value).__name__) if name in _WEIGHTS else (name, repr(value))
            raise ReadOnlyError(
                f"Expected {name} to be set on the cell's network, but got {found}. Set cell.rnn.{own}."
            )
        super().__setattr__(name, value)

    input_size = _Read[int]("input_size", "Number of input features, I.")
    hidden_size = _Read[int]("hidden_size", "Number of hidden units, N.")
    parametrization = _Read[Parametrization]("parametrization", "Parametrization of W.")
    nonlinearity = _Read[str]("nonlinearity", "Name of the activation.")
    bias = _Read[bool]("bias", "Whether the cell has a bias vector.")
    learn_h0 = _Read[bool]("learn_h0", "Whether the initial state is trained.")
    gain = _Read[float]("gain", "Gain g; with ``learn_gain`` its initial value.")
    learn_gain = _Read[bool]("learn_gain", "Whether the gain is trained.")
    weight_ih = _Read[Tensor]("weight_ih_l0", "V (N, I), or (N, I, 2) in a complex network: ``rnn.weight_ih_l0``.")
    weight_hh = _Read[Tensor]("weight_hh_l0", "W (N, N), recomputed on each read: ``rnn.weight_hh_l0``.")
    bias_ih = _Read[Tensor | None](
        "bias_ih_l0", "The only bias vector, or None. torch.nn.RNNCell has a second one, bias_hh."
    )

    def forward(
        self,
        input: Tensor,
        hx: Tensor | None = None,
        h: Tensor | None = None,
        reset: Tensor | None = None,
        restart: Tensor | None = None,
    ) -> Tensor:
        """Return h' (B, N), or (N,) unbatched.

        Args:
            input: (B, I), tokens (B,), or (I,) unbatched.
            hx: The state (B, N), or (N,), after the previous step. Default: None, the trained state or zeros.
            h: Alias of hx.
            reset: bool (B,), or () unbatched: True if a new episode starts with this step. Default: None, no reset.
            restart: The state (B, N), or (N,), from which episodes start instead of hx. Default: None, the trained
                state or zeros.

        Raises:
            ShapeError, DTypeError, DeviceError: If an input or a state does not match the network.
            IndexError: If a token is outside [0, I).
        """
        rnn = self.rnn
        name, h = one_initial_state(hx=hx, h=h)
        if reset is None:
            check_restart_is_used(restart)
        given = SequenceInput.of_step(input, rnn._sizes(), reset, "input", "OrthogonalRNN")
        lead = tuple(input.shape[:1]) if given.is_batched else ()
        for own, state in ((name, h), ("restart", restart)):
            if state is not None:
                check_fits(own, state, rnn._sizes())
                check_shape(own, state, (*lead, rnn.hidden_size))
        h, restart = (None if state is None else state.unsqueeze(0) for state in (h, restart))
        before_step(rnn)
        state = rnn._advance(given, rnn._step_states(given, name, h, restart))[0]
        return state if given.is_batched else state.squeeze(0)

    def reset_parameters(self) -> None:
        """Redraw all parameters."""
        self.rnn.reset_parameters()

    _repr_html_ = network_html


_WEIGHTS = frozenset({"weight_ih", "weight_hh", "bias_ih"})
_OPTIONS = frozenset(inspect.signature(OrthogonalRNNCell).parameters) - {"device", "dtype"}
