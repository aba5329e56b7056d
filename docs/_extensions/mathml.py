"""Render formulas as MathML with docutils: no script and no network is needed to read them, and the site has the font."""

from __future__ import annotations

import re
from typing import Any

from docutils import nodes
from docutils.utils.math import latex2mathml
from sphinx.application import Sphinx

# what docutils does not know, and what it calls it
_UNKNOWN = {
    "\\dots": "\\ldots",
    "\\lVert": "\\Vert",
    "\\rVert": "\\Vert",
    "\\bigl(": "(",
    "\\bigr)": ")",
    "\\tfrac": "\\frac",
}


# A function's name and an argument without a parenthesis, between which TeX has a thin space.
_APPLIED = re.compile(r"(?:<mo>&ApplyFunction;</mo>|(?<=<mi>log</mi>)\s*<mn>\d</mn>\s*</msub>)(?!\s*<mo[^>]*>[(\[])")
# An index that docutils puts below a letter because there is an accent above it.
_ACCENTED = re.compile(r"<munderover>\s*(<mi>\w</mi>)\s*(<m[in]>\w+</m[in]>)\s*(<mo[^>]*>[ˆ¯ˉ˜]</mo>)\s*</munderover>")


def _improved(text: str) -> str:
    text = _APPLIED.sub(r'\g<0><mspace width="0.17em"/>', text)
    return _ACCENTED.sub(r'<msub><mover accent="true">\1\3</mover>\2</msub>', text)


def _mathml(latex: str, *, block: bool) -> str:
    text = latex.replace("\n", " ").strip()
    if block and "\\\\" in text and "\\begin{" not in text:
        text = "\\begin{aligned}" + text + "\\end{aligned}"
    text = text.replace("{align}", "{aligned}").replace("{align*}", "{aligned}")
    for name, known in _UNKNOWN.items():
        text = text.replace(name, known)
    return _improved("".join(latex2mathml.tex2mathml(text, as_block=block)))


def _inline(self: Any, node: nodes.Element) -> None:
    self.body.append(f'<span class="math">{_mathml(node.astext(), block=False)}</span>')
    raise nodes.SkipNode


def _display(self: Any, node: nodes.Element) -> None:
    self.body.append(f'<div class="math">{_mathml(node.astext(), block=True)}</div>')
    raise nodes.SkipNode


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the renderer."""
    app.add_html_math_renderer("mathml", (_inline, None), (_display, None))
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
