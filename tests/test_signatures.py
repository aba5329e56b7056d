"""No function of the library takes more than ten parameters, except the listed ones, which users call with keywords."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import orthornn

pytestmark = pytest.mark.source


ROOT = Path(orthornn.__file__).parent
MOST = 10
# What a user calls: flat keyword arguments with defaults, as torch's layers have.
PUBLIC = {
    "sklearn/classifier.py: OrthogonalClassifier.__init__",
    "sklearn/estimator.py: SequenceEstimator.__init__",
    "export/c/__init__.py: to_c",
    "modules/blocks.py: OrthogonalBlocks.__init__",
    "modules/rnn.py: OrthogonalRNN.__init__",
    "kernels/functional.py: dense_rnn",
    "kernels/functional.py: compact_wy_rnn",
    "kernels/functional.py: rotations_rnn",
    "kernels/operator_rnn.py: operator_rnn",
    "kernels/reflections/functional.py: reflection_rnn",
    "modules/reflections.py: ReflectionRNN.__init__",
    "modules/delta.py: DeltaRNN.__init__",
}

Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda


def parameters(function: Function, in_class: bool) -> int:
    """Return the number of parameters a caller may pass; ``self`` is none of them."""
    a = function.args
    names = [*a.posonlyargs, *a.args, *a.kwonlyargs, *filter(None, (a.vararg, a.kwarg))]
    return len(names) - (in_class and bool(names) and names[0].arg in ("self", "cls"))


def functions(text: str) -> Iterator[tuple[str, int]]:
    """Yield the qualified name of every function in a module's text, and the number of its parameters."""

    def walk(node: ast.AST, above: str, in_class: bool) -> Iterator[tuple[str, int]]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, Function):
                name = above + getattr(child, "name", "<lambda>")
                yield name, parameters(child, in_class)
                yield from walk(child, f"{name}.", False)
            elif isinstance(child, ast.ClassDef):
                yield from walk(child, f"{above}{child.name}.", True)
            else:
                yield from walk(child, above, in_class)

    yield from walk(ast.parse(text), "", False)


def test_functions_of_the_library_take_at_most_ten_parameters():
    counts = {
        f"{path.relative_to(ROOT).as_posix()}: {name}": count
        for path in ROOT.rglob("*.py")
        if "learn" not in path.relative_to(ROOT).parts
        for name, count in functions(path.read_text(encoding="utf-8"))
    }
    assert len(counts) > 500
    long = {name for name, count in counts.items() if count > MOST}
    new = [f"{name} ({counts[name]})" for name in sorted(long - PUBLIC)]
    assert not new, f"Expected at most {MOST} parameters, but got {', '.join(new)}. Group those that go together."
    assert long == PUBLIC, f"Expected the list of exceptions to hold only long signatures; remove {PUBLIC - long}."


def test_parameters_of_every_sort_are_counted():
    text = """
class A:
    def method(self, a, /, b, *rest, c=1, **options):
        return lambda self, x: x
    @classmethod
    def make(cls, a): ...
def function(self, a): ...
"""
    assert dict(functions(text)) == {"A.method": 5, "A.method.<lambda>": 2, "A.make": 1, "function": 2}
