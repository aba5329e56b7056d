"""A run directory.

config.json          the whole description of the run; reads back as the same RunConfig
environment.json     what it began on: versions, commit, processor, threads
description.json     what the network reads and says: sizes, scaling, vocabulary, labels; see description.py
metrics.jsonl        records, appended as the run goes
checkpoints/         the last few states and the best one; see checkpoint.py
model.safetensors    the weights at the end
result.json          what the run came to
.lock                held by the process that writes
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

from ..errors import ArgumentError, CheckpointError, OrthornnError
from .checkpoint import WEIGHTS, Checkpoints, save_tensors
from .config import RunConfig
from .files import write_atomically
from .lock import Lock
from .log import MetricsLog

CONFIG, METRICS, RESULT, DESCRIPTION = "config.json", "metrics.jsonl", "result.json", "description.json"


class RunDirectory:
    """A run directory that this process writes; made by `create` or `open`."""

    def __init__(self, path: Path, lock: Lock) -> None:
        self.path = path
        self.log = MetricsLog(path / METRICS)
        self.checkpoints = Checkpoints(path / "checkpoints")
        self._lock = lock

    @classmethod
    def create(cls, path: Path, config: RunConfig, description: dict[str, Any]) -> RunDirectory:
        """Make the folder and write config.json, environment.json and description.json.

        ArgumentError if a run is there already, LockedError if one is just being made.
        """
        if (path / CONFIG).exists():
            raise ArgumentError(
                f"{path} already holds a run. Choose another directory, or go on with it: "
                f"orthornn train --resume {path}."
            )
        try:
            path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ArgumentError(f"cannot make the run directory {path}: {error.strerror}.") from error
        lock = Lock(path / ".lock")
        try:
            if (path / CONFIG).exists():
                raise ArgumentError(f"{path} already holds a run. Choose another directory, or remove it.")
            # config.json comes last: with it, the folder is a run
            write_json(path / "environment.json", environment())
            write_json(path / DESCRIPTION, description)
            write_json(path / CONFIG, config.to_dict())
            return cls(path, lock)
        except OSError as error:
            lock.release()
            if isinstance(error, OrthornnError):
                raise
            raise CheckpointError(f"{path} cannot be written: {error.strerror or error}.") from error
        except BaseException:
            lock.release()
            raise

    @classmethod
    def open(cls, path: Path) -> RunDirectory:
        """Open a run to go on with it. ArgumentError if there is none, LockedError if another process writes it."""
        if not (path / CONFIG).exists():
            raise ArgumentError(f"{path} holds no run: there is no {path / CONFIG}.")
        lock = Lock(path / ".lock")
        try:
            return cls(path, lock)
        except BaseException:
            lock.release()
            raise

    def write_weights(self, state: dict[str, Any]) -> None:
        """Write model.safetensors, whole or not at all."""
        tensors = {name: value.detach().contiguous() for name, value in state.items() if isinstance(value, Tensor)}
        content = save_tensors(tensors)
        write_atomically(self.path / WEIGHTS, lambda file: file.write(content))

    def close(self) -> None:
        """Close the log and let others write."""
        self.log.close()
        self._lock.release()


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


def write_json(path: Path, content: dict[str, Any]) -> None:
    """Write a JSON file, whole or not at all."""
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
