"""The environment of a process: versions, commit, processor, threads, GPU."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from datetime import datetime, timezone
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import torch

from .kernels.backends.cpp import extension

_SOURCE = Path(__file__).resolve().parents[2]
# What measurements write, and the pages that show it: a result does not depend on it, but changes it.
_NO_CODE = tuple(f":(exclude){name}" for name in ("results", "docs", "README.md", "CHANGELOG.md"))


def environment(device: str = "cpu") -> dict[str, Any]:
    """Return what this process runs on. Raise BackendError if ORTHORNN_ISA names an unavailable instruction set.

    device: Device of the computation; the entry "gpu" with its name exists only for a GPU.
    """
    build = extension.build()
    return {
        "started": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "command": sys.argv,
        "python": platform.python_version(),
        "orthornn": _version("orthornn"),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "commit": commit(),
        "platform": platform.platform(),
        "processor": _processor(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "instruction_set": None if build is None else build.isa,
        "torch_instruction_set": torch.backends.cpu.get_cpu_capability(),
        **({} if device == "cpu" else {"gpu": torch.cuda.get_device_name(device)}),
    }


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def commit(source: Path = _SOURCE) -> str | None:
    """Return the commit of a source tree, with "-dirty" if its code is modified; None if there is none.

    source: Default: the tree that this package is imported from; an installed package has none.
    """
    if not (source / ".git").exists():
        return None
    head = _git(source, "rev-parse", "--verify", "HEAD")
    changed = _git(source, "status", "--porcelain", "--untracked-files=no", "--", ".", *_NO_CODE)
    return head and (f"{head}-dirty" if changed or changed is None else head)


def _git(source: Path, *words: str) -> str | None:
    """Return the output of git, or None if it fails."""
    try:
        answer = subprocess.run(
            ["git", "-C", str(source), *words], capture_output=True, text=True, timeout=10, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return answer.stdout.strip() if answer.returncode == 0 else None


def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()
