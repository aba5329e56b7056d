"""State_dicts of earlier versions load strictly and give the outputs that those versions computed.

tests/fixtures/state_dicts_v0.safetensors was written by orthornn 0.1.0 from the networks below; it is never written
again, or it would prove nothing. A later layout of the state gets a second file, from
`python tests/modules/test_old_state_dicts.py FILE`, and a second entry in FIXTURES.
"""

from __future__ import annotations

import json
import sys
import warnings
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file

from orthornn import (
    GORU,
    Givens,
    Householder,
    MatrixExponential,
    OrthogonalRNN,
    OrthogonalRNNCell,
    PeepholeLSTM,
    RestrictedUnitary,
    ScaledCayley,
    SpectralMargin,
    Stiefel,
    Unconstrained,
)
from support.tolerances import tolerance

T, B, I, N = 4, 2, 3, 5
METHODS = {
    "Householder": Householder(),
    "Householder, 2 reflections": Householder(reflections=2),
    "Householder, soft u_1": Householder(u1="soft"),
    "Householder, unit": Householder(reflections=3, unit=True),
    "Householder, rotations": Householder(reflections=2, base="rotations"),
    "Householder, trained angles": Householder(reflections=2, base="rotations", train_angles=True),
    "ScaledCayley": ScaledCayley(negatives=2),
    "MatrixExponential": MatrixExponential(),
    "MatrixExponential, rebased": MatrixExponential(rebase_every=2),
    "Givens": Givens(),
    "Givens, 2 layers": Givens(layers=2),
    "Givens, FFT": Givens(layers="fft"),
    "SpectralMargin": SpectralMargin(margin=0.1),
    "SpectralMargin, none": SpectralMargin(margin=0),
    "SpectralMargin, free": SpectralMargin(margin=None, init="glorot"),
    "Stiefel": Stiefel(),
    "Unconstrained": Unconstrained(init="glorot"),
    "complex Householder": Householder(field="complex"),
    "complex Householder, rotations": Householder(reflections=2, field="complex", base="rotations"),
    "complex Householder, trained angles": Householder(
        reflections=1, field="complex", base="rotations", train_angles=True
    ),
    "complex ScaledCayley": ScaledCayley(negatives=1, field="complex"),
    "complex ScaledCayley, phases": ScaledCayley(field="complex", phases=True),
    "complex MatrixExponential": MatrixExponential(field="complex", rebase_every=1),
    "complex Givens": Givens(layers=2, field="complex"),
    "complex Stiefel": Stiefel(field="complex"),
    "RestrictedUnitary": RestrictedUnitary(),
}
OPTIONS = {
    "two layers": {"num_layers": 2},
    "two directions": {"bidirectional": True, "num_layers": 2},
    "two directions, complex": {"bidirectional": True, "parametrization": Householder(field="complex")},
    "learned": {"learn_h0": True, "learn_gain": True, "gain": 0.9, "num_layers": 2},
    "learned, complex": {"learn_h0": True, "learn_gain": True, "parametrization": RestrictedUnitary()},
    "prelu": {"nonlinearity": "prelu", "num_layers": 2},
    "prelu, complex": {"nonlinearity": "prelu", "parametrization": Stiefel(field="complex")},
    "scaled_tanh": {"nonlinearity": "scaled_tanh"},
    "tanh": {"nonlinearity": "tanh"},
    "identity": {"nonlinearity": "identity"},
    "no bias": {"bias": False, "nonlinearity": "relu"},
    "linear transition": {"linear_transition": True, "nonlinearity": "relu"},
}
NETWORKS = {
    **{name: (OrthogonalRNN, {"parametrization": method}) for name, method in METHODS.items()},
    **{name: (OrthogonalRNN, options) for name, options in OPTIONS.items()},
    "cell": (OrthogonalRNNCell, {"learn_h0": True, "learn_gain": True}),
    "GORU": (GORU, {"learn_h0": True}),
    "GORU, complex": (GORU, {"parametrization": Givens(layers=2, field="complex"), "learn_h0": True}),
    "PeepholeLSTM": (PeepholeLSTM, {"learn_state": True}),
    "LSTM": (PeepholeLSTM, {"peepholes": False, "init": "orthogonal"}),
}
FIXTURES = ["state_dicts_v0.safetensors"]
FOLDER = Path(__file__).parents[1] / "fixtures"
SEPARATOR = " | "


def network(name: str) -> torch.nn.Module:
    kind, options = NETWORKS[name]
    if kind in (OrthogonalRNN, OrthogonalRNNCell):  # the default of that version
        options = {"parametrization": Householder(), **options}
    return kind(I, N, dtype=torch.float64, **options)


def inputs() -> torch.Tensor:
    """Numbers that no generator is asked for."""
    return torch.arange(T * B * I, dtype=torch.float64).mul(1.7).sin().view(T, B, I)


@torch.no_grad()
def outputs(net: torch.nn.Module) -> torch.Tensor:
    """States of all steps, as real numbers."""
    if isinstance(net, OrthogonalRNNCell):
        h, states = None, []
        for x in inputs():
            states.append(h := net(x, h))
        out = torch.stack(states)
    else:
        out = net(inputs())[0]
    return torch.view_as_real(out).contiguous() if out.is_complex() else out.contiguous()


def write(path: Path) -> None:
    tensors, metadata = {}, {}
    for name in NETWORKS:
        torch.manual_seed(len(tensors))
        net = network(name)
        with torch.no_grad():
            for key, parameter in net.named_parameters():
                if (
                    "transition" not in key
                ):  # those lie on no manifold; biases and gains of 0 and 1 would hide a mistake
                    parameter.add_(0.2 * torch.randn_like(parameter))
        state = net.state_dict()
        metadata[name] = json.dumps(state._metadata)
        tensors |= {f"{name}{SEPARATOR}state{SEPARATOR}{key}": value.contiguous() for key, value in state.items()}
        tensors[f"{name}{SEPARATOR}output"] = outputs(net)
    save_file(tensors, path, metadata)


@pytest.fixture(scope="module", params=FIXTURES)
def stored(request):
    """Of each network: its state_dict, with the versions that torch keeps in it, and its outputs."""
    with safe_open(FOLDER / request.param, framework="pt") as file:
        metadata = {name: json.loads(text) for name, text in file.metadata().items()}
        tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
    found = {}
    for name, versions in metadata.items():
        prefix = f"{name}{SEPARATOR}state{SEPARATOR}"
        state = {key.removeprefix(prefix): value for key, value in tensors.items() if key.startswith(prefix)}
        found[name] = state, versions, tensors[f"{name}{SEPARATOR}output"]
    return found


class StateDict(dict):
    """A dict that can carry the attribute in which torch keeps versions."""


def test_every_network_is_there(stored):
    assert set(stored) == set(NETWORKS)
    assert all(state for state, _, _ in stored.values())


@pytest.mark.parametrize("versions", [True, False], ids=["as torch.save writes it", "tensors alone"])
@pytest.mark.parametrize("name", NETWORKS)
def test_it_loads_and_computes_what_it_did(stored, name, versions):
    state, metadata, expected = stored[name]
    given = StateDict(state)
    if versions:
        given._metadata = metadata
    torch.manual_seed(1000)
    net = network(name)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        net.load_state_dict(given, strict=True)
    bound = tolerance(torch.float64, T * N * N)
    torch.testing.assert_close(outputs(net), expected, rtol=0, atol=bound * (1 + float(expected.abs().max())))
    assert {key: value.shape for key, value in net.state_dict().items()} == {
        key: value.shape for key, value in state.items()
    }
    assert all(state[key].dtype == parameter.dtype for key, parameter in net.named_parameters())


@pytest.mark.parametrize("name", NETWORKS)
def test_a_new_network_computes_something_else(stored, name):
    """Or the test above could not fail."""
    torch.manual_seed(1000)
    assert not torch.allclose(outputs(network(name)), stored[name][2], rtol=0, atol=1e-3)


if __name__ == "__main__":
    write(Path(sys.argv[1]))
