"""Every system of one direction streams: a step at a time is the whole sequence."""

from __future__ import annotations

import pytest
import torch

from orthornn.learn.systems import MODELS, build
from orthornn.learn.systems.streaming import Stream


@pytest.mark.sampled(37)
@pytest.mark.parametrize("tokens", [False, True])
@pytest.mark.parametrize("name", MODELS)
def test_a_stream_is_the_sequence(name, tokens):
    torch.manual_seed(0)
    more = {"depth": 2} if "depth" in MODELS[name].options() else {}
    more |= {} if tokens else {"lags": 2}
    model = build(name, 5, 3, hidden_size=6, output="all", tokens=tokens, dtype=torch.float64, **more).eval()
    x = torch.randint(5, (7, 2)) if tokens else torch.randn(7, 2, 5, dtype=torch.float64)
    stream = Stream(model)
    torch.testing.assert_close(torch.stack([stream(row) for row in x]), model(x))


@pytest.mark.parametrize("pool", ["last", "mean", "both", "summary"])
@pytest.mark.parametrize("name", ["goru", "lstm", "blocks", "scurnn"])
def test_a_stream_with_a_pool_predicts_what_the_beginning_of_the_sequence_does(name, pool):
    model = build(name, 3, 2, hidden_size=4, pool=pool, dtype=torch.float64).eval()
    x = torch.randn(5, 1, 3, dtype=torch.float64)
    stream = Stream(model)
    for length, row in enumerate(x, 1):
        torch.testing.assert_close(stream(row), model(x[:length]))
