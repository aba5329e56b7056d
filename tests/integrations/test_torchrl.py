"""The networks as modules of TorchRL."""

from __future__ import annotations

import pytest
import torch

pytest.importorskip("torchrl", reason="TorchRL is not installed: pip install '.[rl]'")
pytest.importorskip("tensordict", reason="tensordict is not installed: pip install '.[rl]'")
from tensordict import TensorDict
from tensordict.nn import (
    ProbabilisticTensorDictModule,
    ProbabilisticTensorDictSequential,
    TensorDictModule,
    TensorDictSequential,
)
from torch.distributions import Normal
from torchrl.data import Bounded, Composite, Unbounded
from torchrl.envs import EnvBase, InitTracker, TransformedEnv
from torchrl.modules import GRUModule, set_recurrent_mode
from torchrl.modules.utils import get_primers_from_module
from torchrl.objectives import ClipPPOLoss
from torchrl.objectives.value import GAE

from orthornn import DeltaRNN, OrthogonalBlocks, OrthogonalRNN, PeepholeLSTM, RestrictedUnitary
from orthornn.errors import ArgumentError, ArgumentTypeError, DTypeError, ShapeError
from orthornn.integrations.torchrl import OrthogonalModule
from support.tolerances import tolerance

NETWORKS = {
    "blocks": lambda: OrthogonalBlocks(3, 4, 6, 2, learn_h0=True),
    "complex": lambda: OrthogonalRNN(3, 3, parametrization=RestrictedUnitary()),
    "matrix state": lambda: DeltaRNN(3, 4),
}


class Episodes(EnvBase):
    """Two environments side by side, whose episodes have 4 and 6 steps of random observations."""

    def __init__(self):
        super().__init__(batch_size=[2])
        self.observation_spec = Composite(observation=Unbounded((2, 3)), shape=(2,))
        self.action_spec = Bounded(-1, 1, (2, 1))
        self.reward_spec = Unbounded((2, 1))
        self.taken = torch.zeros(2, dtype=torch.int64)

    def _reset(self, tensordict):
        where = None if tensordict is None else tensordict.get("_reset", None)
        where = torch.ones(2, dtype=torch.bool) if where is None else where.view(2)
        self.taken = torch.where(where, 0, self.taken)
        return TensorDict({"observation": torch.randn(2, 3)}, [2])

    def _step(self, tensordict):
        self.taken = self.taken + 1
        done = (self.taken == torch.tensor([4, 6])).unsqueeze(1)
        found = {"observation": torch.randn(2, 3), "reward": tensordict["action"], "done": done}
        return TensorDict(found, [2])

    def _set_seed(self, seed):
        torch.manual_seed(seed)


def within(operations, dtype=torch.float32):
    return {"rtol": tolerance(dtype, operations), "atol": tolerance(dtype, operations)}


def policy_of(memory):
    head = TensorDictModule(torch.nn.LazyLinear(1), in_keys=["embedding"], out_keys=["action"])
    return TensorDictSequential(memory, head)


@pytest.mark.parametrize("name", NETWORKS)
def test_a_rollout_is_recomputed_in_one_call(name):
    memory = OrthogonalModule(NETWORKS[name](), in_key="observation", out_key="embedding")
    if memory.network._parameters.get("h0") is not None:
        torch.nn.init.normal_(memory.network.h0)
    environment = TransformedEnv(Episodes(), InitTracker())
    environment.append_transform(memory.make_tensordict_primer())
    policy = policy_of(memory)
    rollout = environment.rollout(20, policy, break_when_any_done=False)
    assert rollout["is_init"].sum() == 5 + 4  # episodes begun, of 4 and of 6 steps
    steps = rollout["embedding"]
    with set_recurrent_mode(True), torch.no_grad():
        whole = memory(rollout.exclude("embedding"))
    torch.testing.assert_close(whole["embedding"], steps.detach(), **within(20))
    last = rollout[:, -1]["next", "recurrent_state"].detach()
    torch.testing.assert_close(whole[:, -1]["next", "recurrent_state"], last, **within(20))
    assert not whole[:, :-1]["next", "recurrent_state"].any()


def test_a_piece_continues_from_the_state_before_it():
    memory = OrthogonalModule(NETWORKS["blocks"]().double(), in_key="observation", out_key="embedding")
    starts = torch.zeros(2, 9, 1, dtype=torch.bool)
    starts[0, 6] = True
    data = {"observation": torch.randn(2, 9, 3, dtype=torch.float64), "is_init": starts}
    whole = TensorDict(data, [2, 9])
    with set_recurrent_mode(True):
        memory(whole)
        pieces = [TensorDict(data, [2, 9])[:, :4], TensorDict(data, [2, 9])[:, 4:]]
        memory(pieces[0])
        h = pieces[0][:, -1:]["next", "recurrent_state"]
        memory(pieces[1].set("recurrent_state", h.expand(-1, 5, -1, -1)))
    found = torch.cat([piece["embedding"] for piece in pieces], 1)
    torch.testing.assert_close(found, whole["embedding"], **within(9, torch.float64))


def test_the_mode_is_the_one_of_torchrl():
    memory = OrthogonalModule(NETWORKS["blocks"](), in_key="observation", out_key="embedding")
    timed = OrthogonalModule(memory.network, in_key="observation", out_key="embedding", default_recurrent_mode=True)
    assert (memory.recurrent_mode, timed.recurrent_mode) == (False, True)
    with set_recurrent_mode("sequential"):
        assert (memory.recurrent_mode, timed.recurrent_mode) == (False, False)
    with set_recurrent_mode("recurrent"):
        assert (memory.recurrent_mode, timed.recurrent_mode) == (True, True)


@pytest.mark.parametrize("shape", [(), (4,), (2, 3), (2, 1, 3)], ids=str)
def test_tensordicts_of_any_shape(shape):
    memory = OrthogonalModule(NETWORKS["blocks"](), in_key="observation", out_key="embedding")
    data = {"observation": torch.randn(*shape, 3), "is_init": torch.zeros(*shape, 1, dtype=torch.bool)}
    each = memory(TensorDict(data, shape))
    assert each["embedding"].shape == (*shape, 4)
    assert each["next", "recurrent_state"].shape == (*shape, 2, 6)
    first, _ = memory.network.step(data["observation"].reshape(-1, 3))
    torch.testing.assert_close(each["embedding"].reshape(-1, 4), first)
    if not shape:
        return
    with set_recurrent_mode(True):
        timed = memory(TensorDict(data, shape))
    whole, _ = memory.network(data["observation"].reshape(-1, shape[-1], 3).transpose(0, 1))
    torch.testing.assert_close(timed["embedding"].reshape(-1, shape[-1], 4).transpose(0, 1), whole)


def test_keys_and_the_primer_are_those_of_torchrls_modules():
    keys = {"in_keys": ["o", ("memory", "h"), "is_init"], "out_keys": ["e", ("next", "memory", "h")]}
    memory = OrthogonalModule(OrthogonalRNN(3, 4, 2), **keys)
    theirs = GRUModule(3, 4, 2, **keys)
    assert memory.in_keys == theirs.in_keys
    assert memory.out_keys == theirs.out_keys
    own, other = memory.make_tensordict_primer(), theirs.make_tensordict_primer()
    assert own.primers == other.primers
    found = get_primers_from_module(TensorDictSequential(memory))
    assert found.primers == own.primers
    usual = OrthogonalModule(OrthogonalRNN(3, 4), in_key="o", out_key="e")
    theirs = GRUModule(3, 4, in_key="o", out_key="e")
    assert (usual.in_keys, usual.out_keys) == (theirs.in_keys, theirs.out_keys)


def test_a_loss_of_torchrl_trains_the_memory():
    memory = OrthogonalModule(NETWORKS["blocks"](), in_key="observation", out_key="embedding")
    environment = TransformedEnv(Episodes(), InitTracker())
    environment.append_transform(memory.make_tensordict_primer())
    head = TensorDictModule(torch.nn.Linear(4, 1), in_keys=["embedding"], out_keys=["loc"])
    scale = TensorDictModule(torch.ones_like, in_keys=["loc"], out_keys=["scale"])
    draw = ProbabilisticTensorDictModule(["loc", "scale"], ["action"], distribution_class=Normal, return_log_prob=True)
    actor = ProbabilisticTensorDictSequential(memory, head, scale, draw)
    of_value = TensorDictModule(torch.nn.Linear(4, 1), in_keys=["embedding"], out_keys=["state_value"])
    critic = TensorDictSequential(memory, of_value)
    with torch.no_grad():
        rollout = environment.rollout(12, actor, break_when_any_done=False)
    estimate = GAE(gamma=0.9, lmbda=0.9, value_network=critic, shifted=True, deactivate_vmap=True)
    with torch.no_grad():
        estimate(rollout)
    losses = ClipPPOLoss(actor, critic)(rollout)
    assert losses["kl_approx"].abs().max() < tolerance(torch.float32, 12 * 24)  # the policy has not changed
    sum(losses[key] for key in ("loss_objective", "loss_critic", "loss_entropy")).backward()
    missing = [name for name, p in memory.named_parameters() if p.grad is None or not p.grad.any()]
    assert missing == []


def test_it_is_called_with_tensors():
    memory = OrthogonalModule(NETWORKS["blocks"](), in_key="observation", out_key="embedding")
    h = memory.network.initial_states(5).transpose(0, 1)
    embedding, after = memory(
        observation=torch.randn(5, 3), recurrent_state=h, is_init=torch.ones(5, 1, dtype=torch.bool)
    )
    assert (embedding.shape, after.shape) == ((5, 4), (5, 2, 6))


def test_wrong_arguments():
    network = OrthogonalBlocks(3, 4, 6)
    with pytest.raises(ArgumentTypeError, match="got GRU"):
        OrthogonalModule(torch.nn.GRU(3, 4), in_key="o", out_key="e")
    with pytest.raises(ArgumentTypeError, match=r"got PeepholeLSTM, whose state is a pair\. Use .*LSTMModule"):
        OrthogonalModule(PeepholeLSTM(3, 4), in_key="o", out_key="e")
    with pytest.raises(ArgumentError, match="in_key or in_keys, but got neither"):
        OrthogonalModule(network, out_key="e")
    with pytest.raises(ArgumentError, match="out_key or out_keys, but got both"):
        OrthogonalModule(network, in_key="o", out_key="e", out_keys=["e", "h"])
    with pytest.raises(ArgumentError, match=r"an input and a state, .* got \['o'\]"):
        OrthogonalModule(network, in_keys=["o"], out_key="e")
    with pytest.raises(ArgumentError, match="batch_first=True"):
        OrthogonalModule(OrthogonalRNN(3, 4, batch_first=True), in_key="o", out_key="e")
    with pytest.raises(ArgumentError, match=r"\('next', 'recurrent_state'\), but got \('h',\)"):
        OrthogonalModule(network, in_key="o", out_keys=["e", "h"]).make_tensordict_primer()


@pytest.mark.parametrize(
    ("changed", "error", "message"),
    [
        ({"is_init": None}, ArgumentError, r"'is_init' in the tensordict, .* got none\. Append .*InitTracker"),
        ({"observation": None}, ArgumentTypeError, "'observation' .* got NoneType"),
        ({"observation": torch.zeros(2, 5, 4)}, ShapeError, r"\(2, 5, 3\), but got \(2, 5, 4\)"),
        ({"is_init": torch.zeros(2, 5, 1)}, DTypeError, "bool, but got torch.float32"),
        ({"is_init": torch.zeros(2, 5, 2, dtype=torch.bool)}, ShapeError, r"\(2, 5, 1\), but got \(2, 5, 2\)"),
        ({"recurrent_state": torch.zeros(2, 5, 1, 7)}, ShapeError, r"\(2, 5, 1, 6\), but got \(2, 5, 1, 7\)"),
    ],
)
@pytest.mark.parametrize("mode", [False, True])
def test_wrong_tensordicts(changed, error, message, mode):
    memory = OrthogonalModule(OrthogonalBlocks(3, 4, 6), in_key="observation", out_key="embedding")
    data = {"observation": torch.zeros(2, 5, 3), "is_init": torch.zeros(2, 5, 1, dtype=torch.bool)} | changed
    found = TensorDict({key: value for key, value in data.items() if value is not None}, [2, 5])
    with set_recurrent_mode(mode), pytest.raises(error, match=message):
        memory(found)


def test_time_has_a_dimension():
    memory = OrthogonalModule(OrthogonalBlocks(3, 4, 6), in_key="observation", out_key="embedding")
    data = TensorDict({"observation": torch.zeros(3), "is_init": torch.zeros(1, dtype=torch.bool)}, [])
    with set_recurrent_mode(True), pytest.raises(ShapeError, match="last dimension is time"):
        memory(data)
