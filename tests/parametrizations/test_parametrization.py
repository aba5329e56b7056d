from __future__ import annotations

import re

import pytest

from orthornn import OrthogonalRNN, parametrizations
from orthornn.errors import ArgumentTypeError
from orthornn.parametrizations import Parametrization

KINDS = {
    name: kind
    for name, kind in vars(parametrizations).items()
    if isinstance(kind, type) and issubclass(kind, Parametrization) and kind is not Parametrization
}


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("cayley", "ScaledCayley"),
        ("scaled-cayley", "ScaledCayley"),
        ("housholder", "Householder"),
        ("orthogonal", None),
    ],
)
def test_a_name_is_refused_with_the_choices(given, meant):
    class OfAUser(parametrizations.Householder):
        """No choice of the library's."""

    with pytest.raises(ArgumentTypeError, match=f"but got {given!r}") as refused:
        OrthogonalRNN(2, 4, parametrization=given)
    said = str(refused.value)
    assert ("Did you mean" in said) == (meant is not None)
    assert meant is None or f"Did you mean {meant}()?" in said
    assert {word for word in re.findall(r"\w+", said.partition("but got")[2]) if word in KINDS} == {*KINDS}
    assert OfAUser.__name__ not in said
