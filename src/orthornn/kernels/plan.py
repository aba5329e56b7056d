"""Which backend runs a call, and what it does with the weights.

backend      runs on  what it is
cpp          CPU      compiled kernels, csrc/
cuda         CUDA     CUDA C++ compiled at run time: one launch, weights in one multiprocessor, float32 (chain.py)
triton       CUDA     Triton: one launch, float32; compact WY of any size, dense up to N = 192 (launch.py)
graph        CUDA     the reference's loop of matrix products as a CUDA graph, any size and precision (graph.py)
reference    any      the specification: plain torch, a loop over steps
"""

from __future__ import annotations

import functools
import importlib.util
import os
import warnings
from typing import Literal, NamedTuple

import torch

from .._checks import check_choice
from ..errors import BackendError, OrthornnWarning
from . import chain, launch, native, nvrtc

Backend = Literal["auto", "cpp", "cuda", "triton", "graph", "reference"]
BACKENDS = ("auto", "cpp", "cuda", "triton", "graph", "reference")

# Below so many steps capturing a graph is not worth its time.
FEW_STEPS = 16


class Size(NamedTuple):
    """What the choice depends on besides device and dtype. m: None for a dense transition."""

    n: int
    m: int | None = None
    batch: int = 1
    steps: int = 1
    ragged: bool = False  # sequences of unequal lengths
    paired: bool = False  # an activation on pairs of units
    rotations: bool = False  # the transition is given as rotations


def interpreted() -> bool:
    """Whether Triton kernels run on its interpreter, on CPU tensors."""
    return os.environ.get("TRITON_INTERPRET") == "1"


@functools.cache
def _triton_missing() -> str | None:
    if importlib.util.find_spec("triton") is None:
        return "the package triton is missing; torch's CUDA builds for Linux bring it"
    return None


def available(device: torch.device) -> dict[str, str | None]:
    """For every backend, in order of preference, None if it can run on this device, else the reason why not."""
    if device.type == "cuda":
        return {
            "cuda": nvrtc.missing(),
            "triton": _triton_missing(),
            "graph": None,
            "cpp": "it runs on the CPU alone",
            "reference": None,
        }
    reasons = {
        "cpp": native.missing() if device.type == "cpu" else "it runs on the CPU alone",
        "reference": None,
        "triton": "on a CPU it runs only on Triton's interpreter, for tests (TRITON_INTERPRET=1)",
        "cuda": "it runs on CUDA devices alone",
        "graph": "it runs on CUDA devices alone",
    }
    if device.type == "cpu" and interpreted():
        reasons["triton"] = _triton_missing()
    return reasons


def refusal(backend: str, dtype: torch.dtype, size: Size) -> str | None:
    """Why a backend that is available cannot run a call of this dtype and size, or None."""
    if size.rotations and backend in ("cuda", "graph"):
        return "it has no kernel for rotations"
    if backend not in ("cuda", "triton"):
        return None
    if dtype != torch.float32:
        return f"it computes in float32; got {dtype}"
    if size.rotations:
        return "sequences of unequal lengths are not for its kernel of rotations" if size.ragged else None
    if backend == "cuda" and size.m == 0:
        return "it needs a reflection at least"
    if backend == "cuda" and chain.best(size.n, size.m or 0) is None:
        return f"one multiprocessor cannot hold the weights of {_words(size)}"
    if backend == "triton" and size.m is None and launch.dense_strategy(size.n, size.paired, size.batch) is None:
        return f"the registers of one multiprocessor cannot hold the weights of {_words(size)}"
    return None


def _words(size: Size) -> str:
    return f"N={size.n}" if size.m is None else f"N={size.n}, M={size.m}"


@functools.cache
def _warn_of_reference(reason: str | None) -> None:
    """Say once that calls run without the compiled kernels, and why."""
    warnings.warn(
        f"Expected compiled kernels, but {reason}; the recurrences run as a loop of torch operations, up to 200 times "
        f"slower. `orthornn doctor` tells more. Silence this with warnings.filterwarnings('ignore', "
        f"category=orthornn.errors.OrthornnWarning), or by backend='reference'.",
        OrthornnWarning,
        stacklevel=2,
    )


def choose(backend: str, device: torch.device, dtype: torch.dtype = torch.float32, size: Size | None = None) -> str:
    """The backend that runs a call; BackendError if the one asked for cannot."""
    check_choice("backend", backend, BACKENDS)
    reasons = available(device)
    if backend != "auto":
        reason = reasons[backend] or (None if size is None else refusal(backend, dtype, size))
        if reason is not None:
            raise BackendError(f"backend {backend!r} cannot run on {device}: {reason}. Use backend='auto'.")
        return backend
    if device.type != "cuda" or size is None:
        name = next(name for name, reason in reasons.items() if reason is None)
        if name == "reference" and device.type == "cpu" and size is not None:
            _warn_of_reference(reasons["cpp"])
        return name
    for name in ("cuda", "triton"):
        if reasons[name] is None and refusal(name, dtype, size) is None:
            return name
    # A graph is captured anew for every set of lengths, and float64 is for verification.
    worth_a_graph = dtype == torch.float32 and not size.ragged and not size.rotations and size.steps >= FEW_STEPS
    return "graph" if worth_a_graph else "reference"


def describe(device: torch.device, size: Size) -> str:
    """Backend and strategy of a float32 call, for a reader."""
    name = choose("auto", device, torch.float32, size)
    if name == "cuda":
        shape = chain.best(size.n, size.m or 0)
        assert shape is not None
        return f"cuda: {shape.describe()}"
    if name == "triton":
        strategy = (
            launch.dense_strategy(size.n, size.paired, size.batch)
            if size.m is None
            else launch.compact_wy_strategy(size.n, size.m, size.batch)
        )
        assert strategy is not None
        return f"triton: {strategy.name}"
    return {"graph": "graph: one cuBLAS product a step, in a CUDA graph"}.get(name, name)


# In multiply-adds of the compiled dense kernel, forward and backward, roughly, as fitted at N = 200 ... 1600 on a CPU:
# what one torch operation costs before it does any arithmetic; one of its multiply-adds; and as how many more rows of
# a step reading and building the dense matrix counts.
_CALL, _SLOWER, _MATRIX_ROWS = 200_000, 60, 16


def operator_pays(cost: tuple[int, int], n: int, rows: int) -> bool:
    """Whether applying a transition by its structure costs less than by its matrix (n, n), for this many rows a step.

    cost: (multiply-adds for one row, torch operations for one step).
    """
    arithmetic, calls = cost
    return _CALL * calls + _SLOWER * arithmetic * rows < n * n * (rows + _MATRIX_ROWS)


def cheaper_form(n: int, m: int) -> str:
    """ "compact_wy" or "dense" for a transition of M reflections that has both forms, by the multiply-adds of a step.

    The crossover measured on CPUs lies at M/N between 0.41 and 0.55, which is where the two counts cross.
    """
    costs = multiply_adds(n, m)
    return "compact_wy" if costs["compact_wy"] < costs["dense"] else "dense"


def multiply_adds(n: int, m: int) -> dict[str, float]:
    """Of one step and sequence in either form: N^2, and 2NM + M^2/2."""
    return {"dense": float(n * n), "compact_wy": 2.0 * n * m + m * m / 2}


# Of a linear recurrence, in multiply-adds of the compiled dense kernel at B = 8, as measured on a CPU: a step of one
# unit as a rotation, with its share of reading and writing rows; finding the rotations of W, per N^3; what it costs
# besides; how much longer a multiply-add takes where a single sequence reads all of W for itself.
_TURN, _DECOMPOSITION, _SETUP, _ALONE = 50, 30, 10_000_000, 3


class Linear(NamedTuple):
    """What the choice for a linear recurrence depends on.

    m: reflections, None where W has no compact form. all_states: every state is returned, not the last. projected: the
    input comes as V x. trained: a backward pass follows, W's gradient included unless `held`. found: the rotations of
    this W are known. read: K where K numbers are read out of every state, in place of the state.
    """

    n: int
    m: int | None
    batch: int
    steps: int
    all_states: bool
    projected: bool
    trained: bool
    found: bool = False
    held: bool = False
    read: int | None = None


def linear_costs(size: Linear) -> dict[str, float]:
    """Multiply-adds of a call with W applied as a matrix or by its reflections, and with W as rotations.

    As rotations N^2 a row remain for every state that is returned, for inputs that come projected, and for dL/dW.
    """
    n, rows = size.n, size.batch * size.steps
    forms = multiply_adds(n, size.m or 0)
    name = "dense" if size.m is None else cheaper_form(n, size.m)
    usual = forms[name] * (_ALONE if size.batch == 1 and name == "dense" else 1)
    passes = 2 if size.trained else 1
    learns = size.trained and not size.held
    reads = 0 if size.read is None else n * size.read * (3 if size.trained else 1)
    states = size.all_states and size.read is None
    changes = n * n * (states + size.projected) * passes + (n * n if learns else 0)
    once = 0 if size.found else _DECOMPOSITION * float(n) ** 3
    return {
        name: rows * (usual * passes + (forms[name] if learns else 0) + reads),
        "rotations": rows * (changes + _TURN * n * passes + reads) + once + _SETUP,
    }


def rotations_pay(size: Linear) -> bool:
    """Whether a linear recurrence costs less as rotations."""
    costs = linear_costs(size)
    return costs["rotations"] < min(cost for name, cost in costs.items() if name != "rotations")
