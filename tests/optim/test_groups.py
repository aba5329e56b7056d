"""param_groups, attach, JointOptimizer and the papers' optimizers, on whole networks."""

import copy
import pickle

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrize, prune
from torch.optim.swa_utils import AveragedModel

from orthornn import Householder, MatrixExponential, OrthogonalRNN, ScaledCayley, SpectralMargin, Stiefel, orthogonalize
from orthornn.errors import ArgumentError, OrthornnWarning
from orthornn.optim import CayleyRMSprop, CayleySGD, JointOptimizer, attach, param_groups, recipes
from orthornn.parametrizations.matrices import rounding

N = 6


def network(parametrization, **options):
    return nn.Sequential(OrthogonalRNN(3, N, parametrization=parametrization, nonlinearity="tanh", **options))


def trained(model, optimizer, steps, seed=0):
    generator = torch.Generator().manual_seed(seed)
    for _ in range(steps):
        optimizer.zero_grad()
        states = model(torch.randn(5, 2, 3, generator=generator))[0]
        (states.abs() - 0.5).square().sum().backward()
        optimizer.step()


def names(model, groups):
    known = {id(p): name for name, p in model.named_parameters()}
    return {group["name"]: {known[id(p)].removeprefix("0.") for p in group["params"]} for group in groups}


OTHER = {"weight_ih_l0", "bias_ih_l0"}
EXPECTED = [
    (Householder(), {"other": OTHER, "recurrent": {"transition_l0.U"}}),
    (ScaledCayley(), {"other": OTHER, "recurrent": {"transition_l0.A"}}),
    (SpectralMargin(0.0), {"other": OTHER, "manifold": {"transition_l0.u", "transition_l0.v"}}),
    (
        SpectralMargin(0.1),
        {
            "other": OTHER,
            "spectrum": {"transition_l0.spectrum"},
            "manifold": {"transition_l0.u", "transition_l0.v"},
        },
    ),
    (Stiefel(), {"other": OTHER, "manifold": {"transition_l0.weight"}}),
    (Stiefel(field="complex"), {"other": OTHER, "manifold": {"transition_l0.weight"}}),
]


@pytest.mark.parametrize(
    ("parametrization", "expected"), EXPECTED, ids=lambda v: repr(v) if hasattr(v, "bind") else "kinds"
)
def test_each_parameter_is_of_one_kind(parametrization, expected):
    model = network(parametrization)
    found = names(model, param_groups(model, 1e-2))
    assert {kind: len(members) for kind, members in found.items()} == {k: len(v) for k, v in expected.items()}
    assert found["other"] == expected["other"]
    if "manifold" in expected:
        assert found["manifold"] == expected["manifold"]


def test_rates():
    model = nn.ModuleList([network(SpectralMargin(m)) for m in (0.0, 0.1, 100.0, None)] + [network(Householder())])
    by_name = {}
    for group in param_groups(model, 1.0, 0.5):
        by_name.setdefault(group["name"], []).append(group["lr"])
    assert by_name == {"other": [1.0], "recurrent": [0.5], "spectrum": [2.5, 0.0025, 0.5], "manifold": [0.5]}
    groups = param_groups(model, 1.0, manifold_lr=1e-6, spectrum_lr=0.2)
    assert [g["lr"] for g in groups] == [1.0, 0.1, 1.0, 0.001, 0.2, 1e-6]


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        (torch.optim.lr_scheduler.OneCycleLR, {"total_steps": 9}),
        (torch.optim.lr_scheduler.CyclicLR, {"base_lr": None, "step_size_up": 4, "cycle_momentum": False}),
    ],
)
def test_schedules_that_set_rates_take_one_per_group(kind, options):
    """As docs/how_to/optimizers.md has it: with a number all groups have one rate, with their own they keep their ratio."""
    for ratio in (1, 10):
        optimizer = torch.optim.Adam(param_groups(OrthogonalRNN(1, 8), lr=1e-3))
        rates = 1e-3 if ratio == 1 else [group["lr"] for group in optimizer.param_groups]
        base = {name: 1e-4 if ratio == 1 else [rate / 10 for rate in rates] for name in options if name == "base_lr"}
        schedule, seen = kind(optimizer, max_lr=rates, **{**options, **base}), set()
        for _ in range(8):
            optimizer.step()
            schedule.step()
            other, recurrent = (group["lr"] for group in optimizer.param_groups)
            assert other == pytest.approx(ratio * recurrent)
            seen.add(other)
        assert len(seen) > 3


def test_rates_may_be_tensors_of_one_number():
    """As in CayleySGD and torch's optimizers. The groups get numbers: no two share a tensor that a schedule changes."""
    model = nn.ModuleList([network(SpectralMargin(0.5)), network(Householder())])
    rates = (0.5, 0.25, 0.125, 2.0)
    tensors = [torch.tensor(value) for value in rates]
    expected = [g["lr"] for g in param_groups(model, *rates[:2], manifold_lr=rates[2], spectrum_lr=rates[3])]
    groups = param_groups(model, *tensors[:2], manifold_lr=tensors[2], spectrum_lr=tensors[3])
    assert [g["lr"] for g in groups] == expected == [0.5, 0.25, 2.0, 0.125]
    assert all(type(g["lr"]) is float for g in groups + param_groups(model, tensors[0]))


def test_frozen_and_shared_tensors():
    model = network(SpectralMargin(0.1))
    model[0].transition_l0.u.requires_grad_(False)
    model.append(model[0])
    groups = param_groups(model, 1.0)
    assert names(model, groups)["manifold"] == {"transition_l0.v"}
    everything = [p for g in groups for p in g["params"]]
    assert len(everything) == len({id(p) for p in everything}) == sum(p.requires_grad for p in model.parameters())


@pytest.mark.parametrize(
    ("parametrization", "kinds"),
    [
        (Stiefel(), {"other", "manifold"}),
        (SpectralMargin(0.1), {"other", "spectrum", "manifold"}),
        (Householder(), {"other", "recurrent"}),
    ],
    ids=lambda v: repr(v) if hasattr(v, "bind") else "kinds",
)
def test_orthogonalized_layers_count_too(parametrization, kinds):
    layer = orthogonalize(nn.Linear(N, N), "weight", parametrization)
    groups = param_groups(layer, 0.1, manifold_lr=0.1)
    assert {g["name"] for g in groups} == kinds
    optimizer = recipes.joined(layer, groups, torch.optim.SGD, CayleySGD)
    target = torch.randn(N, N)
    losses = []
    for _ in range(20):
        optimizer.zero_grad()
        loss = (layer(torch.eye(N)) - target).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0]


PAPERS = [recipes.mhammedi2017, recipes.vorontsov2017, recipes.wisdom2016, recipes.helfrich2018]


@pytest.mark.parametrize("paper", PAPERS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("parametrization", [e[0] for e in EXPECTED], ids=repr)
def test_every_papers_optimizer_trains_every_network(paper, parametrization):
    model = network(parametrization)
    before = [p.detach().clone() for p in model.parameters()]
    optimizer = paper(model)
    assert isinstance(optimizer, torch.optim.Optimizer)
    for group in optimizer.param_groups:
        group["lr"] = 1e-3
    trained(model, optimizer, 12)
    assert all(not torch.equal(p, old) for p, old in zip(model.parameters(), before))
    transition = model[0].transition_l0
    for name, free in zip(transition.method.names, transition.free()):
        if name in transition.method.manifolds:
            M = torch.view_as_complex(free.detach()) if free.dim() == 3 else free.detach()
            assert transition.method.orthogonality_error(M) < rounding(M)


def test_the_papers_rates():
    model = network(SpectralMargin(0.25))
    rates = {g["name"]: (g["lr"], g.get("alpha")) for g in recipes.vorontsov2017(model).param_groups}
    assert rates == {"other": (1e-4, 0.9), "spectrum": (2e-4, 0.9), "manifold": (1e-6, None)}
    rates = {g["name"]: (g["lr"], g["alpha"]) for g in recipes.wisdom2016(network(Stiefel("complex"))).param_groups}
    assert rates == {"other": (1e-3, 0.9), "manifold": (1e-6, 0.9)}
    rates = {g["name"]: g["lr"] for g in recipes.helfrich2018(network(ScaledCayley())).param_groups}
    assert rates == {"other": 1e-3, "recurrent": 1e-4}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("margin", [0.0, 0.01, 0.5, None])
def test_margins_hold_while_training(margin):
    """Every s inside [1 - m, 1 + m], however large the rate; margin 0: W orthogonal; none: free to leave."""
    model = network(SpectralMargin(margin))
    groups = param_groups(model, 0.1, 0.1, spectrum_lr=1.0)
    optimizer = recipes.joined(model, groups, torch.optim.RMSprop, CayleyRMSprop)
    trained(model, optimizer, 60)
    s = torch.linalg.svdvals(model[0].weight_hh_l0.detach().double())
    away = float((s - 1).abs().max())
    if margin is None:
        assert away > 0.5
    else:
        assert away <= margin + rounding(model[0].weight_hh_l0)
        assert away > 0.9 * margin


@pytest.mark.parametrize(
    "parametrization",
    [Householder(), ScaledCayley(), Stiefel(), Stiefel(field="complex"), SpectralMargin(0.0)],
    ids=repr,
)
def test_the_nearest_matrix_on_the_manifold_makes_an_average_orthogonal(parametrization):
    """As docs/how_to/optimizers.md advises: an average of free tensors is orthogonal unless they are on a manifold."""
    model = network(parametrization)
    average = AveragedModel(model, use_buffers=True)
    optimizer = recipes.joined(model, param_groups(model, 0.1), torch.optim.SGD, CayleySGD)
    for seed in range(3):
        trained(model, optimizer, 3, seed)
        average.update_parameters(model)
    method = average.module[0].transition_l0.method
    on_manifold = [g for g in param_groups(average, 0.0) if g["name"] == "manifold"]
    W = average.module[0].weight_hh_l0
    bound = 4 * rounding(W)
    assert (method.orthogonality_error(W) > bound) == bool(on_manifold)
    with torch.no_grad():
        for M in on_manifold[0]["params"] if on_manifold else ():
            pairs = M.dim() == 3
            U, _, Vh = torch.linalg.svd(torch.view_as_complex(M) if pairs else M, full_matrices=False)
            M.copy_(torch.view_as_real(U @ Vh) if pairs else U @ Vh)
    assert method.orthogonality_error(average.module[0].weight_hh_l0) < bound


@pytest.mark.slow
@pytest.mark.parametrize("make", [CayleySGD, CayleyRMSprop])
def test_margin_zero_stays_orthogonal_through_many_updates(make):
    model = network(SpectralMargin(0.0))
    optimizer = recipes.joined(model, param_groups(model, 1e-3, 1e-2), torch.optim.Adam, make)
    worst, method = 0.0, model[0].transition_l0.method
    for part in range(100):
        trained(model, optimizer, 100, seed=part)
        worst = max(worst, method.orthogonality_error(model[0].weight_hh_l0))
    # the product of two bases that are orthogonal to their rounding
    assert 0 < worst < 2 * rounding(model[0].weight_hh_l0)


def test_attach_runs_what_a_parametrization_asks_for_once_a_step(monkeypatch):
    model = nn.ModuleList([network(Householder()), network(SpectralMargin(0.1))])
    calls = []
    for index, part in enumerate(model):
        method = part[0].transition_l0.method
        monkeypatch.setattr(type(method), "acts_after_update", True)
        monkeypatch.setattr(method, "after_update_", lambda *free, i=index: calls.append((i, len(free))))
    groups = param_groups(model, 0.1)
    adam = torch.optim.Adam([g for g in groups if g["name"] != "manifold"])
    cayley = CayleySGD([g for g in groups if g["name"] == "manifold"])
    handles = [attach(model, adam), attach(model, cayley)]
    adam.step()
    assert calls == []  # nothing has a gradient
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    adam.step()
    assert calls == [(0, 1)]
    cayley.step()
    assert calls == [(0, 1), (1, 3)]
    for handle in handles:
        handle.remove()
    attach(model, JointOptimizer(adam, cayley)).remove()
    adam.step()
    assert len(calls) == 2


@pytest.mark.parametrize(
    ("parametrization", "value"),
    [(Householder(unit=True), 1.0), (Householder(u1="soft"), 1.0), (MatrixExponential(rebase_every=2), 0.0)],
)
def test_what_is_frozen_when_it_is_attached_is_cared_for_once_it_is_trained(parametrization, value):
    model = nn.ModuleList([OrthogonalRNN(3, 8, parametrization=parametrization), nn.Linear(8, 1)])
    rnn, head = model
    rnn.requires_grad_(False)
    optimizer = torch.optim.Adam(model.parameters(), 0.3)
    attach(model, optimizer)
    for update in range(20):
        if update == 2:
            assert int(getattr(rnn.transition_l0.method, "updates", 0)) == 0
            rnn.requires_grad_(True)
        optimizer.zero_grad()
        (head(rnn(torch.randn(6, 4, 3))[1][0]) - 5).square().mean().backward()
        optimizer.step()
    (free,) = rnn.transition_l0.free()
    if value:
        assert float(free.detach().flatten()[-1].abs()) <= value + 1e-6
    else:
        assert int(rnn.transition_l0.method.updates) == 18


def test_steps_inside_and_after_steps_are_told_apart():
    """Tensors of one parametrization in two optimizers, of which one steps inside the other's step, or in a joint one."""
    for joint in (False, True):
        net = OrthogonalRNN(2, 4, parametrization=MatrixExponential(field="complex", rebase_every=1))
        skew = net.transition_l0.skew
        first = torch.optim.SGD([skew], 1e-3)
        second = torch.optim.SGD([p for p in net.parameters() if p is not skew], 1e-3)
        outer = JointOptimizer(first, second) if joint else first
        attach(net, outer), attach(net, second)

        def closure(net=net, joint=joint, second=second):
            net(torch.randn(5, 3, 2))[0].abs().sum().backward()
            if not joint:
                second.step()
            return torch.zeros(())

        for _ in range(3):
            outer.step(closure)
        assert int(net.transition_l0.method.updates) == 3


def test_gradients_that_a_hook_deletes_after_the_step_count():
    net = OrthogonalRNN(2, 4, parametrization=MatrixExponential(rebase_every=1))
    optimizer = torch.optim.SGD(net.parameters(), 1e-3)
    optimizer.register_step_post_hook(lambda *_: optimizer.zero_grad())
    attach(net, optimizer)
    for _ in range(3):
        net(torch.randn(5, 3, 2))[0].sum().backward()
        optimizer.step()
    assert int(net.transition_l0.method.updates) == 3


def test_what_is_frozen_and_pruned_may_be_attached_and_is_refused_once_it_is_trained():
    net = OrthogonalRNN(2, 4, parametrization=Householder(unit=True))
    prune.l1_unstructured(net.transition_l0, "reflectors", 0.25)
    net.requires_grad_(False)
    optimizer = torch.optim.SGD(net.parameters(), 1e-3)
    attach(net, optimizer)
    optimizer.step()
    net.requires_grad_(True)
    net(torch.randn(5, 3, 2))[0].sum().backward()
    with pytest.raises(ArgumentError, match="Remove that tool"):
        optimizer.step()


def test_the_handle_of_a_copy_has_nothing_to_remove():
    model = nn.ModuleList([OrthogonalRNN(2, 4, parametrization=MatrixExponential(rebase_every=1))])
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    model.handle = attach(model, optimizer)
    copy.deepcopy(model).handle.remove()
    assert optimizer._optimizer_step_pre_hooks
    model.handle.remove()
    assert not optimizer._optimizer_step_pre_hooks


@pytest.mark.parametrize("joint", [False, True])
def test_what_is_attached_twice_runs_once_per_step(joint):
    net = OrthogonalRNN(2, 4, parametrization=MatrixExponential(rebase_every=3))
    optimizer = recipes.mhammedi2017(net)
    first = attach(net, optimizer)
    optimizer = JointOptimizer(optimizer) if joint else optimizer
    second = attach(net, optimizer)
    for handle in (None, first, second):
        if handle is not None:
            handle.remove()
        net(torch.randn(5, 3, 2))[0].sum().backward()
        optimizer.step()
    assert int(net.transition_l0.method.updates) == 3


@pytest.mark.parametrize("make", [torch.optim.Adam, torch.optim.SGD])
def test_attach_refuses_an_optimizer_that_leaves_the_manifold(make):
    model = network(SpectralMargin(0.1))
    with pytest.raises(
        ArgumentError, match=rf"keeps 0.transition_l0.u on the stiefel manifold, but got {make.__name__}"
    ):
        attach(model, make(param_groups(model, 0.1), lr=0.1))
    attach(network(Householder()), make(param_groups(network(Householder()), 0.1), lr=0.1))


def test_a_joint_optimizer_goes_on_bit_for_bit_and_follows_schedules():
    def start():
        torch.manual_seed(1)
        model = network(SpectralMargin(0.1))
        optimizer = recipes.vorontsov2017(model, lr=1e-2, bases_lr=1e-2, momentum=0.5)
        return model, optimizer, torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.5)

    whole, optimizer, schedule = start()
    other, resumed, its_schedule = start()
    for part in range(3):
        trained(whole, optimizer, 1, seed=part)
        schedule.step()
    other.load_state_dict(copy.deepcopy(whole.state_dict()))
    resumed.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    its_schedule.load_state_dict(copy.deepcopy(schedule.state_dict()))
    for part in range(3, 8):
        for model, opt, sch in ((whole, optimizer, schedule), (other, resumed, its_schedule)):
            trained(model, opt, 1, seed=part)
            sch.step()
    for one, two in zip(whole.parameters(), other.parameters()):
        assert torch.equal(one, two)
    assert [g["lr"] for g in resumed.param_groups] == [g["lr"] for g in optimizer.param_groups]
    assert [g["lr"] for p in resumed.parts for g in p.param_groups] == [g["lr"] for g in resumed.param_groups]
    assert resumed.param_groups[0]["lr"] == pytest.approx(1e-2 / 16)


@pytest.mark.parametrize("twin", [copy.deepcopy, lambda both: pickle.loads(pickle.dumps(both))])
def test_a_copy_of_a_joint_optimizer_goes_on_with_the_copy_of_its_model(twin):
    model = network(SpectralMargin(0.1))
    optimizer = recipes.vorontsov2017(model, lr=1e-2, bases_lr=1e-2, momentum=0.5)
    trained(model, optimizer, 3)
    other, its_own = twin((model, optimizer))
    kept = [p.detach().clone() for p in model.parameters()]
    trained(other, its_own, 3, seed=1)
    assert all(torch.equal(p, old) for p, old in zip(model.parameters(), kept))
    trained(model, optimizer, 3, seed=1)
    assert all(torch.equal(p, q) for p, q in zip(model.parameters(), other.parameters()))
    its_own.param_groups[0]["lr"] = 7.0
    assert its_own.parts[0].param_groups[0]["lr"] == 7.0


def test_a_joint_optimizer_complains():
    model = network(Householder())
    adam = torch.optim.Adam(model.parameters())
    with pytest.raises(ArgumentError, match="at least one"):
        JointOptimizer()
    with pytest.raises(ValueError, match="more than one"):
        JointOptimizer(adam, torch.optim.SGD(model.parameters()))
    assert JointOptimizer(adam).step(lambda: 2.0) == 2.0


def test_wrong_rates():
    for wrong in (
        {"lr": -1},
        {"lr": 1, "recurrent_lr": -1},
        {"lr": 1, "manifold_lr": "a"},
        {"lr": 1, "spectrum_lr": -1},
        {"lr": 1, "recurrent_lr": torch.tensor(-1.0)},
        {"lr": torch.ones(2)},
    ):
        with pytest.raises(ArgumentError, match="lr"):
            param_groups(network(SpectralMargin(0.1)), **wrong)


class Doubled(nn.Module):
    def forward(self, value):
        return 2 * value

    def right_inverse(self, value):
        return value / 2


@pytest.mark.parametrize("tool", ["parametrize", "pruning"])
def test_the_parameters_behind_a_computed_tensor_have_its_rate(tool):
    rnn = OrthogonalRNN(2, 6, parametrization=ScaledCayley(negatives=3))
    (name,) = rnn.transition_l0.method.names
    if tool == "parametrize":
        parametrize.register_parametrization(rnn.transition_l0, name, Doubled())
        (own,) = rnn.transition_l0.parametrizations[name].parameters()
    else:
        prune.random_unstructured(rnn.transition_l0, name, 0.2)
        own = getattr(rnn.transition_l0, f"{name}_orig")
    groups = {group["name"]: group for group in param_groups(rnn, 1e-2)}
    assert [id(p) for p in groups["recurrent"]["params"]] == [id(own)]
    assert all(p.is_leaf for group in groups.values() for p in group["params"])
    torch.optim.Adam(list(groups.values()))


def test_what_is_written_after_updates_cannot_be_computed():
    rnn = OrthogonalRNN(2, 6, parametrization=MatrixExponential(rebase_every=1))
    parametrize.register_parametrization(rnn.transition_l0, "skew", Doubled())
    optimizer = torch.optim.SGD(param_groups(rnn, 1e-2))
    with pytest.raises(ArgumentError, match="corrected or rebased after each update"):
        attach(rnn, optimizer)
    rnn(torch.randn(3, 1, 2))[0].sum().backward()
    with pytest.warns(OrthornnWarning, match="must be corrected or rebased"):
        optimizer.step()
    frames = OrthogonalRNN(2, 6, parametrization=Stiefel())
    parametrize.register_parametrization(frames.transition_l0, "weight", Doubled())
    with pytest.raises(ArgumentError, match="keeps on its manifold"):
        param_groups(frames, 1e-2)


def test_attached_updates_see_tensors_that_were_exchanged():
    """load_state_dict(assign=True) puts other parameters in their places; a step of rate 0 then changed W."""
    rnn = OrthogonalRNN(2, 6, parametrization=MatrixExponential(rebase_every=1))
    optimizer = torch.optim.SGD(param_groups(rnn, 1e-2))
    attach(rnn, optimizer)
    other = OrthogonalRNN(2, 6, parametrization=MatrixExponential(rebase_every=1))
    rnn.load_state_dict(other.state_dict(), assign=True)
    optimizer.param_groups[:] = torch.optim.SGD(param_groups(rnn, 0.0)).param_groups
    before = rnn.transition_l0.matrix()
    rnn(torch.randn(3, 1, 2))[0].sum().backward()
    optimizer.step()
    torch.testing.assert_close(rnn.transition_l0.matrix(), before, rtol=0, atol=1e-5)
