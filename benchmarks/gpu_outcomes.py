"""A plugin of pytest: appends each test that has run to the file $ORTHORNN_OUTCOMES, one JSON object per line, at once.

So what has passed, and why something failed, is known also when the tests are stopped by a time limit.
"""

from __future__ import annotations

import json
import os

import pytest

MOST_LETTERS = 1500  # of the end of an error


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Note the outcome; workers of pytest-xdist leave it to the process that started them."""
    if "PYTEST_XDIST_WORKER" in os.environ or (report.when != "call" and report.outcome == "passed"):
        return
    text = str(report.longrepr)[-MOST_LETTERS:] if report.outcome == "failed" else ""
    with open(os.environ["ORTHORNN_OUTCOMES"], "a", encoding="utf-8") as file:
        file.write(json.dumps({"name": report.nodeid, "outcome": report.outcome, "text": text}) + "\n")
