"""The cost of each form of a transition: as a matrix, by its reflections, by its structure, or as rotations.

The unit of cost is a multiply-add of the compiled dense kernel; constants were measured on CPUs.
"""

from __future__ import annotations

from typing import NamedTuple

# In multiply-adds of the compiled dense kernel, forward and backward, roughly, as fitted at N = 128 ... 2048 on a CPU: what
# one torch operation costs before it does any arithmetic; one of its multiply-adds; and as how many more rows of a step
# reading the dense matrix counts.
_CALL, _SLOWER, _MATRIX_ROWS = 200_000, 20, 1


def operator_pays(cost: tuple[int, int], n: int, batch: int, built_steps: int | None = None) -> bool:
    """Return whether applying a transition through its structure costs less than through its matrix (n, n).

    The matrix, like its gradient, is built by applying the structure to n rows.

    Args:
        cost: (multiply-adds for one row, torch operations for one step).
        n: Size of the state.
        batch: Number of sequences.
        built_steps: T of a call for which the matrix is built and differentiated. Default: None, for a matrix that is
            already built or used often.
    """
    arithmetic, calls = cost
    more = _CALL * calls + _SLOWER * arithmetic * batch - n * n * (batch + _MATRIX_ROWS)
    return more < 0 if built_steps is None else more * built_steps < _CALL * calls + _SLOWER * arithmetic * n


# Of a matrix that is built of M reflections for one call, forward and backward, as measured on a CPU at N = 8 ... 512: what
# this costs more than the factors of the reflections, besides arithmetic and per N^2 M; what a row costs more by reflections,
# besides arithmetic; and how much longer a row takes that is alone in its step. The unit is that of `multiply_adds`, whose
# count of a row stands for both passes.
_BUILD, _BUILD_PRODUCT, _ROW, _ALONE_IN_STEP = 20_000_000, 3, 2000, 2


def cheaper_form(n: int, m: int, built_for: tuple[int, int] | None = None) -> str:
    """Return "compact_wy" or "dense" for a transition of M reflections that has both forms.

    By the multiply-adds of a step, the two costs are equal at an M/N between 0.41 and 0.55, as measured on CPUs.
    Building the matrix for a short call does not pay off for any M.

    Args:
        built_for: (B, rows of all steps) of the call for which W is built and differentiated. Default: None, for a W
            that is already built or used often.
    """
    costs = multiply_adds(n, m)
    saved = costs["compact_wy"] - costs["dense"]
    if saved < 0:
        return "compact_wy"
    if built_for is None:
        return "dense"
    batch, rows = built_for
    saved = (saved + _ROW) * (_ALONE_IN_STEP if batch == 1 else 1)
    return "compact_wy" if rows * saved < _BUILD + _BUILD_PRODUCT * n * n * m else "dense"


def multiply_adds(n: int, m: int) -> dict[str, float]:
    """Return the multiply-adds per step and sequence of both forms: N^2, and 2NM + M^2/2."""
    return {"dense": float(n * n), "compact_wy": 2.0 * n * m + m * m / 2}


# Of a linear recurrence, in multiply-adds of the compiled dense kernel at B = 8, as measured on a CPU: a step of one
# unit as a rotation, with its share of reading and writing rows; finding the rotations of W, per N^3; what it costs
# besides; how much longer a multiply-add takes where a single sequence reads all of W for itself.
_TURN, _DECOMPOSITION, _SETUP, _ALONE = 50, 30, 10_000_000, 3


class Linear(NamedTuple):
    """The sizes and options that the choice of a form for a linear recurrence depends on.

    m: Number of reflections, None if W has no compact form. all_states: Whether every state is returned instead of the
    last. projected: Whether the input is already V x. trained: Whether a backward pass follows, which includes W's
    gradient unless `held`. read: K if K numbers are read out of every state and returned instead.
    """

    n: int
    m: int | None
    batch: int
    steps: int
    all_states: bool
    projected: bool
    trained: bool
    held: bool = False
    read: int | None = None


def linear_costs(size: Linear) -> dict[str, float]:
    """Return the multiply-adds of a call with W applied as a matrix or by its reflections, and with W as rotations.

    With rotations, N^2 per row remain for every returned state, for projected inputs, and for dL/dW.
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
    return {
        name: rows * (usual * passes + (forms[name] if learns else 0) + reads),
        "rotations": rows * (changes + _TURN * n * passes + reads) + _DECOMPOSITION * float(n) ** 3 + _SETUP,
    }


def rotations_pay(size: Linear) -> bool:
    """Return whether a linear recurrence costs less as rotations."""
    costs = linear_costs(size)
    return costs["rotations"] < min(cost for name, cost in costs.items() if name != "rotations")


# Of the last state from the response to one step (modules/impulse.py), in the same unit, as measured on a CPU: what it costs
# besides the rows of its steps; and a step of one unit as a rotation where only the last state is returned.
_RESPONSE, _LAST_TURN = 8_000_000, 25


def response_pays(n: int, m: int | None, inputs: int, batch: int, steps: int, trained: bool) -> bool:
    """Return whether the response to one step is the cheaper way to the last states of a linear recurrence.

    With the response, one sequence per input, one for the bias and one for the initial state run through the steps,
    instead of the sequences of the batch. The number of products with inputs is the same. m: Number of reflections, 0
    for pure rotations, None if W has no compact form.
    """
    sequences = inputs + 2
    row = _LAST_TURN * n if m == 0 else multiply_adds(n, m or 0)["dense" if m is None else cheaper_form(n, m)]
    saved = (batch - sequences) * steps * row * (2 if trained else 1)
    return 2 * sequences <= batch and saved > _RESPONSE


# Of every k-th state from the response to k steps (modules/impulse.py), in the same unit, as measured on a CPU: what the
# response and its gradient cost besides the rows of their steps, and a squaring of W in float64 with its gradient, per N^3.
_GROUPS, _SQUARING = 80_000_000, 25


def groups_pay(n: int, m: int | None, inputs: int, batch: int, steps: int, k: int) -> bool:
    """Return whether groups of k steps are the cheaper way to every k-th state of a linear recurrence.

    With groups, a batch runs through steps / k steps, and one sequence per input (and one for the bias) through k
    steps. The number of products with inputs is the same. m: Number of reflections, 0 for pure rotations, None if W has
    no compact form.
    """
    saved = batch * steps - batch * steps / k - (inputs + 1) * k
    forms = multiply_adds(n, m or 0)
    row = 2 * _TURN * n if m == 0 else 3 * forms["dense" if m is None else cheaper_form(n, m)]
    power = 0 if m == 0 else _SQUARING * float(n) ** 3 * (k - 1).bit_length()
    return saved * row > _GROUPS + power
