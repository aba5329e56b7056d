"""The modules run on memory that holds NaN until it is written, and last states come by the response in small calls too."""

import pytest

from orthornn.kernels import cost_model


@pytest.fixture(autouse=True)
def poisoned_memory(uninitialized_memory_is_nan):
    """See the fixture that it asks for."""


@pytest.fixture(autouse=True)
def the_response_costs_nothing(monkeypatch):
    """So small calls take the way of large ones; test_dispatch.py tests the choice itself."""
    monkeypatch.setattr(cost_model, "_RESPONSE", 0)
