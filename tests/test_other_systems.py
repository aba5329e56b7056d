"""The package where a system lacks what Linux has: fcntl and open folders (Windows), OpenMP (macOS), a compiler."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from orthornn import doctor
from orthornn.kernels.backends.cpp import extension

# As Windows has it, once the standard library and torch are loaded, which have their own ways there.
WINDOWS = """
import sys, torch, subprocess, asyncio, tempfile, multiprocessing
for name in ("O_DIRECTORY", "O_NOFOLLOW", "O_NONBLOCK", "O_CLOEXEC", "pread"):
    delattr(__import__("os"), name)
import os, signal
os.supports_dir_fd = set()
del signal.SIGPIPE
def without_base(function):
    def call(*arguments, **options):
        assert all(options.pop(name, None) is None for name in ("dir_fd", "src_dir_fd", "dst_dir_fd"))
        return function(*arguments, **options)
    return call
for name in ("open", "stat", "mkdir", "rmdir", "unlink", "replace", "rename"):
    setattr(os, name, without_base(getattr(os, name)))
sys.modules["fcntl"] = None
"""
WITHOUT_EXTENSION = """
import sys
sys.modules["orthornn._native"] = None
"""
TRAINING = """
import torch
from orthornn import Householder, OrthogonalRNN
torch.manual_seed(0)
rnn = OrthogonalRNN(2, 8, parametrization=Householder(4))
optimizer = torch.optim.Adam(rnn.parameters(), lr=0.02)
x, losses = torch.rand(6, 16, 2), []
for _ in range(20):
    loss = (rnn(x, output="last")[0] - 0.2).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
assert losses[-1] < losses[0] / 2, losses
print("learned")
"""
COMMANDS = """
import sys
from orthornn.cli import main
train = ["train", "copying", "--T", "5", "--hidden-size", "8", "--out", sys.argv[1], "--checkpoint-every", "2"]
assert main([*train, "--steps", "4"]) == 0
assert main(["train", "--resume", sys.argv[1], "--steps", "8"]) == 0
assert main(["doctor"]) == 0
"""


def run(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, env=environment, check=False
    )


def test_commands_work_without_locks_and_open_folders(tmp_path):
    done = run(WINDOWS + TRAINING + COMMANDS, str(tmp_path / "run"))
    assert done.returncode == 0, done.stderr
    assert "learned" in done.stdout
    assert "this system has no locks" in done.stderr
    said = [line for line in done.stdout.splitlines() if line.startswith(("file locks", "folders"))]
    assert len(said) == 2, done.stdout


def test_networks_train_without_the_compiled_kernels():
    done = run(WITHOUT_EXTENSION + TRAINING + 'from orthornn import doctor\nprint(*doctor.report(), sep="\\n")')
    assert done.returncode == 0, done.stderr
    assert "learned" in done.stdout
    assert done.stderr.count("Expected compiled kernels") == 1
    assert sum("compiled kernels: none" in line for line in done.stdout.splitlines()) == 1


@pytest.mark.skipif(extension.missing() is not None, reason="there are no compiled kernels")
def test_a_missing_openmp_runtime_is_reported(monkeypatch):
    found = extension.build()
    assert found is not None
    monkeypatch.setattr(extension, "build", lambda: found._replace(threading_runtime=None))
    lines = [line for line in doctor.report() if line.startswith("  threads")]
    assert len(lines) == 1
    assert "one" in lines[0]
