"""The things that are timed: a case (a transition of some size at some batch size) and the work that all cases have in
common.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

import torch

from ..._checks import check_choice, check_integer
from ...activations import ACTIVATIONS, Name
from ...errors import ArgumentError, DeviceError

Form = Literal["wy", "cayley", "linear"]
Output = Literal["all", "last"]
Passes = Literal["both", "forward"]

DEVICES = ("cpu", "cuda")


@dataclass(frozen=True)
class Case:
    """A network of ours and a batch size.

    form: "wy", Householder reflections in compact form; "cayley", the scaled Cayley transform, a dense W; "linear", no
        nonlinearity and W as rotations, found again for every run as after an update.
    n: hidden size N. m: reflections M of "wy", 0 for the others. batch: B.
    """

    form: Form
    n: int
    m: int
    batch: int

    def __post_init__(self) -> None:
        check_integer("n", self.n, 1)
        check_integer("B", self.batch, 1)
        if self.form == "wy":
            check_integer("m", self.m, 1, self.n, "There are at most n reflections.")

    @classmethod
    def parse(cls, name: str) -> Case:
        """Return the case of a name such as wy-256-32-b1 (n, m, B), cayley-170-b50 or linear-512-b8 (n, B).

        ArgumentError for others.
        """
        match = re.fullmatch(r"wy-(\d+)-(\d+)-b(\d+)", name)
        if match:
            return cls("wy", int(match[1]), int(match[2]), int(match[3]))
        match = re.fullmatch(r"(cayley|linear)-(\d+)-b(\d+)", name)
        if match:
            return cls(match[1], int(match[2]), 0, int(match[3]))  # type: ignore[arg-type]
        raise ArgumentError(
            f"Expected a case such as wy-256-32-b1 (n, m, B), cayley-170-b50 or linear-512-b8 (n, B), but got {name!r}."
        )

    @property
    def name(self) -> str:
        """The name that `parse` reads."""
        sizes = f"{self.n}-{self.m}" if self.form == "wy" else f"{self.n}"
        return f"{self.form}-{sizes}-b{self.batch}"

    @property
    def title(self) -> str:
        """The case in words."""
        what = {
            "wy": f"n = {self.n}, {self.m} reflections",
            "cayley": f"scaled Cayley, n = {self.n}",
            "linear": f"linear, as rotations, n = {self.n}",
        }
        return f"{what[self.form]}, B = {self.batch}"

    def multiply_adds(self) -> float:
        """Return the multiply-adds per sequence and step: forward, backward chain and the gradient of W together.

        dense: n^2 each. WY: 2nm + m^2/2, the same again, and 2nm + m^2. linear: 2n, 2n and n^2.
        """
        if self.form == "linear":
            return self.n**2 + 4.0 * self.n
        if self.form == "cayley":
            return 3.0 * self.n**2
        return 6.0 * self.n * self.m + 2.0 * self.m**2


@dataclass(frozen=True)
class Work:
    """The work of every network in a run: forward and backward to all parameters, float32, input size 1.

    T: steps. output: "last", the gradient of the last state is given (a sequence is classified); "all", that of every
    state. nonlinearity: ours; the peers have their own. device: where. passes: "both", or "forward" without gradients.
    """

    T: int = 784
    output: Output = "last"
    nonlinearity: Name = "modrelu"
    device: str = "cpu"
    passes: Passes = "both"

    def __post_init__(self) -> None:
        check_choice("passes", self.passes, ("both", "forward"))
        check_integer("T", self.T, 1)
        check_choice("output", self.output, ("all", "last"))
        smooth_or_separate = [name for name, phi in ACTIVATIONS.items() if phi.parameter != "pair" and name != "oplu"]
        check_choice("nonlinearity", self.nonlinearity, smooth_or_separate)
        if self.device not in DEVICES:
            raise DeviceError(
                f"Expected device to be one of {', '.join(DEVICES)}, but got {self.device!r}. Nothing else is timed."
            )
        if self.device == "cuda" and not torch.cuda.is_available():
            raise DeviceError(
                f"device is 'cuda', but torch {torch.__version__} sees no CUDA device. Use a machine with an NVIDIA "
                f"GPU and a CUDA build of torch, or --device cpu."
            )

    def synchronize(self) -> None:
        """Wait until the device has done what it was given, so that a clock read after it is true."""
        if torch.device(self.device).type == "cuda":
            torch.cuda.synchronize(self.device)
