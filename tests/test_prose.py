"""Docstrings and messages are written as the readers of torch and NumPy know it: run by `make check`."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import orthornn

ROOT = Path(orthornn.__file__).parent
OPENING = re.compile(r"(What|Whose|Who|Of|By|In)\b")


def modules() -> Iterator[tuple[str, str]]:
    """Yield the name and the text of every module of the package."""
    for path in sorted(ROOT.rglob("*.py")):
        yield path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8")


def docstrings(text: str) -> Iterator[tuple[int, str]]:
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            found = ast.get_docstring(node)
            if found:
                yield node.body[0].lineno, found


def test_no_docstring_opens_with_a_question_word_or_a_preposition():
    """A function's first line is a sentence with a verb; a class's, a property's and a module's is a noun phrase."""
    found = [
        f"{name}:{line}: {text.splitlines()[0]}"
        for name, source in modules()
        for line, text in docstrings(source)
        if OPENING.match(text)
    ]
    assert not found, "Expected 'Return ...' or a noun phrase, but got:\n" + "\n".join(found)
