"""Our network and its peers, each with a function that runs forward and backward to all parameters.

The peers have initial values from which gradients do not vanish (nn.RNN an orthogonal matrix, nn.LSTM a forget bias of 5).
With torch's defaults, the gradient of the last state decays to denormal numbers, which slow torch's products down and
would flatter ours.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrizations, parametrize

from orthornn import rotation_basis
from orthornn._checks import check_choice
from orthornn.errors import ArgumentError
from orthornn.learn.systems import count_parameters
from orthornn.modules import OrthogonalRNN
from orthornn.parametrizations import Householder, ScaledCayley, Stiefel

from .cases import Case, Form, Output, Passes, Work

OURS = "ours"
KNOWN = "known"
_FORGET_BIAS = 5.0


@dataclass(frozen=True)
class Network:
    """One kind of network that is timed.

    summary: one line for tables. make: builds its module for a case. slow: whether fewer repetitions are allowed.
    package: required package besides torch. form: the only form of case that it is compared with, or None.
    """

    summary: str
    make: Callable[[Case, Work], nn.Module]
    slow: bool = False
    package: str | None = None
    form: Form | None = None

    def missing(self) -> str | None:
        """Return the reason why it cannot run here, or None."""
        if self.package is None or importlib.util.find_spec(self.package) is not None:
            return None
        return f"the package {self.package} is not installed"


class StepLoop(nn.Module):
    """h_t = tanh(W h_{t-1} + V x_t + b), a Python loop over t with the projection of all steps before it."""

    def __init__(self, input_size: int, hidden_size: int) -> None:
        super().__init__()
        self.projection = nn.Linear(input_size, hidden_size)
        self.weight_hh = nn.Parameter(nn.init.orthogonal_(torch.empty(hidden_size, hidden_size)))

    def forward(self, x: Tensor, output: Output = "all") -> Tensor:
        """Return states (T, B, N), or the last one (B, N), from x (T, B, I)."""
        projected, W = self.projection(x), self.weight_hh.mT
        h = projected.new_zeros(projected.shape[1:])
        states = []
        for a in projected.unbind():
            h = torch.tanh(torch.addmm(a, h, W))
            if output == "all":
                states.append(h)
        return h if output == "last" else torch.stack(states)


class ParametrizedRNN(nn.Module):
    """torch.nn.RNN whose weight_hh_l0 is parametrized, and built once per sequence (torch alone reads it several times)."""

    def __init__(self, rnn: nn.RNN) -> None:
        super().__init__()
        self.rnn = rnn

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return states (T, B, N) and the last state (1, B, N) from x (T, B, I)."""
        with parametrize.cached():
            return self.rnn(x)


def _linear(case: Case, form: Literal["dense", "rotations"]) -> nn.Module:
    return OrthogonalRNN(1, case.n, parametrization=Stiefel(), nonlinearity="identity", form=form)


def _ours(case: Case, work: Work) -> nn.Module:
    if case.form == "linear":
        return _linear(case, "rotations")
    if case.has_reflections:
        return OrthogonalRNN(
            1,
            case.n,
            parametrization=Householder(reflections=case.m, base="identity" if case.form == "wy" else "rotations"),
            nonlinearity=work.nonlinearity,
            form="compact_wy",
        )
    return OrthogonalRNN(
        1, case.n, parametrization=ScaledCayley(negatives=case.n // 2), nonlinearity=work.nonlinearity, form="dense"
    )


def _rnn(case: Case, work: Work) -> nn.RNN:
    rnn = nn.RNN(1, case.n)
    nn.init.orthogonal_(rnn.get_parameter("weight_hh_l0"))
    return rnn


def lstm(width: int) -> nn.LSTM:
    """Return a torch.nn.LSTM of input size 1 with its forget bias (torch's order: i, f, g, o) at 5."""
    module = nn.LSTM(1, width)
    nn.init.constant_(module.get_parameter("bias_ih_l0")[width : 2 * width], _FORGET_BIAS)
    return module


def _lstm_of_parameters(case: Case, work: Work) -> nn.Module:
    budget = count_parameters(_ours(case, work))
    width = 1
    while 4 * (width + 1) * (width + 4) <= budget:  # 4N (I + N + 2) parameters at width N, here N = width + 1
        width += 1
    return lstm(width)


def _orthogonal(case: Case, work: Work) -> nn.Module:
    rnn = _rnn(case, work)
    parametrizations.orthogonal(rnn, "weight_hh_l0")
    return ParametrizedRNN(rnn)


def _geotorch(case: Case, work: Work) -> nn.Module:
    import geotorch

    rnn = _rnn(case, work)
    geotorch.orthogonal(rnn, "weight_hh_l0")
    return ParametrizedRNN(rnn)


NETWORKS: dict[str, Network] = {
    OURS: Network("orthornn", _ours),
    KNOWN: Network("orthornn, rotations known", lambda case, work: _linear(case, "rotations"), form="linear"),
    "matrix": Network("orthornn, W as a matrix", lambda case, work: _linear(case, "dense"), form="linear"),
    "rnn": Network("nn.RNN", _rnn),
    "lstm": Network("nn.LSTM", lambda case, work: lstm(case.n)),
    "lstm-parameters": Network("nn.LSTM, equal parameters", _lstm_of_parameters),
    "rnn-orthogonal": Network("nn.RNN + torch orthogonal", _orthogonal, slow=True),
    "rnn-geotorch": Network("nn.RNN + geotorch", _geotorch, slow=True, package="geotorch"),
    "loop": Network("step loop in Python", lambda case, work: StepLoop(1, case.n), slow=True),
}
"""By name; `rnn` and `lstm` have our width. Known rotations: the case of running a network whose W does not change."""


def peers(names: str) -> list[str]:
    """Return the peers in a list separated by commas, each once, in the order of NETWORKS; ArgumentError for others."""
    known = [name for name in NETWORKS if name != OURS]
    given = {check_choice("peer", name.strip(), known) for name in names.split(",") if name.strip()}
    return [name for name in known if name in given]


def output_of(module: nn.Module, x: Tensor, output: Output) -> Tensor:
    """Return the states (T, B, N), or the last one (B, N), in the cheapest way for each network."""
    if isinstance(module, OrthogonalRNN):
        return module(x, output=output)[0]
    if isinstance(module, StepLoop):
        return module(x, output)
    states, final = module(x)
    if output == "all":
        return states
    return (final[0] if isinstance(final, tuple) else final)[-1]  # not states[-1]: its gradient is T times as large


@dataclass
class Runnable:
    """A network with its input and the gradient of its output."""

    name: str
    module: nn.Module
    x: Tensor
    grad: Tensor
    output: Output
    passes: Passes = "both"

    @classmethod
    def make(cls, name: str, case: Case, work: Work, T: int | None = None) -> Runnable:
        """Return the network `name` of NETWORKS for this case, from fixed random numbers; T steps instead of the
        work's.
        """
        network = NETWORKS[name]
        reason = network.missing()
        if reason is not None:
            raise ArgumentError(f"{network.summary} cannot be timed: {reason}.")
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            module = network.make(case, work).to(work.device)
            x = torch.rand(work.T if T is None else T, case.batch, 1).to(work.device)
            with torch.no_grad():
                like = output_of(module, x[:1], work.output)
            shape = like.shape if work.output == "last" else (len(x), *like.shape[1:])
            return cls(name, module, x, torch.randn(shape).to(work.device), work.output, work.passes)

    def run(self) -> None:
        """Forward, and backward to all parameters."""
        if self.passes == "forward":
            with torch.no_grad():
                output_of(self.module, self.x, self.output)
            return
        output_of(self.module, self.x, self.output).backward(self.grad)

    def clear(self) -> None:
        """Clear the gradients, and caches that an update of the parameters would invalidate."""
        self.module.zero_grad(set_to_none=True)
        if self.name == KNOWN:
            assert isinstance(self.module, OrthogonalRNN)
            for layer in self.module.layers():
                rotation_basis.rotations_of(layer.matrix())
        else:
            rotation_basis.forget()

    @property
    def parameters(self) -> int:
        """Trainable scalars."""
        return count_parameters(self.module)
