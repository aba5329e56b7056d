"""Runs of an earlier version, stopped half way: they load, resume, and end as that version ended them.

fixtures/old_runs holds them as version 2189e3fd left them after 7 of 12 updates, with checkpoints after the first 6: three
tasks, a comparison and a sweep; ends.json is how that version then finished them.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

import orthornn
from orthornn.environment import environment
from orthornn.errors import OrthornnWarning
from orthornn.learn import sweep
from orthornn.learn.compare import Comparison, is_begun
from orthornn.learn.training import Run, RunConfig, read_config, read_metrics
from support.run_cases import content, entries, numbers

STORED = Path(__file__).parent / "fixtures" / "old_runs"
ENDS = json.loads((STORED / "ends.json").read_text())
STEPS, SAVED = 12, 6
# What decides the last bits of a sum.
BITS = ("torch", "processor", "instruction_set", "torch_instruction_set", "threads", "gpu")

pytestmark = pytest.mark.filterwarnings("ignore:.*is resumed, but", "ignore:.*no threshold was chosen")


@pytest.fixture
def runs(tmp_path, monkeypatch):
    """A copy of them, as the current folder, in which their tables are."""
    shutil.copytree(STORED, tmp_path / "runs")
    monkeypatch.chdir(tmp_path / "runs")
    return tmp_path / "runs"


def is_same_machine(path):
    before, now = entries(path / "environment.json"), environment("cpu")
    capped = "ONEDNN_MAX_CPU_ISA" in os.environ  # torch's LSTM then adds in another order
    return not capped and all(before.get(name) == now.get(name) for name in BITS)


def near(found, wanted):
    """The same entries; numbers that a sum in another order makes."""
    if isinstance(wanted, dict):
        assert found.keys() == wanted.keys()
        return all(near(found[name], wanted[name]) for name in wanted)
    if isinstance(wanted, list):
        return len(found) == len(wanted) and all(map(near, found, wanted))
    if isinstance(wanted, float):
        return found == pytest.approx(wanted, rel=1e-2, abs=1e-3)
    return found == wanted


@pytest.mark.parametrize("name", ENDS)
def test_they_load_with_every_bit_of_their_weights(name, runs):
    stored = load_file(runs / name / "checkpoints" / f"step-{SAVED:08d}" / "model.safetensors")
    network = orthornn.load(runs / name, checkpoint=str(SAVED))
    found = network.model.state_dict()
    assert {key: value.dtype for key, value in found.items()} == {key: value.dtype for key, value in stored.items()}
    assert all(torch.equal(found[key], stored[key]) for key in stored)
    table = {"classify": "waves.csv", "forecast": "series.csv"}.get(name)
    if table is not None:
        assert all(len(one.scores) > 0 for _, one in network.tables.predict(table))


@pytest.mark.parametrize("name", ENDS)
def test_their_configurations_are_written_as_they_were(name, runs):
    config = entries(runs / name / "config.json")
    written = json.loads(json.dumps(RunConfig.read(config).to_dict()))
    for part, before in config.items():
        assert (written[part].items() >= before.items()) if isinstance(before, dict) else written[part] == before


@pytest.mark.parametrize("name", ENDS)
def test_they_resume_and_end_as_the_version_that_began_them_ended_them(name, runs):
    path, wanted = runs / name, ENDS[name]
    again = runs / f"{name}-again"
    shutil.copytree(path, again)
    result = finished(path)
    stopped = Run.resume(again)
    stopped.advance_to(9)
    stopped.close()
    second = finished(again)
    assert content(path) == content(again)
    assert numbers(result.records) == numbers(second.records) == numbers(read_metrics(path / "metrics.jsonl"))

    found = entries(path / "result.json")
    for timed in ("seconds", "update_seconds"):
        found.pop(timed)
    found["best"] = numbers([found["best"]])[0]
    records = numbers(result.records)
    last = path / "checkpoints" / wanted["checkpoint"]
    sums = {file: hashlib.sha256((last / file).read_bytes()).hexdigest() for file in wanted["sums"]}
    if is_same_machine(path):
        assert sums == wanted["sums"]
        assert (found, records) == (wanted["result"], wanted["records"])
    own = wanted["result"].pop("weights_sha256")
    assert len(found.pop("weights_sha256")) == len(own)
    assert near(found, wanted["result"])
    assert near(records, wanted["records"])


def finished(path):
    run = Run.resume(path)
    run.advance_to(STEPS)
    return run.finish()


def test_a_comparison_goes_on(runs):
    folder = runs / "compare"
    assert is_begun(folder)
    configs = {name: read_config(folder / name / "config.json") for name in ("lstm", "scornn")}
    with Comparison(configs, folder) as comparison:
        assert {run.trainer.step for run in comparison.runs.values()} == {SAVED}
        comparison.train()
        results = comparison.finish()
    assert {name: result.steps for name, result in results.items()} == dict.fromkeys(configs, STEPS)


def test_a_sweep_goes_on(runs):
    folder = runs / "sweep"
    configs = {name: RunConfig.read(plain) for name, plain in entries(folder / "sweep.json").items()}
    assert sweep.is_begun(folder)
    assert sweep.unfinished(configs, folder).keys() == configs.keys()
    for name in configs:
        finished(folder / "runs" / name)
    assert not sweep.unfinished(configs, folder)


def test_another_update_rule_than_theirs_is_seen(runs):
    """The comparison with what the earlier version wrote can fail."""
    path = runs / "copying"
    config = entries(path / "config.json")
    config["optimizer"]["lr"] *= 3
    (path / "config.json").write_text(json.dumps(config))
    state = path / "checkpoints"
    shutil.rmtree(state)
    with pytest.warns(OrthornnWarning, match="no checkpoint"):
        result = finished(path)
    assert not near(numbers(result.records), ENDS["copying"]["records"])
