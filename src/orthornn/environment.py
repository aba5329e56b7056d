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


def environment(device: str = "cpu") -> dict[str, Any]:
    """Return what this process runs on. BackendError if ORTHORNN_ISA names no instruction set that is there.

    device: where it computes; only on a GPU is there its name, as "gpu".
    """
    build = extension.build()
    return {
        "started": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "command": sys.argv,
        "python": platform.python_version(),
        "orthornn": _version("orthornn"),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "commit": _commit(),
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


def _commit() -> str | None:
    """Return the commit of the source tree this package is imported from; None for an installed package."""
    source = Path(__file__).resolve().parents[2]
    if not (source / ".git").exists():
        return None
    try:
        answer = subprocess.run(
            ["git", "-C", str(source), "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"],
            capture_output=True,
            text=True,
            timeout=10,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return answer.stdout.strip() or None


def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()
