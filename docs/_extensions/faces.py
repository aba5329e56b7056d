"""What a search engine, a shared link and a reader who took a wrong turn see: descriptions, titles, and a page for 404."""

from __future__ import annotations

import html
import posixpath
import re
from typing import Any
from urllib.parse import urlsplit

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.transforms import SphinxTransform

_PATH = re.compile(r"\bdocs/([a-z0-9_/]+)\.md")
_LONGEST = 160  # what search engines show of a description
_FIRST = "orthornn: orthogonal and unitary recurrent networks for PyTorch"


def description(doctree: nodes.document) -> str:
    """Return the first sentences of a page, at most 160 characters."""
    for paragraph in doctree.findall(nodes.paragraph):
        parents = (nodes.table, addnodes.desc, nodes.footnote, addnodes.compact_paragraph, nodes.list_item)
        above = paragraph.parent
        while above is not None and not isinstance(above, parents):
            above = above.parent
        text = " ".join(paragraph.astext().split())
        if above is None and len(text) > 50:
            return shortened(text)
    return ""


def shortened(text: str) -> str:
    """Return whole sentences within the limit, or else whole words and an ellipsis."""
    if len(text) <= _LONGEST:
        return text.rstrip(":")
    end = text.rfind(". ", 60, _LONGEST)
    return text[: end + 1] if end > 0 else text[: text.rfind(" ", 0, _LONGEST - 1)].rstrip(",;:") + " …"


def _context(app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: nodes.document | None) -> None:
    first = page == app.config.root_doc
    title = _FIRST if first else re.sub(r"<[^>]*>", "", context.get("title", ""))  # escaped already
    if doctree is not None:
        words = html.escape(description(doctree) or _FIRST)
        tags = {"og:title": title, "og:site_name": "orthornn", "og:type": "website", "og:description": words}
        context["metatags"] = context.get("metatags", "") + f'<meta name="description" content="{words}">'
        for name, value in tags.items():
            context["metatags"] += f'<meta property="{name}" content="{value}">'
    if page == "404":
        # the server sends this page for any address: its links start at the root of the site
        context["root"] = posixpath.join("/", urlsplit(app.config.html_baseurl).path, "")


class DocsPaths(SphinxTransform):
    """Turn "docs/how_to/runs.md", as docstrings, messages and the changelog name a page, into a link to it."""

    default_priority = 600

    def apply(self, **kwargs: Any) -> None:
        """Replace the names in text; what is written as code or is a link already stays."""
        for text in list(self.document.findall(nodes.Text)):
            if isinstance(text.parent, (nodes.literal, nodes.literal_block, nodes.reference, addnodes.pending_xref)):
                continue
            parts = self._parts(str(text))
            if len(parts) > 1:
                text.parent.replace(text, parts)

    def _parts(self, text: str) -> list[nodes.Node]:
        made: list[nodes.Node] = []
        for at, piece in enumerate(_PATH.split(text)):
            if at % 2 and piece in self.env.found_docs:
                link = addnodes.pending_xref(
                    "", nodes.inline("", ""), refdomain="std", reftype="doc", reftarget=f"/{piece}", refexplicit=False
                )
                link["refdoc"] = self.env.docname
                link["refwarn"] = True
                made.append(link)
            elif piece:
                made.append(nodes.Text(f"docs/{piece}.md" if at % 2 else piece))
        return made


def _extra_pages(app: Sphinx) -> list[tuple[str, dict[str, Any], str]]:
    return [("404", {"title": "Page not found"}, "404.html")]


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the hooks."""
    app.connect("html-page-context", _context)
    app.connect("html-collect-pages", _extra_pages)
    app.add_transform(DocsPaths)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
