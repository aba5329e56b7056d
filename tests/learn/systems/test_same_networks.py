"""The models, built from a configuration and given stored weights, compute the stored outputs.

fixtures/models.json has a configuration a line; fixtures/models.safetensors the weights of each, under "LINE/NAME", and
the outputs, under "LINE:outputs". They were written once and are never written again: a change of a model's names or
formula shows here.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from orthornn.learn.training import RunConfig
from orthornn.saved.network import make_model
from support.tolerances import tolerance

FIXTURES = Path(__file__).parents[1] / "fixtures"
MODELS = json.loads((FIXTURES / "models.json").read_text())
TENSORS = load_file(FIXTURES / "models.safetensors")


@pytest.mark.sampled(42)
@pytest.mark.parametrize("index", range(len(MODELS)), ids=lambda i: f"{i}-{MODELS[i]['name']}")
def test_every_model_is_the_network_that_it_was(index):
    config = RunConfig.read({"model": MODELS[index]}).model
    model = make_model(config, {"input_size": 2, "output_size": 3, "input": "real", "output": "all"})
    weights = {name.split("/", 1)[1]: value for name, value in TENSORS.items() if name.startswith(f"{index}/")}
    shapes = {name: value.shape for name, value in model.state_dict().items() if isinstance(value, torch.Tensor)}
    assert shapes == {name: value.shape for name, value in weights.items()}
    model.load_state_dict(weights, strict=False)
    x = torch.linspace(-1, 1, 5 * 3 * 2, dtype=torch.float64).sin().reshape(5, 3, 2).float()
    with torch.no_grad():
        found = model(x)
    expected = TENSORS[f"{index}:outputs"]
    atol = tolerance(torch.float32, 5 * 12 * 12) * max(1.0, float(expected.abs().max()))
    torch.testing.assert_close(found, expected, rtol=0, atol=atol)
