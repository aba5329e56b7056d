"""torch's converter to ONNX reads its operators once."""

from __future__ import annotations

import functools
import importlib

import pytest


@pytest.fixture(autouse=True, scope="session")
def operators_once():
    """torch.onnx parses the sources of all operators for each graph anew, which is half of the time of a small one."""
    try:
        source = importlib.import_module("onnxscript._framework_apis.torch_2_5")
        read = source.get_torchlib_ops
    except (ImportError, AttributeError):  # another version, which may do so or not
        yield
        return
    source.get_torchlib_ops = functools.cache(read)
    yield
    source.get_torchlib_ops = read
