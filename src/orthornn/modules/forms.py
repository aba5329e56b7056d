"""The forms in which a layer applies its transition: as a matrix, by reflections, by its structure, or as rotations.

The choice depends only on sizes, never on a tensor.
"""

from __future__ import annotations

from typing import Literal, NamedTuple, get_args

from ..errors import ArgumentError
from ..kernels.cost_model import cheaper_form, operator_pays

Form = Literal["auto", "dense", "compact_wy", "operator", "rotations"]
FORMS: tuple[str, ...] = get_args(Form)


class FormSizes(NamedTuple):
    """The sizes that the choice of a form depends on.

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
    """

    n: int
    num_reflections: int | None
    operator_cost: tuple[int, int] | None
    batch: int
    steps: int
    built_rows: int | None = None
    on_cpu: bool = True


def choose_form(wanted: str, sizes: FormSizes) -> Form:
    """Return the form that was asked for, or with "auto" the one that costs least; rotations are not among those.

    A form that the parametrization does not have becomes "dense".
    """
    if wanted == "rotations":
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
