"""The ways of reading the last state: all timed, and none of them unless all read the same."""

from __future__ import annotations

import pytest
import torch

from orthornn import cli
from orthornn.errors import ArgumentError, VerificationError
from orthornn_evidence.bench import last_state
from orthornn_evidence.bench.cases import Case, Work
from orthornn_evidence.bench.last_state import H_N, OUT_LAST, OUTPUT_LAST, last_state_cost
from orthornn_evidence.bench.networks import OURS, Runnable
from orthornn_evidence.bench.tables import last_state_table
from orthornn_evidence.bench.training_step import step_model, step_nonlinearity


def test_every_way_is_timed_next_to_the_first():
    found = last_state_cost(Case("wy", 6, 2, 3), Work(T=5), rounds=2)
    assert list(found.timings) == [OUTPUT_LAST, H_N, OUT_LAST]
    assert all(len(timing.rounds) == 2 for timing in found.timings.values())
    assert found.ratios[OUTPUT_LAST].value == 1
    for way in (H_N, OUT_LAST):
        assert found.ratios[way].value == found.timings[way].median / found.timings[OUTPUT_LAST].median
    assert [row[0] for row in last_state_table(found).rows] == [OUTPUT_LAST, H_N, OUT_LAST]


@pytest.mark.parametrize("way", [H_N, OUT_LAST])
def test_nothing_is_timed_if_one_way_reads_another_state(way, monkeypatch):
    read = last_state.WAYS[way]
    monkeypatch.setitem(last_state.WAYS, way, lambda rnn, x: read(rnn, torch.cat([x[:1] + 1, x[1:]])))
    monkeypatch.setattr(last_state, "interleave", lambda *given: pytest.fail("timed"))
    with pytest.raises(VerificationError, match=r"Expected (h_n|out\[-1\]) to read what output=.last. does"):
        last_state_cost(Case("cayley", 6, 0, 3), Work(T=5), rounds=1)


def test_the_command_shows_and_stores_it(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("orthornn_evidence.bench.floors.LAST_STATE_CASE", "wy-5-2-b2")
    words = ["--cases", "wy-6-2-b2", "--T", "5", "--rounds", "1", "--no-chain", "--no-step", "--no-memory"]
    assert cli.main(["bench", *words, "--peers", "rnn", "--out", "results"]) == 0
    shown = capsys.readouterr().out
    assert "reading the last state: n = 5, 2 reflections, B = 2, T = 5" in shown
    assert '"last_state"' in (tmp_path / "results" / "results.json").read_text()


@pytest.mark.parametrize("name", ["wy-6-2-b3", "rotations-6-2-b3", "cayley-5-b2"])
def test_the_model_of_a_training_step_is_the_network_of_its_case(name):
    """Same form, size and nonlinearity, so that the verification of one holds for the other."""
    case = Case.parse(name)
    ours = Runnable.make(OURS, case, Work(T=2, nonlinearity=step_nonlinearity(case))).module
    core = step_model(case).core(1, case.n, {})
    assert core.nonlinearity == ours.nonlinearity
    assert core.weight_ih_l0.shape == ours.weight_ih_l0.shape
    shapes = [[tuple(p.shape) for p in net.transition_l0.parameters()] for net in (core, ours)]
    assert shapes[0] == shapes[1]
    assert core.parametrization == ours.parametrization
    with pytest.raises(ArgumentError, match="Expected a case wy-N-M-bB, rotations-N-M-bB or cayley"):
        step_model(Case("linear", 4, 0, 1))
