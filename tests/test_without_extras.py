"""The package as `pip install orthornn` leaves it: with torch and NumPy, and without any extra."""

from __future__ import annotations

import json
import os
import subprocess
import sys

from orthornn.cli import COMMANDS

EXTRAS = (
    "rich matplotlib safetensors onnx onnxruntime onnxscript scipy pyarrow pooch soundfile pystoi pesq "
    "tensorboard ray geotorch sb3_contrib torchrl"
)
WITHOUT = f"""
import sys
class Hiding:
    def __init__(self, finder):
        self.finder = finder
    def __getattr__(self, name):
        return getattr(self.finder, name)
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] not in {EXTRAS.split()!r}:
            return self.finder.find_spec(name, path, target)
sys.meta_path[:] = [Hiding(finder) for finder in sys.meta_path]
"""

TRAINING = """
import torch
from orthornn import Householder, OrthogonalRNN
from orthornn.optim import attach
torch.manual_seed(0)
rnn, readout = OrthogonalRNN(2, 8, parametrization=Householder(4)), torch.nn.Linear(8, 1)
parameters = [*rnn.parameters(), *readout.parameters()]
optimizer = torch.optim.Adam(parameters, lr=0.02)
attach(rnn, optimizer)
x = torch.rand(6, 16, 2)
y = x.sum((0, 2)).unsqueeze(1)
losses = []
for _ in range(60):
    loss = torch.nn.functional.mse_loss(readout(rnn(x, output="last")[0]), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(float(loss))
assert losses[-1] < losses[0] / 4, losses
print("learned")
"""


def without_extras(code: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"}
    return subprocess.run([sys.executable, "-c", WITHOUT + code], capture_output=True, text=True, env=environment)


COMMANDS_IN_TURN = """
import contextlib, io, json
from orthornn import cli
found = []
for words in {words!r}:
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        status = cli.main(words)
    found.append([status, out.getvalue(), err.getvalue()])
print(json.dumps(found))
"""


def commands(words: list[list[str]]) -> list[tuple[int, str, str]]:
    done = without_extras(COMMANDS_IN_TURN.format(words=words))
    assert done.returncode == 0, done.stderr
    return [tuple(found) for found in json.loads(done.stdout)]


def test_a_network_trains_in_plain_torch():
    done = without_extras(TRAINING)
    assert done.stdout == "learned\n", done.stderr


def test_the_manual_and_doctor_work():
    words = [[], ["--help"], ["--version"], ["doctor"], ["doctor", "--n", "16", "--m", "4"]]
    for status, out, err in commands(words):
        assert (status, err) == (0, "")
        assert out.startswith("orthornn ")
    assert "  rich        missing" in out
    assert "  form " in out


def test_a_text_file_is_inspected(tmp_path):
    (tmp_path / "a.csv").write_text("x,y\n1,a\n2,b\n")
    ((status, out, err),) = commands([["inspect", str(tmp_path / "a.csv")]])
    assert (status, err) == (0, "")
    assert "2 rows, 2 columns" in out


def test_training_on_a_table_names_the_extra():
    code = "import orthornn\ntry:\n    orthornn.train('a.csv', 'y')\nexcept ImportError as error:\n    print(error)"
    done = without_extras(code)
    assert "pip install '.[tables]'" in done.stdout, done.stderr


def test_integrations_name_the_extra():
    code = """
for name, package in (("sb3", "sb3_contrib"), ("torchrl", "torchrl")):
    try:
        __import__(f"orthornn.integrations.{name}")
    except ImportError as error:
        print(package in str(error), "pip install '.[rl]'" in str(error), type(error).__name__)
"""
    done = without_extras(code)
    assert done.stdout.splitlines() == ["True True MissingPackageError"] * 2, done.stderr


def test_every_other_command_names_the_extra_in_one_sentence():
    # figures needs a run with records before it needs matplotlib; inspect reads text files without an extra
    names = sorted({*COMMANDS} - {"doctor", "figures", "inspect"})
    for name, (status, out, err) in zip(names, commands([[name, "copying"] for name in names])):
        assert (status, out) == (2, ""), name
        (line,) = err.splitlines()
        assert line.startswith("orthornn: "), name
        assert "pip install '" in line, name
        assert "[cli]'" in line, name
