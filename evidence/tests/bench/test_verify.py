"""A wrong kernel is found, whatever is wrong with it, and nothing is timed then."""

from __future__ import annotations

import json

import pytest
import torch

from orthornn import cli
from orthornn.errors import VerificationError
from orthornn.kernels.call import Gradients, States
from orthornn.kernels.recurrence import _Recurrence as Recurrence
from orthornn_evidence import bench
from orthornn_evidence.bench import benchmark
from orthornn_evidence.bench.cases import Case, Work
from orthornn_evidence.bench.verify import require, verify

CASES = [Case("wy", 13, 5, 3), Case("wy", 33, 33, 1), Case("cayley", 17, 0, 2), Case("cayley", 1, 0, 1)]
SMOOTH_AND_NOT = ["modrelu", "leaky_relu", "tanh", "prelu", "scaled_tanh", "identity"]


@pytest.mark.parametrize("nonlinearity", SMOOTH_AND_NOT)
@pytest.mark.parametrize("output", ["last", "all"])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_kernels_pass(case, output, nonlinearity):
    found = verify(case, Work(output=output, nonlinearity=nonlinearity))
    assert found.passed, found
    assert {"states", "weight_ih_l0", "bias_ih_l0"} <= set(found.errors)
    assert 1 <= found.sequences <= case.batch
    assert all(error >= 0 for error in found.errors.values())
    require([found])


def break_backward(monkeypatch, index, change):
    """Let float32 kernels change the gradient at this place of Needs; the float64 reference stays right."""
    right = Recurrence.backward

    def wrong(kernel, call, *rest):
        grads = list(right(kernel, call, *rest))
        if call.h0.dtype == torch.float32 and grads[index] is not None:
            grads[index] = change(grads[index])
        return grads

    monkeypatch.setattr(Recurrence, "backward", wrong)


def shift(tensor):
    """One entry off by a hundredth of the largest."""
    tensor = tensor.clone()
    tensor.view(-1)[1] += 0.01 * tensor.abs().max()
    return tensor


def not_a_number(tensor):
    tensor = tensor.clone()
    tensor.view(-1)[0] = torch.nan
    return tensor


PLACES = {"weight_ih_l0": 1, "transition": 4, "bias_ih_l0": 7}


@pytest.mark.parametrize("change", [shift, not_a_number])
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("case", CASES[:3], ids=lambda case: case.name)
def test_a_wrong_gradient_is_found_and_named(monkeypatch, case, place, change):
    break_backward(monkeypatch, PLACES[place], change)
    found = verify(case, Work())
    assert not found.passed
    assert found.worst.startswith(place)
    with pytest.raises(VerificationError, match=rf"no ratio is reported \({case.name}: {place}"):
        require([found])


def test_a_wrong_state_is_found(monkeypatch):
    right = Recurrence.forward

    def wrong(kernel, call, save):
        states, residuals = right(kernel, call, save)
        if call.h0.dtype == torch.float32:
            states = States(*(None if t is None else t * (1 + 1e-2) for t in states))
        return states, residuals

    monkeypatch.setattr(Recurrence, "forward", wrong)
    found = verify(Case("wy", 6, 2, 2), Work())
    assert not found.passed
    assert found.errors["states"] == pytest.approx(0.01, rel=0.01)


def test_a_missing_gradient_is_found(monkeypatch):
    right = Recurrence.backward

    def wrong(kernel, call, *rest):
        grads = Gradients(*right(kernel, call, *rest))
        return grads._replace(weight_ih=None) if call.h0.dtype == torch.float32 else grads

    monkeypatch.setattr(Recurrence, "backward", wrong)
    found = verify(Case("cayley", 6, 0, 2), Work())
    assert not found.passed
    assert found.worst == "weight_ih_l0"


def test_nothing_is_timed_after_a_failure(monkeypatch, capsys, tmp_path):
    """Not even the cases that are right."""
    monkeypatch.chdir(tmp_path)
    break_backward(monkeypatch, 4, lambda tensor: shift(tensor) if tensor.dim() == 2 else tensor)  # Cayley alone

    def never(*arguments):
        raise AssertionError("timed")

    monkeypatch.setattr(benchmark, "interleave", never)
    monkeypatch.setattr(benchmark, "measured_rates", never)
    words = ["bench", "--cases", "wy-6-2-b2,cayley-5-b1", "--T", "9", "--no-chain", "--no-step", "--no-last-state"]
    assert cli.main(words) == 2
    printed = capsys.readouterr()
    assert "do not agree with the reference" in printed.err
    assert "cayley-5-b1" in printed.err
    assert "wy-6-2-b2" not in printed.err
    assert "slower" not in printed.out
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(VerificationError):
        bench.sweep(bench.Grid(6, 2, 1, 5, (6,), (2,), (1,), (5,)), Work(), 1, 1.0)


def test_the_kernels_of_the_chain_and_of_the_step_are_verified_too(monkeypatch):
    seen = []

    class StopHere(Exception):
        pass

    def collect(case, work):
        seen.append((case.name, work.nonlinearity))

    monkeypatch.setattr(benchmark, "verify", collect)
    monkeypatch.setattr(benchmark, "require", lambda found: (_ for _ in ()).throw(StopHere))
    with pytest.raises(StopHere):
        bench.run(bench.BenchmarkPlan([Case("wy", 4, 2, 1)], []))
    assert seen == [
        ("wy-4-2-b1", "modrelu"),
        ("cayley-256-b50", "modrelu"),
        ("wy-256-32-b1", "leaky_relu"),
        ("cayley-170-b50", "modrelu"),
        ("wy-256-32-b50", "modrelu"),
    ]


def test_results_hold_every_run(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    words = [
        "--cases",
        "wy-6-2-b2,cayley-5-b1",
        "--T",
        "5",
        "--rounds",
        "2",
        "--no-chain",
        "--no-step",
        "--no-last-state",
    ]
    assert cli.main(["bench", *words, "--peers", "rnn,lstm,loop", "--no-memory", "--out", "results"]) == 0
    printed = capsys.readouterr().out
    assert (tmp_path / "results" / "table.txt").read_text() in printed + "\n"
    assert (tmp_path / "results" / "bench.png").read_bytes().startswith(b"\x89PNG")
    found = json.loads((tmp_path / "results" / "results.json").read_text())
    assert [case["name"] for case in found["cases"]] == ["wy-6-2-b2", "cayley-5-b1"]
    for case in found["cases"]:
        assert list(case["timings"]) == ["ours", "rnn", "lstm", "loop", "matrix product"]
        assert all(len(timing["rounds"]) == 2 for timing in case["timings"].values())
        assert list(case["ratios"]) == ["rnn", "lstm", "loop"]
        medians = case["median_seconds"]
        assert case["microseconds_per_step"]["ours"] == pytest.approx(1e6 * medians["ours"] / 5)
        assert case["ratios"]["lstm"]["value"] == pytest.approx(medians["lstm"] / medians["ours"])
        assert set(case["verification"]["errors"]) >= {"states", "weight_ih_l0"}
    assert found["environment"]["torch"] == torch.__version__
    assert found["rate_one_thread"] > 0
    for word in ("nn.RNN", "nn.LSTM", "step loop", "us/step", "by round", "of the matrix-product rate", "floors"):
        assert word in printed
