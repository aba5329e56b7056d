"""The bound on rounding: no input within the ranges moves the outputs of integers by more."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch

from export.test_c_integers import CASES, network
from orthornn import Householder, OrthogonalRNN
from orthornn.errors import ArgumentError, OrthornnWarning
from orthornn.export import to_c
from orthornn.export.c.disturbance import rounding_bounds

T = 30


def errors(made, x):
    """Return the norms of what integers add to the outputs, (B, T), for raw x (B, T, I) or tokens (B, T)."""
    states = [np.broadcast_to(h, (len(x), len(h))) for h in made.network.first_states()]
    outputs = []
    for t in range(x.shape[1]):
        y, states = made.network.step(x[:, t], list(states))
        outputs.append(y)
    return np.linalg.norm(made.integers.run(x) * made.integers.output_scale - np.stack(outputs, 1), axis=-1)


def exported(model, folder, numbers, x, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", OrthornnWarning)
        given = options or {"calibration": x}
        return to_c(model, folder, numbers=numbers, force=True, **given)


def inputs(tokens=False):
    """Return random sequences, and such as hold the ends of the range for some steps."""
    random = np.random.default_rng(0)
    if tokens:
        return random.integers(0, 3, (40, T))
    held = np.repeat(random.choice([-1.0, 1.0], (20, T // 5, 3)), 5, axis=1)
    return np.concatenate([random.uniform(-1, 1, (20, T, 3)), held]).astype(np.float32)


def without_jumps(model):
    with torch.no_grad():
        for name, parameter in model.core.named_parameters():
            if model.core.nonlinearity == "modrelu" and name.startswith("bias"):
                parameter.clamp_(max=-0.01)
    return model


@pytest.mark.sampled(12)
@pytest.mark.parametrize("numbers", ["int8", "int16"])
@pytest.mark.parametrize("ranges", ["data", "bound"])
@pytest.mark.parametrize("name", CASES)
def test_integers_stay_within_the_bound(name, ranges, numbers, tmp_path):
    torch.manual_seed(0)
    model, x = without_jumps(network(size=12, **CASES[name])), inputs()
    options = {"input_range": (-1.0, 1.0), "steps": T} if ranges == "bound" else {}
    made = exported(model, tmp_path, numbers, x, **options)
    found = errors(made, x)
    for steps in (1, 7, T):
        limit = made.rounding_bound(steps)
        assert found[:, :steps].max() <= limit
        assert np.isfinite(limit)


@pytest.mark.parametrize("size", [1, 9])
def test_tokens_stay_within_the_bound(size, tmp_path):
    core = OrthogonalRNN(3, size, nonlinearity="tanh", parametrization=Householder(1))
    from orthornn.learn.systems import SequenceModel

    model = SequenceModel(core, torch.nn.Linear(size, 2), output="all").eval()
    run = type("Run", (), {"model": model, "description": {"input": "tokens", "input_size": 3}, "threshold": None})()
    x = inputs(tokens=True)
    made = exported(run, tmp_path, "int16", x)
    assert errors(made, x).max() <= made.rounding_bound(T) < 1


def test_the_bound_is_finer_for_more_bits_and_grows_with_the_steps(tmp_path):
    torch.manual_seed(0)
    model, x = network(size=8, nonlinearity="tanh", parametrization=Householder(2)), inputs()
    rough, fine = (exported(model, tmp_path, numbers, x) for numbers in ("int8", "int16"))
    assert fine.rounding_bound(T) < rough.rounding_bound(T) / 10
    assert fine.rounding_bound(1) < fine.rounding_bound(T)
    assert fine.rounding_bound(T) < 1000 * errors(fine, x).max()  # it is of some use


def test_a_forgetting_network_has_a_limit(tmp_path):
    x = inputs()
    model = network(size=8, nonlinearity="tanh", gain=0.5)
    made = exported(model, tmp_path, "int16", x)
    assert made.rounding_bound(10**7) == pytest.approx(made.rounding_bound(1000))


def test_what_jumps_has_no_bound_and_the_header_says_so(tmp_path):
    x = inputs()
    model = network(size=6, nonlinearity="modrelu", parametrization=Householder(2))
    with torch.no_grad():
        model.core.get_parameter("bias_l0" if hasattr(model.core, "bias_l0") else "bias_ih_l0").fill_(0.1)
    made = exported(model, tmp_path, "int16", x)
    assert made.rounding_bound(1) == np.inf
    assert "No bound on the effect of rounding exists" in (tmp_path / "network.h").read_text()
    made = exported(without_jumps(model), tmp_path, "int16", x)
    numbers = [f"{limit:.2g}" for limit in rounding_bounds(made.integers, (1, 10, 100))]
    assert f"moved the outputs by at most {', '.join(numbers)}" in (tmp_path / "network.h").read_text()


def test_float32_has_no_integers(tmp_path):
    made = to_c(network(size=5), tmp_path)
    with pytest.raises(ArgumentError, match="got float32"):
        made.rounding_bound(3)
