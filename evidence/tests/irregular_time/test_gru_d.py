"""GRU-D against torch's GRU cell where nothing decays, and against its equations one number at a time."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from orthornn_evidence.irregular_time.gru_d import GRUD, gru_d, observed


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def test_states_follow_the_equations():
    torch.manual_seed(0)
    net = GRUD(2, 3).double()
    for parameter in net.parameters():
        torch.nn.init.normal_(parameter)
    random = np.random.default_rng(0)
    values, elapsed = random.normal(size=(9, 4, 2)), random.uniform(0.2, 3, (9, 4))
    values[random.random(values.shape) < 0.4] = np.nan
    states = net(torch.from_numpy(values), torch.from_numpy(elapsed)).detach().numpy()
    w = {name: p.detach().numpy() for name, p in net.named_parameters()}
    times = elapsed.cumsum(0)
    for b in range(4):
        h = np.zeros(3)
        for t in range(9):
            filled, mask, since = np.zeros(2), np.zeros(2), np.zeros(2)
            for i in range(2):
                seen = [s for s in range(t) if not np.isnan(values[s, b, i])]
                # Without a value before, it is the time since the beginning, which is that of the first step.
                since[i] = times[t, b] - times[seen[-1], b] if seen else times[t, b]
                mask[i] = not np.isnan(values[t, b, i])
                last = values[seen[-1], b, i] if seen else 0.0
                decay = math.exp(-max(0.0, w["input_decay"][0, i] * since[i] + w["input_decay"][1, i]))
                filled[i] = values[t, b, i] if mask[i] else decay * last
            h = h * np.exp(-np.maximum(0, w["state_decay.weight"] @ since + w["state_decay.bias"]))
            read = w["inputs.weight"] @ np.concatenate([filled, mask]) + w["inputs.bias"]
            r = sigmoid(read[:3] + w["gates"][:3] @ h)
            z = sigmoid(read[3:6] + w["gates"][3:] @ h)
            n = np.tanh(read[6:] + w["candidate"] @ (r * h))
            h = (1 - z) * h + z * n
            np.testing.assert_allclose(states[t, b], h, rtol=1e-12, atol=1e-13)


def test_without_weights_of_the_state_it_forgets_by_the_closed_form():
    net = GRUD(1, 2).double()
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.zero_()
        net.state_decay.weight.fill_(0.3)
    # All gates are 1/2: each step halves what the decay over its time leaves, and adds half the candidate.
    net.inputs.bias.data[4:] = 5.0
    first = net(torch.zeros(1, 1, 1).double(), torch.ones(1, 1).double())
    assert first[0, 0, 0].item() == pytest.approx(math.tanh(5) / 2)
    elapsed = torch.tensor([[1.0], [4.0]]).double()
    states = net(torch.zeros(2, 1, 1).double(), elapsed)
    assert states[1, 0, 0].item() == pytest.approx(math.tanh(5) / 2 * (1 + math.exp(-0.3 * 4) / 2))


def test_the_time_since_a_value_adds_up_over_missing_ones():
    nan = float("nan")
    values = torch.tensor([[[1.0, nan]], [[nan, nan]], [[nan, 2.0]], [[3.0, nan]]])
    mask, last, since = observed(values, torch.tensor([[0.5], [1.0], [2.0], [4.0]]))
    assert mask[:, 0].tolist() == [[True, False], [False, False], [False, True], [True, False]]
    assert last[:, 0].tolist() == [[0, 0], [1, 0], [1, 0], [1, 2]]
    assert since[:, 0].tolist() == [[0.5, 0.5], [1, 1.5], [3, 3.5], [7, 4]]


@pytest.mark.parametrize("parameters", [200, 6000])
def test_the_widest_model_within_a_budget(parameters):
    def count(model):
        return sum(parameter.numel() for parameter in model.parameters())

    model = gru_d(3, 2, parameters, "mean")
    assert count(model) <= parameters < count(type(model)(3, 2, model.core.hidden_size + 1, "mean"))
    inputs = torch.rand(5, 4, 3) + 0.1
    states = model.core(inputs[..., :2], inputs[..., 2])
    assert torch.equal(model(inputs), model.head(states.mean(0)))
    model.pool = "last"
    assert torch.equal(model(inputs), model.head(states[-1]))
