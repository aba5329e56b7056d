"""Runs carried out: from the first update, or a checkpoint, to the end or a signal."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Callable
from pathlib import Path

from ..._recording import recording
from ..._shell_word import shell_word
from ...errors import Interrupted, NonFiniteError, OrthornnError
from ...saved.diverged import write_diverged
from ..training.config import RunConfig
from .result import Progress, RunResult
from .run import Run
from .signals import StopSignals, output_refused

_PROGRESS_SECONDS = 0.25  # at most one report in this long


@recording()
def train(
    config: RunConfig,
    directory: str | Path | None = None,
    on_progress: Callable[[Progress], None] | None = None,
) -> RunResult:
    """Carry out the run that `config` describes, in `directory` if one is given.

    Args:
        config: Task, model, optimizer, and how long to train.
        directory: Where to write the run directory. Default: None, nothing is written.
        on_progress: Function that is called about four times per second, and at the end. Default: None.

    Returns:
        The metrics, the records, and the trained model.

    Raises:
        ArgumentError: If the directory holds a run already.
        DataError: If the data cannot be used.
        NonFiniteError: If the loss becomes NaN or infinite.
        CheckpointError: If the disk does not take the state, or what on_progress writes.
        Interrupted: If Ctrl-C or SIGTERM ended a run in a directory, or the reader of what on_progress writes is gone.
    """
    return run_to_end(Run(config, directory), on_progress)


@recording()
def resume(
    directory: str | Path,
    on_progress: Callable[[Progress], None] | None = None,
    *,
    steps: int | None = None,
    max_seconds: float | None = None,
) -> RunResult:
    """Resume the run in `directory`; see Run.resume and train."""
    return run_to_end(Run.resume(directory, steps=steps, max_seconds=max_seconds), on_progress)


@recording()
def run_to_end(run: Run, on_progress: Callable[[Progress], None] | None = None) -> RunResult:
    """Advance a run to its end, or to a signal: then its state is saved and Interrupted names the command that resumes
    it. So it is if on_progress fails because a pipe is closed or a disk is full.
    """
    alone = run.trainer.processes.count == 1
    try:
        with StopSignals() as signals:
            while not run.done:
                try:
                    run.advance(_PROGRESS_SECONDS)
                except NonFiniteError as error:
                    if run.directory is not None:
                        with contextlib.suppress(OSError, OrthornnError):  # of a full disk; the divergence is the news
                            write_diverged(run.directory.path, run.trainer.step, run.seconds, error)
                    raise
                if on_progress is not None:
                    _report(run, on_progress)
                if signals.received is not None:
                    # of several processes all must stop after the same update, which the next one agrees on
                    run.fit.stop_wanted, run.fit.interrupted = True, alone
            if run.fit.interrupted:
                raise _interruption(run, signals.received or signal.SIGTERM)
            try:
                signals.at_once = True
                if signals.received is not None:  # since the last update
                    raise KeyboardInterrupt
                result = run.finish()
            except KeyboardInterrupt:
                raise _interruption(run, signals.received or signal.SIGINT) from None
    finally:
        run.close()
    if on_progress is not None:
        on_progress(run.progress)
    return result


def _report(run: Run, on_progress: Callable[[Progress], None]) -> None:
    """Report the progress; if that is not taken, save the state and raise what says so."""
    try:
        on_progress(run.progress)
    except OSError as error:
        if run.directory is None or isinstance(error, OrthornnError):
            raise
        run.checkpoint()
        raise output_refused(error, f"The run ended {_where(run, run.directory.path)}") from error


def _interruption(run: Run, number: int) -> BaseException:
    if run.directory is None:
        return KeyboardInterrupt()
    run.checkpoint()
    return Interrupted(f"{signal.Signals(number).name} ended the run {_where(run, run.directory.path)}", number)


def _where(run: Run, path: Path) -> str:
    return (
        f"after update {run.trainer.step} of {run.config.steps}; its state is saved. Resume it with: orthornn train "
        f"--resume {shell_word(path)}"
    )
