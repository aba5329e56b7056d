"""Small runs over every optimizer, model and task, and how two runs are compared bit for bit."""

from __future__ import annotations

import json

from orthornn.learn.systems import model_named
from orthornn.learn.tasks import Adding, Copying
from orthornn.learn.training import OptimizerConfig, RunConfig

COPYING = Copying(T=3, symbols=3, items=2, validation_size=20, test_size=20)
EPOCHS = Adding(T=6, variant="helfrich2018", train_size=30, validation_size=10, test_size=10)


def config(name="ornn-rotations", hidden_size=8, **options):
    options = {"task": COPYING, "steps": 30, "batch_size": 8, "validate_every": 10, "log_every": 4, **options}
    options.setdefault("optimizer", OptimizerConfig(lr=0.01))
    return RunConfig(model=model_named(name, hidden_size=hidden_size), **options)


def numbers(records):
    """Records without what the clock says."""
    return [
        {key: value for key, value in record.items() if key not in ("seconds", "cpu_seconds")} for record in records
    ]


def content(folder):
    """The bytes of the weights and of the optimizer in a run's last checkpoint, and those at the end."""
    last = sorted((folder / "checkpoints").glob("step-*"))[-1]
    files = [last / "model.safetensors", last / "training.safetensors", folder / "model.safetensors"]
    return {file.relative_to(folder).as_posix(): file.read_bytes() for file in files if file.exists()}


def entries(path):
    """What a JSON file of a run holds, without its sum: written back, it is a file that a user changed on purpose."""
    plain = json.loads(path.read_text())
    plain.pop("sha256", None)
    return plain
