"""A trained network is read from its files without what trains it."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import orthornn
from orthornn.errors import ConfigError
from support.run_cases import entries

RUNS = Path(__file__).parents[1] / "learn" / "fixtures" / "old_runs"
MOST = 30


def test_loading_imports_the_systems_and_little_else():
    code = (
        "import sys, orthornn\n"
        f"for run in {[str(RUNS / run) for run in ('copying', 'forecast')]!r}:\n"
        "    assert orthornn.load(run, checkpoint='6').model.core.hidden_size == 6\n"
        "print(*(name for name in sys.modules if name.partition('orthornn.learn')[0] == ''))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    found = done.stdout.split()
    assert "orthornn.learn.systems" in found
    assert len(found) <= MOST
    assert not [name for name in found if name.startswith(("orthornn.learn.tasks", "orthornn.learn.files"))]


def test_a_run_of_a_task_that_is_not_there_predicts(tmp_path):
    shutil.copytree(RUNS / "copying", tmp_path / "run")
    path = tmp_path / "run" / "config.json"
    plain = entries(path)
    plain["task"] = {"name": "of-a-package-that-is-not-installed", "size": 3}
    path.write_text(json.dumps(plain))
    network, other = (orthornn.load(place, "6") for place in (tmp_path / "run", RUNS / "copying"))
    sequences = np.zeros((2, 7), np.int64)
    assert np.array_equal(network.predict(sequences).scores, other.predict(sequences).scores)
    with pytest.raises(ConfigError, match=r"(?s)config.json: .*task.name: unknown name"):
        network.config  # noqa: B018


@pytest.mark.parametrize("plain", [[], 3, None, {"model": []}, {"model": {"name": "lstm", "hidden": 3}}], ids=repr)
def test_a_configuration_without_a_model_is_one_error(plain, tmp_path):
    shutil.copytree(RUNS / "copying", tmp_path / "run")
    (tmp_path / "run" / "config.json").write_text(json.dumps(plain))
    with pytest.raises(ConfigError, match=r"config.json: the configuration is not valid:\n  "):
        orthornn.load(tmp_path / "run", "6")
