"""Observations are those of the package's own wrappers, and episodes follow each other."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("popgym", reason="popgym is not installed: pip install -e evidence")
from gymnasium import spaces
from gymnasium.spaces import flatten
from popgym.wrappers import Antialias, PreviousAction

from orthornn.errors import ArgumentError
from orthornn_evidence.popgym.environments import Environments, Features, make
from orthornn_evidence.popgym.runs import ENVIRONMENTS

SPACES = [
    spaces.Discrete(4),
    spaces.Discrete(3, start=-1),
    spaces.MultiDiscrete([2, 5, 3]),
    spaces.MultiDiscrete([[2, 3], [4, 1]]),
    spaces.Box(-1, 1, (2, 3), np.float32),
    spaces.Tuple([spaces.Discrete(2), spaces.Box(-1, 1, (2,)), spaces.Tuple([spaces.MultiDiscrete([3, 2])])]),
]


@pytest.mark.parametrize("space", SPACES, ids=str)
def test_elements_are_flattened_as_gymnasium_does(space):
    space.seed(0)
    elements, features = [space.sample() for _ in range(6)], Features(space)
    found = features(elements)
    assert found.dtype == np.float32
    assert found.shape == (6, features.size)
    np.testing.assert_array_equal(found, [flatten(space, element) for element in elements])


def test_a_space_that_is_none_of_these():
    with pytest.raises(ArgumentError, match="Text"):
        Features(spaces.Text(3))


@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_observations_rewards_and_ends_are_those_of_the_package(name):
    """Step by step, over the end of an episode."""
    worlds = Environments(name, 2, 3)
    apart = [make(name)() for _ in range(2)]
    if worlds.sees_actions:
        apart = [Antialias(PreviousAction(each)) for each in apart]
    space = apart[0].observation_space
    seen = [each.reset(seed=1_000_003 * 3 + k)[0] for k, each in enumerate(apart)]
    worlds.action_space.seed(0)
    total, returns, ends = np.zeros(2), [], 0
    assert worlds.starts.all()
    for _ in range(220):
        np.testing.assert_array_equal(worlds.observe().numpy(), [flatten(space, each) for each in seen])
        actions = [worlds.action_space.sample() for _ in range(2)]
        rewards, ended = worlds.act(np.stack(actions))
        for k, each in enumerate(apart):
            seen[k], reward, terminated, truncated, _ = each.step(actions[k])
            total[k] += reward
            assert rewards[k] == np.float32(reward)
            assert ended[k] == (terminated or truncated)
            if ended[k]:
                returns.append(total[k])
                total[k], seen[k], ends = 0, each.reset()[0], ends + 1
        np.testing.assert_array_equal(worlds.starts, ended)
    np.testing.assert_allclose(worlds.returns, returns)
    assert ends or name in ("RepeatFirstHard", "AutoencodeHard")  # whose episodes are longer


def test_an_unknown_name():
    with pytest.raises(ArgumentError, match="got 'Nothing'"):
        make("Nothing")
