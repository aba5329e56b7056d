"""Fixtures about threads and about memory that nothing has written."""

import pytest


@pytest.fixture
def one_thread():
    """Bits depend on the number of threads; and a process that had threads leaves a forked child without them."""
    import torch  # in each fixture, so that the process which only hands out tests does without it

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def uninitialized_memory_is_nan():
    """torch.empty and its kin return NaN (integers: the largest), so that what nothing has written is seen."""
    import torch

    was_deterministic = torch.are_deterministic_algorithms_enabled()
    fill = torch.utils.deterministic.fill_uninitialized_memory
    torch.use_deterministic_algorithms(True)
    torch.utils.deterministic.fill_uninitialized_memory = True
    assert torch.empty(3).isnan().all()
    yield
    torch.use_deterministic_algorithms(was_deterministic)
    torch.utils.deterministic.fill_uninitialized_memory = fill
