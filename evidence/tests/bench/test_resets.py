"""Resets are timed beside what else one can do, after their states were verified."""

from __future__ import annotations

import json

import pytest
import torch

from orthornn import cli
from orthornn.errors import VerificationError
from orthornn_evidence.bench import resets
from orthornn_evidence.bench.cases import Case, Work


@pytest.fixture(autouse=True)
def one_thread():
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)


def test_all_are_timed(tmp_path, capsys):
    words = ["bench", "--resets", "0.3", "--cases", "wy-9-3-b2,cayley-8-b1,linear-6-b2", "--T", "12", "--rounds", "2"]
    assert cli.main([*words, "--out", str(tmp_path)]) == 0
    found = json.loads((tmp_path / "results.json").read_text())["resets"]
    assert [tuple(times["timings"]) for times in found] == [resets.NAMES] * 3
    assert all(1 < times["pieces"] <= 12 for times in found)
    assert "nn.LSTM per piece" in capsys.readouterr().out


def test_pieces_of_an_lstm_are_its_episodes():
    torch.manual_seed(0)
    module, x = torch.nn.LSTM(1, 4), torch.randn(9, 2, 1)
    reset = torch.zeros(9, 2, dtype=torch.bool)
    reset[4, 0] = reset[6, 1] = reset[0, 1] = True
    found = resets._pieces(module, x, reset)
    torch.testing.assert_close(found[4:, :1], module(x[4:, :1])[0])
    torch.testing.assert_close(found[:6, 1:], module(x[:6, 1:])[0])
    torch.testing.assert_close(found[6:, 1:], module(x[6:, 1:])[0])


def test_wrong_states_are_an_error(monkeypatch):
    monkeypatch.setattr(resets, "rounding_bound", lambda *sizes: -1.0)
    with pytest.raises(VerificationError, match="step loop"):
        resets.reset_times([Case.parse("wy-9-3-b2")], Work(T=5, output="all"), 0.5, 1, lambda line: None)
