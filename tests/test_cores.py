"""Cores that a process may use: quotas of both versions of control groups, and torch's threads."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
import torch

from orthornn import cores
from orthornn.cores import limited_threads, usable_cores


@pytest.fixture
def three_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    yield
    torch.set_num_threads(before)


V2 = "31 24 0:28 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n"
V1 = "32 31 0:29 {} /sys/fs/cgroup/cpu,cpuacct rw,relatime - cgroup cgroup rw,cpu,cpuacct\n"
MEMORY = "33 31 0:30 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n"


@pytest.fixture(autouse=True)
def eight_cores(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(8)), raising=False)


def system(root, mounts, groups, **files):
    """A folder with what the kernel shows. files: the quotas, by folder below sys/fs/cgroup, with "__" for "/"."""
    (root / "proc" / "self").mkdir(parents=True)
    (root / "proc" / "self" / "mountinfo").write_text(mounts)
    (root / "proc" / "self" / "cgroup").write_text(groups)
    for name, text in files.items():
        path = root / "sys" / "fs" / "cgroup" / name.replace("__", "/")
        path.mkdir(parents=True, exist_ok=True)
        if " " in text:
            (path / "cpu.max").write_text(text + "\n")
        else:
            quota, period = text.split("/")
            (path / "cpu.cfs_quota_us").write_text(quota + "\n")
            (path / "cpu.cfs_period_us").write_text(period + "\n")
    return root


@pytest.mark.parametrize(
    ("mounts", "groups", "files", "expected"),
    [
        (V2, "0::/\n", {"": "100000 100000"}, 1),
        (V2, "0::/\n", {"": "max 100000"}, 8),
        (V2, "0::/\n", {"": "250000 100000"}, 2),
        (V2, "0::/\n", {"": "30000 100000"}, 1),
        (V2, "0::/\n", {"": "6400000 100000"}, 8),
        (V2, "0::/a/b\n", {"a": "300000 100000", "a__b": "max 100000", "c": "100000 100000"}, 3),
        (V2, "0::/a/b\n", {"a": "500000 100000", "a__b": "400000 100000"}, 4),
        (V2, "0::/\n", {}, 8),
        (V1.format("/"), "2:memory:/x\n1:cpu,cpuacct:/\n", {"cpu,cpuacct": "200000/100000"}, 2),
        (V1.format("/"), "1:cpu,cpuacct:/\n", {"cpu,cpuacct": "-1/100000"}, 8),
        (V1.format("/"), "1:cpu,cpuacct:/docker/7f\n", {"cpu,cpuacct__docker__7f": "150000/50000"}, 3),
        (V1.format("/docker/7f"), "1:cpu,cpuacct:/docker/7f\n", {"cpu,cpuacct": "150000/50000"}, 3),
        (V1.format("/docker/7f"), "1:cpu,cpuacct:/docker/7f/a\n", {"cpu,cpuacct__a": "100000/50000"}, 2),
        (V1.format("/docker/7f"), "1:cpu,cpuacct:/\n", {"cpu,cpuacct": "150000/50000"}, 3),
        (MEMORY + V1.format("/") + V2, "1:cpu,cpuacct:/\n0::/\n", {"cpu,cpuacct": "500000/100000", "": "6 2"}, 3),
        (MEMORY, "2:memory:/\n", {"memory": "100000/100000"}, 8),
        ("nonsense\n- cgroup2\n", "nonsense\n:\n", {"": "100000 100000"}, 8),
        (V2, "0::/\n", {"": "many 100000"}, 8),
        (V2, "0::/\n", {"": "100000 0"}, 8),
    ],
)
def test_quotas(mounts, groups, files, expected, tmp_path):
    assert usable_cores(system(tmp_path, mounts, groups, **files)) == expected


def test_a_system_that_shows_none(tmp_path, monkeypatch):
    assert usable_cores(tmp_path) == 8
    monkeypatch.delattr(os, "sched_getaffinity")
    monkeypatch.setattr(os, "cpu_count", lambda: 5)
    assert usable_cores(tmp_path) == 5
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    assert usable_cores(tmp_path) == 1


def test_the_affinity_counts_where_it_is_less_than_the_quota(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {5, 7}, raising=False)
    assert usable_cores(system(tmp_path, V2, "0::/\n", **{"": "300000 100000"})) == 2


@pytest.mark.parametrize(
    ("usable", "most", "expected"), [(2, None, 2), (2, 1, 1), (64, None, 3), (64, 2, 2), (64, 8, 3)]
)
def test_threads_are_limited_and_come_back(usable, most, expected, monkeypatch, three_threads):
    monkeypatch.setattr(cores, "usable_cores", lambda: usable)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    with limited_threads(most):
        assert torch.get_num_threads() == expected
        torch.set_num_threads(4)
    assert torch.get_num_threads() == 3


def test_the_users_number_of_threads_counts(monkeypatch, three_threads):
    monkeypatch.setattr(cores, "usable_cores", lambda: 1)
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    with limited_threads():
        assert torch.get_num_threads() == 3
    with limited_threads(2):
        assert torch.get_num_threads() == 2


@pytest.mark.source
def test_programs_ask_for_the_cores_that_they_may_use():
    """The number of the machine's cores is for descriptions of the machine, and a bound on what may be asked for."""
    root = Path(__file__).parent.parent
    folders = [root / name for name in ("src", "evidence/src", "benchmarks", "examples", "tests")]
    files = [path for folder in folders for path in folder.rglob("*.py")]
    asking = [path.name for path in files if re.search(r"\bcpu_count\(", path.read_text(encoding="utf-8"))]
    assert sorted(asking) == ["cores.py", "environment.py", "golden_bits.py", "threads.py"]
