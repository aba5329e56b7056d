"""The README's code runs, and its commands exist."""

from __future__ import annotations

import dataclasses
import inspect
import re
from pathlib import Path

import pytest

from orthornn import doctor
from orthornn.lab import cli
from orthornn.lab.cli.bench import BenchArguments
from orthornn.lab.tasks import TASKS

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_example_runs():
    (code,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    assert len(code.strip().splitlines()) == 10
    names = {}
    exec(code, names)
    assert names["last"].shape == (50, 256)
    assert all(parameter.grad is not None for parameter in names["rnn"].parameters())


def test_the_commands_exist():
    commands = re.findall(r"^orthornn (train|compare|sweep) (\w[\w-]*) (.*)$", README, re.MULTILINE)
    assert len(commands) == 5
    for command, task, options in commands:
        assert command in cli.COMMANDS
        assert task in TASKS
        assert options


def test_the_commands_without_a_task_exist():
    commands = re.findall(r"^orthornn (bench|doctor)(?: (--[^#]*))?(?:\s+#.*)?$", README, re.MULTILINE)
    assert len(commands) == 5
    for command, options in commands:
        known = {
            "bench": {field.name for field in dataclasses.fields(BenchArguments)},
            "doctor": set(inspect.signature(doctor.report).parameters),
        }[command]
        assert set(re.findall(r"--(\w+)", options)) <= known


@pytest.mark.parametrize("command", sorted(set(re.findall(r"^orthornn (\w+)", README, re.MULTILINE))))
def test_every_command_exists(command):
    assert command in cli.COMMANDS


@pytest.mark.parametrize("link", re.findall(r"\]\(([^)]+)\)", README))
def test_links_lead_somewhere(link):
    assert (ROOT / link).exists()


@pytest.mark.parametrize("target", re.findall(r"^make (\w+)", README, re.MULTILINE))
def test_make_targets_exist(target):
    assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
