"""An LSTM under autocast is near that in float32, with the LSTM of oneDNN and without it."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import pack_sequence

from orthornn.learn.systems import SequenceModel, onednn

TOLERANCE = 16 * torch.finfo(torch.bfloat16).eps


@pytest.fixture(params=["as the machine has it", "without"])
def machine(request, monkeypatch):
    if request.param == "without":
        monkeypatch.setattr(onednn, "computes_lstm", lambda dtype: False)


def outputs_and_gradients(model, inputs, autocast):
    model.zero_grad()
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        outputs = model(inputs)
    outputs.float().square().sum().backward()
    return outputs.detach().float(), torch.cat([p.grad.flatten() for p in model.parameters()])


def assert_near(found, expected):
    torch.testing.assert_close(found, expected, rtol=TOLERANCE, atol=TOLERANCE * expected.abs().max().item())


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("options", [{}, {"num_layers": 2}, {"bidirectional": True}])
def test_it_is_near_float32(machine, options, packed):
    torch.manual_seed(0)
    core = nn.LSTM(3, 5, **options)
    model = SequenceModel(core, nn.Linear(5 * (1 + core.bidirectional), 2), output="all")
    inputs = pack_sequence([torch.randn(length, 3) for length in (7, 5, 1)]) if packed else torch.randn(7, 3, 3)
    for found, expected in zip(*(outputs_and_gradients(model, inputs, autocast) for autocast in (True, False))):
        assert not torch.equal(found, expected)
        assert_near(found, expected)


def test_pieces_of_a_stream_are_the_whole(machine):
    torch.manual_seed(0)
    model, inputs, state = SequenceModel(nn.LSTM(3, 5), nn.Linear(5, 2), output="all"), torch.randn(7, 2, 3), None
    found = []
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        for piece in inputs.split(4):
            prediction, state = model.stream(piece, state)
            found.append(prediction)
        assert_near(torch.cat(found), model(inputs))


@pytest.mark.parametrize("enabled", [False, True])
def test_the_setting_of_the_user_comes_back(machine, enabled, monkeypatch):
    model = SequenceModel(nn.LSTM(3, 5), nn.Linear(5, 2))
    monkeypatch.setattr(torch.backends.mkldnn, "enabled", enabled)
    with torch.autocast("cpu", torch.bfloat16):
        model(torch.randn(4, 2, 3))
        with pytest.raises(RuntimeError, match=r"input\.size"):
            model(torch.randn(4, 2, 7))
        assert torch.backends.mkldnn.enabled is enabled


def test_the_question_is_put_in_any_mode_and_draws_nothing():
    before = torch.get_rng_state()
    answers = set()
    for mode in (torch.no_grad, torch.inference_mode, torch.enable_grad):
        onednn.computes_lstm.cache_clear()
        with mode():
            answers.add(onednn.computes_lstm(torch.bfloat16))
    assert len(answers) == 1
    assert torch.equal(before, torch.get_rng_state())
