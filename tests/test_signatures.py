"""No function of the library takes more than ten parameters, except the listed ones, which users call with keywords.

No class of `learn` has more than fifteen public attributes next to its options, or more than five bases.
"""

from __future__ import annotations

import ast
import dataclasses
import importlib
import inspect
import pkgutil
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

import orthornn
from orthornn import learn
from orthornn.learn.tasks import Task

pytestmark = pytest.mark.source


ROOT = Path(orthornn.__file__).parent
MOST = 10
# What a user calls: flat keyword arguments with defaults, as torch's layers have.
PUBLIC = {
    "sklearn/classifier.py: OrthogonalClassifier.__init__",
    "sklearn/estimator.py: SequenceEstimator.__init__",
    "export/c/__init__.py: to_c",
    "integrations/sb3.py: MlpOrthogonalPolicy.__init__",
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
MOST_ATTRIBUTES = 15
MOST_BASES = 5

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


def public_attributes(kind: type) -> set[str]:
    """Return the names that a class of `learn` and its bases there define, or set on an instance; of a dataclass none of
    its fields, which are its options, or the parts of a value.
    """
    found: set[str] = set()
    for owner in kind.__mro__:
        if owner.__module__.startswith(learn.__name__):
            text = textwrap.dedent(inspect.getsource(owner))
            written = (node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Attribute))
            found |= {
                node.attr for node in written if isinstance(node.ctx, ast.Store) and ast.unparse(node.value) == "self"
            }
            found |= {*vars(owner), *vars(owner).get("__annotations__", {})}
    fields = {field.name for field in dataclasses.fields(kind)} if dataclasses.is_dataclass(kind) else set()
    return {name for name in found if not name.startswith("_")} - fields


def classes_of_learn() -> Iterator[type]:
    for found in pkgutil.walk_packages(learn.__path__, f"{learn.__name__}."):
        module = importlib.import_module(found.name)
        yield from (kind for kind in vars(module).values() if inspect.isclass(kind) and kind.__module__ == found.name)


def test_classes_of_learn_have_at_most_fifteen_attributes_and_five_bases():
    kinds = list(classes_of_learn())
    assert len(kinds) > 100
    deep = {kind.__name__ for kind in kinds if len(kind.__mro__) - 2 > MOST_BASES}
    assert not deep, (
        f"Expected at most {MOST_BASES} bases, but {', '.join(sorted(deep))} has more. Return values instead."
    )
    new = sorted(kind.__name__ for kind in kinds if len(public_attributes(kind)) > MOST_ATTRIBUTES)
    assert not new, f"Expected at most {MOST_ATTRIBUTES} public attributes, but {', '.join(new)} has more. Divide it."


def test_attributes_of_every_sort_are_counted():
    assert {"columns", "rows", "numbers"} & public_attributes(learn.files.columns.Table) == {"rows", "numbers"}
    assert {"model", "update"} <= public_attributes(learn.training.Trainer)
    assert {"problem", "objective", "metric", "name"} <= public_attributes(Task)
