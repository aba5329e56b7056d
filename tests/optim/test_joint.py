"""JointOptimizer behaves as one optimizer of torch that has all its groups."""

import copy
import io
from collections import defaultdict
from collections.abc import MutableMapping

import pytest
import torch
from torch import nn
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_optimizer_state_dict,
    set_optimizer_state_dict,
)

from orthornn import MatrixExponential, OrthogonalRNN, SpectralMargin
from orthornn.errors import ArgumentError, OrthornnWarning
from orthornn.optim import CayleySGD, JointOptimizer, attach, param_groups, recipes


def tensors(seed=0):
    generator = torch.Generator().manual_seed(seed)
    return [nn.Parameter(torch.randn(shape, generator=generator)) for shape in ((3, 2), (5,), (), (4, 4))]


def groups_of(parameters):
    return [
        {"params": parameters[:2], "lr": 0.1, "name": "one"},
        {"params": parameters[2:3], "lr": 0.2, "name": "two"},
        {"params": parameters[3:], "lr": 0.3, "name": "three"},
    ]


def whole(parameters):
    return torch.optim.SGD(groups_of(parameters), momentum=0.9)


def joint(parameters, nested=False):
    one, two, three = groups_of(parameters)
    if nested:
        inner = JointOptimizer(*(torch.optim.SGD([group], momentum=0.9) for group in (one, two)))
        return JointOptimizer(inner, torch.optim.SGD([three], momentum=0.9))
    return JointOptimizer(torch.optim.SGD([one, two], momentum=0.9), torch.optim.SGD([three], momentum=0.9))


def train(parameters, optimizer, steps, seed=0):
    generator = torch.Generator().manual_seed(seed)
    for _ in range(steps):
        for parameter in parameters:
            parameter.grad = torch.randn(parameter.shape, generator=generator)
        optimizer.step()


def same(one, two):
    """Whether two nested values agree, bit for bit."""
    if isinstance(one, torch.Tensor):
        return isinstance(two, torch.Tensor) and torch.equal(one, two)
    if isinstance(one, dict):
        return isinstance(two, dict) and one.keys() == two.keys() and all(same(one[k], two[k]) for k in one)
    if isinstance(one, (list, tuple)):
        return len(one) == len(two) and all(map(same, one, two))
    return one == two


@pytest.mark.parametrize("nested", [False, True])
def test_the_state_dict_is_that_of_one_optimizer_with_all_groups_and_each_loads_the_others(nested):
    parameters, others = tensors(), tensors()
    optimizer, reference = joint(parameters, nested), whole(others)
    train(parameters, optimizer, 3)
    train(others, reference, 3)
    state = optimizer.state_dict()
    assert same(state, reference.state_dict())
    assert list(state["state"]) == [0, 1, 2, 3]
    for source, make, its_own in ((state, whole, tensors(1)), (reference.state_dict(), joint, tensors(2))):
        loaded = make(its_own)
        with torch.no_grad():
            for parameter, value in zip(its_own, parameters):
                parameter.copy_(value)
        loaded.load_state_dict(copy.deepcopy(source))
        train(its_own, loaded, 3, seed=5)
        expected = [p.detach().clone() for p in parameters]
        follower = copy.deepcopy((parameters, optimizer))
        train(*follower, 3, seed=5)
        assert all(map(torch.equal, its_own, follower[0]))
        assert not any(map(torch.equal, its_own, expected))


@pytest.mark.parametrize("nested", [False, True])
def test_the_earlier_layout_loads(nested):
    parameters, others = tensors(), tensors(1)
    optimizer, loaded = joint(parameters, nested), joint(others, nested)
    train(parameters, optimizer, 2)

    def earlier(one):
        return {"parts": list(map(earlier, one.parts))} if isinstance(one, JointOptimizer) else one.state_dict()

    optimizer.param_groups[1]["lr"] = 0.7
    loaded.load_state_dict(copy.deepcopy(earlier(optimizer)))
    assert same(loaded.state_dict(), optimizer.state_dict())
    with pytest.raises(ArgumentError, match=r"the state of 2 optimizers \(.*SGD\), but got the state of 1"):
        loaded.load_state_dict({"parts": [{}]})
    with pytest.raises(ArgumentError, match="but got the state of 0"):
        loaded.load_state_dict({})


def test_a_state_that_does_not_fit_is_refused_and_changes_nothing():
    parameters = tensors()
    optimizer = joint(parameters)
    train(parameters, optimizer, 2)
    before, state = copy.deepcopy(optimizer.state_dict()), optimizer.state_dict()
    shorter = {**state, "param_groups": state["param_groups"][:2]}
    with pytest.raises(ArgumentError, match=r"Expected 3 parameter groups of 2, 1, 1 tensors.*but got 2 of 2, 1"):
        optimizer.load_state_dict(shorter)
    resized = copy.deepcopy(state)
    resized["param_groups"][2]["params"] = [3, 4]
    resized["param_groups"][0]["lr"] = 9.0
    with pytest.raises(ArgumentError, match="but got 3 of 2, 1, 2"):
        optimizer.load_state_dict(resized)
    with pytest.raises(ArgumentError, match="but got entries for 17"):
        optimizer.load_state_dict({**state, "state": {**state["state"], 17: {}}})
    with pytest.raises(ArgumentError, match="but got 0 of no"):
        optimizer.param_groups = []
    assert same(optimizer.state_dict(), before)


def test_groups_are_those_of_the_parts_whatever_happens_to_them():
    parameters = tensors()
    optimizer = joint(parameters)
    part = optimizer.parts[1]
    saved = copy.deepcopy(part.state_dict())
    saved["param_groups"][0]["lr"] = 0.5
    part.load_state_dict(saved)  # makes new groups
    assert optimizer.param_groups[2]["lr"] == 0.5
    optimizer.param_groups[2]["lr"] = 0.0
    before = parameters[3].detach().clone()
    train(parameters, optimizer, 1)
    assert torch.equal(parameters[3], before)
    part.add_param_group({"params": [nn.Parameter(torch.ones(2))]})
    assert [len(group["params"]) for group in optimizer.param_groups] == [2, 1, 1, 1]
    optimizer.param_groups = [{**group, "lr": 3.0} for group in optimizer.param_groups]
    assert {group["lr"] for own in optimizer.parts for group in own.param_groups} == {3.0}


def test_the_state_reads_and_writes_that_of_the_parts():
    parameters = tensors()
    optimizer = joint(parameters)
    assert not optimizer.state
    assert parameters[0] not in optimizer.state
    assert not optimizer.parts[0].state  # a question makes no entry
    assert optimizer.state[parameters[3]] == {}  # reading does, as in torch
    train(parameters, optimizer, 2)
    assert isinstance(optimizer.state, MutableMapping)
    assert [id(p) for p in optimizer.state] == [id(p) for p in (*parameters[:3], parameters[3])]
    assert repr(optimizer.state) == repr({**optimizer.parts[0].state, **optimizer.parts[1].state})
    for parameter, entries in optimizer.state.items():  # how frameworks move a state to a device
        optimizer.state[parameter] = {name: value.double() for name, value in entries.items()}
    assert optimizer.parts[1].state[parameters[3]]["momentum_buffer"].dtype == torch.float64
    del optimizer.state[parameters[3]]
    assert parameters[3] not in optimizer.parts[1].state
    kept = dict(optimizer.state)
    optimizer.state = defaultdict(dict)  # the usual way to forget
    assert [len(part.state) for part in optimizer.parts] == [0, 0]
    optimizer.state = kept
    assert [len(part.state) for part in optimizer.parts] == [3, 0]
    with pytest.raises(KeyError, match=r"but got a tensor of shape \(7,\)"):
        optimizer.state[torch.ones(7)] = {}
    with pytest.raises(KeyError, match="'lr'"):
        optimizer.state = {"lr": 1}
    assert len(optimizer.state) == 3
    optimizer.__setstate__({"state": {}, "param_groups": [{**g, "lr": 4.0} for g in optimizer.param_groups]})
    assert len(optimizer.state) == 0
    assert optimizer.parts[1].param_groups[0]["lr"] == 4.0


def test_every_hook_runs():
    parameters = tensors()
    optimizer = joint(parameters)
    calls = []
    optimizer.register_step_pre_hook(lambda *_: calls.append("before step"))
    optimizer.register_step_post_hook(lambda *_: calls.append("after step"))
    optimizer.register_state_dict_pre_hook(lambda one: calls.append("before state"))
    optimizer.register_state_dict_post_hook(lambda one, state: {**state, "more": 1})
    optimizer.register_state_dict_post_hook(lambda one, state: calls.append(sorted(state)))
    optimizer.parts[1].register_state_dict_pre_hook(lambda one: calls.append("a part's state"))
    optimizer.register_load_state_dict_pre_hook(lambda one, state: {key: state[key] for key in state if key != "more"})
    optimizer.register_load_state_dict_pre_hook(lambda one, state: calls.append(sorted(state)))
    optimizer.register_load_state_dict_post_hook(lambda one: calls.append(one.param_groups[0]["lr"]))
    optimizer.parts[1].register_load_state_dict_post_hook(lambda one: calls.append("a part loaded"))
    train(parameters, optimizer, 1)
    state = optimizer.state_dict()
    state["param_groups"][0]["lr"] = 8.0
    optimizer.load_state_dict(state)
    layout = ["param_groups", "state"]
    assert calls == [
        *("before step", "after step", "before state", "a part's state", ["more", *layout]),
        *(layout, "a part loaded", 8.0),
    ]
    assert "more" in state
    optimizer.register_state_dict_post_hook(lambda one, state: {})
    assert optimizer.state_dict() == {}


class Counting(torch.optim.SGD):
    """An optimizer that remembers something of its own, in both places."""

    updates = 0

    def step(self, closure=None):
        self.updates += 1
        self.state["all"] = {"updates": self.updates}
        return super().step(closure)

    def state_dict(self):
        return {**super().state_dict(), "updates": self.updates}

    def load_state_dict(self, state_dict):
        self.updates = state_dict["updates"]
        super().load_state_dict(state_dict)


def test_what_a_part_has_besides_comes_back():
    def make():
        parameters = tensors()
        one, two, three = groups_of(parameters)
        inner = JointOptimizer(torch.optim.SGD([one]), Counting([two], momentum=0.5))
        return parameters, JointOptimizer(inner, torch.optim.SGD([three], momentum=0.5))

    parameters, optimizer = make()
    train(parameters, optimizer, 3)
    _, loaded = make()
    buffer = io.BytesIO()
    torch.save(optimizer.state_dict(), buffer)
    buffer.seek(0)
    loaded.load_state_dict(torch.load(buffer, weights_only=True))
    assert loaded.parts[0].parts[1].updates == 3
    assert loaded.parts[0].parts[1].state["all"] == {"updates": 3}
    assert same(loaded.state_dict(), optimizer.state_dict())


def network():
    torch.manual_seed(3)
    model = nn.Sequential(OrthogonalRNN(3, 6, parametrization=SpectralMargin(0.1), nonlinearity="tanh"))
    return model, recipes.vorontsov2017(model, lr=1e-2, bases_lr=1e-2, momentum=0.5)


def fit(model, optimizer, steps, seed=0):
    generator = torch.Generator().manual_seed(seed)
    for _ in range(steps):
        optimizer.zero_grad()
        (model(torch.randn(5, 2, 3, generator=generator))[0].abs() - 0.5).square().sum().backward()
        optimizer.step()


@pytest.mark.parametrize("options", [{}, {"flatten_optimizer_state_dict": True}, {"full_state_dict": True}], ids=str)
def test_distributed_checkpoints_take_it(options):
    options = StateDictOptions(**options)
    (model, optimizer), (other, resumed) = network(), network()
    fit(model, optimizer, 3)
    state = copy.deepcopy(get_optimizer_state_dict(model, optimizer, options=options))
    names = {name for name, _ in model.named_parameters()}
    if not options.flatten_optimizer_state_dict:
        assert set(state["state"]) == names
    other.load_state_dict(copy.deepcopy(model.state_dict()))
    set_optimizer_state_dict(other, resumed, state, options=options)
    fit(model, optimizer, 3, seed=1)
    fit(other, resumed, 3, seed=1)
    assert all(map(torch.equal, model.parameters(), other.parameters()))


def test_distributed_checkpoints_of_an_optimizer_that_has_not_stepped():
    model, optimizer = network()
    before = [p.detach().clone() for p in model.parameters()]
    state = get_optimizer_state_dict(model, optimizer)
    assert set(state["state"]) == {name for name, _ in model.named_parameters()}
    assert all(torch.allclose(p, old, atol=1e-6) for p, old in zip(model.parameters(), before))


def test_schedules_that_turn_the_momentum_need_it_in_every_part():
    def parts(momentum):
        free = nn.Parameter(torch.ones(2))
        return (
            torch.optim.SGD([free], lr=0.1, momentum=0.9)
            if momentum
            else torch.optim.Adam([free], lr=0.1, betas=(0.9, 0.99)),
            CayleySGD([nn.Parameter(torch.eye(3))], lr=0.2, momentum=0.9),
        )

    optimizer = JointOptimizer(*parts(True))
    assert optimizer.defaults["lr"] == 0.1
    assert "dampening" not in optimizer.defaults
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=[1.0, 2.0], total_steps=10)
    assert [group["momentum"] for part in optimizer.parts for group in part.param_groups] == [0.95, 0.95]
    optimizer.step()
    schedule.step()
    assert all(0.85 < group["momentum"] < 0.95 for group in optimizer.param_groups)
    with pytest.raises(ValueError, match="momentum"):
        torch.optim.lr_scheduler.OneCycleLR(JointOptimizer(*parts(False)), max_lr=1.0, total_steps=10)


def test_a_gradient_scaler_skips_all_parts_of_a_step_that_overflowed():
    model, optimizer = network()
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    for poison, moves in ((None, True), (1, False), (2, True)):
        before = [p.detach().clone() for p in model.parameters()]
        optimizer.zero_grad()
        scaler.scale(model(torch.ones(4, 2, 3))[0].square().sum()).backward()
        if poison == 1:
            model[0].weight_ih_l0.grad[0, 0] = torch.inf
        scaler.step(optimizer)
        scaler.update()
        assert [not torch.equal(p, old) for p, old in zip(model.parameters(), before)] == [moves] * len(before)
    assert scaler.get_scale() == 2.0


@pytest.mark.parametrize("to_none", [True, False])
def test_zero_grad(to_none):
    parameters = tensors()
    optimizer = joint(parameters)
    train(parameters, optimizer, 1)
    optimizer.zero_grad(set_to_none=to_none)
    assert all(p.grad is None if to_none else not p.grad.any() for p in parameters)


def test_a_closure_is_called_once_with_gradients():
    parameters = tensors()
    optimizer, calls = joint(parameters), []

    def closure():
        calls.append(torch.is_grad_enabled())
        loss = sum(p.square().sum() for p in parameters)
        optimizer.zero_grad()
        loss.backward()
        return loss

    before = [p.detach().clone() for p in parameters]
    with torch.no_grad():
        loss = optimizer.step(closure)
    assert calls == [True]
    assert torch.equal(loss.detach(), sum(p.square().sum() for p in before))
    assert not any(map(torch.equal, parameters, before))
    with pytest.raises(ArgumentError, match=r"without a closure, but got LBFGS.*Step it separately"):
        JointOptimizer(torch.optim.SGD(parameters[:1]), torch.optim.LBFGS(parameters[1:]))


def test_a_new_group_goes_to_the_first_part():
    parameters = tensors()
    one, _, three = groups_of(parameters)
    optimizer = JointOptimizer(torch.optim.SGD([one], momentum=0.9), torch.optim.SGD([three], momentum=0.9))
    train(parameters[:2] + parameters[3:], optimizer, 1)
    optimizer.add_param_group({"params": iter(parameters[2:3]), "lr": 0.2})
    assert [group["momentum"] for group in optimizer.param_groups] == [0.9] * 3
    assert [len(part.param_groups) for part in optimizer.parts] == [2, 1]
    before = [p.detach().clone() for p in parameters]
    train(parameters, optimizer, 1)
    assert not any(map(torch.equal, parameters, before))
    assert list(optimizer.state_dict()["state"]) == [0, 1, 2, 3]
    for wrong in (parameters[3], parameters[3:], [parameters[0]]):
        with pytest.raises(ValueError, match="more than one"):
            optimizer.add_param_group({"params": wrong})
    with pytest.raises(TypeError, match="ordered"):
        optimizer.add_param_group({"params": {nn.Parameter(torch.ones(1))}})
    named = JointOptimizer(torch.optim.SGD([("a", parameters[0])]), torch.optim.SGD(parameters[1:2]))
    named.add_param_group({"params": [("b", parameters[2])]})
    assert named.param_groups[1]["param_names"] == ["b"]
    with pytest.raises(ValueError, match="more than one"):
        named.add_param_group({"params": [("c", parameters[1])]})


@pytest.mark.parametrize("parametrization", [MatrixExponential(rebase_every=2), SpectralMargin(0.0)], ids=repr)
def test_a_group_that_needs_care_and_is_added_later_warns(parametrization, recwarn):
    model = OrthogonalRNN(2, 4, parametrization=parametrization)
    groups = param_groups(model, 0.1)
    optimizer = JointOptimizer(torch.optim.SGD(groups[:1]))

    def step():
        optimizer.zero_grad()
        model(torch.ones(3, 1, 2))[0].sum().backward()
        optimizer.step()
        return [entry for entry in recwarn if issubclass(entry.category, OrthornnWarning)]

    assert not step()
    optimizer.add_param_group(groups[1])
    assert len(step()) == 1
    assert len(step()) == 1


def test_parts_that_are_joint_themselves_are_attached_as_they_are():
    model = OrthogonalRNN(2, 4, parametrization=SpectralMargin(0.1))
    groups = param_groups(model, 0.1)
    inner = JointOptimizer(torch.optim.SGD(groups[:1]), CayleySGD(groups[2:]))
    attach(model, JointOptimizer(inner, torch.optim.SGD(groups[1:2])))
    with pytest.raises(ArgumentError, match="but got SGD"):
        attach(model, JointOptimizer(JointOptimizer(torch.optim.SGD(groups))))


def test_an_attached_parametrization_in_a_nested_part_does_not_warn(recwarn):
    model = OrthogonalRNN(2, 4, parametrization=MatrixExponential(rebase_every=2))
    optimizer = JointOptimizer(JointOptimizer(*(torch.optim.SGD([group]) for group in param_groups(model, 0.1))))
    attach(model, optimizer)
    model(torch.ones(3, 1, 2))[0].sum().backward()
    optimizer.step()
    assert not [entry for entry in recwarn if issubclass(entry.category, OrthornnWarning)]
