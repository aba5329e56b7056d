"""check_parametrization: it passes the documented example and finds each law broken."""

from __future__ import annotations

import re
import subprocess
import sys
import types
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch

from orthornn import OrthogonalRNN
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
    LeavesTheSet: "descent: Expected",
    UnderAutocast: "dtypes: Expected W",
    OnlyTheProcessor: "devices:",
    ForgottenBuffer: "copies: Expected the same W after state_dict",
}


@dataclass(frozen=True, repr=False)
class Broken(example.BlockRotations):
    kind: type = Bound

    def bind(self, n):
        return self.kind(n)


@pytest.mark.parametrize("n", [1, 2, 7, 8])
def test_the_documented_example_keeps_every_law(n):
    check_parametrization(example.BlockRotations(), n)


def test_the_documented_test_runs(tmp_path):
    (tmp_path / "block_rotations.py").write_text(CODE, encoding="utf-8")
    (tmp_path / "test_block_rotations.py").write_text(TEST, encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir=.", "test_block_rotations.py"]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert "4 passed" in ran.stdout, ran.stdout + ran.stderr


def test_the_documented_example_trains():
    torch.manual_seed(0)
    rnn = OrthogonalRNN(2, 5, parametrization=example.BlockRotations())
    before = rnn.weight_hh_l0.detach().clone()
    rnn(torch.randn(4, 3, 2))[0].square().sum().backward()
    torch.optim.SGD(rnn.parameters(), 0.1).step()
    assert not torch.equal(rnn.weight_hh_l0, before)


@pytest.mark.parametrize("kind", BROKEN, ids=lambda kind: kind.__name__)
def test_a_broken_law_is_named(kind):
    with pytest.raises(AssertionError, match=f"n=7 breaks the law of ({BROKEN[kind]})"):
        check_parametrization(Broken(kind), 7)


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


def test_no_test_framework_is_imported():
    code = "import sys, orthornn.testing; sys.exit('pytest' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
