"""OrthogonalRNN: torch.nn.RNN with a parametrized hidden-to-hidden matrix."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial
from typing import Any, ClassVar, Literal, overload

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from .._checks import check_choice, check_factory, check_flag, check_integer, check_module, check_number, check_positive
from ..activations import Activation, Name
from ..activations import get as activation
from ..errors import ArgumentError, ShapeError
from ..kernels.checkpointing import Mode, segment_length
from ..kernels.interception import is_observed
from ..kernels.projection import cast
from ..layout import SequenceLayout
from ..parametrizations import Householder, LeakyHouseholder
from ..parametrizations.parametrization import Parametrization, check_description
from .fold import as_torch_rnn, fold
from .forms import FORMS, Form, check_rotations
from .layer import Layer, Settings, activation_in
from .network import CheckpointedNetwork, Checks, RecurrentNetwork, Shape, listed
from .online import OnlineLearner, online
from .sequence_input import (
    NetworkSizes,
    SequenceInput,
    Starts,
    one_initial_state,
)
from .stack import Stack, through_segments, warn_of_dropout
from .state_of_0_1_0 import (
    FIRST_NONLINEARITY,
    STATE_VERSION,
    first_parametrization,
    has_first_transition,
    is_whole,
    lacks_nonlinearity,
    may_be_first,
)
from .torch_state_dict import read_torch_state
from .tracing import LayerTrace, is_watched
from .transition import Transition

DEFAULT_REFLECTIONS = 32
DEFAULT_NONLINEARITY: Name = "scaled_tanh"


def default_parametrization(hidden_size: int, is_linear: bool) -> Parametrization:
    """Return the default parametrization of W: orthogonal for a linear recurrence, which can then run as rotations."""
    reflections = min(DEFAULT_REFLECTIONS, hidden_size)
    return Householder(reflections, base="rotations") if is_linear else LeakyHouseholder(reflections)


class OrthogonalRNN(CheckpointedNetwork):
    r"""A recurrent network with a parametrized hidden-to-hidden matrix.

    .. math:: h_t = \phi(g W h_{t-1} + V x_t + b)

    By default half of the units remember: at initialization, W rotates their state without changing its norm, and phi is
    nearly the identity for them. The other units forget at trained rates. The norm of W is at most 1. With other
    parametrizations W is orthogonal or unitary.

    It takes and returns the same as torch.nn.RNN, including unbatched inputs and PackedSequence. With
    ``Unconstrained()`` and tanh or relu it is torch.nn.RNN and loads its state_dict.

    With a complex parametrization (``field="complex"``) states and outputs are complex, and inputs may be real or
    complex; modrelu is then eq. 4 of Mhammedi et al. (2017). Parameters are stored as real numbers, with a last
    dimension of 2.

    Reading ``weight_hh_l{k}`` builds W (N, N) and returns a copy. If this copy is changed in place, as by torch.nn.init
    or copy_, the next use of the network raises ReadOnlyError. Assigning a matrix sets the free tensors to represent
    it, or raises NotOnGroupError.

    Args:
        input_size: Number of input features, I.
        hidden_size: Number of hidden units, N.
        num_layers: Number of layers, L. Each layer above the first reads the states of the layer below. Default: 1.
        parametrization: Parametrization of W, applied to each layer and direction separately. Default: None,
            ``LeakyHouseholder(reflections=min(32, N))``, which costs O(N) per step and whose initial eigenvalues have
            angles spread over the circle; for a linear recurrence
            ``Householder(reflections=min(32, N), base="rotations")``, which is orthogonal. ``Householder()`` reaches
            every orthogonal matrix.
        nonlinearity: Name in :data:`orthornn.activations.ACTIVATIONS`, or an :class:`Activation`. Default: None,
            ``"scaled_tanh"``, which is continuous and has a trained scale per unit, initially 1 for units that forget
            and close to the identity for the others.
        bias: Whether each layer has a bias vector. For modrelu and complex_modrelu it is the b of the activation; for
            other activations it is added to the pre-activation. Default: True.
        batch_first: Inputs and outputs are (B, T, ...) instead of (T, B, ...). Default: False.
        dropout: Probability of zeroing an output of every layer except the last, in training. Default: 0.
        bidirectional: Read each layer backwards with a second network as well; outputs have size 2N. Default: False.
        learn_h0: Train the initial state. Otherwise it is zero unless given. Default: False.
        gain: Factor g of W. With g < 1 the network forgets, which an orthogonal W never does. Default: 1.
        learn_gain: Train the gain. Default: False.
        clip_backward: Bound c for clipping each entry of dL/da_t to [-c, c] inside back-propagation (Vorontsov et al.,
            2017, released code). Default: None.
        linear_transition: Leave the transition outside the nonlinearity, h_t = g W h_{t-1} + phi(V x_t + b) (Henaff et
            al., 2016). Default: False.
        form: How to apply W: ``"dense"``; ``"compact_wy"``, by reflections; ``"operator"``, by its structure (FFT,
            Givens rotations, signs); or ``"rotations"``, for a linear recurrence with an orthogonal W, which then costs O(N)
            per step (docs/derivations/rotations.md). If a parametrization has no reflections or no structure, the form
            is ``"dense"``. Default: ``"auto"``, the cheapest form.
        memory: ``"store"``; or ``"checkpoint"`` to store few states of each layer and recompute the others in the
            backward pass, for long sequences (docs/how_to/long_sequences.md). Default: ``"store"``.
        segment: Steps between two stored states, with ``memory="checkpoint"``. Default: None, the number that minimizes
            peak memory.
        device, dtype: Same as for torch.nn.RNN.

    Shape:
        - input: (T, B, I), tokens (T, B), (T, I) or a PackedSequence. hx: (L * D, B, N), D = 2 if bidirectional,
          otherwise 1. Output: (T, B, D * N).
        - weight_ih_l{k} (N, I); bias_ih_l{k} (N,); transition_l{k}.*, the free tensors of W; activation_l{k} if the
          activation has a parameter; gain_l{k} () with ``learn_gain``; h0 (L * D, N) with ``learn_h0``. A second
          direction has the suffix _reverse.

    Example::

        >>> rnn = OrthogonalRNN(3, 8, num_layers=2)
        >>> states, h_n = rnn(torch.randn(20, 5, 3))
        >>> states.shape, h_n.shape
        (torch.Size([20, 5, 8]), torch.Size([2, 5, 8]))
    """

    _settable: ClassVar[Checks] = {
        **RecurrentNetwork._settable,
        "clip_backward": check_positive,
        "form": partial(check_choice, allowed=FORMS),
        "gain": check_number,
        "linear_transition": check_flag,
    }
    _fixed = RecurrentNetwork._fixed | {"learn_gain", "mode", "all_weights"}
    _version = STATE_VERSION
    _traces: list[LayerTrace] | None = None  # see tracing.py

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        *,
        parametrization: Parametrization | None = None,
        nonlinearity: Name | Activation | None = None,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        learn_h0: bool = False,
        gain: float = 1.0,
        learn_gain: bool = False,
        clip_backward: float | None = None,
        linear_transition: bool = False,
        form: Form = "auto",
        memory: Mode = "store",
        segment: int | None = None,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.input_size = check_integer("input_size", input_size, 1)
        self.hidden_size = check_integer("hidden_size", hidden_size, 1)
        self.num_layers = check_integer("num_layers", num_layers, 1)
        self.dropout, self.gain, self.batch_first = dropout, gain, batch_first
        self.clip_backward, self.linear_transition = clip_backward, linear_transition
        warn_of_dropout(self.dropout, num_layers)
        choices = {"parametrization": parametrization, "nonlinearity": nonlinearity}
        self._by_default = frozenset(name for name, given in choices.items() if given is None)
        phi = activation(DEFAULT_NONLINEARITY if nonlinearity is None else nonlinearity)
        if parametrization is None:
            parametrization = default_parametrization(hidden_size, linear_transition or phi.name == "identity")
        check_description("parametrization", parametrization, "Householder(reflections=16)")
        self.parametrization, self.form = parametrization, form
        self.bias = check_flag("bias", bias)
        self.bidirectional = check_flag("bidirectional", bidirectional)
        self.learn_h0, self.learn_gain = check_flag("learn_h0", learn_h0), check_flag("learn_gain", learn_gain)
        if learn_gain:
            self._fixed |= {"gain"}  # of which the parameters are made
        self.set_memory(memory, segment)

        check_factory(device, dtype)
        self.suffixes = [suffix for suffix, _ in self.layer_inputs()]
        for suffix in self.suffixes:
            transition = Transition(parametrization, hidden_size, device=device, dtype=dtype)
            self.add_module(f"transition_{suffix}", transition)
        self.is_complex = transition.method.field == "complex"
        self.activation = activation_in(phi, self.is_complex)
        self.nonlinearity = self.activation.name
        if form == "rotations":
            check_rotations("identity" if linear_transition else self.nonlinearity, self.clip_backward)
        self.add_parameters(self._shapes(), device, dtype)
        self._reset_all_but_transitions()

    def _shapes(self) -> dict[str, Shape | None]:
        """Return the shapes of all parameters except the transitions', with None for those that the options leave
        out.
        """
        n, pair = self.hidden_size, (2,) if self.is_complex else ()
        phi_size = self.activation.parameter_size(2 * n if self.is_complex else n)
        biased = self.activation.parameter_is_bias
        shapes: dict[str, Shape | None] = {}
        for suffix, width in self.layer_inputs():
            shapes[f"weight_ih_{suffix}"] = (n, width, *pair)
            shapes[f"bias_ih_{suffix}"] = None if not self.bias else (phi_size,) if biased else (n, *pair)
            shapes[f"activation_{suffix}"] = (phi_size,) if phi_size and not biased else None
            shapes[f"gain_{suffix}"] = () if self.learn_gain else None
        shapes["h0"] = (len(self.suffixes), n, *pair) if self.learn_h0 else None
        return shapes

    def _use_memory(self, memory: Mode, segment: int | None) -> None:
        _check_stored(self.form, memory)

    def reset_parameters(self) -> None:
        """Redraw all parameters. A seed gives the values that it gives in the constructor.

        weight_ih is drawn from U(-1/sqrt(N), 1/sqrt(N)) as in torch.nn.RNN, and with linear_transition so are the
        biases. Biases inside the recurrence are 0, since others saturate phi if nothing is forgotten. modReLU's b is
        drawn from U(-.01, .01) (Helfrich et al., 2018, released code), and h0 from U(-sqrt(3/2N), sqrt(3/2N)), with
        squared norm 1/2, or 1 if complex (Arjovsky et al., 2016). An activation's parameter and the gain take their
        initial values. For units that remember, according to the parametrization, the activation's parameter makes phi
        nearly the identity; with the default nonlinearity and a parametrization that does not tell, this holds for all
        units.
        """
        for _, transition in self.transitions():  # first, as in the constructor: a seed gives the same values in both
            transition.reset_parameters()
        self._reset_all_but_transitions()

    def _reset_all_but_transitions(self) -> None:
        bound = 1 / math.sqrt(self.hidden_size)
        for name, parameter in self._parameters.items():
            if parameter is None:
                continue
            if name == "h0":
                nn.init.uniform_(parameter, -math.sqrt(1.5) * bound, math.sqrt(1.5) * bound)
            elif name.startswith("gain"):
                nn.init.constant_(parameter, self.gain)
            elif name.startswith("activation"):
                self._reset_activation(name.removeprefix("activation_"), parameter)
            elif name.startswith("bias") and self.activation.parameter_is_bias:
                nn.init.uniform_(parameter, -0.01, 0.01)
            else:
                nn.init.uniform_(parameter, -bound, bound)
                if name.startswith("bias") and not self.linear_transition:
                    nn.init.zeros_(
                        parameter
                    )  # after the draw, without which a seed would not give the weights that it gave

    @torch.no_grad()
    def _reset_activation(self, suffix: str, parameter: Tensor) -> None:
        nn.init.constant_(parameter, self.activation.initial)
        if self.activation.linear is None:
            return
        transition: Transition = getattr(self, f"transition_{suffix}")
        memory = transition.method.memory
        if memory is not None:
            parameter.masked_fill_(memory.to(parameter.device), self.activation.linear)
        elif "nonlinearity" in self._by_default:
            nn.init.constant_(parameter, self.activation.linear)

    @property
    def mode(self) -> str:
        """The nonlinearity in torch.nn.RNN's notation: "RNN_TANH", and so on."""
        return f"RNN_{self.nonlinearity.upper()}"

    @property
    def all_weights(self) -> list[list[Tensor]]:
        """The weights of each layer and direction, in the order of torch.nn.RNN: weight_ih, weight_hh (computed), and
        bias_ih; then the activation's parameter and the gain, if they exist.
        """
        kinds = ("weight_ih", "weight_hh", "bias_ih", "activation", "gain")
        found = [[getattr(self, f"{kind}_{suffix}") for kind in kinds] for suffix in self.suffixes]
        return [[weight for weight in weights if weight is not None] for weights in found]

    def transitions(self) -> Iterator[tuple[str, Transition]]:
        """Yield (name, Transition) of every layer and direction."""
        for suffix in self.suffixes:
            yield f"transition_{suffix}", self.get_submodule(f"transition_{suffix}")  # type: ignore[misc]

    def layers(self) -> list[Layer]:
        """Return every layer and direction, first layer first, forward before reverse."""
        return [self._layer(suffix) for suffix in self.suffixes]

    def _layer(self, suffix: str) -> Layer:
        gain = self._parameter(f"gain_{suffix}")
        return Layer(
            self._modules[f"transition_{suffix}"],  # type: ignore[arg-type]
            self._parameter(f"weight_ih_{suffix}"),
            self._parameter(f"bias_ih_{suffix}"),
            self.activation,
            self._parameter(f"activation_{suffix}"),
            self.gain if gain is None else gain,
            self.linear_transition,
            self.is_complex,
            self.hidden_size * (2 if self.is_complex else 1),
        )

    def _forward(
        self, given: SequenceInput, states: tuple[Tensor, ...], restarts: Starts, only_last: bool
    ) -> tuple[Tensor, Tensor]:
        x, layout = given.x, given.layout
        if only_last and self._in_lockstep(x, layout.dt is not None):
            h_n = self._last_states(x, torch.stack(states), layout, restarts)
            return h_n[-1].clone(), h_n
        if self._traces is not None and layout.dt is not None:
            raise ArgumentError("Expected no dt while gradients through time are traced, but got dt. Leave dt out.")
        settings, dropout = self._settings(), self.dropout if self.training else 0.0
        stack = Stack(x, layout, self.num_layers, self.num_directions, dropout, only_last)
        for index, suffix in enumerate(self.suffixes):
            (rows, order, ends), layer = stack.enter(index), self._layer(suffix)
            if self._traces is None:
                every, last = layer.run(rows, states[index], order, ends, settings, restarts[index])
            else:
                (every, last), trace = layer.trace(rows, states[index], order, ends, settings, restarts[index])
                self._traces.append(trace)
            stack.leave(every, last)
        return stack.x, stack.final_states()

    def _sizes(self) -> NetworkSizes:
        """Return the requirements on an input."""
        weight = self._parameter(f"weight_ih_{self.suffixes[0]}")
        return NetworkSizes(
            self.input_size, self.hidden_size, len(self.suffixes), self.is_complex, self.batch_first, weight
        )

    def _settings(self) -> Settings:
        return Settings(self.clip_backward, self.form, self.memory, self.segment)

    def _in_lockstep(self, x: Tensor, has_dt: bool) -> bool:
        """Return whether all layers process the sequence together, one segment at a time: if the input of each step
        would be stored otherwise.
        """
        together = self.num_layers > 1 or self.linear_transition or has_dt
        if self.memory == "store" or not together or self.bidirectional or (self.dropout and self.training):
            return False
        return self._traces is None and not is_observed(x) and x.numel() > 0

    def _last_states(self, x: Tensor, h: Tensor, layout: SequenceLayout, restarts: Starts) -> Tensor:
        """Return the last states of all layers, (L, B, N), storing only the states before every segment.

        Transitions are built once, before the first segment, so the gradients of all segments reach the same W.
        Sequences that have ended keep their last state.
        """
        layers = self.layers() if layout.dt is not None else [layer.built() for layer in self.layers()]
        settings = self._settings()._replace(memory="store", segment=None)
        segment = self.segment or segment_length(layout.length, layers[0].size, 0)

        def through(rows: Tensor, h: Tensor, part: SequenceLayout) -> tuple[None, Tensor]:
            finals = []
            for k, (layer, first, restart) in enumerate(zip(layers, h, restarts)):
                again = None if restart is None else restart[: part.batch]
                every, last = layer.run(rows, first, part, k == len(layers) - 1, settings, again, carried=True)
                rows = rows if every is None else every
                finals.append(last)
            return None, torch.stack(finals)  # type: ignore[arg-type]

        for _, after in through_segments(through, x, h, layout, segment, (*self.parameters(), *restarts)):
            h = after
        return cast(h, layers[0].state_dtype())

    def forward_readout(
        self,
        input: Tensor | PackedSequence,
        readout: nn.Linear,
        hx: Tensor | None = None,
        reset: Tensor | PackedSequence | None = None,
        restart: Tensor | None = None,
        h0: Tensor | None = None,
        dt: Tensor | PackedSequence | None = None,
    ) -> Tensor:
        """Return readout(states of the last layer) for every step, or rows (R, K) for a PackedSequence.

        A single linear layer that runs as rotations never computes its states: the readout is absorbed into their
        basis, which saves N^2 multiply-adds per step and sequence, and twice as many in training. The readout reads the
        real and the imaginary part of a complex state as two neighboring inputs.

        Args:
            input: Same as in `forward`.
            readout: Layer that reads the states, with D * N input features, or 2 D * N in a complex network.
            hx: Same as in `forward`. Default: None, the trained state or zeros.
            reset: Same as in `forward`. Default: None, no resets.
            restart: Same as in `forward`. Default: None, the trained state or zeros.
            h0: Alias of hx.
            dt: Same as in `forward`. Default: None, 1 everywhere.

        Raises:
            ShapeError: If the readout has another number of input features, or an input or a state does not match.
            DTypeError, DeviceError, IndexError: Same as in `forward`.
        """
        check_module("readout", readout)
        width = self.hidden_size * self.num_directions * (2 if self.is_complex else 1)
        if isinstance(readout, nn.Linear) and readout.in_features != width:
            raise ShapeError(f"Expected readout to take the states' {width} features, but got {readout}.")
        start = one_initial_state(hx=hx, h0=h0)
        absorbed = None if dt is not None else self._absorbed_readout(input, readout, start, reset, restart)
        if absorbed is not None:
            return absorbed
        states = self(input, hx, h0=h0, reset=reset, restart=restart, dt=dt)[0]
        states = states.data if isinstance(states, PackedSequence) else states
        if states.is_complex():
            states = torch.view_as_real(states).flatten(-2)
        return readout(states)

    def _absorbed_readout(
        self,
        input: Tensor | PackedSequence,
        readout: nn.Linear,
        start: tuple[str, Tensor | None],
        reset: Tensor | PackedSequence | None,
        restart: Tensor | None,
    ) -> Tensor | None:
        """Return the result of `forward_readout` if a linear layer runs as rotations, otherwise None. start: The user's
        name for the initial state, and the state.
        """
        if (self.nonlinearity != "identity" and not self.linear_transition) or len(self.suffixes) > 1:
            return None
        if type(readout) is not nn.Linear or is_watched(readout, nn.Linear) or is_watched(self, OrthogonalRNN):
            return None
        given = SequenceInput.of(input, self._sizes(), reset)
        if not given.is_batched:
            return None
        (h,), (again,) = self._starts(given, *start, restart)
        layer, weights = self._layer(self.suffixes[0]), (readout.weight, readout.bias)
        found = layer.forward_readout(given.x, h, given.layout, weights, self._settings(), again)
        return found if found is None or given.packed is not None or not self.batch_first else found.transpose(0, 1)

    def _advance(self, given: SequenceInput, states: tuple[Tensor, ...]) -> tuple[Tensor, Tensor]:
        x, finals = given.x, []
        for layer, state in zip(self.layers(), states):
            x = layer.step(x, state, self.clip_backward, given.layout.dt)
            finals.append(x)
        return x, torch.stack(finals)

    def _without_dt(self) -> str | None:
        found = {
            "gain": self.gain,
            "learn_gain": self.learn_gain,
            "clip_backward": self.clip_backward,
            "form": self.form,
        }
        allowed = {"gain": (1.0,), "learn_gain": (False,), "clip_backward": (None,), "form": ("auto", "rotations")}
        if not self.linear_transition and self.nonlinearity != "identity":
            return f"nonlinearity={self.nonlinearity!r}"
        for name, values in allowed.items():
            if found[name] not in values:
                return f"{name}={found[name]!r}"
        if all(transition.method.flows for _, transition in self.transitions()):
            return None
        return f"parametrization={self.parametrization!r}"

    def online(
        self,
        readout: nn.Linear,
        lr: float | None = None,
        *,
        recurrent_lr: float | None = None,
        every: int = 1,
        optimizer: Literal["adam", "sgd"] = "adam",
        learn_angles: bool = True,
        h0: Tensor | None = None,
    ) -> OnlineLearner:
        """Return a real-time recurrent learner of this network and a readout, for one sequence on the CPU.

        This requires one real layer with nonlinearity="identity" and an orthogonal W, whose rotations make the traces
        O(N) per step. The learner trains parameters that require a gradient and leaves frozen ones unchanged.

        Args:
            readout: The layer that predicts from the state.
            lr: Learning rate. Default: None, which sums gradients without updating anything.
            recurrent_lr: Learning rate of the angles and, with learn_gain, of the gain. Default: None, lr.
            every: Steps between updates. Each update uses the mean of the gradients since the last one.
            optimizer: ``"adam"`` or ``"sgd"`` (plain gradient descent).
            learn_angles: Train the angles of W's rotations.
            h0: The initial state (N,). Default: None, the trained state or zeros.

        Raises:
            ArgumentError: If the network is of another kind, or its parametrization cannot represent W with turned
                rotations, such as a few reflections.
            NotOnGroupError: If W is not orthogonal.
            NonFiniteError: If h0, the network or the readout contains NaN or infinity.

        Example::

            >>> rnn = OrthogonalRNN(1, 32, parametrization=Householder(), nonlinearity="identity", gain=0.9)
            >>> readout = torch.nn.Linear(32, 1)
            >>> learner = rnn.online(readout, lr=1e-3)
            >>> learner(torch.ones(5, 1), torch.zeros(5, 1)).shape
            torch.Size([5, 1])
        """
        return online(self, readout, lr, recurrent_lr, every, optimizer, learn_angles, h0)

    @overload
    def fold(self, *, to_torch: Literal[False] = False) -> OrthogonalRNN: ...

    @overload
    def fold(self, *, to_torch: Literal[True]) -> nn.RNN: ...

    def fold(self, *, to_torch: bool = False) -> OrthogonalRNN | nn.RNN:
        """Return a copy whose transitions are plain matrices W, gain included, for inference and export.

        Args:
            to_torch: Return a torch.nn.RNN with the same outputs instead of an OrthogonalRNN. Default: False.

        Raises:
            ArgumentError: If to_torch=True and torch.nn.RNN has no counterpart of an option; the message lists all of
            them.

        Example::

            >>> rnn = OrthogonalRNN(3, 5, nonlinearity="tanh")
            >>> rnn.fold(to_torch=True)
            RNN(3, 5)
        """
        return as_torch_rnn(self) if check_flag("to_torch", to_torch) else fold(self)

    def _transition_of(self, name: str) -> Transition | None:
        if not name.startswith("weight_hh_l"):
            return None
        modules = self.__dict__.get("_modules", {})
        return modules.get(f"transition_{name.removeprefix('weight_hh_')}")

    def __getattr__(self, name: str) -> Any:
        own = self.__dict__.get("_parameters")
        if own is not None and name in own:  # the usual case, found in half of torch's time
            return own[name]
        transition = self._transition_of(name)
        return super().__getattr__(name) if transition is None else transition.read(name)

    def __setattr__(self, name: str, value: Any) -> None:
        transition = self._transition_of(name)
        if name == "form":
            _check_stored(value, getattr(self, "memory", "store"))
        if transition is None:
            super().__setattr__(name, value)
        else:
            transition.set_weight_(value)

    def _load_from_state_dict(
        self,
        state_dict: dict[str, Any],
        prefix: str,
        local_metadata: dict[str, Any],
        strict: bool,
        missing_keys: list[str],
        unexpected_keys: list[str],
        error_msgs: list[str],
    ) -> None:
        """Load a state_dict of this class, of its first version or of torch.nn.RNN; see state_of_0_1_0.py and
        torch_state_dict.py.
        """
        old = may_be_first(local_metadata) and self._is_whole(state_dict, prefix)
        if old and self._has_default_transitions() and has_first_transition(state_dict, prefix, self.hidden_size):
            self._replace_transitions(first_parametrization(self.hidden_size))
        if old and "nonlinearity" in self._by_default and lacks_nonlinearity(state_dict, prefix):
            self._replace_nonlinearity(FIRST_NONLINEARITY)
        if old:
            vars(self)["_version"] = 1  # what it saves can be read by a network with the defaults of today
        assign = bool(local_metadata.get("assign_to_params_buffers", False))
        read_torch_state(self, state_dict, prefix, assign, error_msgs)
        super()._load_from_state_dict(
            state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs
        )

    def _has_default_transitions(self) -> bool:
        """Return whether the parametrization was not chosen, neither in the constructor nor later, as by `convert`."""
        is_linear = self.linear_transition or self.nonlinearity == "identity"
        default = default_parametrization(self.hidden_size, is_linear)
        return "parametrization" in self._by_default and self.parametrization == default

    def _is_whole(self, state_dict: dict[str, Any], prefix: str) -> bool:
        """Return whether a state has weights of every layer and direction."""
        return is_whole(state_dict, prefix, self.suffixes, next(self.transitions())[1].method.names)

    def _replace_transitions(self, parametrization: Parametrization) -> None:
        """Replace the transitions by new ones under another parametrization of the same field, with initial values."""
        for name, transition in list(self.transitions()):
            setattr(self, name, transition.under(parametrization))
        vars(self).update(parametrization=parametrization, _by_default=self._by_default - {"parametrization"})

    def _replace_nonlinearity(self, nonlinearity: Name) -> None:
        """Switch to another nonlinearity; parameters that it adds have no values yet."""
        activation = activation_in(nonlinearity, self.is_complex)
        by_default = self._by_default - {"nonlinearity"}
        vars(self).update(activation=activation, nonlinearity=activation.name, _by_default=by_default)
        like = self._parameter(f"weight_ih_{self.suffixes[0]}")
        for name, shape in self._shapes().items():
            own = self._parameters[name]
            if shape != (None if own is None else tuple(own.shape)):
                self.add_parameters({name: shape}, like.device, like.dtype)

    def extra_repr(self) -> str:
        """Return the constructor's arguments that differ from their defaults."""
        options = self.changed_options(OrthogonalRNN, always=("parametrization", "nonlinearity"))
        return f"{self.input_size}, {self.hidden_size}, {listed(options)}"


def _check_stored(form: object, memory: str) -> None:
    """Raise ArgumentError for form="operator" unless all states are stored."""
    if memory != "store" and form == "operator":
        raise ArgumentError(
            f"Expected form='auto', 'dense', 'compact_wy' or 'rotations' with memory={memory!r}, but got form='operator'."
        )
