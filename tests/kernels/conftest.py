"""The kernels run on memory that holds NaN until it is written."""

from __future__ import annotations

import pathlib

import pytest

from orthornn.kernels.backends.cpp import extension
from support import emulation


@pytest.fixture(autouse=True)
def poisoned_memory(uninitialized_memory_is_nan):
    """See the fixture that it asks for."""


@pytest.fixture(params=["portable", "avx2", "avx512"])
def isa(request, monkeypatch):
    if request.param not in extension.native.supported_isas():
        pytest.skip(f"this processor has no {request.param}")
    monkeypatch.setenv("ORTHORNN_ISA", request.param)
    assert extension.native.isa() == request.param


@pytest.fixture(scope="session")
def folder(tmp_path_factory) -> pathlib.Path:
    if emulation.COMPILER is None:
        pytest.skip("no C++ compiler for the emulation")
    return tmp_path_factory.mktemp("chain")
