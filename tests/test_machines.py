"""The command that runs the tests under other machines' variables reports what failed under which."""

from __future__ import annotations

import pytest

import machines

PROBE = """
import os, signal
def test_variable(): assert os.environ.get("MKL_CBWR") != "COMPATIBLE"
def test_signal(): assert signal.getsignal(signal.SIGINT) is not signal.SIG_IGN
"""


@pytest.mark.parametrize(
    ("last", "expected"),
    [
        ("2 failed, 11 passed, 3 skipped, 1 error in 0.2s", {"failed": 2, "passed": 11, "skipped": 3, "errors": 1}),
        ("= 7 passed, 4 deselected, 2 errors in 3.0s =", {"passed": 7, "errors": 2}),
        ("", {}),
    ],
)
def test_counts(last, expected):
    assert machines.counts(f"one line\n{last}\n" if last else "") == expected


def test_a_failure_is_shown_under_its_configuration(tmp_path, capsys):
    (tmp_path / "test_probe.py").write_text(PROBE)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    names = ["as it is", "BLAS compatible", "SIGINT ignored"]
    words = [word for name in names for word in ("--only", name)]
    assert machines.main([*words, "-c", str(tmp_path / "pytest.ini"), str(tmp_path)]) == 1
    lines = capsys.readouterr().out.splitlines()
    rows = [line for line in lines if line.startswith(tuple(names))]
    assert [row[24:].split()[:4] for row in rows] == [["2", "0", "0", "0"], ["1", "1", "0", "0"], ["1", "1", "0", "0"]]
    failed = [line.strip().split()[1].split("::")[1] for line in lines if line.startswith("  FAILED")]
    assert failed == ["test_variable", "test_signal"]
