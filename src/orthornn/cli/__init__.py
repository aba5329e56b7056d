"""The command `orthornn`: finds the command asked for, and turns errors into one line."""

from __future__ import annotations

import importlib
import os
import signal
import sys
import warnings
from collections.abc import Callable, Sequence
from typing import Any

from .. import __version__
from .._checks import check_choice
from ..errors import Interrupted, OrthornnError, OrthornnWarning

COMMANDS = {
    "train": "train one model on one task",
    "compare": "train several models of equal size on one task, side by side",
    "report": "one HTML page about finished and unfinished runs",
    "predict": "what a trained network says about sequences in a file",
    "evaluate": "the loss and the metric of a trained network on sequences in a file",
    "export": "a trained network as ONNX, torch.export or safetensors",
    "sweep": "many runs over a grid or at random, on one machine or a cluster",
    "reproduce": "the tables and figures of the papers, again",
    "figures": "draw what was recorded during runs: gradients through time, spectra, loss of orthogonality",
    "bench": "verify the kernels, then time them beside torch's layers",
    "demo": "two minutes: which networks learn to copy, and what happens to their gradients",
    "doctor": "say what this machine and this installation can do, and what a network would get",
}

MANUAL = f"""\
orthornn - orthogonal and unitary recurrent networks

usage: orthornn COMMAND ...

commands:
{chr(10).join(f"  {name:<10}{summary}" for name, summary in COMMANDS.items())}

`orthornn COMMAND --help` explains a command, `orthornn train TASK --help` a task with all its options.

examples:
  orthornn train copying --T 200 --model ornn-rotations --parameters 5k
  orthornn train pixel-mnist --data FOLDER --epochs 1
  orthornn train --resume RUN
  orthornn compare copying --models ornn,ornn-rotations,scornn,lstm --parameters 5k --seeds 5
  orthornn report runs --out report.html
  orthornn train copying --T 200 --model spectral --margin 0.1 --record-gradients 20 --record-spectrum 20
  orthornn figures gradient-map runs/*
  orthornn reproduce mhammedi2017 --only table3 --data FOLDER
  orthornn bench --quick
  orthornn doctor --n 256 --m 32 --B 1 --T 784

Errors are one line. --traceback, anywhere, shows where one came from. --version: which this is.
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; the exit status: 0, 2 for an error the user can mend, 130 after Ctrl-C."""
    words = list(sys.argv[1:] if argv is None else argv)
    traceback = "--traceback" in words
    words = [word for word in words if word != "--traceback"]
    if not words or words[0] in ("-h", "--help", "help"):
        print(MANUAL, end="")
        return 0
    if words[0] == "--version":
        print(f"orthornn {__version__}")
        return 0
    with warnings.catch_warnings():
        warnings.showwarning = _once()
        warnings.simplefilter("always", OrthornnWarning)
        return _run(words, traceback)


def _once() -> Callable[..., None]:
    """What shows a warning, unless it has shown the same before: some come at every update."""
    shown: set[str] = set()

    def show(message: Warning | str, *details: Any, **more: Any) -> None:
        if str(message) not in shown:
            shown.add(str(message))
            print(f"orthornn: {message}", file=sys.stderr, flush=True)

    return show


def _run(words: list[str], traceback: bool) -> int:
    try:
        command = check_choice("command", words[0], COMMANDS)
        module = importlib.import_module(f".{command}", __name__)
        return module.main(words[1:])
    except Interrupted as stop:
        print(f"\northornn: {stop}", file=sys.stderr)
        return 128 + stop.signal
    except OrthornnError as error:
        if traceback:
            raise
        print(f"orthornn: {error}", file=sys.stderr)
        return 2
    except ModuleNotFoundError as error:
        if traceback or error.name not in ("tyro", "rich", "matplotlib"):
            raise
        print(
            f"orthornn: the command line needs the package {error.name}; pip install 'orthornn[cli]'.",
            file=sys.stderr,
        )
        return 2
    except KeyboardInterrupt:
        print("\northornn: interrupted.", file=sys.stderr)
        return 128 + signal.SIGINT
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or Python complains again when it exits
        return 128 + signal.SIGPIPE
    except OSError as error:  # a folder that is missing, a full disk, no permission
        if traceback:
            raise
        where = "" if error.filename is None else f"{error.filename}: "
        print(f"orthornn: {where}{error.strerror or error}.", file=sys.stderr)
        return 2
