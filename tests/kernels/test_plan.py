"""Which form and which backend run a call."""

import warnings

import pytest
import torch

from orthornn.errors import ArgumentError, OrthornnWarning
from orthornn.kernels import dispatch
from orthornn.kernels.backends import CPP
from orthornn.kernels.call import Size
from orthornn.kernels.cost_model import cheaper_form
from orthornn.kernels.dispatch import choose


@pytest.mark.parametrize(
    ("n", "m", "form"), [(256, 32, "compact_wy"), (256, 100, "compact_wy"), (256, 128, "dense"), (1, 1, "dense")]
)
def test_the_form_with_fewer_multiply_adds(n, m, form):
    assert cheaper_form(n, m) == form


def test_an_unknown_backend():
    with pytest.raises(ArgumentError, match="'reference'"):
        choose("referense", torch.device("cpu"))


def test_missing_kernels_are_said_once_at_first_use(monkeypatch):
    monkeypatch.setattr(CPP, "unavailable", lambda device: "the compiled extension is missing")
    dispatch._warn_of_reference.cache_clear()
    cpu, size = torch.device("cpu"), Size(4)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert choose("auto", cpu) == "reference"  # a question, not a use
        assert choose("reference", cpu, size=size) == "reference"  # as asked for
    with pytest.warns(OrthornnWarning, match=r"extension is missing.*200 times slower.*filterwarnings"):
        assert choose("auto", cpu, size=size) == "reference"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert choose("auto", cpu, size=size) == "reference"
    dispatch._warn_of_reference.cache_clear()
