"""The tests' tree is the source's: the tests of src/orthornn/a/b.py are in tests/a/test_b.py."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

pytestmark = pytest.mark.source


TESTS = Path(__file__).parent
SOURCE = TESTS.parent / "src" / "orthornn"
EVIDENCE = TESTS.parent / "evidence"
TREES = {TESTS: SOURCE, EVIDENCE / "tests": EVIDENCE / "src" / "orthornn_evidence"}

# Laws that hold of a whole folder, of the project, or of the package as a stranger sees it.
LAWS = {
    "evidence/tests/files/test_download_http.py",
    "evidence/tests/papers/test_answers.py",
    "evidence/tests/papers/test_smoke.py",
    "evidence/tests/test_predict.py",
    "test_docs.py",
    "test_examples.py",
    "test_imports.py",
    "test_machines.py",
    "test_orthornn_command.py",
    "test_other_systems.py",
    "test_plain_markdown.py",
    "test_prose.py",
    "test_readme.py",
    "test_signatures.py",
    "test_site.py",
    "test_tree.py",
    "test_typing.py",
    "test_versions.py",
    "test_without_extras.py",
    "test_wrong_calls.py",
    "export/test_c_block_integers.py",
    "export/test_c_blocks.py",
    "export/test_c_integers.py",
    "export/test_c_on_devices.py",
    "external/test_orthogonal_weights.py",
    "external/test_recurrent_modules.py",
    "kernels/test_bfloat16.py",
    "kernels/test_boundary.py",
    "kernels/test_conformance.py",
    "kernels/test_oplu.py",
    "kernels/test_resets.py",
    "cli/test_hostile_runs.py",
    "learn/test_old_runs.py",
    "learn/files/test_every_reader.py",
    "learn/systems/test_same_networks.py",
    "learn/tasks/test_hostile_data.py",
    "learn/tasks/test_read_once.py",
    "learn/runs/test_flipped_bits.py",
    "learn/runs/test_kill.py",
    "learn/runs/test_kill_at_operations.py",
    "learn/runs/test_resume.py",
    "learn/runs/test_test_records.py",
    "learn/runs/test_threats.py",
    "modules/test_against_torch_rnn.py",
    "modules/test_as_a_torch_module.py",
    "modules/test_continuity.py",
    "modules/test_first_defaults.py",
    "modules/test_conformance.py",
    "modules/test_irregular_time.py",
    "modules/test_linear_transition.py",
    "modules/test_memory.py",
    "modules/test_old_state_dicts.py",
    "modules/test_torch_tools.py",
    "optim/test_optimizers.py",
    "parametrizations/test_conformance.py",
    "parametrizations/test_methods_table.py",
}
# Folders that hold no tests of a folder of the source: helpers, stored files, and the package seen from outside.
OTHER_FOLDERS = {"support", "fixtures", "typing", "external"}


def counterparts(tests: Path, test: Path) -> list[Path]:
    """Return the module, the private module, the package and the folder that a test file can be named for."""
    folder, name = TREES[tests] / test.parent, test.stem.removeprefix("test_")
    return [folder / f"{name}.py", folder / f"_{name}.py", folder / name / "__init__.py"]


def test_every_test_file_is_named_for_what_it_tests():
    files = {
        (path.relative_to(TESTS if tests == TESTS else TESTS.parent).as_posix()): (tests, path.relative_to(tests))
        for tests in TREES
        for path in tests.rglob("test_*.py")
    }
    assert len(files) > 90
    stray = [
        name
        for name, (tests, test) in sorted(files.items())
        if name not in LAWS
        and not any(path.exists() for path in counterparts(tests, test))
        and test.stem != f"test_{test.parent.name}"  # of a package as a whole
    ]
    assert not stray, f"Expected test files named for a module, but got {', '.join(stray)}. Rename or add to LAWS."
    gone = LAWS - files.keys()
    named = {law for law in LAWS - gone if any(path.exists() for path in counterparts(*files[law]))}
    assert not gone | named, f"Expected LAWS to list what has no module; remove {', '.join(sorted(gone | named))}."


def test_every_folder_of_tests_is_a_folder_of_the_source():
    for tests, source in TREES.items():
        folders = {path.parent.relative_to(tests) for path in tests.rglob("*.py")}
        stray = [f for f in folders if not OTHER_FOLDERS & set(f.parts) and not (source / f / "__init__.py").exists()]
        assert not stray, f"Expected folders of the source, but got {', '.join(map(str, stray))}."


def test_helpers_are_one_package():
    others = {path.relative_to(TESTS).as_posix() for path in TESTS.glob("*.py") if not path.name.startswith("test_")}
    assert others == {"conftest.py", "golden_bits.py", "machines.py", "versions.py"}  # commands, but for the first


def test_files_that_the_source_names_exist():
    """A path with a folder in it, from the root of the project or the package, or from the file's own folder up."""
    root = TESTS.parent
    missing = []
    for kind in ("*.py", "*.md", "*.hpp", "*.cpp", "*.cu"):
        for path in (*SOURCE.rglob(kind), *TREES[EVIDENCE / "tests"].rglob(kind), *(root / "csrc").rglob(kind)):
            folders = [root, *path.parents]
            for name in re.findall(
                r"(?<![\w/.{<])(?:\.\./|[\w-]+/)+[\w-]+\.(?:md|py|hpp|cpp|cu)\b", path.read_text("utf-8")
            ):
                if not any((folder / name).exists() for folder in folders[: 1 + len(path.relative_to(root).parents)]):
                    missing.append(f"{path.relative_to(root)}: {name}")
    assert not missing
