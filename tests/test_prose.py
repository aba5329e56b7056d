"""Docstrings and messages are written as the readers of torch and NumPy know it: run by `make check`."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import orthornn

pytestmark = pytest.mark.source


ROOT = Path(orthornn.__file__).parent
EVIDENCE = ROOT.parents[1] / "evidence" / "src" / "orthornn_evidence"
OPENING = re.compile(r"(What|Whose|Who|Of|By|In)\b")


def modules() -> Iterator[tuple[str, str]]:
    """Yield the name and the text of every module of the package and of the evidence."""
    for root in (ROOT, EVIDENCE):
        for path in sorted(root.rglob("*.py")):
            yield path.relative_to(root.parent).as_posix(), path.read_text(encoding="utf-8")


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


# Words of this house that readers of torch do not know, and what to write.
WORDS = {
    r"\bmade again\b|\banew\b": "recomputed, rebuilt, again",
    r"\bgo(es|ing)? on\b|\bwent on\b": "resumes, continues",
    r"\bfirst values?\b": "initial values",
    r"\btrivial answer\b": "trivial baseline",
    r"\bwhole or not at all\b": "atomically",
    r"\blose[s]? digits\b": "loses precision",
    r"\blooks on\b": "tracing is on",
    r"\bwork(s|ed)? through\b": "processes",
    r"\bwhat (came|is said)\b(?! before)": "the value received, the message",
    r"\bbeside\b": "next to, compared with",
    r"\b(lies|lie|stands) (on|in|at)\b": "is on, is in, is at",
    r"; got\b": ", but got",
    r"\bmust be [^.]*, but got": "Expected ... to be ..., but got",
    r"(is|are|was|were|be) kept\b": "saved, stored, cached",
    r"\bwhich (brings|gives)\b": "which provides, which returns",
}
# Titles, notes and published numbers of experiments are in results files, with which docs/ must agree.
RECORDED = re.compile(r"orthornn_evidence/papers/(\w+20\d\d|flops)")


def texts(source: str) -> Iterator[tuple[int, str]]:
    """Yield the strings of a module, docstrings included, adjacent ones and f-strings as one, whitespace as a space."""
    tree = ast.parse(source)
    parts = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in ast.walk(node)}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            values = (part.value if isinstance(part, ast.Constant) else "{}" for part in node.values)
            yield node.lineno, " ".join("".join(map(str, values)).split())
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in parts:
            yield node.lineno, " ".join(node.value.split())


def test_strings_use_the_words_of_the_field():
    found = [
        f"{name}:{line}: {match[0]!r} (write: {advice})"
        for name, source in modules()
        if not RECORDED.match(name)
        for line, text in texts(source)
        for word, advice in WORDS.items()
        for match in re.finditer(word, text)
    ]
    assert not found, "Expected the words of the field, but got:\n" + "\n".join(sorted(set(found)))


def test_no_message_names_a_page_that_an_installed_package_lacks():
    """Errors of the estimators named docs/how_to/your_data.md."""
    found = []
    for path in sorted(ROOT.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Raise | ast.Call):
                name = getattr(getattr(node, "func", None), "attr", "") if isinstance(node, ast.Call) else "raise"
                text = ast.unparse(node)
                if name in ("raise", "warn", "append", "print", "say", "show") and re.search(r"\bdocs/\w+", text):
                    found.append(f"{path.name}:{node.lineno}")
    assert not found


def test_strings_are_found_wherever_they_are():
    """Across lines, in f-strings and docstrings, and not in names."""
    source = 'def f(beside):\n    """What\n    came."""\n    raise E(f"it is " f"{x} beside " "y; got z")\n'
    assert [text for _, text in texts(source)] == ["What came.", "it is {} beside y; got z"]
    assert [text.split()[0] for _, text in docstrings(source)] == ["What"]


def test_the_changelog_has_lists_of_facts():
    """Lists in their order, each line in the list of its verb, none twice; the first version has nothing to change yet."""
    text = (ROOT.parents[1] / "CHANGELOG.md").read_text(encoding="utf-8")
    versions = re.split(r"^## ", text, flags=re.M)[1:]
    for version in versions:
        lists = re.split(r"^### (\w+)$", version, flags=re.M)[1:]
        order = ["Added", "Changed", "Fixed", "Removed"] if version is not versions[-1] else ["Added"]
        assert lists[::2] == [name for name in order if name in lists[::2]] != []
        for name, content in zip(lists[::2], lists[1::2]):
            facts = [fact.partition("\n")[0] for fact in re.split(r"^- ", content, flags=re.M)[1:]]
            assert [fact for fact in facts if not fact.startswith(f"{name} ")] == []
            assert [fact for fact in set(facts) if facts.count(fact) > 1] == []
