"""The laws that every parametrization keeps. A new method adds a line to CASES."""

from __future__ import annotations

import copy
import pickle
from dataclasses import dataclass

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from orthornn import (
    Givens,
    Hadamard,
    Householder,
    LeakyHouseholder,
    MatrixExponential,
    RestrictedUnitary,
    Rotations,
    ScaledCayley,
    SpectralMargin,
    Stiefel,
    Unconstrained,
)
from orthornn.errors import ArgumentError, DTypeError, NonFiniteError, NotOnGroupError, ShapeError
from orthornn.modules import Transition
from orthornn.parametrizations.givens import brick_pairs, fft_pairs
from orthornn.parametrizations.matrices import haar
from orthornn.parametrizations.parametrization import ORTHOGONAL_GROUPS, Parametrization
from orthornn.testing import check_parametrization
from support import captured
from support.tolerances import tolerance

COMPACT = (Householder, LeakyHouseholder, Rotations)  # with a compact form


@dataclass(frozen=True)
class Law:
    """A method at a size, and the dimension of what it spans."""

    method: Parametrization
    n: int
    dimension: int

    def __repr__(self) -> str:
        return f"{self.method}-n{self.n}"


def trapezoid(n: int, m: int) -> int:
    """Directions of m reflectors of R^n, ..., R^(n-m+1): each loses its length."""
    return n * m - m * (m - 1) // 2 - m


CASES = [
    Law(Householder(), 1, 0),
    Law(Householder(), 2, 1),
    Law(Householder(), 7, 21),
    Law(Householder(), 8, 28),
    Law(Householder(reflections=1), 5, 4),
    Law(Householder(reflections=1), 2, 1),
    Law(Householder(reflections=3), 8, trapezoid(8, 3)),
    Law(Householder(reflections=6), 7, trapezoid(7, 6)),
    Law(Householder(reflections=3, unit=True), 8, trapezoid(8, 3)),
    Law(Householder(unit=True), 7, 21),
    Law(Householder(reflections=3, base="rotations"), 9, trapezoid(9, 3)),
    Law(Householder(base="rotations", angles="log"), 6, 15),
    Law(Householder(reflections=2, base="rotations", angles="quarter", train_angles=True), 9, trapezoid(9, 2) + 4),
    Law(Householder(u1="soft"), 1, 1),
    Law(Householder(u1="soft", base="rotations"), 5, 11),
    Law(Householder(field="complex"), 1, 1),
    Law(Householder(field="complex"), 5, 25),
    Law(Householder(reflections=2, field="complex"), 5, 2 * 9 - 4),
    Law(Householder(reflections=2, field="complex", base="rotations"), 5, 2 * 9 - 4),
    Law(Householder(reflections=1, field="complex", base="rotations", train_angles=True), 4, 2 * 4 - 2 + 4),
    Law(LeakyHouseholder(), 1, 0),
    Law(LeakyHouseholder(), 7, 21 + 2),
    Law(LeakyHouseholder(reflections=3), 8, trapezoid(8, 3) + 2),
    Law(LeakyHouseholder(reflections=2, leaky=1.0, radii=(0.5, 0.7), angles="log"), 5, trapezoid(5, 2) + 3),
    Law(LeakyHouseholder(reflections=2, leaky=0.0), 6, trapezoid(6, 2)),
    Law(ScaledCayley(), 1, 0),
    Law(ScaledCayley(), 6, 15),
    Law(ScaledCayley(negatives=3), 7, 21),
    Law(ScaledCayley(negatives=7), 7, 21),
    Law(ScaledCayley(field="complex"), 1, 1),
    Law(ScaledCayley(negatives=2, field="complex"), 5, 25),
    Law(ScaledCayley(field="complex", phases=True), 1, 1),
    Law(ScaledCayley(negatives=1, field="complex", phases=True), 5, 25),
    Law(MatrixExponential(), 1, 0),
    Law(MatrixExponential(), 6, 15),
    Law(MatrixExponential(init="cayley"), 7, 21),
    Law(MatrixExponential(rebase_every=2), 5, 10),
    Law(MatrixExponential(field="complex"), 1, 1),
    Law(MatrixExponential(field="complex"), 5, 25),
    Law(MatrixExponential(field="complex", rebase_every=1), 4, 16),
    Law(Givens(), 1, 0),
    Law(Givens(), 6, 15),
    Law(Givens(), 7, 21),
    Law(Givens(layers=8), 5, 10),
    Law(Givens(layers=2), 6, 5),
    Law(Givens(layers="fft"), 1, 0),
    Law(Givens(layers="fft"), 2, 1),
    Law(Givens(layers="fft"), 6, 7),
    Law(Givens(field="complex"), 1, 1),
    Law(Givens(field="complex"), 4, 16),
    Law(Givens(field="complex"), 5, 25),
    Law(Givens(layers=2, field="complex"), 5, 2 * 4 + 5),
    Law(Givens(layers="fft", field="complex"), 1, 1),
    Law(Givens(layers="fft", field="complex"), 2, 4),
    Law(Givens(layers="fft", field="complex"), 5, 2 * 5 + 5),
    Law(Hadamard(), 1, 1),
    Law(Hadamard(), 5, 5),
    Law(Hadamard(), 8, 8),
    Law(Hadamard(block=2), 6, 6),
    Law(Hadamard(block=4), 16, 16),
    Law(RestrictedUnitary(), 1, 1),
    Law(RestrictedUnitary(), 2, 4),
    Law(RestrictedUnitary(), 6, 7 * 6 - 7),
    Law(Rotations(), 1, 0),
    Law(Rotations(), 2, 1),
    Law(Rotations(angles="log"), 7, 3),
    Law(Rotations(angles="quarter"), 8, 4),
    Law(Rotations(decay=True), 1, 1),
    Law(Rotations(decay=True, radii=(0.5, 0.5)), 7, 7),
    Law(Rotations(decay=True), 8, 8),
    Law(Rotations(decay=True, leaky=0.6), 9, 4 + 3),
    Law(Rotations(decay=True, leaky=0.0), 4, 2),
    Law(SpectralMargin(margin=0), 5, 10),
    Law(SpectralMargin(margin=0.1), 5, 25),
    Law(SpectralMargin(margin=None, init="glorot"), 4, 16),
    Law(SpectralMargin(margin=0.5, init="identity"), 4, 16),
    Law(Stiefel(), 5, 10),
    Law(Stiefel(field="complex"), 4, 16),
    Law(Unconstrained(), 5, 25),
    Law(Unconstrained(init="uniform"), 5, 25),
    Law(Unconstrained(init="glorot"), 5, 25),
    Law(Unconstrained(init="identity"), 5, 25),
]
EVERY = pytest.mark.parametrize("law", CASES, ids=repr)
ORTHOGONAL = pytest.mark.parametrize(
    "law", [law for law in CASES if law.method.bind(law.n).group in ORTHOGONAL_GROUPS], ids=repr
)
EXACT = tolerance(torch.float64, 200)


def bound(law: Law, dtype=torch.float64):
    """The bound module and random free tensors, those on a manifold as they are drawn."""
    torch.manual_seed(0)
    method = law.method.bind(law.n).to(dtype)
    free = (
        value.to(dtype) + (0 if name in method.manifolds else 0.3) * torch.randn_like(value, dtype=dtype)
        for name, value in zip(method.names, method.initial())
    )
    free = tuple(free)
    if getattr(law.method, "u1", None) == "soft":
        free[0][-1] = 0.4  # inside [-1, 1], where it moves
    return method, tuple(value.requires_grad_() for value in free)


@pytest.mark.sampled(7)
@EVERY
def test_the_laws_of_every_parametrization(law):
    """Of the group, right_inverse, gradients, forms, copies: see orthornn.testing."""
    check_parametrization(law.method, law.n)
    assert (law.method.bind(law.n).num_reflections is None) != isinstance(law.method, COMPACT)
    assert eval(repr(law.method)) == law.method  # the repr is the call


@EVERY
def test_sizes_that_are_none(law):
    for n in (0, -1, 2.0, True):
        with pytest.raises(ArgumentError, match="n to be an integer of at least 1, but got"):
            law.method.bind(n)


@EVERY
def test_right_inverse_of_its_own_matrices(law):
    method, free = bound(law)
    W = method(*free).detach()
    if getattr(law.method, "train_angles", False):  # right_inverse sets them to zero
        with pytest.raises(NotOnGroupError):
            method.right_inverse(W)
        W = method(*free[:-1], torch.zeros_like(free[-1])).detach()
    back = method.right_inverse(W)
    torch.testing.assert_close(method(*back), W, rtol=0, atol=EXACT)
    assert [value.shape for value in back] == [value.shape for value in free]
    single = W.to(torch.complex64 if W.is_complex() else torch.float32)
    off = (method(*method.right_inverse(single)) - single.to(W.dtype)).abs().max()
    assert off < tolerance(torch.float32, 4 * law.n)


@pytest.mark.sampled(48)
@EVERY
def test_rank_of_the_jacobian_is_the_dimension(law):
    """What the free tensors reach near a random point, tangent directions of a manifold being those allowed."""
    method, free = bound(law)

    def flat(*tensors):
        W = method(*tensors)
        return (torch.view_as_real(W) if W.is_complex() else W).flatten()

    jacobians = torch.autograd.functional.jacobian(flat, free)
    columns = []
    for name, value, jacobian in zip(method.names, free, jacobians):
        matrix = jacobian.flatten(1)
        if name in method.manifolds:  # tangents are value times skew matrices
            square = torch.view_as_complex(value.detach()) if method.field == "complex" else value.detach()
            basis = []
            for i in range(law.n):
                for j in range(law.n):
                    for unit in (1.0, 1.0j) if square.is_complex() else (1.0,):
                        skew = torch.zeros_like(square)
                        skew[i, j] += unit
                        skew = skew - skew.mH
                        tangent = square @ skew
                        basis.append((torch.view_as_real(tangent) if tangent.is_complex() else tangent).flatten())
            matrix = matrix @ torch.stack(basis, dim=1)
        columns.append(matrix)
    singular = torch.linalg.svdvals(torch.cat(columns, dim=1))
    largest = float(singular.max()) if singular.numel() else 0.0
    assert int((singular > 1e-9 * max(1.0, largest)).sum()) == law.dimension


@EVERY
def test_what_acts_after_an_update_says_so(law):
    """attach calls the others not at all: they change neither the free tensors nor the buffers."""
    method, free = bound(law)
    before = [value.detach().clone() for value in (*free, *method.buffers())]
    with torch.no_grad():
        free[0].mul_(3)
        before[0].mul_(3)
    method.after_update_(*free)
    if not method.acts_after_update:
        assert all(torch.equal(value, old) for value, old in zip((*free, *method.buffers()), before))


def test_a_class_with_its_own_after_update_acts():
    class Own(type(Stiefel().bind(3))):
        def after_update_(self, *free):
            pass

    assert Own(3, "real").acts_after_update
    assert not Stiefel().bind(3).acts_after_update


@EVERY
def test_bad_matrices(law):
    method = law.method.bind(law.n)
    dtype = torch.complex128 if method.field == "complex" else torch.float64
    with pytest.raises(ShapeError, match="W to have shape"):
        method.right_inverse(torch.zeros(law.n, law.n + 1, dtype=dtype))
    with pytest.raises(NonFiniteError, match="first at index"):
        method.right_inverse(torch.full((law.n, law.n), float("nan"), dtype=dtype))
    if method.group == "all":
        return
    with pytest.raises(NotOnGroupError, match=r"orthogonal|unitary|singular values|rotations"):
        method.right_inverse(3 * torch.eye(law.n, dtype=dtype))
    with pytest.raises(DTypeError, match="floating-point"):
        method.right_inverse(torch.eye(law.n, dtype=torch.int64))


@pytest.mark.sampled(47)
@EVERY
def test_right_inverse_takes_no_part_of_its_argument(law):
    """What is assigned is copied: training the free tensors must not write into the caller's matrix."""
    method, free = bound(law)
    if getattr(law.method, "train_angles", False):
        free = (*free[:-1], torch.zeros_like(free[-1]))
    W = method(*free).detach().clone()
    kept = W.clone()
    for value in method.right_inverse(W):
        value.add_(1.0)
    assert torch.equal(W, kept)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_sixteen_bit_matrices(dtype):
    """A rounded orthogonal matrix is taken for what it was; one that is not orthogonal is refused, at any size."""
    for n in (2, 17, 200):
        W = haar(n, False, torch.Generator().manual_seed(n))
        for parametrization in (Householder(), ScaledCayley(), Stiefel(), SpectralMargin(margin=0)):
            method = parametrization.bind(n)
            back = method(*method.right_inverse(W.to(dtype)))
            assert method.orthogonality_error(back) < tolerance(torch.float64, n * n)
            assert torch.linalg.matrix_norm(back - W) < 2 * torch.finfo(dtype).eps * n**0.5
            with pytest.raises(NotOnGroupError):
                method.right_inverse(torch.zeros(n, n, dtype=dtype))


def holder(law, dtype=torch.float64, device=None):
    """A transition whose free tensors and buffers are none of those that a new one begins with."""
    torch.manual_seed(3)
    held = Transition(law.method, law.n, device=device, dtype=dtype)
    with torch.no_grad():
        for name, value in zip(held.method.names, held.free()):
            if name not in held.method.manifolds:
                value.add_(0.2 * torch.randn_like(value))
        for name in ("D", "signs"):
            if name in dict(held.method.named_buffers()):
                getattr(held.method, name)[0] *= -1
    held.after_update_()
    held.after_update_()
    return held


def same(a, b):
    return a.dtype == b.dtype and torch.equal(a, b)


@pytest.mark.sampled(54)
@EVERY
def test_buffers_survive_what_torch_does_to_modules(law):
    """The meta device with assign=True and to_empty(), contexts of a default device, copies, and a reset."""
    held = holder(law)
    W, state = held.matrix(), held.state_dict()
    torch.manual_seed(9)
    other = Transition(law.method, law.n, dtype=torch.float64)
    other.load_state_dict(state)
    assert same(other.matrix(), W)
    for assign in (True, False):
        meta = Transition(law.method, law.n, device="meta", dtype=torch.float64)
        assert all(tensor.is_meta for tensor in (*meta.parameters(), *meta.buffers()))
        if not assign:
            meta.to_empty(device="cpu")
            for tensor in (*meta.parameters(), *meta.buffers()):
                tensor.data.fill_(1)  # stands for memory that nothing has been written to
        meta.load_state_dict(state, assign=assign)
        assert same(meta.matrix(), W)
        assert not [name for name, tensor in meta.named_buffers() if tensor.is_meta]
    with torch.device("meta"):
        lazy = Transition(law.method, law.n, dtype=torch.float64)
        assert all(tensor.is_meta for tensor in (*lazy.parameters(), *lazy.buffers()))
        there = Transition(law.method, law.n, device="cpu", dtype=torch.float64)
        there.load_state_dict(state)
        assert same(there.matrix(), W)
    lazy.to_empty(device="cpu").reset_parameters()
    assert lazy.method.orthogonality_error(lazy.matrix()) < EXACT or held.method.group not in (
        "O",
        "SO",
        "det=-1",
        "U",
        "subset",
    )
    for twin in (copy.deepcopy(held), pickle.loads(pickle.dumps(held)), copy.deepcopy(held).share_memory()):
        assert same(twin.matrix(), W)
        assert same(held.matrix(), W)


@pytest.mark.sampled(118)
@EVERY
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.float64], ids=str)
def test_buffers_keep_their_precision(law, dtype):
    """What is trained is rounded; what W is made of besides is not, whatever the order of the moves."""
    held = holder(law)
    moved = copy.deepcopy(held).to(dtype)
    free = [value.detach().to(dtype) for value in held.free()]
    for value, old in zip(moved.free(), free):
        assert same(value.detach(), old)
    for name, buffer in held.method.named_buffers():
        assert same(dict(moved.method.named_buffers())[name], buffer)
    wide = [value.float() if dtype in (torch.bfloat16, torch.float16) else value for value in free]
    assert same(moved.matrix(), held.method(*wide))
    back = copy.deepcopy(held).bfloat16().double()
    assert all(same(new, old) for new, old in zip(back.method.buffers(), held.method.buffers()))


@ORTHOGONAL
def test_moving_averages_with_buffers_stay_orthogonal(law):
    """torch's AveragedModel(use_buffers=True) averages buffers like parameters: a base, and signs."""
    if law.method.bind(law.n).manifolds:
        return  # the average of the matrices themselves is off the manifold, as it is of any free matrix
    held = holder(law)
    average = AveragedModel(held, use_buffers=True)
    for seed in range(4):
        torch.manual_seed(seed)
        with torch.no_grad():
            for value in held.free():
                value.add_(0.3 * torch.randn_like(value))
        held.after_update_()
        held.after_update_()
        average.update_parameters(held)
    assert average.module.method.orthogonality_error(average.module.matrix()) < EXACT
    with torch.no_grad():
        for name in ("D", "signs"):
            if name in dict(held.method.named_buffers()):
                getattr(held.method, name).mul_(-1)
    average.update_parameters(held)
    assert average.module.method.orthogonality_error(average.module.matrix()) < EXACT


def test_a_permutation_that_an_average_has_rounded_is_an_error():
    """torch averages whole numbers in floating point and cuts the result off: 5 became 4, twice, and W not unitary."""
    held = Transition(RestrictedUnitary(), 128, dtype=torch.float64)
    average = AveragedModel(held, multi_avg_fn=get_ema_multi_avg_fn(0.95), use_buffers=True)
    plain = AveragedModel(held, multi_avg_fn=get_ema_multi_avg_fn(0.95))
    for _ in range(20):
        average.update_parameters(held)
        plain.update_parameters(held)
    assert plain.module.method.orthogonality_error(plain.module.matrix()) < EXACT
    with pytest.raises(ArgumentError, match="permutation to contain each of 0 to 127 once, but got duplicates"):
        average.module.matrix()
    average.module.method.permutation.copy_(held.method.permutation)
    assert average.module.method.orthogonality_error(average.module.matrix()) < EXACT


@EVERY
def test_what_follows_from_sizes_is_no_state(law):
    """Every buffer is in the state_dict, so that nothing has to be there before it is loaded."""
    method = law.method.bind(law.n)
    assert set(dict(method.named_buffers())) == set(method.state_dict())


@pytest.mark.sampled(12)
@EVERY
def test_built_of_fake_tensors(law):
    with FakeTensorMode():
        fake = Transition(law.method, law.n)
        assert fake.matrix().shape == (law.n, law.n)
        fake.requires_grad_(False)
        assert fake.matrix().shape == (law.n, law.n)
    assert type(Transition(law.method, law.n).matrix()) is torch.Tensor  # nothing fake was cached


def test_tables_of_rotations_are_the_pairs():
    for n in (1, 2, 3, 5, 8, 12):
        for layers in (1, 2, 5, n + 1, "fft"):
            pairs = fft_pairs(n) if layers == "fft" else brick_pairs(n, layers)
            rows = [(layer, p, q) for layer, chosen in enumerate(pairs) for p, q in chosen]
            tables = Givens(layers=layers).bind(n).tables(torch.device("cpu"))
            assert list(zip(*(column.tolist() for column in tables[:3]))) == rows
            expected = torch.arange(n).repeat(len(pairs), 1)
            for layer, p, q in rows:
                expected[layer, p], expected[layer, q] = q, p
            assert torch.equal(tables.partner, expected)


@pytest.mark.sampled(41)
@pytest.mark.parametrize("law", CASES, ids=repr)
def test_a_pass_while_cuda_captures_reads_nothing_on_the_host(law, monkeypatch):
    """Values, gradients and a transition without gradients are those of an ordinary pass."""
    torch.manual_seed(0)
    transition = Transition(law.method, law.n, dtype=torch.float64)
    free = list(transition.free())
    seed = torch.randn_like(transition.matrix().detach())

    def both():
        W = transition.matrix()
        with torch.no_grad():
            return W, transition.matrix(), torch.autograd.grad(W, free, seed, allow_unused=True)

    W, _, gradients = both()
    with monkeypatch.context() as patches:
        captured.begin(patches)
        found, again, its_gradients = both()
    atol = tolerance(torch.float64, law.n)
    torch.testing.assert_close(found, W, rtol=0, atol=atol)
    torch.testing.assert_close(again, W.detach(), rtol=0, atol=atol)
    for mine, theirs in zip(its_gradients, gradients):
        torch.testing.assert_close(mine, theirs, rtol=0, atol=64 * atol)


def test_a_base_that_is_not_orthogonal_is_nan_while_cuda_captures(monkeypatch):
    transition = Transition(MatrixExponential(rebase_every=1), 5, dtype=torch.float64)
    transition.method.base.mul_(0.9)  # as an average of bases is
    assert transition.matrix().isfinite().all()
    captured.begin(monkeypatch)
    W = transition.matrix()
    monkeypatch.undo()
    assert W.isnan().all()


@pytest.mark.parametrize(
    "method", [Givens(), ScaledCayley(), MatrixExponential(rebase_every=3)], ids=lambda method: type(method).__name__
)
def test_group_is_that_of_the_matrix_that_was_assigned(method):
    """A buffer takes the other determinant; the group said "SO" after that."""
    made = method.bind(4)
    W = haar(4, False, torch.Generator().manual_seed(1))
    for sign, group in ((-1.0, "det=-1"), (1.0, "SO")):
        W[0] *= sign * torch.linalg.det(W)
        made.right_inverse(W)
        assert made.group == group
        assert f"group='{group}'" in repr(made)
    made.to("meta")
    assert made.group == "SO"
