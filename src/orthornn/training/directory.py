"""A run directory.

config.json        the whole description of the run; reads back as the same RunConfig
environment.json   what it ran on: versions, commit, processor, threads
metrics.jsonl      records, appended as the run goes
model.pt           the weights at the end: a state_dict, read by torch.load(..., weights_only=True)
"""

from __future__ import annotations

import json
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
from torch import Tensor

from ..errors import ArgumentError
from .config import RunConfig
from .files import write_atomically
from .log import MetricsLog


class RunDirectory:
    """Made by `create`; holds the paths and the open log."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.log = MetricsLog(path / "metrics.jsonl")

    @classmethod
    def create(cls, path: Path, config: RunConfig) -> RunDirectory:
        """Make the folder and write config.json and environment.json. ArgumentError if a run is there
        already."""
        if (path / "config.json").exists():
            raise ArgumentError(f"{path} already holds a run. Choose another directory, or remove it.")
        try:
            path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ArgumentError(f"cannot make the run directory {path}: {error.strerror}.") from error
        _write_json(path / "config.json", config.to_dict())
        _write_json(path / "environment.json", environment())
        return cls(path)

    def write_weights(self, state: dict[str, Tensor]) -> None:
        """Write model.pt, whole or not at all."""
        write_atomically(self.path / "model.pt", lambda file: torch.save(state, file))

    def close(self) -> None:
        """Close the log."""
        self.log.close()


def environment() -> dict[str, Any]:
    """What this process runs on."""
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
    }


def _write_json(path: Path, content: dict[str, Any]) -> None:
    text = json.dumps(content, indent=2) + "\n"
    write_atomically(path, lambda file: file.write(text.encode()))


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _commit() -> str | None:
    """The commit of the source tree this package is imported from; None for an installed package."""
    source = Path(__file__).resolve().parents[3]
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
