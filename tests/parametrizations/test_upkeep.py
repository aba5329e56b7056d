"""The warning of training without the care that a parametrization needs after each update."""

from __future__ import annotations

import copy
import pickle
import threading
import warnings
from weakref import WeakSet

import pytest
import torch

from orthornn import Householder, MatrixExponential, OrthogonalRNN, SpectralMargin, Stiefel, orthogonalize
from orthornn.errors import ArgumentError, OrthornnWarning
from orthornn.optim import JointOptimizer, attach, param_groups, recipes
from orthornn.parametrizations import upkeep

NEED_ATTACH = [MatrixExponential(rebase_every=2), Householder(unit=True), Householder(u1="soft")]
NEED_MANIFOLD = [Stiefel(), SpectralMargin(margin=0), SpectralMargin(margin=0.1)]


def network(parametrization, **options):
    return OrthogonalRNN(2, 6, parametrization=parametrization, **options)


def sgd(model, **options):
    return torch.optim.SGD(model.parameters(), lr=1e-3, **options)


def train(model, optimizer, updates=3):
    """The warnings of some updates."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(updates):
            optimizer.zero_grad()
            model(torch.randn(4, 2, 2))[0].abs().sum().backward()
            optimizer.step()
    return [warning for warning in caught if issubclass(warning.category, OrthornnWarning)]


@pytest.mark.parametrize("parametrization", NEED_ATTACH, ids=repr)
def test_a_network_that_is_not_attached_warns_once_with_the_remedy(parametrization):
    net = network(parametrization, num_layers=2)
    (warning,) = train(net, sgd(net))
    assert "attach(model, optimizer)" in str(warning.message)
    assert "filterwarnings('ignore'" in str(warning.message)
    assert warning.filename == __file__
    net = network(parametrization)
    optimizer = sgd(net)
    attach(net, optimizer)
    assert not train(net, optimizer)


@pytest.mark.parametrize("joint", [False, True])
@pytest.mark.parametrize("parametrization", NEED_ATTACH, ids=repr)
def test_what_is_no_longer_attached_leaves_nothing_behind_and_warns(parametrization, joint):
    net = network(parametrization)
    optimizer = sgd(net)
    hooks = (optimizer._optimizer_step_pre_hooks, optimizer._optimizer_step_post_hooks)
    first, second = attach(net, optimizer), attach(net, JointOptimizer(optimizer) if joint else optimizer)
    first.remove()
    first.remove()
    assert not train(net, optimizer)
    with second:
        assert not train(net, optimizer)
    assert not any(hooks)
    (warning,) = train(net, optimizer)
    assert "attach(model, optimizer)" in str(warning.message)
    attach(net, optimizer)
    assert not train(net, optimizer)


@pytest.mark.parametrize("parametrization", NEED_MANIFOLD, ids=repr)
def test_an_ordinary_optimizer_on_a_manifold_warns(parametrization):
    net = network(parametrization)
    (warning,) = train(net, sgd(net))
    assert "CayleySGD" in str(warning.message)
    assert "param_groups" in str(warning.message)
    net = network(parametrization)
    assert len(train(net, torch.optim.Adam(net.parameters(), fused=True))) == 1
    for recipe in (recipes.wisdom2016, recipes.vorontsov2017):
        net = network(parametrization)
        assert not train(net, recipe(net))


@pytest.mark.sampled(3)
@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("made", ["new", "copied", "pickled", "assigned"])
def test_an_orthogonal_weight_that_leaves_its_manifold_warns(made, compiled):
    """A compiled model knew its tensors only if it had once run eagerly, and a copy or an assigned one never."""
    layer = orthogonalize(torch.nn.Linear(4, 4), "weight", Stiefel())
    if made == "copied":
        layer = copy.deepcopy(layer)
    elif made == "pickled":
        parts = pickle.loads(pickle.dumps(layer.parametrizations))  # torch does not pickle the layer itself
        layer.parametrizations = parts
    elif made == "assigned":
        values = layer.state_dict()
        with torch.device("meta"):
            layer = orthogonalize(torch.nn.Linear(4, 4), "weight", Stiefel())
        layer.load_state_dict(values, assign=True)
    (free,) = layer.parametrizations.weight[0].free()
    assert free is layer.parametrizations.weight.original0
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
    call = torch.compile(layer, backend="eager") if compiled else layer
    call(torch.randn(3, 4)).square().sum().backward()
    with pytest.warns(OrthornnWarning, match="must stay on the stiefel manifold"):
        optimizer.step()
    torch.nn.utils.parametrize.remove_parametrizations(layer, "weight")


def test_what_needs_no_care_or_is_not_trained_does_not_warn():
    for parametrization in (Householder(), MatrixExponential()):
        net = network(parametrization)
        assert not train(net, sgd(net))
    net = network(SpectralMargin(margin=0.1))
    for name in ("u", "v"):
        getattr(net.transition_l0, name).requires_grad_(False)
    assert not train(net, sgd(net))
    net = network(MatrixExponential(rebase_every=1))
    assert not train(net, torch.optim.SGD([net.weight_ih_l0], lr=0.1))


@pytest.mark.parametrize("twin", [copy.deepcopy, lambda net: pickle.loads(pickle.dumps(net))], ids=["copy", "pickle"])
def test_copies_are_watched_and_need_their_own_attach(twin):
    net = network(MatrixExponential(rebase_every=1))
    attach(net, sgd(net))
    made = twin(net)
    assert len(train(made, sgd(made))) == 1


def test_several_optimizers():
    """The one that has the first tensor of a parametrization takes care of it, alone or as a part of another."""
    options = {"base": "rotations", "train_angles": True, "unit": True}
    net = network(Householder(reflections=2, **options))
    free = list(net.transition_l0.free())
    first = torch.optim.SGD(free[:1], lr=0.1)
    second = torch.optim.SGD([p for p in net.parameters() if p is not free[0]], lr=0.1)
    attach(net, first)
    assert not train(net, first)
    assert not train(net, second)
    net = network(MatrixExponential(rebase_every=1))
    groups = param_groups(net, 0.1)
    joint = JointOptimizer(*(torch.optim.SGD([group]) for group in groups))
    assert len(train(net, joint)) == 1
    net = network(MatrixExponential(rebase_every=1))
    joint = JointOptimizer(*(torch.optim.SGD([group]) for group in param_groups(net, 0.1)))
    attach(net, joint)
    assert not train(net, joint)


def test_the_first_tensor_that_is_trained_counts():
    net = network(MatrixExponential(field="complex", rebase_every=1))
    net.transition_l0.skew.requires_grad_(False)
    optimizer = torch.optim.SGD([p for p in net.parameters() if p.requires_grad], lr=1e-3)
    assert len(train(net, optimizer)) == 1
    attach(net, optimizer)
    assert not train(net, optimizer)


@pytest.mark.parametrize("parametrization", [*NEED_ATTACH[:1], *NEED_MANIFOLD[:1]], ids=repr)
def test_what_an_optimizer_moves_later_than_its_first_step_warns(parametrization):
    """Two networks in turns, and a layer that is frozen at first."""
    first, second = network(Householder()), network(parametrization)
    optimizer = torch.optim.Adam([*first.parameters(), *second.parameters()], lr=1e-3)
    assert not train(first, optimizer)
    assert len(train(second, optimizer)) == 1
    net = network(parametrization).requires_grad_(False)
    head = network(Householder())
    optimizer = torch.optim.Adam([*net.parameters(), *head.parameters()], lr=1e-3)
    assert not train(head, optimizer)
    net.requires_grad_(True)
    assert len(train(net, optimizer)) == 1


class Single(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = orthogonalize(torch.nn.Linear(2, 2), "weight", MatrixExponential(rebase_every=1))

    def forward(self, x):
        return (self.linear(x),)


def test_a_weight_under_orthogonalize():
    model = Single()
    assert len(train(model, sgd(model))) == 1
    made = copy.deepcopy(model)
    assert len(train(made, sgd(made))) == 1
    model = Single()
    optimizer = sgd(model)
    attach(model, optimizer)
    assert not train(model, optimizer)


def test_arguments_of_attach_in_the_wrong_order():
    net = network(Householder())
    with pytest.raises(TypeError, match=r"attach\(model, optimizer\)") as caught:
        attach(sgd(net), net)
    assert isinstance(caught.value, ArgumentError)
    with pytest.raises(TypeError):
        attach(net, net.parameters())


def test_one_thread_may_build_networks_while_another_trains(monkeypatch):
    """The step of any optimizer, of any network, goes through those that need care."""
    others = []
    builder = threading.Thread(target=lambda: others.append(network(Householder(unit=True))))

    class Interrupted(WeakSet):
        def __iter__(self):
            for count, owner in enumerate(super().__iter__()):
                if count == 0:
                    builder.start()
                    builder.join(timeout=0.5)  # it has to wait until the owners are listed
                yield owner

    kept = [network(Householder(unit=True)) for _ in range(2)]
    monkeypatch.setattr(
        upkeep, "_watched", Interrupted(transition for net in kept for _, transition in net.transitions())
    )
    line = torch.nn.Linear(2, 1)
    line(torch.ones(2)).sum().backward()
    torch.optim.SGD(line.parameters(), lr=0.1).step()
    builder.join()
    assert len(upkeep._watched) == 3
