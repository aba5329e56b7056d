"""Checkpoints: folders that are written atomically and that detect any change.

checkpoints/step-00001000/
  model.safetensors       the weights, under the names of the model's state_dict
  training.safetensors    the optimizer's tensors and the random generator's state
  state.json              everything else, as plain numbers and words
  SHA256SUMS              of the three; `sha256sum --check` reads it too

A checkpoint is written into a folder next to it, flushed to the disk file by file, and renamed. Nothing is pickled.

Nothing is removed but these four files, and the folders with the names below: step-N, .step-N.PROCESS
while it is written, .removed-N while it is removed. A folder with anything else in it stays, and so does whatever else
is in checkpoints/.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from torch import Tensor

from .._files import read_bytes, system_errors
from .._folder import Folder
from .._safetensors import safetensors, save_tensors
from ..errors import CheckpointError, DataError
from .json_files import LARGEST, checked, parse
from .state import join, split
from .weights_file import REMEDY, read_header

FORMAT = 1


FOLDER = "checkpoints"


WEIGHTS, TENSORS, STATE, SUMS = "model.safetensors", "training.safetensors", "state.json", "SHA256SUMS"


FILES = (WEIGHTS, TENSORS, STATE, SUMS)


_NAME = re.compile(r"step-(\d{8,18})")


_LEFT = re.compile(r"\.step-\d{8,18}\.\d+|\.removed-\d+")  # by a process that was killed


_COPIES = 16  # tensors as large as all weights that an optimizer may have


_MORE = 1 << 26  # bytes, besides them


MAKE_ROOM = "Make room there, or allow writing, and resume the run."


class Damaged(NamedTuple):
    """A checkpoint that cannot be used, and why."""

    path: Path
    reason: str


class OtherFormatError(CheckpointError):
    """A checkpoint that another version of this package wrote: it is sound, and not to be set aside."""


class Checkpoints:
    """The checkpoints of one run.

    folder: the folder `checkpoints` of the run. run: the run's own folder, open, for those who write.
    """

    def __init__(self, folder: str | Path, run: Folder | None = None) -> None:
        self._folder, self._run = Path(folder), run

    @property
    def folder(self) -> Path:
        """The folder of the checkpoints."""
        return self._folder if self._run is None else self._run.path / self._folder.name

    def steps(self) -> list[int]:
        """Return the steps that have a checkpoint, in order, whether good or not."""
        if not self.folder.is_dir():
            return []
        names = (_NAME.fullmatch(path.name) for path in self.folder.iterdir())
        return sorted(int(match[1]) for match in names if match)

    def path(self, step: int) -> Path:
        """Return the folder of the checkpoint of this step."""
        return self.folder / _name(step)

    def write(self, step: int, weights: dict[str, Any], state: dict[str, Any]) -> None:
        """Write a checkpoint atomically. CheckpointError if the disk does not take it."""
        name, beside = _name(step), f".{_name(step)}.{os.getpid()}"
        content = _content(weights, state)
        expected = f"to write the checkpoint of step {step} to {self.folder}"
        with contextlib.ExitStack() as undo, system_errors(expected, MAKE_ROOM, CheckpointError):
            folder = self._open(create=True)
            undo.callback(folder.close)
            if not folder.remove_folder(beside, FILES):
                raise CheckpointError(f"{folder.path / beside} holds files that no checkpoint has. Move them away.")
            undo.callback(folder.remove_folder, beside, FILES)  # nothing is there once it is renamed
            own = folder.inner(beside, create=True)
            try:
                for file, data in content.items():
                    own.write(file, lambda file, data=data: file.write(data))  # type: ignore[misc]
                own.sync()
            finally:
                own.close()
            if folder.has(name):  # of an earlier attempt, damaged or from a worker that was killed
                self._remove(folder, step)
            folder.rename(beside, name)
            folder.sync()

    def read(self, step: int) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return (weights, state) of this step. CheckpointError, saying which file and why, if anything is wrong with
        it.
        """
        return read_checkpoint(self.path(step))

    def newest(self, check: Callable[[Path], None] = lambda path: None) -> tuple[int | None, list[Damaged]]:
        """Return the newest step whose checkpoint is sound, or None; and the damaged ones that are newer.

        check: looks at a checkpoint before it is read, and raises CheckpointError for one that is not sound.
        Raises OtherFormatError if the newest that is sound is one of another version.
        """
        damaged = []
        for step in reversed(self.steps()):
            try:
                check(self.path(step))
                self.read(step)
            except OtherFormatError:
                raise
            except CheckpointError as error:
                damaged.append(Damaged(self.path(step), str(error)))
            else:
                return step, damaged
        return None, damaged

    def set_aside(self, damaged: list[Damaged]) -> list[Path]:
        """Rename damaged checkpoints, which excludes them without deleting them, and return their new paths."""
        places: list[Path] = []
        if not damaged:
            return places
        folder = self._open()
        try:
            for path, _ in damaged:
                aside, number = f"damaged-{path.name}", 1
                while folder.has(aside):
                    number += 1
                    aside = f"damaged-{path.name}-{number}"
                folder.rename(path.name, aside)
                places.append(folder.path / aside)
        finally:
            folder.close()
        return places

    def prune(self, keep: int, best: int | None) -> None:
        """Remove all but the last `keep` and the best, and what killed writers left."""
        folder = self._open()
        try:
            for step in self.steps()[:-keep]:
                if step != best:
                    with contextlib.suppress(OSError):  # it holds files of somebody else's: it stays
                        self._remove(folder, step)
            for left in folder.names():
                if _LEFT.fullmatch(left):
                    folder.remove_folder(left, FILES)
        finally:
            folder.close()

    def _open(self, create: bool = False) -> Folder:
        run = self._run or Folder.open(self._folder.parent)
        try:
            return run.inner(self._folder.name, create)
        finally:
            if self._run is None:
                run.close()

    def _remove(self, folder: Folder, step: int) -> None:
        """Remove the checkpoint of a step. OSError if there is anything else in it."""
        inside = folder.inner(_name(step))
        try:
            foreign = sorted(set(inside.names()) - set(FILES))
        finally:
            inside.close()
        if foreign:
            raise CheckpointError(
                f"{folder.path / _name(step)} holds files that no checkpoint has ({', '.join(foreign[:3])}). Move them "
                f"away."
            )
        # renamed first: a folder that is half removed must not look like a checkpoint
        doomed = f".removed-{step}"
        folder.remove_folder(doomed, FILES)
        folder.rename(_name(step), doomed)
        folder.remove_folder(doomed, FILES)


def read_checkpoint(path: str | Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return (weights, state) in this folder. CheckpointError, saying which file and why, if anything is wrong with
    it.
    """
    path = Path(path)
    sums = _read_sums(path / SUMS)
    limit = read_header(path / WEIGHTS).size
    plain = _read_plain(path, sums)
    contents = {WEIGHTS: _read_summed(path / WEIGHTS, limit, sums)}
    contents[TENSORS] = _read_summed(path / TENSORS, _COPIES * limit + _MORE, sums)
    load = safetensors().load
    try:
        return (
            join(plain["weights"], load(contents[WEIGHTS])),
            join(plain["state"], load(contents[TENSORS])),
        )
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise CheckpointError(
            f"Expected {path / STATE} to fit the tensors next to it, but got: {error!r}. {REMEDY}"
        ) from error
    except Exception as error:  # safetensors has an error class of its own in each version
        raise CheckpointError(f"Expected {path} to have tensors, but got: {error}. {REMEDY}") from error


def read_plain(path: Path) -> dict[str, Any]:
    """Return the content of a checkpoint's state.json, without tensors. Raise CheckpointError if it is damaged."""
    return _read_plain(path, _read_sums(path / SUMS))


def _read_plain(path: Path, sums: dict[str, str]) -> dict[str, Any]:
    content = _read_summed(path / STATE, LARGEST, sums)
    try:
        plain = parse(content, str(path / STATE))
        if isinstance(plain, dict) and plain.get("format", FORMAT) != FORMAT:
            raise OtherFormatError(
                f"{path} has format {plain['format']!r}; this version of orthornn reads format {FORMAT}. Resume the run with "
                f"the version that wrote it."
            )
        return checked(plain, "CheckpointFile", str(path / STATE))
    except DataError as error:
        raise CheckpointError(str(error)) from error


def _content(weights: dict[str, Any], state: dict[str, Any]) -> dict[str, bytes]:
    """Return the files of a checkpoint by name, the sums last."""
    weight_tensors: dict[str, Tensor] = {}
    state_tensors: dict[str, Tensor] = {}
    plain_weights = {name: split(value, name, weight_tensors) for name, value in weights.items()}
    plain = {"format": FORMAT, "weights": plain_weights, "state": split(state, "state", state_tensors)}
    contents = {
        WEIGHTS: save_tensors(weight_tensors),
        TENSORS: save_tensors(state_tensors),
        STATE: (json.dumps(plain, indent=1) + "\n").encode(),
    }
    sums = "".join(f"{hashlib.sha256(content).hexdigest()}  {name}\n" for name, content in contents.items())
    return {**contents, SUMS: sums.encode()}


def _name(step: int) -> str:
    return f"step-{step:08d}"


def _read_summed(path: Path, limit: int, sums: dict[str, str]) -> bytes:
    try:
        content = read_bytes(path, limit)
    except OSError as error:
        reason = str(error) if isinstance(error, DataError) else f"Expected to read {path}, but got: {error.strerror}."
        raise CheckpointError(f"{reason} {REMEDY}") from error
    found = hashlib.sha256(content).hexdigest()
    if sums.get(path.name) != found:
        raise CheckpointError(
            f"Expected {path} to have the sha256 {str(sums.get(path.name))[:12]}... of {SUMS}, but got {found[:12]}...: it "
            f"is truncated or modified. {REMEDY}"
        )
    return content


def _read_sums(path: Path) -> dict[str, str]:
    try:
        text = read_bytes(path, _MORE).decode("utf-8")
    except (OSError, ValueError) as error:
        reason = f"Expected to read {path}, but got: {getattr(error, 'strerror', None) or error}."
        raise CheckpointError(f"{reason} {REMEDY}") from error
    pairs = (line.split("  ", 1) for line in text.split("\n")[:-1])
    return {pair[1]: pair[0] for pair in pairs if len(pair) == 2}
