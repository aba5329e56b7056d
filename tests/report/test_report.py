from __future__ import annotations

import io

import numpy as np
import pytest

from orthornn.report import Column, Table
from orthornn.report.figures import learning_curves, overview

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
    from orthornn.report import figures

    drawn = []
    monkeypatch.setattr(figures, "_save", lambda figure, path: drawn.append(figure))
    learning_curves(tmp_path / "c.png", "t", {"train": ([1, 2], [1.0, 0.5]), "validation": ([2], [0.7])}, 1.0)
    marks = {line.get_label(): line.get_marker() for line in drawn[0].axes[0].lines}
    assert marks["validation"] == "o"
    assert marks["train"] in ("", "None")
