"""Learning curves and overviews, in every format."""

from __future__ import annotations

import matplotlib
import numpy as np
import pytest
from cycler import cycler

from orthornn.errors import OrthornnWarning
from orthornn.learn.report import pictures
from orthornn.learn.report.figures import learning_curves, marker, or_a_warning, overview, words


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
    from orthornn.learn.report import figures

    drawn = []
    monkeypatch.setattr(figures, "write", lambda figure, path: drawn.append(figure))
    learning_curves(tmp_path / "c.png", "t", {"train": ([1, 2], [1.0, 0.5]), "validation": ([2], [0.7])}, 1.0)
    marks = {line.get_label(): line.get_marker() for line in drawn[0].axes[0].lines}
    assert marks["validation"] == "o"
    assert marks["train"] in ("", "None")


HOSTILE = {
    "LaTeX": {"text.usetex": True},
    "a style": {
        "font.size": 40,
        "axes.grid": True,
        "lines.linewidth": 9,
        "savefig.bbox": "tight",
        "axes.facecolor": "red",
    },
    "no mathematics": {"text.parse_math": False, "axes.unicode_minus": False, "font.family": "serif"},
    "no colors": {"axes.prop_cycle": cycler(marker=["o", "s"]), "savefig.transparent": True, "lines.linestyle": "None"},
}


@pytest.mark.sampled(1)
@pytest.mark.parametrize("settings", HOSTILE)
def test_figures_do_not_follow_the_settings_of_the_user(tmp_path, settings):
    """With text.usetex, as SciencePlots sets it, and no LaTeX, no figure could be drawn."""
    drawn = []
    for name, own in (("plain", {}), ("hostile", HOSTILE[settings])):
        with matplotlib.rc_context(own):
            before = dict(matplotlib.rcParams)
            learning_curves(tmp_path / f"{name}.png", "a $title$", {"one": ([1, 2], [2.0, 1.0])}, 1.0)
            circle = {"one": np.exp(1j * np.linspace(0, 3, 7))}
            overview(tmp_path / f"{name}-2.png", "t", {"one": ([1, 2], [2.0, 1.0])}, 1.0, {"one": [1.0, 0.1]}, circle)
            svg = pictures.as_svg(pictures.recorded_spectra({"one": [Recorded()]}))
            assert dict(matplotlib.rcParams) == before
        files = sorted(tmp_path.glob(f"{name}*.png"))
        drawn.append([*(file.read_bytes() for file in files), svg])
    assert drawn[0] == drawn[1]
    assert len(drawn[0]) == 3


class Recorded:
    """A run that recorded its singular values."""

    def of_kind(self, kind):
        return [{"step": step, "layer": 0, "mean": 1.0, "min": 0.9, "max": 1.1} for step in (1, 2)]


def test_a_figure_that_fails_costs_no_result(tmp_path):
    with (
        pytest.warns(
            OrthornnWarning, match=r"The figure .*a\.png was not drawn: ZeroDivisionError: division by zero\. All"
        ),
        or_a_warning(tmp_path / "a.png"),
    ):
        print(1 / 0)
    with pytest.raises(KeyboardInterrupt), or_a_warning(tmp_path / "a.png"):
        raise KeyboardInterrupt
