"""The cores that a process may use, and the same number of torch threads.

torch takes a thread for every core that the processor has or, with OpenMP, that this process may run on. A container is
often given less by a quota: so much processor time per period on all of the cores together. Threads beyond that wait
for each other, and torch's wait by computing.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath

import torch

_QUOTAS = {"cgroup2": ("cpu.max",), "cgroup": ("cpu.cfs_quota_us", "cpu.cfs_period_us")}
"""The files of a control group that hold its quota and its period, by the type of the file system."""


def usable_cores(root: Path = Path("/")) -> int:
    """Return how many cores this process may use, at least 1: by its affinity, and by the quotas of its control groups.

    Args:
        root: The folder in which proc and the file systems of control groups are looked up. Default: the system's.

    A quota of one and a half cores is one core: a second thread would stand still for half of its time.
    """
    try:
        allowed = len(os.sched_getaffinity(0))  # a cpuset limits it too
    except AttributeError:  # not on this system
        allowed = os.cpu_count() or 1
    return max(1, min([allowed, *map(int, _quotas(root))]))


@contextmanager
def limited_threads(most: int | None = None) -> Iterator[None]:
    """Limit torch's threads to `most` and, unless OMP_NUM_THREADS is set, to the number of usable cores inside the
    context; restore the previous number afterwards.
    """
    before = count = torch.get_num_threads()
    if "OMP_NUM_THREADS" not in os.environ:
        count = min(count, usable_cores())
    if most is not None:
        count = min(count, most)
    if count != before:
        torch.set_num_threads(count)
    try:
        yield
    finally:
        if torch.get_num_threads() != before:
            torch.set_num_threads(before)


def _quotas(root: Path) -> Iterator[float]:
    """Yield the quotas of this process's control groups and of those around them, in cores."""
    groups = _groups(root)
    for kind, of_mount, place in _mounts(root):
        group = groups.get(kind)
        if group is None:
            continue
        # In a container the mount may begin at its own group, while the process's is named from the host's root.
        inside = group.relative_to(of_mount) if group.is_relative_to(of_mount) else PurePosixPath()
        folder = root / place.relative_to("/") / inside
        for each in (folder, *folder.parents[: len(inside.parts)]):
            quota = _quota(each, *_QUOTAS[kind])
            if quota is not None:
                yield quota


def _groups(root: Path) -> dict[str, PurePosixPath]:
    """Return the control group of this process for processor time, by the type of the file system that shows it."""
    found = {}
    for line in _lines(root / "proc" / "self" / "cgroup"):
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if number == "0" and not controllers:
            found["cgroup2"] = PurePosixPath(path)
        elif "cpu" in controllers.split(","):
            found["cgroup"] = PurePosixPath(path)
    return found


def _mounts(root: Path) -> Iterator[tuple[str, PurePosixPath, PurePosixPath]]:
    """Yield the file systems that show quotas: type, the group at which each begins, and its mount point."""
    for line in _lines(root / "proc" / "self" / "mountinfo"):
        own, _, rest = line.partition(" - ")
        fields, kind, options = own.split(), rest.split(" ")[0], rest.split(" ")[-1]
        if len(fields) > 4 and (kind == "cgroup2" or (kind == "cgroup" and "cpu" in options.split(","))):
            yield kind, PurePosixPath(fields[3]), PurePosixPath(fields[4])


def _quota(folder: Path, *files: str) -> float | None:
    """Return the cores that the group in this folder may keep busy; None without a limit."""
    words = [word for name in files for line in _lines(folder / name) for word in line.split()]
    try:
        quota, period = (int(word) for word in words)
    except ValueError:  # "max", or there is no such file
        return None
    return quota / period if quota > 0 and period > 0 else None  # version 1 has -1 for no limit


def _lines(file: Path) -> list[str]:
    try:
        return file.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []
