"""The package is typed for its users: py.typed is installed, overloads and literals are what a type checker reads."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import get_args

import pytest

import orthornn
from orthornn import activations
from orthornn.modules.rnn import FORMS, Form

pytestmark = pytest.mark.source


ROOT = Path(__file__).parents[1]


def test_type_checkers_see_overloads_and_literals():
    pytest.importorskip("mypy")
    options = ["--config-file=", "--warn-unused-ignores", "--python-version=3.11", "--no-error-summary"]
    command = [sys.executable, "-m", "mypy", *options, str(ROOT / "tests" / "typing" / "public_api.py")]
    found = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600, check=False)
    assert (found.returncode, found.stdout) == (0, ""), found.stdout + found.stderr


def test_the_marker_of_a_typed_package_is_installed():
    assert (Path(orthornn.__file__).parent / "py.typed").is_file()


def test_literals_are_the_names_that_are_accepted():
    assert set(get_args(activations.Name)) == set(activations.ACTIVATIONS)
    assert get_args(Form) == FORMS
