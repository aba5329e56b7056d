"""The README and the pages in docs/ show the results that are committed, and no others."""

from __future__ import annotations

from pathlib import Path

import pytest

from orthornn.papers import PAPERS, experiments
from orthornn.papers.page import pages

ROOT = Path(__file__).parents[2]


def test_the_pages_are_those_of_the_results():
    for path, text in pages(ROOT).items():
        assert path.read_text(encoding="utf-8") == text, f"{path.name}: make pages"


@pytest.mark.parametrize("paper", PAPERS)
def test_the_page_names_every_experiment(paper):
    text = (ROOT / "docs" / f"{paper}.md").read_text(encoding="utf-8")
    for name, experiment in experiments(paper).items():
        assert f"### {experiment.place}: {name}\n" in text
