"""What is timed: a case (a transition of some size at some batch size) and the work that all cases have in common."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

import torch

from .._checks import check_choice, check_integer
from ..activations import ACTIVATIONS
from ..errors import ArgumentError, DeviceError

Form = Literal["wy", "cayley"]
Output = Literal["all", "last"]

DEVICES = ("cpu",)


@dataclass(frozen=True)
class Case:
    """A network of ours and a batch size.

    form: "wy", Householder reflections in compact form; "cayley", the scaled Cayley transform, a dense W.
    n: hidden size N. m: reflections M of "wy", 0 for "cayley". batch: B.
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
        """The case of a name such as wy-256-32-b1 (n, m, B) or cayley-170-b50 (n, B); ArgumentError for others."""
        match = re.fullmatch(r"wy-(\d+)-(\d+)-b(\d+)", name)
        if match:
            return cls("wy", int(match[1]), int(match[2]), int(match[3]))
        match = re.fullmatch(r"cayley-(\d+)-b(\d+)", name)
        if match:
            return cls("cayley", int(match[1]), 0, int(match[2]))
        raise ArgumentError(f"a case is named like wy-256-32-b1 (n, m, B) or cayley-170-b50 (n, B); got {name!r}.")

    @property
    def name(self) -> str:
        """What `parse` reads."""
        sizes = f"{self.n}-{self.m}" if self.form == "wy" else f"{self.n}"
        return f"{self.form}-{sizes}-b{self.batch}"

    @property
    def title(self) -> str:
        """The case in words."""
        what = f"WY n={self.n} m={self.m}" if self.form == "wy" else f"dense (scaled Cayley) n={self.n}"
        return f"{what}, B={self.batch}"

    def multiply_adds(self) -> float:
        """Of one sequence and step, forward, backward chain and the gradient of W together.

        dense: n^2 each. WY: 2nm + m^2/2, the same again, and 2nm + m^2.
        """
        if self.form == "cayley":
            return 3.0 * self.n**2
        return 6.0 * self.n * self.m + 2.0 * self.m**2


@dataclass(frozen=True)
class Work:
    """What every network does in a run: forward and backward to all parameters, float32, input size 1.

    T: steps. output: "last", the gradient of the last state is given (a sequence is classified); "all", that of every
    state. nonlinearity: ours; the peers have their own. device: where.
    """

    T: int = 784
    output: Output = "last"
    nonlinearity: str = "modrelu"
    device: str = "cpu"

    def __post_init__(self) -> None:
        check_integer("T", self.T, 1)
        check_choice("output", self.output, ("all", "last"))
        smooth_or_separate = [name for name, phi in ACTIVATIONS.items() if phi.parameter != "pair" and name != "oplu"]
        check_choice("nonlinearity", self.nonlinearity, smooth_or_separate)
        if self.device not in DEVICES:
            raise DeviceError(
                f"device must be one of {', '.join(DEVICES)}; got {self.device!r}. Nothing else is timed."
            )

    def synchronize(self) -> None:
        """Wait until the device has done what it was given, so that a clock read after it is true."""
        if torch.device(self.device).type == "cuda":
            torch.cuda.synchronize(self.device)
