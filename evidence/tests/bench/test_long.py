"""A training step in every memory mode: measured, compared, and withheld where gradients differ."""

from __future__ import annotations

import json

import pytest

from orthornn import cli
from orthornn.errors import VerificationError
from orthornn_evidence.bench import long
from orthornn_evidence.bench.cases import Case, Work


@pytest.fixture
def here(monkeypatch):
    """Measured in this process: starting others takes longer than the steps."""
    monkeypatch.setattr(long, "in_own_process", lambda what, timeout, measure, *arguments: measure(*arguments))


def test_every_mode_is_measured(here):
    cases = [Case.parse("cayley-8-b2"), Case.parse("wy-9-3-b1")]
    steps = long.long_steps(cases, Work(T=900), 2, lambda line: None)
    assert [(step.case, step.mode) for step in steps] == [
        (case, mode) for case in cases for mode in ("store", "checkpoint")
    ]
    assert all(len(step.timing.runs) == 2 for step in steps)
    assert [step.segment > 0 for step in steps] == [False, True] * 2
    assert all(step.saved_bytes < steps[0].saved_bytes / 3 for step in steps[1:2])
    assert len(long.long_table(steps).rows) == 4


def test_a_wrong_gradient_is_an_error(here, monkeypatch):
    monkeypatch.setattr(long, "rounding_bound", lambda *sizes: -1.0)
    with pytest.raises(VerificationError, match="a gradient differs from 'store'"):
        long.long_steps([Case.parse("cayley-8-b2")], Work(T=50), 1, lambda line: None)


@pytest.mark.slow
def test_a_million_steps_rise_by_less_than_500_megabytes(tmp_path):
    words = ["bench", "--long", "1000000", "--rounds", "1", "--cases", "cayley-128-b1", "--out", str(tmp_path)]
    assert cli.main(words) == 0
    steps = json.loads((tmp_path / "results.json").read_text())["steps"]
    peaks = {step["mode"]: step["peak_bytes"] for step in steps}
    assert set(peaks) == {"store", "checkpoint"}
    assert peaks["checkpoint"] < 500e6 < peaks["store"]
