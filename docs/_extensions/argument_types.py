"""Types of arguments in the reference as torch's pages show them: `bias (bool, optional) – Whether ...`.

Sphinx reads them off the annotations. Here a union becomes "A or B", one with None "A, optional", and a choice of texts str:
the entry itself lists the choices. The dash between a name and its meaning is an en dash.
"""

from __future__ import annotations

import ast
import re
import sys
import typing
from typing import TYPE_CHECKING, Any

from docutils import nodes

if TYPE_CHECKING:
    from sphinx.application import Sphinx

_LITERAL = re.compile(r"(?:typing\.)?Literal\[(.*)\]", re.DOTALL)


def plain_type(annotation: str, aliases: dict[str, str]) -> str:
    """Return a type for readers, from an annotation and the annotations that its aliases stand for."""
    parts = _parts(annotation, aliases)
    shown = list(dict.fromkeys(part for part in parts if part != "None"))
    return " or ".join(shown) + (", optional" if "None" in parts and shown else "")


def _parts(annotation: str, aliases: dict[str, str]) -> list[str]:
    """Return the members of a union, with the texts of a Literal as str and its numbers and truth values by type."""
    found: list[str] = []
    for part in _members(annotation):
        plain = part.lstrip("~")  # which asks Sphinx for the last part of a name
        name = plain.rpartition(".")[2]
        literal = _LITERAL.fullmatch(plain)
        if literal:
            found += [
                "None" if value is None else type(value).__name__ for value in ast.literal_eval(f"({literal[1]},)")
            ]
        elif name in aliases:
            found += _parts(aliases[name], {other: text for other, text in aliases.items() if other != name})
        elif plain.startswith(("Callable", "collections.abc.Callable")):
            found.append("Callable")
        else:
            found.append(part)
    return found


def _members(annotation: str) -> list[str]:
    """Return the members of a union: the parts between bars that are in no brackets."""
    parts, depth = [""], 0
    for character in annotation:
        depth += (character == "[") - (character == "]")
        if character == "|" and not depth:
            parts.append("")
        else:
            parts[-1] += character
    return [part.strip() for part in parts]


def aliases_of(package: str) -> dict[str, str]:
    """Return the annotations behind the names of unions and choices in the imported modules of a package."""
    found = {}
    for module in [value for name, value in sys.modules.items() if name.partition(".")[0] == package]:
        for name, value in vars(module).items():
            if typing.get_origin(value) is typing.Literal:
                found[name] = f"Literal[{', '.join(map(repr, typing.get_args(value)))}]"
    return found


def _types(app: Sphinx, domain: str, objtype: str, content: nodes.Element) -> None:
    aliases = aliases_of("orthornn")
    for field in content.findall(nodes.field):
        name, body = field
        if name.astext().startswith("type ") and body.astext():
            shown = plain_type(body.astext(), aliases)
            body.clear()
            body += nodes.paragraph("", shown)


def _dashes(app: Sphinx, doctree: nodes.document) -> None:
    for text in list(doctree.findall(nodes.Text)):
        if text == " -- ":
            text.parent.replace(text, nodes.Text(" – "))


def setup(app: Sphinx) -> dict[str, Any]:
    """Connect after autodoc, which adds the types of annotations."""
    app.connect("object-description-transform", _types, priority=900)
    app.connect("doctree-read", _dashes)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
