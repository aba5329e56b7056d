"""Prepare docstrings for Sphinx: they are written to be read in a terminal, in plain text rather than reStructuredText.

Characters that reStructuredText would take for markup are escaped, a section "Parameters" that is underlined becomes
"Args:", formulas stay as they are, and so do blocks whose columns are aligned by spaces, but for tables with headings.
"""

from __future__ import annotations

import inspect
import re
import textwrap
from typing import Any

from sphinx.application import Sphinx

_SECTION = re.compile(
    r"^(Args|Arguments|Parameters|Returns|Return|Raises|Yields|Shape|Shapes|Example|Examples|Note|Notes|Warns|"
    r"Attributes|Warning|References|See Also)::?$"
)
_ENTRY = re.compile(r"^\*{0,2}[A-Za-z_][\w.]*(?:, \*{0,2}[A-Za-z_][\w.]*)*(?: \([^)]*\))?:(?: |$)")
_COLUMNS = re.compile(r"\S {3,}\S")
_ENUMERATOR = re.compile(r"^(\s*\w)\.(?= |$)")
_MARKUP = re.compile(r"``.+?``|:[a-z:]+:`[^`]+`|`[^`]+`")


def _escaped(text: str) -> str:
    """Escape stars, bars, backslashes and trailing underscores outside of code."""
    text = _ENUMERATOR.sub(r"\1\\.", text)
    parts, last = [], 0
    for found in _MARKUP.finditer(text):
        parts += [_plain(text[last : found.start()]), found.group()]
        last = found.end()
    return "".join([*parts, _plain(text[last:])])


def _plain(text: str) -> str:
    return re.sub(r"_(?=\W|$)", r"\\_", re.sub(r"([*|`]|\\(?!\.))", r"\\\1", text))


def _paragraphs(lines: list[str]) -> list[list[str]]:
    made: list[list[str]] = [[]]
    for line in lines:
        if line.strip():
            made[-1].append(line)
        elif made[-1]:
            made.append([])
    return [paragraph for paragraph in made if paragraph]


def _without_underlines(lines: list[str]) -> list[str]:
    """Turn underlined headings into "Args:" with the entries below them indented."""
    made: list[str] = []
    inside = False
    for index, line in enumerate(lines):
        below = lines[index + 1].strip() if index + 1 < len(lines) else ""
        if line and below and set(below) == {"-"}:
            made += ["", "Args:" if line.strip() == "Parameters" else f"{line.strip()}:"]
            inside = True
        elif line.strip() and set(line.strip()) == {"-"} and inside:
            continue
        elif inside and not line.strip():
            inside = False
            made.append(line)
        else:
            made.append("    " + line if inside else line)
    return made


def _split_entries(lines: list[str]) -> list[str]:
    """Put each entry of "input_size: I. hidden_size: N." on a line of its own."""
    made = []
    for line in lines:
        indent = line[: len(line) - len(line.lstrip())]
        parts = re.split(r"(?<=\.) (?=[a-z_0-9]+: )", line.strip())
        made += [indent + part for part in parts]
    return made


def _is_literal(paragraph: list[str]) -> bool:
    return any(_COLUMNS.search(line.strip()) for line in paragraph)


def converted(lines: list[str]) -> list[str]:
    """Return the reStructuredText of a docstring in plain text with Google's sections."""
    made: list[str] = []
    section = ""
    for paragraph in _paragraphs(_without_underlines(lines)):
        first = paragraph[0].strip()
        heading = _SECTION.match(first)
        if heading:
            section = heading.group(1)
            shape = section in ("Shape", "Shapes")
            made += ["", "**Shape**", ""] if shape else ["", f"{'Args' if section == 'Parameters' else section}:"]
            paragraph = paragraph[1:]
            if section in ("Example", "Examples"):
                made.append("")
            if not paragraph:
                continue
            if not paragraph[0].startswith(" "):
                paragraph = ["    " + line for line in paragraph]
        elif not paragraph[0].startswith(" "):
            section = ""
            made.append("")
        else:
            made.append("")
        body = paragraph
        if first.startswith(".. math::"):
            made += [*body, ""]
        elif first.startswith(">>>") or (body and body[0].strip().startswith(">>>")):
            made += body
        elif section in ("Args", "Arguments", "Parameters", "Raises", "Attributes", "Warns") and not _is_literal(body):
            made += _entries(_split_entries(body))
        elif not section and _are_entries(body):
            made += ["Args:", *_entries(["    " + line for line in body])]
        elif _is_literal(body) or (not section and (body[0].startswith(" ") or _hangs(body))):
            made += _literal(body)
        elif section in ("Shape", "Shapes"):
            made += [_escaped(line) for line in textwrap.dedent("\n".join(body)).splitlines()]
        else:
            made += [_escaped(line) for line in body]
    return made


def _are_entries(paragraph: list[str]) -> bool:
    """Tell whether a paragraph outside of a section lists "name: meaning", continuations indented."""
    if _is_literal(paragraph) or not _hangs(paragraph):
        return False
    return all(line.startswith(" ") or _ENTRY.match(line) for line in paragraph)


def _hangs(paragraph: list[str]) -> bool:
    """Tell whether a paragraph has indented lines: a list or a formula, whose lines must not flow together."""
    return any(line.startswith(" ") for line in paragraph)


def _entries(lines: list[str]) -> list[str]:
    """Return the entries of a section with every continuation one level below its entry."""
    made = []
    depth = min(len(line) - len(line.lstrip()) for line in lines)
    for line in lines:
        text = line.strip()
        at_margin = len(line) - len(line.lstrip()) == depth
        if at_margin and _ENTRY.match(text):
            name, rest = text.split(":", 1)
            made.append(f"    {name}:{_escaped(rest)}")
        else:
            made.append(f"        {_escaped(text)}")
    return made


def _cells(lines: list[str]) -> list[list[str]]:
    """Return the cells of a table of three columns or more that are aligned by spaces, its headings first; else nothing.

    A line whose first column is empty continues the line above.
    """
    lines = textwrap.dedent("\n".join(lines)).splitlines()
    starts = [found.start() for found in re.finditer(r"(?:^|(?<=  ))\S", lines[0])]
    if len(lines) < 3 or len(starts) < 3 or any(line[at - 2 : at].strip() for line in lines for at in starts[1:]):
        return []
    rows: list[list[str]] = []
    for line in lines:
        row = [line[at:end].strip() for at, end in zip(starts, [*starts[1:], None])]
        if row[0]:
            rows.append(row)
        else:
            rows[-1] = [f"{above} {cell}".strip() for above, cell in zip(rows[-1], row)]
    return rows if len(rows) > 1 else []


def _table(rows: list[list[str]]) -> list[str]:
    made = [".. list-table::", "   :header-rows: 1", ""]
    for row in rows:
        first, *others = ["\\-" if cell == "-" else _escaped(cell) for cell in row]
        made += [f"   * - {first}", *(f"     - {cell}".rstrip() for cell in others)]
    return [*made, ""]


def _literal(lines: list[str]) -> list[str]:
    rows = _cells(lines)
    if rows:
        return _table(rows)
    return [".. code-block:: none", "", *("    " + line for line in lines), ""]


def _process(app: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    if what == "data" and "\n".join(lines).strip() == (inspect.getdoc(type(obj)) or "").strip():
        lines[:] = []  # autodoc takes the docstring of dict for that of a dictionary
    lines[:] = converted(lines)


def setup(app: Sphinx) -> dict[str, Any]:
    """Connect before napoleon, which reads the sections."""
    app.connect("autodoc-process-docstring", _process, priority=400)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
