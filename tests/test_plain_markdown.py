"""Pages read well where nothing but Markdown is rendered, as on the pages of a repository: rendered here as CommonMark."""

from __future__ import annotations

import functools
import html
import importlib.util
import json
import re
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = [
    *sorted(page for page in DOCS.rglob("*.md") if "_build" not in page.parts and not page.name.endswith(".in.md")),
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md")),
]
EVERY_PAGE = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
markdown_it = pytest.importorskip("markdown_it")


def script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(Path(name).stem, DOCS / name)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@functools.cache
def rendered(page: Path) -> str:
    """The HTML of a page, without front matter and comments."""
    text = re.sub(r"\A---\n.*?^---\n", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    made = markdown_it.MarkdownIt("commonmark").enable(["table", "strikethrough"]).render(text)
    return re.sub(r"<!--.*?-->", "", made, flags=re.DOTALL)


def anchors(page: Path) -> set[str]:
    """The anchors that hosts of repositories give to headings: lower case, no punctuation, numbers for repetitions."""
    found: list[str] = []
    for heading in re.findall(r"<h[1-6]>(.*?)</h[1-6]>", rendered(page), re.DOTALL):
        text = html.unescape(re.sub(r"<[^>]+>", "", heading))
        name = re.sub(r"[^\w\- ]", "", text.strip().lower()).replace(" ", "-")
        found.append(f"{name}-{found.count(name)}" if name in found else name)
    return set(found)


@EVERY_PAGE
def test_every_link_has_a_text(page):
    for target, text in re.findall(r'<a href="([^"]*)"[^>]*>(.*?)</a>', rendered(page), re.DOTALL):
        assert re.sub(r"<(?!img)[^>]+>", "", text).strip(), f"Expected a text for the link to {target}."
    assert not re.search(r'<img src="[^"]*" alt=""', rendered(page))


def interrupted(text: str) -> list[str]:
    """The lines of paragraphs that a renderer takes for a list or a heading, such as "1. Next" after "is clipped at"."""
    tokens, lines = markdown_it.MarkdownIt("commonmark").parse(text), text.split("\n")
    blocks = ("bullet_list_open", "ordered_list_open", "heading_open", "blockquote_open")
    return [
        lines[token.map[0]]
        for before, token in zip(tokens, tokens[3:])
        if token.type in blocks
        and not token.level
        and before.type == "paragraph_open"
        and before.map[1] == token.map[0]
    ]


@EVERY_PAGE
def test_no_line_of_a_paragraph_begins_a_list(page):
    assert not interrupted(page.read_text(encoding="utf-8"))


def test_a_line_that_begins_a_list_is_found():
    assert interrupted("The norm is clipped at\n1. Next, $p + n\n- q$.\n\n1. A list\n2. of two\n") == [
        "1. Next, $p + n"
    ]
    assert interrupted("Unit p + n\n- q\n") == ["- q"]


@EVERY_PAGE
def test_no_directive_is_shown_raw(page):
    text = rendered(page)
    assert not re.findall(r'<code class="language-\{[^"]*"', text)
    outside = re.sub(r"<(pre|code)\b.*?</\1>", "", text, flags=re.DOTALL)
    assert not re.findall(r"^.*(?::::|\{[a-z:-]+\}(?=<code>|`)|\]\{\.).*$", outside, re.MULTILINE)


@EVERY_PAGE
def test_links_within_the_repository_lead_to_files_and_headings(page):
    for target in re.findall(r'<(?:a href|img src)="([^"]*)"', rendered(page)):
        path, _, anchor = html.unescape(target).partition("#")
        if re.match(r"[a-z]+:", path):
            continue
        file = (page.parent / path).resolve() if path else page
        assert file.exists(), target
        if anchor and file.suffix == ".md":
            assert anchor in anchors(file), target


def test_no_two_pages_have_one_title():
    stubs = {
        DOCS / "changelog.md",
        DOCS / "contributing.md",
        ROOT / "README.md",
    }  # which show files of the root, or begin as the site does
    titles = [
        found[1]
        for page in PAGES
        if page not in stubs and (found := re.search(r"<h1>(.*?)</h1>", rendered(page), re.DOTALL))
    ]
    assert len(titles) > 60
    assert sorted(titles) == sorted(set(titles))


def test_the_reference_lists_the_signatures_of_today():
    for package in ("sb3_contrib", "torchrl"):  # which orthornn.integrations derives from
        pytest.importorskip(package)
    plain = script("plain_reference.py")
    for page in sorted(plain.REFERENCE.glob("*.md")):
        text = page.read_text(encoding="utf-8")
        assert text == plain.page(text), f"{page.name}: run `make pages`."


def test_every_tutorial_is_a_notebook():
    books = script("notebooks.py")
    stored = {path: path.read_text(encoding="utf-8") for path in books.NOTEBOOKS.glob("*.ipynb")}
    assert stored == books.notebooks(), "Run `make pages`."
    for path, text in stored.items():
        cells = json.loads(text)["cells"]
        page = (DOCS / "tutorials" / f"{path.stem}.md").read_text(encoding="utf-8")
        assert (
            sum(cell["cell_type"] == "code" for cell in cells)
            == len(re.findall(r"^```python$", page, re.MULTILINE))
            > 2
        )
        for cell in cells:
            if cell["cell_type"] == "code":
                compile("".join(cell["source"]), path.name, "exec")


def test_the_site_has_directives_where_the_pages_have_plain_markdown():
    site = script("_extensions/plain_markdown.py").for_the_site
    assert site("<!-- site\n```{toctree}\na\n```\n-->\n<!-- plain -->\n[a](a.md)\n<!-- /plain -->\nend\n") == (
        "```{toctree}\na\n```\nend\n"
    )
    assert site("> [!WARNING]\n> Look\n> out.\n\nnext") == ":::{warning}\nLook\nout.\n:::\n\nnext"
    cards = site("<!-- cards 1 2 -->\n- [One](a/b.md): text\n  more\n- [Two](c.md) of\n\nend\n")
    assert cards.count("{grid-item-card}") == 2
    assert ":link: a/b\n:link-type: doc\ntext\nmore\n" in cards
    assert cards.endswith("::::\n\nend\n")
    cell = "```python\nx\n```\n"
    assert site(cell) == cell
    book = "---\nfile_format: mystnb\n---\n"
    assert site(f"{book}{cell}") == f"{book}```{{code-cell}} ipython3\nx\n```\n"
    link = "[Download](../../examples/notebooks/a.ipynb)\n"
    assert site(f"{book}{link}") == f"{book}{{nb-download}}`Download <a.ipynb>`\n"
    assert site(link) == link
    assert ":tags: [hide-input]" in site(f"{book}<!-- cell :tags: [hide-input] -->\n{cell}")
