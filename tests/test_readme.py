"""The README's code runs, and its commands exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from orthornn import cli
from orthornn.learn.entry_points import COMMANDS, EVIDENCE

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_example_runs():
    (code,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    assert len(code.strip().splitlines()) == 10
    names = {}
    exec(code, names)
    assert names["states"].shape == (784, 50, 128)
    assert all(parameter.grad is not None for parameter in names["rnn"].parameters())


@pytest.mark.parametrize("command", sorted(set(re.findall(r"`orthornn (\w+)", README))))
def test_every_command_exists(command):
    assert command in {*cli.COMMANDS, *EVIDENCE[COMMANDS]}


def test_it_fits_on_a_few_screens():
    assert len(README.splitlines()) <= 120


@pytest.mark.parametrize("link", re.findall(r"\]\(([^)]+)\)", README))
def test_links_lead_somewhere(link):
    assert (ROOT / link).exists()


@pytest.mark.parametrize("target", re.findall(r"^make (\w+)", README, re.MULTILINE))
def test_make_targets_exist(target):
    assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
