"""The environment that results record: each names the commit whose code made it, and that code was as committed."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path

import pytest

from orthornn.environment import commit

RESULTS = Path(__file__).parents[1] / "results"
# Until they are measured again. A file that is mended comes off the list, which may have no more than what is so.
WITHOUT_A_COMMIT = (
    "amplifier.json",
    "exact-machines/proofs/*.json",  # of tables: nothing is measured
    "demo/learning_rates.json",
    "gpu/*.json",
    "group-words/*.json",
    "own-data/*.json",
    "leaderboard/published/*.json",  # of others
    "popgym/published.json",
)
FROM_CHANGED_CODE = (
    "bench/million-steps.json",
    "bench/reflections.json",
    "bench/resets.json",
    "bench/usual-calls.json",
    "examples.json",
    "helfrich2018/figure2/full.json",  # two of its runs
    "helfrich2018/table2/full.json",
    "helfrich2018/table3/laptop.json",
    "leaderboard/pixel-mnist.json",
    "leaderboard/pixel-mnist-permuted.json",
    "mhammedi2017/feed-forward/laptop.json",
    "mhammedi2017/fig2/full.json",
    "mhammedi2017/fig3/full.json",
    "mhammedi2017/table4/full.json",
    "vorontsov2017/figure2/full.json",
    "vorontsov2017/figure3/full.json",
    "vorontsov2017/figure4/full.json",
    "vorontsov2017/figure5/full.json",
)


def commits(content: object) -> Iterator[str | None]:
    """Yield every entry called "commit" in a JSON value."""
    if isinstance(content, dict):
        for key, value in content.items():
            if key == "commit" and (value is None or isinstance(value, str)):
                yield value
            else:
                yield from commits(value)
    elif isinstance(content, list):
        for value in content:
            yield from commits(value)


def test_every_result_is_of_a_commit():
    without, changed = set(), set()
    for path in sorted(RESULTS.rglob("*.json")):
        found = list(commits(json.loads(path.read_text(encoding="utf-8"))))
        name = path.relative_to(RESULTS).as_posix()
        if not found:
            without.add(name)
        elif not all(one is not None and re.fullmatch("[0-9a-f]{40}", one) for one in found):
            changed.add(name)
    for names, known in ((without, WITHOUT_A_COMMIT), (changed, FROM_CHANGED_CODE)):
        assert {name for name in names if not any(fnmatch(name, pattern) for pattern in known)} == set()
        assert {pattern for pattern in known if not any(fnmatch(name, pattern) for name in names)} == set()


@pytest.mark.skipif(shutil.which("git") is None, reason="no git")
def test_results_and_pages_do_not_change_the_code(tmp_path):
    def git(*words):
        who = ("-c", "user.name=a", "-c", "user.email=a@b")
        done = subprocess.run(["git", "-C", str(tmp_path), *who, *words], check=True, capture_output=True, text=True)
        return done.stdout.strip()

    assert commit(tmp_path) is None
    git("init", "-q")
    assert commit(tmp_path) is None  # nothing is committed
    for name in ("src/code.py", "results/a.json", "docs/page.md", "README.md"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("1\n")
    git("add", "-A")
    git("commit", "-qm", "first")
    head = git("rev-parse", "HEAD")
    assert commit(tmp_path) == head
    for name in ("results/a.json", "docs/page.md", "README.md"):
        (tmp_path / name).write_text("2\n")
    (tmp_path / "results" / "new.json").write_text("3\n")
    assert commit(tmp_path) == head
    (tmp_path / "src" / "code.py").write_text("2\n")
    assert commit(tmp_path) == f"{head}-dirty"
    git("add", "-A")
    assert commit(tmp_path) == f"{head}-dirty"
    git("commit", "-qm", "second")
    assert commit(tmp_path) == git("rev-parse", "HEAD") != head
