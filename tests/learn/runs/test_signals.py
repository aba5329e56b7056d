"""SIGTERM outside the updates of a run: nothing half written is left, and the exit status tells."""

from __future__ import annotations

import os
import signal
import traceback

import pytest

import orthornn
from orthornn._files import write_atomically
from orthornn.cli import main, train
from orthornn.learn.runs.signals import Terminated, terminable
from orthornn.learn.shown import Printed

WORDS = [
    "--T",
    "3",
    "--hidden-size",
    "6",
    "--batch-size",
    "4",
    "--validation-size",
    "5",
    "--test-size",
    "5",
    "--steps",
    "2",
]
OPTIONS = {name.removeprefix("--").replace("-", "_"): int(value) for name, value in zip(WORDS[::2], WORDS[1::2])}


def status_of(call):
    """The exit status of a call in a process of its own, where SIGTERM is as a system has it."""
    child = os.fork()
    if child == 0:
        status = 99
        try:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            status = call()
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def half(*given):
    """A figure that is half written when SIGTERM comes."""

    def write(file):
        file.write(b"half")
        os.kill(os.getpid(), signal.SIGTERM)

    write_atomically(given[0], write)


def as_a_command(out):
    return main(["train", "copying", *WORDS, "--out", str(out)])


def from_python(out):
    try:
        orthornn.train("copying", out=out, **OPTIONS)
    except KeyboardInterrupt:
        return 143 if signal.getsignal(signal.SIGTERM) == signal.SIG_DFL else 98
    return 0


@pytest.mark.parametrize("call", [as_a_command, from_python])
def test_the_figure_of_a_finished_run_is_not_left_half_written(call, tmp_path, monkeypatch, capfd):
    monkeypatch.setattr(train, "learning_curves", half)
    monkeypatch.setattr(Printed, "figure", lambda shown, result, folder: half(folder / "curves.png"))  # Python has none
    assert status_of(lambda: call(tmp_path / "run")) == 143
    if call is as_a_command:
        assert "orthornn: ended by SIGTERM." in capfd.readouterr().err
    names = {path.name for path in (tmp_path / "run").iterdir()}
    assert {"result.json", "model.safetensors"} <= names
    assert "curves.png" not in names
    assert {name for name in names if name.startswith(".")} == {".lock"}


def test_another_handler_of_the_signal_stays():
    seen = []

    def call():
        signal.signal(signal.SIGTERM, lambda number, frame: seen.append(number))
        with terminable():
            os.kill(os.getpid(), signal.SIGTERM)
        return 7 if seen else 0

    assert status_of(call) == 7


def test_the_signal_ends_the_process_again_afterwards():
    def call():
        with pytest.raises(Terminated), terminable():
            os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGTERM)
        return 0

    assert status_of(call) == -signal.SIGTERM
