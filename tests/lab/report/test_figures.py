"""Learning curves and overviews, in every format."""

from __future__ import annotations

import numpy as np
import pytest

from orthornn.lab.report.figures import learning_curves, marker, overview, words


def test_a_single_point_is_drawn(tmp_path):
    learning_curves(tmp_path / "a.svg", "t", {"one": ([5], [2.0]), "$two$ _": ([1, 2], [2.0, 1.0])}, 1.0)
    assert (marker([1]), marker([1, 2])) == ("o", "")
    assert words("$a$") == r"\$a\$"
    assert words("_a\x00") == " _a\ufffd"


@pytest.mark.sampled(1)
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
        assert "trivial baseline" in path.read_text()


def test_a_curve_of_one_point_is_seen(tmp_path, monkeypatch):
    """A line through one point shows nothing."""
    from orthornn.lab.report import figures

    drawn = []
    monkeypatch.setattr(figures, "write", lambda figure, path: drawn.append(figure))
    learning_curves(tmp_path / "c.png", "t", {"train": ([1, 2], [1.0, 0.5]), "validation": ([2], [0.7])}, 1.0)
    marks = {line.get_label(): line.get_marker() for line in drawn[0].axes[0].lines}
    assert marks["validation"] == "o"
    assert marks["train"] in ("", "None")
