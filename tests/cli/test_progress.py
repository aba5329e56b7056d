from __future__ import annotations

import io
import math
import re
import sys
import time

import pytest

from orthornn.cli.progress import Display
from orthornn.learn.training import Progress

RUNS = {
    "one": Progress(10, 40, 0.5, 2.0, 1.0, {"loss": 0.4}),
    "two": Progress(0, 40, math.nan, 0.0, 0.0, None),
}


def test_plain_lines_now_and_then(capsys, monkeypatch):
    clock = iter([0.0, 1.0, 6.0, 7.0])
    monkeypatch.setattr(time, "monotonic", lambda: next(clock))
    with Display(0.25) as display:
        for _ in range(3):
            display(RUNS)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2
    assert lines[0].split()[:2] == ["one", "10/40"]
    assert "10 steps/s  loss 0.5 = 2.000 x baseline  6 s left  validation loss 0.4" in lines[0]


@pytest.mark.parametrize(("limit", "left"), [(None, "6 s left"), (5.0, "3 s left"), (1.0, "0 s left")])
def test_time_left_heeds_the_limit(limit, left):
    assert Display(1.0, limit)._time_left(RUNS) == left


def test_bars_on_a_terminal(monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    out = Terminal()
    monkeypatch.setattr(sys, "stdout", out)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "80")
    with Display(0.25) as display:
        display(RUNS)
    assert "one" in out.getvalue()
    assert "10/40" in out.getvalue()
    assert "10 steps/s  loss 0.5 = 2.000 x baseline  6 s left" in out.getvalue()


def test_a_terminal_has_room_for_its_own_ctrl_c(monkeypatch):
    """A line that fills the terminal would be broken by ^C, and drawn once more below."""

    class Terminal(io.StringIO):
        def isatty(self):
            return True

    out = Terminal()
    monkeypatch.setattr(sys, "stdout", out)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "80")
    with Display(0.25) as display:
        display(RUNS)
    lines = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", out.getvalue()).replace("\r", "\n").split("\n")
    assert any("one" in line for line in lines)
    assert 60 < max(map(len, lines)) <= 77
