from __future__ import annotations

import io
import re

import pytest

from orthornn.learn.report import Column, Table

TABLE = Table("results", [Column("model", left=True), Column("loss")], [["a", "1.5"], ["long name", "10"]], ["a note"])


def test_a_plain_table():
    assert TABLE.plain().splitlines() == [
        "results",
        "",
        "model      loss",
        "---------  ----",
        "a           1.5",
        "long name    10",
        "a note",
    ]


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize("file", [io.StringIO(), Terminal()])
def test_every_cell_is_shown(file):
    TABLE.show(file)
    for word in ("results", "model", "loss", "long name", "1.5", "10", "a note"):
        assert word in file.getvalue()
    if not file.isatty():
        assert file.getvalue() == TABLE.plain() + "\n"


@pytest.mark.parametrize("kind", ["xterm", "dumb"])
@pytest.mark.parametrize("width", [10, 40, 80, 200])
def test_no_cell_is_cut_on_a_narrow_terminal(width, kind, monkeypatch):
    """At 80 columns rich wrote 0.12... for numbers; and what stands in square brackets it takes for colors."""
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setenv("TERM", kind)
    pytest.importorskip("rich")
    numbers = [[f"{row}.{place}234567" for place in range(9)] for row in range(2)]
    headings = ["model", *(f"over baseline {place}" for place in range(9))]
    columns = [Column(heading, left=place == 0) for place, heading in enumerate(headings)]
    names = ["ornn [red] $x$", "lstm"]
    table = Table("results [bold]", columns, [[name, *row] for name, row in zip(names, numbers)], ["a [b] note"])
    file = Terminal()
    table.show(file)
    shown = re.sub(r"\x1b\[[\d;]*m", "", file.getvalue())
    for word in [*names, *numbers[0], *numbers[1]]:
        assert word in shown
    assert "\u2026" not in shown
    assert "[bold]" in shown
    if width >= 40:
        assert max(map(len, shown.splitlines())) <= width
