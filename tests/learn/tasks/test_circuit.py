from __future__ import annotations

import numpy as np
import pytest

from orthornn.learn.tasks import circuit
from orthornn.learn.tasks.circuit import clipped, filtered, overdrive, tone_stack

RATE = 44100


def published(s, t, m, l):
    """The transfer function of the tone stack as Yeh and Smith (2006) print it."""
    R1, R2, R3, R4 = 250e3, 1e6, 25e3, 56e3
    C1, C2, C3 = 0.25e-9, 20e-9, 20e-9
    b1 = t * C1 * R1 + m * C3 * R3 + l * (C1 * R2 + C2 * R2) + C1 * R3 + C2 * R3
    b2 = (
        t * (C1 * C2 * R1 * R4 + C1 * C3 * R1 * R4)
        - m**2 * (C1 * C3 * R3**2 + C2 * C3 * R3**2)
        + m * (C1 * C3 * R1 * R3 + C1 * C3 * R3**2 + C2 * C3 * R3**2)
        + l * (C1 * C2 * R1 * R2 + C1 * C2 * R2 * R4 + C1 * C3 * R2 * R4)
        + l * m * (C1 * C3 * R2 * R3 + C2 * C3 * R2 * R3)
        + C1 * C2 * R1 * R3
        + C1 * C2 * R3 * R4
        + C1 * C3 * R3 * R4
    )
    CCC = C1 * C2 * C3
    b3 = (
        l * m * CCC * (R1 * R2 * R3 + R2 * R3 * R4)
        - m**2 * CCC * (R1 * R3**2 + R3**2 * R4)
        + m * CCC * (R1 * R3**2 + R3**2 * R4)
        + t * CCC * R1 * R3 * R4
        - t * m * CCC * R1 * R3 * R4
        + t * l * CCC * R1 * R2 * R4
    )
    a1 = C1 * R1 + C1 * R3 + C2 * R3 + C2 * R4 + C3 * R4 + m * C3 * R3 + l * (C1 * R2 + C2 * R2)
    a2 = (
        m * (C1 * C3 * R1 * R3 - C2 * C3 * R3 * R4 + C1 * C3 * R3**2 + C2 * C3 * R3**2)
        + l * m * (C1 * C3 * R2 * R3 + C2 * C3 * R2 * R3)
        - m**2 * (C1 * C3 * R3**2 + C2 * C3 * R3**2)
        + l * (C1 * C2 * R2 * R4 + C1 * C2 * R1 * R2 + C1 * C3 * R2 * R4 + C2 * C3 * R2 * R4)
        + C1 * C2 * R1 * R4
        + C1 * C3 * R1 * R4
        + C1 * C2 * R3 * R4
        + C1 * C2 * R1 * R3
        + C1 * C3 * R3 * R4
        + C2 * C3 * R3 * R4
    )
    a3 = (
        l * m * CCC * (R1 * R2 * R3 + R2 * R3 * R4)
        - m**2 * CCC * (R1 * R3**2 + R3**2 * R4)
        + m * CCC * (R3**2 * R4 + R1 * R3**2 - R1 * R3 * R4)
        + l * CCC * R1 * R2 * R4
        + CCC * R1 * R3 * R4
    )
    return (b1 * s + b2 * s**2 + b3 * s**3) / (1 + a1 * s + a2 * s**2 + a3 * s**3)


@pytest.mark.parametrize("controls", [(0.7, 0.5, 0.5), (0.1, 0.9, 0.2), (1.0, 0.3, 0.99)])
def test_the_tone_stack_is_the_published_one(controls):
    s = 2j * np.pi * np.geomspace(20, 20000, 50)
    found = tone_stack(s, *controls)
    assert np.abs(found - published(s, *controls)).max() < 1e-9
    assert np.abs(found).max() < 1  # no part of it amplifies


def test_the_clipper_solves_its_equation():
    u = 5 * np.sin(np.arange(40000) * 0.05) * np.linspace(0, 1, 40000)
    v = clipped(u, RATE)
    a, b = 1 / (RATE * 2.2e3 * 10e-9), 2 * 2.52e-9 / (RATE * 10e-9)
    before = np.concatenate([[0], v[:-1]])
    assert np.abs((1 + a) * v + b * np.sinh(v / 45.3e-3) - before - a * u).max() < 1e-9
    assert 0.5 < np.abs(v).max() < 0.7  # of diodes


@pytest.mark.sampled(1)
@pytest.mark.parametrize("rate", [8000, RATE, 192000])
def test_chunks_make_no_difference(rate, monkeypatch):
    u = 3 * np.random.default_rng(0).standard_normal(9000)
    whole = clipped(u, rate)
    monkeypatch.setattr(circuit, "_CHUNK", 4000)
    assert np.abs(clipped(u, rate) - whole).max() < 1e-12


def test_a_filter_is_causal_and_knows_its_response():
    x = np.zeros(3000)
    x[1000] = 1
    y = filtered(x, RATE, lambda s: 1 / (1 + s / 1000))
    assert np.abs(y[:1000]).max() < 1e-9
    assert y[1000] > 0
    assert y.sum() == pytest.approx(1, rel=1e-6)  # at frequency 0


def test_the_pedal_is_small_signal_linear_and_saturates():
    x = 1e-5 * np.sin(np.arange(20000) * 0.1)
    small, twice = overdrive(x, RATE, 20), overdrive(2 * x, RATE, 20)
    assert np.abs(twice - 2 * small).max() < 1e-4 * np.abs(small).max()
    loud = overdrive(1e5 * x, RATE, 20)
    assert np.abs(loud).max() < 1
    assert np.isfinite(overdrive(np.ones(10), 1, 1e6)).all()
