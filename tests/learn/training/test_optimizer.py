"""The optimizers that a configuration can name, and what the papers' networks can be told."""

from __future__ import annotations

import copy
import math

import pytest
import torch

from orthornn.errors import ArgumentError
from orthornn.learn.systems import MODELS, build, model_named
from orthornn.learn.tasks import Batch, Copying
from orthornn.learn.training import OptimizerConfig, PenaltyConfig, RecordConfig, RunConfig, Trainer, train
from orthornn.learn.training.penalized import penalized_loss
from orthornn.learn.training.rmsprop import RootRMSprop
from orthornn.modules import Transition
from orthornn.optim import JointOptimizer
from orthornn.optim.groups import bound_methods
from support.labeled import Labeled

MLP = {"head": "mlp", "head_width": 5}
TASK = Copying(T=3, symbols=3, items=2, validation_size=20, test_size=20)


def trainer(name="scornn", optimizer=None, **options):
    model = model_named(name, hidden_size=6, **options)
    return Trainer(RunConfig(task=TASK, model=model, optimizer=optimizer or OptimizerConfig(), batch_size=4))


def first_step(optimizer):
    """How far the first update takes the readout's bias, and its gradient then."""
    made = trainer(optimizer=optimizer)
    bias = made.model.head.bias
    before = bias.detach().clone()
    made.update()
    return bias.detach() - before, bias.grad


@pytest.mark.parametrize(
    ("name", "scale"),
    [
        ("rmsprop", lambda g: 1 / math.sqrt(0.1) / g.abs()),  # v = 0.9 * 0 + 0.1 g^2
        ("rmsprop-tensorflow", lambda g: 1 / (0.9 + 0.1 * g**2).sqrt()),  # v = 0.9 * 1 + 0.1 g^2
        ("rmsprop-lasagne", lambda g: 1 / (0.1 * g**2 + 1e-6).sqrt()),
        ("sgd", lambda g: torch.ones_like(g)),
        ("adam", lambda g: 1 / g.abs()),
    ],
)
def test_the_first_step(name, scale):
    step, g = first_step(OptimizerConfig(name, lr=0.01))
    torch.testing.assert_close(step, -0.01 * g * scale(g), rtol=1e-4, atol=1e-8)


def test_the_recurrent_matrix_has_its_own_optimizer():
    made = trainer(optimizer=OptimizerConfig("adam", recurrent="sgd", lr=0.01, recurrent_lr=0.5))
    assert isinstance(made.optimizer, JointOptimizer)
    adam, sgd = made.optimizer.parts
    assert [group["name"] for group in adam.param_groups] == ["other"]
    assert [group["name"] for group in sgd.param_groups] == ["recurrent"]
    skew = made.model.core.transition_l0.skew
    before = skew.detach().clone()
    made.update()
    torch.testing.assert_close(skew.detach(), before - 0.5 * skew.grad)
    assert len(trainer(optimizer=OptimizerConfig("adam", recurrent="adam")).optimizer.param_groups) == 2


def test_decoupled_decay_leaves_the_recurrent_matrix():
    steps = {}
    for decay in (0.0, 0.5):
        made = trainer(optimizer=OptimizerConfig("adamw", lr=0.1, recurrent_lr=0.1, decoupled_decay=decay))
        before = {name: p.detach().clone() for name, p in made.model.named_parameters()}
        made.update()
        steps[decay] = {name: (p.detach() - before[name], before[name]) for name, p in made.model.named_parameters()}
    for name, (step, before) in steps[0.5].items():
        expected = steps[0.0][name][0] - (0 if "skew" in name else 0.1 * 0.5) * before
        torch.testing.assert_close(step, expected, rtol=1e-4, atol=1e-6)
    with pytest.raises(ArgumentError, match="decoupled_decay only with the optimizer adamw"):
        OptimizerConfig("adam", recurrent="adamw", decoupled_decay=0.1)  # which acts on the other parameters only
    with pytest.raises(
        ArgumentError, match=r"momentum only with the optimizer sgd, but got 0\.9 with adam\. Choose sgd"
    ):
        OptimizerConfig("adam", momentum=0.9)


@pytest.mark.parametrize("name", MODELS)
def test_what_adamw_decays(name):
    """All but the free tensors of parametrized recurrent matrices: norms, biases and initial states too."""
    made = trainer(name, optimizer=OptimizerConfig("adamw", decoupled_decay=0.5), head="mlp")
    parts = made.optimizer.parts if isinstance(made.optimizer, JointOptimizer) else [made.optimizer]
    groups = [group for part in parts for group in part.param_groups]
    decayed = {id(p) for group in groups if group.get("weight_decay", 0.0) == 0.5 for p in group["params"]}
    others = {id(p) for group in groups if group.get("weight_decay", 0.0) == 0.0 for p in group["params"]}
    free = {id(p) for one in made.model.modules() if isinstance(one, Transition) for p in one.free()}
    free |= {id(p) for bound in bound_methods(made.model) for _, behind in bound.trained() for p in behind}
    assert others == free
    assert decayed == {id(p) for p in made.model.parameters() if p.requires_grad} - free


@pytest.mark.parametrize("other", [{}, {"norm_stabilizer": 0.1}])
def test_label_smoothing_is_that_of_cross_entropy(other):
    task = Labeled()
    model, inputs, targets = build("scornn", 1, 10, hidden_size=5), torch.rand(6, 4, 1), torch.tensor([1, 9, 0, 3])
    batch = Batch(inputs, targets)
    loss, extra = penalized_loss(model, task.objective(), batch, PenaltyConfig(label_smoothing=0.3, **other))
    _, without = penalized_loss(model, task.objective(), batch, PenaltyConfig(**other))
    expected = torch.nn.functional.cross_entropy(model(inputs), targets, label_smoothing=0.3)
    torch.testing.assert_close(loss + extra - (without or 0), expected)
    torch.testing.assert_close(loss, torch.nn.functional.cross_entropy(model(inputs), targets))
    with pytest.raises(ArgumentError, match="one class per sequence"):
        Trainer(
            RunConfig(task=TASK, model=model_named("scornn"), penalties=PenaltyConfig(label_smoothing=0.1))
        ).update()


@pytest.mark.parametrize("name", ["rmsprop-tensorflow", "rmsprop-lasagne", "sgd"])
def test_it_goes_on_bit_for_bit(name):
    momentum = 0.9 if name == "sgd" else 0.0
    optimizer = OptimizerConfig(name, recurrent="rmsprop-tensorflow", lr=0.01, momentum=momentum)
    whole, first, second = (trainer(optimizer=optimizer) for _ in range(3))
    losses = [whole.update() for _ in range(9)]
    for _ in range(4):
        first.update()
    second.load_state_dict(first.state_dict())
    assert [second.update() for _ in range(5)] == losses[4:]


def test_drift_is_left_alone_on_demand():
    groups = {}
    for every in (None, 7):
        made = trainer("full-urnn", OptimizerConfig("rmsprop", reorthogonalize_every=every))
        groups[every] = next(g for g in made.optimizer.param_groups if g["name"] == "manifold")["reorthogonalize_every"]
    assert groups[7] == 7
    assert groups[None] > 10**12


@pytest.mark.parametrize("rate", [0.0, 0.01])
def test_how_far_the_bases_have_traveled(rate):
    optimizer = OptimizerConfig("rmsprop", manifold_lr=rate)
    model = model_named("spectral", hidden_size=6)
    run = RunConfig(
        task=TASK, model=model, optimizer=optimizer, record=RecordConfig(spectrum=5), steps=10, batch_size=4
    )
    result = train(run)
    first = Trainer(run).model.core.transition_l0.u.detach()
    spectra = [record["manifold_travel"] for record in result.records if record["kind"] == "spectrum"]
    assert spectra[0] == {"u": 0.0, "v": 0.0}
    moved = float((result.model.core.transition_l0.u.detach() - first).norm()) / math.sqrt(12)
    assert spectra[-1]["u"] == pytest.approx(moved, rel=1e-5, abs=1e-6)
    assert (moved > 1e-3) == (rate > 0)


def test_what_scornn_can_be_told():
    core = build("scornn", 2, 3, hidden_size=6, negatives=1, init="zero", nonlinearity="leaky_relu", slope=0.5).core
    W = core.weight_hh_l0
    torch.testing.assert_close(W, torch.diag(torch.tensor([1.0, 1, 1, 1, 1, -1])))
    assert core.activation.slope == 0.5
    skew = build("scornn", 2, 3, hidden_size=64, init="uniform").core.transition_l0.skew
    assert 0.9 * math.sqrt(3 / 64) < skew.abs().max() <= math.sqrt(3 / 64)
    with pytest.raises(ArgumentError, match="slope"):
        build("scornn", 2, 3, hidden_size=6, slope=0.5)
    with pytest.raises(ArgumentError, match="init"):
        build("scornn", 2, 3, hidden_size=6, init="orthogonal")


def test_lasagnes_step_leaves_alone_what_has_no_gradient():
    moved, still = (torch.ones(3, requires_grad=True) for _ in range(2))
    optimizer = RootRMSprop([{"params": [moved, still], "lr": 0.5}, {"params": [torch.ones(1)], "lr": 1.0}], lr=0.1)
    seen = []

    def closure():
        optimizer.zero_grad()
        loss = (moved * torch.tensor([0.0, 1e-6, 100.0])).sum()
        loss.backward()
        seen.append(float(loss.detach()))
        return loss

    assert float(optimizer.step(closure).detach()) == seen[0]
    g = torch.tensor([0.0, 1e-6, 100.0])
    torch.testing.assert_close(moved.detach(), 1 - 0.5 * g / (0.1 * g**2 + 1e-6).sqrt())
    assert torch.equal(still.detach(), torch.ones(3))


@pytest.mark.parametrize("name", ["spectral", "elman"])
def test_lasagnes_initial_values(name):
    made = build(name, 2, 3, hidden_size=40, initial_values="lasagne", learn_h0=True)
    core, head = made.core, made.head
    assert 0.009 < core.weight_ih_l0.abs().max() <= 0.01
    assert 0.9 * math.sqrt(6 / 43) < head.weight.abs().max() <= math.sqrt(6 / 43)
    assert not any(vector.any() for vector in (core.bias_ih_l0, core.h0, head.bias))
    plain = build(name, 2, 3, hidden_size=40)
    assert plain.core.h0 is None
    assert plain.core.weight_ih_l0.abs().max() > 0.1
    assert all(vector.any() for vector in (plain.core.bias_ih_l0, plain.head.bias))


@pytest.mark.parametrize(("name", "options"), [("spectral", {"depth": 2}), ("lstm", {}), ("urnn", {}), ("ornn", MLP)])
def test_decay_of_input_weights_and_of_the_readout(name, options):
    made = trainer(name, **options)
    batch = TASK.problem().train(0, 4, 0)
    weights = [p for key, p in made.model.core.named_parameters() if "weight_ih" in key]
    matrices = [p for key, p in made.model.head.named_parameters() if key.endswith("weight")]
    assert (len(weights), len(matrices)) == (options.get("depth", 1), 2 if options == MLP else 1)
    _, extra = penalized_loss(made.model, TASK.objective(), batch, PenaltyConfig(input_decay=0.5, readout_decay=0.25))
    expected = 0.5 * sum(p.square().sum() for p in weights) + 0.25 * sum(p.square().sum() for p in matrices)
    torch.testing.assert_close(extra, expected)


def test_what_spectral_and_elman_can_be_told():
    core = build("spectral", 2, 3, hidden_size=6, init="identity", nonlinearity="prelu", slope=0.7, learn_h0=True).core
    torch.testing.assert_close(core.weight_hh_l0, torch.eye(6))
    assert core.h0 is not None
    assert torch.equal(core.activation_l0, torch.full((6,), 0.7))
    elman = build("elman", 2, 3, hidden_size=6, nonlinearity="identity").core
    W = elman.weight_hh_l0
    torch.testing.assert_close(W.T @ W, torch.eye(6), rtol=0, atol=1e-5)
    assert elman.nonlinearity == "identity"
    assert build("lstm-peephole", 2, 3, hidden_size=6, init="orthogonal").core.init == "orthogonal"


def joint_trainer():
    """A trainer with a joint optimizer in a joint optimizer: input weights, spectrum, and bases on their manifold."""
    return trainer("spectral", OptimizerConfig("adam", recurrent="sgd", lr=0.01), margin=0.1)


@pytest.mark.parametrize("earlier", [False, True], ids=["now", "the earlier layout"])
def test_several_optimizers_resume_bit_for_bit(earlier):
    made, resumed = joint_trainer(), joint_trainer()
    assert [len(part.param_groups) for part in made.optimizer.parts] == [2, 1]
    for _ in range(2):
        made.update()
    state = copy.deepcopy(made.state_dict())
    if earlier:
        inner, manifold = made.optimizer.parts
        parts = [{"parts": [part.state_dict() for part in inner.parts]}, manifold.state_dict()]
        state["optimizer"] = copy.deepcopy({"parts": parts})
    resumed.load_state_dict(state)
    for _ in range(2):
        assert made.update() == resumed.update()
    for name, value in made.model.state_dict().items():
        assert torch.equal(value, resumed.model.state_dict()[name])


def test_what_an_inner_optimizer_remembers_must_have_the_shape_of_its_parameter():
    made = joint_trainer()
    made.update()
    state = copy.deepcopy(made.state_dict())
    state["optimizer"]["state"][0]["exp_avg"] = torch.zeros(2, 2)
    with pytest.raises(ValueError, match=r"exp_avg has shape \(2, 2\), its parameter"):
        joint_trainer().load_state_dict(state)
