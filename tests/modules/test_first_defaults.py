"""State_dicts of networks with the defaults of version 0.1.0 load into networks with today's and mean the same.

tests/fixtures/state_dicts_first_defaults.safetensors was written by the code of that version, by this file run as a program
there; it is never written again.
"""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from orthornn import (
    Householder,
    OrthogonalBlocks,
    OrthogonalRNN,
    OrthogonalRNNCell,
    Rotations,
    ScaledCayley,
    convert,
)

FIXTURE = Path(__file__).parents[1] / "fixtures" / "state_dicts_first_defaults.safetensors"
FIRST = Householder(16, base="rotations")
SEPARATOR = " | "
NETWORKS = {
    "default": lambda: OrthogonalRNN(3, 20, dtype=torch.float64),
    "default, few units": lambda: OrthogonalRNN(3, 5, 2, bidirectional=True, learn_h0=True, dtype=torch.float64),
    "default, learned gain": lambda: OrthogonalRNN(3, 18, learn_gain=True, gain=0.9, bias=False, dtype=torch.float64),
    "a parametrization": lambda: OrthogonalRNN(3, 5, parametrization=ScaledCayley(), dtype=torch.float64),
    "complex": lambda: OrthogonalRNN(3, 4, parametrization=Householder(2, field="complex"), dtype=torch.float64),
    "a nonlinearity": lambda: OrthogonalRNN(3, 20, nonlinearity="tanh", dtype=torch.float64),
    "linear": lambda: OrthogonalRNN(3, 20, nonlinearity="identity", dtype=torch.float64),
    "linear transition": lambda: OrthogonalRNN(3, 20, linear_transition=True, dtype=torch.float64),
    "cell": lambda: OrthogonalRNNCell(3, 20, dtype=torch.float64),
    "blocks": lambda: OrthogonalBlocks(3, 4, 6, depth=2, dtype=torch.float64),
    "blocks with decay": lambda: OrthogonalBlocks(3, 4, 6, decay=True, dtype=torch.float64),
}
EVERY = pytest.mark.parametrize("name", NETWORKS)


@torch.no_grad()
def outputs(net: torch.nn.Module) -> torch.Tensor:
    x = torch.arange(4 * 2 * 3, dtype=torch.float64).mul(1.7).sin().view(4, 2, 3)
    if not isinstance(net, OrthogonalRNNCell):
        out = net(x)[0]
        return torch.view_as_real(out).contiguous() if out.is_complex() else out.contiguous()
    h, states = None, []
    for row in x:
        states.append(h := net(row, h))
    return torch.stack(states)


def stored(name: str) -> tuple[dict[str, torch.Tensor], torch.Tensor]:
    own = {key.removeprefix(name + SEPARATOR): value for key, value in load_file(FIXTURE).items()}
    state = {key: value for key, value in own.items() if SEPARATOR not in key and key != "output"}
    return state, own["output"]


@EVERY
def test_it_computes_what_it_did(name):
    state, expected = stored(name)
    net = NETWORKS[name]()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        net.load_state_dict(state)
    torch.testing.assert_close(outputs(net), expected, rtol=0, atol=1e-12)
    assert {key: value.shape for key, value in net.state_dict().items()} == {k: v.shape for k, v in state.items()}
    again = NETWORKS[name]()  # what is saved now loads once more
    again.load_state_dict(net.state_dict())
    torch.testing.assert_close(outputs(again), expected, rtol=0, atol=1e-12)
    assert all(parameter.requires_grad for parameter in net.parameters())


@EVERY
def test_it_loads_inside_a_model(name):
    state, expected = stored(name)
    model = torch.nn.ModuleDict({"inner": NETWORKS[name]()})
    model.load_state_dict({f"inner.{key}": value for key, value in state.items()})
    torch.testing.assert_close(outputs(model["inner"]), expected, rtol=0, atol=1e-12)


@EVERY
def test_what_today_saves_stays_what_it_is(name):
    torch.manual_seed(0)
    net, again = NETWORKS[name](), NETWORKS[name]()
    again.load_state_dict(net.state_dict())
    torch.testing.assert_close(outputs(again), outputs(net), rtol=0, atol=0)
    assert repr(again) == repr(net)


@pytest.mark.parametrize(
    ("given", "asked"),
    [
        (lambda: OrthogonalRNN(3, 20, nonlinearity="tanh"), lambda: OrthogonalRNN(3, 20)),
        (lambda: OrthogonalRNN(3, 20, parametrization=FIRST, nonlinearity="tanh"), lambda: OrthogonalRNN(3, 20)),
        (lambda: OrthogonalBlocks(3, 4, 6, decay=False), lambda: OrthogonalBlocks(3, 4, 6)),
    ],
)
def test_a_state_of_today_is_not_taken_for_a_first_one(given, asked):
    """It would load without a word, and compute something else."""
    with pytest.raises(RuntimeError, match=r"Missing key|size mismatch"):
        asked().load_state_dict(given().state_dict())


@pytest.mark.parametrize(
    "make",
    [
        lambda: convert(OrthogonalRNN(3, 5, nonlinearity="tanh"), Householder()),
        lambda: convert(OrthogonalRNN(3, 5, nonlinearity="identity"), Householder()),
        lambda: convert(OrthogonalRNNCell(3, 5, nonlinearity="identity"), Householder()),
        lambda: convert(OrthogonalBlocks(3, 4, 6), Householder(base="rotations", train_angles=True)),
        lambda: OrthogonalRNN(3, 5).fold(),
        lambda: OrthogonalBlocks(3, 4, 6).fold(),
    ],
)
@pytest.mark.filterwarnings("ignore::orthornn.errors.OrthornnWarning")
def test_a_converted_network_loads_what_it_saves(make):
    """Its parametrization was chosen, though not in the constructor; a plain dictionary has no version."""
    net, again = make(), make()
    again.load_state_dict(dict(net.state_dict()))
    assert repr(again) == repr(net)
    x = torch.randn(4, 2, 3) if not isinstance(net, OrthogonalRNNCell) else torch.randn(2, 3)
    torch.testing.assert_close(again(x)[0], net(x)[0], rtol=0, atol=0)


def test_what_was_read_says_so():
    net = NETWORKS["default"]()
    net.load_state_dict(stored("default")[0])
    assert net.nonlinearity == "modrelu"
    assert net.parametrization == Householder(16, base="rotations")
    blocks = NETWORKS["blocks"]()
    blocks.load_state_dict(stored("blocks")[0])
    assert blocks.parametrization == Rotations()
    assert not blocks.decay


def test_a_state_that_belongs_to_something_else_is_refused():
    with pytest.raises(RuntimeError, match=r"transition_l0\.reflectors"):
        OrthogonalRNN(3, 20).load_state_dict(OrthogonalRNN(3, 20, parametrization=Householder(3)).state_dict())


@pytest.mark.parametrize(
    ("make", "part"),
    [
        (lambda: OrthogonalRNN(3, 20), ("weight_ih_l0",)),
        (lambda: OrthogonalRNN(3, 20), ("weight_ih_l0", "bias_ih_l0")),
        (lambda: OrthogonalRNN(3, 5), ("transition_l0.reflectors",)),
        (lambda: OrthogonalRNN(3, 5, 2), ("weight_ih_l0", "transition_l0.reflectors", "transition_l0.method.angles")),
        (lambda: OrthogonalRNNCell(3, 5), ("rnn.weight_ih_l0",)),
        (lambda: OrthogonalBlocks(3, 4, 6), ("blocks.0.recurrence.transition_l0.angles",)),
        (lambda: OrthogonalBlocks(3, 4, 6, 2), ("blocks.0.recurrence.weight_ih_l0", "blocks.0.skip.weight")),
    ],
)
def test_a_part_of_a_state_changes_nothing_but_its_tensors(make, part):
    """Fine-tuning begins with such a part. A plain dictionary has no version, as a file of tensors has none."""
    net, given = make(), make().state_dict()
    before = repr(net), dict(net.named_parameters())
    loaded = net.load_state_dict({name: given[name] for name in part}, strict=False)
    assert set(loaded.missing_keys) == set(net.state_dict()) - set(part)
    assert repr(net) == before[0]
    now = dict(net.named_parameters())
    assert now.keys() == before[1].keys()
    assert all(now[name] is before[1][name] for name in now)
    for name in part:
        torch.testing.assert_close(net.state_dict()[name], given[name], rtol=0, atol=0)


if __name__ == "__main__":
    tensors = {}
    for number, (key, make) in enumerate(NETWORKS.items()):
        torch.manual_seed(number)
        made = make()
        with torch.no_grad():
            for parameter in made.parameters():
                parameter.add_(0.2 * torch.randn_like(parameter))
        tensors |= {f"{key}{SEPARATOR}{own}": value.contiguous() for own, value in made.state_dict().items()}
        tensors[f"{key}{SEPARATOR}output"] = outputs(made)
    save_file(tensors, sys.argv[1])
