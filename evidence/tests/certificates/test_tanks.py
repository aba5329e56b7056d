"""The tanks settle where pumps and outflow are equal, and comparisons resume."""

from __future__ import annotations

import json

import numpy as np
import torch

from orthornn_evidence.certificates import tanks
from orthornn_evidence.certificates.table import certificates
from orthornn_evidence.certificates.tanks import batch, levels, run


def test_the_tanks_settle_at_the_squares_of_what_flows_through_them():
    pumps = np.full((2000, 1, 2), (0.5, 0.25))
    np.testing.assert_allclose(levels(pumps), [[0.25, 0.5625]], rtol=1e-3)
    assert (levels(np.zeros((50, 3, 2))) == 0).all()


def test_a_batch_is_a_function_of_its_number():
    first, again, other = batch(25, 3, 0, 1), batch(25, 3, 0, 1), batch(25, 3, 0, 2)
    assert first[0].shape == (25, 3, 2)
    assert first[1].shape == (3, 2)
    assert torch.equal(first[0], again[0])
    assert not torch.equal(first[0], other[0])
    assert torch.equal(first[0][0], first[0][9])
    assert not torch.equal(first[0][0], first[0][10])


def test_what_is_compared_is_stored_and_shown(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(tanks, "UPDATES", 2)
    monkeypatch.setattr(tanks, "TRAINED", 10)
    monkeypatch.setattr(tanks, "sdp_bound", lambda W, V, Y, steps: 2.0 * steps)
    monkeypatch.setattr(tanks, "_VERSIONS", ())
    file = tmp_path / "certificates" / "tanks.json"
    file.parent.mkdir()
    run(file, [(4, 3)])
    run(file, [(4, 3), (4, 5)])
    runs = json.loads(file.read_text())["runs"]
    assert [(one["network"], one["T"]) for one in runs] == [(name, T) for T in (3, 5) for name in tanks.NETWORKS]
    assert all(0 < one["attack"] <= one["closed form"] for one in runs)
    table = certificates(tmp_path, "tanks").splitlines()
    assert len(table) == 2 + len(runs)
    assert table[2].split("|")[7].strip() == f"{6 / runs[0]['attack']:.3g}"
