"""Checkpoints: folders that are there whole or not at all, and that notice any change.

checkpoints/step-00001000/
  model.safetensors       the weights, under the names of the model's state_dict
  training.safetensors    the optimiser's tensors and the random generator's state
  state.json              everything else, as plain numbers and words
  SHA256SUMS              of the three; `sha256sum --check` reads it too

A checkpoint is written into a folder beside it, brought to the disk file by file, and renamed. Nothing is pickled.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
from pathlib import Path
from typing import Any, NamedTuple

from torch import Tensor

from ..errors import CheckpointError, MissingPackageError
from .files import sync_folder, write_synced
from .state import join, split

FORMAT = 1
WEIGHTS, TENSORS, STATE, SUMS = "model.safetensors", "training.safetensors", "state.json", "SHA256SUMS"
_NAME = re.compile(r"step-(\d{8,})")


class Damaged(NamedTuple):
    """A checkpoint that cannot be used, and why."""

    path: Path
    reason: str


class Checkpoints:
    """The checkpoints of one run, in `folder`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def steps(self) -> list[int]:
        """The steps that have a checkpoint, in order, whether good or not."""
        if not self.folder.is_dir():
            return []
        names = (_NAME.fullmatch(path.name) for path in self.folder.iterdir())
        return sorted(int(match[1]) for match in names if match)

    def path(self, step: int) -> Path:
        """Where the checkpoint of this step is."""
        return self.folder / f"step-{step:08d}"

    def write(self, step: int, weights: dict[str, Any], state: dict[str, Any]) -> None:
        """Write a checkpoint, whole or not at all. CheckpointError if the disk does not take it."""
        beside = self.folder / f".step-{step:08d}.{os.getpid()}"
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            _write(beside, weights, state)
            target = self.path(step)
            if target.exists():  # of an earlier attempt, damaged or from a worker that was killed
                shutil.rmtree(target)
            os.rename(beside, target)
            sync_folder(self.folder)
        except OSError as error:
            shutil.rmtree(beside, ignore_errors=True)
            raise CheckpointError(
                f"the checkpoint of step {step} cannot be written to {self.folder}: {error.strerror or error}."
            ) from error
        except BaseException:
            shutil.rmtree(beside, ignore_errors=True)
            raise

    def read(self, step: int) -> tuple[dict[str, Any], dict[str, Any]]:
        """(weights, state) of this step. CheckpointError, saying which file and why, if anything is wrong with it."""
        return read_checkpoint(self.path(step))

    def newest(self) -> tuple[int | None, list[Damaged]]:
        """The newest step whose checkpoint is sound, or None; and the damaged ones that are newer."""
        damaged = []
        for step in reversed(self.steps()):
            try:
                self.read(step)
            except CheckpointError as error:
                damaged.append(Damaged(self.path(step), str(error)))
            else:
                return step, damaged
        return None, damaged

    def set_aside(self, damaged: list[Damaged]) -> None:
        """Rename damaged checkpoints, so that they are neither counted nor lost."""
        for path, _ in damaged:
            aside = path.with_name(f"damaged-{path.name}")
            shutil.rmtree(aside, ignore_errors=True)
            os.rename(path, aside)

    def prune(self, keep: int, best: int | None) -> None:
        """Remove all but the last `keep` and the best, and what killed writers left."""
        for step in self.steps()[:-keep]:
            if step != best:
                # renamed first: a folder that is half removed must not look like a checkpoint
                doomed = self.folder / f".removed-{step}"
                shutil.rmtree(doomed, ignore_errors=True)
                os.rename(self.path(step), doomed)
        for left in self.folder.glob(".*"):
            shutil.rmtree(left, ignore_errors=True)


def read_checkpoint(path: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """(weights, state) in this folder. CheckpointError, saying which file and why, if anything is wrong with it."""
    contents = {}
    sums = _read_sums(path / SUMS)
    for name in (WEIGHTS, TENSORS, STATE):
        try:
            contents[name] = (path / name).read_bytes()
        except OSError as error:
            raise CheckpointError(f"{path / name} cannot be read: {error.strerror}.") from error
        found = hashlib.sha256(contents[name]).hexdigest()
        if sums.get(name) != found:
            raise CheckpointError(
                f"{path / name} is truncated or was changed: its sha256 is {found[:12]}..., "
                f"{SUMS} says {str(sums.get(name))[:12]}..."
            )
    plain = json.loads(contents[STATE])
    if plain["format"] != FORMAT:
        raise CheckpointError(f"{path} has format {plain['format']}; this version of orthornn reads format {FORMAT}.")
    load = _safetensors().load
    return (
        join(plain["weights"], load(contents[WEIGHTS])),
        join(plain["state"], load(contents[TENSORS])),
    )


def read_tensors(path: Path) -> dict[str, Tensor]:
    """The tensors in a safetensors file. CheckpointError if it cannot be read."""
    try:
        return _safetensors().load(path.read_bytes())
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {error.strerror}.") from error
    except Exception as error:  # safetensors has an error class of its own in each version
        raise CheckpointError(f"{path} is truncated or damaged: {error}.") from error


def save_tensors(tensors: dict[str, Tensor]) -> bytes:
    """Tensors in the safetensors format. MissingPackageError if that package is missing."""
    owned: set[int] = set()
    for name, tensor in tensors.items():  # two names for one memory cannot be told apart when they are read
        if tensor.untyped_storage().data_ptr() in owned:
            tensors[name] = tensor.clone()
        owned.add(tensor.untyped_storage().data_ptr())
    return _safetensors().save(tensors)


def _write(folder: Path, weights: dict[str, Any], state: dict[str, Any]) -> None:
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
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for name, content in {**contents, SUMS: sums.encode()}.items():
        _put(folder / name, content)
    sync_folder(folder)


def _put(path: Path, content: bytes) -> None:
    write_synced(path, lambda file: file.write(content))


def _read_sums(path: Path) -> dict[str, str]:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{path} cannot be read: {error}.") from error
    pairs = (line.split("  ", 1) for line in text.split("\n")[:-1])
    return {pair[1]: pair[0] for pair in pairs if len(pair) == 2}


def _safetensors() -> Any:
    try:
        import safetensors.torch
    except ModuleNotFoundError as error:
        raise MissingPackageError(
            "a run directory needs the package safetensors; pip install 'orthornn[cli]'."
        ) from error
    return safetensors.torch
