"""Which form and which backend run a call."""

import pytest
import torch

from orthornn.errors import ArgumentError
from orthornn.kernels.plan import cheaper_form, choose


@pytest.mark.parametrize(
    ("n", "m", "form"), [(256, 32, "compact_wy"), (256, 100, "compact_wy"), (256, 128, "dense"), (1, 1, "dense")]
)
def test_the_form_with_fewer_multiply_adds(n, m, form):
    assert cheaper_form(n, m) == form


def test_an_unknown_backend():
    with pytest.raises(ArgumentError, match="'reference'"):
        choose("referense", torch.device("cpu"))
