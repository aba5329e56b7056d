"""Two processes under torchrun make the updates of one, and their checkpoints are its checkpoints."""

from __future__ import annotations

import os
import socket
import subprocess
import sys

import pytest
import torch
from safetensors.torch import load_file

from orthornn.learn.training import OptimizerConfig, read_metrics, resume, train
from support.run_cases import config

SGD_LIKE = OptimizerConfig("rmsprop", lr=1e-3)
CONFIG = config("ornn", steps=20, batch_size=7, optimizer=SGD_LIKE, checkpoint_every=10)


def torchrun(tmp_path, *words):
    path = {"PYTHONPATH": os.pathsep.join([*sys.path, os.path.dirname(__file__)]), "OMP_NUM_THREADS": "1"}
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    launch = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2"]
    launch += ["--master-addr", "127.0.0.1", "--master-port", str(port)]
    done = subprocess.run(
        [*launch, *words], cwd=tmp_path, env=os.environ | path, capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


GRADIENTS = """
import sys, torch
from orthornn.learn.training import Processes, Trainer
from test_processes import CONFIG
processes = Processes.from_environment()
trainer = Trainer(CONFIG, processes)
loss = trainer.update()
if processes.first:
    torch.save([loss, {n: p.grad for n, p in trainer.model.named_parameters()}], "gradients.pt")
processes.leave()
"""


def near(one, other):
    """float32 sums over the batch in another order."""
    assert (one - other).norm() <= 64 * torch.finfo(torch.float32).eps * max(float(other.norm()), 1e-6)


@pytest.mark.slow
def test_the_gradients_are_those_of_the_whole_batch(tmp_path):
    from orthornn.learn.training import Trainer

    (tmp_path / "script.py").write_text(GRADIENTS)
    torchrun(tmp_path, "script.py")
    loss, gradients = torch.load(tmp_path / "gradients.pt", weights_only=True)
    trainer = Trainer(CONFIG)
    assert trainer.update() == pytest.approx(loss, rel=1e-6)
    for name, parameter in trainer.model.named_parameters():
        near(gradients[name], parameter.grad)


@pytest.mark.slow
def test_checkpoints_go_from_many_to_one_and_back(tmp_path):
    import json

    (tmp_path / "config.json").write_text(json.dumps(CONFIG.to_dict()))
    out = torchrun(tmp_path, "-m", "orthornn", "train", "--config", "config.json", "--out", "two")
    assert out.count("run directory: two") == 1
    whole = train(CONFIG, tmp_path / "one")
    for name, tensor in load_file(tmp_path / "one" / "model.safetensors").items():
        near(load_file(tmp_path / "two" / "model.safetensors")[name], tensor)
    longer = resume(tmp_path / "two", steps=30)
    assert longer.steps == 30
    torchrun(tmp_path, "-m", "orthornn", "train", "--resume", "one", "--steps", "30")
    records = read_metrics(tmp_path / "one" / "metrics.jsonl")
    last = [record for record in records if record["kind"] == "test"][-1]
    assert last["step"] == 30
    assert last["loss"] == pytest.approx(longer.test["loss"], rel=1e-4)
    assert whole.steps == 20
