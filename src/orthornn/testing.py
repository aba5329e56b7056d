"""Check that a parametrization obeys the laws that networks, optimizers and saved files rely on.

`check_parametrization(method, n)` tests orthornn's parametrizations and can be used in your own tests: see
docs/how_to/your_parametrization.md. This module does not import a test framework.
"""

from __future__ import annotations

import copy
import io
import math
import pickle
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from ._checks import check_integer
from ._recording import recording
from .compact_wy import packed_reflections, product
from .complex_as_real import embed_matrix
from .errors import NotOnGroupError, ShapeError
from .optim import CayleySGD
from .parametrizations import BoundParametrization, Parametrization
from .parametrizations.matrices import as_complex, haar
from .parametrizations.parametrization import ORTHOGONAL_GROUPS, check_description

__all__ = ["LAWS", "check_parametrization"]

WHOLE = ("O", "SO", "det=-1", "U")
GROUPS = (*ORTHOGONAL_GROUPS, "margin", "contractions", "decays", "all")


class Subject(NamedTuple):
    """A description at a size, bound and in float64, with random free tensors that require gradients.

    inner: Other free tensors, inside the set onto which `after_update_` projects, since its edge may have no
        derivative.
    """

    description: Parametrization
    n: int
    method: BoundParametrization
    free: tuple[Tensor, ...]
    inner: tuple[Tensor, ...] = ()

    @staticmethod
    def draw(description: Parametrization, n: int, seed: int, dtype: torch.dtype = torch.float64) -> Subject:
        """Return a point away from the initial values, as after optimizer steps, `after_update_` included."""
        generator = torch.Generator().manual_seed(seed)
        method = description.bind(n).to(dtype)
        free = []
        for name, value in zip(method.names, method.initial(generator)):
            noise = torch.randn(value.shape, dtype=torch.float64, generator=generator)
            free.append((value if name in method.manifolds else value + 0.3 * noise).to(dtype))
        drawn = [value.clone() for value in free]
        with torch.no_grad():
            method.after_update_(*free)
            mirrored = [2 * projected - value for value, projected in zip(drawn, free)]
            copy.deepcopy(method).after_update_(*mirrored)  # back into the set, if that is beyond its other side
        inner = [(projected + value) / 2 for value, projected in zip(mirrored, free)]
        points = (tuple(value.detach().requires_grad_() for value in point) for point in (free, inner))
        return Subject(description, n, method, *points)

    def W(self) -> Tensor:
        """Return the matrix, detached."""
        return self.method(*self.free).detach()


def tolerance(dtype: torch.dtype, operations: int = 1) -> float:
    """Return the error that rounding allows after this many dependent operations, relative to the largest value
    involved.
    """
    return 8 * torch.finfo(dtype).eps * max(operations, 1)


@recording()
def check_parametrization(method: Parametrization, n: int, *, seed: int = 0) -> None:
    """Raise AssertionError unless `method`, bound to a matrix of size n, obeys every law of :data:`LAWS`.

    The laws: names, shapes and number of the free tensors; initial values that a generator reproduces; W on the
    declared group; `right_inverse` as the inverse of `forward`, and onto the whole declared group if there is one; the
    compact form and the operator form equal to the matrix; gradients; descent by an update that keeps W on its set;
    dtypes, devices, autocast and the meta device; state_dict, deepcopy and pickle.

    Args:
        method: The description, for example ``Householder(reflections=3)``. Its class must be importable by name;
            otherwise it cannot be pickled.
        n: Size of W. Odd sizes and 1 find more mistakes than 8.
        seed: Seed of the random point at which the laws are checked. Default: 0.

    Raises:
        AssertionError: If a law does not hold. The message names the law and the size of the error.
        ArgumentTypeError: If the method is not a description (for example a class or the result of ``bind``), or n is
            not an integer.
        ArgumentError: If n is below 1.

    Example::

        >>> check_parametrization(Householder(reflections=3), 7)
    """
    check_description("method", method, "Householder(reflections=3)")
    check_integer("n", n, 1)
    for law, check in LAWS.items():
        try:
            with torch.enable_grad(), torch.device("cpu"):
                check(Subject.draw(method, n, seed))
        except Exception as error:
            said = str(error) if isinstance(error, AssertionError) else f"{type(error).__name__}: {error}"
            raise AssertionError(f"{method!r} with n={n} breaks the law of {law}: {said}") from error


def close(found: Tensor, expected: Tensor, allowed: float, what: str) -> None:
    """Raise AssertionError unless two tensors agree within `allowed` of the largest entry (at least 1)."""
    if found.shape != expected.shape or found.dtype != expected.dtype:
        raise AssertionError(
            f"Expected {what} of shape {tuple(expected.shape)} in {expected.dtype}, but got "
            f"{tuple(found.shape)} in {found.dtype}."
        )
    if not found.numel():
        return
    off = float((found - expected).detach().abs().max())
    allowed *= max(1.0, float(expected.detach().abs().max()))
    if not off <= allowed:
        raise AssertionError(f"Expected {what} to {allowed:.1g}, but got an error of {off:.3g}.")


def expect(holds: bool, said: str) -> None:
    """Raise AssertionError with the sentence unless the condition holds."""
    if not holds:
        raise AssertionError(said)


def _exact(subject: Subject) -> float:
    return tolerance(torch.float64, 40 * subject.n)


def _names(subject: Subject) -> None:
    method, free = subject.method, subject.free
    expect(len(set(method.names)) == len(method.names), f"Expected different names, but got {method.names}.")
    shapes = tuple(tuple(value.shape) for value in free)
    declared = tuple(tuple(shape) for shape in method.shapes)
    expect(shapes == declared, f"Expected initial values of shapes {declared} (`shapes`), but got {shapes}.")
    expect(len(free) == len(method.names), f"Expected a free tensor for each of {method.names}, but got {len(free)}.")
    expect(set(method.manifolds) <= set(method.names), f"Expected names in `manifolds`, but got {method.manifolds}.")
    expect(method.group in GROUPS, f"Expected `group` to be one of {GROUPS}, but got {method.group!r}.")
    expect(method.field in ("real", "complex"), f"Expected `field` 'real' or 'complex', but got {method.field!r}.")
    stored, counted = sum(value.numel() for value in free), method.count()
    if method.manifolds:  # the papers count the dimension of a manifold
        expect(0 <= counted <= stored, f"Expected `count()` of at most {stored} stored numbers, but got {counted}.")
    else:
        expect(counted == stored, f"Expected `count()` to be the {stored} stored numbers, but got {counted}.")
    expect(not list(method.parameters()), "Expected no parameters: the free tensors belong to whoever trains them.")


def _shapes(subject: Subject) -> None:
    method, free = subject.method, subject.free
    calls: list[Callable[..., object]] = [method] if method.compact(*free) is None else [method, method.compact]
    for k, name in enumerate(method.names):
        wrong = torch.zeros(subject.n + 40, dtype=torch.float64)
        for call in calls:
            try:
                call(*free[:k], wrong, *free[k + 1 :])
            except ShapeError as error:
                expect(name in str(error), f"Expected the ShapeError of {name} to name it, but got: {error}")
            else:
                raise AssertionError(
                    f"Expected a ShapeError for {name} of shape {tuple(wrong.shape)}, but got no error."
                )


def _initial(subject: Subject) -> None:
    method = subject.description.bind(subject.n)
    runs = []
    for _ in range(2):
        values = method.initial(torch.Generator().manual_seed(3))
        runs.append([*values, *(value.clone() for value in method.buffers())])
        for name, value in zip(method.names, values):
            where = f"{value.dtype} on {value.device}"
            expect(value.dtype == torch.float64, f"Expected the initial {name} in float64 on the CPU, but got {where}.")
            expect(value.device.type == "cpu", f"Expected the initial {name} in float64 on the CPU, but got {where}.")
    for first, again in zip(*runs):
        expect(torch.equal(first, again), "Expected the same initial values and buffers from the same generator.")


def _group(subject: Subject) -> None:
    for dtype in (torch.float64, torch.float32):
        method = subject.method if dtype == torch.float64 else copy.deepcopy(subject.method).to(dtype)
        W = method(*(value.detach().to(dtype) for value in subject.free))
        n, group = subject.n, method.group
        expected = dtype if method.field == "real" else dtype.to_complex()
        expect(W.shape == (n, n), f"Expected W of shape {(n, n)}, but got {tuple(W.shape)}.")
        expect(W.dtype == expected, f"Expected W in {expected} from free tensors in {dtype}, but got {W.dtype}.")
        expect(bool(W.isfinite().all()), f"Expected a finite W, but got {W}.")
        # Built in double precision, and rounded once: entries off by eps/2 of themselves.
        allowed = tolerance(torch.float64, n**2) + (
            2 * torch.finfo(dtype).eps * n**0.5 if dtype != torch.float64 else 0
        )
        if method.manifolds:  # the free tensors are orthogonal to their own precision
            allowed = max(allowed, tolerance(dtype, n))
        wide = W.to(torch.complex128 if W.is_complex() else torch.float64)
        if group in ORTHOGONAL_GROUPS:
            error = method.orthogonality_error(W)
            own = float(torch.linalg.matrix_norm(wide.mH @ wide - torch.eye(n, dtype=wide.dtype)))
            expect(own <= allowed, f"Expected ||W^H W - I||_F of at most {allowed:.1g} in {dtype}, but got {own:.3g}.")
            expect(
                abs(error - own) <= allowed, f"Expected `orthogonality_error(W)` to be {own:.3g}, but got {error:.3g}."
            )
        if group in ("SO", "det=-1"):
            sign, found = (1 if group == "SO" else -1), float(torch.linalg.det(wide))
            expect(
                abs(found - sign) < 0.5, f"Expected a determinant of {sign} in the group {group}, but got {found:.3g}."
            )
        if group in ("contractions", "decays"):
            singular = torch.linalg.svdvals(wide)
            most = float(singular[0])
            expect(most <= 1 + allowed, f"Expected singular values of at most 1, but got {most}.")
        if group == "contractions":
            others = float((singular[:-1] - 1).abs().max()) if n > 1 else 0.0
            expect(others <= allowed, f"Expected singular values of 1 but for one, but one is off by {others:.3g}.")
        margin = getattr(method, "margin", None)
        if group == "margin" and margin is not None:
            off = float((torch.linalg.svdvals(wide) - 1).abs().max())
            expect(
                off <= margin + allowed, f"Expected singular values within {margin} of 1, but one is off by {off:.3g}."
            )


def _right_inverse(subject: Subject) -> None:
    method, W = subject.method, subject.W()
    given, before = W.clone(), {name: value.clone() for name, value in method.named_buffers()}
    try:
        back = method.right_inverse(given)
    except NotOnGroupError:
        # Of a subset, finding the free tensors may be out of reach.
        expect(
            method.group == "subset",
            f"Expected right_inverse to accept a W of the group {method.group}, but got an error.",
        )
        unchanged = all(torch.equal(value, before[name]) for name, value in method.named_buffers())
        expect(unchanged, "Expected right_inverse to leave the buffers when it refuses a matrix, but it changed them.")
        return
    shapes = [tuple(value.shape) for value in back]
    expect(
        shapes == [*map(tuple, method.shapes)], f"Expected free tensors of shapes {method.shapes}, but got {shapes}."
    )
    close(method(*back), W, _exact(subject), "forward(right_inverse(W)) to be W")
    for value in back:
        value.detach().add_(1.0)
    expect(torch.equal(given, W), "Expected right_inverse to copy W, but writing into its result changed W.")
    single = W.to(torch.complex64 if W.is_complex() else torch.float32)
    method = copy.deepcopy(subject.method)
    allowed = tolerance(torch.float32, 4 * subject.n)
    found = method(*method.right_inverse(single)).to(W.dtype)
    close(found, single.to(W.dtype), allowed, "forward(right_inverse(W)) to be W, rounded to float32,")


def _refusal(subject: Subject) -> None:
    method, n = subject.method, subject.n
    before = {name: value.clone() for name, value in method.named_buffers()}
    dtype = torch.complex128 if method.field == "complex" else torch.float64
    wrong = [torch.full((n, n), math.nan, dtype=dtype), torch.zeros(n, n + 1, dtype=dtype)]
    beyond = 3 + (getattr(subject.description, "margin", None) or 0)
    wrong += [] if method.group == "all" else [beyond * torch.eye(n, dtype=dtype)]
    for W in wrong:
        try:
            method.right_inverse(W)
        except ValueError:
            pass
        else:
            raise AssertionError(
                f"Expected right_inverse to raise a ValueError (NotOnGroupError) for {W}, but it did not."
            )
    unchanged = all(torch.equal(value, before[name]) for name, value in method.named_buffers())
    expect(unchanged, "Expected right_inverse to leave the buffers when it refuses a matrix, but it changed them.")


def _surjectivity(subject: Subject) -> None:
    n, group = subject.n, subject.method.group
    if group not in WHOLE:
        return
    for seed in range(4):
        W = haar(n, subject.method.field == "complex", torch.Generator().manual_seed(seed))
        if group in ("SO", "det=-1") and float(torch.linalg.det(W)) * (1 if group == "SO" else -1) < 0:
            W[:, 0] *= -1
        method = subject.description.bind(n).double()
        try:
            back = method.right_inverse(W)
        except NotOnGroupError as error:
            raise AssertionError(f"Expected every matrix of {group}, but right_inverse refuses one: {error}") from error
        close(method(*back), W, _exact(subject), f"forward(right_inverse(W)) to be a random W of {group}")


def _compact(subject: Subject) -> None:
    method, free = subject.method, subject.free
    compact = method.compact(*free)
    if compact is None:
        expect(
            method.num_reflections is None,
            f"Expected `num_reflections` None without a compact form, but got {method.num_reflections}.",
        )
        return
    U, base = compact
    W = method(*free)
    dense = embed_matrix(W) if W.is_complex() else W
    n = dense.shape[0]
    columns = U.shape[1] if U.dim() == 2 else packed_reflections(n, U.shape[0])
    expect(
        method.num_reflections == columns,
        f"Expected `num_reflections` to be the {columns} of U, but got {method.num_reflections}.",
    )
    close(product(U, base, n), dense, _exact(subject), "the compact form to be W")
    weights = torch.randn(n, n, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    found = _gradients((product(U, base, n) * weights).sum(), free)
    for name, mine, theirs in zip(method.names, found, _gradients((dense * weights).sum(), free)):
        close(mine, theirs, 10 * _exact(subject), f"the gradient of {name} by the compact form to be that by W")


def _operator(subject: Subject) -> None:
    method = subject.method
    if method.operator_cost is None:
        return
    W, operands = subject.W(), method.operands(*subject.free)
    rows = torch.randn(3, subject.n, dtype=W.dtype, generator=torch.Generator().manual_seed(0))
    close(method.multiply(rows, *operands), rows @ W.mT, _exact(subject), "multiply(h) to be W h")
    close(method.multiply_adjoint(rows, *operands), rows @ W.conj(), _exact(subject), "multiply_adjoint(h) to be W^H h")


def _gradcheck(subject: Subject) -> None:
    """Compare gradients with differences: those of W, or of its surrogate, whose gradients must be those of W."""
    method, free = subject.method, subject.inner
    surrogate = method.surrogate(*free)

    def real(*free: Tensor) -> Tensor:
        W = method(*free) if surrogate is None else method.surrogate(*free)
        assert W is not None
        return torch.view_as_real(W) if W.is_complex() else W

    torch.autograd.gradcheck(real, free)
    if surrogate is None:
        return
    weights = torch.randn(subject.n, subject.n, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    mine, theirs = (_gradients((W * weights).sum(), free) for W in (method(*free), surrogate))
    for name, found, expected in zip(method.names, mine, theirs):
        close(found, expected, _exact(subject), f"the gradient of {name} to be that of the surrogate")


def _gradients(loss: Tensor, free: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    if not loss.requires_grad:  # of empty free tensors, at n = 1
        return tuple(torch.zeros_like(value) for value in free)
    return torch.autograd.grad(loss, free, allow_unused=True, materialize_grads=True)


def _descent(subject: Subject) -> None:
    """Try updates of decreasing size until one lowers the loss; W must be on its set after each.

    They start at the random point, and at the edge of the set, where every small update may return to its start.
    """
    said = _updates(subject, subject.free)
    if said and subject.method.acts_after_update:
        said = _updates(subject, subject.inner)
    expect(not said, said)


def _updates(subject: Subject, free: tuple[Tensor, ...]) -> str:
    """Return the problem with the updates from these free tensors, or nothing if one of them lowers the loss."""
    method, W = subject.method, subject.W()
    target = torch.randn(W.shape, dtype=W.dtype, generator=torch.Generator().manual_seed(0))

    def loss(free: tuple[Tensor, ...]) -> Tensor:
        return (method(*free) - target).abs().square().sum()

    before = loss(free)
    grads = _gradients(before, free)
    if not any(_moves(method, name, value, grad) for name, value, grad in zip(method.names, free, grads)):
        return ""  # nothing near W is reached, as where n = 1
    for rate in (1e-2, 1e-4, 1e-6):
        twin = Subject(subject.description, subject.n, copy.deepcopy(method), ())
        moved = []
        for name, value, grad in zip(method.names, free, grads):
            value = torch.nn.Parameter(value.detach().clone())
            value.grad = grad
            kind = CayleySGD if name in method.manifolds else torch.optim.SGD
            kind([value], lr=rate).step()
            moved.append(value)
        with torch.no_grad():
            twin.method.after_update_(*moved)
        twin = twin._replace(free=tuple(moved))
        _group(twin)
        if not method.acts_after_update:
            same = all(torch.equal(a, b) for a, b in zip(twin.method.buffers(), method.buffers()))
            expect(same, "Expected the buffers as they were, since `acts_after_update` is False, but they changed.")
        if method.surrogate(*free) is not None:
            return ""  # a small update changes no W
        after = (twin.W() - target).abs().square().sum()
        if after < before:
            return ""
    return (
        f"Expected a small step along the negative gradient to lower the loss, but got {float(before.detach())} before and "
        f"{float(after)} after."
    )


def _moves(method: BoundParametrization, name: str, value: Tensor, grad: Tensor) -> bool:
    """Return whether a gradient, or its part along the manifold, exceeds rounding."""
    if name in method.manifolds and grad.numel():
        pairs = method.field == "complex"
        M, G = (as_complex(t.detach()) if pairs else t.detach() for t in (value, grad))
        grad = G @ M.mH - M @ G.mH
    return bool((grad.abs() > 1e-9).any())


def _dtypes(subject: Subject) -> None:
    method, W = copy.deepcopy(subject.method).float(), subject.W()
    free = tuple(value.detach().float() for value in subject.free)
    single = method(*free)
    close(single.to(W.dtype), W, tolerance(torch.float32, subject.n), "the W of float32 to equal the W of float64")
    leaves = tuple(value.requires_grad_() for value in free)
    weights = torch.randn(W.shape, dtype=torch.float32, generator=torch.Generator().manual_seed(0))

    def found() -> list[Tensor]:
        out = method(*leaves)
        compact = method.compact(*leaves)
        parts = [] if compact is None else [compact[0], *(compact[1] or ())]
        grads = _gradients(((out.real if out.is_complex() else out) * weights).sum(), leaves)
        return [out, *parts, *grads]

    plain = found()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        under = found()
    for mine, theirs in zip(under, plain):
        same = mine.dtype == theirs.dtype and torch.equal(mine, theirs)
        expect(same, "Expected W, its compact form and its gradients to be the same under autocast, but they differ.")


def _devices(subject: Subject) -> None:
    meta = subject.description.bind(subject.n).to("meta")
    found = meta(*(value.detach().to("meta") for value in subject.free))
    expect(found.is_meta, f"Expected W on the meta device, but got {found.device}.")
    expect(found.shape == (subject.n, subject.n), f"Expected W of size {subject.n}, but got {tuple(found.shape)}.")
    if torch.cuda.is_available():
        there = copy.deepcopy(subject.method).cuda()(*(value.detach().cuda() for value in subject.free))
        expect(there.is_cuda, f"Expected W on cuda, but got {there.device}.")
        close(there.cpu(), subject.W(), _exact(subject), "the W of cuda to equal the W of the CPU")


def _copies(subject: Subject) -> None:
    description, n, method, free, _ = subject
    W = subject.W()
    twin = pickle.loads(pickle.dumps(description))
    expect(twin == description, f"Expected an equal description out of pickle, but got {twin!r}.")
    expect(hash(copy.deepcopy(description)) == hash(description), "Expected equal descriptions to have equal hashes.")
    for how, made in (("deepcopy", copy.deepcopy(method)), ("pickle", pickle.loads(pickle.dumps(method)))):
        expect(torch.equal(made(*free), W), f"Expected the same W from a {how}, but got a different one.")
    file = io.BytesIO()
    torch.save(method.state_dict(), file)
    file.seek(0)
    other = description.bind(n).double()
    other.initial(torch.Generator().manual_seed(99))
    other.load_state_dict(torch.load(file, weights_only=True))
    expect(
        torch.equal(other(*free), W),
        "Expected the same W after state_dict and load_state_dict, but got a different one.",
    )


#: Every law by its name; each is called with a Subject and raises AssertionError if it does not hold.
LAWS: dict[str, Callable[[Subject], None]] = {
    "names": _names,
    "shapes": _shapes,
    "initial values": _initial,
    "the group": _group,
    "right_inverse": _right_inverse,
    "refusal": _refusal,
    "surjectivity": _surjectivity,
    "the compact form": _compact,
    "the operator": _operator,
    "gradients": _gradcheck,
    "descent": _descent,
    "dtypes": _dtypes,
    "devices": _devices,
    "copies": _copies,
}
