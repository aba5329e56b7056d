"""No modules of the package import each other in a circle, and importing the library loads nothing else."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

import orthornn

pytestmark = pytest.mark.source


ROOT = Path(orthornn.__file__).parent
EVIDENCE = ROOT.parents[1] / "evidence" / "src" / "orthornn_evidence"

# Circles that are being removed. The set may only shrink: remove a line as soon as its circle is gone.
KNOWN: set[tuple[str, ...]] = set()
# An import inside a function counts, because the two modules still cannot be understood apart; so does one under
# TYPE_CHECKING. The exceptions are the two doors from the library to the workbench.
LAZY = {("orthornn", "orthornn.learn.predict"), ("orthornn", "orthornn.learn.from_python")}
# The files of a network name one of the systems and its options, and nothing else of the workbench.
SYSTEMS = {
    ("orthornn.saved.config_file", "orthornn.learn.fields"),
    ("orthornn.saved.config_file", "orthornn.learn.systems"),
    ("orthornn.saved.network", "orthornn.learn.systems"),
    ("orthornn.saved.network", "orthornn.learn.systems.build"),
    ("orthornn.saved.sizes", "orthornn.learn.systems"),
    ("orthornn.saved.sizes", "orthornn.learn.systems.pooling"),
}


def module_name(path: Path, root: Path) -> str:
    parts = path.relative_to(root.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def import_graph(root: Path) -> dict[str, set[str]]:
    """Which modules of the package at `root` each of its modules imports, anywhere in its text.

    `from .a import b` is an import of a.b if that is a module, else of a. The parents that Python runs on the way are
    not counted.
    """
    files = {module_name(path, root): path for path in root.rglob("*.py")}
    graph: dict[str, set[str]] = {}
    for name, path in files.items():
        package = name if path.name == "__init__.py" else name.rpartition(".")[0]
        found: set[str] = set()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                found |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
                base = ".".join([*above, *([node.module] if node.module else [])])
                found |= {f"{base}.{alias.name}" if f"{base}.{alias.name}" in files else base for alias in node.names}
        graph[name] = {other for other in found & set(files) if other != name}
    return graph


def circles(graph: dict[str, set[str]]) -> set[frozenset[str]]:
    """The sets of modules each of which reaches all others of its set."""

    def reachable(start: str) -> set[str]:
        seen: set[str] = set()
        waiting = [start]
        while waiting:
            for other in graph.get(waiting.pop(), ()):
                if other not in seen:
                    seen.add(other)
                    waiting.append(other)
        return seen

    reached = {name: reachable(name) for name in graph}
    return {
        frozenset(other for other in reached[name] if name in reached.get(other, ()))
        for name in graph
        if name in reached[name]
    }


def own_graph(root: Path) -> dict[str, set[str]]:
    return {name: {other for other in found if (name, other) not in LAZY} for name, found in import_graph(root).items()}


def test_no_circle_is_added_and_those_that_are_gone_are_not_listed():
    found = circles(own_graph(ROOT)) | circles(own_graph(EVIDENCE))
    listed = {frozenset(names) for names in KNOWN}
    new = ["; ".join(sorted(names)) for names in found if not any(names <= known for known in listed)]
    assert not new, f"Expected no import circle, but got {' and '.join(new)}. Import in one direction."
    gone = ["; ".join(sorted(known)) for known in listed if known not in found]
    assert not gone, f"This circle is gone or smaller; shorten KNOWN: {' and '.join(gone)}."


def test_the_library_reaches_the_workbench_by_its_doors_only():
    doors = {
        (name, other)
        for name, found in import_graph(ROOT).items()
        for other in found
        if f"{other}.".startswith("orthornn.learn.")
        and not f"{name}.".startswith(("orthornn.learn.", "orthornn.cli."))
        and not f"{name}.".startswith("orthornn.sklearn.")  # above the workbench; nothing imports it
    }
    assert doors == {*LAZY, *SYSTEMS}


def test_neither_the_package_nor_its_tests_import_the_evidence():
    """It is found by its entry points, if it is installed."""
    folders = [ROOT, ROOT.parent / "orthornn_command", ROOT.parents[1] / "tests"]
    files = [path for folder in folders for path in folder.rglob("*.py")]
    imports = re.compile(r"^\s*(?:from|import) orthornn_evidence\b", re.MULTILINE)
    assert not [path for path in files if imports.search(path.read_text(encoding="utf-8"))]
    assert imports.search((EVIDENCE.parents[1] / "tests" / "test_leaderboard.py").read_text(encoding="utf-8"))


UNDER_TYPE_CHECKING = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import made.b"
PACKAGE = {
    "a/__init__": "from .b import x",
    "a/b": "from . import c\nx = 1",
    "a/c": "from ..d import y",
    "d": "from .a import x",
}
TWO = {
    "a": "from .b import x",
    "b": "from .c import x",
    "c": "from .a import x",
    "d": "from . import e",
    "e": "from .d import z",
}


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"a": "from . import b", "b": "from .c import x", "c": "x = 1"}, set()),
        ({"a": "from . import b", "b": "def f():\n    from .a import x"}, {"made.a made.b"}),
        ({"a": UNDER_TYPE_CHECKING, "b": "import made.a"}, {"made.a made.b"}),
        (PACKAGE, {"made.a made.a.b made.a.c made.d"}),
        (TWO, {"made.a made.b made.c", "made.d made.e"}),
        ({"a/__init__": "", "a/b": "from . import c", "a/c": "from .. import a"}, set()),
    ],
)
def test_circles_are_found(files, expected, tmp_path):
    root = tmp_path / "made"
    for name, text in {"__init__": "", **files}.items():
        (root / f"{name}.py").parent.mkdir(parents=True, exist_ok=True)
        (root / f"{name}.py").write_text(text)
    assert {" ".join(sorted(names)) for names in circles(import_graph(root))} == expected


def test_submodules_that_messages_name_are_imported_when_they_are_first_asked_for():
    names = ["automata", "certify", "diagnostics", "export", "optim", "penalties"]
    code = f"import orthornn, sys; print([n for n in {names} if 'orthornn.' + n in sys.modules])\n"
    code += f"print([getattr(orthornn, n).__name__ for n in {names}], orthornn.optim.CayleySGD.__name__)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["[]", f"{[f'orthornn.{name}' for name in names]} CayleySGD"]
    assert {*names} <= {*orthornn.__all__}


def test_importing_the_library_loads_neither_the_workbench_nor_an_extra():
    code = "import orthornn, orthornn.optim, orthornn.export, orthornn.doctor, sys, json; print(json.dumps([*sys.modules]))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    extras = {"rich", "matplotlib", "safetensors", "onnx", "onnxruntime", "onnxscript", "scipy", "pyarrow"}
    extras |= {"sklearn", "narwhals", "pandas"}
    assert not set(json.loads(done.stdout)) & {*extras, "orthornn.learn", "orthornn.sklearn"}
