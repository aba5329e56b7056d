"""The README and the pages in docs/ show the results that are committed, and no others."""

from __future__ import annotations

from pathlib import Path

import pytest

from orthornn.errors import ArgumentError
from orthornn.lab.papers import PAPERS, experiments
from orthornn.lab.papers.page import pages, renewed

ROOT = Path(__file__).parents[3]
WITH_PAGE = [paper for paper in PAPERS if (ROOT / "docs" / f"{paper}.md").exists()]


def test_the_pages_are_those_of_the_results():
    assert set(WITH_PAGE) >= {"mhammedi2017", "helfrich2018", "vorontsov2017"}
    renewed_pages = pages(ROOT)
    assert len(renewed_pages) == len(WITH_PAGE) + 1
    for path, text in renewed_pages.items():
        assert path.read_text(encoding="utf-8") == text, f"{path.name}: make pages"


@pytest.mark.parametrize("paper", WITH_PAGE)
def test_the_page_names_every_experiment(paper):
    text = (ROOT / "docs" / f"{paper}.md").read_text(encoding="utf-8")
    for name, experiment in experiments(paper).items():
        assert f"### {experiment.place}: {name}\n" in text


def test_a_page_without_marks_is_refused():
    with pytest.raises(ArgumentError, match="Expected a page with the lines"):
        renewed("# A page\n", "")
