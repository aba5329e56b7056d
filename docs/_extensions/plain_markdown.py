"""The site from pages in plain Markdown, which also read well where nothing but Markdown is rendered.

A page marks what the site shows in another way by comments:

    <!-- site        what is between is on the site only, such as a directive
    -->
    <!-- plain -->   what is between is everywhere else only
    <!-- /plain -->
    <!-- cards 1 2 2 3 -->   the list below is a grid of cards, with so many in a row from narrow to wide windows; an item
                             is [Title](page.md): text; a word after the numbers is the class of the grid

A quotation that opens with [!NOTE] or [!WARNING] is an admonition. In a page whose front matter has `file_format: mystnb`,
blocks of Python are cells that are executed, with the options of comments before them: `<!-- cell :tags: [hide-input] -->`,
and the link to a notebook in examples/notebooks downloads the one with the outputs of this build.
"""

from __future__ import annotations

import re
from typing import Any

from sphinx.application import Sphinx

SITE = re.compile(r"^<!-- site\n(.*?)^-->$\n?", re.DOTALL | re.MULTILINE)
PLAIN = re.compile(r"^<!-- plain -->$.*?^<!-- /plain -->$\n?", re.DOTALL | re.MULTILINE)
CARDS = re.compile(r"^<!-- cards ([\d ]+)((?: [a-z]+)?) -->\n((?:- .*\n(?:  .*\n)*)+)", re.MULTILINE)
CARD = re.compile(r"^- \[([^\]]*)\]\(([^)]*)\):? ((?:.*\n)(?:  .*\n)*)", re.MULTILINE)
ADMONITION = re.compile(r"^> \[!(\w+)\]\n((?:>.*\n)+)", re.MULTILINE)
CELL = re.compile(r"^((?:<!-- cell .* -->\n)*)```python$", re.MULTILINE)
DOWNLOAD = re.compile(r"^\[([^\]]*)\]\(\S*examples/notebooks/(\w+\.ipynb)\)$", re.MULTILINE)
NOTEBOOK = re.compile(r"\A---\n(?:.*\n)*?file_format: mystnb\n")


def for_the_site(text: str) -> str:
    """Return a page as the site shows it."""
    text = PLAIN.sub("", SITE.sub(lambda found: found[1], text))
    text = ADMONITION.sub(lambda found: f":::{{{found[1].lower()}}}\n{_unquoted(found[2])}:::\n", text)
    text = CARDS.sub(lambda found: _grid(found[1], found[2].strip(), found[3]), text)
    if not NOTEBOOK.match(text):
        return text
    return CELL.sub(_cell, DOWNLOAD.sub(r"{nb-download}`\1 <\2>`", text))


def _unquoted(lines: str) -> str:
    return re.sub(r"^> ?", "", lines, flags=re.MULTILINE)


def _grid(columns: str, style: str, items: str) -> str:
    cards = [
        f":::{{grid-item-card}} {title}\n:link: {page.removesuffix('.md')}\n:link-type: doc\n"
        f"{re.sub(r'^  ', '', text, flags=re.MULTILINE)}:::\n"
        for title, page, text in CARD.findall(items)
    ]
    options = ":gutter: 3\n" + (f":class-container: {style}\n" if style else "")
    return f"::::{{grid}} {columns}\n{options}\n" + "\n".join(cards) + "::::\n"


def _cell(found: re.Match[str]) -> str:
    return "\n".join(["```{code-cell} ipython3", *re.findall(r"<!-- cell (.*) -->", found[1])])


def _read(app: Sphinx, name: str, source: list[str]) -> None:
    source[0] = for_the_site(source[0])


def setup(app: Sphinx) -> dict[str, Any]:
    """Connect the reading of pages."""
    app.connect("source-read", _read)
    return {"parallel_read_safe": True, "version": "1"}
