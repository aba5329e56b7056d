"""Policies of sb3-contrib with an orthogonal memory."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
import torch

pytest.importorskip("sb3_contrib", reason="sb3-contrib is not installed: pip install '.[rl]'")
import gymnasium
from gymnasium import spaces
from sb3_contrib import RecurrentPPO
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

from orthornn import (
    DeltaRNN,
    Householder,
    OrthogonalBlocks,
    OrthogonalRNN,
    PeepholeLSTM,
    ReflectionRNN,
    RestrictedUnitary,
)
from orthornn.errors import ArgumentError, ArgumentTypeError, DTypeError, ShapeError
from orthornn.integrations.sb3 import (
    CnnOrthogonalPolicy,
    MlpOrthogonalPolicy,
    MultiInputOrthogonalPolicy,
    PolicyMemory,
    SharingError,
)
from support.tolerances import tolerance


def within(dtype, operations):
    return {"rtol": tolerance(dtype, operations), "atol": tolerance(dtype, operations)}


class Episodes(gymnasium.Env):
    """Episodes of 3 to 9 random observations, the same ones for the same seed; actions change nothing."""

    def __init__(self, observed, action_space=None):
        self.observation_space = observed
        self.action_space = action_space or spaces.Discrete(3)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        if seed is not None:
            self.observation_space.seed(seed)
        self.left = int(self.np_random.integers(3, 10))
        return self.observation_space.sample(), {}

    def step(self, action):
        self.left -= 1
        return self.observation_space.sample(), float(self.np_random.random()), self.left == 0, False, {}


VECTOR = spaces.Box(-1, 1, (5,), np.float32)
IMAGE = spaces.Box(0, 255, (36, 36, 1), np.uint8)
DICT = spaces.Dict({"vector": VECTOR, "choice": spaces.Discrete(4)})
SMALL = {"lstm_hidden_size": 6, "net_arch": [4]}


def algorithm(policy=MlpOrthogonalPolicy, observed=VECTOR, count=3, action_space=None, **options):
    environments = DummyVecEnv([lambda: Episodes(observed, action_space)] * count)
    settings = {"n_steps": 13, "batch_size": 17, "n_epochs": 2, "seed": 0, "device": "cpu"}
    return RecurrentPPO(policy, environments, policy_kwargs=SMALL | options, **settings)


def collected(model):
    """The rollout of a new model, in minibatches."""
    _, callback = model._setup_learn(39, None)
    model.collect_rollouts(model.env, callback, model.rollout_buffer, n_rollout_steps=model.n_steps)
    return list(model.rollout_buffer.get(17))


NETWORKS = {
    "blocks": lambda features: OrthogonalBlocks(features, 4, 6, 2, learn_h0=True),
    "reflections, odd state": lambda features: OrthogonalRNN(features, 5, parametrization=Householder(3)),
    "complex": lambda features: OrthogonalRNN(features, 3, 2, parametrization=RestrictedUnitary()),
    "matrix state": lambda features: DeltaRNN(features, 4),
    "reflections of the input": lambda features: ReflectionRNN(features, 5, learn_h0=True),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_episodes_in_a_call_are_separate_calls(name):
    memory = PolicyMemory(NETWORKS[name](3), 3).double()
    count, steps = 2, 11
    x = torch.randn(count, steps, 3, dtype=torch.float64, requires_grad=True)
    starts = torch.zeros(count, steps)
    starts[0, 4] = starts[0, 9] = starts[1, 0] = 1
    carried = tuple(torch.randn(1, count, memory.hidden_size, dtype=torch.float64) for _ in range(2))
    carried = memory.paired(memory.unpaired(carried))  # with zeros where a state has fewer numbers
    out, after = memory(x.flatten(0, 1), carried, starts.flatten())
    own, last = [], []
    for k, bounds in enumerate([(0, 4, 9, 11), (0, 11)]):
        h = tuple(half[:, k : k + 1] for half in carried)
        for first, end in pairwise(bounds):
            h = memory.initial_states(1) if starts[k, first] else h
            piece, h = memory(x[k, first:end], h, torch.zeros(end - first))
            own.append(piece)
        last.append(h)
    limit = within(torch.float64, steps)
    torch.testing.assert_close(out, torch.cat(own), **limit)
    for half, halves in zip(after, zip(*last)):
        torch.testing.assert_close(half, torch.cat(halves, 1), **limit)
    (gradient,) = torch.autograd.grad(out.unflatten(0, (count, steps))[0, 8].abs().sum(), x)
    assert gradient[0, :, 0].nonzero().flatten().tolist() == [4, 5, 6, 7, 8]
    assert not gradient[1].any()


@pytest.mark.parametrize("name", NETWORKS)
def test_one_step_at_a_time_is_one_call(name):
    memory = PolicyMemory(NETWORKS[name](3), 3).double().eval()
    x, starts = torch.randn(2, 7, 3, dtype=torch.float64), torch.rand(2, 7) < 0.3
    h = first = memory.initial_states(2)
    with torch.no_grad():
        steps = []
        for t in range(7):
            out, h = memory(x[:, t], h, starts[:, t].float())
            steps.append(out)
    whole, last = memory(x.flatten(0, 1), first, starts.flatten().float())
    limit = within(torch.float64, 7)
    torch.testing.assert_close(torch.stack(steps, 1).flatten(0, 1), whole.detach(), **limit)
    torch.testing.assert_close(h, tuple(half.detach() for half in last), **limit)


SHARING = [
    {},
    {"share_features_extractor": False},
    {"shared_lstm": True, "enable_critic_lstm": False},
    {"enable_critic_lstm": False},
    {"n_lstm_layers": 2, "lstm_kwargs": {"state_size": 10, "learn_h0": True}},
    {"lstm_hidden_size": 256, "memory": NETWORKS["matrix state"]},
]
POLICIES = [(MlpOrthogonalPolicy, VECTOR), (CnnOrthogonalPolicy, IMAGE), (MultiInputOrthogonalPolicy, DICT)]
CASES = [(*POLICIES[0], options) for options in SHARING] + [(*case, {}) for case in POLICIES[1:]]


@pytest.mark.sampled(3)
@pytest.mark.parametrize(("policy", "observed", "options"), CASES)
def test_an_update_reads_the_probabilities_and_values_of_the_rollout(policy, observed, options):
    """The rollout steps one observation at a time; the update calls the network on padded sequences."""
    model = algorithm(
        policy, observed, features_extractor_kwargs={"features_dim": 7} if observed is IMAGE else {}, **options
    )
    seen = 0
    for batch in collected(model):
        own = batch.mask > 0
        with torch.no_grad():
            actions = batch.actions.long().flatten()
            values, log_probs, _ = model.policy.evaluate_actions(
                batch.observations, actions, batch.lstm_states, batch.episode_starts
            )
        limit = within(torch.float32, model.n_steps)
        torch.testing.assert_close(values.flatten()[own], batch.old_values[own], **limit)
        torch.testing.assert_close(log_probs[own], batch.old_log_prob[own], **limit)
        seen += int(own.sum())
    assert seen == 39


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("policy", "observed", "options"), [CASES[0], CASES[2], CASES[4], *CASES[-2:]])
def test_a_saved_model_predicts_and_learns_as_before(policy, observed, options, tmp_path):
    options = options | ({"features_extractor_kwargs": {"features_dim": 7}} if observed is IMAGE else {})
    model = algorithm(policy, observed, **options).learn(39)
    model.save(tmp_path / "model.zip")
    loaded = RecurrentPPO.load(tmp_path / "model.zip", env=model.env, device="cpu")
    observed = model.env.reset()
    own = model.predict(observed, deterministic=True)
    again = loaded.predict(observed, deterministic=True)
    np.testing.assert_array_equal(own[0], again[0])
    np.testing.assert_array_equal(own[1], again[1])
    groups = [[(g["name"], g["lr"]) for g in each.policy.optimizer.param_groups] for each in (model, loaded)]
    assert groups[0] == groups[1]
    loaded.learn(39)
    model.policy.save(tmp_path / "policy.pt")
    alone = policy.load(tmp_path / "policy.pt", device="cpu")
    np.testing.assert_array_equal(alone.predict(observed, deterministic=True)[1], own[1])


def test_training_changes_everything_that_is_trained():
    model = algorithm(lstm_kwargs={"learn_h0": True})
    before = {name: value.clone() for name, value in model.policy.named_parameters()}
    model.learn(39)
    same = [name for name, value in model.policy.named_parameters() if torch.equal(value, before[name])]
    assert same == []


def test_recurrent_matrices_learn_more_slowly():
    model = algorithm(recurrent_lr=0.25)
    seen = []
    optimizer = model.policy.optimizer
    optimizer.register_step_pre_hook(lambda *_: seen.append({g["name"]: g["lr"] for g in optimizer.param_groups}))
    model.learn(39)
    assert seen[0] == {"other": 3e-4, "recurrent": 3e-4 / 4}
    assert {group["lr"] for group in optimizer.param_groups} == {3e-4}  # as the algorithm wrote them


def test_constrained_matrices_stay_on_their_manifold():
    def build(features):
        return OrthogonalRNN(features, 6, parametrization=RestrictedUnitary(), nonlinearity="modrelu")

    options = {"lstm_hidden_size": 256, "memory": build}
    model = algorithm(**options).learn(78)
    W = model.policy.lstm_actor.network.weight_hh_l0.detach()
    torch.testing.assert_close(W @ W.mH, torch.eye(6, dtype=W.dtype), atol=1e-5, rtol=0)


def test_predictions_continue_from_states_and_restart_with_episodes():
    model = algorithm(lstm_kwargs={"learn_h0": True})
    torch.nn.init.normal_(model.policy.lstm_actor.network.blocks[0].recurrence.h0)
    observed = model.env.reset()
    _, state = model.predict(observed)
    assert [half.shape for half in state] == [(1, 3, 3), (1, 3, 3)]
    started = np.ones(3, bool)
    np.testing.assert_array_equal(model.predict(observed, None, started)[1], state)
    _, second = model.predict(observed, state, np.array([True, False, True]))
    np.testing.assert_allclose(second[0][:, [0, 2]], state[0][:, [0, 2]], rtol=1e-5)
    assert not np.allclose(second[0][:, 1], state[0][:, 1])
    action, state = model.predict(observed[0])  # of one environment
    assert action.shape == ()
    assert state[0].shape == (1, 1, 3)


@pytest.mark.parametrize("action_space", [spaces.Box(-1, 1, (2,), np.float32), spaces.MultiDiscrete([2, 3])], ids=str)
def test_other_actions_and_normalized_observations(action_space):
    environments = VecNormalize(DummyVecEnv([lambda: Episodes(VECTOR, action_space)] * 2))
    model = RecurrentPPO(MlpOrthogonalPolicy, environments, n_steps=8, batch_size=8, n_epochs=1, policy_kwargs=SMALL)
    model.learn(16)
    action, _ = model.predict(environments.reset())
    assert action_space.contains(action[0])


@pytest.mark.parametrize("observed", [spaces.Discrete(4), spaces.MultiDiscrete([3, 4]), spaces.MultiBinary(2)], ids=str)
def test_discrete_observations(observed):
    """Whose number of features is a NumPy integer if there are several."""
    model = algorithm(observed=observed)
    model.learn(39)
    assert model.predict(observed.sample())[0] in range(3)


def test_contradicting_networks():
    with pytest.raises(SharingError, match=r"^Expected shared_lstm or enable_critic_lstm, but got both\."):
        algorithm(shared_lstm=True)
    with pytest.raises(AssertionError, match="share_features_extractor=False"):  # the error that sb3-contrib raises
        algorithm(shared_lstm=True, enable_critic_lstm=False, share_features_extractor=False)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"lstm_hidden_size": 0}, ArgumentError, "lstm_hidden_size .* got 0"),
        ({"recurrent_lr": -1}, ArgumentError, "recurrent_lr .* got -1"),
        ({"shared_lstm": "no"}, ArgumentTypeError, "shared_lstm .* got 'no'"),
        ({"memory": NETWORKS["blocks"]}, ArgumentError, "with memory, but got one"),
        ({"lstm_hidden_size": 256, "memory": 3}, ArgumentTypeError, "memory .* got int"),
        ({"lstm_hidden_size": 256, "memory": lambda n: torch.nn.GRU(n, 3)}, ArgumentTypeError, "got GRU"),
        ({"lstm_hidden_size": 256, "memory": lambda n: OrthogonalRNN(2, 3)}, ShapeError, "5 features, .* input_size=2"),
        (
            {"lstm_hidden_size": 256, "memory": lambda n: OrthogonalRNN(n, 3, batch_first=True)},
            ArgumentError,
            "batch_first",
        ),
        (
            {"lstm_hidden_size": 256, "memory": lambda n: OrthogonalRNN(n, 3, bidirectional=True)},
            ArgumentError,
            "bidirect",
        ),
        (
            {"lstm_hidden_size": 256, "memory": OrthogonalRNN(5, 3)},
            ArgumentTypeError,
            r"^Expected memory to be a function of the number of features, but got OrthogonalRNN\. Pass the function",
        ),
        ({"lstm_kwargs": {"stride": 2}}, ArgumentError, "stride=2"),
        (
            {"lstm_hidden_size": 256, "memory": lambda n: PeepholeLSTM(n, 3)},
            ArgumentTypeError,
            r"got PeepholeLSTM, whose state is a pair\. Use MlpLstmPolicy",
        ),
    ],
)
def test_wrong_arguments(options, error, message):
    with pytest.raises(error, match=message):
        algorithm(**options)


def test_wrong_states_and_masks():
    model = algorithm()
    observed = model.env.reset()
    half = np.zeros((1, 3, 3), np.float32)
    other = np.zeros((1, 2, 3), np.float32)
    with pytest.raises(ShapeError, match=r"state .* \(1, 3, 3\), but got \(1, 2, 3\)"):
        model.predict(observed, (other, other))
    with pytest.raises(ArgumentTypeError, match="pair of arrays, but got ndarray"):
        model.predict(observed, half)
    with pytest.raises(ArgumentTypeError, match="pair of arrays, but got 3 arrays"):
        model.predict(observed, (half,) * 3)
    with pytest.raises(ShapeError, match=r"episode_start of shape \(3,\), .* got \(2,\)"):
        model.predict(observed, (half, half), np.zeros(2, bool))
    with pytest.raises(DTypeError, match=r"episode_start .* got <U2"):
        model.predict(observed, (half, half), np.array(["no"] * 3))
    memory = model.policy.lstm_actor
    x, states = torch.zeros(8, 5), memory.initial_states(2)
    with pytest.raises(ShapeError, match=r"8 rows of features, but got \(7,\)"):
        memory(x, states, torch.zeros(7))
    with pytest.raises(ShapeError, match="8 rows of features, but got 3"):
        memory(x, memory.initial_states(3), torch.zeros(8))
    with pytest.raises(ShapeError, match=r"\(1, n, 3\), but got \(1, 2, 2\)"):
        memory(x, (states[0][..., :2], states[1]), torch.zeros(8))
    with pytest.raises(ArgumentTypeError, match="pair of tensors, but got Tensor"):
        memory(x, states[0], torch.zeros(8))
    with pytest.raises(DTypeError, match="complex64"):
        memory(x, states, torch.zeros(8, dtype=torch.complex64))
