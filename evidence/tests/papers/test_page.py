"""The README and the pages in docs/ show the results that are committed, and no others."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from orthornn.errors import ArgumentError
from orthornn_evidence.papers import PAPERS, experiments
from orthornn_evidence.papers.page import TEMPLATES, page, pages, renewed, without_links
from orthornn_evidence.papers.template import typed_numbers

ROOT = Path(__file__).parents[3]


def test_the_pages_are_those_of_the_results():
    made = pages(ROOT)
    assert len(made) == len(TEMPLATES)  # and the README once more, for the package index
    for path, text in made.items():
        assert path.read_text(encoding="utf-8") == text, f"{path.name}: make pages"


@pytest.mark.parametrize("template", [name for name, _ in TEMPLATES])
def test_no_number_is_typed_by_hand(template):
    if (ROOT / template).exists():
        assert typed_numbers((ROOT / template).read_text(encoding="utf-8")) == []


GUIDES = sorted({*(ROOT / "docs" / "how_to").glob("*.md")} - {ROOT / name for _, name in TEMPLATES})


@pytest.mark.parametrize("page", GUIDES, ids=lambda page: page.name)
def test_a_guide_without_a_template_has_no_measurements(page):
    """Settings are written as code; a guide that shows what was measured is made from a template."""
    assert typed_numbers(page.read_text(encoding="utf-8")) == []


def test_the_readme_shows_at_most_eight_finished_results():
    text = (ROOT / "docs" / "readme.in.md").read_text(encoding="utf-8")
    assert 1 <= text.count("{{line ") <= 8
    assert "{{unfinished}}" not in text


@pytest.mark.parametrize("paper", [paper for paper in PAPERS if (ROOT / "docs" / "results" / f"{paper}.md").exists()])
def test_every_experiment_is_on_the_page_or_in_the_appendix(paper):
    own = (ROOT / "docs" / "results" / f"{paper}.in.md").read_text(encoding="utf-8")
    appendix = (ROOT / "docs" / "results" / "unfinished.md").read_text(encoding="utf-8")
    for name, experiment in experiments(paper).items():
        place = f"| {experiment.place}: `{name}` |"
        shown = f"{{{{table {paper}/{name}" in own or f"{{{{figure {paper}/{name} | full}}}}" in own
        assert shown or place in appendix.partition(f"## {paper}\n")[2] or f"`{name}`" in own, name


def test_the_text_of_the_package_index_leads_nowhere():
    """An index shows it without the files of the repository."""
    text = "<!-- made -->\n# a\n\n![b](c.png)\n\nSee [`d`](e.md) and\n[f\ng](h/i.md), or [j](https://k).\n"
    assert without_links(text) == "# a\n\nSee `d` and\nf\ng, or [j](https://k).\n"
    shown = (ROOT / "docs" / "package_index.txt").read_text(encoding="utf-8")
    assert not [link for link in re.findall(r"\]\(([^)]*)\)", shown) if not link.startswith("https:")]


def test_a_section_for_a_page_of_ones_own(tmp_path):
    """`orthornn reproduce PAPER --page FILE`."""
    section = page(ROOT / "results", experiments("mhammedi2017").values())
    for name, experiment in experiments("mhammedi2017").items():
        assert f"### {experiment.place}: {name}\n" in section


def test_a_page_without_marks_is_refused():
    with pytest.raises(ArgumentError, match="Expected a page with the lines"):
        renewed("# A page\n", "")
