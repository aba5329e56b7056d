"""The commands, and what `orthornn` answers without one: text, for which torch need not be imported."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Sequence

from .entry_points import COMMANDS as OF_PACKAGES
from .entry_points import EVIDENCE, Command, is_known, loaded

COMMANDS = {
    "train": "train one model on one task, or on your own data",
    "compare": "train several models of equal size on one task, side by side",
    "inspect": "show the columns of a file, and what a training run would use of them",
    "report": "write one HTML page about finished and unfinished runs",
    "predict": "write the predictions of a trained network for the sequences of a file",
    "evaluate": "print the loss and the metrics of a trained network on a file",
    "certify": "print how many sequences keep their class whatever moves their inputs by at most eps",
    "generate": "print text that a network trained on characters draws",
    "export": "write a trained network as ONNX, torch.export, safetensors, C, or C++ for audio",
    "sweep": "train with a grid of settings, or with random ones, on one machine or a cluster",
    "figures": "draw what runs recorded: gradients through time, spectra, distance from orthogonality",
    "demo": "train four networks on copying for 100 seconds at most, and draw their gradients",
    "doctor": "report what this machine and installation can run, and what a network would get",
}

_MANUAL = """\
orthornn - orthogonal and unitary recurrent networks

usage: orthornn COMMAND ...

commands:
{commands}

`orthornn COMMAND --help` explains a command, and `orthornn train TASK --help` a task with all options.

examples:
  orthornn train copying --T 200 --model ornn-rotations --parameters 5k
  orthornn train table.csv --target label --sequence id
  orthornn train --resume RUN
  orthornn compare copying --models ornn,ornn-rotations,scornn,lstm --parameters 5k --seeds 5
  orthornn report runs --out report.html
  orthornn train copying --T 200 --model spectral --margin 0.1 --record-gradients 20 --record-spectrum 20
  orthornn figures gradient-map runs/*
  orthornn doctor --n 256 --m 32 --B 1 --T 784
{examples}
An error is one line; with --traceback anywhere, it shows where it came from. --version prints the version.
"""


def commands() -> dict[str, Command]:
    """Return every command by name, those of other installed packages last."""
    own = {name: Command(summary, f"orthornn.cli.{name}") for name, summary in COMMANDS.items()}
    return own | {name: command for name, command in loaded(OF_PACKAGES).items() if name not in own}


def manual() -> str:
    """Return what `orthornn --help` prints."""
    known = commands()
    lines = [f"  {name:<11} {command.summary}" for name, command in known.items()]
    absent = [name for name in EVIDENCE[OF_PACKAGES] if name not in known]
    if absent:
        lines += ["", f"not installed: {', '.join(absent)}; each says how to get it"]
    examples = "".join(f"  {command.example}\n" for command in known.values() if command.example)
    return _MANUAL.format(commands="\n".join(lines), examples=examples)


def asked(words: Sequence[str]) -> str | None:
    """Return the text that is asked for instead of a command: the manual, or the version. None for a command."""
    if not words or words[0] in ("-h", "--help", "help"):
        return manual()
    return f"orthornn {_version()}\n" if words[0] == "--version" else None


def unknown(word: str) -> str | None:
    """Return the error for a word that is no command: that of `check_choice`, which imports torch. None for a command."""
    if word in COMMANDS or is_known(OF_PACKAGES, word):
        return None
    import difflib

    known = commands()
    near = difflib.get_close_matches(word.lower(), known, n=1)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    return f"Expected command to be one of {', '.join(map(repr, known))}, but got {word!r}.{hint}"


def _version() -> str:
    """Return the version that the package has in its source, which is not imported."""
    spec = importlib.util.find_spec("orthornn")
    assert spec is not None
    assert spec.origin is not None
    with open(spec.origin, encoding="utf-8") as file:
        found = re.search(r'^__version__ = "(.*)"$', file.read(), re.MULTILINE)
    assert found is not None
    return found[1]
