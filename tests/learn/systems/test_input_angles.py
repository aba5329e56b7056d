"""Angles by the spectrum of the training inputs."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch.nn.utils.rnn import pack_sequence

from orthornn.errors import ArgumentError, DataError
from orthornn.learn.systems import model_named
from orthornn.learn.systems.input_angles import draw_by_spectrum, power_spectrum, sequences_of
from orthornn.learn.tasks import Classify, Copying, Forecast
from orthornn.learn.training import RunConfig, train
from orthornn.learn.training.trainer import Trainer
from orthornn.modules import Transition

RANDOM = np.random.default_rng(0)
GRID = np.linspace(0, math.pi, 257)


def test_the_power_is_welchs_estimate():
    from scipy import signal

    x = RANDOM.standard_normal((1024, 3)) + 5
    window = np.hanning(514)[1:-1]
    frequencies, expected = signal.welch(
        x - x.mean(0), 2 * math.pi, window, noverlap=0, nfft=512, detrend=False, axis=0, return_onesided=False
    )
    order = frequencies >= 0
    wanted = expected[order].sum(1)
    found = power_spectrum([torch.from_numpy(x)])[: len(wanted)]
    np.testing.assert_allclose(found / found.sum(), wanted / wanted.sum(), rtol=1e-10)


@pytest.mark.parametrize("lengths", [(40,), (7, 513, 90), (1, 1, 300)])
def test_a_sinusoid_has_its_power_at_its_frequency(lengths):
    found = power_spectrum([torch.sin(0.7 * torch.arange(length) + 1)[:, None] for length in lengths])
    assert abs(GRID[found.argmax()] - 0.7) < 2 * math.pi / max(lengths)


def test_the_power_over_regular_time_is_that_over_steps():
    x = torch.from_numpy(RANDOM.standard_normal((3, 600, 2)))
    timed = torch.cat([x, torch.ones(3, 600, 1)], -1)
    np.testing.assert_allclose(power_spectrum(timed, timed=True), power_spectrum(x), rtol=1e-9)


def test_a_sinusoid_with_most_of_its_samples_dropped_has_its_power_at_its_frequency():
    times = np.sort(np.argsort(RANDOM.random((5, 900)), 1)[:, :200], 1) + 1.0
    rows = np.stack([np.sin(0.7 * times), np.diff(times, axis=1, prepend=0)], -1)
    found = power_spectrum([torch.from_numpy(own) for own in rows], timed=True)
    assert abs(GRID[found.argmax()] - 0.7) < 4 * math.pi / 900


def test_the_mean_of_an_input_is_no_frequency():
    x = torch.from_numpy(RANDOM.standard_normal((4, 200, 2)))
    np.testing.assert_allclose(power_spectrum(x), power_spectrum(x + torch.tensor([100.0, -7.0])), rtol=1e-6)


@pytest.mark.parametrize("x", [torch.full((3, 30, 2), 0.1), torch.zeros(1, 5, 1), torch.zeros(0, 4, 1)])
def test_inputs_that_do_not_vary_have_no_frequencies(x):
    with pytest.raises(DataError, match="Expected training inputs that vary"):
        power_spectrum(x)


@pytest.mark.parametrize("count", [1, 2, 7, 64])
def test_angles_are_half_by_the_power_and_half_by_the_circle(count):
    """One in each equal share: their distribution function is nowhere farther from the wanted one than 1 / count."""
    power = np.where((GRID > 0.5) & (GRID < 0.6), 1.0, 0.0)
    angles = draw_by_spectrum(power, count, torch.Generator().manual_seed(count)).numpy()
    for bound in np.linspace(0, math.pi, 50):
        wanted = bound / math.pi / 2 + np.clip((bound - 0.5) / 0.1, 0, 1) / 2
        assert abs((np.abs(angles) <= bound).mean() - wanted) <= 1 / count + 0.06  # of the grid's edges
    assert np.abs(angles).max() <= math.pi
    if count == 64:
        assert 20 < (angles > 0).sum() < 44


def test_no_angles_are_drawn_for_no_rotations():
    assert draw_by_spectrum(np.ones(257), 0).shape == (0,)


def slow(path, rows=40, steps=60):
    """Sequences of two classes, both slow."""
    rates = np.where(np.arange(rows) % 2, 0.1, 0.2)
    x = np.sin(rates[:, None] * np.arange(steps) + RANDOM.uniform(0, 6, (rows, 1)))
    np.savez(path, x=x[:, :, None], y=np.arange(rows) % 2)
    return Classify(data=str(path), target="y")


def angles_of(trainer):
    transitions = [module for module in trainer.model.modules() if isinstance(module, Transition)]
    return torch.cat([transition.free()[0].detach().abs() for transition in transitions])


@pytest.mark.parametrize("options", [{}, {"decay": True, "bidirectional": True}])
def test_a_training_starts_where_its_inputs_have_their_frequencies(tmp_path, options):
    task = slow(tmp_path / "slow.npz")
    model = model_named("blocks", hidden_size=64, angles="inputs", **options)
    config = RunConfig(task=task, model=model, steps=2, batch_size=4, seed=3)
    found = angles_of(Trainer(config))
    assert len(found) == 64 * (4 if options else 2)
    assert 0.5 < (found < 0.5).double().mean() < 0.75  # half of them, and those of the circle
    plain = angles_of(Trainer(RunConfig(task=task, model=model.replace(angles=None), steps=2, batch_size=4, seed=3)))
    assert (plain < 0.5).double().mean() < 0.3
    assert torch.equal(found, angles_of(Trainer(config)))
    other = angles_of(Trainer(RunConfig(task=task, model=model, steps=2, batch_size=4, seed=4)))
    assert not torch.equal(found, other)
    whole = train(config, tmp_path / "run")
    assert whole.model.state_dict().keys() == train(config).model.state_dict().keys()


def test_numbers_of_series_are_no_input(tmp_path):
    lines = [f"{name},{math.sin(0.3 * t + k):.6f}" for k, name in enumerate("abc") for t in range(80)]
    (tmp_path / "many.csv").write_text("\n".join(["sequence,v", *lines]) + "\n")
    task = Forecast(data=str(tmp_path / "many.csv"), target="v", skipped=4, window=30, embedding=2)
    model = model_named("blocks", hidden_size=64, angles="inputs")
    found = angles_of(Trainer(RunConfig(task=task, model=model, steps=1, batch_size=4)))
    assert ((found > 0.1) & (found < 0.5)).double().mean() > 0.4


def test_tokens_and_other_rotations_have_none():
    config = RunConfig(task=Copying(T=3), model=model_named("blocks", hidden_size=4, angles="inputs"), steps=1)
    with pytest.raises(ArgumentError, match=r"but copying has tokens\. Pass other angles"):
        Trainer(config)
    with pytest.raises(ArgumentError, match="angles"):
        model_named("blocks", hidden_size=4, angles="some")
    with pytest.raises(ArgumentError, match="angles"):
        Trainer(RunConfig(task=Copying(T=3), model=model_named("ornn-rotations", angles="inputs"), steps=1))


def test_a_packed_batch_has_the_sequences_of_its_padded_one():
    sequences = [torch.randn(length, 2) for length in (3, 5, 1)]
    found = [*sequences_of(pack_sequence(sequences, enforce_sorted=False))]
    assert all(torch.equal(a, b) for a, b in zip(found, sequences, strict=True))
    x = torch.randn(4, 3, 2)
    assert torch.equal(torch.stack([*sequences_of(x)], 1), x)
