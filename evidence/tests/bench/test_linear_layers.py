"""The bench of linear layers: what it times is right, or an error."""

from __future__ import annotations

import json

import pytest
import torch

from orthornn.cli import main
from orthornn.errors import VerificationError
from orthornn_evidence.bench import linear_layers
from orthornn_evidence.bench.linear_layers import NAMES, make, measure, scan_by_doubling, table, verify


@pytest.mark.parametrize("T", [1, 2, 3, 8, 13])
def test_a_scan_by_doubling_is_the_loop(T):
    w = torch.polar(torch.tensor([1.0, 0.5, 0.9], dtype=torch.float64), torch.tensor([0.3, 2.0, -1.0]).double())
    u = torch.randn(T, 2, 3, dtype=torch.complex128)
    h, expected = torch.zeros(2, 3, dtype=torch.complex128), []
    for u_t in u:
        h = w * h + u_t
        expected.append(h)
    torch.testing.assert_close(scan_by_doubling(w, u), torch.stack(expected), rtol=0, atol=1e-13)


def test_all_contenders_are_verified_and_one_that_is_wrong_is_an_error(monkeypatch):
    found = verify(5, 8)
    assert set(found) == {"blocks", "kernel", "fft", "chunked", "lru", "s5"}
    monkeypatch.setattr(linear_layers, "scan_by_doubling", lambda w, u: u)
    with pytest.raises(VerificationError, match="Expected lru to be its step loop"):
        verify(5, 8)


def test_gradients_of_all_ways_are_those_of_the_loop():
    x = torch.randn(12, 7, 1, dtype=torch.float64)
    for name in ("blocks", "kernel", "fft", "chunked", "lru", "s5"):
        torch.manual_seed(0)
        layer = make(name, 3, 6, torch.float64)
        leaves = list(layer.parameters())
        found = torch.autograd.grad(layer(x).square().sum(), leaves)
        for a, b in zip(found, torch.autograd.grad(layer.by_steps(x).square().sum(), leaves)):
            torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-9)


def test_every_contender_is_timed_at_every_length():
    times = measure({5: 2, 9: 1}, 3, 4, 1, lambda line: None)
    assert {(t.T, t.place, t.name) for t in times if t.place == "all"} == {
        (T, "all", name) for T in (5, 9) for name in NAMES if name != "kernel"
    }
    assert {t.name for t in times if t.place == "last"} == {"blocks", "kernel", "lru", "s5", "lstm", "gru"}
    assert all(t.seconds >= 0 and t.parameters > 0 for t in times)
    assert len(table(times).rows) == len(times)


def test_the_command(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(linear_layers, "measure", lambda lengths, **_: measure(dict.fromkeys([5], 1), 3, 4, 1, print))
    assert main(["bench", "--layers", "--out", str(tmp_path / "out")]) == 0
    assert "processor time" in capsys.readouterr().out
    assert {entry["name"] for entry in json.loads((tmp_path / "out" / "results.json").read_text())["times"]} == set(
        NAMES
    )
