"""Certificates: no attack finds more than the bound, which is nearly reached by linear networks; what has none is refused."""

from __future__ import annotations

import copy
import math
import warnings
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import nn

from orthornn import (
    GORU,
    Householder,
    LeakyHouseholder,
    OrthogonalBlocks,
    OrthogonalRNN,
    Rotations,
    ScaledCayley,
    SpectralMargin,
    Unconstrained,
)
from orthornn.certify import MODES, bound, certified_accuracy, certified_radius, influence, movements
from orthornn.errors import ArgumentError, ArgumentTypeError, DTypeError, NonFiniteError, OrthornnWarning, ShapeError
from orthornn.learn.systems.sequence_model import SequenceModel

I, T, CLASSES = 3, 11, 4


@dataclass(frozen=True)
class Case:
    """A network by the arguments of its core and of its model. linear: whether its bound is nearly reached."""

    name: str
    core: dict[str, Any]
    model: dict[str, Any]
    blocks: bool = False
    linear: bool = False


def _rnn(name: str, linear: bool = False, model: dict[str, Any] | None = None, **core: Any) -> Case:
    return Case(name, core, model or {}, linear=linear)


COMPLEX = Householder(field="complex")
CASES = [
    _rnn("default"),
    _rnn("tanh", nonlinearity="tanh", model={"pool": "mean"}),
    _rnn("relu of two layers", nonlinearity="relu", num_layers=2, model={"pool": "both"}),
    _rnn("leaky relu", nonlinearity="leaky_relu", parametrization=ScaledCayley()),
    _rnn("oplu", nonlinearity="oplu", parametrization=Householder(3), model={"output": "all"}),
    _rnn("prelu", nonlinearity="prelu", parametrization=LeakyHouseholder(3, leaky=1.0)),
    _rnn("modrelu", nonlinearity="modrelu", parametrization=Householder(3)),
    _rnn("complex modrelu", nonlinearity="modrelu", parametrization=COMPLEX, num_layers=2),
    _rnn("gain", nonlinearity="tanh", gain=0.8, learn_gain=True, learn_h0=True),
    _rnn("spectral margin", nonlinearity="relu", parametrization=SpectralMargin(0.2, init="glorot")),
    _rnn("unconstrained", nonlinearity="tanh", parametrization=Unconstrained("glorot")),
    _rnn("linear transition", nonlinearity="tanh", linear_transition=True),
    _rnn("two directions", bidirectional=True, num_layers=2),
    _rnn("two directions, mean", bidirectional=True, num_layers=2, model={"pool": "mean"}),
    _rnn("two directions, all", bidirectional=True, num_layers=2, model={"output": "all"}),
    _rnn("linear", True, nonlinearity="identity", clip_backward=1e-3),
    _rnn("linear of two layers", True, nonlinearity="identity", num_layers=2, model={"pool": "mean"}),
    _rnn("linear of two directions", True, nonlinearity="identity", bidirectional=True, model={"pool": "both"}),
    _rnn("linear at all steps", True, nonlinearity="identity", model={"output": "all"}),
    _rnn("linear at all steps both ways", nonlinearity="identity", bidirectional=True, model={"output": "all"}),
    _rnn("linear, complex", True, nonlinearity="identity", parametrization=COMPLEX),
    _rnn("linear, decay", True, nonlinearity="identity", parametrization=Rotations(decay=True)),
    Case("block", {"mixing": "mlp", "decay": False}, {}, blocks=True),
    Case("block, complex", {"mixing": "gelu", "parametrization": COMPLEX}, {"output": "all"}, blocks=True),
    Case("blocks", {"norm": "none", "mixing": "gelu", "depth": 2}, {}, blocks=True),
    Case(
        "blocks, mlp", {"norm": "none", "mixing": "mlp", "depth": 2, "residual": False}, {"pool": "mean"}, blocks=True
    ),
    Case(
        "blocks of two directions",
        {"norm": "none", "mixing": "gelu", "depth": 2, "bidirectional": True},
        {"output": "all"},
        blocks=True,
    ),
]


def made(case: Case, n: int = 7, trained: bool = True) -> SequenceModel:
    """Return a network in float64, after a few updates."""
    make = OrthogonalBlocks if case.blocks else OrthogonalRNN
    extra = {"state_size": 2 * n} if case.blocks else {}
    core = make(I, n, **extra, **case.core).double()  # type: ignore[arg-type]
    features = n * (1 if case.blocks else core.num_directions * (2 if core.is_complex else 1))
    head = nn.Linear(features * (2 if case.model.get("pool") == "both" else 1), CLASSES).double()
    model = SequenceModel(core, head, **case.model)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    x, y = torch.randn(T, 16, I).double(), torch.randint(CLASSES, (16,))
    for _ in range(8 if trained else 0):
        scores = model(x)
        loss = nn.functional.cross_entropy(scores if scores.dim() == 2 else scores[-1], y)
        optimizer.zero_grad()
        loss.backward()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", OrthornnWarning)  # Adam on a manifold: W leaves it, and so does its norm
            optimizer.step()
        with torch.no_grad():
            for name, parameter in core.named_parameters():
                if "bias" in name and case.core.get("nonlinearity") == "modrelu":
                    parameter.clamp_(max=0)
                if "activation" in name and case.core.get("nonlinearity") == "prelu":
                    parameter[0] = -1.05  # a slope above 1
    return model.eval()


def projected(change: torch.Tensor, mode: str, where: torch.Tensor) -> torch.Tensor:
    """Return changes (T, B, I) scaled to the size that a mode allows for eps = 1. where: (T, B) of the step of "one"."""
    if mode == "one":
        change = change * where.unsqueeze(-1)
    dims = (2,) if mode == "every" else (0, 2)
    return change / torch.linalg.vector_norm(change, dim=dims, keepdim=True).clamp_min(1e-30)


def attack(model: nn.Module, mode: str, trials: int, eps: float, updates: int = 25) -> float:
    """Return the most that outputs move, over random changes of random inputs and after steps along the gradient."""
    best, batch = 0.0, min(trials, 2000)
    core = model.core if hasattr(model, "core") else model
    model = copy.deepcopy(model)
    for module in model.modules():
        if isinstance(module, OrthogonalRNN):
            module.clip_backward = None
    for begin in range(0, trials, batch):
        x = torch.randn(T, batch, core.input_size).double() * 10 ** torch.empty(batch, 1).uniform_(-2, 1).double()
        where = nn.functional.one_hot(torch.randint(T, (batch,)), T).T.double()
        where[:, ::3] = torch.eye(T)[0 if begin % (2 * batch) else -1][:, None]
        change = torch.randn_like(x)
        with torch.no_grad():
            before = model(x)
        for update in range(updates if begin == 0 else 1):
            change = projected(change, mode, where).detach().requires_grad_()
            moved = torch.linalg.vector_norm(model(x + eps * change) - before, dim=-1)
            moved = moved if moved.dim() == 1 else moved.amax(0)
            best = max(best, float(moved.detach().max()) / eps)
            (gradient,) = torch.autograd.grad(moved.sum(), change)
            size = torch.linalg.vector_norm(gradient, dim=(0, 2), keepdim=True)
            per_step = torch.linalg.vector_norm(gradient, dim=2, keepdim=True)
            direction = gradient / (per_step if mode == "every" else size).clamp_min(1e-30)
            change = change.detach() * (0.5 if update < updates // 2 else 0.0) + direction
    return best


@pytest.mark.sampled(14)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_no_attack_finds_more_than_the_bound(case, mode):
    """And of a linear network it finds at least half."""
    torch.manual_seed(1)
    model = made(case)
    for eps in (1e-3, 1.0):
        found, limit = attack(model, mode, 60, eps), bound(model, eps, T, mode) / eps
        rounding = 1e-10 / eps  # of the attack, which takes a difference
        assert 0 < found <= limit + rounding
        assert not case.linear or limit <= 2 * found


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_no_attack_of_many_trials_finds_more_than_the_bound(case, mode):
    torch.manual_seed(2)
    model = made(case, 9)
    assert attack(model, mode, 100_000, 0.1) <= bound(model, 0.1, T, mode) / 0.1 + 1e-9


def test_the_influence_of_one_layer_is_geometric():
    """c_s = ||Y|| ||V|| g^(T-1-s), not below it and equal to rounding."""
    rnn = OrthogonalRNN(I, 9, nonlinearity="tanh", gain=0.5, parametrization=Householder()).double()
    model = SequenceModel(rnn, nn.Linear(9, CLASSES).double())
    first = [float(torch.linalg.matrix_norm(weight.detach(), 2)) for weight in (rnn.weight_ih_l0, model.head.weight)]
    expected = torch.tensor([math.prod(first) * 0.5 ** (T - 1 - s) for s in range(T)], dtype=torch.float64)
    found = influence(model, T)
    assert (found >= expected).all()
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)
    of_states = influence(model, T, "state")
    torch.testing.assert_close(of_states, expected / first[0], rtol=0, atol=1e-12)
    torch.testing.assert_close(bound(model, 2.0, T, "every"), 2 * float(expected.sum()), rtol=1e-12, atol=0)
    torch.testing.assert_close(bound(model, 2.0, T, "energy"), 2 * float(expected.norm()), rtol=1e-12, atol=0)
    torch.testing.assert_close(bound(model, 2.0, T, "one"), 2 * float(expected.max()), rtol=1e-12, atol=0)


def test_one_bound_is_that_of_the_gradient_for_a_linear_network():
    """One output: no attack by its gradient is weaker than the bound, to rounding."""
    model = SequenceModel(OrthogonalRNN(I, 9, nonlinearity="identity").double(), nn.Linear(9, 1).double())
    x = torch.randn(T, 1, I).double().requires_grad_()
    (gradient,) = torch.autograd.grad(model(x).sum(), x)
    norms = gradient.norm(dim=-1)
    for mode, exact in zip(MODES, (norms.sum(), norms.norm(), norms.max())):
        limit = bound(model, 1.0, T, mode)
        assert float(exact) <= limit <= float(exact) * (1 + 1e-9)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("field", ["real", "complex"])
def test_a_block_has_the_norms_of_its_impulses(field, mode):
    """With units that gelu leaves as they are an attack nearly finds it, and the influences of the steps give more."""
    method = Householder(field="complex") if field == "complex" else None
    decay = {} if method else {"decay": False}
    core = OrthogonalBlocks(1, 6, 8, mixing="gelu", residual=False, parametrization=method, **decay).double()
    model = SequenceModel(core, nn.Linear(6, 1).double()).requires_grad_(False)
    model.core.blocks[0].mix[0].bias.fill_(50.0)  # gelu(z) is z from there on
    steps = 40
    with torch.enable_grad():
        x = torch.zeros(steps, 1, 1).double().requires_grad_()
        (gradient,) = torch.autograd.grad(model(x).sum(), x)
    total = {"every": torch.sum, "energy": torch.linalg.vector_norm, "one": torch.amax}[mode]
    found, limit = float(total(gradient.abs())), bound(model, 1.0, steps, mode)
    A, Y = model.core.blocks[0].mix[0].weight, model.head.weight
    units = torch.eye(steps)[:, :, None, None].double()
    states = torch.stack([model.core.blocks[0].recurrence(unit)[0][-1, 0] for unit in units])
    moved = states - model.core.blocks[0].recurrence(torch.zeros(steps, 1, 1).double())[0][-1, 0]
    AK = A @ (torch.view_as_real(moved).flatten(1) if moved.is_complex() else moved).T  # (6, T)
    gelu = (1 + math.erf(1)) / 2 + 1 / (math.e * math.sqrt(math.pi))
    size = torch.linalg.matrix_norm(AK, 2) if mode == "energy" else total(AK.norm(dim=0))
    expected = gelu * float(Y.norm() * size)
    assert found <= expected <= limit
    assert limit == pytest.approx(expected, rel=1e-9)
    assert limit < 0.95 * float(total(influence(model, steps)))


def test_an_orthogonal_network_keeps_its_bound_where_another_one_grows():
    methods = (Householder(), Unconstrained("glorot"))
    networks = [OrthogonalRNN(I, 16, nonlinearity="relu", parametrization=method).double() for method in methods]
    with torch.no_grad():
        networks[1].transition_l0.weight *= 1.5 / torch.linalg.matrix_norm(networks[1].transition_l0.weight, 2)
        networks[1].weight_ih_l0.copy_(networks[0].weight_ih_l0)
    orthogonal, other = [[bound(network, 1.0, steps, "one") for steps in (1, 101)] for network in networks]
    assert orthogonal[1] == pytest.approx(orthogonal[0], rel=1e-5)
    assert other[1] == pytest.approx(other[0] * 1.5**100, rel=1e-5)


@pytest.mark.parametrize("directions", [1, 2])
@pytest.mark.parametrize("nonlinearity", ["identity", "relu"])
def test_disturbed_states_move_outputs_by_no_more_than_the_bound(directions, nonlinearity):
    """As the rounding of an integer network does: every state is disturbed after every step, here along the gradient."""
    size, batch, n = 0.01, 50, 8
    core = OrthogonalRNN(I, n, num_layers=2, nonlinearity=nonlinearity, bidirectional=directions == 2).double()
    model = SequenceModel(core, nn.Linear(n * directions, CLASSES).double()).requires_grad_(False)
    x = torch.randn(T, batch, I).double()

    def run(disturbances: torch.Tensor) -> torch.Tensor:
        below = x
        for k in range(2):
            outs, last = [], []
            for d, layer in enumerate(core.layers()[k * directions : (k + 1) * directions]):
                h, states = torch.zeros(batch, n).double(), []
                for row, change in zip(below.flip(0) if d else below, disturbances[k, d]):
                    h = layer.step(row, h) + change
                    states.append(h)
                outs.append(torch.stack(states[::-1] if d else states))
                last.append(h)
            below = torch.cat(outs, -1)
        return model.head(torch.cat(last, -1))

    change, before, worst = torch.randn(2, directions, T, batch, n).double(), model(x), 0.0
    torch.testing.assert_close(run(0 * change), before, rtol=1e-12, atol=1e-12)
    for _ in range(20):
        change = (size * nn.functional.normalize(change, dim=-1)).requires_grad_()
        moved = (run(change) - before).norm(dim=1)
        worst = max(worst, float(moved.detach().max()))
        (change,) = torch.autograd.grad(moved.sum(), change)
    limit = bound(model, 0.0, T, state_error=size)
    assert worst <= limit
    assert nonlinearity == "relu" or worst > 0.2 * limit
    targets = before.argmax(1)
    assert (certified_radius(model, x, targets, state_error=size) <= certified_radius(model, x, targets)).all()


@pytest.mark.parametrize("case", [CASES[0], CASES[13], CASES[15], CASES[17]], ids=lambda case: case.name)
@pytest.mark.parametrize("mode", MODES)
def test_no_attack_within_the_radius_changes_the_class(case, mode):
    """And just beyond the radius of a linear network, one does."""
    torch.manual_seed(3)
    model = made(case)
    x = torch.randn(T, 40, I).double()
    targets = model(x).argmax(1)
    radii = certified_radius(model, x, targets, mode)
    assert (radii > 0).all()
    where = nn.functional.one_hot(torch.randint(T, (40,)), T).T.double()
    flipped = torch.zeros(40, dtype=torch.bool)
    for rival in range(CLASSES):
        inputs = x.clone().requires_grad_()
        unclipped = copy.deepcopy(model)
        unclipped.core.clip_backward = None
        scores = unclipped(inputs)
        gap = scores[:, rival] - scores.gather(1, targets[:, None])[:, 0]
        (gradient,) = torch.autograd.grad(gap.sum(), inputs)
        if mode == "one":
            where = nn.functional.one_hot(gradient.norm(dim=2).argmax(0), T).T.double()
        if mode == "every":
            gradient = gradient / gradient.norm(dim=2, keepdim=True).clamp_min(1e-30)
        change = projected(gradient, mode, where)
        for factor in (0.999, 1.001):
            said = model(x + factor * radii[:, None] * change).argmax(1)
            assert factor > 1 or (said == targets).all()
        flipped |= said != targets
    assert not case.linear or flipped.all()


def test_certified_accuracy_falls_from_the_accuracy():
    model = made(CASES[0])
    x, targets = torch.randn(T, 50, I).double(), torch.randint(CLASSES, (50,))
    accuracy = float((model(x).argmax(1) == targets).double().mean())
    shares = [certified_accuracy(model, x, targets, eps) for eps in (0.0, 1e-4, 1e-2, 10.0)]
    assert shares[0] == accuracy
    assert shares == sorted(shares, reverse=True)
    assert shares[-1] == 0
    wrong = model(x).argmax(1) != targets
    assert (certified_radius(model, x, targets)[wrong] == 0).all()


def test_sequences_of_unequal_length_have_the_radii_of_each():
    model = made(CASES[1])
    x, lengths = torch.randn(T, 5, I).double(), [4, 11, 4, 1, 7]
    packed = nn.utils.rnn.pack_padded_sequence(x, torch.tensor(lengths), enforce_sorted=False)
    targets = model(packed).argmax(1)
    found = certified_radius(model, packed, targets)
    apart = [certified_radius(model, x[:n, b : b + 1], targets[b : b + 1]) for b, n in enumerate(lengths)]
    torch.testing.assert_close(found, torch.cat(apart), rtol=1e-9, atol=0)


def test_tokens_are_one_hot_vectors_which_another_token_moves_by_the_root_of_two():
    core = OrthogonalRNN(5, 8).double()
    model = SequenceModel(core, nn.Linear(8, CLASSES).double(), token_classes=5)
    tokens = torch.randint(5, (T, 30))
    targets = model(tokens).argmax(1)
    vectors = nn.functional.one_hot(tokens, 5).double()
    torch.testing.assert_close(certified_radius(model, tokens, targets), certified_radius(model, vectors, targets))
    radii = certified_radius(model, tokens, targets, "one")
    other = tokens.clone()
    other[torch.randint(T, (30,)), torch.arange(30)] = torch.randint(5, (30,))
    kept = model(other).argmax(1) == targets
    assert kept[radii >= math.sqrt(2)].all()


def test_an_eps_that_grows_the_bound_without_end_is_infinite_and_certifies_nothing():
    rnn = OrthogonalRNN(I, 5, nonlinearity="relu", parametrization=Unconstrained("identity"), gain=3.0)
    model = SequenceModel(rnn, nn.Linear(5, CLASSES))
    assert bound(model, 1.0, 2000) == math.inf
    assert certified_accuracy(model, torch.zeros(2000, 2, I), torch.tensor([0, 1]), 1e-30) == 0


@pytest.mark.parametrize("name", ["modrelu", "complex_modrelu"])
def test_modrelu_that_jumps_is_refused(name):
    rnn = OrthogonalRNN(I, 6, nonlinearity=name)
    with torch.no_grad():
        rnn.bias_ih_l0.fill_(-0.1)
        assert bound(rnn, 1.0, T) > 0
        rnn.bias_ih_l0[1] = 1e-3
    with pytest.raises(ArgumentError, match=r"continuous nonlinearity.*it jumps"):
        bound(rnn, 1.0, T)


def test_what_has_no_certificate_is_refused():
    head = nn.Linear(8, CLASSES)
    rnn = OrthogonalRNN(I, 8)
    for network, error, message in [
        (OrthogonalBlocks(I, 8, depth=2, mixing="gelu"), ArgumentError, "norm='none', but got 'layer'"),
        (OrthogonalBlocks(I, 8, depth=2, mixing="gelu", norm="rms"), ArgumentError, "norm='none', but got 'rms'"),
        (OrthogonalBlocks(I, 8, norm="none"), ArgumentError, "but got 'glu'"),
        (OrthogonalBlocks(I, 8, mixing="gelu", stride=2), ArgumentError, "stride=1, but got 2"),
        (GORU(I, 8), ArgumentTypeError, "but got GORU"),
        (nn.LSTM(I, 8), ArgumentTypeError, "but got LSTM"),
        (SequenceModel(rnn, nn.Sequential(head, nn.GELU())), ArgumentTypeError, "torch.nn.Linear as its head"),
        (SequenceModel(rnn, nn.Linear(24, CLASSES), pool="summary"), ArgumentError, "'summary'"),
        (SequenceModel(rnn, head, recent=nn.Linear(1, 1)), ArgumentError, "'recent'"),  # type: ignore[arg-type]
    ]:
        with pytest.raises(error, match=message):
            bound(network, 1.0, T)
    assert bound(OrthogonalBlocks(I, 8, mixing="gelu"), 1.0, T) > 0  # one block has no norm
    broken = OrthogonalRNN(I, 8)
    with torch.no_grad():
        broken.weight_ih_l0[0, 0] = math.nan
    with pytest.raises(NonFiniteError):
        bound(broken, 1.0, T)


def test_wrong_arguments():
    model = SequenceModel(OrthogonalRNN(I, 8), nn.Linear(8, CLASSES))
    x, y = torch.randn(T, 2, I), torch.tensor([0, 1])
    for call, error in [
        (lambda: bound(model, -1.0, T), ArgumentError),
        (lambda: bound(model, 1.0, 0), ArgumentError),
        (lambda: bound(model, 1.0, T, "each"), ArgumentError),
        (lambda: bound(model, 1.0, T, state_error=-1.0), ArgumentError),
        (lambda: influence(model, T, "output"), ArgumentError),
        (lambda: movements(model.core, T), ArgumentTypeError),
        (lambda: certified_radius(model, x, y[:1]), ShapeError),
        (lambda: certified_radius(model, x, y.float()), DTypeError),
        (lambda: certified_radius(model, x[0], y), ShapeError),
        (lambda: certified_radius(SequenceModel(model.core, model.head, output="all"), x, y), ArgumentError),
        (lambda: certified_radius(model, x, y + 3), ArgumentError),
    ]:
        with pytest.raises(error, match="Expected"):
            call()
