"""The subjects of the timings: a case (a transition of some size at some batch size), and the work common to all cases."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

import torch

from orthornn._checks import check_choice, check_integer
from orthornn.activations import ACTIVATIONS, Name
from orthornn.errors import ArgumentError, DeviceError

Form = Literal["wy", "rotations", "cayley", "linear"]
Output = Literal["all", "last"]
Passes = Literal["both", "forward"]

DEVICES = ("cpu", "cuda")


@dataclass(frozen=True)
class Case:
    """A network of ours and a batch size.

    form: "wy", Householder reflections in compact form; "rotations", the same on a base of rotations; "cayley", the
        scaled Cayley transform, a dense W; "linear", no nonlinearity and W as rotations, recomputed for every run as
        after an update.
    n: hidden size N. m: reflections M of "wy" and "rotations", 0 for the others. batch: B.
    """

    form: Form
    n: int
    m: int
    batch: int

    def __post_init__(self) -> None:
        check_integer("n", self.n, 1)
        check_integer("B", self.batch, 1)
        if self.has_reflections:
            check_integer("m", self.m, 1, self.n, "There are at most n reflections.")

    @classmethod
    def parse(cls, name: str) -> Case:
        """Return the case of a name such as wy-256-32-b1 (n, m, B; also rotations-), cayley-170-b50 or linear-512-b8 (n, B).

        ArgumentError for others.
        """
        match = re.fullmatch(r"(wy|rotations)-(\d+)-(\d+)-b(\d+)", name)
        if match:
            return cls(match[1], int(match[2]), int(match[3]), int(match[4]))  # type: ignore[arg-type]
        match = re.fullmatch(r"(cayley|linear)-(\d+)-b(\d+)", name)
        if match:
            return cls(match[1], int(match[2]), 0, int(match[3]))  # type: ignore[arg-type]
        raise ArgumentError(
            f"Expected a case such as wy-256-32-b1 or rotations-256-16-b1 (n, m, B), cayley-170-b50 or linear-512-b8 (n, B), "
            f"but got {name!r}."
        )

    @property
    def has_reflections(self) -> bool:
        """Whether W is a product of m reflections."""
        return self.form in ("wy", "rotations")

    @property
    def name(self) -> str:
        """The name that `parse` reads."""
        sizes = f"{self.n}-{self.m}" if self.has_reflections else f"{self.n}"
        return f"{self.form}-{sizes}-b{self.batch}"

    @property
    def network(self) -> str:
        """Its network in words: the transition and its size."""
        words = {
            "wy": f"n = {self.n}, {self.m} reflections",
            "rotations": f"n = {self.n}, {self.m} reflections on a base of rotations",
            "cayley": f"scaled Cayley, n = {self.n}",
            "linear": f"linear, as rotations, n = {self.n}",
        }
        return words[self.form]

    @property
    def title(self) -> str:
        """The case in words."""
        return f"{self.network}, B = {self.batch}"

    def chain_multiply_adds(self) -> float:
        """Return the multiply-adds per sequence and step of the recurrence, forward; its backward chain has as many.

        dense: n^2. WY: 2nm + m^2/2. A base of rotations, which are fixed: 2n more. linear: 2n.
        """
        if self.form == "linear":
            return 2.0 * self.n
        if self.form == "cayley":
            return float(self.n**2)
        base = 2.0 * self.n if self.form == "rotations" else 0.0
        return 2.0 * self.n * self.m + self.m**2 / 2 + base

    def gradient_multiply_adds(self) -> float:
        """Return the multiply-adds per sequence and step of the gradient of W: n^2, or 2nm + m^2 of reflections."""
        return 2.0 * self.n * self.m + self.m**2 if self.has_reflections else float(self.n**2)

    def multiply_adds(self, passes: Passes = "both") -> float:
        """Return the multiply-adds per sequence and step: forward, backward chain and the gradient of W together."""
        chain = self.chain_multiply_adds()
        return chain if passes == "forward" else 2 * chain + self.gradient_multiply_adds()

    def weight_bytes(self) -> float:
        """Return the bytes of float32 weights that the recurrence reads in each step, forward or backward.

        dense: n^2 numbers. WY: nm of the reflectors and m^2/2 of their triangle. Rotations: 2n, sines and cosines.
        """
        if self.form == "cayley":
            return 4.0 * self.n**2
        numbers = self.n * self.m + self.m**2 / 2 if self.has_reflections else 0.0
        return 4.0 * (numbers + (2 * self.n if self.form in ("rotations", "linear") else 0))


@dataclass(frozen=True)
class Work:
    """The work of every network in a run: forward and backward to all parameters, float32, input size 1.

    T: steps. output: "last" to start from a gradient of the last state (as in classification), "all" from a gradient of
    every state. nonlinearity: ours; peers use theirs. device: "cpu" or "cuda". passes: "both", or "forward" without
    gradients.
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
                f"Expected device to be one of {', '.join(DEVICES)}, but got {self.device!r}. Pass one of these."
            )
        if self.device == "cuda" and not torch.cuda.is_available():
            raise DeviceError(
                f"device is 'cuda', but torch {torch.__version__} sees no CUDA device. Use a machine with an NVIDIA "
                f"GPU and a CUDA build of torch, or --device cpu."
            )

    def synchronize(self) -> None:
        """Wait until the device is idle; only then is a clock reading valid."""
        if torch.device(self.device).type == "cuda":
            torch.cuda.synchronize(self.device)
