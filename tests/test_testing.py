"""check_parametrization: it passes the documented example and finds each law broken."""

from __future__ import annotations

import ast
import functools
import os
import re
import subprocess
import sys
import traceback
import types
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch

from orthornn import Householder, OrthogonalRNN, Rotations, SpectralMargin, testing
from orthornn.errors import ArgumentError, ArgumentTypeError, NotOnGroupError, ShapeError
from orthornn.parametrizations.rotations import BoundRotations
from orthornn.testing import LAWS, check_parametrization

PAGE = (Path(__file__).parents[1] / "docs" / "how_to" / "your_parametrization.md").read_text(encoding="utf-8")
CODE, TEST = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
example = types.ModuleType("block_rotations")
sys.modules["block_rotations"] = example  # so that its classes can be pickled
exec(CODE, example.__dict__)
Bound = example.BoundBlockRotations


class TwoNames(Bound):
    names = ("theta", "theta")


class WrongCount(Bound):
    def count(self):
        return 1 + super().count()


class AnyShape(Bound):
    def check_free(self, free):
        pass


class OwnRandomness(Bound):
    def initial(self, generator=None):
        return super().initial(None)


class SingleInitial(Bound):
    def initial(self, generator=None):
        return tuple(value.float() for value in super().initial(generator))


class Longer(Bound):
    def forward(self, theta):
        return 1.001 * super().forward(theta)


class Single(Bound):
    def forward(self, theta):
        return super().forward(theta.float()).to(theta.dtype)


class WholeGroup(Bound):
    group = "SO"


class OtherDeterminant(Bound):
    group = "det=-1"


class WrongInverse(Bound):
    def right_inverse(self, W):
        return (0.1 + super().right_inverse(W)[0],)


class KeepsItsArgument(Bound):
    def right_inverse(self, W):
        theta = super().right_inverse(W)[0]
        W.view(-1)[: len(theta)] = theta
        return (W.view(-1)[: len(theta)],)


class TakesAnything(Bound):
    def right_inverse(self, W):
        return (torch.atan2(W.diagonal(-1)[::2], W.diagonal()[: self.n // 2 * 2 : 2]).double(),)


class ChangesOnRefusal(Bound):
    def __init__(self, n):
        super().__init__(n)
        self.register_buffer("last", torch.zeros(()))

    def right_inverse(self, W):
        self.last += 1
        return super().right_inverse(W)


class WrongCompact(Bound):
    num_reflections = 1

    def compact(self, theta):
        self.check_free((theta,))
        return torch.ones(self.n, 1, dtype=theta.dtype), None


class UndeclaredCompact(Bound):
    num_reflections = 1


class WrongOperator(Bound):
    operator_cost = (1, 1)

    def operands(self, theta):
        return (self(theta),)

    def multiply(self, h, W):
        return h @ W.mT

    multiply_adjoint = multiply


class NoGradient(Bound):
    def forward(self, theta):
        return super().forward(theta) + 0 * super().forward(theta.detach()) - (W := super().forward(theta)) + W.detach()


class OtherSurrogate(Bound):
    def surrogate(self, theta):
        return 2 * self.forward(theta)


class LeavesTheSet(Bound):
    def __init__(self, n):
        super().__init__(n)
        self.register_buffer("scale", torch.ones((), dtype=torch.float64))

    def forward(self, theta):
        return super().forward(theta) * self.scale.to(theta.dtype)

    def after_update_(self, theta):
        if theta.requires_grad:  # an update of an optimizer, not the first point
            self.scale.mul_(1.01)


class OnlyTheProcessor(Bound):
    def forward(self, theta):
        return super().forward(theta.cpu() if theta.is_cuda else torch.zeros_like(theta, device="cpu") + theta)


class UnderAutocast(Bound):
    def forward(self, theta):
        W = super().forward(theta)
        return (W @ torch.eye(self.n, dtype=W.dtype, device=W.device)).to(W.dtype)


class ForgottenBuffer(Bound):
    def __init__(self, n):
        super().__init__(n)
        self.register_buffer("shift", torch.zeros(n // 2, dtype=torch.float64), persistent=False)

    def initial(self, generator=None):
        self.shift = torch.rand(self.n // 2, dtype=torch.float64, generator=generator)
        return super().initial(generator)

    def forward(self, theta):
        self.check_free((theta,))
        return super().forward(theta + self.shift.to(theta.device, theta.dtype))

    def right_inverse(self, W):
        shift, self.shift = self.shift, torch.zeros_like(self.shift)
        try:
            return (super().right_inverse(W)[0] - shift,)
        finally:
            self.shift = shift


class WrongShapes(Bound):
    shapes = property(lambda self: ((self.n // 2 + 1,),))


class TooFewValues(Bound):
    names = ("theta", "phi")


class UnknownManifold(Bound):
    def __init__(self, n):
        super().__init__(n)
        self.manifolds = {"phi": "stiefel"}


class UnknownGroup(Bound):
    group = "sphere"


class UnknownField(Bound):
    field = "quaternion"


class CountBeyondAManifold(WrongCount):
    def __init__(self, n):
        super().__init__(n)
        self.manifolds = {"theta": "stiefel"}


class OwnParameter(Bound):
    def __init__(self, n):
        super().__init__(n)
        self.theta = torch.nn.Parameter(torch.zeros(n // 2))


class UnnamedError(Bound):
    def check_free(self, free):
        if free[0].shape != self.shapes[0]:
            raise ShapeError("Expected another shape.")


class NotSquare(Bound):
    def forward(self, theta):
        return super().forward(theta)[:, 1:]


class AlwaysDouble(Bound):
    def forward(self, theta):
        return super().forward(theta).double()


class NotFinite(Bound):
    def forward(self, theta):
        return super().forward(theta) / 0


class WrongDistance(Bound):
    def orthogonality_error(self, W):
        return 1.0


class Grows(Bound):
    group = "decays"

    def forward(self, theta):
        return 2 * super().forward(theta)


class ShrinksAll(Bound):
    group = "contractions"

    def forward(self, theta):
        return super().forward(theta) / 2


class OutsideItsMargin(Grows):
    group, margin = "margin", 0.1


class RefusesItsOwn(Bound):
    group = "O"

    def right_inverse(self, W):
        raise NotOnGroupError("none")


class ChangesOnItsOwn(ChangesOnRefusal):
    def right_inverse(self, W):
        self.last += 1
        raise NotOnGroupError("none")


class OtherShapesBack(Bound):
    def right_inverse(self, W):
        return (super().right_inverse(W)[0][None],)


class InexactOfFloat32(Bound):
    def right_inverse(self, W):
        theta = super().right_inverse(W)[0]
        return (theta if W.dtype == torch.float64 else theta + 0.01,)


class TakesTheWholeGroup(Bound):
    """It takes every orthogonal matrix, and is another one then."""

    group = "SO"

    def right_inverse(self, W):
        if not self.orthogonality_error(W) < 1e-3:
            raise NotOnGroupError("none")
        return TakesAnything.right_inverse(self, W)


class MiscountedCompact(WrongCompact):
    num_reflections = 2


class CompactWithoutGradient(BoundRotations):
    def __init__(self, n):
        super().__init__(n, Rotations())

    def compact(self, *free):
        return super().compact(*(value.detach() for value in free))


class WrongMultiply(WrongOperator):
    def multiply(self, h, W):
        return h @ W


class CountsUpdates(LeavesTheSet):
    acts_after_update = False

    def forward(self, theta):
        return Bound.forward(self, theta)


class MovesAway(Bound):
    def after_update_(self, theta):
        if theta.requires_grad:
            theta += 1.0


class OtherInFloat32(Bound):
    def forward(self, theta):
        return super().forward(theta + 0.1 * (theta.dtype == torch.float32))


class NotOnMeta(Bound):
    def forward(self, theta):
        return torch.eye(self.n) if theta.is_meta else super().forward(theta)


class SmallerOnMeta(Bound):
    def forward(self, theta):
        return theta[:1] if theta.is_meta else super().forward(theta)


class ForgottenByPickle(ForgottenBuffer):
    def __deepcopy__(self, memo):
        made = type(self)(self.n)
        made.shift = self.shift.clone()
        return made

    def __reduce__(self):
        return type(self), (self.n,)


BROKEN = {
    TwoNames: "names: Expected different names",
    WrongCount: "names: Expected .count",
    AnyShape: "shapes:",
    OwnRandomness: "initial values: Expected the same initial values",
    SingleInitial: "initial values: Expected the initial theta in float64",
    Longer: r"the group: Expected \|\|W\^H W - I\|\|_F of at most \S+ in torch.float64, but got 0.005",
    Single: "the group:",
    WholeGroup: "surjectivity: Expected every matrix of SO",
    OtherDeterminant: "the group: Expected a determinant of -1",
    WrongInverse: "right_inverse: Expected forward",
    KeepsItsArgument: "right_inverse: Expected right_inverse to copy W",
    TakesAnything: "refusal: Expected right_inverse to raise",
    ChangesOnRefusal: "refusal: Expected right_inverse to leave the buffers",
    WrongCompact: "the compact form: Expected the compact form to be W",
    UndeclaredCompact: "the compact form: Expected .num_reflections. None",
    WrongOperator: "the operator: Expected multiply_adjoint",
    NoGradient: "gradients: GradcheckError",
    OtherSurrogate: "gradients: Expected the gradient of .* to be that of the surrogate",
    LeavesTheSet: "descent: Expected",
    UnderAutocast: "dtypes: Expected W",
    OnlyTheProcessor: "devices:",
    ForgottenBuffer: "copies: Expected the same W after state_dict",
    WrongShapes: "names: Expected initial values of shapes",
    TooFewValues: "names: Expected a free tensor for each of",
    UnknownManifold: "names: Expected names in .manifolds.",
    UnknownGroup: "names: Expected .group. to be one of",
    UnknownField: "names: Expected .field.",
    CountBeyondAManifold: r"names: Expected .count\(\). of at most 3 stored numbers, but got 4",
    OwnParameter: "names: Expected no parameters",
    UnnamedError: "shapes: Expected the ShapeError of theta to name it",
    NotSquare: "the group: Expected W of shape",
    AlwaysDouble: "the group: Expected W in torch.float32",
    NotFinite: "the group: Expected a finite W",
    WrongDistance: r"the group: Expected .orthogonality_error\(W\)",
    Grows: "the group: Expected singular values of at most 1, but got 2",
    ShrinksAll: "the group: Expected singular values of 1 but for one, but one is off by 0.5",
    OutsideItsMargin: "the group: Expected singular values within 0.1 of 1",
    RefusesItsOwn: "right_inverse: Expected right_inverse to accept a W of the group O",
    ChangesOnItsOwn: "right_inverse: Expected right_inverse to leave the buffers",
    OtherShapesBack: "right_inverse: Expected free tensors of shapes",
    InexactOfFloat32: "right_inverse: Expected .* rounded to float32",
    TakesTheWholeGroup: "surjectivity: Expected forward.* to be a random W of SO",
    MiscountedCompact: "the compact form: Expected .num_reflections. to be the 1 of U, but got 2",
    CompactWithoutGradient: "the compact form: Expected the gradient of angles",
    WrongMultiply: r"the operator: Expected multiply\(h\)",
    CountsUpdates: "descent: Expected the buffers as they were",
    MovesAway: "descent: Expected a small step along the negative gradient",
    OtherInFloat32: "dtypes: Expected the W of float32",
    NotOnMeta: "devices: Expected W on the meta device",
    SmallerOnMeta: "devices: Expected W of size 7",
    ForgottenByPickle: "copies: Expected the same W from a pickle",
}


@dataclass(frozen=True, repr=False)
class Broken(example.BlockRotations):
    kind: type = Bound

    def bind(self, n):
        return self.kind(n)


class Unequal(example.BlockRotations):
    """Of which a copy is another one."""

    __hash__ = None

    def __eq__(self, other):
        return self is other


class HashedByPlace(example.BlockRotations):
    def __hash__(self):
        return id(self)


DESCRIPTIONS = {
    Unequal: "copies: Expected an equal description out of pickle",
    HashedByPlace: "copies: Expected equal descriptions to have equal hashes",
}


def described(kind):
    return kind() if kind in DESCRIPTIONS else Broken(kind)


@functools.cache
def refusal(kind):
    """What is said of a broken kind, and the line of testing.py that found it."""
    with pytest.raises(AssertionError) as caught:
        check_parametrization(described(kind), 7)
    frames = traceback.extract_tb(caught.value.__cause__.__traceback__)
    lines = [frame.lineno for frame in frames if frame.filename == testing.__file__ and frame.name in CHECKS]
    return str(caught.value), lines[-1] if lines else None


CHECKS = {check.__name__ for check in LAWS.values()}
ELSEWHERE = ("device.type ==", "is_cuda", "there.cpu()")  # need a second device


def test_every_assertion_finds_something():
    """Or it could be left out: each is the first to fail for one of the kinds above."""
    source, found = (
        Path(testing.__file__).read_text(encoding="utf-8"),
        {refusal(k)[1] for k in (*BROKEN, *DESCRIPTIONS)},
    )
    idle = []
    for function in ast.parse(source).body:
        if not (isinstance(function, ast.FunctionDef) and function.name in CHECKS):
            continue
        for node in ast.walk(function):
            call = node.value if isinstance(node, ast.Expr) else None
            asserts = isinstance(call, ast.Call) and getattr(call.func, "id", "") in ("expect", "close")
            if not (asserts or isinstance(node, ast.Raise)):
                continue
            text = ast.get_source_segment(source, node)
            if not any(word in text for word in ELSEWHERE) and not found & {*range(node.lineno, node.end_lineno + 1)}:
                idle.append(text)
    assert not idle


@pytest.mark.sampled(3)
@pytest.mark.parametrize("n", [1, 2, 7, 8])
def test_the_documented_example_keeps_every_law(n):
    check_parametrization(example.BlockRotations(), n)


def test_the_documented_test_runs(tmp_path):
    (tmp_path / "block_rotations.py").write_text(CODE, encoding="utf-8")
    (tmp_path / "test_block_rotations.py").write_text(TEST, encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir=.", "test_block_rotations.py"]
    environment = os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, env=environment)
    assert "4 passed" in ran.stdout, ran.stdout + ran.stderr


def test_the_documented_example_trains():
    torch.manual_seed(0)
    rnn = OrthogonalRNN(2, 5, parametrization=example.BlockRotations())
    before = rnn.weight_hh_l0.detach().clone()
    rnn(torch.randn(4, 3, 2))[0].square().sum().backward()
    torch.optim.SGD(rnn.parameters(), 0.1).step()
    assert not torch.equal(rnn.weight_hh_l0, before)


@pytest.mark.parametrize("kind", [*BROKEN, *DESCRIPTIONS], ids=lambda kind: kind.__name__)
def test_a_broken_law_is_named(kind):
    said = {**BROKEN, **DESCRIPTIONS}[kind]
    assert re.search(f"n=7 breaks the law of ({said})", refusal(kind)[0])


def test_every_law_is_broken_once_and_documented():
    assert {text.partition(":")[0] for text in BROKEN.values()} == set(LAWS)
    assert re.findall(r"^\| ([\w ]+) \|", PAGE, re.MULTILINE)[1:] == list(LAWS)


def test_the_seed_chooses_the_point():
    first = []

    class Watched(Bound):
        def compact(self, theta):
            first.append(theta.tolist())
            raise RuntimeError("seen")

    for seed in (0, 0, 1):
        with pytest.raises(AssertionError, match="RuntimeError: seen"):
            check_parametrization(Broken(Watched), 4, seed=seed)
    assert first[0] == first[1] != first[2]


@pytest.mark.parametrize(
    ("method", "n", "error", "message"),
    [
        (Householder, 3, ArgumentTypeError, r"Expected method to be .*Call the class: Householder\(\)"),
        (
            Householder().bind(3),
            3,
            ArgumentTypeError,
            r"Expected method to be .*the description itself, before bind\(\)",
        ),
        (None, 3, ArgumentTypeError, "Expected method to be .*but got None"),
        (Householder(), 0, ArgumentError, "Expected n to be an integer of at least 1, but got 0"),
        (Householder(), 2.0, ArgumentTypeError, "Expected n to be an integer of at least 1, but got 2.0"),
    ],
    ids=["class", "bound", "none", "zero", "float"],
)
def test_what_is_no_description_breaks_no_law(method, n, error, message):
    with pytest.raises(error, match=message):
        check_parametrization(method, n)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("base", ["identity", "rotations"])
@pytest.mark.parametrize("n", [1, 2, 3, 6])
def test_a_parameter_on_the_edge_of_its_set_breaks_no_law(n, base):
    """A soft u_1 is clamped to 1, where the derivative has a kink and many updates end where they began."""
    for seed in range(4):
        check_parametrization(Householder(u1="soft", base=base), n, seed=seed)


@pytest.mark.parametrize("margin", [0.0, 2.5, 40.0])
def test_a_wide_margin_breaks_no_law(margin):
    check_parametrization(SpectralMargin(margin), 3)


def test_neither_no_grad_nor_a_default_device_breaks_a_law():
    with torch.no_grad(), torch.device("meta"):
        check_parametrization(Householder(), 3)
