"""A run that is killed again and again, at random moments, ends as the run that was not."""

from __future__ import annotations

import dataclasses
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from orthornn._folder import Folder
from orthornn.errors import CheckpointError
from orthornn.learn.runs.log import MetricsLog
from orthornn.learn.training import Run, ScheduleConfig, read_metrics, resume, train
from support.run_cases import EPOCHS, config, content, numbers

CONFIG = config(
    "ornn", task=EPOCHS, steps=600, checkpoint_every=7, validate_every=40, schedule=ScheduleConfig("cosine")
)


SHORT = dataclasses.replace(CONFIG, steps=60)


def go_on(path, config):
    if (path / "config.json").exists():
        resume(path)
    else:
        train(config, path)


def killed(path, config, checkpoints, seconds):
    """Work on the run in a process of its own, and kill that so long after it has written so many checkpoints.

    Whether it was still at work.
    """
    target = steps_saved(path) + checkpoints * config.checkpoint_every
    child = os.fork()
    if child == 0:
        try:
            go_on(path, config)
        except BaseException as error:
            print(error, file=sys.stderr, flush=True)
            os._exit(1)
        os._exit(0)
    ended = None
    while ended is None and checkpoints and steps_saved(path) < target:
        pid, status = os.waitpid(child, os.WNOHANG)
        ended = status if pid else None
        time.sleep(0.002)
    if ended is None:
        time.sleep(seconds)
        os.kill(child, signal.SIGKILL)
        ended = os.waitpid(child, 0)[1]
    assert os.WIFSIGNALED(ended) or os.WEXITSTATUS(ended) == 0
    return os.WIFSIGNALED(ended)


def survive(tmp_path, config, kills, seed):
    """Kill so many processes that are at work; returns the steps from which each went on.

    The moments are so many checkpoints, and then a random time shorter than what lies between two on this machine.
    """
    draw = random.Random(seed)
    whole = train(config, tmp_path / "whole")
    between = whole.seconds * config.checkpoint_every / config.steps
    done, number, starts = 0, 0, []
    while done < kills:
        path = tmp_path / f"parts-{number}"
        while done < kills:
            saved = steps_saved(path)
            at_work = killed(path, config, draw.choice([0, 1, 1, 2]), draw.uniform(0, between))
            assert steps_saved(path) >= saved  # what was saved once is never lost
            if not at_work:
                break
            done += 1
            starts.append(saved)
        if not (path / "result.json").exists():
            go_on(path, config)
        assert content(path) == content(tmp_path / "whole")
        assert numbers(read_metrics(path / "metrics.jsonl")) == numbers(whole.records)
        number += 1
    print(f"{done} processes killed over {number} runs, at work from steps {starts}")
    return starts


def steps_saved(path):
    names = [int(entry.name[5:]) for entry in (path / "checkpoints").glob("step-*")] if path.exists() else []
    return max(names, default=0)


def test_three_kills(tmp_path, one_thread):
    assert max(survive(tmp_path, SHORT, 3, seed=1)) > 0


@pytest.mark.kill
def test_a_hundred_kills(tmp_path, one_thread):
    assert max(survive(tmp_path, CONFIG, 100, seed=2)) > 0


COMMAND = ["train", "copying", "--T", "5", "--hidden-size", "8", "--steps", "1000000", "--checkpoint-every", "5"]


@pytest.mark.sampled(1)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_saves_and_says_how_to_go_on(number, tmp_path):
    path = {"PYTHONPATH": os.pathsep.join([*sys.path, os.path.dirname(__file__)]), "OMP_NUM_THREADS": "1"}
    code = "import signal, runpy; signal.signal(signal.SIGINT, signal.default_int_handler);"
    code += "runpy.run_module('orthornn', run_name='__main__', alter_sys=True)"  # SIGINT may be ignored here (nohup)
    words = [sys.executable, "-c", code, *COMMAND, "--out", "run"]
    with subprocess.Popen(words, cwd=tmp_path, env=os.environ | path, stderr=subprocess.PIPE, text=True) as process:
        try:
            while not list((tmp_path / "run" / "checkpoints").glob("step-*")):
                assert process.poll() is None
                time.sleep(0.05)
            process.send_signal(number)
            _, error = process.communicate(timeout=600)
        finally:
            process.kill()  # else leaving the block would wait for it
    assert process.returncode == 128 + number
    assert len(error.strip().splitlines()) == 1
    assert "its state is saved. Resume it with: orthornn train --resume run" in error
    step = int(error.split("after update ")[1].split()[0])
    assert (tmp_path / "run" / "checkpoints" / f"step-{step:08d}").is_dir()


def test_a_disk_that_fills(tmp_path, monkeypatch, one_thread):
    """A limit on the size of files stands for a full disk: writes fail in the middle of a file."""
    resource = pytest.importorskip("resource")
    monkeypatch.chdir(tmp_path)
    run = Run(SHORT, Path("run"))
    run.advance_to(20)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (3000, before[1]))
    try:
        with pytest.raises(CheckpointError, match="Expected to write the checkpoint of step 21") as caught:
            run.advance_to(60)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        run.close()
    assert "The last good checkpoint is run/checkpoints/step-00000014" in str(caught.value)
    assert sorted(entry.name for entry in (tmp_path / "run" / "checkpoints").iterdir())[-1] == "step-00000014"
    assert numbers(resume(tmp_path / "run").records) == numbers(train(SHORT).records)


def test_a_full_log_is_said_and_mended(tmp_path, monkeypatch):
    """ENOSPC after half a line."""
    from orthornn.learn.runs.log import MetricsLog

    real = MetricsLog.append
    count = 0

    def append(log, record):
        nonlocal count
        count += 1
        if count < 9:
            return real(log, record)
        log._file.write(b'{"kind": "train", "st')
        raise CheckpointError("no space left on device")

    monkeypatch.setattr(MetricsLog, "append", append)
    with pytest.raises(CheckpointError, match="no space left"):
        train(config(), tmp_path)
    monkeypatch.undo()
    assert numbers(resume(tmp_path).records) == numbers(train(config()).records)


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
def test_a_full_device_is_said(tmp_path):
    log = MetricsLog(Folder.open(tmp_path), "metrics.jsonl")
    log._file = open("/dev/full", "ab", buffering=0)  # noqa: SIM115
    with pytest.raises(CheckpointError, match=r"Expected to write .*metrics\.jsonl, but got: No space left on device"):
        log.append({"kind": "train"})
