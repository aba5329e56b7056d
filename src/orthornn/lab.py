"""The former name of `orthornn.learn`, `orthornn.cli` and the evidence: each module below it is the one there."""

from __future__ import annotations

import importlib
import importlib.machinery
import importlib.util
import sys
from types import CodeType, ModuleType
from typing import Any, cast

from ._warnings import warn
from .errors import MissingPackageError

__path__: list[str] = []  # a package, as it was
_EVIDENCE = {"bench", "group_words", "leaderboard", "leaderboard_options", "leaderboard_runs", "own_data", "papers"}


_SAVED = {"checkpoint", "diverged", "json_files", "schemas", "sizes", "state", "weights_file"}
_RUNS = {
    "changes",
    "directory",
    "fingerprint",
    "lock",
    "log",
    "loop",
    "recording",
    "run",
    "selection",
    "signals",
    "tensorboard",
}
_MOVED = {
    **{f"training.{module}": f"orthornn.saved.{module}" for module in _SAVED},
    **{f"training.{module}": f"orthornn.learn.runs.{module}" for module in _RUNS},
    "training.weights": "orthornn.saved.network",
    "training.fine_tune": "orthornn.learn.fine_tuning",
    "terminated": "orthornn.learn.runs.signals",
    "timing": "orthornn_evidence.bench.timing",
    "systems.lasagne": "orthornn.learn.systems.free",
    "files.frames": "orthornn.learn.files.data_frames",
    "shell_word": "orthornn._shell_word",
}


def _present_name(name: str) -> str:
    """Return the present name of a module of orthornn.lab."""
    rest = name.removeprefix(f"{__name__}.")
    if rest in _MOVED:
        return _MOVED[rest]
    first = rest.partition(".")[0]
    return f"{'orthornn_evidence' if first in _EVIDENCE else 'orthornn' if first == 'cli' else 'orthornn.learn'}.{rest}"


def _present_spec(name: str) -> importlib.machinery.ModuleSpec | None:
    """Find a module of orthornn.lab at its new place."""
    there = _present_name(name)
    try:
        return importlib.util.find_spec(there)
    except ModuleNotFoundError as error:
        if error.name != "orthornn_evidence":
            raise
        raise MissingPackageError(
            f"Expected the package orthornn_evidence, which has {name} as {there}, but it is not installed. "
            "Do pip install -e evidence in the folder of orthornn's sources."
        ) from None


class _Former:
    """Finds and loads modules under their former names; they stay as they are."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> importlib.machinery.ModuleSpec | None:
        if not name.startswith(f"{__name__}.") or (there := _present_spec(name)) is None:
            return None
        warn(f"{name} is {there.name} now. Import that.", DeprecationWarning)
        return importlib.util.spec_from_loader(name, cast(Any, self))

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        module = importlib.import_module(_present_name(spec.name))
        self._own = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        module.__spec__ = self._own  # which the import of the former name has replaced

    def get_code(self, name: str) -> CodeType:
        """Return the code that `python -m` runs for a former name: the command of that name, or the module."""
        there = _present_name(name)
        command = there.rpartition(".")[2].replace("_", "-")
        if command in ("leaderboard", "group-words"):
            text = f"import sys\nfrom orthornn.cli import main\nsys.exit(main(['{command}', *sys.argv[1:]]))"
        else:
            text = f"import runpy\nrunpy.run_module('{there}', run_name='__main__', alter_sys=True)"
        return compile(text, name, "exec")


warn(f"{__name__} is orthornn.learn now. Import that.", DeprecationWarning)
sys.meta_path.insert(0, cast(Any, _Former()))
