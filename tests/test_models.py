from __future__ import annotations

import pytest
import torch

from orthornn.errors import ArgumentError
from orthornn.models import MODELS, build, count_parameters
from orthornn.modules import OrthogonalRNN

ORTHOGONAL = ("ornn", "ornn-rotations", "scornn")


@pytest.mark.parametrize(
    ("name", "sizes", "options", "count"),
    [
        ("ornn", (1, 10), {"hidden_size": 256, "reflections": 32}, 11034),  # Mhammedi et al., 2017, Table 3
        ("ornn", (49, 49), {"hidden_size": 512, "reflections": 510}, 182574),  # its Table 4
        ("scornn", (1, 10), {"hidden_size": 170}, 16415),  # Helfrich et al., 2018, Table 1
        ("scornn", (1, 10), {"hidden_size": 360}, 68950),
        ("scornn", (1, 10), {"hidden_size": 512}, 136970),
    ],
)
def test_the_papers_parameter_counts(name, sizes, options, count):
    assert count_parameters(build(name, *sizes, device="meta", **options)) == count


def test_torchs_lstm_has_two_biases():
    model = build("lstm", 3, 5, hidden_size=7)
    assert count_parameters(model) == 4 * 7 * (3 + 7 + 2) + 7 * 5 + 5


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("tokens", [False, True])
@pytest.mark.parametrize("output", ["all", "last"])
def test_shapes_and_gradients(name, tokens, output):
    torch.manual_seed(0)
    model = build(name, 3, 5, hidden_size=6, output=output, tokens=tokens)
    inputs = torch.randint(0, 3, (4, 2)) if tokens else torch.rand(4, 2, 3)
    prediction = model(inputs)
    assert prediction.shape == ((4, 2, 5) if output == "all" else (2, 5))
    prediction.square().sum().backward()
    assert all(parameter.grad is not None for parameter in model.parameters())
    assert any(parameter.grad.abs().sum() > 0 for parameter in model.core.parameters())


@pytest.mark.parametrize("name", MODELS)
def test_tokens_are_one_hot_and_last_is_the_last_of_all(name):
    def made(**options):
        torch.manual_seed(1)
        return build(name, 4, 3, hidden_size=5, dtype=torch.float64, **options)

    tokens = torch.randint(0, 4, (6, 3))
    one_hot = torch.nn.functional.one_hot(tokens, 4).double()
    every = made(output="all", tokens=True)(tokens)
    # the same sums in another order, in float64
    torch.testing.assert_close(made(output="all")(one_hot), every, rtol=1e-12, atol=1e-14)
    torch.testing.assert_close(made(output="last", tokens=True)(tokens), every[-1], rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("budget", [300, 5000, 16415])
def test_the_width_is_the_largest_within_the_budget(name, budget):
    model = build(name, 1, 10, parameters=budget)
    width = model.core.hidden_size
    assert count_parameters(model) <= budget
    assert count_parameters(build(name, 1, 10, hidden_size=width + 1, device="meta")) > budget


def test_the_papers_widths_follow_from_their_budgets():
    assert build("scornn", 1, 10, parameters=16415).core.hidden_size == 170
    assert build("scornn", 1, 10, parameters=16414).core.hidden_size == 169
    assert build("ornn", 1, 10, parameters=11034, reflections=32).core.hidden_size == 256


@pytest.mark.parametrize("name", ORTHOGONAL)
def test_first_values(name):
    torch.manual_seed(0)
    core = build(name, 2, 3, hidden_size=50).core
    W = core.weight_hh_l0.detach().double()
    # float32 numbers of size 1/sqrt(N), rounded once: N * eps / sqrt(12) at most a few times over
    assert torch.linalg.matrix_norm(W.T @ W - torch.eye(50, dtype=torch.float64)) < 50 * torch.finfo(torch.float32).eps
    assert not core.bias_ih_l0.any()
    bound = {"ornn": (6 / 52) ** 0.5}.get(name, 0.01)
    largest = float(core.weight_ih_l0.detach().abs().max())
    assert 0.9 * bound < largest <= bound  # of 100 uniform numbers one is above 0.9 but for a chance of 0.9^100
    if name.startswith("ornn"):
        bound = {"ornn": (3 / 100) ** 0.5}.get(name, 0.01)
        assert 0.8 * bound < float(core.h0.detach().abs().max()) <= bound


def test_the_scornn_has_half_of_its_eigenvalues_reflected():
    torch.manual_seed(0)
    W = build("scornn", 1, 1, hidden_size=12, dtype=torch.float64).core.weight_hh_l0.detach()
    eigenvalues = torch.linalg.eigvals(W)
    assert int((eigenvalues.real > 0).sum()) == 6
    assert int((eigenvalues.real < 0).sum()) == 6


def test_rotations_spread_the_spectrum():
    torch.manual_seed(0)

    def ones(name):
        W = build(name, 1, 1, hidden_size=20, reflections=4, dtype=torch.float64).core.weight_hh_l0.detach()
        return int(((torch.linalg.eigvals(W) - 1).abs() < 1e-6).sum())

    assert ones("ornn") == 16
    assert ones("ornn-rotations") == 0


def test_the_lstm_starts_with_its_forget_gate_open():
    core = build("lstm", 2, 3, hidden_size=4).core
    total = (core.bias_ih_l0 + core.bias_hh_l0).detach()
    assert total.tolist() == [0] * 4 + [5] * 4 + [0] * 8


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        (("lstn", 1, 1), {}, "model must be one of .*Did you mean 'lstm'"),
        (("lstm", 1, 1), {"reflections": 3}, "lstm has no reflections; .* choose ornn, ornn-rotations"),
        (("ornn", 1, 1), {"angles": "full"}, "ornn has no angles; leave it out or choose ornn-rotations"),
        (("ornn-rotations", 1, 1), {"angles": "half"}, "angles"),
        (("ornn", 1, 1), {"hidden_size": 3, "parameters": 100}, "give one"),
        (
            ("ornn", 10, 10),
            {"parameters": 20},
            "parameters=20 is too few: the smallest ornn here, of width 1",
        ),
        (
            ("ornn", 10, 10),
            {"parameters": 100, "reflections": 8},
            "too few: the smallest ornn here, of width 8",
        ),
        (("ornn", 1, 1), {"hidden_size": 4, "reflections": 5}, "reflections"),
        (("ornn", 0, 1), {}, "input_size"),
        (("ornn", 1, 1), {"hidden_size": 0}, "hidden_size"),
        (("ornn", 1, 1), {"output": "first"}, "output"),
    ],
)
def test_wrong_arguments_are_named(arguments, options, message):
    with pytest.raises(ArgumentError, match=message):
        build(*arguments, **options)


def test_the_default_width_and_reflections():
    core = build("ornn", 1, 1).core
    assert isinstance(core, OrthogonalRNN)
    assert core.hidden_size == 128
    assert core.extra_repr()
    assert count_parameters(core) == count_parameters(build("ornn", 1, 1, reflections=32).core)
    assert build("ornn", 1, 1, hidden_size=3).core.hidden_size == 3
