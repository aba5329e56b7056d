from __future__ import annotations

import io
import re

import numpy as np
import pytest

from orthornn.lab.report import Column, Table
from orthornn.lab.report.figures import learning_curves, marker, overview, words

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


@pytest.mark.parametrize("width", [10, 40, 80, 200])
def test_no_cell_is_cut_on_a_narrow_terminal(width, monkeypatch):
    """At 80 columns rich wrote 0.12... for numbers; and what stands in square brackets it takes for colors."""
    monkeypatch.setenv("COLUMNS", str(width))
    pytest.importorskip("rich")
    numbers = [[f"{row}.{place}234567" for place in range(9)] for row in range(2)]
    headings = ["model", *(f"over trivial {place}" for place in range(9))]
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


def test_a_single_point_is_drawn(tmp_path):
    learning_curves(tmp_path / "a.svg", "t", {"one": ([5], [2.0]), "$two$ _": ([1, 2], [2.0, 1.0])}, 1.0)
    assert (marker([1]), marker([1, 2])) == ("o", "")
    assert words("$a$") == r"\$a\$"
    assert words("_a\x00") == " _a\ufffd"


@pytest.mark.parametrize("suffix", ["png", "svg", "pdf"])
def test_figures_are_written(tmp_path, suffix):
    curves = {"one": ([1, 2, 3], [2.0, 1.0, 0.5]), "two": ([1, 2, 3], [2.0, 2.0, 1.9])}
    path = tmp_path / f"curves.{suffix}"
    learning_curves(path, "a title", curves, 1.0)
    circle = {"one": np.exp(1j * np.linspace(0, 3, 7))}
    whole = tmp_path / f"overview.{suffix}"
    overview(whole, "a title", curves, 1.0, {"one": [1.0, 0.1, 0.0], "two": [1, 1, 1]}, circle)
    magic = {"png": b"\x89PNG", "svg": b"<?xml", "pdf": b"%PDF"}[suffix]
    assert path.read_bytes().startswith(magic)
    assert whole.read_bytes().startswith(magic)
    assert whole.stat().st_size > path.stat().st_size
    if suffix == "svg":
        assert "trivial answer" in path.read_text()


def test_a_curve_of_one_point_is_seen(tmp_path, monkeypatch):
    """A line through one point shows nothing."""
    from orthornn.lab.report import figures

    drawn = []
    monkeypatch.setattr(figures, "write", lambda figure, path: drawn.append(figure))
    learning_curves(tmp_path / "c.png", "t", {"train": ([1, 2], [1.0, 0.5]), "validation": ([2], [0.7])}, 1.0)
    marks = {line.get_label(): line.get_marker() for line in drawn[0].axes[0].lines}
    assert marks["validation"] == "o"
    assert marks["train"] in ("", "None")
