"""Agents with memories of equal size, whose steps and whole sequences agree."""

from __future__ import annotations

import numpy as np
import pytest
import torch

pytest.importorskip("gymnasium", reason="gymnasium is not installed: pip install '.[rl]'")
from gymnasium import spaces

from orthornn.errors import ArgumentError
from orthornn_evidence.popgym.agent import MEMORIES, Agent, actions_of
from support.tolerances import tolerance


@pytest.mark.parametrize("memory", MEMORIES)
def test_steps_are_the_call_of_the_whole(memory):
    agent = Agent(5, spaces.Discrete(3), memory).double()
    x, starts = torch.randn(9, 2, 5, dtype=torch.float64), torch.rand(9, 2) < 0.3
    first = torch.randn_like(agent.memory.initial_states(2).double())
    whole, values = agent(x, first, starts)
    h, steps = first, []
    for x_t, start in zip(x, starts):
        parameters, value, h = agent.step(x_t, h, start)
        steps.append((parameters, value))
    close = {"rtol": 0, "atol": tolerance(torch.float64, 9 * 512)}
    torch.testing.assert_close(torch.stack([parameters for parameters, _ in steps]), whole, **close)
    torch.testing.assert_close(torch.stack([value for _, value in steps]), values, **close)
    alone, _ = agent(x[6:], torch.zeros_like(first), torch.zeros(3, 2, dtype=torch.bool))
    starts = torch.zeros(9, 2, dtype=torch.bool)
    starts[6] = True
    torch.testing.assert_close(agent(x, first, starts)[0][6:], alone, **close)


@pytest.mark.parametrize("inputs", [4, 60])
def test_memories_have_the_same_number_of_parameters(inputs):
    counts = {}
    for memory in MEMORIES:
        agent = Agent(inputs, spaces.Discrete(4), memory)
        counts[memory] = sum(parameter.numel() for parameter in agent.parameters())
    assert counts["blocks"] >= max(counts.values())
    assert min(counts.values()) > 0.98 * counts["blocks"]


@pytest.mark.parametrize(
    "space",
    [spaces.Discrete(5), spaces.MultiDiscrete([2, 3]), spaces.Box(-2, 2, (2,), np.float32)],
    ids=["one choice", "two choices", "numbers"],
)
def test_actions_are_drawn_with_their_probabilities(space):
    actions = actions_of(space)
    parameters = torch.randn(1, actions.size, dtype=torch.float64).expand(4000, -1)
    drawn = actions.sample(parameters)
    taken = actions.taken(drawn)
    assert all(space.contains(action.astype(space.dtype)) for action in taken[:50])
    mean = -actions.log_prob(parameters, drawn).mean()
    torch.testing.assert_close(mean, actions.entropy(parameters[0]), rtol=0, atol=0.1)


def test_an_action_space_that_is_none_of_these():
    with pytest.raises(ArgumentError, match="MultiBinary"):
        actions_of(spaces.MultiBinary(3))
