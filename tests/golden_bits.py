"""Record the bits of every output and gradient, and compare them after a change that must not alter any.

    python tests/golden_bits.py write before.json
    python tests/golden_bits.py compare before.json

`write` runs every case below and stores a sha256 of each output and of each gradient under a stable name. `compare`
runs them again, prints the names whose bits differ and the counts, and exits with 1 unless all are equal. It refuses to
compare with a file of another processor, instruction set (ORTHORNN_ISA included) or release of torch, since rounding
differs between them. A case that raises is recorded by the class and the message of its error.

The cases use public functions only and draw their own numbers, so that neither a new layout of the package nor an edit
of the tests changes what is compared. One thread computes, two in the cases of `threaded`.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib
import itertools
import json
import os
import platform
import sys
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence

import orthornn
from orthornn import (
    GORU,
    Givens,
    Householder,
    MatrixExponential,
    OrthogonalRNN,
    OrthogonalRNNCell,
    PeepholeLSTM,
    RestrictedUnitary,
    ScaledCayley,
    SpectralMargin,
    Stiefel,
    Unconstrained,
    kernels,
)

Found = dict[str, Tensor]
Named = tuple[str, Callable[[], Found]]

ACTIVATIONS = (
    "identity",
    "tanh",
    "scaled_tanh",
    "relu",
    "leaky_relu",
    "prelu",
    "modrelu",
    "complex_modrelu",
    "oplu",
)
PARAMETER_SIZE = {"scaled_tanh": 1, "prelu": 1, "modrelu": 1, "complex_modrelu": 2}  # units for one number
INITIAL = {"scaled_tanh": 1.0, "prelu": 0.25}
KINDS = ("dense", "packed", "matrix")
BACKENDS = ("cpp", "reference")
DTYPES = (torch.float32, torch.float64)
LEAVES = ("x", "weight_ih", "bias", "h0", "weight", "c", "s", "parameter", "gain", "readout", "readout_bias")


def normal(generator: torch.Generator, *shape: int, scale: float = 1.0) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=generator) * scale


def weights_like(out: Tensor, seed: int = 1) -> Tensor:
    """A fixed gradient of an output."""
    generator = torch.Generator().manual_seed(seed)
    real = normal(generator, *out.shape)
    return (torch.complex(real, normal(generator, *out.shape)) if out.is_complex() else real).to(out.dtype)


# ---- the recurrences as functions -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Call:
    """One call of dense_rnn, compact_wy_rnn (`packed` or `matrix` reflectors), rotations_rnn or operator_rnn."""

    kind: str = "dense"
    activation: str = "tanh"
    n: int = 5
    m: int = 2
    steps: int = 7
    batch: int = 3
    inputs: int | None = 2  # None: projected rows; 0: tokens
    lengths: bool = False  # flat rows with batch_sizes
    base: bool = True
    bias: bool = True
    output: str = "all"
    clip: float | None = None
    gain: float = 1.0
    trained_gain: bool = False
    memory: str = "store"
    segment: int | None = None
    backend: str = "cpp"
    dtype: torch.dtype = torch.float64
    half: bool = False  # x and V in bfloat16
    readout: int | None = None
    frozen: tuple[str, ...] = ()  # tensors that require no gradient
    strided: bool = False  # tensors that are not contiguous
    grows: bool = False  # a parameter of modrelu and complex_modrelu that is positive
    x_scale: float = 1.0
    bad: float | None = None  # an entry of x that is not finite
    inference: bool = False
    threads: int = 1

    @property
    def name(self) -> str:
        given = [f"{self.kind}_rnn"]
        for field, default in _DEFAULTS.items():
            value = getattr(self, field)
            if field != "kind" and (value != default or field in ("activation", "backend", "dtype")):
                given.append(f"{field}={'+'.join(value) if isinstance(value, tuple) else value}".replace("torch.", ""))
        return " ".join(given)

    def draw(self) -> Found:
        generator = torch.Generator().manual_seed(0)
        n, tensors = self.n, {}
        sizes = None
        if self.lengths:
            longest = torch.randint(1, self.steps + 1, (self.batch,), generator=generator).sort(descending=True)[0]
            longest[0] = self.steps
            sizes = (longest.unsqueeze(0) > torch.arange(self.steps).unsqueeze(1)).sum(dim=1)
            tensors["batch_sizes"] = sizes
        leading = (self.steps, self.batch) if sizes is None else (int(sizes.sum()),)
        tensors["h0"] = normal(generator, self.batch, n)
        if self.inputs == 0:
            tensors["x"] = torch.randint(0, 4, leading, generator=generator)
            tensors["weight_ih"] = normal(generator, n, 4)
        else:
            tensors["x"] = normal(generator, *leading, n if self.inputs is None else self.inputs, scale=self.x_scale)
            if self.inputs is not None:
                tensors["weight_ih"] = normal(generator, n, self.inputs)
        if self.bad is not None:
            tensors["x"].view(-1, tensors["x"].shape[-1])[1, 0] = self.bad
        if self.bias:
            tensors["bias"] = normal(generator, n, scale=0.1)
        if self.activation in PARAMETER_SIZE:
            size = n // PARAMETER_SIZE[self.activation]
            tensors["parameter"] = INITIAL.get(self.activation, 0.0) + normal(generator, size, scale=0.2)
            if self.grows:
                tensors["parameter"] = tensors["parameter"].abs()
            elif self.activation == "modrelu":
                tensors["parameter"] = -tensors["parameter"].abs()
        if self.kind in ("dense", "rotations"):
            tensors["weight"] = torch.linalg.qr(normal(generator, n, n))[0]
        elif self.kind == "packed":
            tensors["weight"] = normal(generator, n * self.m - self.m * (self.m - 1) // 2)
        elif self.kind == "matrix":
            U = normal(generator, n, self.m)
            lengths = 1 + torch.rand(self.m, dtype=torch.float64, generator=generator)
            tensors["weight"] = U * lengths / torch.linalg.vector_norm(U, dim=0)
        else:  # operator_rnn: turns of neighbouring pairs, then a permutation
            angle = normal(generator, n // 2, scale=3.0)
            tensors["c"], tensors["s"] = angle.cos(), angle.sin()
        if self.kind in ("packed", "matrix") and self.base:
            angle = normal(generator, n, scale=3.0)
            half = n // 2
            angle[n - half :] = angle[:half]
            tensors["c"], sine = angle.cos(), angle.sin()
            tensors["s"] = torch.cat([-sine[: n - half], sine[n - half :]])
            if n % 2:
                tensors["c"][half], tensors["s"][half] = 1.0, 0.0
        if self.trained_gain:
            tensors["gain"] = torch.tensor(self.gain, dtype=torch.float64)
        if self.readout is not None:
            tensors["readout"] = normal(generator, self.readout, n)
            tensors["readout_bias"] = normal(generator, self.readout)
        return tensors

    def leaves(self) -> Found:
        """The tensors in their dtypes, those that are trained as leaves."""
        found = {}
        for name, tensor in self.draw().items():
            if tensor.is_floating_point():
                tensor = tensor.to(torch.bfloat16 if self.half and name in ("x", "weight_ih") else self.dtype)
                if self.strided and tensor.dim() > 1:
                    tensor = tensor.transpose(0, 1).contiguous().transpose(0, 1)
                elif self.strided and tensor.dim() == 1:
                    tensor = torch.stack([tensor, tensor], dim=1)[:, 0]
                if not self.inference and name not in self.frozen:
                    tensor = tensor.detach().requires_grad_()
            found[name] = tensor
        return found

    def __call__(self) -> Found:
        t = self.leaves()
        torch.set_num_threads(self.threads)
        keywords = {
            "weight_ih": t.get("weight_ih"),
            "bias": t.get("bias"),
            "gain": t.get("gain", self.gain),
            "batch_sizes": t.get("batch_sizes"),
            "output": self.output,
        }
        if self.kind != "rotations":
            keywords["clip"] = self.clip
        if self.kind != "operator":
            keywords["backend"], keywords["memory"] = self.backend, self.memory
            if self.segment is not None:
                keywords["segment"] = self.segment
        x, h0, parameter = t["x"], t["h0"], t.get("parameter")
        with torch.set_grad_enabled(not self.inference):
            if self.kind == "rotations":
                if self.readout is not None:
                    keywords["readout"] = (t["readout"], t["readout_bias"])
                out = kernels.rotations_rnn(x, h0, t["weight"], **keywords)
            elif self.kind == "dense":
                out = kernels.dense_rnn(x, h0, t["weight"], self.activation, parameter, **keywords)
            elif self.kind == "operator":
                maps = (turned, turned_back, (t["c"], t["s"]))
                out = kernels.operator_rnn(x, h0, *maps, self.activation, parameter, **keywords)
            else:
                base = (t["c"], t["s"]) if "c" in t else None
                out = kernels.compact_wy_rnn(x, h0, t["weight"], base, self.activation, parameter, **keywords)
        found = {"output": out}
        names = [name for name in LEAVES if name in t and t[name].requires_grad]
        if names:
            leaves = [t[name] for name in names]
            grads = torch.autograd.grad(out, leaves, weights_like(out), allow_unused=True, materialize_grads=True)
            found |= {f"d{name}": grad for name, grad in zip(names, grads)}
        return found


_DEFAULTS = {name: field.default for name, field in Call.__dataclass_fields__.items()}


def turned(h: Tensor, c: Tensor, s: Tensor) -> Tensor:
    a, b = h[:, ::2], h[:, 1::2]
    return torch.cat([s * a + c * b, c * a - s * b], dim=1)


def turned_back(g: Tensor, c: Tensor, s: Tensor) -> Tensor:
    first, second = g.chunk(2, dim=1)
    return torch.stack([s * first + c * second, c * first - s * second], dim=2).flatten(1)


AWKWARD = (
    Call(n=1, m=1, batch=1),
    Call(n=2, m=1, steps=1),
    Call(n=17, m=16, batch=1, activation="modrelu"),
    Call(n=33, m=33, batch=5, activation="leaky_relu"),
    Call(n=64, m=5, batch=13, steps=19, activation="oplu"),
    Call(n=100, m=37, batch=7, steps=33, activation="modrelu"),
    Call(n=65, m=8, batch=31, steps=5, activation="relu", lengths=True),
    Call(n=19, m=4, batch=1, steps=40, activation="identity", lengths=True),
    Call(n=7, m=0, base=True),
    Call(n=7, m=3, base=False),
)
LARGE = (
    Call(n=170, m=170, batch=50, steps=6, activation="modrelu", inputs=1),
    Call(n=256, m=32, batch=50, steps=6, activation="modrelu", inputs=1, output="last"),
    Call(n=128, m=128, batch=20, steps=9, activation="oplu", inputs=9),
    Call(n=96, m=20, batch=61, steps=6, activation="scaled_tanh", inputs=0, lengths=True),
    Call(n=1500, m=7, batch=2, steps=5, activation="modrelu", inputs=None),
)


def functions() -> Iterator[Call]:
    """The calls of the recurrences, for one backend and one dtype."""
    for kind, activation in itertools.product(KINDS, ACTIVATIONS):
        for (k, lengths), output in itertools.product(enumerate((False, True)), ("all", "last")):
            for n in (6, 10):
                yield Call(kind, activation, n=n, m=3, lengths=lengths, output=output)
            inputs = (None, 0, 1, 9)[2 * k + (output == "last")]
            case = Call(kind, activation, n=10, m=3, lengths=lengths, output=output, inputs=inputs, memory="checkpoint")
            yield replace(case, segment=None if k else 3)
    for case, kind in itertools.product(AWKWARD, KINDS):
        for inputs in (None, 0, 1, 2, 9):
            yield replace(case, kind=kind, inputs=inputs)
        yield replace(case, kind=kind, output="last", bias=False)
        yield replace(case, kind=kind, memory="checkpoint")
    for kind, base, gain in itertools.product(("dense", "packed"), (False, True), (0.9, 1.05)):
        for trained in (False, True):
            yield Call(kind, "modrelu", n=9, m=4, base=base, gain=gain, trained_gain=trained)
    for kind, activation in itertools.product(KINDS, ("tanh", "identity", "oplu", "modrelu")):
        for memory, output in itertools.product(("store", "checkpoint"), ("all", "last")):
            yield Call(kind, activation, n=6, m=3, steps=6, batch=2, clip=0.05, memory=memory, output=output)
    for kind, (steps, batch) in itertools.product((*KINDS, "rotations"), ((0, 3), (4, 0), (0, 0))):
        for activation, output in itertools.product(("modrelu", "oplu", "identity"), ("all", "last")):
            if (kind == "rotations") == (activation == "identity"):
                for memory in ("store", "checkpoint"):
                    size = {"steps": steps, "batch": batch, "output": output, "memory": memory}
                    yield Call(kind, activation, n=6, m=2, **size)
    for segment, lengths in itertools.product((1, 2, 5, 12, 13, 14, 100), (False, True)):
        size = {"n": 9, "m": 4, "steps": 13, "batch": 5, "lengths": lengths}
        yield Call("packed", "oplu", **size, memory="checkpoint", segment=segment)
    for kind, frozen in itertools.product(KINDS, (("x",), ("x", "h0"), ("weight",), ("bias", "weight_ih"), ("c", "s"))):
        yield Call(kind, "modrelu", frozen=frozen)
        yield Call(kind, "tanh", frozen=tuple(name for name in LEAVES if name not in frozen), output="last")
    for kind in (*KINDS, "rotations"):
        activation = "identity" if kind == "rotations" else "scaled_tanh"
        for lengths, inputs in itertools.product((False, True), (None, 0, 2)):
            for output in ("all", "last"):
                yield Call(kind, activation, inputs=inputs, lengths=lengths, output=output, inference=True)
            yield Call(kind, activation, inputs=inputs, lengths=lengths, strided=True)
    for kind, activation in itertools.product(("dense", "packed"), ACTIVATIONS):
        for bad in (float("nan"), float("inf"), float("-inf")):
            yield Call(kind, activation, n=6, bad=bad, gain=0.5)
    for kind, activation in itertools.product(KINDS, ("modrelu", "complex_modrelu")):
        yield Call(kind, activation, n=8, m=4, grows=True, x_scale=0.1, steps=30)
    for case, kind in itertools.product(LARGE, KINDS):
        yield replace(case, kind=kind)
    sizes = (
        Call(n=1, batch=1),
        Call(n=2, steps=1),
        Call(n=17, batch=1),
        Call(n=33, batch=5, gain=0.9),
        Call(n=64, batch=13, steps=19, output="last"),
        Call(n=100, batch=7, steps=33, gain=1.01),
        Call(n=65, batch=31, steps=5, lengths=True),
        Call(n=19, batch=4, steps=40, lengths=True, output="last"),
    )
    for case, inputs in itertools.product(sizes, (None, 0, 1, 2, 9)):
        case = replace(case, kind="rotations", activation="identity", inputs=inputs)
        yield case
        yield replace(case, memory="checkpoint", segment=3)
        yield replace(case, readout=2)
    yield Call("rotations", "identity", gain=0.9, trained_gain=True)


def halves() -> Iterator[Call]:
    """Rows stored in bfloat16 next to a float32 transition."""
    for (k, activation), kind in itertools.product(enumerate(ACTIVATIONS), KINDS):
        for output in ("all", "last"):
            yield Call(
                kind, activation, n=6, m=3, lengths=k % 2 == 0, output=output, inputs=None, bias=False, half=True
            )
            size = {"n": 8 if activation == "complex_modrelu" else 7, "m": 3, "lengths": k % 2 == 1}
            yield Call(kind, activation, **size, output=output, inputs=(0, 2, 9)[k % 3], half=True)
    for kind, inputs in itertools.product((*KINDS, "rotations"), (None, 0, 2, 9)):
        activation = "identity" if kind == "rotations" else "modrelu"
        yield Call(kind, activation, steps=3, inputs=inputs, clip=None if kind == "rotations" else 0.1, half=True)
        yield Call(kind, activation, inputs=inputs, memory="checkpoint", segment=2, half=True)
    for kind in KINDS:
        yield replace(LARGE[0], kind=kind, half=True)


def operators() -> Iterator[Call]:
    """operator_rnn, which has no backends."""
    for activation, lengths, output in itertools.product(ACTIVATIONS, (False, True), ("all", "last")):
        for inputs in (None, 0, 2):
            yield Call("operator", activation, n=6, inputs=inputs, lengths=lengths, output=output, gain=0.9)
    for activation in ("tanh", "oplu"):
        yield Call("operator", activation, n=6, clip=0.05)
        yield Call("operator", activation, n=6, gain=0.9, trained_gain=True)
        for steps, batch in ((0, 3), (4, 0), (0, 0)):
            for output in ("all", "last"):
                yield Call("operator", activation, n=6, steps=steps, batch=batch, output=output)


def threaded() -> Iterator[Call]:
    """Calls on two threads."""
    for case, kind, backend in itertools.product(LARGE, KINDS, BACKENDS):
        case = replace(case, kind=kind, backend=backend, dtype=torch.float32, threads=2)
        yield case
        yield replace(case, memory="checkpoint")
    for batch, kind in itertools.product((2, 3, 4, 5, 13, 61), ("dense", "packed")):
        for lengths in (False, True):
            yield Call(kind, "modrelu", 50, 9, 6, batch, None, lengths, bias=False, dtype=torch.float32, threads=2)
    for backend in BACKENDS:
        size = {"n": 200, "batch": 13, "steps": 60, "inputs": 1, "output": "last"}
        yield Call("rotations", "identity", **size, backend=backend, dtype=torch.float32, threads=2)


def second_derivatives() -> Iterator[Named]:
    """Higher derivatives, forward mode and torch.func."""
    for kind, activation in itertools.product((*KINDS, "rotations", "operator"), ("tanh", "modrelu", "identity")):
        if kind == "rotations" and activation != "identity":
            continue
        case = Call(kind, activation, n=6, steps=4, backend="cpp")

        def call(case: Call = case, **changed: Tensor) -> Tensor:
            t = replace(case, inference=True).leaves() | changed
            keywords = {"weight_ih": t["weight_ih"], "bias": t["bias"]}
            phi = (case.activation, t.get("parameter"))
            if case.kind == "rotations":
                return kernels.rotations_rnn(t["x"], t["h0"], t["weight"], **keywords)
            if case.kind == "dense":
                return kernels.dense_rnn(t["x"], t["h0"], t["weight"], *phi, **keywords)
            if case.kind == "operator":
                maps = (turned, turned_back, (t["c"], t["s"]))
                return kernels.operator_rnn(t["x"], t["h0"], *maps, *phi, **keywords)
            return kernels.compact_wy_rnn(t["x"], t["h0"], t["weight"], (t["c"], t["s"]), *phi, **keywords)

        def twice(call: Callable[..., Tensor] = call, case: Call = case) -> Found:
            t = case.leaves()
            leaves = {name: t[name] for name in ("x", "h0", "weight" if "weight" in t else "c")}
            first = torch.autograd.grad(call(**leaves).pow(3).sum(), list(leaves.values()), create_graph=True)
            loss = sum(grad.square().sum() for grad in first)
            second = torch.autograd.grad(loss, list(leaves.values()))
            return {f"dd{name}": grad for name, grad in zip(leaves, second)}

        def transformed(call: Callable[..., Tensor] = call, case: Call = case) -> Found:
            h0 = replace(case, inference=True).leaves()["h0"]
            loss = lambda h: call(h0=h).square().sum()  # noqa: E731
            return {
                "grad": torch.func.grad(loss)(h0),
                "jvp": torch.func.jvp(loss, (h0,), (torch.ones_like(h0),))[1],
                "vmap": torch.func.vmap(lambda h: call(h0=h))(torch.stack([h0, 2 * h0])),
            }

        yield f"twice {case.name}", twice
        yield f"torch.func {case.name}", transformed


# ---- the modules ----------------------------------------------------------------------------------------------------

REAL = {
    "householder": Householder(),
    "householder-2": Householder(reflections=2),
    "householder-2-rotations": Householder(reflections=2, base="rotations"),
    "householder-trained-angles": Householder(reflections=2, base="rotations", train_angles=True),
    "householder-unit": Householder(reflections=3, unit=True),
    "cayley": ScaledCayley(negatives=3),
    "exponential": MatrixExponential(),
    "exponential-rebased": MatrixExponential(rebase_every=2),
    "givens-2": Givens(layers=2),
    "givens-fft": Givens(layers="fft"),
    "spectral": SpectralMargin(margin=0.1),
    "stiefel": Stiefel(),
    "unconstrained": Unconstrained(),
    "unconstrained-glorot": Unconstrained(init="glorot"),
}
COMPLEX = {
    "unitary-householder": Householder(field="complex"),
    "unitary-householder-2-rotations": Householder(reflections=2, field="complex", base="rotations"),
    "unitary-cayley": ScaledCayley(field="complex"),
    "unitary-cayley-phases": ScaledCayley(field="complex", phases=True),
    "unitary-exponential": MatrixExponential(field="complex"),
    "unitary-givens": Givens(layers=2, field="complex"),
    "unitary-stiefel": Stiefel(field="complex"),
    "restricted": RestrictedUnitary(),
}
METHODS = REAL | COMPLEX
LAYOUTS = ("batch", "packed", "tokens", "unbatched")
T, B, I, N = 7, 3, 3, 6


def layout(kind: str, dtype: torch.dtype, batch_first: bool = False) -> Tensor | PackedSequence:
    generator = torch.Generator().manual_seed(2)
    x = normal(generator, T, B, I).to(dtype)
    if kind in ("tokens", "packed tokens"):
        x = torch.randint(0, I, (T, B), generator=generator)
    if kind == "unbatched":
        return x[:, 0].clone()
    if kind in ("packed", "packed tokens"):
        return pack_padded_sequence(x, torch.tensor([3, 7, 1]), enforce_sorted=False)
    return x.transpose(0, 1) if batch_first else x


def flat(prefix: str, value: object) -> Found:
    """Every tensor of a returned value."""
    if isinstance(value, PackedSequence):
        return {prefix: value.data}
    if isinstance(value, Tensor):
        return {prefix: value}
    found = {}
    for k, part in enumerate(value):  # type: ignore[arg-type]
        found |= flat(f"{prefix}.{k}", part)
    return found


def with_gradients(net: nn.Module, returned: object, given: Found | None = None) -> Found:
    """What a module returned, and the gradients of its parameters (and of `given`)."""
    found = flat("output", returned)
    leaves = dict(net.named_parameters()) | (given or {})
    outs = [out for out in found.values() if out.requires_grad]
    weights = [weights_like(out, k) for k, out in enumerate(outs)]
    grads = torch.autograd.grad(outs, list(leaves.values()), weights, allow_unused=True, materialize_grads=True)
    state = {f"state {name}": value for name, value in net.state_dict().items()}
    return found | {f"d{name}": grad for name, grad in zip(leaves, grads)} | state


def network(method: object, dtype: torch.dtype = torch.float64, **options: object) -> OrthogonalRNN:
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return OrthogonalRNN(I, N, parametrization=method, dtype=dtype, **{"nonlinearity": "modrelu", **options})  # type: ignore[arg-type]


def rnn(
    method: object,
    kind: str = "batch",
    output: str = "all",
    dtype: torch.dtype = torch.float64,
    autocast: bool = False,
    state: bool = False,
    threads: int = 1,
    **options: object,
) -> Callable[[], Found]:
    def run() -> Found:
        net = network(method, dtype, **options)
        x = layout(kind, dtype, bool(options.get("batch_first")))
        data = x.data if isinstance(x, PackedSequence) else x
        given = {}
        if data.is_floating_point():
            data = data.detach().requires_grad_()
            x = x._replace(data=data) if isinstance(x, PackedSequence) else data
            given["input"] = data
        h0 = None
        if state:
            shape = (len(net.suffixes) if hasattr(net, "suffixes") else 1, *(() if kind == "unbatched" else (B,)), N)
            real = normal(torch.Generator().manual_seed(3), *shape).to(dtype)
            h0 = (torch.complex(real, 2 * real) if net.is_complex else real).requires_grad_()
            given["h0"] = h0
        torch.set_num_threads(threads)
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=autocast):
            torch.manual_seed(4)  # dropout
            returned = net(x, h0, output=output)
        return with_gradients(net, returned, given)

    return run


def modules() -> Iterator[Named]:
    """OrthogonalRNN in its kinds, the cell, GORU and PeepholeLSTM."""
    for (name, method), dtype in itertools.product(METHODS.items(), DTYPES):
        tag = f"OrthogonalRNN {name} {str(dtype).removeprefix('torch.')}"
        for kind, output in itertools.product((*LAYOUTS, "packed tokens"), ("all", "last")):
            yield f"{tag} {kind} {output}", rnn(method, kind, output, dtype)
        two = {"num_layers": 2, "bidirectional": True}
        for kind, output in itertools.product(("batch", "packed"), ("all", "last")):
            yield f"{tag} two layers, two directions {kind} {output}", rnn(method, kind, output, dtype, **two)
        for memory, output in itertools.product(("checkpoint",), ("all", "last")):
            how = {"memory": memory, "segment": 2}
            yield f"{tag} {memory} {output}", rnn(method, "packed", output, dtype, **how)
            yield f"{tag} {memory} two layers {output}", rnn(method, "packed", output, dtype, num_layers=2, **how)
        for phi in ("tanh", "oplu", "prelu", "scaled_tanh", "identity"):
            yield f"{tag} {phi}", rnn(method, dtype=dtype, nonlinearity=phi, num_layers=2)
        learned = {"learn_h0": True, "learn_gain": True, "gain": 0.95}
        yield f"{tag} learned", rnn(method, "packed", dtype=dtype, **learned)
        yield f"{tag} h0 given", rnn(method, "packed", dtype=dtype, state=True, num_layers=2)
        yield f"{tag} h0 given, unbatched", rnn(method, "unbatched", dtype=dtype, state=True)
        yield f"{tag} clip", rnn(method, dtype=dtype, clip_backward=0.1, nonlinearity="tanh")
        yield f"{tag} linear transition", rnn(method, dtype=dtype, linear_transition=True, nonlinearity="relu")
        yield f"{tag} no bias", rnn(method, dtype=dtype, bias=False)
        yield f"{tag} batch_first", rnn(method, dtype=dtype, batch_first=True, bidirectional=True)
        yield f"{tag} dropout", rnn(method, dtype=dtype, dropout=0.5, num_layers=2)
        for form in ("dense", "compact_wy", "operator"):
            yield f"{tag} form={form}", rnn(method, dtype=dtype, form=form, num_layers=2)
        yield f"{tag} form=rotations", rnn(method, dtype=dtype, form="rotations", nonlinearity="identity")
        if dtype == torch.float32:
            yield f"{tag} autocast", rnn(method, dtype=dtype, autocast=True, num_layers=2)
            yield f"{tag} autocast packed last", rnn(method, "packed", "last", dtype=dtype, autocast=True)
            yield f"{tag} bfloat16", rnn(method, dtype=torch.bfloat16, num_layers=2)
            yield f"{tag} two threads", rnn(method, dtype=dtype, threads=2, num_layers=2)
        yield f"{tag} inference", inference(method, dtype)
        yield f"{tag} training", training(method, dtype)
        yield f"{tag} steps", stepped(method, dtype)
        yield f"{tag} fold", folded(method, dtype)
        yield f"{tag} readout", read_out(method, dtype)
        yield f"{tag} readout of a linear network", read_out(method, dtype, nonlinearity="identity")
        yield f"{tag} missing steps", missing_steps(method, dtype)
        yield f"Cell {name} {str(dtype).removeprefix('torch.')}", cell(method, dtype)
        for phi in ("modrelu", "tanh"):
            yield f"GORU {name} {str(dtype).removeprefix('torch.')} {phi}", goru(method, dtype, phi)
    for dtype, peepholes, init in itertools.product(DTYPES, (False, True), ("uniform", "orthogonal")):
        name = f"PeepholeLSTM {str(dtype).removeprefix('torch.')} peepholes={peepholes} {init}"
        options = {"peepholes": peepholes, "init": init, "dtype": dtype}
        for kind, output in itertools.product(("batch", "packed", "tokens", "packed tokens"), ("all", "last")):
            yield f"{name} {kind} {output}", gated(PeepholeLSTM, kind, output, learn_state=True, **options)
        yield f"{name} batch_first", gated(PeepholeLSTM, "batch", "all", batch_first=True, **options)
    for dtype, output in itertools.product(DTYPES, ("all", "last")):
        options = {"dtype": dtype, "learn_h0": True}
        for kind in ("batch", "packed", "tokens", "packed tokens"):
            for field in ("real", "complex"):
                method = Givens(layers=2, field=field)  # type: ignore[arg-type]
                name = f"GORU {field} {str(dtype).removeprefix('torch.')} {kind} {output}"
                yield name, gated(GORU, kind, output, parametrization=method, **options)


def inference(method: object, dtype: torch.dtype) -> Callable[[], Found]:
    def run() -> Found:
        net = network(method, dtype, num_layers=2)
        with torch.no_grad():
            return flat("output", net(layout("packed", dtype))) | flat(
                "last", net(layout("batch", dtype), output="last")
            )

    return run


def training(method: object, dtype: torch.dtype) -> Callable[[], Found]:
    """Three updates by plain gradient descent, without what keeps a free tensor on its manifold."""

    def run() -> Found:
        net = network(method, dtype, num_layers=2)
        x = layout("batch", dtype)
        for _ in range(3):
            net.zero_grad()
            net(x, output="last")[0].abs().square().sum().backward()
            with torch.no_grad():
                for parameter in net.parameters():
                    parameter -= 0.01 * parameter.grad
        return {f"state {name}": value for name, value in net.state_dict().items()} | flat("output", net(x))

    return run


def stepped(method: object, dtype: torch.dtype) -> Callable[[], Found]:
    def run() -> Found:
        net = network(method, dtype, num_layers=2, learn_h0=True)
        h, outs = None, []
        for x_t in layout("batch", dtype):
            out, h = net.step(x_t, h)
            outs.append(out)
        return with_gradients(net, (torch.stack(outs), h))

    return run


def folded(method: object, dtype: torch.dtype) -> Callable[[], Found]:
    def run() -> Found:
        net = network(method, dtype, num_layers=2, gain=0.9, learn_gain=True).fold()
        return with_gradients(net, net(layout("batch", dtype)))

    return run


def read_out(method: object, dtype: torch.dtype, **options: object) -> Callable[[], Found]:
    def run() -> Found:
        net = network(method, dtype, **options)
        torch.manual_seed(5)
        readout = nn.Linear(N * (2 if net.is_complex else 1), 2, dtype=dtype)
        read = getattr(net, "forward_readout", None) or net.read
        return with_gradients(nn.ModuleList([net, readout]), read(layout("packed", dtype), readout))

    return run


def missing_steps(method: object, dtype: torch.dtype) -> Callable[[], Found]:
    def run() -> Found:
        net = network(method, dtype, num_layers=2)
        observed = torch.rand(T, B, generator=torch.Generator().manual_seed(6)) < 0.5
        hold = importlib.import_module("orthornn.modules").hold_missing
        return with_gradients(net, hold(net, layout("batch", dtype), observed))

    return run


def cell(method: object, dtype: torch.dtype) -> Callable[[], Found]:
    def run() -> Found:
        torch.manual_seed(0)
        options = {"parametrization": method, "dtype": dtype, "learn_h0": True, "learn_gain": True, "gain": 0.9}
        net = OrthogonalRNNCell(I, N, nonlinearity="modrelu", **options)  # type: ignore[arg-type]
        h, outs = None, []
        for x_t in layout("batch", dtype):
            h = net(x_t, h)
            outs.append(h)
        outs.append(net(layout("unbatched", dtype)[0]))
        return with_gradients(net, outs)

    return run


def goru(method: object, dtype: torch.dtype, nonlinearity: str) -> Callable[[], Found]:
    return gated(GORU, "batch", "all", parametrization=method, dtype=dtype, nonlinearity=nonlinearity)


def gated(kind: type[nn.Module], inputs: str, output: str, **options: object) -> Callable[[], Found]:
    def run() -> Found:
        torch.manual_seed(0)
        net = kind(I, N, **options)
        x = layout(inputs, options["dtype"], bool(options.get("batch_first")))  # type: ignore[arg-type]
        return with_gradients(net, net(x, output=output))

    return run


# ---- the file -------------------------------------------------------------------------------------------------------


def cases() -> Iterator[Named]:
    for backend, dtype in itertools.product(BACKENDS, DTYPES):
        for call in functions():
            call = replace(call, backend=backend, dtype=dtype)
            yield call.name, call
    for backend in BACKENDS:
        for call in halves():
            call = replace(call, backend=backend, dtype=torch.float32)
            yield call.name, call
    for dtype in DTYPES:
        for call in operators():
            call = replace(call, dtype=dtype)
            yield call.name, call
    for call in threaded():
        yield call.name, call
    yield from second_derivatives()
    yield from modules()


def digest(tensor: Tensor) -> str:
    tensor = tensor.detach().resolve_conj().resolve_neg().contiguous()
    if tensor.is_complex():
        tensor = torch.view_as_real(tensor)
    stored = hashlib.sha256(f"{tensor.dtype} {tuple(tensor.shape)} ".encode())
    stored.update(tensor.reshape(-1).view(torch.uint8).numpy().tobytes() if tensor.numel() else b"")
    return stored.hexdigest()


def record() -> dict[str, str]:
    """The sha256 of every tensor, or the error, by name."""
    found: dict[str, str] = {}
    for name, run in cases():
        torch.set_num_threads(1)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                results = {part: digest(tensor) for part, tensor in run().items()}
        except Exception as error:
            results = {"error": f"{type(error).__name__}: {error}"}
        for part, value in results.items():
            key = f"{name} / {part}"
            if found.get(key, value) != value:
                raise RuntimeError(f"Two cases are called {key!r} and differ. Name them apart.")
            found[key] = value
    return found


def machine() -> dict[str, object]:
    """What rounding depends on."""
    processor = {"architecture": platform.machine()}
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").split("\n\n")[0].splitlines()
    except OSError:
        processor["name"] = platform.processor()
    else:
        wanted = ("model name", "cpu family", "model", "stepping", "flags")
        pairs = (line.split(":", 1) for line in lines if ":" in line)
        processor |= {key.strip(): value.strip() for key, value in pairs if key.strip() in wanted}
    try:
        isa = importlib.import_module("orthornn._native").isa()
    except ImportError:
        isa = None
    return {
        "processor": processor,
        "isa": isa,
        "torch": torch.__version__,
        "torch's instruction set": torch.backends.cpu.get_cpu_capability(),
        "threads": [1, 2],
        "cores": os.cpu_count(),
    }


def write(path: Path) -> int:
    found = record()
    path.write_text(json.dumps({"machine": machine(), "bits": found}, indent=0) + "\n", encoding="utf-8")
    errors = sum(name.endswith("/ error") for name in found)
    count = len({name.rpartition(" / ")[0] for name in found})
    print(f"{path}: {len(found)} entries of {count} cases, {errors} of which raise an error")
    return 0


def compare(path: Path) -> int:
    stored = json.loads(path.read_text(encoding="utf-8"))
    here = json.loads(json.dumps(machine()))
    other = [key for key in here if here[key] != stored["machine"].get(key)]
    if other:
        told = "; ".join(f"{key} {stored['machine'].get(key)} there, {here[key]} here" for key in other)
        print(f"Expected bits of this machine, but got those of another: {told}. Write the file again here.")
        return 2
    before, now = stored["bits"], record()
    equal = sum(now.get(name) == value for name, value in before.items())
    missing = [name for name in before if name not in now]
    differ = [name for name, value in before.items() if name in now and now[name] != value]
    new = [name for name in now if name not in before]
    for name in differ:
        print(f"differs: {name}")
        if name.endswith("/ error"):
            print(f"    before: {before[name]}\n    now:    {now[name]}")
    for name in missing:
        print(f"missing: {name}")
    for name in new:
        print(f"new:     {name}{': ' + now[name] if name.endswith('/ error') else ''}")
    print(f"{equal} equal, {len(differ)} differ, {len(missing)} missing, {len(new)} new")
    return 1 if differ or missing else 0


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0] if __doc__ else None)
    parser.add_argument("command", choices=["write", "compare"])
    parser.add_argument("file", type=Path)
    given = parser.parse_args(arguments)
    print(f"orthornn {orthornn.__version__} of {Path(orthornn.__file__).parent}")
    return write(given.file) if given.command == "write" else compare(given.file)


if __name__ == "__main__":
    sys.exit(main())
