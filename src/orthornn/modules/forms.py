"""The forms in which a layer applies its transition: as a matrix, by reflections, by its structure, or as rotations.

This is the only place that chooses one. The choice depends on the sizes of the call and on the group of W, never on a
tensor's values, so that the same call takes the same form each time; what each form costs is in kernels/cost_model.py.
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
    """The sizes and the group that the choice of a form depends on.

    Attributes:
        n: Size of the real state.
        num_reflections: M of the parametrization, or None if it has no compact form.
        operator_cost: What its structure costs (see `operator_pays`), or None if it has none or if not all states are
            stored.
        batch: B.
        steps: T.
        built_rows: Rows of all steps of a call for which W would be built; None where it is known, or where no choice may
            depend on the length.
        on_cpu: Whether the call runs on a CPU. Elsewhere each torch operation of a structure is at least one launch, and all
            of a step take longer than its product with the matrix.
        linear: The sizes of a linear recurrence that runs eagerly on a CPU, which alone may run as rotations; otherwise
            None.
        group: That of W; see `BoundParametrization.group`.
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
    """Return the form that was asked for, or with "auto" the one that costs least.

    A form that the parametrization does not have becomes "dense".
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
    """Return whether a linear recurrence with an orthogonal W costs less as rotations.

    Args:
        linear: Its sizes, or None if it may not run as rotations.
        group: That of W.
    """
    return linear is not None and group in ORTHOGONAL_GROUPS and rotations_pay(linear)


def reads_response(linear: Linear, inputs: int) -> bool:
    """Return whether the last states come for less from the response to one step (impulse.py).

    Args:
        linear: The sizes of a linear recurrence whose sequences all have the same length.
        inputs: I.
    """
    return linear.steps >= 2 and response_pays(linear.n, linear.m, inputs, linear.batch, linear.steps, linear.trained)


def reads_groups(linear: Linear, inputs: int, stride: int) -> bool:
    """Return whether every stride-th state comes for less from one product per group of steps (impulse.py).

    Args:
        linear: The sizes of a linear recurrence.
        inputs: I.
        stride: Steps per state that is read.
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
            "Expected no clip_backward with form='rotations', but got one: clipping entries is not linear. Use "
            "form='dense'."
        )
