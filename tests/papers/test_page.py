"""The pages in docs/ show the results that are committed, and no others."""

from __future__ import annotations

from pathlib import Path

import pytest

from orthornn.papers import experiments
from orthornn.papers.page import page, renewed

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("paper", ["helfrich2018", "vorontsov2017"])
def test_the_page_is_that_of_the_results(paper):
    text = (ROOT / "docs" / f"{paper}.md").read_text(encoding="utf-8")
    assert text == renewed(text, page(ROOT / "results", experiments(paper).values()))


@pytest.mark.parametrize("paper", ["helfrich2018", "vorontsov2017"])
def test_the_page_names_every_experiment(paper):
    text = (ROOT / "docs" / f"{paper}.md").read_text(encoding="utf-8")
    for name, experiment in experiments(paper).items():
        assert f"### {experiment.place}: {name}\n" in text
