"""The package as `pip install orthornn` leaves it: with torch and NumPy, and without any extra."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

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


TABLE = """
import orthornn
try:
    orthornn.train('a.csv', 'y')
except ImportError as error:
    print(error)
"""
INTEGRATIONS = """
for name, package in (("sb3", "sb3_contrib"), ("torchrl", "torchrl")):
    try:
        __import__(f"orthornn.integrations.{name}")
    except ImportError as error:
        print(package in str(error), "pip install '.[rl]'" in str(error), type(error).__name__)
"""
MANUAL = [[], ["--help"], ["--version"], ["doctor"], ["doctor", "--n", "16", "--m", "4"]]
# figures needs a run with records before it needs matplotlib; inspect reads text files without an extra
OTHERS = [[name, "copying"] for name in sorted({*COMMANDS} - {"doctor", "figures", "inspect"})]
INSPECT = ["inspect", "a.csv"]

# What each piece of code prints, and [status, stdout, stderr] of each command: one process, which imports torch once.
IN_TURN = """
import contextlib, io, json, traceback
found = []
for code in {codes!r}:
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        try:
            exec(code, {{"__name__": "__main__"}})
        except BaseException:
            traceback.print_exc(file=out)
    found.append(out.getvalue())
from orthornn import cli
for words in {commands!r}:
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        status = cli.main(words)
    found.append([status, out.getvalue(), err.getvalue()])
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """What the codes print, and (status, stdout, stderr) of the commands."""
    folder = tmp_path_factory.mktemp("plain")
    (folder / "a.csv").write_text("x,y\n1,a\n2,b\n")
    codes, commands = [TRAINING, TABLE, INTEGRATIONS], [*MANUAL, INSPECT, *OTHERS]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", WITHOUT + IN_TURN.format(codes=codes, commands=commands)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=folder, check=False)
    assert done.returncode == 0, done.stderr
    answers = json.loads(done.stdout)
    said = {tuple(words): tuple(answer) for words, answer in zip(commands, answers[len(codes) :])}
    return dict(zip(codes, answers)) | said


def test_a_network_trains_in_plain_torch(found):
    assert found[TRAINING] == "learned\n"


def test_the_manual_and_doctor_work(found):
    answers = [found[tuple(words)] for words in MANUAL]
    for status, out, err in answers:
        assert (status, err) == (0, "")
        assert out.startswith("orthornn ")
    assert any("  rich        missing" in out for _, out, _ in answers)
    assert "  form " in answers[-1][1]


def test_a_text_file_is_inspected(found):
    status, out, err = found[tuple(INSPECT)]
    assert (status, err) == (0, "")
    assert "2 rows, 2 columns" in out


def test_training_on_a_table_names_the_extra(found):
    assert "pip install '.[tables]'" in found[TABLE]


def test_integrations_name_the_extra(found):
    assert found[INTEGRATIONS].splitlines() == ["True True MissingPackageError"] * 2


def test_every_other_command_names_the_extra_in_one_sentence(found):
    for name, word in OTHERS:
        status, out, err = found[name, word]
        assert (status, out) == (2, ""), name
        (line,) = err.splitlines()
        assert line.startswith("orthornn: "), name
        assert "pip install '" in line, name
        assert "[cli]'" in line, name
