"""The forms in which a layer applies its transition: as a matrix, by reflections, by its structure, or as rotations.

Only this module chooses a form. The choice depends on the sizes of the call and on the group of W, never on the values
of a tensor, so equal calls always use equal forms. kernels/cost_model.py contains the cost of each form.
"""

from __future__ import annotations

from typing import Literal, NamedTuple, get_args

from ..errors import ArgumentError
from ..kernels.cost_model import Linear, cheaper_form, groups_pay, operator_pays, response_pays, rotations_pay
from ..parametrizations.parametrization import ORTHOGONAL_GROUPS

Form = Literal["auto", "dense", "compact_wy", "operator", "rotations"]
FORMS: tuple[str, ...] = get_args(Form)
# A group of steps is one matrix product up to this many inputs per step; it costs as many multiply-adds per input and
# step as a rotation costs altogether (cost_model).
_NARROW = 16


class CallSizes(NamedTuple):
    """The sizes and the group that determine the choice of a form.

    Attributes:
        n: Size of the real state.
        num_reflections: Number of reflections M of the parametrization, or None if it has no compact form.
        operator_cost: Cost of applying W by its structure (see `operator_pays`), or None if W has no structure or if
            not all states are stored.
        batch: B.
        steps: T.
        built_rows: Rows of all steps of a call for which W would be built. None if W is already known, or if the choice
            must not depend on the length.
        on_cpu: Whether the call runs on a CPU. On other devices each torch operation of a structure needs at least one
            launch, and the operations of one step together take longer than the product with the matrix.
        linear: The sizes of a linear recurrence that runs eagerly on a CPU, the only kind that can run as rotations;
            otherwise None.
        group: The group of W; see `BoundParametrization.group`.
    """

    n: int
    num_reflections: int | None
    operator_cost: tuple[int, int] | None
    batch: int
    steps: int
    built_rows: int | None = None
    on_cpu: bool = True
    linear: Linear | None = None
    group: str = "all"


def choose_form(wanted: str, sizes: CallSizes) -> Form:
    """Return the requested form, or for "auto" the cheapest form.

    If the parametrization does not support the requested form, return "dense".
    """
    if wanted == "rotations" or (wanted == "auto" and runs_as_rotations(sizes.linear, sizes.group)):
        return "rotations"
    cost = sizes.operator_cost
    if cost is not None and wanted == "operator":
        return "operator"
    if cost is not None and wanted == "auto" and sizes.on_cpu:
        built_steps = None if sizes.built_rows is None else sizes.steps
        if operator_pays(cost, sizes.n, sizes.batch, built_steps):
            return "operator"
    if sizes.num_reflections is None or wanted == "dense":
        return "dense"
    if wanted == "auto":
        built_for = None if sizes.built_rows is None else (sizes.batch, sizes.built_rows)
        return cheaper_form(sizes.n, sizes.num_reflections, built_for)  # type: ignore[return-value]
    return "compact_wy"


def runs_as_rotations(linear: Linear | None, group: str) -> bool:
    """Return whether a linear recurrence with an orthogonal W is cheaper to run as rotations.

    Args:
        linear: Sizes of the recurrence, or None if it cannot run as rotations.
        group: The group of W.
    """
    return linear is not None and group in ORTHOGONAL_GROUPS and rotations_pay(linear)


def reads_response(linear: Linear, inputs: int) -> bool:
    """Return whether the response to one step is the cheaper way to compute the last states (impulse.py).

    Args:
        linear: The sizes of a linear recurrence whose sequences all have the same length.
        inputs: I.
    """
    return linear.steps >= 2 and response_pays(linear.n, linear.m, inputs, linear.batch, linear.steps, linear.trained)


def reads_groups(linear: Linear, inputs: int, stride: int) -> bool:
    """Return whether one product per group of steps is the cheaper way to compute every stride-th state (impulse.py).

    Args:
        linear: The sizes of a linear recurrence.
        inputs: I.
        stride: Number of steps per state that is read.
    """
    return inputs <= _NARROW and groups_pay(linear.n, linear.m, inputs, linear.batch, linear.steps, stride)


def check_rotations(nonlinearity: str, clip: float | None) -> None:
    """Raise ArgumentError unless the recurrence can run as rotations."""
    if nonlinearity != "identity":
        raise ArgumentError(
            f"Expected a linear recurrence for form='rotations', but got {nonlinearity}. "
            f"Use nonlinearity='identity' or linear_transition=True."
        )
    if clip is not None:
        raise ArgumentError(
            "Expected no clip_backward with form='rotations', but got a bound: clipping entries is not linear. Use "
            "form='dense'."
        )
