"""The command `orthornn`: run the requested command, and turn errors into one line."""

from __future__ import annotations

import contextlib
import errno
import importlib
import importlib.util
import io
import os
import signal
import sys
import traceback as tb
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from orthornn_command.manual import COMMANDS, asked, commands

from .._checks import check_choice
from .._command_words import split_words
from .._printable import printable
from ..cores import limited_threads
from ..errors import Interrupted, MissingPackageError, OrthornnError, OrthornnWarning
from ..kernels.backends.cpp import extension
from ..learn.entry_points import COMMANDS as OF_PACKAGES
from ..learn.entry_points import is_known, load
from ..learn.runs.signals import Terminated, terminable

_FULL = {errno.ENOSPC, getattr(errno, "EDQUOT", errno.ENOSPC)}  # Windows has no quota among its errors
_OF_OUTPUT = "_is_of_output"  # the mark of an error of writing to the output
_LONGEST = 300  # characters of an error that nobody foresaw
_CLOSED = 128 + getattr(signal, "SIGPIPE", 13)  # Windows has the error, and not the signal


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit status.

    0; 2 for an error that the user can correct; 1 for an unexpected error; 130 after Ctrl-C; 143 after SIGTERM.
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
    """Make output always writable: discard it if the output is closed, and escape characters that its encoding
    lacks.
    """
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115
        elif isinstance(stream, io.TextIOWrapper) and stream.errors == "strict":
            stream.reconfigure(errors="backslashreplace")


def _flushed(status: int) -> int:
    """Flush the remaining output and return the exit status, which is an error if that fails."""
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
    """Redirect the output to nowhere; otherwise Python reports the error again on exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _not_taken(error: OSError) -> str:
    return (
        f"Expected the output to be taken, but got: {error.strerror or error}. Direct it to a place that has room; files "
        f"that were written are complete."
    )


def _not_used(error: OSError) -> str:
    """Return a message about a file or a folder that cannot be read or written, with its full name if known."""
    if error.filename is None:
        wanted, advice = "the system to serve this command", "Add --traceback to see the place"
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
    """Mark errors of writing to the output inside the context: without buffering, the next flush would succeed."""
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
    """Return a function that shows warnings without repeating any: some are issued at every update."""
    shown: set[str] = set()

    def show(message: Warning | str, *details: Any, **more: Any) -> None:
        if str(message) not in shown:
            shown.add(str(message))
            print(f"orthornn: {printable(message)}", file=sys.stderr, flush=True)

    return show


def _unexpected(error: Exception) -> str:
    """Return one sentence for an unexpected error: what it was, and where in the program."""
    place = tb.extract_tb(error.__traceback__)[-1]
    file = "/".join(place.filename.split(os.sep)[-2:])
    what = " ".join(f"{type(error).__name__}: {error}".split())
    return f"unexpected {what[:_LONGEST]} ({file}, line {place.lineno}). --traceback shows how it came about."


def _module_of(command: str) -> str:
    """Return the name of the module that runs a command. Raise MissingPackageError if it needs the evidence package."""
    if command not in COMMANDS and is_known(OF_PACKAGES, command):
        return load(OF_PACKAGES, command).module
    return f"{__name__}.{check_choice('command', command, commands())}"


def _check_packages(command: str) -> None:
    """Raise MissingPackageError if a command needs a package that is not installed, before hours of training."""
    draws = command in ("train", "compare", "sweep", "demo", "report")
    for package in ("safetensors", "msgspec", *(["matplotlib"] if draws else [])):
        if command not in ("doctor", "inspect", "figures") and importlib.util.find_spec(package) is None:
            raise MissingPackageError.named(f"orthornn {command}", package, "cli")


def _run(words: list[str], traceback: bool) -> int:
    try:
        if (text := asked(words)) is not None:
            print(text, end="")
            return 0
        extension.build()  # an ORTHORNN_ISA that is not there
        module = _module_of(words[0])
        if words[0] not in COMMANDS:  # of another package, whose parser may take the last of two
            split_words(words[1:], lambda typed: 1)
        if not {"-h", "--help"} & {*words}:
            _check_packages(words[0])
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
        if traceback or package not in ("rich", "matplotlib"):
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
