"""The delta rule: every backend against explicit matrices, differentiated by autograd."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

import pytest
import torch
from torch import Tensor

from orthornn.errors import ArgumentError, BackendError, DTypeError, ShapeError
from orthornn.kernels import delta_rnn
from orthornn.kernels.delta import chunked, cpp, kernel
from orthornn.kernels.delta.call import DeltaCall
from orthornn.layout import SequenceLayout
from support.tolerances import tolerance

WAYS = {"updates": False, "products": True}  # of the compiled kernel
BACKENDS = ("reference", "chunked", *WAYS)


@pytest.fixture(params=WAYS)
def way(request, monkeypatch):
    """One of the two ways of the compiled kernel, whatever the sizes."""
    monkeypatch.setattr(cpp, "by_products", lambda call, backward: WAYS[request.param])


@pytest.fixture
def backend(request, monkeypatch):
    """The name of a backend, of one of WAYS for the compiled kernel that goes this way."""
    if request.param not in WAYS:
        return request.param
    monkeypatch.setattr(cpp, "by_products", lambda call, backward: WAYS[request.param])
    return "cpp"


@dataclass(frozen=True)
class Case:
    """One call; `tensors` are its arguments in float64."""

    steps: int = 5
    batch: int = 3
    updates: int = 1
    heads: int = 1
    keys: int = 4
    values: int = 4
    gate: str | None = None  # "head" or "key"
    resets: bool = False
    ragged: bool = False
    often: float = 0.3  # that a step resets
    tensors: dict[str, Tensor] = field(default_factory=dict)
    options: dict[str, Tensor] = field(default_factory=dict)

    def draw(self, seed: int = 0) -> Case:
        generator = torch.Generator().manual_seed(seed)

        def normal(*shape: int) -> Tensor:
            return torch.randn(*shape, dtype=torch.float64, generator=generator)

        options: dict[str, Tensor] = {}
        lead: tuple[int, ...] = (self.steps, self.batch)
        if self.ragged:
            sizes = [max(1, self.batch - t * self.batch // self.steps) for t in range(self.steps)]
            options["batch_sizes"] = torch.tensor(sizes)
            lead = (sum(sizes),)
        heads, keys, values = self.heads, self.keys, self.values
        tensors = {
            "q": normal(*lead, heads, keys),
            "k": normal(*lead, self.updates, heads, keys),
            "v": normal(*lead, self.updates, heads, values),
            "beta": 2 * torch.sigmoid(normal(*lead, self.updates, heads)),
            "state": normal(self.batch, heads, keys, values),
        }
        if self.gate:
            gate = torch.sigmoid(normal(*lead, heads, *(keys,) * (self.gate == "key")))
            gate.view(-1)[::7], gate.view(-1)[1::7] = 0, 1  # both ends
            tensors["gate"] = gate
        if self.resets:
            options["reset"] = torch.rand(*lead, generator=generator) < self.often
            tensors["restart"] = normal(self.batch, heads, keys, values)
        return replace(self, tensors=tensors, options=options)

    def __call__(self, dtype: torch.dtype = torch.float64, **changes: object) -> tuple[Tensor, Tensor]:
        return delta_rnn(**{name: t.to(dtype) for name, t in self.tensors.items()}, **{**self.options, **changes})


CASES = [
    Case(),
    Case(steps=1, batch=1, keys=1, values=1),
    Case(steps=9, updates=2, heads=2, keys=5, values=7, gate="head"),
    Case(steps=67, batch=2, heads=2, keys=9, values=17, gate="key"),
    Case(steps=26, batch=2, updates=3, keys=8, values=3, gate="head", resets=True),
    Case(steps=11, batch=4, updates=2, keys=6, values=20, gate="key", resets=True, ragged=True),
    Case(steps=66, batch=1, keys=3, values=70, resets=True),  # more columns than a block of every instruction set
    Case(steps=7, batch=5, heads=3, ragged=True),
    Case(steps=83, batch=2, keys=5, values=9, gate="head", resets=True, often=0.06),
    Case(steps=75, batch=3, updates=2, keys=3, values=18, gate="key", resets=True, ragged=True, often=0.06),
    Case(steps=3, batch=2, updates=20, keys=6, values=5, gate="head"),  # more updates in a step than in a chunk
]
IDS = [f"{c.steps}x{c.updates}-{c.keys}x{c.values}-{c.gate}-{c.resets}-{c.ragged}" for c in CASES]


def oracle(case: Case) -> tuple[Tensor, Tensor]:
    """The recurrence with matrices I - beta k k' / k'k, one sequence, head and step at a time."""
    given, sizes = case.tensors, case.options.get("batch_sizes")
    reset = case.options.get("reset")
    states = {(b, h): given["state"][b, h] for b in range(case.batch) for h in range(case.heads)}
    outs, first = [], 0
    for t in range(case.steps):
        for b in range(case.batch if sizes is None else int(sizes[t])):
            at = (t, b) if sizes is None else (first + b,)
            for h in range(case.heads):
                S = states[b, h]
                if reset is not None and reset[at]:
                    S = given["restart"][b, h]
                if case.gate:
                    g = given["gate"][(*at, h)]
                    S = torch.diag(g.expand(case.keys)) @ S
                for i in range(case.updates):
                    k, v, beta = given["k"][(*at, i, h)], given["v"][(*at, i, h)], given["beta"][(*at, i, h)]
                    W = torch.eye(case.keys, dtype=k.dtype) - beta * torch.outer(k, k) / (k @ k)
                    S = W @ S + beta * torch.outer(k / k.norm(), v)
                states[b, h] = S
                outs.append(S.mT @ given["q"][(*at, h)])
        first += 0 if sizes is None else int(sizes[t])
    lead = (case.steps, case.batch) if sizes is None else (int(sizes.sum()),)
    last = [states[b, h] for b in range(case.batch) for h in range(case.heads)]
    return torch.stack(outs).view(*lead, case.heads, case.values), torch.stack(last).view_as(given["state"])


def against_oracle(case: Case, backend: str, dtype: torch.dtype) -> None:
    case = case.draw()
    leaves = [leaf.requires_grad_() for leaf in case.tensors.values()]
    wants = oracle(case)
    generator = torch.Generator().manual_seed(1)
    weights = [torch.randn(want.shape, dtype=want.dtype, generator=generator) for want in wants]
    expected = torch.autograd.grad(sum((out * w).sum() for out, w in zip(wants, weights)), leaves)
    outs = case(dtype, backend=backend)
    found = torch.autograd.grad(sum((out * w.to(dtype)).sum() for out, w in zip(outs, weights)), leaves)
    operations = 20 * case.steps * case.updates * (case.keys + case.values)
    for mine, theirs in zip((*outs, *found), (*wants, *expected)):
        bound = tolerance(dtype, operations) * (1 + float(theirs.detach().abs().max()))
        torch.testing.assert_close(mine.double(), theirs, rtol=0, atol=bound)


@pytest.mark.sampled(12)
@pytest.mark.parametrize("case", CASES, ids=IDS)
@pytest.mark.parametrize("backend", ["reference", "chunked"])
def test_plain_torch_is_the_definition(case, backend):
    against_oracle(case, backend, torch.float64)


@pytest.mark.sampled(12)
@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_the_kernel_is_the_definition(case, isa, way):
    against_oracle(case, "cpp", torch.float64)


@pytest.mark.sampled(12)
@pytest.mark.parametrize("case", CASES[2:6] + CASES[8:], ids=IDS[2:6] + IDS[8:])
def test_the_kernel_in_single_precision(case, isa, way):
    against_oracle(case, "cpp", torch.float32)


@pytest.mark.parametrize("case", CASES[2:6], ids=IDS[2:6])
def test_chunks_in_single_precision(case):
    against_oracle(case, "chunked", torch.float32)


LONG = [(torch.float32, 64), (torch.float32, 118), (torch.float64, 512), (torch.float64, 960)]


def long_keys(case: Case, backend: str, dtype: torch.dtype, exponent: int) -> None:
    """Keys of lengths around 2^exponent in every other step: values and gradients are those of their directions."""
    case = case.draw()
    scale = torch.ones_like(case.tensors["k"])
    scale[::2] = 2.0**exponent
    leaves = [leaf.requires_grad_() for leaf in case.tensors.values()]
    wants = oracle(case)
    generator = torch.Generator().manual_seed(1)
    weights = [torch.randn(want.shape, dtype=want.dtype, generator=generator) for want in wants]
    expected = torch.autograd.grad(sum((out * w).sum() for out, w in zip(wants, weights)), leaves)
    given = {name: tensor.detach().to(dtype) for name, tensor in case.tensors.items()}
    given["k"] = given["k"] * scale.to(dtype)
    given = {name: tensor.requires_grad_() for name, tensor in given.items()}
    outs = delta_rnn(**given, **case.options, backend=backend)
    loss = sum((out * w.to(dtype)).sum() for out, w in zip(outs, weights))
    found = dict(zip(given, torch.autograd.grad(loss, list(given.values()))))
    found["k"] = found["k"].double() * scale
    operations = 20 * case.steps * case.updates * (case.keys + case.values)
    for mine, theirs in zip((*outs, *found.values()), (*wants, *expected)):
        bound = tolerance(dtype, operations) * (1 + float(theirs.detach().abs().max()))
        torch.testing.assert_close(mine.double(), theirs, rtol=0, atol=bound)


@pytest.mark.parametrize("case", CASES[2:6:3], ids=IDS[2:6:3])
@pytest.mark.parametrize("backend", ["reference", "chunked"])
@pytest.mark.parametrize(("dtype", "exponent"), LONG)
def test_a_long_key_counts_as_its_direction(case, backend, dtype, exponent):
    long_keys(case, backend, dtype, exponent)


@pytest.mark.sampled(12)
@pytest.mark.parametrize("case", CASES[2:6:3], ids=IDS[2:6:3])
@pytest.mark.parametrize(("dtype", "exponent"), LONG)
def test_a_long_key_counts_as_its_direction_in_the_kernel(case, dtype, exponent, isa, way):
    long_keys(case, "cpp", dtype, exponent)


def call_of(case: Case, tensors: dict[str, Tensor], backend: str) -> DeltaCall:
    """A call as `delta_rnn` makes it, but of strengths and gates that it would refuse."""
    gate = tensors.get("gate")
    gate = gate if gate is None or case.gate == "key" else gate.unsqueeze(-1)
    layout = SequenceLayout.of(tensors["k"], case.options.get("batch_sizes"), case.batch)
    layout.resets = None if "reset" not in case.options else case.options["reset"].flatten()
    given = [tensors[name] for name in ("q", "k", "v", "beta")]
    return DeltaCall(*given, gate, tensors["state"], tensors.get("restart"), layout, backend)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("case", CASES[2:5], ids=IDS[2:5])
@pytest.mark.parametrize("updates", [1, 5, 1000])
def test_the_length_of_a_chunk_changes_nothing(case, updates):
    case = case.draw()
    found = chunked.forward(call_of(case, case.tensors, "chunked"), updates)
    for mine, theirs in zip(found, case(backend="reference")):
        torch.testing.assert_close(mine, theirs, rtol=0, atol=tolerance(torch.float64, 2000))


LAW = [CASES[2], CASES[4], CASES[5], Case(steps=70, batch=2, heads=2, keys=3, values=5, resets=True)]
SPOILED = [pytest.param(case, name, id=f"{case}-{name}") for case in LAW for name in case.draw().tensors]


def spoiled(case: Case, name: str, value: float) -> list[dict[str, Tensor]]:
    """The tensors of a case with one entry of one replaced, at several places in turn."""
    size = case.tensors[name].numel()
    found = []
    for place in {0, size // 3, size - 1}:
        tensors = {key: tensor.clone() for key, tensor in case.tensors.items()}
        tensors[name].view(-1)[place] = value
        found.append({key: tensor.requires_grad_() for key, tensor in tensors.items()})
    return found


@pytest.mark.sampled(9)
@pytest.mark.parametrize(("case", "name"), SPOILED)
@pytest.mark.parametrize("backend", ["chunked", *WAYS], indirect=True)
def test_what_is_not_finite_reaches_the_same_in_every_backend(backend, case, name):
    """As in the loop over steps: earlier steps, other columns, heads, episodes and sequences are none the wiser, nor are
    their gradients, whatever the loss reads."""
    case = case.draw()
    bound = tolerance(torch.float64, 20 * case.steps * case.updates * (case.keys + case.values))
    for value in (math.nan, -math.inf):
        for tensors in spoiled(case, name, value):
            mine, theirs = (kernel.run(call_of(case, tensors, which)) for which in (backend, "reference"))
            weights = [torch.linspace(-1, 1, out.numel(), dtype=out.dtype).view_as(out) for out in theirs]
            for found, expected in zip(mine, theirs):
                finite = expected.isfinite()
                assert torch.equal(found.isfinite(), finite)
                torch.testing.assert_close(found[finite], expected[finite], rtol=0, atol=bound)
            for reads in (1.0, [out.isfinite() for out in theirs]):  # all, or what is finite
                picked = [reads] * 2 if reads == 1.0 else reads
                grads = []
                for outs in (mine, theirs):
                    loss = [w * (out * out if reads == 1.0 else torch.where(pick, out * out, 0))
                            for out, w, pick in zip(outs, weights, picked)]  # fmt: skip
                    leaves = list(tensors.values())
                    grads.append(torch.autograd.grad(sum(part.sum() for part in loss), leaves, retain_graph=True))
                for found, expected in zip(*grads):
                    finite = expected.isfinite()
                    torch.testing.assert_close(found[finite], expected[finite], rtol=0, atol=bound)
            if not theirs[0].isfinite().all():
                read_all = torch.autograd.grad((mine[0] * mine[0]).sum(), leaves)
                assert not all(bool(grad.isfinite().all()) for grad in read_all)


@pytest.mark.parametrize("backend", BACKENDS, indirect=True)
def test_what_overflows_ends_with_its_episode(backend):
    """Finite values that together are too large for float32: steps before and the next episode see none of it."""
    case = Case(steps=12, batch=2, keys=3, values=4).draw()
    case.tensors["restart"] = torch.zeros_like(case.tensors["state"])
    reset = torch.zeros(12, 2, dtype=torch.bool)
    reset[8] = True
    clean = {name: tensor.float() for name, tensor in case.tensors.items()}
    large = {name: tensor.clone() for name, tensor in clean.items()}
    large["k"][4:6, 0] = large["beta"][4:6, 0] = 1
    large["v"][4, 0], large["v"][5, 0] = torch.finfo(torch.float32).max, -torch.finfo(torch.float32).max
    found, expected = (delta_rnn(**given, reset=reset, backend=backend) for given in (large, clean))
    assert not found[0][5, 0].isfinite().all()
    bound = tolerance(torch.float32, 20 * 12 * 7)
    own = torch.ones(12, 2, dtype=torch.bool)
    own[4:8, 0] = False
    torch.testing.assert_close(found[0][own], expected[0][own], rtol=0, atol=bound)
    torch.testing.assert_close(found[1], expected[1], rtol=0, atol=bound)


@pytest.mark.parametrize("backend", BACKENDS, indirect=True)
def test_gradcheck(backend):
    case = Case(steps=3, batch=2, updates=2, keys=3, values=2, gate="key", resets=True).draw()
    case.tensors["gate"].clamp_(0.2, 0.8)
    names = list(case.tensors)

    def call(*tensors: Tensor) -> tuple[Tensor, Tensor]:
        return replace(case, tensors=dict(zip(names, tensors)))(backend=backend)

    leaves = [leaf.requires_grad_() for leaf in case.tensors.values()]

    # Differences of a finite step leave [0, 2] and [0, 1] nowhere: beta and gate are inside.
    assert torch.autograd.gradcheck(call, leaves, fast_mode=True)
    assert torch.autograd.gradgradcheck(call, leaves, fast_mode=True)


def test_threads_give_the_same_bits(way):
    case = Case(batch=5, heads=3, updates=2, keys=7, values=9, gate="head", resets=True).draw()
    leaves = [leaf.requires_grad_() for leaf in case.tensors.values()]
    found = {}
    before = torch.get_num_threads()
    try:
        for threads in (1, 2, 4):
            torch.set_num_threads(threads)
            out, last = case()
            found[threads] = (out, last, *torch.autograd.grad(out.square().sum() + last.sum(), leaves))
    finally:
        torch.set_num_threads(before)
    for threads in (2, 4):
        assert all(torch.equal(mine, theirs) for mine, theirs in zip(found[threads], found[1]))


def test_stored_states_may_lie_anywhere_when_they_come_back(way):
    case = Case(steps=67, keys=5, values=8, gate="head").draw()
    leaves = [leaf.requires_grad_() for leaf in case.tensors.values()]

    def elsewhere(tensor: Tensor) -> Tensor:
        moved = torch.empty(tensor.numel() + 1, dtype=tensor.dtype)[1:].view(tensor.shape)  # not where vectors begin
        return moved.copy_(tensor)

    def gradients() -> tuple[Tensor, ...]:
        out, last = case()
        return torch.autograd.grad(out.square().sum() + last.sum(), leaves)

    want = gradients()
    with torch.autograd.graph.saved_tensors_hooks(lambda tensor: tensor, elsewhere):
        assert all(map(torch.equal, gradients(), want))


EARLIER = [CASES[3], CASES[8], CASES[9], Case(steps=70, batch=2, keys=3, values=70, resets=True, often=0.5)]


@pytest.mark.parametrize("case", EARLIER, ids=str)
def test_what_a_step_reads_has_the_bits_of_earlier_inputs_alone(case, way):
    """Whatever comes later: other numbers, NaN, resets, and how many steps there are."""
    case = case.draw()
    want, _ = case(torch.float32)
    first = 0
    for t in range(case.steps):
        sizes = case.options.get("batch_sizes")
        first += case.batch if sizes is None else int(sizes[t])
        if t % 9 and t != case.steps - 2:
            continue
        rows = slice(0, t + 1) if sizes is None else slice(0, first)
        for value in (0.5, math.nan):
            later = {name: tensor.clone() for name, tensor in case.tensors.items()}
            for name in ("q", "k", "v", "beta", "gate"):
                if name in later:
                    later[name][rows.stop :] = value if name in ("q", "k", "v") else 0.5
            options = dict(case.options)
            if case.resets:
                options["reset"] = options["reset"].clone()
                options["reset"][rows.stop :] = True
            found, _ = replace(case, tensors=later, options=options)(torch.float32)
            assert torch.equal(found[rows], want[rows])
        short = {
            name: tensor if name in ("state", "restart") else tensor[rows] for name, tensor in case.tensors.items()
        }
        options = {
            name: tensor[: t + 1] if name == "batch_sizes" else tensor[rows] for name, tensor in case.options.items()
        }
        found, _ = replace(case, tensors=short, options=options)(torch.float32)
        assert torch.equal(found, want[rows])


def test_a_sequence_has_the_bits_that_it_has_alone(way):
    """Whatever its company, and what is not finite there."""
    case = Case(steps=37, batch=3, heads=2, keys=7, values=33, gate="head", resets=True, often=0.1).draw()
    alone = {name: tensor[:, 1:2] if tensor.shape[0] == 37 else tensor[1:2] for name, tensor in case.tensors.items()}
    case.tensors["v"][5, 0, 0, 0, 3] = case.tensors["k"][9, 2, 0, 1, 0] = math.nan
    single = replace(case, batch=1, tensors=alone, options={"reset": case.options["reset"][:, 1:2]})
    found = []
    for one in (case, single):
        leaves = {name: tensor.requires_grad_() for name, tensor in one.tensors.items()}
        out, last = replace(one, tensors=leaves)(torch.float32)
        at = slice(1, 2) if one.batch == 3 else slice(0, 1)
        loss = out[:, at].square().sum() + last[at].sum()
        grads = torch.autograd.grad(loss, list(leaves.values()))
        found.append([out[:, at], last[at], *(g[:, at] if g.shape[0] == 37 else g[at] for g in grads)])
    assert all(map(torch.equal, *found))


def test_a_head_has_the_bits_that_it_has_alone(isa, way):
    """Whatever the heads beside it, of which more than are done together, and what is not finite there."""
    case = Case(steps=71, batch=2, heads=11, keys=5, values=19, gate="head", resets=True, often=0.04).draw()
    case.tensors["v"][40, 0, 0, 7, 3] = case.tensors["k"][9, 1, 0, 4, 0] = math.nan
    axes = {"q": 2, "k": 3, "v": 3, "beta": 3, "gate": 2, "state": 1, "restart": 1}
    for heads in (slice(0, 1), slice(5, 7), slice(10, 11)):
        found = []
        for own, at in ((case.tensors, heads), ({n: t.movedim(axes[n], 0)[heads].movedim(0, axes[n]) for n, t in
                                                  case.tensors.items()}, slice(None))):  # fmt: skip
            leaves = {name: tensor.clone().requires_grad_() for name, tensor in own.items()}
            out, last = replace(case, tensors=leaves)(torch.float32)
            loss = out[:, :, at].square().sum() + last[:, at].sum()
            grads = torch.autograd.grad(loss, list(leaves.values()))
            rows = (g.movedim(axes[name], 0)[at] for name, g in zip(leaves, grads))
            found.append([out[:, :, at], last[:, at], *rows])
        assert all(map(torch.equal, *found))


@pytest.mark.parametrize("gate", [None, "head", "key"])
@pytest.mark.parametrize("resets", [False, True])
@pytest.mark.parametrize("values", [16, 48, 19])
def test_one_step_has_the_same_bits_with_and_without_gradients(values, resets, gate, isa):
    """Without gradients, a state of whole vectors is not copied first."""
    case = Case(steps=1, batch=5, heads=2, updates=2, keys=6, values=values, gate=gate, resets=resets).draw()
    if resets:
        case.options["reset"][0, 1:4] = torch.tensor([True, False, True])
    found = []
    for wanted in (False, True):
        tensors = {name: tensor.float().requires_grad_(wanted) for name, tensor in case.tensors.items()}
        given = {name: tensor.detach().clone() for name, tensor in tensors.items()}
        found.append(delta_rnn(**tensors, **case.options))
        assert all(torch.equal(tensors[name], given[name]) for name in given)
    assert all(map(torch.equal, *found))


@pytest.mark.parametrize("gate", [None, "head", "key"])
def test_both_ways_agree_where_each_is_chosen(gate, monkeypatch):
    """States of 128 x 128, as deployed networks have them: products for many steps, single updates for one."""
    case = Case(steps=150, batch=1, heads=2, keys=128, values=128, gate=gate).draw()
    chosen, found = cpp.by_products, {}
    for name, way in {"chosen": chosen, **{name: lambda *_, to=to, **__: to for name, to in WAYS.items()}}.items():
        monkeypatch.setattr(cpp, "by_products", way)
        leaves = {key: tensor.clone().requires_grad_() for key, tensor in case.tensors.items()}
        out, last = replace(case, tensors=leaves)(torch.float32)
        found[name] = [out, last, *torch.autograd.grad(out.square().sum() + last.sum(), list(leaves.values()))]
    assert all(map(torch.equal, found["chosen"], found["products"]))
    for mine, theirs in zip(found["products"], found["updates"]):
        bound = tolerance(torch.float32, 20 * 150 * 256) * (1 + float(theirs.detach().abs().max()))
        torch.testing.assert_close(mine, theirs, rtol=0, atol=bound)
    one = call_of(case, {name: t if name == "state" else t[:1] for name, t in case.tensors.items()}, "cpp")
    assert not chosen(one, backward=False)


@pytest.mark.parametrize("backend", BACKENDS, indirect=True)
def test_a_pair_is_stored_and_read_again(backend):
    """With beta = 1, o is the value last written along q; a value written twice is replaced, not added to."""
    k = torch.eye(3, dtype=torch.float64)[[0, 1, 0, 2, 2]]
    v = torch.randn(5, 4, dtype=torch.float64)
    q = torch.eye(3, dtype=torch.float64)[[0, 0, 0, 1, 2]]
    o, last = delta_rnn(
        q[:, None, None],
        100 * k[:, None, None, None],
        v[:, None, None, None],
        1.0,
        torch.zeros(1, 1, 3, 4).double(),
        backend=backend,
    )
    torch.testing.assert_close(o[:, 0, 0], v[[0, 0, 2, 1, 4]])
    torch.testing.assert_close(last[0, 0], v[[2, 1, 4]])


@pytest.mark.parametrize("backend", BACKENDS, indirect=True)
def test_a_short_key_fades_with_the_gradient_of_its_formula(backend):
    """Below 1e-6, and at zero: k^ = k / 1e-6, in the product and in what is written."""
    for scale in (1e-7, 0.0):
        k = (scale * torch.randn(4, dtype=torch.float64)).requires_grad_()
        v, S = torch.randn(3, dtype=torch.float64), torch.randn(4, 3, dtype=torch.float64)
        weights = torch.randn(4, 3, dtype=torch.float64)
        _, last = delta_rnn(
            torch.zeros(1, 1, 1, 4).double(), k.view(1, 1, 1, 1, 4), v.view(1, 1, 1, 1, 3), 1.5, S[None, None],
            backend=backend,
        )  # fmt: skip
        u = k / 1e-6
        want = S - 1.5 * torch.outer(u, u @ S - v)
        torch.testing.assert_close(last[0, 0], want, rtol=1e-12, atol=0)
        (found,) = torch.autograd.grad((last[0, 0] * weights).sum(), k)
        (expected,) = torch.autograd.grad((want * weights).sum(), k)
        torch.testing.assert_close(found, expected, rtol=1e-9, atol=0)


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("gate", "symbols"), [(None, None), (None, 1), (None, 3), ("head", None), ("head", 3), ("key", 3)]
)
@pytest.mark.parametrize("backend", [*WAYS, "chunked"], indirect=True)
def test_the_norm_is_kept_over_a_hundred_thousand_steps(backend, gate, symbols):
    """beta = 2 and a gate of 1, in float32: the norm of S, and of its gradient, within 1e-4."""
    steps, size, generator = 100_000, 16, torch.Generator().manual_seed(0)
    k = torch.randn(symbols or steps, 1, 1, 1, size, generator=generator)
    k = k if symbols is None else k[torch.arange(steps) % symbols]
    state, grad = torch.randn(2, 1, 1, size, size, generator=generator).unbind()
    v = torch.zeros(steps, 1, 1, 1, size)
    ones = None if gate is None else torch.ones(steps, 1, 1, *(size,) * (gate == "key"))
    q = torch.zeros(steps, 1, 1, size)
    _, last = delta_rnn(q, k, v, 2.0, state.requires_grad_(), gate=ones, backend=backend)
    (found,) = torch.autograd.grad(last, state, grad)
    for after, before in ((last, state), (found, grad)):
        assert abs(float(after.detach().double().norm() / before.detach().double().norm()) - 1) < 1e-4


def test_what_is_kept_for_the_backward_pass_is_a_state_per_chunk():
    """Not one per step: besides the inputs, K V numbers for each 64 updates, and once more (see cpp.stored)."""
    T, K, V = 640, 16, 24
    case = Case(steps=T, batch=1, keys=K, values=V).draw()
    leaves = {id(leaf.requires_grad_()) for leaf in case.tensors.values()}
    kept = []

    def keep(tensor: Tensor) -> Tensor:
        if id(tensor) not in leaves:
            kept.append(tensor.numel())
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        delta_rnn(**case.tensors, backend="cpp")
    assert max(kept) == (T // 64 + 1) * K * V


@pytest.mark.parametrize("resets", [False, True])
@pytest.mark.parametrize("backend", BACKENDS, indirect=True)
def test_no_steps(backend, resets):
    case = Case(steps=0, resets=resets).draw()
    leaves = [leaf.requires_grad_() for leaf in case.tensors.values()]
    out, last = case(backend=backend)
    assert out.shape == (0, 3, 1, 4)
    assert torch.equal(last, case.tensors["state"])
    for result, names in ((out, ()), (last, ("state",))):
        found = torch.autograd.grad(result.sum(), leaves, retain_graph=True)  # raises if one is not reached
        for name, grad in zip(case.tensors, found):
            assert torch.equal(grad, torch.full_like(grad, float(name in names)))
    if not resets:
        out, last = case(backend=backend)
        again = torch.autograd.grad(out.sum() + last.sum(), leaves, create_graph=True)
        assert all(map(torch.equal, again, found))  # the last state's


def test_transforms_take_plain_operations():
    case = Case(updates=2, gate="head").draw()
    rest = {name: t for name, t in case.tensors.items() if name != "k"}

    def loss(k: Tensor) -> Tensor:
        return delta_rnn(k=k, **rest)[0].square().sum()

    k = case.tensors["k"]
    (want,) = torch.autograd.grad(loss(leaf := k.clone().requires_grad_()), leaf)
    torch.testing.assert_close(torch.func.grad(loss)(k), want)
    _, tangent = torch.func.jvp(loss, (k,), (torch.ones_like(k),))
    torch.testing.assert_close(tangent, want.sum())
    many = torch.func.vmap(loss)(torch.stack([k, 2 * k]))
    torch.testing.assert_close(many, torch.stack([loss(k), loss(2 * k)]))


@pytest.mark.sampled(1)
@pytest.mark.parametrize("case", [CASES[2], CASES[4], CASES[5]], ids=["gate", "resets", "ragged"])
def test_the_custom_operators_pass_opcheck(case):
    case = case.draw()
    given, options = dict(case.tensors), case.options
    if case.gate == "head":
        given["gate"] = given["gate"].unsqueeze(-1)
    tensors = [given.get(name) for name in ("q", "k", "v", "beta", "gate", "state", "restart")]
    reset = options.get("reset")
    tensors += [options.get("batch_sizes"), None if reset is None else reset.flatten()]
    present = "".join("0" if t is None else "1" for t in tensors)
    inputs = [torch.empty(0, dtype=torch.float64) if t is None else t for t in tensors]
    inputs = [t.requires_grad_() if t.is_floating_point() and t.numel() else t for t in inputs]
    torch.library.opcheck(torch.ops.orthornn.delta, (inputs, f"{present}auto"))


def test_bad_arguments_are_refused():
    good = Case(updates=2, heads=2, gate="key", resets=True).draw()
    given = {**good.tensors, **good.options}
    for name, high in (("beta", 2), ("gate", 1)):
        for value in (-0.1, high + 0.01, math.nan):
            with pytest.raises(ArgumentError, match=rf"{name} in \[0, {high}\]"):
                delta_rnn(**{**given, name: torch.full_like(given[name], value)})
    with pytest.raises(ArgumentError, match="number or a tensor"):
        delta_rnn(**{**given, "beta": "1"})
    with pytest.raises(ArgumentError, match="only restart"):
        delta_rnn(**{name: t for name, t in given.items() if name != "reset"})
    for name in ("q", "k", "v", "beta", "gate", "state", "reset", "restart"):
        with pytest.raises((ShapeError, ArgumentError)):
            delta_rnn(**{**given, name: given[name][..., :1]})
    with pytest.raises(ShapeError, match="batch_sizes"):
        delta_rnn(**{**given, "batch_sizes": torch.ones(3)})
    with pytest.raises(DTypeError):
        delta_rnn(**{**given, "k": given["k"].float()})
    with pytest.raises(DTypeError, match="boolean"):
        delta_rnn(**{**given, "reset": given["reset"].long()})
    with pytest.raises(ArgumentError, match="backend"):
        delta_rnn(**given, backend="cuda")


def test_a_backend_that_cannot_run_is_refused(monkeypatch):
    from orthornn.kernels.backends.cpp import extension

    case = Case().draw()
    want = case()
    monkeypatch.setattr(extension, "missing", lambda: "there is none")
    with pytest.raises(BackendError, match="there is none"):
        case(backend="cpp")
    torch.testing.assert_close(case(), want)


def test_the_extension_checks_what_it_is_given():
    """Sizes and alignment are errors before memory is touched."""
    from orthornn.kernels.backends.cpp.extension import native

    T, B, M, H, K, V = 3, 2, 1, 1, 4, 5
    tensors = {
        "q": torch.randn(T, B, H, K),
        "k": torch.randn(T, B, M, H, K),
        "v": torch.randn(T, B, M, H, V),
        "beta": torch.ones(T, B, M, H),
        "start": torch.zeros(B, H, K, V),
        "out": torch.empty(T, B, H, V),
        "last": torch.empty(B, H, K, V),
    }
    numbers = {"element_size": 4, "T": T, "B": B, "R": T * B, "M": M, "heads": H, "keys": K, "values": V}
    absent = dict.fromkeys(("batch_sizes", "resets", "gate", "restart", "marks"), 0)
    rest = {"gates": 1, "chunk": 64, "products": False, "threads": 1}
    good = {**{name: t.data_ptr() for name, t in tensors.items()}, **numbers, **absent, **rest}
    native.delta_forward(**good)
    assert tensors["out"].isfinite().all()
    misaligned = {"k": tensors["k"].data_ptr() + 1}
    for wrong in (
        {"R": 3},
        {"M": 0},
        {"keys": 0},
        {"values": 0},
        {"chunk": 0},
        {"element_size": 2},
        {"k": 0},
        misaligned,
    ):
        with pytest.raises(ValueError, match="Expected"):
            native.delta_forward(**{**good, **wrong})
    with pytest.raises(ValueError, match="gates"):
        native.delta_forward(**{**good, "gate": tensors["beta"].data_ptr(), "gates": 3})
