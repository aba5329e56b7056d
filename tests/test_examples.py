"""The examples run, and do what they say."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest
import torch

from orthornn import Householder, OrthogonalRNN
from support.tolerances import tolerance

ROOT = Path(__file__).parents[1]


def load(name: str):
    spec = importlib.util.spec_from_file_location(name, ROOT / "examples" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def one_thread():
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)


def test_online_learning_beats_the_trivial_predictor(capsys, one_thread):
    online = load("online")
    found = online.learn(900, report=300)
    assert len(found) == 3
    errors = [error for error, _, _ in found]
    assert errors == sorted(errors, reverse=True)
    error, trivial, rate = found[-1]
    assert online.NOISE**2 < error < trivial / 2
    assert rate > 0
    printed = capsys.readouterr().out.splitlines()
    assert len(printed) == 3
    assert re.fullmatch(r" +900 updates, \d+ a second: squared error [\d.]+, trivial predictor [\d.]+", printed[-1])


def test_exact_online_learning_beats_the_trivial_predictor(capsys):
    online = load("online")
    found = online.learn_exactly(2000, report=500)
    assert len(found) == len(capsys.readouterr().out.splitlines()) == 4
    errors = [error for error, _, _ in found]
    assert errors[-1] < errors[0]
    error, trivial, rate = found[-1]
    assert online.NOISE**2 < error < trivial / 4
    assert rate > 0


def test_chunks_with_detached_states():
    text = (ROOT / "docs" / "streaming.md").read_text(encoding="utf-8")
    code, _ = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    names = {}
    exec(code, names)
    assert names["h"].shape == (2, 8, 64)
    assert not names["h"].requires_grad


def test_values_across_pieces_are_those_of_the_whole():
    torch.manual_seed(0)
    for nonlinearity in ("modrelu", "identity"):
        rnn = OrthogonalRNN(2, 6, 2, parametrization=Householder(2), nonlinearity=nonlinearity, dtype=torch.float64)
        x = torch.randn(20, 3, 2, dtype=torch.float64)
        whole, final = rnn(x)
        outs, h = [], None
        for piece in x.split([7, 1, 12]):
            out, h = rnn(piece, h)
            h = h.detach()
            outs.append(out)
        close = {"rtol": 0, "atol": tolerance(torch.float64, 20 * 6 * 2) * float(whole.detach().abs().max())}
        torch.testing.assert_close(torch.cat(outs), whole, **close)
        torch.testing.assert_close(h, final, **close)
