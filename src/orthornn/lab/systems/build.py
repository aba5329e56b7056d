"""Named models: a recurrent core of orthornn.lab.systems with a linear readout, and the width that meets a parameter budget.

A count is the number of trainable scalars as the papers count them: a matrix that is held on the Stiefel manifold
counts that manifold's dimension (n^2 for U(n)), not the entries it is stored in; see BoundParametrization.count.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import PackedSequence

from ..._checks import check_choice, check_integer
from ...errors import ArgumentError
from ...kernels.checkpointing import Mode
from ...modules import GORU, OrthogonalRNN, PeepholeLSTM, Transition
from ...parametrizations.householder import Angles
from .cores import MEMORY, SYSTEMS, Core, Options, Where

__all__ = ["MODELS", "MODEL_OPTIONS", "SequenceModel", "build", "count_parameters"]

DEFAULT_HIDDEN_SIZE = 128


class SequenceModel(nn.Module):
    """A recurrent core and a linear readout.

    core: OrthogonalRNN, GORU, PeepholeLSTM, or torch's RNN, LSTM or GRU; time-major.
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
        core = self.core
        if isinstance(core, OrthogonalRNN) and self.output == "all":
            return core.forward_readout(inputs, self.head)
        if isinstance(core, (OrthogonalRNN, GORU, PeepholeLSTM)):
            states = core(inputs, output=self.output)[0]
        else:
            if self.token_classes is not None:
                inputs = _on_rows(inputs, self._one_hot)
            states, final = core(inputs)
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
    negatives: int | None = None,
    init: str | None = None,
    base: Literal["identity", "rotations"] | None = None,
    field: Literal["real", "complex"] | None = None,
    unit: bool | None = None,
    nonlinearity: str | None = None,
    slope: float | None = None,
    gain: float | None = None,
    clip_backward: float | None = None,
    learn_h0: bool | None = None,
    layers: int | Literal["fft"] | None = None,
    rebase_every: int | None = None,
    forget_bias: float | None = None,
    memory: Mode | None = None,
    segment: int | None = None,
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
    base, field, unit: of ornn (unit: of ornn-rotations too), "identity", "real" and False unless given; see Householder.
    margin: of spectral, 0.1 unless given; "none" for a free spectrum; see SpectralMargin.
    negatives: of scornn, the number rho of -1 in D; N // 2 unless given.
    init: the first recurrent matrix: of spectral and elman "orthogonal" unless given, of scornn "blocks", of lstm-peephole
        "uniform"; see SpectralMargin, Unconstrained, ScaledCayley and PeepholeLSTM.
    nonlinearity: of ornn leaky_relu, of ornn-rotations and scornn modrelu, of spectral and elman tanh, unless given; a
        name of orthornn.activations.ACTIVATIONS.
    slope: of leaky_relu, fixed; of prelu, its first value.
    gain, clip_backward: of spectral, 1 and none unless given; see OrthogonalRNN. The paper's gain is 1.05.
    learn_h0: of spectral, whether the first state is trained (the paper's code); it is not unless given.
    layers: of rotations, of eurnn and goru, 2 unless given; or "fft"; see Givens.
    rebase_every: of exprnn, exprnn-unitary (never unless given) and dtriv (100); see MatrixExponential.
    forget_bias: of lstm (5 unless given), lstm-peephole and lstm-orthogonal (1).
    memory, segment: of every OrthogonalRNN, "store" unless given; see docs/long_sequences.md.
    output: "all" or "last", see SequenceModel. tokens: the input is int64 classes 0..input_size - 1.

    Raises ArgumentError for an unknown name, for both sizes at once, for a budget that no width meets, and
    for an option that the model does not have.
    """
    kind = MODELS[check_choice("model", name, MODELS)]
    check_integer("input_size", input_size, 1)
    check_integer("output_size", output_size, 1)
    options: Options = {
        "reflections": reflections,
        "angles": angles,
        "margin": margin,
        "negatives": negatives,
        "init": init,
        "base": base,
        "field": field,
        "unit": unit,
        "nonlinearity": nonlinearity,
        "slope": slope,
        "gain": gain,
        "clip_backward": clip_backward,
        "learn_h0": learn_h0,
        "layers": layers,
        "rebase_every": rebase_every,
        "forget_bias": forget_bias,
        "memory": memory,
        "segment": segment,
    }
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

    own = {option: value for option, value in options.items() if option not in MEMORY}

    def at_width(width: int, device: torch.device | str | None) -> SequenceModel:
        where: Where = {"device": device, "dtype": dtype}
        core = kind.core(input_size, width, own, where)
        if isinstance(core, OrthogonalRNN):
            core.set_memory(memory or "store", segment)
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
            smallest=max(reflections or 1, negatives or 1),
            name=name,
        )
    hidden_size = DEFAULT_HIDDEN_SIZE if hidden_size is None else check_integer("hidden_size", hidden_size, 1)
    return at_width(hidden_size, device)


def count_parameters(model: nn.Module) -> int:
    """The number of trainable scalars, as the papers count them."""
    total = sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)
    for module in model.modules():
        if isinstance(module, Transition) and all(free.requires_grad for free in module.free()):
            total += module.method.count() - sum(free.numel() for free in module.free())
    return total


def _has_complex_state(core: nn.Module) -> bool:
    return isinstance(core, (OrthogonalRNN, GORU)) and core.is_complex


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


MODELS = SYSTEMS
"""The models by name."""

MODEL_OPTIONS = tuple(dict.fromkeys(option for kind in MODELS.values() for option in kind.options))
"""Every option that some model has."""
