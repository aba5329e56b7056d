"""A trained network is read from its files without what trains it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

RUNS = Path(__file__).parents[1] / "learn" / "fixtures" / "old_runs"
MOST = 30


@pytest.mark.parametrize("run", ["copying", "forecast"])
def test_loading_imports_the_systems_and_little_else(run):
    code = (
        "import sys, orthornn\n"
        f"network = orthornn.load({str(RUNS / run)!r}, checkpoint='6')\n"
        "assert network.model.core.hidden_size == 6\n"
        "print(*(name for name in sys.modules if name.partition('orthornn.learn')[0] == ''))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    found = done.stdout.split()
    assert "orthornn.learn.systems" in found
    assert len(found) <= MOST
    assert not [name for name in found if name.startswith(("orthornn.learn.tasks", "orthornn.learn.files"))]
