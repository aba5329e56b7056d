"""One flipped bit in a file of a run: everything is as before, or something is reported; never other numbers in silence."""

from __future__ import annotations

import os
import shutil
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch

from orthornn.cli import evaluate
from orthornn.errors import OrthornnError
from orthornn.learn.predict import load
from orthornn.learn.report.runs import read_run
from orthornn.learn.systems import model_named
from orthornn.learn.tasks import Classify
from orthornn.learn.training import OptimizerConfig, Run, RunConfig, resume
from support.run_cases import content, numbers

EVERY = 1009  # bytes, in the fast suite


@pytest.fixture(autouse=True)
def _no_sync(monkeypatch):
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)


def made_runs(folder: Path) -> tuple[Path, Path]:
    """A finished run and one that was stopped, on one small table."""
    rows, generator = ["s,u,v,y"], torch.Generator().manual_seed(0)
    for s in range(12):
        rows += ["{},{:.3f},{:.3f},{}".format(s, *torch.randn(2, generator=generator).tolist(), "ab"[s % 2])] * 3
    (folder / "d.csv").write_text("\n".join(rows) + "\n")
    task = Classify(data=str(folder / "d.csv"), target="y", sequence="s")
    settings = RunConfig(
        task=task,
        model=model_named("ornn", hidden_size=3),
        optimizer=OptimizerConfig(lr=0.02),
        steps=12,
        batch_size=4,
        validate_every=3,
        log_every=3,
        checkpoint_every=4,
        keep_checkpoints=1,
    )
    paths = folder / "finished", folder / "stopped"
    for path, step in zip(paths, (12, 8)):
        run = Run(settings, path)
        run.advance_to(step)
        run.finish() if step == 12 else run.checkpoint()
        run.close()
    return paths


def scores(run: Path) -> object:
    values = np.arange(12, dtype=np.float32).reshape(2, 3, 2)
    found = load(run).predict(values)
    return found.scores.tobytes(), None if found.labels is None else found.labels.tolist()


def evaluation(run: Path, capsys) -> object:
    capsys.readouterr()
    evaluate.main([str(run)])
    return capsys.readouterr().out


def reported(run: Path) -> object:
    """What a report shows of a run."""
    found = read_run(run)
    return repr([found.config.to_dict(), found.environment, found.records, found.result, found.description])


def resumed(run: Path) -> object:
    copy = run.with_name("copy")
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(run, copy)
    result = resume(copy)
    return content(copy), repr(numbers(result.records)), repr([*numbers([result.best]), result.test, result.best_test])


def outcome(look) -> tuple[object, str]:
    """What was found, and what was reported; an error is reported, and nothing is found."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            found = look()
        except OrthornnError as error:
            return None, str(error)
    return found, "".join(str(one.message) for one in caught)


def check_flips(tmp_path, capsys, every):
    """Flip one bit in every so many bytes of all files, and look in every way; counts of what came of it."""
    counts = {"same": 0, "reported": 0}
    for run in made_runs(tmp_path):
        looks = {
            "predict": lambda run=run: scores(run),
            "evaluate": lambda run=run: evaluation(run, capsys),
            "report": lambda run=run: reported(run),
        }
        if run.name == "stopped":
            looks["resume"] = lambda run=run: resumed(run)
        intact = {name: outcome(look) for name, look in looks.items()}
        assert all(found is not None and not said for found, said in intact.values()), intact
        files = [path for path in sorted(run.rglob("*")) if path.is_file() and path.name != ".lock"]
        assert len(files) >= 8
        for file in files:
            data = file.read_bytes()
            for place in range((len(data) * 7) % every, len(data), every):
                mutant = bytearray(data)
                mutant[place] ^= 1 << (place // every) % 8
                file.write_bytes(mutant)
                for name, look in looks.items():
                    found, said = outcome(look)
                    where = f"{name}: byte {place} of {file.relative_to(tmp_path)}, {data[max(0, place - 20) : place + 20]!r}"
                    assert said or found == intact[name][0], where
                    assert len(said) < 2000, where
                    counts["reported" if said else "same"] += 1
            file.write_bytes(data)
    print(f"{sum(counts.values())} readings of runs with one flipped bit: {counts}; none with other numbers in silence")
    return counts


def test_some_flipped_bits(tmp_path, capsys, one_thread):
    counts = check_flips(tmp_path, capsys, EVERY)
    assert counts["reported"] > 70
    assert counts["same"] > 25


@pytest.mark.hostile_runs
def test_many_flipped_bits(tmp_path, capsys, one_thread):
    counts = check_flips(tmp_path, capsys, 11)
    assert counts["reported"] > 8000
