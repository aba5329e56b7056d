"""Proximal policy optimization: estimates, updates, and that an agent learns."""

from __future__ import annotations

import dataclasses

import pytest
import torch

pytest.importorskip("popgym", reason="popgym is not installed: pip install -e evidence")

from orthornn_evidence.popgym import ppo
from orthornn_evidence.popgym.agent import Agent
from orthornn_evidence.popgym.environments import Environments
from support.tolerances import tolerance

SMALL = ppo.Recipe(steps=1000, environments=6, length=60, minibatches=2, epochs=2)


def test_advantages_are_those_of_each_episode_alone():
    rewards, values, after = torch.randn(9, 2), torch.randn(9, 2), torch.randn(2)
    ended = torch.zeros(9, 2, dtype=torch.bool)
    ended[3, 0] = True
    found = ppo.generalized_advantages(rewards, ended, values, after, 0.9, 0.8)
    alone = ppo.generalized_advantages(
        rewards[:4, :1], torch.zeros(4, 1, dtype=torch.bool), values[:4, :1], torch.zeros(1), 0.9, 0.8
    )
    torch.testing.assert_close(found[:4, :1], alone)
    beyond = torch.cat([values[1:, 1], after[1:]])
    whole = sum(0.72**t * (rewards[t, 1] + 0.9 * beyond[t] - values[t, 1]) for t in range(9))
    torch.testing.assert_close(found[0, 1], whole)


def test_rewards_are_scaled_by_the_deviation_of_all_returns_so_far():
    rewards, ended = torch.randn(7, 3), torch.zeros(7, 3, dtype=torch.bool)
    ended[2, 1] = ended[4, 0] = True
    scale = ppo.RewardScale(3, 0.9)
    scale(rewards[:4], ended[:4])
    found = scale(rewards[4:], ended[4:])
    returns = []
    for b in range(3):
        for t in range(7):
            first = max([0, *[s + 1 for s in range(t) if ended[s, b]]])
            returns.append(sum(0.9 ** (t - s) * rewards[s, b].item() for s in range(first, t + 1)))
    deviation = torch.tensor(returns, dtype=torch.float64).std(unbiased=False)
    torch.testing.assert_close(found, rewards[4:] / deviation.float())
    assert torch.isfinite(ppo.RewardScale(2, 0.9)(torch.ones(1, 2), ended[:1, :2])).all()  # equal returns


@pytest.mark.parametrize("memory", ["blocks", "lstm"])
def test_an_update_starts_from_the_probabilities_of_the_rollout(memory):
    worlds = Environments("RepeatPreviousEasy", 3, 0)
    agent = Agent(worlds.input_size, worlds.action_space, memory)
    recipe = dataclasses.replace(SMALL, environments=3)
    scale = ppo.RewardScale(3, recipe.discount)
    _, h = ppo.collect(agent, worlds, agent.memory.initial_states(3), recipe, scale)
    rollout, _ = ppo.collect(agent, worlds, h, recipe, scale)
    assert rollout.starts[1:].any()
    parameters, values = agent(rollout.seen, rollout.h, rollout.starts)
    close = {"rtol": 0, "atol": tolerance(torch.float32, recipe.length * 64)}
    torch.testing.assert_close(agent.actions.log_prob(parameters, rollout.actions), rollout.log_probs, **close)
    torch.testing.assert_close(values, rollout.targets - rollout.advantages, **close)
    part = rollout.of(torch.tensor([2, 0]))
    assert torch.equal(part.seen, rollout.seen[:, [2, 0]])
    assert torch.equal(part.h, rollout.h[:, [2, 0]])


def test_a_surrogate_does_not_reward_a_ratio_beyond_the_clip():
    advantages = torch.tensor([[1.0, -1.0]])
    part = ppo.Rollout(*[torch.zeros(1, 2)] * 7)
    part = dataclasses.replace(part, advantages=advantages)
    changes = torch.tensor([[2.0, -2.0]], requires_grad=True)  # further in the direction of the advantages
    ppo.surrogate(changes, part, 0.2).backward()
    assert not changes.grad.any()
    back = torch.tensor([[-2.0, 2.0]], requires_grad=True)
    ppo.surrogate(back, part, 0.2).backward()
    assert (back.grad * advantages < 0).all()  # descent goes back


def test_windows_have_the_means_of_all_episodes(monkeypatch):
    monkeypatch.setattr(ppo, "WINDOW", 720)
    lines = []
    found = ppo.learn("RepeatPreviousEasy", lambda i, s: Agent(i, s, "blocks"), SMALL, 0, lines.append)
    assert found.steps == [720] == [720][: len(found.means)]  # 1000 // 360 rollouts
    assert len(lines) == 1
    assert -1 <= found.best <= 1
    again = ppo.learn("RepeatPreviousEasy", lambda i, s: Agent(i, s, "blocks"), SMALL, 0, lines.append)
    assert again.means == found.means


@pytest.mark.slow
def test_an_agent_learns_to_recall(monkeypatch):
    recipe = ppo.Recipe(steps=100_000, environments=32, length=104, lr=3e-3)
    found = ppo.learn("RepeatPreviousEasy", lambda i, s: Agent(i, s, "blocks"), recipe, 0)
    assert found.means[-1] > 0.8
