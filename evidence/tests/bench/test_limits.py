"""The least time of a case, from rates that are given."""

from __future__ import annotations

import json

import pytest
import torch

from orthornn import cli
from orthornn_evidence.bench import machine
from orthornn_evidence.bench.cases import Case, Work
from orthornn_evidence.bench.limits import FIRST_CACHE, Rates, limit, measured_rates
from orthornn_evidence.bench.timing import Contender, Timing

RATES = Rates(threads=2, one_thread=1e9, all_threads=1.5e9, bandwidths={})


def test_the_limit_of_multiply_adds():
    """20 steps of 3 sequences of a dense 10 x 10 W, by hand; the gradient of W runs on all threads."""
    found = limit(Case.parse("cayley-10-b3"), Work(T=20), RATES)
    assert found.seconds == pytest.approx(20 * 3 * (2 * 100 / 1.5e9 + 100 / 1.5e9))
    assert found.chain_by == "multiply-adds"
    forward = limit(Case.parse("cayley-10-b3"), Work(T=20, passes="forward"), RATES)
    assert forward.seconds == pytest.approx(20 * 3 * 100 / 1.5e9)


def test_one_sequence_runs_on_one_thread():
    found = limit(Case.parse("wy-10-4-b1"), Work(T=7), RATES)
    assert found.seconds == pytest.approx(7 * (2 * (80 + 8) / 1e9 + (80 + 16) / 1.5e9))
    assert limit(Case.parse("wy-10-4-b1"), Work(T=7, passes="forward"), RATES).seconds == pytest.approx(7 * 88 / 1e9)


def test_threads_that_do_not_help_do_not_hurt():
    """Measured on a busy machine, all threads may be slower than one."""
    busy = Rates(2, 1e9, 0.9e9, {})
    assert limit(Case.parse("wy-10-4-b9"), Work(T=7, passes="forward"), busy).seconds == pytest.approx(7 * 9 * 88 / 1e9)


def test_the_limit_of_bandwidth():
    """Each step reads all weights, whatever the number of sequences, and multiplies once for each of them."""
    rates = Rates(1, 1e9, 1e9, {40_000: 1e9})
    alone = limit(Case.parse("cayley-100-b1"), Work(T=5, passes="forward"), rates)
    assert (alone.seconds, alone.chain_by) == (pytest.approx(5 * 40_000 / 1e9), "bandwidth")
    many = limit(Case.parse("cayley-100-b5"), Work(T=5, passes="forward"), rates)
    assert (many.seconds, many.chain_by) == (pytest.approx(5 * 50_000 / 1e9), "multiply-adds")


@pytest.mark.parametrize(
    ("name", "numbers"),
    [("cayley-10-b7", 100), ("wy-10-4-b7", 40 + 8), ("rotations-10-4-b7", 40 + 8 + 20), ("linear-10-b7", 20)],
)
def test_bytes_of_weights(name, numbers):
    assert Case.parse(name).weight_bytes() == 4 * numbers


def test_a_linear_recurrence_has_none():
    assert limit(Case.parse("linear-10-b8"), Work(), RATES) is None


def test_rates_are_measured_for_the_weights_that_leave_the_first_cache(monkeypatch):
    asked = []
    monkeypatch.setattr("orthornn_evidence.bench.limits.bandwidth", lambda size: asked.append(size) or 2.0)
    monkeypatch.setattr("orthornn_evidence.bench.limits.product_rate", lambda work, count=None: 3.0 if count else 4.0)
    small, large = Case.parse("cayley-64-b1"), Case.parse("cayley-100-b1")
    assert small.weight_bytes() <= FIRST_CACHE < large.weight_bytes()
    found = measured_rates([small, large, large], Work())
    assert asked == [40_000]
    assert found == Rates(torch.get_num_threads(), 3.0, 4.0, {40_000: 2.0})


def test_bandwidth_is_bytes_over_the_least_seconds(monkeypatch):
    def timed(contenders: list[Contender], rounds: int) -> dict[str, Timing]:
        return {contender.name: Timing([[2.0, 0.5]] * rounds) for contender in contenders}

    monkeypatch.setattr(machine, "interleave", timed)
    assert machine.bandwidth(2**20) == 2**24 / 0.5
    assert machine.bandwidth(2**30) == 2**30 / 0.5  # once, if it is large


def test_the_command_prints_the_limit_next_to_our_time(monkeypatch, capsys, tmp_path):
    monkeypatch.chdir(tmp_path)
    words = "bench --cases wy-6-2-b2,linear-6-b2 --peers rnn --rounds 1 --T 9 --no-chain --no-step --no-memory --out o"
    assert cli.main(words.split()) == 0
    printed = capsys.readouterr().out
    assert "limit ms" in printed
    results = json.loads((tmp_path / "o" / "results.json").read_text())
    ours, linear = results["cases"]
    assert 0 < ours["limit"]["seconds"] < ours["median_seconds"]["ours"]
    assert linear["limit"] is None
    assert f"orthornn is at {100 * ours['limit']['seconds'] / ours['median_seconds']['ours']:.0f} % of it" in printed
    assert results["limits"]["wy-256-32-b50"]["seconds"] > 0
