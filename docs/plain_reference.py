"""Signatures and first sentences on the pages of the reference, for readers of the plain Markdown.

    python docs/plain_reference.py    (part of `make pages`)

After every block of Sphinx directives that documents names (`<!-- site`, autoclass, autofunction, automodule, autodata), the
names are listed with their signatures. The site leaves the lists out (docs/_extensions/plain_markdown.py).
"""

from __future__ import annotations

import importlib
import inspect
import re
from pathlib import Path
from typing import Any

REFERENCE = Path(__file__).parent / "reference"
BLOCK = re.compile(
    r"^(<!-- site\n```\{eval-rst\}\n(.*?)```\n-->\n)(?:<!-- plain -->\n.*?<!-- /plain -->\n)?", re.DOTALL | re.MULTILINE
)
DIRECTIVE = re.compile(r"^\.\. auto(\w+):: (\S+)\n((?:   .*\n)*)", re.MULTILINE)
_ORDER = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def page(text: str) -> str:
    """Return a page of the reference with the lists of today's signatures."""
    return BLOCK.sub(lambda found: found[1] + _plain(found[2]), text)


def _plain(directives: str) -> str:
    lines = [line for kind, name, options in DIRECTIVE.findall(directives) for line in _described(kind, name, options)]
    return "<!-- plain -->\n" + "\n".join(lines) + "\n<!-- /plain -->\n" if lines else ""


def _described(kind: str, name: str, options: str) -> list[str]:
    """Return the lines of a directive: the name itself, but for a module, and its members."""
    found, owner = _found(name)
    members = re.search(r":members:((?:.*\n(?: {6,}.*\n)*))", options)
    chosen = [part.strip() for part in members[1].split(",") if part.strip()] if members else []
    if kind == "module":
        if members and not chosen:
            own = getattr(found, "__all__", None) or [
                part for part, value in vars(found).items() if getattr(value, "__module__", None) == name
            ]
            chosen = [part for part in own if not part.startswith("_") and callable(getattr(found, part))]
        return [_line(f"{name}.{part}", getattr(found, part)) for part in chosen]
    if members and not chosen:
        chosen = [part for part, value in vars(found).items() if not part.startswith("_") and _is_documented(value)]
    if kind == "data":
        return [_line(name, found, _comment(owner, name.rpartition(".")[2]))]
    inner = [f"  {_line(part, inspect.getattr_static(found, part))}" for part in chosen if hasattr(found, part)]
    return [_line(name, found), *inner]


def _is_documented(value: Any) -> bool:
    """Return whether a member has a docstring; a string or a number has only the docstring of its type."""
    return inspect.getdoc(value) not in (None, "", inspect.getdoc(type(value)))


def _found(name: str) -> tuple[Any, Any]:
    """Return the object with a dotted name, and the module or class that contains it."""
    try:
        return importlib.import_module(name), None
    except ImportError:
        owner = _found(name.rpartition(".")[0])[0]
        return getattr(owner, name.rpartition(".")[2]), owner


def _comment(module: Any, name: str) -> str:
    """Return the string below a variable of a module."""
    found = re.search(rf'^{name}\b.*?\n"""(.*?)"""', inspect.getsource(module), re.DOTALL | re.MULTILINE)
    return found[1] if found else ""


def _line(name: str, value: Any, doc: str | None = None) -> str:
    called = doc is None and not isinstance(value, property)
    value = getattr(value, "fget", None) or getattr(value, "__func__", value)
    text = inspect.getdoc(value) or "" if doc is None else doc
    return f"- `{name}{_signature(value) if called else ''}`" + (f": {_sentence(text)}" if text else "")


def _signature(value: Any) -> str:
    """Return names and defaults, without types, which are on the site."""
    if inspect.isclass(value) and issubclass(value, BaseException):
        return ""
    try:
        signature = inspect.signature(value)
    except (TypeError, ValueError):
        return ""
    plain = [entry.replace(annotation=inspect.Parameter.empty) for entry in signature.parameters.values()]
    if plain and plain[0].name == "self" and plain[0].kind in _ORDER:
        plain = plain[1:]
    text = str(signature.replace(parameters=plain, return_annotation=inspect.Signature.empty))
    return re.sub(r"<(?:function|class|object)? ?'?([\w.]+)[^>]*>", r"\1", text)


def _sentence(text: str) -> str:
    """Return the first sentence of a docstring, in Markdown: formulas and code as code."""
    first = " ".join(text.split("\n\n")[0].split())
    first = re.split(r"(?<=[a-z0-9)`\]])\.(?= [A-Z]|$)", first)[0].rstrip(".:") + "."
    return re.sub(r":\w+:`~?([^`]+)`|``([^`]+)``", lambda found: f"`{found[1] or found[2]}`", first)


if __name__ == "__main__":
    for path in sorted(REFERENCE.glob("*.md")):
        old = path.read_text(encoding="utf-8")
        if (new := page(old)) != old:
            path.write_text(new, encoding="utf-8")
            print(f"wrote {path.name}")
