"""Lines are broken between words on a terminal only."""

from __future__ import annotations

import sys

from orthornn.learn.report.lines import say

TEXT = "orthornn: " + "some words of a line that is long, " * 5 + "--inputs='a,b,c-d', and an-end-with-hyphens"


def test_a_line_is_whole_elsewhere_and_broken_between_words_on_a_terminal(capsys, monkeypatch):
    say(TEXT)
    assert capsys.readouterr().out == TEXT + "\n"
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    for columns in ("80", "50"):
        monkeypatch.setenv("COLUMNS", columns)
        say(TEXT)
        lines = capsys.readouterr().out.splitlines()
        assert max(map(len, lines)) < int(columns)
        assert " ".join(line.strip() for line in lines) == TEXT
        assert all(line.startswith("   ") for line in lines[1:])
