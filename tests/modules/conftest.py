"""The modules run on memory that holds NaN until it is written."""

import pytest


@pytest.fixture(autouse=True)
def poisoned_memory(uninitialized_memory_is_nan):
    """See the fixture that it asks for."""
