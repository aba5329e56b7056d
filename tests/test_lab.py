"""The former names of orthornn.learn, orthornn.cli and the evidence."""

from __future__ import annotations

import subprocess
import sys

import pytest


def run(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *words], capture_output=True, text=True, check=False)


def test_modules_are_the_same_under_their_former_names():
    done = run(
        "-W",
        "error::DeprecationWarning:orthornn",
        "-c",
        "import warnings\n"
        "with warnings.catch_warnings(record=True) as caught:\n"
        "    warnings.simplefilter('always')\n"
        "    from orthornn.lab.training import Run\n"
        "    from orthornn.lab.cli import main\n"
        "    import orthornn.cli, orthornn.learn.training\n"
        "assert Run is orthornn.learn.training.Run and main is orthornn.cli.main\n"
        "assert orthornn.learn.training.__spec__.name == 'orthornn.learn.training'\n"
        "assert any('orthornn.lab.training is orthornn.learn.training now' in str(w.message) for w in caught)\n"
        # those that moved further
        "warnings.simplefilter('ignore')\n"
        "import importlib\n"
        "from orthornn.lab import _MOVED\n"
        "for former, present in _MOVED.items():\n"
        "    assert importlib.import_module(f'orthornn.lab.{former}') is importlib.import_module(present)\n",
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.sampled(1)
@pytest.mark.parametrize("module", ["leaderboard", "group_words"])
def test_commands_of_the_evidence_run_under_their_former_names_or_say_where_they_are(module):
    done = run("-m", f"orthornn.lab.{module}", "--help")
    if done.returncode:
        assert f"orthornn_evidence.{module}" in done.stderr
        assert "pip install -e evidence" in done.stderr
    else:
        assert "usage" in done.stdout.lower()


def test_what_never_was_there_is_not_found():
    done = run("-c", "import orthornn.lab.nothing_of_the_kind")
    assert "No module named 'orthornn.lab.nothing_of_the_kind'" in done.stderr
