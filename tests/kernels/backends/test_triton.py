"""The Triton backend without a GPU: its kernels on Triton's interpreter."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import pathlib
import shutil
import subprocess
import sys
import sysconfig

import numpy as np
import pytest

from orthornn.kernels.backends import multiprocessor, tf32
from orthornn.kernels.backends.triton import backend, launch
from support import on_interpreter


def interpreter_problem() -> str | None:
    """Why Triton's interpreter cannot run here, or None."""
    found = importlib.util.find_spec("triton")
    if found is None or found.origin is None:
        return "triton is not installed"
    version = importlib.metadata.version("triton")
    if tuple(int(number) for number in version.split(".")[:2]) < (3, 4):
        return f"the interpreter of Triton {version} stores where a mask of one element is False; 3.4 does not"
    source = pathlib.Path(found.origin).parent / "runtime" / "interpreter.py"
    numpy = tuple(int(number) for number in np.__version__.split(".")[:2])
    if numpy >= (2, 4) and "int(self.handle.data)" in source.read_text():
        return "this Triton's interpreter calls int() on arrays of one element, an error since NumPy 2.4"
    return None


@pytest.mark.skipif(interpreter_problem() is not None, reason=str(interpreter_problem()))
@pytest.mark.parametrize(
    "group",
    [pytest.param(name, marks=[pytest.mark.slow] * (name == "the-other-kinds")) for name in on_interpreter.GROUPS],
)
def test_triton_on_its_interpreter(group):
    tests = pathlib.Path(__file__).parents[2]
    environment = os.environ | {
        "TRITON_INTERPRET": "1",
        "PYTHONPATH": os.pathsep.join([*(path for path in sys.path if path), str(tests)]),
    }
    done = subprocess.run(
        [sys.executable, "-m", "support.on_interpreter", group], capture_output=True, text=True, env=environment
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.endswith("cases\n")


@pytest.mark.parametrize("paired", [False, True])
@pytest.mark.parametrize("n", [1, 2, 7, 33, 70, 128, 129, 170, 192, 193, 1000])
def test_unit_blocks_cover_the_state(n, paired):
    n1, P1, P2 = launch.unit_blocks(n, paired)
    assert n1 <= P1
    assert n - n1 <= P2 <= P1
    assert P1 & (P1 - 1) == P2 & (P2 - 1) == 0
    if paired:
        assert n1 == n - n // 2


@pytest.mark.parametrize("size", [(170, None), (256, 32)])
@pytest.mark.parametrize(("kilobytes", "sequences"), [(48, 1), (227, 16)])
def test_blocks_of_sequences_are_for_gpus_with_the_shared_memory_for_them(size, kilobytes, sequences, monkeypatch):
    """A100s have 163 KB for a block, other GPUs less, and a launch that wants more is an error."""
    monkeypatch.setattr(multiprocessor, "shared_limit", lambda: 1024 * kilobytes)
    monkeypatch.setattr(tf32, "allowed", lambda: True)
    n, m = size
    found = launch.dense_strategy(n, False, 512) if m is None else launch.compact_wy_strategy(n, m, 512)
    assert (found.sequences, found.shared <= 1024 * kilobytes) == (sequences, True)


def test_a_missing_compiler_is_a_reason(monkeypatch):
    backend._cannot_launch.cache_clear()
    monkeypatch.setattr(shutil, "which", lambda name: None)
    assert "install gcc" in backend._cannot_launch()
    backend._cannot_launch.cache_clear()
    monkeypatch.setattr(shutil, "which", lambda name: f"/usr/bin/{name}")
    monkeypatch.setattr(sysconfig, "get_paths", lambda scheme: {"include": "/nowhere"})
    monkeypatch.delenv("CPATH", raising=False), monkeypatch.delenv("C_INCLUDE_PATH", raising=False)
    assert "python3-dev" in backend._cannot_launch()
    backend._cannot_launch.cache_clear()
