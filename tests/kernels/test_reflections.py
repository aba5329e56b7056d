"""Input-dependent reflections: both backends against a loop of explicit matrices, differentiated by autograd."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

from orthornn import activations
from orthornn.errors import ArgumentError, BackendError, DTypeError, ShapeError, TransformError
from orthornn.kernels import interception, reflection_rnn
from orthornn.kernels.call import Options
from orthornn.kernels.reflections.functional import check_range, check_tokens
from support import captured
from support.tolerances import tolerance

T, B = 5, 3
SIZES = torch.tensor([3, 3, 2, 1, 1])


@dataclass(frozen=True)
class Case:
    """One call; `tensors` are its arguments in float64."""

    activation: str = "identity"
    n: int = 6
    m: int = 2
    heads: int = 1
    tokens: bool = False
    ragged: bool = False
    gate: str | None = None  # "heads" or "units"
    angles: str | None = None  # "shared" or "rows"
    x: bool = True
    output: str = "all"
    batch: int = B
    resets: bool = False
    tensors: dict[str, Tensor] = field(default_factory=dict)

    def draw(self, seed: int = 0) -> Case:
        generator = torch.Generator().manual_seed(seed)

        def normal(*shape: int) -> Tensor:
            return torch.randn(*shape, dtype=torch.float64, generator=generator)

        rows = (int(SIZES.sum()),) if self.ragged else (T, self.batch)
        lead = (7,) if self.tokens else rows
        phi, n, m = activations.get(self.activation), self.n, self.m
        tensors = {
            "k": normal(*lead, m, n),
            "beta": 2 * torch.sigmoid(normal(*lead, m, self.heads)),
            "h0": normal(self.batch, n),
        }
        if self.x:
            tensors["x"] = normal(*lead, n)
        if self.gate:
            tensors["gate"] = torch.sigmoid(normal(*lead, self.heads if self.gate == "heads" else n))
        if self.angles:
            tensors["angles"] = normal(*(lead if self.angles == "rows" else ()), n // 2)
        if phi.parameter:
            tensors["parameter"] = normal(phi.parameter_size(n))
        if self.tokens:
            tensors["tokens"] = torch.randint(7, rows, generator=generator)
        if self.resets:
            tensors["reset"] = torch.rand(*rows, generator=generator) < 0.4
            tensors["restart"] = normal(self.batch, n)
        return replace(self, tensors=tensors)

    def __call__(self, dtype: torch.dtype = torch.float64, **changes: object) -> Tensor:
        tensors = {k: t.to(dtype) if t.is_floating_point() else t for k, t in self.tensors.items()}
        given = {**tensors, "batch_sizes": SIZES if self.ragged else None, "output": self.output, **changes}
        return reflection_rnn(given.pop("k"), given.pop("beta"), given.pop("h0"), activation=self.activation, **given)

    def leaves(self) -> list[Tensor]:
        return [t for t in self.tensors.values() if t.is_floating_point()]


CASES = [
    Case(),
    Case("tanh", n=1, m=1),
    Case("modrelu", n=35, m=3, heads=5, gate="units", angles="rows"),
    Case("tanh", n=17, m=4, tokens=True, angles="shared", gate="heads"),
    Case("prelu", n=9, heads=3, ragged=True, gate="heads"),
    Case("oplu", n=7, ragged=True, tokens=True, angles="rows", gate="units"),
    Case("complex_modrelu", n=12, m=1, heads=2, angles="shared", output="last"),
    Case("scaled_tanh", n=40, m=2, heads=2, ragged=True, output="last"),
    Case("leaky_relu", n=3, m=3, tokens=True, x=False, output="last", gate="units"),
    Case("relu", n=33, m=2, ragged=True, angles="shared"),
    Case("modrelu", n=10, m=2, heads=2, gate="heads", angles="rows", resets=True),
    Case("tanh", n=18, m=3, tokens=True, ragged=True, angles="shared", gate="units", resets=True),
    Case("complex_modrelu", n=6, m=1, tokens=True, batch=5, output="last", resets=True),
]
IDS = [f"{case.activation}-{case.n}" for case in CASES]


def matrix(k: Tensor, beta: Tensor, gate: Tensor | None, angles: Tensor | None) -> Tensor:
    """W of one step from the definition: products of explicit matrices."""
    (m, n), heads = k.shape, beta.shape[-1]
    d, half = n // heads, n // 2
    W = torch.eye(n, dtype=k.dtype)
    if angles is not None:
        R = torch.eye(n, dtype=k.dtype).clone()
        for i, angle in enumerate(angles):
            j = n - half + i
            R[i, i], R[i, j], R[j, i], R[j, j] = angle.cos(), -angle.sin(), angle.sin(), angle.cos()
        W = R @ W
    for i in range(m):
        blocks = [
            torch.eye(d, dtype=k.dtype) - beta[i, j] * torch.outer(u, u) / (u @ u) for j, u in enumerate(k[i].split(d))
        ]
        W = torch.block_diag(*blocks) @ W
    if gate is not None:
        W = gate.repeat_interleave(n // gate.shape[-1])[:, None] * W
    return W


def oracle(case: Case) -> Tensor:
    """The recurrence with matrices, one sequence and step at a time."""
    given = case.tensors
    phi = activations.get(case.activation)
    h, states, ends, first = given["h0"], [], {}, 0
    for t in range(T):
        size = int(SIZES[t]) if case.ragged else case.batch
        out = []
        for b in range(size):
            at = (first + b,) if case.ragged else (t, b)
            before = given["restart"][b] if case.resets and given["reset"][at] else h[b]
            at = (given["tokens"][at],) if case.tokens else at
            shared = case.angles == "shared"
            angles = None if not case.angles else given["angles"] if shared else given["angles"][at]
            W = matrix(given["k"][at], given["beta"][at], given["gate"][at] if case.gate else None, angles)
            a = W @ before + (given["x"][at] if case.x else 0)
            out.append(phi(a, given.get("parameter")))
            ends[b] = out[-1]
        first += size
        h = torch.stack(out)
        states.append(h)
    if case.output == "last":
        return torch.stack([ends[b] for b in range(case.batch)])
    return torch.cat(states) if case.ragged else torch.stack(states)


def against_oracle(case: Case, backend: str, dtype: torch.dtype, operations: int, **options: object) -> None:
    compare_with_oracle(case.draw(), backend, dtype, operations, **options)


def compare_with_oracle(case: Case, backend: str, dtype: torch.dtype, operations: int, **options: object) -> None:
    for leaf in case.leaves():
        leaf.requires_grad_()
    want = oracle(case)
    weights = torch.randn(want.shape, dtype=want.dtype, generator=torch.Generator().manual_seed(1))
    wants = torch.autograd.grad((want * weights).sum(), case.leaves())
    found = case(dtype, backend=backend, **options)
    grads = torch.autograd.grad((found * weights.to(dtype)).sum(), case.leaves())
    for mine, theirs in zip((found, *grads), (want, *wants)):
        bound = tolerance(dtype, operations) * (1 + float(theirs.detach().abs().max()))
        torch.testing.assert_close(mine.double(), theirs, rtol=0, atol=bound)


@pytest.mark.sampled(9)
@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_the_reference_is_the_definition(case):
    against_oracle(case, "reference", torch.float64, 20 * T * case.m * case.n)


@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_the_kernel_is_the_definition(case, isa):
    against_oracle(case, "cpp", torch.float64, 20 * T * case.m * case.n)


@pytest.mark.parametrize("case", CASES, ids=IDS)
@pytest.mark.parametrize("segment", [1, 2])
def test_segments_are_the_definition(case, segment):
    """memory="checkpoint": the same outputs and gradients from a state per segment."""
    operations = 20 * T * case.m * case.n
    against_oracle(case, "cpp", torch.float64, operations, memory="checkpoint", segment=segment)


@pytest.mark.sampled(26)
@pytest.mark.parametrize("case", CASES, ids=IDS)
@pytest.mark.parametrize("backend", ["reference", "cpp"])
@pytest.mark.parametrize("options", [{}, {"memory": "checkpoint", "segment": 2}], ids=str)
def test_how_numbers_lie_in_memory_changes_nothing(case, backend, options):
    """Dimensions in reverse order in memory: sequences before steps, as `transpose(0, 1)` of a batch_first tensor has it."""
    drawn = case.draw()
    lying = {name: t.permute(*reversed(range(t.dim()))).contiguous() for name, t in drawn.tensors.items()}
    case = replace(drawn, tensors={name: t.permute(*reversed(range(t.dim()))) for name, t in lying.items()})
    compare_with_oracle(case, backend, torch.float64, 20 * T * case.m * case.n, **options)


def test_checkpoints_store_a_state_per_segment():
    """With tokens: no number per step is kept but the token."""
    steps, n, kept = 400, 8, []
    table, tokens = torch.randn(3, 2, n, requires_grad=True), torch.randint(3, (steps, 2))

    def keep(tensor: Tensor) -> Tensor:
        kept.append(tensor.numel())
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        reflection_rnn(table, 2.0, torch.ones(2, n), tokens=tokens, output="last", memory="checkpoint")
    assert sum(kept) < tokens.numel() + 30 * 2 * n + 100


@pytest.mark.parametrize("case", [case for case in CASES if case.activation not in ("oplu", "relu")][:6])
def test_the_kernel_in_single_precision(case, isa):
    against_oracle(case, "cpp", torch.float32, 20 * T * case.m * case.n)


@pytest.mark.parametrize("backend", ["reference", "cpp"])
def test_gradcheck(backend):
    case = Case("tanh", n=4, m=2, heads=2, gate="units", angles="rows").draw()
    names = [name for name in case.tensors]

    def call(*tensors: Tensor) -> Tensor:
        return replace(case, tensors=dict(zip(names, tensors)))(backend=backend)

    leaves = [case.tensors[name].requires_grad_() for name in names]
    assert torch.autograd.gradcheck(call, leaves, fast_mode=True)
    assert torch.autograd.gradgradcheck(call, leaves, fast_mode=True)


def test_threads_give_the_same_states_and_the_same_gradients():
    case = Case("tanh", n=20, m=2, batch=7, tokens=True, angles="shared").draw()
    found = {}
    before = torch.get_num_threads()
    try:
        for threads in (1, 2, 5):
            torch.set_num_threads(threads)
            leaves = [leaf.requires_grad_() for leaf in case.leaves()]
            out = case()
            found[threads] = (out.detach(), torch.autograd.grad(out.square().sum(), leaves))
    finally:
        torch.set_num_threads(before)
    for threads in (2, 5):
        assert torch.equal(found[threads][0], found[1][0])
        for mine, theirs in zip(found[threads][1], found[1][1]):
            bound = tolerance(torch.float64, 20 * T * 7) * (1 + float(theirs.abs().max()))
            torch.testing.assert_close(mine, theirs, rtol=0, atol=bound)


@pytest.mark.parametrize("backend", ["reference", "cpp"])
def test_a_zero_reflector_is_no_reflection_and_has_no_gradient(backend):
    k = torch.randn(T, B, 2, 6, dtype=torch.float64)
    k[:, :, 0] = 0
    k.requires_grad_()
    h0 = torch.randn(B, 6, dtype=torch.float64)
    out = reflection_rnn(k, 2.0, h0, backend=backend)
    without = reflection_rnn(k[:, :, 1:], 2.0, h0, backend=backend)
    torch.testing.assert_close(out, without, rtol=0, atol=tolerance(torch.float64, 6 * T))
    (grad,) = torch.autograd.grad(out.square().sum() + out.sum(), k)
    assert not grad[:, :, 0].any()
    assert grad[:, :, 1].isfinite().all()


@pytest.mark.parametrize("backend", ["reference", "cpp"])
def test_a_short_reflector_fades_with_the_gradient_of_its_formula(backend):
    k = 1e-7 * torch.randn(1, 1, 1, 4, dtype=torch.float64)
    h0 = torch.randn(1, 4, dtype=torch.float64)
    k.requires_grad_()
    out = reflection_rnn(k, 1.5, h0, backend=backend)
    u = k[0, 0, 0]
    want = h0[0] - 1.5 * u * (u @ h0[0]) / 1e-12
    torch.testing.assert_close(out[0, 0], want, rtol=1e-12, atol=0)
    weights = torch.arange(4, dtype=torch.float64)
    (found,) = torch.autograd.grad((out[0, 0] * weights).sum(), k)
    (expected,) = torch.autograd.grad((want * weights).sum(), k)
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=0)


@pytest.mark.parametrize("scale", [1e-5, 1.0, 1e15])
def test_only_the_direction_of_a_reflector_matters(scale):
    k, h0 = torch.randn(T, B, 3, 8), torch.randn(B, 8)
    same = reflection_rnn(k, 2.0, h0)
    torch.testing.assert_close(
        reflection_rnn(scale * k, 2.0, h0), same, rtol=0, atol=tolerance(torch.float32, 3 * T * 8)
    )


LONG = [(torch.float32, 64), (torch.float32, 118), (torch.float64, 512), (torch.float64, 960)]


def long_reflectors(case: Case, backend: str, dtype: torch.dtype, exponent: int) -> None:
    """Lengths around 2^exponent in one head of the first reflector: values and gradients are those of its direction."""
    case = case.draw()
    scale = torch.ones(case.m, case.n, dtype=torch.float64)
    scale[0, : case.n // case.heads] = 2.0**exponent
    for leaf in case.leaves():
        leaf.requires_grad_()
    want = oracle(case)
    weights = torch.randn(want.shape, dtype=want.dtype, generator=torch.Generator().manual_seed(1))
    wants = torch.autograd.grad((want * weights).sum(), case.leaves())
    given = [leaf.detach().to(dtype) for leaf in case.leaves()]
    names = [name for name, tensor in case.tensors.items() if tensor.is_floating_point()]
    k = names.index("k")
    given[k] = given[k] * scale.to(dtype)
    given = [leaf.requires_grad_() for leaf in given]
    found = replace(case, tensors={**case.tensors, **dict(zip(names, given))})(dtype, backend=backend)
    grads = list(torch.autograd.grad((found * weights.to(dtype)).sum(), given))
    grads[k] = grads[k].double() * scale
    for mine, theirs in zip((found, *grads), (want, *wants)):
        bound = tolerance(dtype, 20 * T * case.m * case.n) * (1 + float(theirs.detach().abs().max()))
        torch.testing.assert_close(mine.double(), theirs, rtol=0, atol=bound)


@pytest.mark.parametrize("case", CASES[2:4], ids=IDS[2:4])
@pytest.mark.parametrize(("dtype", "exponent"), LONG)
def test_a_long_reflector_counts_as_its_direction(case, dtype, exponent):
    long_reflectors(case, "reference", dtype, exponent)


@pytest.mark.parametrize("case", CASES[2:4], ids=IDS[2:4])
@pytest.mark.parametrize(("dtype", "exponent"), LONG)
def test_a_long_reflector_counts_as_its_direction_in_the_kernel(case, dtype, exponent, isa):
    long_reflectors(case, "cpp", dtype, exponent)


@pytest.mark.parametrize("backend", ["reference", "cpp"])
@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_reflector_that_is_not_finite_gives_nan(backend, value, dtype):
    k, h0 = torch.randn(T, B, 2, 6, dtype=dtype), torch.randn(B, 6, dtype=dtype)
    k[2, 1, 0, 4] = value
    out = reflection_rnn(k, 2.0, h0, backend=backend)
    assert out[2:, 1].isnan().any(-1).all()
    assert out[:2].isfinite().all()
    assert out[:, [0, 2]].isfinite().all()


@pytest.mark.parametrize("kind", ["table", "rows", "angles", "gate"])
def test_the_norm_is_kept_over_a_hundred_thousand_steps(kind):
    """beta = 2 and a gate of 1, in float32: |h| within 1e-4. A rounded factor beta / k'k alone would miss it."""
    steps, n = 100_000, 64
    h0, tokens = torch.randn(1, n), torch.randint(5, (steps, 1))
    if kind == "rows":
        end = reflection_rnn(torch.randn(steps, 1, 2, n), 2.0, h0, output="last")
    elif kind == "angles":
        table, tokens = torch.randn(1, 1, n), torch.zeros_like(tokens)
        end = reflection_rnn(table, 2.0, h0, tokens=tokens, angles=torch.randn(n // 2), output="last")
    else:
        gate = torch.ones(5, n) if kind == "gate" else None
        end = reflection_rnn(torch.randn(5, 4, n), 2.0, h0, tokens=tokens, gate=gate, output="last")
    assert abs(float(end.double().norm() / h0.double().norm()) - 1) < 1e-4


def test_no_steps():
    h0 = torch.randn(B, 4, requires_grad=True)
    for k, tokens in ((torch.randn(0, B, 2, 4), None), (torch.randn(3, 2, 4), torch.zeros(0, B, dtype=torch.int64))):
        k.requires_grad_()
        assert reflection_rnn(k, 2.0, h0, tokens=tokens).shape == (0, B, 4)
        last = reflection_rnn(k, 2.0, h0, tokens=tokens, output="last")
        assert torch.equal(last, h0)
        by_h0, by_k = torch.autograd.grad(last.sum(), [h0, k])
        assert torch.equal(by_h0, torch.ones_like(h0))
        assert not by_k.any()
        every = reflection_rnn(k, 2.0, h0, tokens=tokens)
        for grad in torch.autograd.grad(every.sum(), [h0, k], create_graph=True):
            assert not grad.any()


@pytest.mark.parametrize("backend", ["cpp", "reference"])
def test_no_steps_with_resets(backend):
    """Nothing restarts: the last state is h0, and the gradient of `restart` is zero."""
    h0, restart = torch.randn(B, 4, requires_grad=True), torch.randn(B, 4, requires_grad=True)
    nowhere = torch.zeros(0, B, dtype=torch.bool)
    options = {"reset": nowhere, "restart": restart, "output": "last", "backend": backend}
    last = reflection_rnn(torch.randn(0, B, 2, 4), 2.0, h0, **options)
    assert torch.equal(last, h0)
    by_h0, by_restart = torch.autograd.grad(last.sum(), [h0, restart], allow_unused=True, materialize_grads=True)
    assert torch.equal(by_h0, torch.ones_like(h0))
    assert torch.equal(by_restart, torch.zeros_like(restart))


def test_clip_bounds_what_goes_back():
    k, h0 = torch.randn(T, B, 1, 4), torch.randn(B, 4)
    x = torch.zeros(T, B, 4, requires_grad=True)
    for backend in ("reference", "cpp"):
        out = reflection_rnn(k, 2.0, h0, x=x, clip=0.5, backend=backend)
        (grad,) = torch.autograd.grad((100 * out).sum(), x)
        assert float(grad.abs().max()) == 0.5
    with pytest.raises(TransformError, match="clip"):
        torch.func.grad(lambda x: reflection_rnn(k, 2.0, h0, x=x, clip=0.5).sum())(x)


def test_transforms_take_plain_operations():
    case = Case("tanh", n=4, m=2).draw()
    k, beta, h0 = (case.tensors[name] for name in ("k", "beta", "h0"))

    def loss(k: Tensor) -> Tensor:
        return reflection_rnn(k, beta, h0, activation="tanh").square().sum()

    found = torch.func.grad(loss)(k)
    (want,) = torch.autograd.grad(loss(leaf := k.clone().requires_grad_()), leaf)
    torch.testing.assert_close(found, want)
    _, tangent = torch.func.jvp(loss, (k,), (torch.ones_like(k),))
    torch.testing.assert_close(tangent, want.sum())
    many = torch.func.vmap(loss)(torch.stack([k, 2 * k]))
    torch.testing.assert_close(many, torch.stack([loss(k), loss(2 * k)]))


@pytest.mark.sampled(2)
@pytest.mark.parametrize("case", [CASES[2], CASES[3], CASES[6], CASES[10]], ids=lambda case: case.activation)
@pytest.mark.parametrize("segment", [None, 3])
def test_the_custom_operators_pass_opcheck(case, segment):
    case = case.draw()
    given = case.tensors
    names = ("k", "beta", "gate", "angles", "x", "h0", "parameter", "restart")
    reset = given.get("reset")
    layout_tensors = [None, None if reset is None else reset.flatten(), given.get("tokens")]
    tensors = [*(given.get(name) for name in names), *layout_tensors]
    present = "".join("0" if t is None else "1" for t in tensors)
    options = Options(
        "reflections", activations.get(case.activation), None, case.output == "last", segment_length=segment
    )
    inputs = [torch.empty(0, dtype=torch.float64) if t is None else t for t in tensors]
    inputs = [t.requires_grad_() if t.is_floating_point() and t.numel() else t for t in inputs]
    torch.library.opcheck(torch.ops.orthornn.reflections, (inputs, f"{present}{options.to_spec()}"))


def test_the_reference_reads_the_tokens_once(monkeypatch):
    """Not once for each table, and not again in the backward pass: each time would wait for a GPU."""
    table, tokens = torch.randn(7, 2, 4, requires_grad=True), torch.randint(7, (T, B))
    reads, least = [], torch.Tensor.min
    monkeypatch.setattr(torch.Tensor, "min", lambda values: reads.append(values) or least(values))
    out = reflection_rnn(
        table, 1.5, torch.randn(B, 4), tokens=tokens, gate=torch.rand(7, 4), x=torch.randn(7, 4), backend="reference"
    )
    out.sum().backward()
    assert len(reads) == 1


def test_bad_arguments_are_refused():
    k, h0 = torch.randn(T, B, 2, 4), torch.randn(B, 4)
    table, tokens = torch.randn(7, 2, 4), torch.zeros(T, B, dtype=torch.int64)
    for wrong in (7, -1):
        for backend in ("cpp", "reference"):
            with pytest.raises(IndexError, match=r"tokens in \[0, 7\)"):
                reflection_rnn(table, 2.0, h0, tokens=torch.full((T, B), wrong), backend=backend)
    for beta in (-0.1, 2.001, math.nan, torch.full((T, B, 2, 1), 2.5)):
        with pytest.raises(ArgumentError, match=r"beta in \[0, 2\]"):
            reflection_rnn(k, beta, h0)
    with pytest.raises(ArgumentError, match=r"gate in \[0, 1\]"):
        reflection_rnn(k, 2.0, h0, gate=torch.full((T, B, 4), 1.1))
    with pytest.raises(ArgumentError, match="between 1 and 4 reflections"):
        reflection_rnn(torch.randn(T, B, 5, 4), 2.0, h0)
    with pytest.raises(ArgumentError, match="number or a tensor"):
        reflection_rnn(k, "2", h0)
    for wrong in (
        {"k": k[0]},
        {"k": k[..., :3]},
        {"h0": h0[:2]},
        {"beta": torch.ones(T, B, 2, 3)},
        {"beta": torch.ones(T, B, 1, 1)},
        {"gate": torch.ones(T, B, 2)},
        {"angles": torch.ones(3)},
        {"x": torch.ones(T, B, 3)},
        {"k": table, "tokens": tokens[0]},
        {"batch_sizes": torch.ones(3)},
        {"reset": torch.zeros(T, dtype=torch.bool)},
        {"reset": torch.zeros(T, B, dtype=torch.bool), "restart": h0[:2]},
    ):
        given = {"k": k, "beta": 2.0, "h0": h0, **wrong}
        with pytest.raises(ShapeError):
            reflection_rnn(given.pop("k"), given.pop("beta"), given.pop("h0"), **given)
    with pytest.raises(DTypeError):
        reflection_rnn(k.double(), 2.0, h0)
    with pytest.raises(DTypeError):
        reflection_rnn(table, 2.0, h0, tokens=tokens.float())
    with pytest.raises(ArgumentError, match="only restart"):
        reflection_rnn(k, 2.0, h0, restart=h0)
    with pytest.raises(ArgumentError, match="only with memory"):
        reflection_rnn(k, 2.0, h0, segment=3)
    with pytest.raises(ArgumentError, match="memory"):
        reflection_rnn(k, 2.0, h0, memory="all")
    with pytest.raises(ArgumentError, match="backend"):
        reflection_rnn(k, 2.0, h0, backend="cuda")


def test_a_backend_that_cannot_run_is_refused(monkeypatch):
    from orthornn.kernels.backends.cpp import extension

    monkeypatch.setattr(extension, "missing", lambda: "there is none")
    k, h0 = torch.randn(T, B, 2, 4), torch.randn(B, 4)
    with pytest.raises(BackendError, match="there is none"):
        reflection_rnn(k, 2.0, h0, backend="cpp")
    assert reflection_rnn(k, 2.0, h0).shape == (T, B, 4)


def test_the_extension_checks_what_it_is_given():
    """Sizes, indices and alignment are errors before memory is touched."""
    from orthornn.kernels.backends.cpp.extension import native

    table, h0 = torch.randn(7, 2, 4), torch.randn(B, 4)
    tensors = {
        "k": table,
        "beta": torch.ones(7, 2, 1),
        "index": torch.zeros(T, B, dtype=torch.int64),
        "inverse": torch.empty(7, 2, 1, dtype=torch.float64),
        "h0": h0,
        "states": torch.empty(T, B, 4),
    }
    absent = dict.fromkeys(
        ("batch_sizes", "resets", "gate", "turn", "add", "parameter", "restart", "saved", "last", "dots"), 0
    )
    numbers = {
        "element_size": 4,
        "T": T,
        "B": B,
        "N": 4,
        "R": T * B,
        "M": 2,
        "heads": 1,
        "S": 7,
        "gates": 0,
        "turns": 1,
    }
    rest = {"activation": 0, "slope": 0.0, "threads": 1}
    good = {**{name: t.data_ptr() for name, t in tensors.items()}, **absent, **numbers, **rest}
    native.reflections_forward(**good)
    for wrong in (
        {"R": 3},
        {"heads": 3},
        {"M": 0},
        {"element_size": 2},
        {"k": 0},
        {"k": table.data_ptr() + 1},
        {"activation": 9},
        {"index": 0},
    ):
        with pytest.raises(ValueError, match="Expected"):
            native.reflections_forward(**{**good, **wrong})
    with pytest.raises(IndexError):
        native.reflections_forward(**{**good, "S": 0})


def test_values_are_not_read_in_a_graph_of_any_length_or_without_any():
    k, h0 = torch.randn(4, 3, 2, 5, dtype=torch.float64), torch.randn(3, 5, dtype=torch.float64)
    graph = make_fx(lambda k, h0: reflection_rnn(k, 1.3, h0), tracing_mode="symbolic")(k, h0)
    longer = torch.randn(7, 3, 2, 5, dtype=torch.float64)
    torch.testing.assert_close(graph(longer, h0), reflection_rnn(longer, 1.3, h0))
    with FakeTensorMode():
        table, tokens = torch.empty(6, 2, 5), torch.zeros(7, 3, dtype=torch.int64)
        assert reflection_rnn(table, 1.3, torch.zeros(3, 5), tokens=tokens).shape == (7, 3, 5)


def test_values_are_not_read_while_cuda_captures(monkeypatch):
    """Reading them waits for the device, which ends a capture with an error."""
    values, tokens = torch.full((3,), 9.0), torch.tensor([9])
    monkeypatch.setattr(interception, "is_captured", lambda tensor: True)
    check_range("beta", values, 2)
    check_tokens(tokens, 7)
    monkeypatch.setattr(interception, "is_captured", lambda tensor: False)
    with pytest.raises(ArgumentError):
        check_range("beta", values, 2)
    with pytest.raises(IndexError):
        check_tokens(tokens, 7)


@pytest.mark.parametrize("backend", ["reference", "cpp"])
@pytest.mark.parametrize("case", [case for case in CASES if not case.ragged and not case.resets], ids=repr)
def test_a_pass_while_cuda_captures_reads_nothing_on_the_host(case, backend, monkeypatch):
    case = case.draw()
    for leaf in case.leaves():
        leaf.requires_grad_()

    def both():
        out = case(backend=backend)
        return out, *torch.autograd.grad(out.square().sum(), case.leaves())

    expected = both()
    with monkeypatch.context() as patches:
        captured.begin(patches)
        found = both()
    assert all(map(torch.equal, found, expected))


@pytest.mark.parametrize("heads", [1, 2, 4])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_the_backward_pass_repeats_the_vectors_of_the_forward_pass_to_the_bit(heads, dtype):
    """With a gate of 1 for each unit, its gradient is what the last reflection returned."""
    k, h0 = torch.randn(1, B, 3, 24, dtype=dtype), torch.randn(B, 24, dtype=dtype)
    gate = torch.ones(1, B, 24, dtype=dtype, requires_grad=True)
    h = reflection_rnn(k, torch.full((1, B, 3, heads), 1.3, dtype=dtype), h0, gate=gate)
    (found,) = torch.autograd.grad(h.sum(), gate)
    assert torch.equal(found, h.detach())
