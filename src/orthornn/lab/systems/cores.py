"""Every system that the papers compare: its recurrent core, with its first values, in one place.

name               core                                                             after
ornn               OrthogonalRNN, Householder(reflections), leaky ReLU, h_0         Mhammedi et al., 2017, section 5
                   learned
ornn-rotations     the same on a base of rotations, modReLU                         new
scornn             OrthogonalRNN, ScaledCayley(negatives=N // 2), modReLU           Helfrich et al., 2018
spectral           OrthogonalRNN, SpectralMargin(margin=0.1), tanh                  Vorontsov et al., 2017
urnn               OrthogonalRNN, RestrictedUnitary(), complex modReLU, h_0 learned Arjovsky et al., 2016
full-urnn          the same, Stiefel(field="complex")                               Wisdom et al., 2016
eurnn              the same, Givens(layers=2, field="complex")                      Jing et al., 2016
exprnn             OrthogonalRNN, MatrixExponential(), modReLU                      Lezcano-Casado & Martinez-Rubio, 2019
dtriv              the same, rebase_every=100                                       Lezcano-Casado, 2019
exprnn-unitary     as urnn, MatrixExponential(field="complex")                      Hyland & Raetsch, 2017
scurnn             as urnn, ScaledCayley(field="complex", phases=True)              Maduranga et al., 2018
goru               GORU, Givens(layers=2), modReLU, h_0 learned                     Jing et al., 2017
irnn               OrthogonalRNN, Unconstrained(init="identity"), ReLU              Le et al., 2015
srnn               OrthogonalRNN, Unconstrained(), tanh, h_0 learned                Mhammedi et al., 2017, section 5
elman              OrthogonalRNN, Unconstrained(init="orthogonal"), tanh            Vorontsov et al., 2017, section 3.2
lt-ornn, lt-irnn   OrthogonalRNN, linear_transition, Unconstrained(init=            Henaff et al., 2016
                   "orthogonal" or "identity"), ReLU
lstm, gru, rnn     torch.nn.LSTM (forget bias 5), torch.nn.GRU, torch.nn.RNN (tanh) baselines
lstm-peephole      PeepholeLSTM, forget bias 1                                      Vorontsov et al., 2017
lstm-orthogonal    PeepholeLSTM without peepholes, orthogonal, forget bias 1

First values. ornn, srnn, urnn, full-urnn, eurnn and exprnn-unitary: input weights and h_0 uniform as in Arjovsky et
al., 2016, +-sqrt(6 / (fan in + fan out)) and +-sqrt(3 / 2N), biases 0; the entries of ornn's reflectors U(-1, 1),
which sets how fast Adam turns them; W of srnn uniform Glorot. ornn-rotations, scornn, scurnn: input weights U(-0.01,
0.01), biases 0; h_0 of ornn-rotations and scurnn U(-0.01, 0.01) too, because at h = 0 and input 0 modReLU passes no
gradient and a zero h_0 would stay zero. exprnn, dtriv: input weights by He's normal distribution, b from U(-0.01,
0.01) (the authors' code). irnn: input weights N(0, 0.001^2), biases 0. lstm: biases 0 but the forget gate's, which is
5 (Mhammedi et al., 2017, section 5). The rest as their modules do it.

torch's LSTM and RNN have two bias vectors whose sum alone matters, where the papers' counts have one: the second is
held at 0 here and is no parameter. (A GRU's two do different things.)
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from ...activations import Activation
from ...activations import get as activation
from ...errors import ArgumentError
from ...modules import GORU, OrthogonalRNN, PeepholeLSTM
from ...parametrizations import (
    Givens,
    Householder,
    MatrixExponential,
    Parametrization,
    RestrictedUnitary,
    ScaledCayley,
    SpectralMargin,
    Stiefel,
    Unconstrained,
)

DEFAULT_REFLECTIONS = 32
DEFAULT_LAYERS = 2
DEFAULT_REBASE = 100
DEFAULT_MARGIN = 0.1
_SMALL = 0.01

MEMORY = ("memory", "segment")  # options of every OrthogonalRNN, which orthornn.lab.systems sets

Where = dict[str, Any]
Options = dict[str, Any]
Core = OrthogonalRNN | GORU | PeepholeLSTM | nn.RNNBase


@dataclass(frozen=True)
class System:
    """A named system.

    summary: one line for help texts.
    core: (input_size, hidden_size, options, {"device": ..., "dtype": ...}) -> the core with its first values.
    options: the options of orthornn.lab.systems.build that it has; those that are None are not passed to `core`.
    paper_readout: the readout starts as in the papers (uniform Glorot, bias 0), not as torch.nn.Linear does.
    """

    summary: str
    core: Callable[[int, int, Options, Where], Core]
    options: tuple[str, ...] = ()
    paper_readout: bool = True


def _arjovsky_(core: OrthogonalRNN) -> OrthogonalRNN:
    real_rows = core.hidden_size * (2 if core.is_complex else 1)
    bound = math.sqrt(6 / (core.input_size + real_rows))
    nn.init.uniform_(core.weight_ih_l0, -bound, bound)
    nn.init.zeros_(core.bias_ih_l0)
    bound = math.sqrt(3 / (2 * core.hidden_size))
    nn.init.uniform_(core.h0, -bound, bound)
    return core


def _small_(core: OrthogonalRNN) -> OrthogonalRNN:
    nn.init.uniform_(core.weight_ih_l0, -_SMALL, _SMALL)
    nn.init.zeros_(core.bias_ih_l0)
    if core.learn_h0:
        nn.init.uniform_(core.h0, -_SMALL, _SMALL)
    return core


def _activation(options: Options, default: str) -> Activation:
    """The nonlinearity with its fixed slope; a prelu's slope is only where it starts from."""
    name = options.get("nonlinearity", default)
    if "slope" in options and name not in ("leaky_relu", "prelu"):
        raise ArgumentError(f"slope={options['slope']} is for leaky_relu and prelu; got nonlinearity={name!r}.")
    return activation(name, options.get("slope") if name == "leaky_relu" else None)


def _householder(options: Options, hidden_size: int, **more: Any) -> Householder:
    reflections = options.get("reflections", min(DEFAULT_REFLECTIONS, hidden_size))
    given: dict[str, Any] = {name: options[name] for name in ("angles", "base", "field", "unit") if name in options}
    given.update(more)
    return Householder(reflections=reflections, **given)


def _ornn(input_size: int, hidden_size: int, options: Options, where: Where) -> Core:
    method = _householder(options, hidden_size)
    nonlinearity = _activation(options, "leaky_relu")
    core = _arjovsky_(
        OrthogonalRNN(
            input_size, hidden_size, parametrization=method, nonlinearity=nonlinearity, learn_h0=True, **where
        )
    )
    if not method.unit:
        reflectors = core.get_parameter("transition_l0.reflectors")
        full = method.field == "real" and method.reflections == hidden_size
        nn.init.uniform_(reflectors[:-1] if full else reflectors, -1, 1)  # the last one is u_1, a sign
    return core


def _ornn_rotations(input_size: int, hidden_size: int, options: Options, where: Where) -> Core:
    method = _householder(options, hidden_size, base="rotations")
    nonlinearity = _activation(options, "modrelu")
    return _small_(
        OrthogonalRNN(
            input_size, hidden_size, parametrization=method, nonlinearity=nonlinearity, learn_h0=True, **where
        )
    )


def _scornn(input_size: int, hidden_size: int, options: Options, where: Where) -> Core:
    method = ScaledCayley(negatives=options.get("negatives", hidden_size // 2), init=options.get("init", "blocks"))
    nonlinearity = _activation(options, "modrelu")
    return _small_(OrthogonalRNN(input_size, hidden_size, parametrization=method, nonlinearity=nonlinearity, **where))


def _spectral(input_size: int, hidden_size: int, options: Options, where: Where) -> Core:
    margin = options.get("margin", DEFAULT_MARGIN)
    core = OrthogonalRNN(
        input_size,
        hidden_size,
        parametrization=SpectralMargin(None if margin == "none" else margin, options.get("init", "orthogonal")),
        nonlinearity=_activation(options, "tanh"),
        learn_h0=options.get("learn_h0", False),
        gain=options.get("gain", 1.0),
        clip_backward=options.get("clip_backward"),
        **where,
    )
    if core.nonlinearity == "prelu" and "slope" in options:
        nn.init.constant_(core.get_parameter("activation_l0"), options["slope"])
    return core


def _unitary(method: Parametrization, input_size: int, hidden_size: int, where: Where) -> Core:
    return _arjovsky_(OrthogonalRNN(input_size, hidden_size, parametrization=method, learn_h0=True, **where))


def _urnn(input_size: int, hidden_size: int, options: Options, where: Where) -> Core:
    return _unitary(RestrictedUnitary(), input_size, hidden_size, where)


def _full_urnn(input_size: int, hidden_size: int, options: Options, where: Where) -> Core:
    return _unitary(Stiefel(field="complex"), input_size, hidden_size, where)


def _eurnn(input_size: int, hidden_size: int, options: Options, where: Where) -> Core:
    method = Givens(layers=options.get("layers", DEFAULT_LAYERS), field="complex")
    return _unitary(method, input_size, hidden_size, where)


def _exprnn_unitary(input_size: int, hidden_size: int, options: Options, where: Where) -> Core:
    method = MatrixExponential(field="complex", rebase_every=options.get("rebase_every"))
    return _unitary(method, input_size, hidden_size, where)


def _scurnn(input_size: int, hidden_size: int, options: Options, where: Where) -> Core:
    method = ScaledCayley(field="complex", phases=True)
    return _small_(OrthogonalRNN(input_size, hidden_size, parametrization=method, learn_h0=True, **where))


def _exprnn(input_size: int, hidden_size: int, options: Options, where: Where) -> Core:
    method = MatrixExponential(rebase_every=options.get("rebase_every"))
    core = OrthogonalRNN(input_size, hidden_size, parametrization=method, **where)
    nn.init.kaiming_normal_(core.weight_ih_l0, nonlinearity="relu")
    return core


def _dtriv(input_size: int, hidden_size: int, options: Options, where: Where) -> Core:
    return _exprnn(input_size, hidden_size, {"rebase_every": DEFAULT_REBASE, **options}, where)


def _goru(input_size: int, hidden_size: int, options: Options, where: Where) -> Core:
    method = Givens(layers=options.get("layers", DEFAULT_LAYERS))
    return GORU(input_size, hidden_size, parametrization=method, learn_h0=True, **where)


def _irnn(input_size: int, hidden_size: int, options: Options, where: Where) -> Core:
    method = Unconstrained(init="identity")
    core = OrthogonalRNN(input_size, hidden_size, parametrization=method, nonlinearity="relu", **where)
    nn.init.normal_(core.weight_ih_l0, std=0.001)
    nn.init.zeros_(core.bias_ih_l0)
    return core


def _elman(input_size: int, hidden_size: int, options: Options, where: Where) -> Core:
    method = Unconstrained(options.get("init", "orthogonal"))
    return OrthogonalRNN(
        input_size, hidden_size, parametrization=method, nonlinearity=_activation(options, "tanh"), **where
    )


def _lt(method: Unconstrained) -> Callable[[int, int, Options, Where], Core]:
    def core(input_size: int, hidden_size: int, options: Options, where: Where) -> Core:
        return OrthogonalRNN(
            input_size, hidden_size, parametrization=method, nonlinearity="relu", linear_transition=True, **where
        )

    return core


def _lstm(input_size: int, hidden_size: int, options: Options, where: Where) -> Core:
    core = nn.LSTM(input_size, hidden_size, **where)
    nn.init.zeros_(core.get_parameter("bias_ih_l0"))
    forget = core.get_parameter("bias_ih_l0")[hidden_size : 2 * hidden_size]  # torch's order: i, f, g, o
    nn.init.constant_(forget, options.get("forget_bias", 5.0))
    return _one_bias_(core)


def _one_bias_(core: nn.RNNBase) -> nn.RNNBase:
    """Hold the second of torch's two bias vectors at 0."""
    second = core.get_parameter("bias_hh_l0")
    with torch.no_grad():
        second.zero_()
    second.requires_grad_(False)
    return core


def _lstm_peephole(input_size: int, hidden_size: int, options: Options, where: Where) -> Core:
    return PeepholeLSTM(input_size, hidden_size, **options, **where)


def _lstm_orthogonal(input_size: int, hidden_size: int, options: Options, where: Where) -> Core:
    return PeepholeLSTM(input_size, hidden_size, peepholes=False, init="orthogonal", **options, **where)


def _srnn(input_size: int, hidden_size: int, options: Options, where: Where) -> Core:
    core = _arjovsky_(
        OrthogonalRNN(
            input_size, hidden_size, parametrization=Unconstrained(), nonlinearity="tanh", learn_h0=True, **where
        )
    )
    nn.init.xavier_uniform_(core.get_parameter("transition_l0.weight"))
    return core


def _gru(input_size: int, hidden_size: int, options: Options, where: Where) -> Core:
    return nn.GRU(input_size, hidden_size, **where)


def _rnn(input_size: int, hidden_size: int, options: Options, where: Where) -> Core:
    return _one_bias_(nn.RNN(input_size, hidden_size, **where))


SYSTEMS: dict[str, System] = {
    "ornn": System(
        "Householder reflections, leaky ReLU (Mhammedi et al., 2017)",
        _ornn,
        ("reflections", "nonlinearity", "slope", "base", "field", "unit", *MEMORY),
    ),
    "ornn-rotations": System(
        "Householder reflections on a base of rotations, modReLU",
        _ornn_rotations,
        ("reflections", "angles", "nonlinearity", "slope", "unit", *MEMORY),
    ),
    "scornn": System(
        "scaled Cayley transform, modReLU (Helfrich et al., 2018)",
        _scornn,
        ("negatives", "init", "nonlinearity", "slope", *MEMORY),
    ),
    "spectral": System(
        "singular values within a margin of 1, tanh (Vorontsov et al., 2017)",
        _spectral,
        ("margin", "init", "nonlinearity", "slope", "gain", "clip_backward", "learn_h0", *MEMORY),
        paper_readout=False,
    ),
    "urnn": System("unitary of restricted capacity, by the FFT (Arjovsky et al., 2016)", _urnn, MEMORY),
    "full-urnn": System("the unitary matrix itself on its manifold (Wisdom et al., 2016)", _full_urnn, MEMORY),
    "eurnn": System("layers of unitary rotations (Jing et al., 2016)", _eurnn, ("layers", *MEMORY)),
    "exprnn": System(
        "exponential of a skew-symmetric matrix, modReLU (Lezcano-Casado & Martinez-Rubio, 2019)",
        _exprnn,
        ("rebase_every", *MEMORY),
    ),
    "dtriv": System(
        "exprnn whose base moves every 100 updates (Lezcano-Casado, 2019)", _dtriv, ("rebase_every", *MEMORY)
    ),
    "exprnn-unitary": System(
        "exponential of a skew-Hermitian matrix (Hyland & Raetsch, 2017)", _exprnn_unitary, ("rebase_every", *MEMORY)
    ),
    "scurnn": System("complex scaled Cayley transform with trained phases (Maduranga et al., 2018)", _scurnn, MEMORY),
    "goru": System("gated, with layers of rotations (Jing et al., 2017)", _goru, ("layers",)),
    "irnn": System("ReLU network from the identity (Le et al., 2015)", _irnn, MEMORY),
    "elman": System(
        "one free recurrent matrix, from an orthogonal one",
        _elman,
        ("init", "nonlinearity", "slope", *MEMORY),
        paper_readout=False,
    ),
    "lt-ornn": System(
        "transition outside the ReLU, from an orthogonal matrix (Henaff et al., 2016)", _lt(Unconstrained()), MEMORY
    ),
    "lt-irnn": System(
        "transition outside the ReLU, from the identity (Henaff et al., 2016)",
        _lt(Unconstrained(init="identity")),
        MEMORY,
    ),
    "srnn": System("simple network, tanh, with the first values of ornn (Mhammedi et al., 2017)", _srnn, MEMORY),
    "lstm": System("torch.nn.LSTM, forget bias 5", _lstm, ("forget_bias",), paper_readout=False),
    "lstm-peephole": System(
        "LSTM with peepholes, forget bias 1", _lstm_peephole, ("forget_bias", "init"), paper_readout=False
    ),
    "lstm-orthogonal": System(
        "LSTM from orthogonal matrices, forget bias 1", _lstm_orthogonal, ("forget_bias",), paper_readout=False
    ),
    "gru": System("torch.nn.GRU", _gru, paper_readout=False),
    "rnn": System("torch.nn.RNN, tanh", _rnn, paper_readout=False),
}
"""The systems by name."""
