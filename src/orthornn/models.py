"""Named models: a recurrent core with a linear readout, and the width that meets a parameter budget.

name            core                                                          after
ornn            OrthogonalRNN, Householder(reflections), leaky ReLU, h_0      Mhammedi et al., 2017, section 5
                learned
ornn-rotations  the same on a base of rotations, modReLU                      new; see the documentation of
base scornn          OrthogonalRNN, ScaledCayley(negatives=N // 2), modReLU        Helfrich et al., 2018
spectral        OrthogonalRNN, SpectralMargin(margin), tanh                   Vorontsov et al., 2017
lstm, gru, rnn  torch.nn.LSTM, torch.nn.GRU, torch.nn.RNN (tanh)              baselines

First values. ornn: input weights, readout and h_0 uniform as in Arjovsky et al., 2016, whom the paper
follows:
+-sqrt(6 / (fan in + fan out)) and +-sqrt(3 / 2N), biases 0. ornn-rotations, scornn: input weights U(-0.01,
0.01), biases 0, readout as above; h_0 of ornn-rotations U(-0.01, 0.01) too, because at h = 0 and input 0
modReLU passes no gradient and a zero h_0 would stay zero. lstm: biases 0 but the forget gate's, which is 5
(Mhammedi et al., 2017, section 5). spectral, gru and rnn: as their modules do it.

A count is the number of trainable scalars. torch's LSTM, GRU and RNN have two bias vectors where the papers'
counts have one, so an LSTM has 4N (I + N + 2) numbers here, not 4N (I + N + 1).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import PackedSequence

from ._checks import check_choice, check_integer
from .errors import ArgumentError
from .modules import OrthogonalRNN
from .parametrizations import Householder, ScaledCayley, SpectralMargin
from .parametrizations.householder import Angles

__all__ = ["MODELS", "MODEL_OPTIONS", "ModelKind", "SequenceModel", "build", "count_parameters"]

DEFAULT_HIDDEN_SIZE = 128
DEFAULT_REFLECTIONS = 32
DEFAULT_MARGIN = 0.1
_SMALL = 0.01
_FORGET_BIAS = 5.0

Where = dict[str, Any]
Options = dict[str, Any]
Core = OrthogonalRNN | nn.RNNBase


class SequenceModel(nn.Module):
    """A recurrent core and a linear readout.

    core: OrthogonalRNN, or torch's RNN, LSTM or GRU; time-major.
    head: maps the core's output (N wide; 2N for a complex state, its real and imaginary parts) to the
        prediction.
    output: "all" reads out every step, "last" the last one.
    token_classes: I, if the input is int64 classes (T, B); None if it is real (T, B, I).
    """

    def __init__(
        self,
        core: Core,
        head: nn.Linear,
        *,
        output: Literal["all", "last"] = "last",
        token_classes: int | None = None,
    ) -> None:
        super().__init__()
        check_choice("output", output, ("all", "last"))
        self.core = core
        self.head = head
        self.output = output
        self.token_classes = token_classes

    def forward(self, inputs: Tensor | PackedSequence) -> Tensor:
        """inputs: (T, B, I), or int64 (T, B) -> (T, B, O), or (B, O) where the output is "last".

        A PackedSequence gives the rows of its data, (R, O), at every step, and (B, O) in the batch's own order at
        the last.
        """
        if isinstance(self.core, OrthogonalRNN):
            states = self.core(inputs, output=self.output)[0]
        else:
            if self.token_classes is not None:
                inputs = _on_rows(inputs, self._one_hot)
            states, final = self.core(inputs)
            if self.output == "last":
                states = (final[0] if isinstance(final, tuple) else final)[-1]
        if isinstance(states, PackedSequence):
            states = states.data
        if states.is_complex():
            states = torch.view_as_real(states).flatten(-2)
        return self.head(states)

    def _one_hot(self, tokens: Tensor) -> Tensor:
        assert self.token_classes is not None
        return F.one_hot(tokens, self.token_classes).to(self.head.weight.dtype)

    def extra_repr(self) -> str:
        """What repr shows beside the modules."""
        return f"output={self.output!r}, token_classes={self.token_classes}"


def _on_rows(inputs: Tensor | PackedSequence, change: Callable[[Tensor], Tensor]) -> Tensor | PackedSequence:
    if not isinstance(inputs, PackedSequence):
        return change(inputs)
    return PackedSequence(change(inputs.data), inputs.batch_sizes, inputs.sorted_indices, inputs.unsorted_indices)


@dataclass(frozen=True)
class ModelKind:
    """A named model.

    summary: one line for help texts.
    core: (input_size, hidden_size, options, {"device": ..., "dtype": ...}) -> the core with its first values.
    options: the options of `build` that it has; those that are None are not passed to `core`.
    paper_readout: the readout starts as in the papers (uniform Glorot, bias 0), not as torch.nn.Linear does.
    """

    summary: str
    core: Callable[[int, int, Options, Where], Core]
    options: tuple[str, ...] = ()
    paper_readout: bool = True


def build(
    name: str,
    input_size: int,
    output_size: int,
    *,
    hidden_size: int | None = None,
    parameters: int | None = None,
    reflections: int | None = None,
    angles: Angles | None = None,
    margin: float | Literal["none"] | None = None,
    nonlinearity: str | None = None,
    output: Literal["all", "last"] = "last",
    tokens: bool = False,
    device: torch.device | str | None = None,
    dtype: torch.dtype | None = None,
) -> SequenceModel:
    """The model of this name; its first values come from torch's global generator.

    hidden_size: N (128 if no parameter budget is given either).
    parameters: instead of hidden_size, a budget: N is the largest width whose model does not exceed it.
    reflections: m of ornn and ornn-rotations; min(32, N) unless given.
    angles: of the rotations of ornn-rotations, "full" unless given; see Householder.
    margin: of spectral, 0.1 unless given; "none" for a free spectrum; see SpectralMargin.
    nonlinearity: of spectral, tanh unless given; a name of orthornn.activations.ACTIVATIONS.
    output: "all" or "last", see SequenceModel. tokens: the input is int64 classes 0..input_size - 1.

    Raises ArgumentError for an unknown name, for both sizes at once, for a budget that no width meets, and
    for an option that the model does not have.
    """
    kind = MODELS[check_choice("model", name, MODELS)]
    check_integer("input_size", input_size, 1)
    check_integer("output_size", output_size, 1)
    options: Options = {"reflections": reflections, "angles": angles, "margin": margin, "nonlinearity": nonlinearity}
    options = {option: value for option, value in options.items() if value is not None}
    for option, value in options.items():
        if option not in kind.options:
            owners = ", ".join(other for other in MODELS if option in MODELS[other].options)
            raise ArgumentError(
                f"{option}={value!r} was given, but {name} has no {option}; leave it out or choose {owners}."
            )
    if hidden_size is not None and parameters is not None:
        raise ArgumentError(
            f"hidden_size={hidden_size} and parameters={parameters} were both given; give one: "
            f"the width, or the number of parameters from which it follows."
        )

    def at_width(width: int, device: torch.device | str | None) -> SequenceModel:
        where: Where = {"device": device, "dtype": dtype}
        core = kind.core(input_size, width, options, where)
        head = nn.Linear(2 * width if _has_complex_state(core) else width, output_size, **where)
        if kind.paper_readout:
            nn.init.xavier_uniform_(head.weight)
            nn.init.zeros_(head.bias)
        return SequenceModel(core, head, output=output, token_classes=input_size if tokens else None)

    if parameters is not None:
        check_integer("parameters", parameters, 1)
        hidden_size = _width_within(
            parameters,
            lambda width: count_parameters(at_width(width, "meta")),
            smallest=reflections or 1,
            name=name,
        )
    hidden_size = DEFAULT_HIDDEN_SIZE if hidden_size is None else check_integer("hidden_size", hidden_size, 1)
    return at_width(hidden_size, device)


def count_parameters(model: nn.Module) -> int:
    """The number of trainable scalars."""
    return sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)


def _has_complex_state(core: nn.Module) -> bool:
    return isinstance(core, OrthogonalRNN) and any(
        transition.method.field == "complex" for _, transition in core.transitions()
    )


def _width_within(budget: int, count: Callable[[int], int], smallest: int, name: str) -> int:
    """The largest width whose count does not exceed the budget; `count` must not fall as the width grows."""
    if count(smallest) > budget:
        raise ArgumentError(
            f"parameters={budget} is too few: the smallest {name} here, of width {smallest}, has "
            f"{count(smallest)}. Raise parameters."
        )
    low, high = smallest, 2 * smallest
    while count(high) <= budget:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if count(middle) <= budget else (low, middle)
    return low


def _reflections(options: Options, hidden_size: int) -> Options:
    return {"reflections": min(DEFAULT_REFLECTIONS, hidden_size), **options}


def _arjovsky_(core: OrthogonalRNN) -> OrthogonalRNN:
    nn.init.xavier_uniform_(core.weight_ih_l0)
    nn.init.zeros_(core.bias_ih_l0)
    bound = math.sqrt(3 / (2 * core.hidden_size))
    nn.init.uniform_(core.h0, -bound, bound)
    return core


def _ornn(input_size: int, hidden_size: int, options: Options, where: Where) -> Core:
    return _arjovsky_(
        OrthogonalRNN(
            input_size,
            hidden_size,
            parametrization=Householder(**_reflections(options, hidden_size)),
            nonlinearity="leaky_relu",
            learn_h0=True,
            **where,
        )
    )


def _ornn_rotations(input_size: int, hidden_size: int, options: Options, where: Where) -> Core:
    core = OrthogonalRNN(
        input_size,
        hidden_size,
        parametrization=Householder(base="rotations", **_reflections(options, hidden_size)),
        nonlinearity="modrelu",
        learn_h0=True,
        **where,
    )
    nn.init.uniform_(core.weight_ih_l0, -_SMALL, _SMALL)
    nn.init.uniform_(core.h0, -_SMALL, _SMALL)
    nn.init.zeros_(core.bias_ih_l0)
    return core


def _scornn(input_size: int, hidden_size: int, options: Options, where: Where) -> Core:
    core = OrthogonalRNN(
        input_size,
        hidden_size,
        parametrization=ScaledCayley(negatives=hidden_size // 2),
        nonlinearity="modrelu",
        **where,
    )
    nn.init.uniform_(core.weight_ih_l0, -_SMALL, _SMALL)
    nn.init.zeros_(core.bias_ih_l0)
    return core


def _spectral(input_size: int, hidden_size: int, options: Options, where: Where) -> Core:
    margin = options.get("margin", DEFAULT_MARGIN)
    return OrthogonalRNN(
        input_size,
        hidden_size,
        parametrization=SpectralMargin(margin=None if margin == "none" else margin),
        nonlinearity=options.get("nonlinearity", "tanh"),
        **where,
    )


def _lstm(input_size: int, hidden_size: int, options: Options, where: Where) -> Core:
    core = nn.LSTM(input_size, hidden_size, **where)
    for name in ("bias_ih_l0", "bias_hh_l0"):
        nn.init.zeros_(core.get_parameter(name))
    forget = core.get_parameter("bias_ih_l0")[hidden_size : 2 * hidden_size]  # torch's order: i, f, g, o
    nn.init.constant_(forget, _FORGET_BIAS)
    return core


def _gru(input_size: int, hidden_size: int, options: Options, where: Where) -> Core:
    return nn.GRU(input_size, hidden_size, **where)


def _rnn(input_size: int, hidden_size: int, options: Options, where: Where) -> Core:
    return nn.RNN(input_size, hidden_size, **where)


MODELS: dict[str, ModelKind] = {
    "ornn": ModelKind("Householder reflections, leaky ReLU (Mhammedi et al., 2017)", _ornn, options=("reflections",)),
    "ornn-rotations": ModelKind(
        "Householder reflections on a base of rotations, modReLU",
        _ornn_rotations,
        options=("reflections", "angles"),
    ),
    "scornn": ModelKind("scaled Cayley transform, modReLU (Helfrich et al., 2018)", _scornn),
    "spectral": ModelKind(
        "singular values within a margin of 1, tanh (Vorontsov et al., 2017)",
        _spectral,
        options=("margin", "nonlinearity"),
        paper_readout=False,
    ),
    "lstm": ModelKind("torch.nn.LSTM, forget bias 5", _lstm, paper_readout=False),
    "gru": ModelKind("torch.nn.GRU", _gru, paper_readout=False),
    "rnn": ModelKind("torch.nn.RNN, tanh", _rnn, paper_readout=False),
}
"""The models by name."""

MODEL_OPTIONS = tuple(dict.fromkeys(option for kind in MODELS.values() for option in kind.options))
"""Every option that some model has."""
