"""Run the core tests on every supported generation of Python and torch: `python tests/versions.py [FOLDER] [--only 3.10]`.

Needs only the standard library. Each combination gets a virtual environment of its own under FOLDER (default
build/versions), which is reused by the next run; the package is built and installed anew. pip reads its usual
configuration: point it at an index with CPU builds of torch to save gigabytes of GPU libraries.
"""

from __future__ import annotations

import argparse
import os
import pathlib
import shutil
import subprocess
import sys
import time
import xml.etree.ElementTree
from typing import NamedTuple

ROOT = pathlib.Path(__file__).parent.parent


class Versions(NamedTuple):
    """A combination to test. numpy: None for the newest that the index offers."""

    python: str
    torch: str
    numpy: str | None = None

    def __str__(self) -> str:
        return f"py{self.python.replace('.', '')}-torch{self.torch}"


# Oldest first: its torch, Python and NumPy are the floors of pyproject.toml (tests/test_versions.py compares them).
# `make test` covers the pin of constraints.txt in between. Those in the middle have a NumPy in between, too.
MATRIX = (
    Versions("3.10", "2.6.0", "1.24.0"),
    Versions("3.11", "2.8.0", "2.3.5"),
    Versions("3.12", "2.9.1", "2.3.5"),
    Versions("3.13", "2.15.0"),
)
EXTRAS = "cli,export"
REQUIREMENTS = ("pytest>=8", "pytest-xdist>=3.6", "hypothesis>=6.100", "scipy>=1.11", "geoopt>=0.5")
CORE = (
    "tests/kernels",
    "tests/modules",
    "tests/parametrizations",
    "tests/optim",
    "tests/test_activations.py",
    "tests/test_compact_wy.py",
    "tests/test_diagnostics.py",
    "tests/test_penalties.py",
    "tests/export",
)


class Outcome(NamedTuple):
    """The counts of one run of pytest, or why there are none."""

    passed: int = 0
    failed: int = 0
    skipped: int = 0
    failures: tuple[str, ...] = ()
    problem: str = ""


def interpreter(version: str) -> str | None:
    """Return the path of a working Python of this version (on PATH, or installed by pyenv), or None."""
    home = pathlib.Path(os.environ.get("PYENV_ROOT", pathlib.Path.home() / ".pyenv"))
    found = [shutil.which(f"python{version}"), *sorted(map(str, home.glob(f"versions/{version}.*/bin/python")))]
    query = "import sys; print('%d.%d' % sys.version_info[:2])"
    for path in filter(None, found):
        done = subprocess.run([path, "-c", query], capture_output=True, text=True, check=False)
        if done.returncode == 0 and done.stdout.strip() == version:
            return path
    return None


def installed(versions: Versions, python: str, folder: pathlib.Path) -> tuple[pathlib.Path, str]:
    """Return the environment's Python with everything installed, and what went wrong, if anything did."""
    environment = folder / str(versions)
    own = environment / "bin" / "python"
    pip = [str(own), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    torch = f"torch=={versions.torch}"
    numpy = "numpy" if versions.numpy is None else f"numpy=={versions.numpy}"
    commands = [
        *([] if own.exists() else [[python, "-m", "venv", str(environment)]]),
        # In one command, so that pip keeps the versions asked for while it installs the rest.
        [*pip, torch, numpy, *REQUIREMENTS, f"{ROOT}[{EXTRAS}]"],
    ]
    for command in commands:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            lines = [line for line in done.stderr.splitlines() if line.startswith("ERROR")] or [done.stderr[-300:]]
            return own, f"not installed: {lines[-1]}"
    return own, ""


def counted(report: pathlib.Path) -> Outcome:
    """Read the counts from pytest's JUnit report."""
    cases = xml.etree.ElementTree.parse(report).getroot().findall(".//testcase")
    skipped = [case for case in cases if case.find("skipped") is not None]
    failed = [case for case in cases if case.find("failure") is not None or case.find("error") is not None]
    names = tuple(f"{case.get('classname')}::{case.get('name')}" for case in failed)
    return Outcome(len(cases) - len(skipped) - len(failed), len(failed), len(skipped), names)


def tested(versions: Versions, folder: pathlib.Path, tests: list[str]) -> Outcome:
    """Install a combination and run the tests in it."""
    python = interpreter(versions.python)
    if python is None:
        return Outcome(problem=f"no python{versions.python} on this machine")
    own, problem = installed(versions, python, folder)
    if problem:
        return Outcome(problem=problem)
    report = folder / f"{versions}.xml"
    report.unlink(missing_ok=True)
    chosen = ["-p", "no:cacheprovider", "-n", "auto", "-q"]
    with (folder / f"{versions}.log").open("w") as log:
        subprocess.run(
            [str(own), "-m", "pytest", *chosen, f"--junitxml={report}", *tests],
            cwd=ROOT,
            env=os.environ | {"OMP_NUM_THREADS": "1"},
            stdout=log,
            stderr=subprocess.STDOUT,
            check=False,
        )
    if not report.exists():
        return Outcome(problem=f"pytest wrote no report; see {log.name}")
    outcome = counted(report)
    return outcome if outcome.passed else outcome._replace(problem=f"no test passed; see {log.name}")


def main() -> int:
    """Test the combinations, print one line for each, and return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("folder", nargs="?", type=pathlib.Path, default=ROOT / "build" / "versions")
    parser.add_argument("--only", metavar="PYTHON", help="test only the combination with this Python, such as 3.10")
    parser.add_argument("--tests", nargs="+", default=list(CORE), help="test these files in place of the core tests")
    arguments = parser.parse_args()
    folder = arguments.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    chosen = [versions for versions in MATRIX if arguments.only in (None, versions.python)]
    if not chosen:
        known = ", ".join(versions.python for versions in MATRIX)
        parser.error(f"Expected --only to be one of {known}, but got {arguments.only}.")
    outcomes = []
    print(f"{'python':8}{'torch':9}{'numpy':9}{'passed':>8}{'failed':>8}{'skipped':>9}{'minutes':>9}", flush=True)
    for versions in chosen:
        start = time.monotonic()
        outcome = tested(versions, folder, arguments.tests)
        outcomes.append(outcome)
        print(
            f"{versions.python:8}{versions.torch:9}{versions.numpy or 'newest':9}"
            f"{outcome.passed:8}{outcome.failed:8}{outcome.skipped:9}{(time.monotonic() - start) / 60:9.1f}"
            f"  {outcome.problem}".rstrip(),
            flush=True,
        )
        for name in outcome.failures:
            print(f"    {name}")
    missing = [outcome for outcome in outcomes if outcome.problem.startswith("no python")]
    broken = [outcome for outcome in outcomes if outcome.failed or (outcome.problem and outcome not in missing)]
    return 1 if broken or len(missing) == len(outcomes) else 0


if __name__ == "__main__":
    sys.exit(main())
