"""Run directories written before the workbench moved to orthornn.lab (fixtures/before_lab) can be read and resumed."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

import orthornn
from orthornn.errors import ConfigError
from orthornn.lab.cli import main
from orthornn.lab.systems import Model
from orthornn.lab.training import RunConfig, read_config, resume
from orthornn.lab.training.description import make_model
from support.tolerances import tolerance

BEFORE = Path(__file__).parent / "fixtures" / "before_lab"
MODELS = [json.loads(line.rstrip(",")) for line in (BEFORE / "models.json").read_text().splitlines()[1:-1]]
TENSORS = load_file(BEFORE / "models.safetensors")


def test_a_finished_run_is_loaded_and_says_what_it_said():
    loaded = orthornn.load(BEFORE / "finished", "last")
    expected = json.loads((BEFORE / "finished" / "result.json").read_text())["test"]["loss"]
    (batch,) = loaded.config.task.test(250)
    with torch.no_grad():
        found = float(loaded.config.task.loss(loaded.model(batch.inputs), batch.targets))
    assert math.isclose(found, expected, rel_tol=1e-4)


def test_a_stopped_run_is_resumed_and_ends_where_it_would_have(tmp_path):
    shutil.copytree(BEFORE / "stopped", tmp_path / "run")
    result = resume(tmp_path / "run")
    expected = json.loads((BEFORE / "finished" / "result.json").read_text())
    assert result.steps == expected["steps"] == 20
    assert math.isclose(result.test["loss"], expected["test"]["loss"], rel_tol=1e-3)


def test_the_configuration_is_written_as_it_was_read():
    plain = json.loads((BEFORE / "finished" / "config.json").read_text())
    config = read_config(BEFORE / "finished" / "config.json")
    penalties = plain["penalties"]
    penalties["norm_stabilizer"] = penalties.pop("norm_stabiliser")  # as earlier versions spelled it
    found = json.loads(json.dumps(config.to_dict()))
    # What has been added since has the value under which nothing is different.
    added = {"optimizer": {"decoupled_decay": 0.01}, "penalties": {"label_smoothing": 0.0}}
    options = ("head", "head_width", "depth", "state_size", "stride", "mixing", "norm", "decay", "decay_in", "r_min")
    options += ("pool", "dropout", "lags", "bidirectional", "u1")
    found["task"].pop("variable")
    for part, entries in {**added, "model": dict.fromkeys(options)}.items():
        for name, value in entries.items():
            assert found[part].pop(name) == value
    assert found == plain
    assert RunConfig.read(config.to_dict()) == config


def test_an_option_that_earlier_versions_spelled_otherwise_is_read():
    earlier = {"penalties": {"norm_stabiliser": 0.5}}  # as earlier versions spelled it
    assert RunConfig.read(earlier).penalties.norm_stabilizer == 0.5
    both = {"penalties": {"norm_stabiliser": 0.5, "norm_stabilizer": 0.25}}  # as no earlier versions wrote it
    with pytest.raises(ConfigError, match="unknown name 'norm_stab"):
        RunConfig.read(both)


@pytest.mark.parametrize("index", range(len(MODELS)), ids=lambda i: f"{i}-{MODELS[i]['name']}")
def test_every_model_is_the_network_that_it_was(index):
    plain = {**json.loads((BEFORE / "finished" / "config.json").read_text()), "model": MODELS[index]}
    config = RunConfig.read(plain).model
    assert isinstance(config, Model)
    model = make_model(config, {"input_size": 2, "output_size": 3, "input": "real", "output": "all"})
    weights = {name.split("/", 1)[1]: value for name, value in TENSORS.items() if name.startswith(f"{index}/")}
    shapes = {name: value.shape for name, value in model.state_dict().items() if isinstance(value, torch.Tensor)}
    assert shapes == {name: value.shape for name, value in weights.items()}
    model.load_state_dict(weights, strict=False)
    x = torch.linspace(-1, 1, 5 * 3 * 2, dtype=torch.float64).sin().reshape(5, 3, 2).float()
    with torch.no_grad():
        found = model(x)
    expected = TENSORS[f"{index}:outputs"]
    atol = tolerance(torch.float32, 5 * 12 * 12) * max(1.0, float(expected.abs().max()))
    torch.testing.assert_close(found, expected, rtol=0, atol=atol)


def test_the_command_reads_such_a_run(tmp_path, capsys):
    run = shutil.copytree(BEFORE / "finished", tmp_path / "run")
    assert main(["report", str(tmp_path), "--out", str(tmp_path / "report.html")]) == 0
    assert main(["export", str(run), "--safetensors"]) == 0
    assert (run / "export" / "folded.safetensors").exists()
