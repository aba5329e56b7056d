"""A run directory.

config.json          the whole description of the run; reads back as the same RunConfig
environment.json     what it began on: versions, commit, processor, instruction set, threads, GPU
description.json     the inputs and outputs of the network: sizes, scaling, vocabulary, labels; see description.py
data.json            the sha256 of the files it learns from, if there are some; see fingerprint.py
metrics.jsonl        records, appended as the run goes
checkpoints/         the last few states and the best one; see checkpoint.py
model.safetensors    the weights at the end
result.json          what the run came to, and the sha256 of the weights
.lock                held by the process that writes
"""

from __future__ import annotations

import contextlib
import hashlib
from pathlib import Path
from typing import Any

from torch import Tensor

from ..._files import read_bytes, system_errors
from ..._folder import Folder
from ..._safetensors import save_tensors
from ..._shell_word import shell_word
from ...environment import environment
from ...errors import ArgumentError, CheckpointError
from ...saved.checkpoint import FOLDER as CHECKPOINTS
from ...saved.checkpoint import WEIGHTS, Checkpoints
from ...saved.json_files import as_json
from ...saved.network import load_network
from ...saved.run_files import CONFIG, DATA, DESCRIPTION, ENVIRONMENT, METRICS, RESULT, check_is_run
from ..systems import SequenceModel
from ..training.config import RunConfig, read_config
from .lock import Lock
from .log import MetricsLog

_LARGEST = 1 << 28  # bytes of a file that may be one of a run


class RunDirectory:
    """A run directory that this process writes; made by `create` or `open`.

    The log is opened by `begin_log`, once it is certain that the run is resumed: an unfinished line is then cut off.
    """

    def __init__(self, folder: Folder, lock: Lock) -> None:
        self._folder = folder
        self._log: MetricsLog | None = None
        self.checkpoints = Checkpoints(folder.path / CHECKPOINTS, folder)
        self._lock = lock

    @property
    def path(self) -> Path:
        """The folder of the run, also after it was renamed."""
        return self._folder.path

    @property
    def log(self) -> MetricsLog:
        """The log. RuntimeError before `begin_log`."""
        if self._log is None:
            raise RuntimeError("the log of a run is used before it is begun")
        return self._log

    @classmethod
    def create(
        cls, path: Path, config: RunConfig, description: dict[str, Any], data: dict[str, Any] | None = None
    ) -> RunDirectory:
        """Make the folder and write config.json, environment.json, description.json and data.json.

        ArgumentError if a run is there already, LockedError if one is just being made.
        """
        folder = make_folder(path)
        with contextlib.ExitStack() as undo, writing_new(path):
            undo.callback(folder.close)
            check_is_no_run(path)
            made = cls(folder, Lock(folder))
            undo.pop_all()
            undo.callback(made.close)
            left = [name for name in (CONFIG, METRICS, CHECKPOINTS, WEIGHTS, RESULT) if folder.has(name)]
            if left:
                raise ArgumentError(
                    f"{path} already holds {', '.join(left)} of another run. Choose another directory, or remove them."
                )
            for name in (ENVIRONMENT, DESCRIPTION, DATA):  # those of a run that was killed have a sum, and are replaced
                if folder.has(name) and b'"sha256"' not in read_bytes(path / name, _LARGEST):
                    raise ArgumentError(
                        f"Expected a new folder, but got {path} with a {name} that is of no run. Choose another "
                        f"directory, or rename the file."
                    )
            # config.json comes last: with it, the folder is a run
            made.write_json(ENVIRONMENT, environment(config.device))
            made.write_json(DESCRIPTION, description)
            if data is not None:
                made.write_json(DATA, data)
            made.write_json(CONFIG, config.to_dict())
            made.begin_log()
            undo.pop_all()
        return made

    @classmethod
    def open(cls, path: Path) -> RunDirectory:
        """Open a run to resume it; only its lock is written.

        ArgumentError if there is none, LockedError if another process writes it, CheckpointError if parts of it are
        links, or it cannot be written.
        """
        check_is_run(path)
        folder = Folder.open(path)
        advice = "Make room there, or allow writing, or copy the run and resume the copy."
        with contextlib.ExitStack() as undo, system_errors(f"to write {path}", advice, CheckpointError):
            undo.callback(folder.close)
            folder.check_own(CHECKPOINTS, is_folder=True)
            folder.check_own(METRICS, is_folder=False)
            opened = cls(folder, Lock(folder))
            undo.pop_all()
        return opened

    def begin_log(self) -> None:
        """Open the log, and cut off what a killed writer left of a line."""
        self._log = MetricsLog(self._folder, METRICS)

    def write_json(self, name: str, content: dict[str, Any]) -> None:
        """Write a JSON file of the run atomically, with its sum."""
        text = as_json(content, summed=True)
        self._folder.write_atomically(name, lambda file: file.write(text))

    def remove_result(self) -> None:
        """Remove result.json of an earlier end of the run, which does not hold once there are more updates.

        Raises:
            CheckpointError: If the folder cannot be written.
        """
        advice = "Allow writing in the folder, and resume the run."
        with system_errors(f"to remove {self.path / RESULT}", advice, CheckpointError):
            self._folder.remove(RESULT)

    def write_weights(self, state: dict[str, Any]) -> str:
        """Write model.safetensors atomically, and return its sha256 for result.json, which no longer holds before."""
        tensors = {name: value.detach().contiguous() for name, value in state.items() if isinstance(value, Tensor)}
        content = save_tensors(tensors)
        self._folder.remove(RESULT)  # of an earlier end of the run: it has the sum of other weights
        self._folder.write_atomically(WEIGHTS, lambda file: file.write(content))
        return hashlib.sha256(content).hexdigest()

    def close(self) -> None:
        """Close the log and let others write."""
        if self._log is not None:
            self._log.close()
        self._lock.release()
        self._folder.close()


def writing_new(path: Path) -> contextlib.AbstractContextManager[None]:
    """Return the context in which the files of a new run are written."""
    advice = "Make room there, or allow writing, or choose another directory."
    return system_errors(f"to write {path}", advice, CheckpointError)


def make_folder(path: Path) -> Folder:
    """Make the folder of a run or of several, and open it. ArgumentError if it cannot be made."""
    advice = "Choose another directory, or allow writing there."
    with system_errors(f"to make the run directory {path}", advice, ArgumentError):
        path.mkdir(parents=True, exist_ok=True)
        return Folder.open(path)


def check_is_no_run(path: Path) -> None:
    """Raise ArgumentError if there is a config.json in this folder."""
    if (path / CONFIG).exists():
        raise ArgumentError(
            f"{path} already holds a run. Choose another directory, or resume it: orthornn train --resume {shell_word(path)}."
        )


def load_model(path: str | Path, which: str | int = "last") -> tuple[RunConfig, SequenceModel]:
    """Return the configuration of a run and its model in eval mode; see `orthornn.saved.network.load_network`."""
    check_is_run(Path(path))
    return read_config(Path(path) / CONFIG), load_network(path, which).model
