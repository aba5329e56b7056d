"""CayleySGD and CayleyRMSprop: laws of the step, drift, state, bad input."""

import contextlib
import copy
import pickle

import numpy as np
import pytest
import torch

from orthornn.errors import ArgumentError, DTypeError, NonFiniteError, NotOnGroupError, ShapeError
from orthornn.optim import CayleyRMSprop, CayleySGD
from orthornn.optim.cayley import cayley_update
from orthornn.parametrizations.matrices import rounding
from support.points import FIELDS, SHAPES, error, matrix, point
from support.tolerances import tolerance

MAKERS = {
    "sgd": lambda params, lr=0.01, **o: CayleySGD(params, lr=lr, **o),
    "momentum": lambda params, lr=0.01, **o: CayleySGD(params, lr=lr, momentum=0.9, **o),
    "nesterov": lambda params, lr=0.01, **o: CayleySGD(params, lr=lr, momentum=0.9, nesterov=True, **o),
    "rmsprop": lambda params, lr=0.01, **o: CayleyRMSprop(params, lr=lr, **o),
    "projected": lambda params, lr=0.01, **o: CayleyRMSprop(params, lr=lr, project=True, **o),
}


@pytest.mark.sampled(27)
@pytest.mark.parametrize("maker", MAKERS)
@pytest.mark.parametrize("field", FIELDS)
@pytest.mark.parametrize(("n", "p"), SHAPES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_it_moves_and_stays_on_the_manifold(maker, field, n, p, dtype):
    parameter = point(n, p, field, dtype)
    before = parameter.detach().clone()
    optimizer = MAKERS[maker]([parameter])
    for _ in range(25):
        parameter.grad = torch.randn_like(parameter)
        optimizer.step()
    assert error(parameter) < rounding(parameter)
    assert optimizer.orthogonality_errors() == [pytest.approx(error(parameter))]
    assert 0 < optimizer.drift() < 4 * rounding(parameter) or dtype == torch.float64 or (n, p) == (1, 1)
    if (n, p, field) != (1, 1, "real"):  # O(1) has two points and no way from one to the other
        assert (parameter - before).abs().max() > 1e-3


@pytest.mark.parametrize("field", FIELDS)
@pytest.mark.parametrize(("n", "p"), [(5, 5), (9, 3)])
def test_sgd_is_the_cayley_step_on_autograds_gradient(field, n, p):
    parameter = point(n, p, field)
    target = matrix(point(n, p, field))
    M = matrix(parameter)
    W = torch.view_as_complex(parameter) if field == "pairs" else parameter
    (W - target).abs().square().sum().backward()
    CayleySGD([parameter], lr=0.05).step()
    expected = cayley_update(M, 2 * (M - target), 0.05)
    torch.testing.assert_close(matrix(parameter), expected, rtol=0, atol=tolerance(torch.float64, n * n))


@pytest.mark.parametrize("nesterov", [False, True])
@pytest.mark.parametrize(("n", "p"), [(4, 4), (5, 3), (9, 2)])
def test_momentum_is_that_of_torch_on_generators(n, p, nesterov):
    """Along the step's own unitary factor a tangent vector keeps its generator: Omega <- momentum Omega + A."""
    parameter = point(n, p)
    optimizer = CayleySGD([parameter], lr=0.1, momentum=0.7, nesterov=nesterov)
    V, identity = torch.zeros(n, p, dtype=torch.float64), torch.eye(n, dtype=torch.float64)
    for _ in range(5):
        M = matrix(parameter)
        parameter.grad = torch.randn(n, p, dtype=torch.float64)
        V = 0.7 * V + (parameter.grad - M @ parameter.grad.mT @ M)
        direction = parameter.grad - M @ parameter.grad.mT @ M + 0.7 * V if nesterov else V
        half = (identity - M @ M.mT / 2) @ direction
        omega = half @ M.mT - M @ half.mT
        torch.testing.assert_close(omega @ M, direction, rtol=0, atol=tolerance(torch.float64, 1000))
        Q = torch.linalg.solve(identity + 0.05 * omega, identity - 0.05 * omega)
        V = Q @ V
        optimizer.step()
        torch.testing.assert_close(matrix(parameter), Q @ M, rtol=0, atol=tolerance(torch.float64, 1000))
        if n == p and not nesterov:
            torch.testing.assert_close(V @ (Q @ M).mT, omega, rtol=0, atol=tolerance(torch.float64, 1000))


@pytest.mark.parametrize("field", ["real", "pairs"])
def test_rmsprop_scales_as_torch_does(field):
    parameter = point(4, 3, field)
    free = torch.torch.nn.Parameter(torch.zeros_like(parameter))
    reference = torch.optim.RMSprop([free], lr=1.0, alpha=0.9, eps=1e-8)
    optimizer = CayleyRMSprop([parameter], lr=0.1, alpha=0.9, eps=1e-8)
    for _ in range(4):
        M, before = matrix(parameter), free.detach().clone()
        parameter.grad = torch.randn_like(parameter)
        free.grad = parameter.grad.clone()
        reference.step()
        optimizer.step()
        G = before - free.detach()
        G = torch.view_as_complex(G) if field == "pairs" else G
        torch.testing.assert_close(
            matrix(parameter), cayley_update(M, G, 0.1), rtol=0, atol=tolerance(torch.float64, 100)
        )


@pytest.mark.sampled(1)
@pytest.mark.parametrize("maker", ["sgd", "momentum", "nesterov", "projected"])
@pytest.mark.parametrize("field", ["real", "pairs"])
@pytest.mark.parametrize(("n", "p"), [(6, 6), (9, 3)])
def test_procrustes(maker, field, n, p):
    """min ||Q A - B|| over Q with orthonormal columns is solved by the polar factor of B A^H (Schoenemann, 1966).

    Square: the start is in the component of O(n) that holds the solution. With p < n, A is square, so Q's polar factor
    is still the solution where A is a multiple of the identity.
    """
    parameter = point(n, p, field)
    scale = torch.complex128 if field == "pairs" else torch.float64
    A = torch.randn(p, 3 * p, dtype=scale) if n == p else torch.eye(p, dtype=scale)
    B = torch.randn(n, A.shape[1], dtype=scale)
    left, _, right = torch.linalg.svd(B @ A.mH, full_matrices=False)
    best = left @ right
    if field == "real" and n == p and torch.linalg.det(best) * torch.linalg.det(matrix(parameter)) < 0:
        with torch.no_grad():
            parameter[:, 0].neg_()

    def loss(Q):
        return (Q @ A - B).abs().square().sum() / B.abs().square().sum()

    optimizer = MAKERS[maker]([parameter], lr=0.3 if maker == "sgd" else 0.05)
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.02 ** (1 / 400)) if maker == "projected" else None
    for _ in range(800):
        optimizer.zero_grad()
        loss(torch.view_as_complex(parameter) if field == "pairs" else parameter).backward()
        optimizer.step()
        if schedule is not None:
            schedule.step()
    gap = float(loss(matrix(parameter)) - loss(best))
    assert gap > -tolerance(torch.float64, 1000)
    # RMSprop's steps do not shrink with the gradient: it ends within a step of its last rate
    assert gap < (1e-3 if maker == "projected" else 1e-5)


def test_the_published_rmsprop_leaves_a_minimum():
    """Where the tangent part of G is zero G is normal to the manifold; scaled by entry it is not any more."""
    B = torch.randn(6, 6, dtype=torch.float64)
    left, _, right = torch.linalg.svd(B)
    moves = {}
    for name in ("rmsprop", "projected"):
        parameter = torch.torch.nn.Parameter(left @ right)  # the minimum of ||Q - B||
        (parameter - B).square().sum().backward()
        MAKERS[name]([parameter], lr=1e-3, eps=1e-4).step()
        moves[name] = float((parameter.detach() - left @ right).abs().max())
    assert moves["rmsprop"] > 1e-4
    assert moves["projected"] < 1e-10


@pytest.mark.sampled(7)
@pytest.mark.parametrize("maker", MAKERS)
@pytest.mark.parametrize("field", FIELDS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_state_dict_and_a_copy_go_on_bit_for_bit(maker, field, dtype, tmp_path):
    parameter = point(6, 5, field, dtype)
    gradients = torch.randn(31, *parameter.shape, dtype=parameter.dtype)

    def advance(optimizer, chosen):
        (parameter,) = optimizer.param_groups[0]["params"]
        for gradient in chosen:
            parameter.grad = gradient.clone()
            optimizer.step()
        return parameter

    optimizer = MAKERS[maker]([parameter])
    advance(optimizer, gradients[:13])  # not at a re-orthogonalization
    resumed = MAKERS[maker]([parameter.detach().clone().requires_grad_()], lr=0.5)
    torch.save(optimizer.state_dict(), tmp_path / "state.pt")
    resumed.load_state_dict(torch.load(tmp_path / "state.pt"))
    others = [resumed, copy.deepcopy(optimizer), pickle.loads(pickle.dumps(optimizer))]
    advance(optimizer, gradients[13:])
    for other in others:
        assert torch.equal(advance(other, gradients[13:]), parameter)
        assert optimizer.drift() == other.drift() > 0
        assert optimizer.state_dict()["param_groups"] == other.state_dict()["param_groups"]


@pytest.mark.parametrize("maker", MAKERS)
@pytest.mark.parametrize("field", FIELDS)
def test_strides_do_not_matter(maker, field):
    """A parameter and a gradient in another order of memory; of pairs, also one whose last stride is not 1."""
    parameter = point(6, 4, field)
    order = (2, 1, 0) if field == "pairs" else (1, 0)
    back = torch.torch.nn.Parameter(parameter.detach().permute(order).contiguous().permute(order))
    assert not back.is_contiguous()
    optimizers = [MAKERS[maker]([p]) for p in (parameter, back)]
    for _ in range(12):
        gradient = torch.randn_like(parameter)
        parameter.grad, back.grad = gradient, gradient.permute(order).contiguous().permute(order)
        for optimizer in optimizers:
            optimizer.step()
    assert torch.equal(parameter, back)


@pytest.mark.parametrize("maker", MAKERS)
def test_pairs_may_begin_anywhere_in_memory(maker):
    """As views of one vector of all parameters do. Vector instructions may then sum in another order."""
    parameter = point(6, 4, "pairs")
    vector = torch.cat([torch.zeros(1, dtype=parameter.dtype), parameter.detach().flatten()])
    view = torch.torch.nn.Parameter(vector[1:].view_as(parameter))
    optimizers = [MAKERS[maker]([p]) for p in (parameter, view)]
    for _ in range(3):
        parameter.grad = view.grad = torch.randn_like(parameter)
        for optimizer in optimizers:
            optimizer.step()
    torch.testing.assert_close(parameter, view, rtol=0, atol=1e-14)


@pytest.mark.parametrize("maker", MAKERS)
def test_a_lazily_conjugated_gradient_is_read_as_what_it_stands_for(maker):
    twins = [torch.torch.nn.Parameter(point(6, 4, "complex").detach().to(torch.complex128)) for _ in range(2)]
    with torch.no_grad():
        twins[1].copy_(twins[0])
    gradient = torch.randn_like(twins[0])
    for parameter, grad in zip(twins, (gradient.conj().resolve_conj(), gradient.conj())):
        parameter.grad = grad
        MAKERS[maker]([parameter]).step()
    assert torch.equal(*twins)


def test_a_sparse_gradient_is_named():
    parameter = point(3, 3)
    parameter.grad = torch.eye(3, dtype=torch.float64).to_sparse()
    with pytest.raises(ArgumentError, match=r"a dense gradient for the parameter of shape \(3, 3\).* grad.to_dense"):
        CayleySGD([parameter]).step()


@pytest.mark.sampled(1)
@pytest.mark.parametrize("field", ["real", "pairs"])
def test_drift_does_not_grow(field):
    """float32: rounding alone would add up to sqrt(2000) times what ten updates leave."""
    n, updates = 16, 2000
    parameter = point(n, n, field, torch.float32)
    optimizer = CayleySGD([parameter], lr=0.01)
    halves = []
    for step in range(updates):
        parameter.grad = torch.randn_like(parameter)
        optimizer.step()
        if step in (updates // 10, updates - 1):
            halves.append(optimizer.drift())
    # an update rounds n^2 numbers of size 1/sqrt(n): ||M' R + R' M|| about eps sqrt(n) / 2 an update
    bound = torch.finfo(torch.float32).eps * n**0.5 * 10**0.5
    assert halves[1] < min(bound, 2 * halves[0])
    loose = CayleySGD([point(n, n, field, torch.float32)], lr=0.01, reorthogonalize_every=updates + 1)
    for _ in range(updates):
        loose.param_groups[0]["params"][0].grad = torch.randn_like(parameter)
        loose.step()
    assert loose.orthogonality_errors()[0] > 5 * halves[1]


@pytest.mark.slow
@pytest.mark.parametrize(("n", "updates"), [(64, 100_000), (512, 5_000)])
def test_drift_over_many_updates(n, updates):
    """Below 1e-5 in float32. 10^5 updates at n = 512 (benchmarks/drift.py) take half an hour on one core; as the
    correction is at every tenth update, 5000 show the same 500 times."""
    parameter = point(n, n, dtype=torch.float32)
    optimizer = CayleySGD([parameter], lr=0.01)
    for _ in range(updates):
        parameter.grad = torch.randn(n, n)
        optimizer.step()
    assert 0 < optimizer.drift() < 1e-5
    assert error(parameter) < 1e-5


def test_nothing_happens_without_a_gradient():
    first, second = point(4, 4), point(5, 2)
    before = second.detach().clone()
    optimizer = CayleySGD([first, second], lr=0.1)
    first.grad = torch.randn_like(first)
    assert optimizer.step(lambda: 3.0) == 3.0
    assert torch.equal(second, before)
    assert len(optimizer.state) == 1


@pytest.mark.parametrize("make", [CayleySGD, CayleyRMSprop])
def test_a_matrix_off_the_manifold_is_named_with_its_distance(make):
    with pytest.raises(NotOnGroupError, match=r"parameter 1 of shape \(3, 3\) to be on the manifold, but got .* = 5.2"):
        make([point(3, 3), torch.torch.nn.Parameter(2 * torch.eye(3))])
    with pytest.raises(NotOnGroupError, match="V of shape"):
        make([("V", torch.torch.nn.Parameter(torch.eye(3) + 1e-3))])
    for wrong in (torch.zeros(3), torch.zeros(2, 3), torch.zeros(3, 3, 3), torch.zeros(2, 3, 2)):
        with pytest.raises(ShapeError, match="N >= P"):
            make([torch.torch.nn.Parameter(wrong)])
    with pytest.raises(DTypeError, match="bfloat16"):
        make([torch.torch.nn.Parameter(torch.eye(3, dtype=torch.bfloat16))])
    optimizer = make([point(3, 3)])
    with pytest.raises(NotOnGroupError):
        optimizer.add_param_group({"params": torch.torch.nn.Parameter(torch.zeros(3, 3))})
    assert len(optimizer.param_groups) == 1


@pytest.mark.parametrize(
    ("make", "options", "message"),
    [
        (CayleySGD, {"lr": -1.0}, "lr"),
        (CayleySGD, {"lr": float("nan")}, "lr"),
        (CayleySGD, {"momentum": 1.5}, "momentum"),
        (CayleySGD, {"nesterov": True}, "a momentum with nesterov=True"),
        (CayleySGD, {"reorthogonalize_every": 0}, "reorthogonalize_every"),
        (CayleyRMSprop, {"alpha": -0.1}, "alpha"),
        (CayleyRMSprop, {"eps": 0.0}, "eps to be positive"),
        (CayleyRMSprop, {"alpha": 1}, "alpha to be below 1, but got 1"),
        (CayleyRMSprop, {"project": "no"}, "project to be True or False, but got 'no'"),
        (CayleySGD, {"momentum": 0.9, "nesterov": "no"}, "nesterov to be True or False, but got 'no'"),
    ],
)
def test_wrong_values_are_named(make, options, message):
    with pytest.raises(ArgumentError, match=message):
        make([point(3, 3)], **options)
    group = {"params": [point(3, 3)], **options}
    with pytest.raises(ArgumentError, match=message):
        make([group])


@pytest.mark.parametrize("make", [CayleySGD, CayleyRMSprop])
def test_what_a_group_asks_of_torchs_optimizers_is_not_left_out_silently(make):
    """A group made for torch.optim.SGD would descend where it is to climb."""
    for option in ({"weight_decay": 1e-4}, {"maximize": True}):
        with pytest.raises(ArgumentError, match=f"Expected no {next(iter(option))}"):
            make([{"params": [point(3, 3)], **option}])
        with pytest.raises(ArgumentError, match=f"Expected no {next(iter(option))}"):
            make([point(3, 3)]).add_param_group({"params": [point(3, 3)], **option})
    groups = torch.optim.SGD([point(3, 3)], lr=0.1).param_groups
    assert make(groups).param_groups[0]["maximize"] is False


@pytest.mark.parametrize("make", [CayleySGD, CayleyRMSprop])
def test_a_gradient_that_is_not_finite_leaves_the_parameter(make):
    parameter = point(4, 4)
    before = parameter.detach().clone()
    optimizer = make([parameter], lr=0.1)
    for bad in (float("nan"), float("inf")):
        parameter.grad = torch.full_like(parameter, bad)
        with pytest.raises(NonFiniteError, match="gradient"):
            optimizer.step()
        assert torch.equal(parameter, before)
    assert all(not state for state in optimizer.state.values())


def test_a_matrix_that_somebody_else_moves_is_noticed():
    parameter = point(4, 4)
    optimizer = CayleySGD([parameter], lr=0.1, reorthogonalize_every=1)
    with torch.no_grad():
        parameter.mul_(1.5)
    parameter.grad = torch.randn_like(parameter)
    with pytest.raises(NotOnGroupError, match="to be on the manifold"):
        optimizer.step()


@pytest.mark.parametrize("maker", ["momentum", "nesterov", "rmsprop", "projected"])
@pytest.mark.parametrize("field", FIELDS)
def test_a_gradient_that_overflows_a_running_mean_leaves_it_and_the_parameter(maker, field):
    """An infinite mean would stay infinite: of squares, all later steps would be zero; of a momentum, NaN."""
    parameter = point(9, 3, field, torch.float32)
    optimizer = MAKERS[maker]([parameter])

    parameter.grad = torch.randn_like(parameter)
    optimizer.step()
    before, state = parameter.detach().clone(), copy.deepcopy(optimizer.state_dict())
    parameter.grad = torch.full_like(parameter, 3e38)
    with pytest.raises(NonFiniteError, match=r"running mean fits torch\.\w+, but got an entry of size .*Clip"):
        optimizer.step()
    assert torch.equal(parameter, before)
    for name, kept in state["state"][0].items():
        assert torch.equal(torch.as_tensor(optimizer.state[parameter][name]), torch.as_tensor(kept)), name
    parameter.grad = torch.randn_like(parameter)
    optimizer.step()
    assert not torch.equal(parameter, before)
    assert error(parameter) < rounding(parameter)


@pytest.mark.parametrize("make", [CayleySGD, CayleyRMSprop])
@pytest.mark.parametrize("number", [torch.tensor, np.float32, np.float64])
def test_a_rate_is_any_real_number_or_a_tensor_of_one(make, number):
    start, gradient, moved = point(5, 3), torch.randn(5, 3, dtype=torch.float64), []
    for lr in (0.25, number(0.25)):
        parameter = torch.torch.nn.Parameter(start.detach().clone())
        optimizer = make([parameter], lr=lr)
        parameter.grad = gradient
        optimizer.step()
        moved.append(parameter.detach())
    assert torch.equal(*moved)
    with pytest.raises(ArgumentError, match="Expected lr to be a finite number of at least 0, but got -1"):
        make([point(3, 3)], lr=number(-1.0))


def test_what_a_group_may_not_have_is_refused_when_it_is_set_later():
    parameter = torch.nn.Parameter(torch.eye(3))
    optimizer = CayleySGD([parameter], lr=0.1)
    parameter.grad = torch.randn(3, 3)
    optimizer.param_groups[0]["weight_decay"] = 0.1
    with pytest.raises(ArgumentError, match="weight_decay"):
        optimizer.step()
    assert torch.equal(parameter, torch.eye(3))
    with pytest.raises(TypeError, match="set"):
        CayleySGD([{"params": {torch.nn.Parameter(torch.eye(3))}}], lr=0.1)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("maker", MAKERS)
def test_a_compiled_step_is_the_step(maker):
    """Compiled by torch 2.13 itself, the second matrix would be made from the first one's values, from the third step on."""
    plain, compiled = [point(5, 5, "real") for _ in range(2)], []
    compiled = [torch.nn.Parameter(p.detach().clone()) for p in plain]
    step, other = MAKERS[maker](plain).step, torch.compile(MAKERS[maker](compiled).step, backend="eager")
    for _ in range(5):
        for p, q in zip(plain, compiled):
            p.grad = torch.randn_like(p)
            q.grad = p.grad.clone()
        step()
        other()
        for p, q in zip(plain, compiled):
            torch.testing.assert_close(p, q, rtol=0, atol=0)


@pytest.mark.parametrize("field", FIELDS)
@pytest.mark.parametrize(("n", "p"), [(5, 5), (7, 4), (6, 6), (9, 3)])
@pytest.mark.parametrize("size", [1e6, 1e14, 1e18])
def test_an_exploding_gradient_leaves_the_matrix_on_the_manifold(field, n, p, size):
    """A of odd order is singular: where it is huge, the 1 next to its eigenvalue 0 is lost."""
    parameter = point(n, p, field, torch.float64)
    optimizer = CayleySGD([parameter], lr=1e-3)
    parameter.grad = size * torch.randn_like(parameter)
    with contextlib.suppress(NonFiniteError) if n == p and n % 2 else contextlib.nullcontext():
        optimizer.step()
    assert error(parameter) < 100 * rounding(parameter)


@pytest.mark.parametrize("maker", ["sgd", "momentum", "nesterov"])
def test_a_step_that_cannot_be_computed_changes_nothing(maker):
    """Next to these entries 1 is nothing, and a skew-symmetric matrix of odd order is singular."""
    parameter = torch.nn.Parameter(torch.eye(3, dtype=torch.float64))
    optimizer = MAKERS[maker]([parameter], lr=1e-3)
    optimizer.zero_grad()
    before, state = parameter.detach().clone(), copy.deepcopy(optimizer.state_dict())
    parameter.grad = 1e23 * torch.ones_like(parameter).triu(1)
    with pytest.raises(NonFiniteError, match=r"singular equation with lr=0.001 .* Lower lr, or clip the gradient"):
        optimizer.step()
    assert torch.equal(parameter, before)
    assert optimizer.state_dict()["state"].get(0, {}) == state["state"].get(0, {})


@pytest.mark.parametrize("field", FIELDS)
def test_a_matrix_of_float32_in_float64_is_taken(field):
    """As of a network that .double() widens; what is in float64 alone has to be on the manifold to its rounding."""
    double = torch.complex128 if field == "complex" else torch.float64
    parameter = torch.nn.Parameter(point(6, 4, field, torch.float32).detach().to(double))
    allowed = 16 * torch.finfo(torch.float64).eps * 6
    assert error(parameter) > allowed
    optimizer = CayleySGD([parameter], lr=0.01, reorthogonalize_every=1)
    parameter.grad = torch.randn_like(parameter)
    optimizer.step()
    assert error(parameter) < allowed == rounding(parameter)
    with pytest.raises(NotOnGroupError, match="rounding of torch"):
        CayleySGD([torch.nn.Parameter(parameter.detach() * (1 + 1e-8))], lr=0.01)
