"""A run that is killed before any one of its operations on files goes on to the bytes of the run that was not."""

from __future__ import annotations

import dataclasses
import os
import shutil
import signal
import sys

import pytest

from orthornn.errors import ArgumentError
from orthornn.learn.runs.directory import load_model
from orthornn.learn.training import read_metrics, resume, train
from orthornn.saved.run_files import read_result
from support.run_cases import EPOCHS, config, content, numbers

CONFIG = config(
    "ornn", task=EPOCHS, hidden_size=4, steps=12, checkpoint_every=3, validate_every=5, keep_checkpoints=1, log_every=2
)
OPERATIONS = ("open", "write", "rename", "replace", "mkdir", "unlink", "rmdir", "fsync", "ftruncate", "close")


def counted(count):
    """Kill this process before its operation number `count`; how many there were until now."""
    done = [0]

    def before(real):
        def operation(*given, **more):
            done[0] += 1
            if done[0] == count:
                os.kill(os.getpid(), signal.SIGKILL)
            return real(*given, **more)

        return operation

    for name in OPERATIONS:
        setattr(os, name, before(getattr(os, name)))
    return done


def in_a_child(work):
    """Whether a process of its own came to the end of `work`."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            work()
            status = 0
        except BaseException as error:
            print(repr(error), file=sys.stderr, flush=True)
        finally:
            os._exit(status)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0
    return not os.WIFSIGNALED(status)


def go_on(path, settings):
    return resume(path) if (path / "config.json").exists() else train(settings, path)


def readable(path):
    """Raise unless the weights are whole, or there are none yet."""
    try:
        load_model(path)
    except ArgumentError as error:
        if "has none yet" not in str(error):
            raise


def kill_at(tmp_path, counts, settings=CONFIG, twice=False):
    """Kill a run before each of these operations, go on, and compare; how many were killed."""
    whole = train(settings, tmp_path / "whole")
    killed = 0
    for count in counts:
        path = tmp_path / f"run-{count}"

        def work(path=path, count=count):
            counted(count)
            go_on(path, settings)

        if in_a_child(work):
            break  # it has fewer operations
        killed += 1
        if twice:  # the one that goes on is killed, too
            in_a_child(work)
        if (path / "config.json").exists():
            readable(path)
        result = go_on(path, settings)
        assert content(path) == content(tmp_path / "whole")
        assert numbers(read_metrics(path / "metrics.jsonl")) == numbers(whole.records) == numbers(result.records)
        assert read_result(path)["weights_sha256"] == whole.weights_sha256
        assert not [left for left in path.rglob(".*") if left.name != ".lock" and left.is_dir()]
        shutil.rmtree(path)
    print(f"{killed} of {killed} runs killed at an operation on files went on to the same bytes")
    return killed


def test_some_operations(tmp_path, one_thread):
    """Every thirteenth of the first ones, and one that is killed twice."""
    assert kill_at(tmp_path, range(5, 110, 26)) == 5


@pytest.mark.kill_operations
def test_every_operation(tmp_path, one_thread):
    assert kill_at(tmp_path, range(1, 10_000)) > 200


@pytest.mark.kill_operations
def test_every_operation_of_a_run_that_is_made_longer(tmp_path, one_thread):
    """The end of the run that was there is replaced, weights and result, at every point."""
    longer = dataclasses.replace(CONFIG, steps=16)
    train(CONFIG, tmp_path / "short")
    whole = train(longer, tmp_path / "whole")
    for count in range(1, 10_000):
        path = tmp_path / f"run-{count}"
        shutil.copytree(tmp_path / "short", path)

        def work(path=path, count=count):
            counted(count)
            resume(path, steps=16)

        ended = in_a_child(work)
        load_model(path)
        resume(path, steps=16)
        assert content(path) == content(tmp_path / "whole")
        assert numbers(read_metrics(path / "metrics.jsonl")) == numbers(whole.records)
        shutil.rmtree(path)
        if ended:
            break
    print(f"{count - 1} of {count - 1} continuations killed at an operation on files went on to the same bytes")
    assert count > 60
