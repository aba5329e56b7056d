"""The command `orthornn`: finds the command asked for, and turns errors into one line."""

from __future__ import annotations

import contextlib
import errno
import importlib
import io
import os
import signal
import sys
import traceback as tb
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from ... import __version__
from ..._checks import check_choice
from ..._printable import printable
from ...cores import limited_threads
from ...errors import Interrupted, MissingPackageError, OrthornnError, OrthornnWarning
from ...kernels.backends.cpp import extension
from ..entry_points import COMMANDS as OF_PACKAGES
from ..entry_points import EVIDENCE, Command, is_known, load, loaded
from ..given_once import check_given_once
from .terminated import Terminated, terminable

COMMANDS = {
    "train": "train one model on one task, or on your own data",
    "compare": "train several models of equal size on one task, side by side",
    "inspect": "show the columns of a file, and what a training run would use of them",
    "report": "write one HTML page about finished and unfinished runs",
    "predict": "write the predictions of a trained network for the sequences of a file",
    "evaluate": "print the loss and the metrics of a trained network on a file",
    "generate": "print text that a network trained on characters draws",
    "export": "write a trained network as ONNX, torch.export, safetensors, C, or C++ for audio",
    "sweep": "train with a grid of settings, or with random ones, on one machine or a cluster",
    "figures": "draw what runs recorded: gradients through time, spectra, distance from orthogonality",
    "demo": "train four networks on copying for two minutes, and draw their gradients",
    "doctor": "report what this machine and installation can run, and what a network would get",
}

_FULL = {errno.ENOSPC, getattr(errno, "EDQUOT", errno.ENOSPC)}  # Windows has no quota among its errors
_OF_OUTPUT = "_is_of_output"  # the mark of an error of writing to the output
_LONGEST = 300  # characters of an error that nobody foresaw
_CLOSED = 128 + getattr(signal, "SIGPIPE", 13)  # Windows has the error, and not the signal

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
    own = {name: Command(summary, f"{__name__}.{name}") for name, summary in COMMANDS.items()}
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


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; the exit status.

    0, 2 for an error the user can mend, 1 for one that nobody foresaw, 130 after Ctrl-C, 143 after SIGTERM.
    """
    words = list(sys.argv[1:] if argv is None else argv)
    traceback = "--traceback" in words
    words = [word for word in words if word != "--traceback"]
    _open_streams()
    with warnings.catch_warnings():
        warnings.showwarning = _once()
        warnings.simplefilter("always", OrthornnWarning)
        with limited_threads(), terminable(), _marked_output():
            return _flushed(_run(words, traceback))


def _open_streams() -> None:
    """See that text can be written: nowhere where the output is closed, escaped where its encoding lacks a character."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115
        elif isinstance(stream, io.TextIOWrapper) and stream.errors == "strict":
            stream.reconfigure(errors="backslashreplace")


def _flushed(status: int) -> int:
    """Write what is left of the output; the exit status, which is an error if that is not taken."""
    try:
        sys.stdout.flush()
    except OSError as error:
        _silence()
        if isinstance(error, BrokenPipeError):
            return status or _CLOSED
        if status == 0:
            print(f"orthornn: {_not_taken(error)}", file=sys.stderr)
        return status or 2
    return status


def _silence() -> None:
    """Lead the output nowhere, or Python complains again when it exits."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _not_taken(error: OSError) -> str:
    return (
        f"Expected the output to be taken, but got: {error.strerror or error}. Direct it to a place that has room; files "
        f"that were written are complete."
    )


def _not_used(error: OSError) -> str:
    """Return what to say of a file or a folder that cannot be read or written, by its name when it is whole."""
    if error.filename is None:
        wanted, advice = "the system to serve this command", "Add --traceback to see where"
        if error.errno in _FULL:
            wanted, advice = "room to work", "Make room on the disk"
        return f"Expected {wanted}, but got: {error.strerror or error}. {advice}."
    folder, name = os.path.split(os.fsdecode(error.filename))
    mark = f".{os.getpid()}"  # of a file that gets its name when it is whole; see Folder.write_atomically
    place = os.path.join(folder, name[1 : -len(mark)] if name.startswith(".") and name.endswith(mark) else name)
    return (
        f"Expected to use {place}, but got: {error.strerror or error}. Correct the name, make room, allow reading and "
        f"writing there, or choose another place."
    )


@contextlib.contextmanager
def _marked_output() -> Iterator[None]:
    """Inside, an error of writing to the output is marked as such: where it is not buffered, the next flush succeeds."""
    stream = sys.stdout
    write = stream.write

    def marking(text: str) -> int:
        try:
            return write(text)
        except OSError as error:
            setattr(error, _OF_OUTPUT, True)
            raise

    try:
        stream.write = marking  # type: ignore[method-assign]
    except AttributeError:  # a stream that has no room for it
        yield
        return
    try:
        yield
    finally:
        with contextlib.suppress(AttributeError):
            del stream.write


def _is_output_broken(error: OSError) -> bool:
    if hasattr(error, _OF_OUTPUT):
        return True
    try:
        sys.stdout.flush()
    except OSError:
        return True
    return False


def _once() -> Callable[..., None]:
    """Return what shows a warning, unless it has shown the same before: some come at every update."""
    shown: set[str] = set()

    def show(message: Warning | str, *details: Any, **more: Any) -> None:
        if str(message) not in shown:
            shown.add(str(message))
            print(f"orthornn: {printable(message)}", file=sys.stderr, flush=True)

    return show


def _unexpected(error: Exception) -> str:
    """Return one sentence for an error that nobody foresaw: what it was, and where in the program."""
    place = tb.extract_tb(error.__traceback__)[-1]
    file = "/".join(place.filename.split(os.sep)[-2:])
    what = " ".join(f"{type(error).__name__}: {error}".split())
    return f"unexpected {what[:_LONGEST]} ({file}, line {place.lineno}). --traceback shows how it came about."


def _module_of(command: str) -> str:
    """Return the name of the module that runs a command. MissingPackageError for one of the evidence that is not there."""
    if command not in COMMANDS and is_known(OF_PACKAGES, command):
        return load(OF_PACKAGES, command).module
    return f"{__name__}.{check_choice('command', command, commands())}"


def _run(words: list[str], traceback: bool) -> int:
    try:
        if not words or words[0] in ("-h", "--help", "help"):
            print(manual(), end="")
            return 0
        if words[0] == "--version":
            print(f"orthornn {__version__}")
            return 0
        extension.build()  # an ORTHORNN_ISA that is not there
        module = _module_of(words[0])
        check_given_once(words[1:])
        return importlib.import_module(module).main(words[1:])
    except Interrupted as stop:
        print(f"\northornn: {printable(stop)}", file=sys.stderr)
        return 128 + stop.signal
    except OrthornnError as error:
        if traceback:
            raise
        print(f"orthornn: {printable(error)}", file=sys.stderr)
        return 2
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if traceback or package not in ("tyro", "rich", "matplotlib"):
            raise
        missing = MissingPackageError.named(f"orthornn {words[0]}", package, "cli")
        print(f"orthornn: {missing}", file=sys.stderr)
        return 2
    except Terminated:
        print("\northornn: ended by SIGTERM.", file=sys.stderr)
        return 128 + signal.SIGTERM
    except KeyboardInterrupt:
        print("\northornn: interrupted.", file=sys.stderr)
        return 128 + signal.SIGINT
    except BrokenPipeError:
        _silence()
        return _CLOSED
    except OSError as error:  # a folder that is missing, a full disk, no permission
        if traceback:
            raise
        if error.filename is None and _is_output_broken(error):
            print(f"orthornn: {_not_taken(error)}", file=sys.stderr)
            return 2
        print(f"orthornn: {printable(_not_used(error))}", file=sys.stderr)
        return 2
    except MemoryError as error:
        if traceback:
            raise
        print(f"orthornn: there is not enough memory: {printable(error) or 'ask for less'}.", file=sys.stderr)
        return 2
    except Exception as error:
        if traceback:
            raise
        print(f"orthornn: {printable(' '.join(words[:2]))}: {printable(_unexpected(error))}", file=sys.stderr)
        return 1
