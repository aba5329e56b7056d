"""The versions that pyproject.toml declares are those that `make test-versions` tests."""

from __future__ import annotations

import re

import orthornn
import versions

DECLARED = (versions.ROOT / "pyproject.toml").read_text()


def floor_of(package: str) -> str:
    found = re.search(rf'^dependencies = .*"{package}>=([\d.]+)"', DECLARED, re.MULTILINE)
    assert found is not None, f"{package} has no floor"
    return found[1]


def numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))


def test_the_oldest_combination_is_the_declared_floor():
    oldest = versions.MATRIX[0]
    assert oldest.numpy is not None
    assert f'requires-python = ">={oldest.python}"' in DECLARED
    assert numbers(oldest.torch) == (*numbers(floor_of("torch")), 0)
    assert numbers(oldest.numpy)[:2] == numbers(floor_of("numpy"))[:2]


def test_newer_combinations_follow_and_every_declared_python_is_among_them():
    keys = [(numbers(each.python), numbers(each.torch)) for each in versions.MATRIX]
    assert keys == sorted(keys)
    declared = re.findall(r"Programming Language :: Python :: (3\.\d+)", DECLARED)
    assert [each.python for each in versions.MATRIX] == declared


def test_the_core_tests_exist():
    assert [path for path in versions.CORE if not (versions.ROOT / path).exists()] == []


def test_outcomes_are_counted(tmp_path):
    report = tmp_path / "report.xml"
    report.write_text(
        '<testsuites><testsuite><testcase classname="a" name="passes"/>'
        '<testcase classname="a" name="fails"><failure/></testcase><testcase classname="b" name="breaks"><error/></testcase>'
        '<testcase classname="c" name="waits"><skipped/></testcase></testsuite></testsuites>'
    )
    assert versions.counted(report) == versions.Outcome(1, 2, 1, ("a::fails", "b::breaks"))


def test_a_python_that_is_not_installed_is_reported(tmp_path):
    outcome = versions.tested(versions.Versions("3.99", "2.6.0"), tmp_path, [])
    assert outcome == versions.Outcome(problem="no python3.99 on this machine")


def test_what_cannot_be_installed_is_reported(tmp_path, monkeypatch):
    python = f"{versions.sys.version_info.major}.{versions.sys.version_info.minor}"
    environment = tmp_path / str(versions.Versions(python, "0.0.1")) / "bin"
    environment.mkdir(parents=True)
    pip = environment / "python"
    pip.write_text("#!/bin/sh\necho 'ERROR: No matching distribution found for torch==0.0.1' >&2; exit 1\n")
    pip.chmod(0o755)
    monkeypatch.setattr(versions, "interpreter", lambda version: str(pip))
    outcome = versions.tested(versions.Versions(python, "0.0.1"), tmp_path, [])
    assert outcome.problem == "not installed: ERROR: No matching distribution found for torch==0.0.1"
    monkeypatch.setattr(versions, "MATRIX", [versions.Versions(python, "0.0.1")])
    monkeypatch.setattr(versions.sys, "argv", ["versions.py", str(tmp_path)])
    assert versions.main() == 1


def test_the_citation_names_the_version_of_the_package():
    """The version is written in src/orthornn/__init__.py; the build reads it there, and a citation cannot."""
    assert f"\nversion: {orthornn.__version__}\n" in (versions.ROOT / "CITATION.cff").read_text()
    assert 'dynamic = ["version"]' in DECLARED
    assert not re.search(r"^version *=", DECLARED, re.MULTILINE)
