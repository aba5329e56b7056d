"""The peers are what they are called, and all of their parameters get gradients."""

from __future__ import annotations

import multiprocessing
import sys

import pytest
import torch
from torch.nn import functional as F

from orthornn import rotation_basis as basis
from orthornn.errors import ArgumentError, BackendError
from orthornn.kernels.backends.cpp import extension
from orthornn_evidence.bench.cases import Case, Work
from orthornn_evidence.bench.chain import chain_speed
from orthornn_evidence.bench.figures import sweep_figure
from orthornn_evidence.bench.memory import peak_bytes
from orthornn_evidence.bench.networks import NETWORKS, Runnable, output_of, peers
from orthornn_evidence.bench.scaling import Grid, power, sweep, sweep_tables
from orthornn_evidence.bench.timing import Timing
from orthornn_evidence.bench.training_step import training_step
from support.tolerances import tolerance

CASE = Case("wy", 8, 3, 2)
HERE = [name for name, network in NETWORKS.items() if network.missing() is None and network.form is None]
needs_kernels = pytest.mark.skipif(extension.missing() is not None, reason="the compiled kernels are not built")


@pytest.mark.parametrize("output", ["last", "all"])
@pytest.mark.parametrize("name", HERE)
def test_a_run_reaches_every_parameter(name, output):
    runnable = Runnable.make(name, CASE, Work(T=6, output=output))
    runnable.run()
    assert all(p.grad is not None and p.grad.abs().max() > 0 for p in runnable.module.parameters())
    assert runnable.parameters == sum(p.numel() for p in runnable.module.parameters())
    runnable.clear()
    assert all(p.grad is None for p in runnable.module.parameters())


@pytest.mark.parametrize("name", HERE)
def test_the_last_output_is_the_last_state(name):
    runnable = Runnable.make(name, CASE, Work(T=6))
    states, last = (output_of(runnable.module, runnable.x, output) for output in ("all", "last"))
    assert states.shape[:2] == (6, 2)
    torch.testing.assert_close(states[-1], last, rtol=0, atol=tolerance(torch.float32))


@pytest.mark.parametrize("name", [name for name in HERE if "rnn" in name or name == "loop"])
def test_rnn_peers_follow_their_formula(name):
    """In particular a parametrized nn.RNN uses its parametrized matrix, before and after an update."""
    runnable = Runnable.make(name, CASE, Work(T=6))
    module = runnable.module
    for _ in range(2):
        if name == "loop":
            V, b, W = module.projection.weight, module.projection.bias, module.weight_hh
        else:
            rnn = getattr(module, "rnn", module)
            V, W, b = rnn.weight_ih_l0, rnn.weight_hh_l0, rnn.bias_ih_l0 + rnn.bias_hh_l0
        if name != "loop":
            eye = torch.eye(8)
            is_orthogonal = (W.T @ W - eye).abs().max() < tolerance(torch.float32, 8 * 8)
            assert is_orthogonal or (name == "rnn" and module.weight_hh_l0.grad is not None)
        h = torch.zeros(2, 8)
        for x in runnable.x:
            h = torch.tanh(F.linear(x, V, b) + h @ W.T)
        torch.testing.assert_close(output_of(module, runnable.x, "last"), h, rtol=0, atol=tolerance(torch.float32, 48))
        runnable.run()
        with torch.no_grad():
            for p in module.parameters():
                p.sub_(0.1 * p.grad)


@pytest.mark.parametrize("name", ["wy-256-32-b1", "rotations-256-16-b1", "wy-8-3-b2", "cayley-40-b1"])
def test_the_lstm_of_equal_parameters_is_the_largest_that_does_not_exceed_ours(name):
    case = Case.parse(name)
    ours, lstm = (Runnable.make(which, case, Work(T=2)) for which in ("ours", "lstm-parameters"))
    width = lstm.module.hidden_size
    assert lstm.parameters == 4 * width * (1 + width + 2)
    assert lstm.parameters <= ours.parameters < 4 * (width + 1) * (width + 4)


def test_the_networks_are_the_same_every_time_and_leave_the_generator_alone():
    before = torch.get_rng_state()
    first, second = (Runnable.make("ours", CASE, Work(T=4)) for _ in range(2))
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(first.x, second.x)
    assert all(torch.equal(a, b) for a, b in zip(first.module.parameters(), second.module.parameters()))


def test_a_linear_case_finds_its_rotations_as_often_as_w_changes(monkeypatch):
    calls = []
    monkeypatch.setattr(basis, "decompose", lambda W, original=basis.decompose: calls.append(1) or original(W))
    case = Case.parse("linear-6-b2")
    found = {}
    for name, wanted in (("ours", 3), ("known", 1), ("matrix", 0)):
        runnable = Runnable.make(name, case, Work(T=5))
        basis.forget()
        calls.clear()
        for _ in range(3):
            runnable.clear()
            runnable.run()
        assert len(calls) == wanted
        found[name] = [p.grad for p in runnable.module.parameters()]
    for name in ("ours", "known"):
        for mine, theirs in zip(found[name], found["matrix"]):
            torch.testing.assert_close(mine, theirs, rtol=0, atol=tolerance(torch.float32, 30))
    runnable = Runnable.make("ours", case, Work(T=5, passes="forward"))
    runnable.run()
    assert all(p.grad is None for p in runnable.module.parameters())


def test_peers_by_name():
    assert peers("lstm, rnn,rnn,") == ["rnn", "lstm"]
    assert peers("") == []
    with pytest.raises(ArgumentError, match="Did you mean 'loop'"):
        peers("lop")


def test_a_peer_without_its_package_says_so(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert NETWORKS["rnn-geotorch"].missing() == "the package geotorch is not installed"
    with pytest.raises(ArgumentError, match="geotorch is not installed"):
        Runnable.make("rnn-geotorch", CASE, Work(T=2))


@pytest.mark.skipif("forkserver" not in multiprocessing.get_all_start_methods(), reason="no forkserver here")
@pytest.mark.skipif(sys.platform != "linux", reason="the high-water mark can be set back on Linux alone")
def test_peak_memory_counts_what_a_network_keeps():
    """Ours keeps T B (N + M) numbers for the backward pass, and makes no more than a few times as many there."""
    case, work = Case("wy", 64, 8, 16), Work(T=1000)
    saved = 4 * work.T * case.batch * (case.n + case.m)
    # The mark is the process's: pages freed by the short run before are used again and do not count.
    assert saved / 2 <= peak_bytes("ours", case, work) < 6 * saved


@needs_kernels
def test_the_chain_alone():
    found = chain_speed(Work(T=3), 7, 2, rounds=2)
    assert set(found.shares) == {"forward", "backward"}
    for name, share in found.shares.items():
        seconds, product = found.timings[name].median, found.timings["matrix product"].median
        assert share.value == pytest.approx((7 * 7 * 2 * 3 / seconds) / (1024**3 / product))
        assert share.low <= share.high


@needs_kernels
@pytest.mark.parametrize("name", ["wy-6-2-b1", "cayley-5-b3"])
def test_a_training_step_is_divided_at_the_kernels(name):
    compiled = extension.native
    found = training_step(5, 2, Case.parse(name))
    assert (found.case.name, found.T) == (name, 5)
    assert extension.native is compiled
    assert len(found.update.rounds) == len(found.inside.rounds) == len(found.outside.rounds) == 2
    for update, inside, outside in zip(found.update.runs, found.inside.runs, found.outside.runs):
        assert 0 < inside < update
        assert outside == pytest.approx(update - inside)


def test_without_the_compiled_kernels_neither_is_measured(monkeypatch):
    monkeypatch.setattr(extension, "_REASON", "no compiler was found")
    for measure in (lambda: chain_speed(Work(T=3), 4, 1, 1), lambda: training_step(3, 1, CASE)):
        with pytest.raises(BackendError, match="no compiler was found"):
            measure()


def test_a_sweep(tmp_path):
    grid = Grid(6, 2, 1, 5, n_values=(4, 6), m_values=(2,), B_values=(1,), T_values=(5,))
    found = sweep(grid, Work(), rounds=2, cap=1.0)
    assert [(p.n, p.m, p.B, p.T) for p in found.points] == [
        (4, 2, 1, 5),
        *[(6, 2, 1, 5)] * 4,
    ]
    assert all(set(p.timings) == {"WY", "dense", "nn.RNN", "nn.LSTM"} for p in found.points)
    tables = sweep_tables(found)
    assert [table.columns[0].heading for table in tables] == ["n", "m", "B", "T"]
    assert [[row[0] for row in table.rows] for table in tables] == [["4", "6"], ["2"], ["1"], ["5"]]
    sweep_figure(tmp_path / "sweep.png", found)
    assert (tmp_path / "sweep.png").stat().st_size > 5000


def test_the_power_by_which_cost_grew():
    timings = [Timing([[1.0]]), Timing([[8.0]]), Timing([[8.0]])]
    assert [power([2, 4, 8], timings, index) for index in range(3)] == ["", "3.00", "0.00"]
