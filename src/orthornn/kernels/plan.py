"""Which backend runs a call."""

from __future__ import annotations

from typing import Literal

import torch

from .._checks import check_choice
from ..compact_wy import packed_reflections
from ..errors import BackendError
from . import native

Backend = Literal["auto", "cpp", "reference"]
BACKENDS = ("auto", "cpp", "reference")


def available(device: torch.device) -> dict[str, str | None]:
    """For every backend, None if it can run on this device, else the reason why not."""
    cpp = native.missing() if device.type == "cpu" else "it runs on the CPU alone"
    return {"cpp": cpp, "reference": None}


def choose(backend: str, device: torch.device) -> str:
    """The backend that runs a call; BackendError if the one asked for cannot."""
    check_choice("backend", backend, BACKENDS)
    reasons = available(device)
    if backend == "auto":
        return next(name for name, reason in reasons.items() if reason is None)
    if reasons[backend] is not None:
        raise BackendError(f"backend {backend!r} cannot run on {device}: {reasons[backend]}.")
    return backend


# In multiply-adds of the compiled dense kernel, forward and backward, roughly, as fitted at N = 64 ... 1024 on a CPU:
# what one torch operation costs before it does any arithmetic; one of its multiply-adds; and as how many more rows of
# a step reading and building the dense matrix counts.
_CALL, _SLOWER, _MATRIX_ROWS = 100_000, 25, 8


def operator_pays(cost: tuple[int, int], n: int, rows: int) -> bool:
    """Whether applying a transition by its structure costs less than by its matrix (n, n), for this many rows a step.

    cost: (multiply-adds for one row, torch operations for one step).
    """
    arithmetic, calls = cost
    return _CALL * calls + _SLOWER * arithmetic * rows < n * n * (rows + _MATRIX_ROWS)


def choose_form(U: torch.Tensor, n: int) -> str:
    """ "compact_wy" or "dense" for a transition with reflectors U (N, M) or packed (P,), which has both forms."""
    return cheaper_form(n, U.shape[1] if U.dim() == 2 else packed_reflections(n, U.shape[0]))


def cheaper_form(n: int, m: int) -> str:
    """ "compact_wy" or "dense", by the multiply-adds of a step.

    The crossover measured on CPUs lies at M/N between 0.41 and 0.55, which is where the two counts cross.
    """
    costs = multiply_adds(n, m)
    return "compact_wy" if costs["compact_wy"] < costs["dense"] else "dense"


def multiply_adds(n: int, m: int) -> dict[str, float]:
    """Of one step and sequence in either form: N^2, and 2NM + M^2/2."""
    return {"dense": float(n * n), "compact_wy": 2.0 * n * m + m * m / 2}
