"""The benchmark on a GPU, as far as a CPU can show: what is measured, kept, gone on with, and said without a GPU."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import types
import venv
from pathlib import Path

import pytest
import torch

from orthornn.cli import main
from orthornn.errors import DeviceError, VerificationError
from orthornn.kernels.backends.cpp import extension
from orthornn.kernels.backends.cuda import nvrtc
from orthornn.learn.training import RunConfig, Trainer
from orthornn_evidence.bench.cases import Case, Work
from orthornn_evidence.bench.gpu import BenchmarkPlan, benchmark, layers, recurrence, run
from orthornn_evidence.bench.gpu.precision import arithmetic, bound
from orthornn_evidence.bench.gpu.tables import EPOCH_FLOORS, FLOORS, tables

ROOT = Path(__file__).parents[3]
CASES = [Case.parse("wy-7-2-b3"), Case.parse("cayley-5-b2")]


def plan(folder: Path, T: int = 3) -> BenchmarkPlan:
    return BenchmarkPlan(folder, CASES, Work(T=T), rounds=1)


def test_a_run_and_going_on_with_it(tmp_path, monkeypatch):
    lines: list[str] = []
    results = run(plan(tmp_path), lines.append)
    names = [one.name for case in CASES for one in recurrence.recurrences(case, torch.device("cpu"))]
    assert list(results["verify"]) == list(results["recurrences"]) == names
    assert all(row["right"] and row["same_bits"] for row in results["verify"].values())
    networks = results["layers"]["wy-7-2-b3"]["networks"]
    assert {name.split()[0] for name in networks} == {"ours", "rnn", "lstm", "gru"}
    assert {name.split()[1] for name in networks} == {"float32", "tf32", "bfloat16"}
    assert networks["ours float32"]["ratio"] == [1, 1, 1]
    text = (tmp_path / "table.txt").read_text()
    assert "nn.LSTM" in text
    assert "not timed: flashrnn LSTM bfloat16: it runs only on CUDA devices" in text

    # The same again measures only what failed.
    saved = json.loads((tmp_path / "results.json").read_text())
    assert saved == json.loads(json.dumps(results))
    saved["recurrences"][names[0]] = {"failed": "no memory"}
    (tmp_path / "results.json").write_text(json.dumps(saved))
    lines.clear()
    again = run(plan(tmp_path), lines.append)
    assert [line.split(":")[1].strip() for line in lines] == names[:1]
    assert "failed" not in again["recurrences"][names[0]]
    assert again["layers"] == saved["layers"]
    # Other work begins anew and keeps what was.
    assert run(BenchmarkPlan(tmp_path, [], Work(T=4), seconds=0))["layers"] == {}
    assert json.loads((tmp_path / "results.before.json").read_text())["T"] == 3


def test_what_is_wrong_is_not_timed(tmp_path, monkeypatch):
    monkeypatch.setattr(recurrence, "bound", lambda *_: 0.0)
    monkeypatch.setattr(layers, "measure", lambda *_: 1 / 0)
    with pytest.raises(VerificationError, match="wy-7-2-b3"):
        run(plan(tmp_path), lambda line: None)
    results = json.loads((tmp_path / "results.json").read_text())
    assert results["recurrences"] == {}
    assert "ZeroDivisionError" in results["layers"]["cayley-5-b2"]["failed"]
    assert "MISSED" in (tmp_path / "table.txt").read_text()


@pytest.mark.parametrize("batch", [1, 32, 50])
def test_flashrnn_gets_whole_tiles_and_its_layout(batch, monkeypatch):
    """A stand-in for the package, whose states are sums of the first gate's inputs."""

    def flashrnn(inputs, recurrent, bias, function, dtype):
        assert inputs.shape == (-(-batch // 32) * 32, 5, 4, 1, 7)
        assert (recurrent.shape, bias.shape, function, dtype) == ((4, 1, 7, 7), (4, 1, 7), "lstm", "bfloat16")
        states = torch.stack([inputs[:, :, 0].cumsum(1), torch.zeros_like(inputs[:, :, 0])])
        return states, states[:, :, -1:]

    monkeypatch.setitem(sys.modules, "flashrnn", types.SimpleNamespace(flashrnn=flashrnn))
    lstm, x = layers.FlashLSTM(7), torch.randn(5, batch, 1)
    states, last = lstm(x)
    expected = (x @ lstm.projection.weight[:7].T).cumsum(0)
    torch.testing.assert_close(states, expected)
    torch.testing.assert_close(last, expected[-1:])


def test_floors_and_epochs():
    """Numbers made up: a floor is reached from its value on."""
    networks = {
        "ours float32": {"ratio": [1, 1, 1]},
        "lstm float32": {"ratio": [4.0, 3.9, 4.1]},
        "rnn float32": {"ratio": [1.49, 1.4, 1.5]},
    }
    rows = {"ms": 1.0, "us_per_step": 1.0, "peak_bytes": 2_000_000, "rounds": []}
    results = {
        "device": "made up",
        "torch": "0",
        "T": 784,
        "verify": {},
        "recurrences": {},
        "layers": {"wy-256-32-b50": {"networks": {k: v | rows for k, v in networks.items()}, "absent": {}}},
        "epochs": {"cayley-170-b128 float32": {"step_ms": 21.4, "epoch_s": 10.01}},
    }
    floors = next(table for table in tables(results) if table.title.startswith("floors"))
    assert [row[-1] for row in floors.rows] == ["reached", "missed", "missed"]


def test_an_epoch_is_counted_in_updates():
    found = layers.epoch(CASES[1], Work(T=3), "bfloat16", 1)
    assert found["epoch_s"] == pytest.approx(60_000 // 2 * found["step_ms"] / 1e3)


def test_precisions():
    before = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
    with arithmetic("tf32"):
        assert torch.get_float32_matmul_precision() == "high"
        assert torch.backends.cudnn.allow_tf32
    assert (torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32) == before
    assert bound("float32", 100, 256) < bound("bfloat16", 100, 256) < bound("tf32", 100, 256) < 0.1


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu(capsys):
    with pytest.raises(DeviceError, match="sees no CUDA device"):
        Work(device="cuda")
    assert main(["bench", "--device", "cuda"]) != 0
    assert "sees no CUDA device" in capsys.readouterr().err
    with pytest.raises(DeviceError, match="sees no CUDA device"):
        Trainer(RunConfig(device="cuda"))


def test_every_case_of_a_goal_is_measured():
    assert {case for case, _, _ in FLOORS} | set(EPOCH_FLOORS) <= set(benchmark.CASES)
    assert set(EPOCH_FLOORS) == set(benchmark.EPOCHS)


def dry(folder: Path, data: Path | None, *words: str, status: int = 0) -> str:
    command = [sys.executable, str(ROOT / "benchmarks" / "gpu.py"), *words, "--out", str(folder), "--dry"]
    env = {name: value for name, value in os.environ.items() if name != "ORTHORNN_DATA"}
    if data is not None:
        env["ORTHORNN_DATA"] = str(data)
    done = subprocess.run(command, env=env, capture_output=True, text=True)
    assert done.returncode == status, done.stderr[-2000:] + done.stdout[-2000:]
    return done.stdout


def test_the_one_call_trains_and_resumes(tmp_path):
    folder, systems = tmp_path / "out", ("helfrich2018-table1-scornn-170-MNIST", "mhammedi2017-table3-text")
    for _ in range(2):
        printed = dry(folder, None, "train")  # on made images
        found = json.loads((folder / "train.json").read_text())
        assert set(found) == set(systems), printed
        assert all(row["step"] == row["steps"] == 2 for row in found.values()), printed
    assert sorted(path.name for path in folder.iterdir()) == ["log.txt", "train.json", "train.tar"]
    printed = dry(tmp_path / "none", tmp_path, "train", status=1)
    assert "there is no folder" in printed
    assert "== failed: train" in printed


def test_the_one_call_says_what_is_missing(tmp_path):
    """A Python without torch, and a machine without a GPU: one line each, and nothing written."""
    script, out = str(ROOT / "benchmarks" / "gpu.py"), tmp_path / "out"
    venv.create(tmp_path / "bare", symlinks=True)
    bare = subprocess.run([tmp_path / "bare/bin/python", script, "--out", str(out)], capture_output=True, text=True)
    assert bare.returncode == 2
    assert bare.stderr.startswith("gpu.py: Expected a Python with torch, numpy, safetensors, pytest, hypothesis, but")
    env = os.environ | {"CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run([sys.executable, script, "--out", str(out)], capture_output=True, text=True, env=env)
    assert done.returncode == 2
    assert done.stderr.startswith("gpu.py: Expected a CUDA device, but torch sees none.")
    assert not out.exists()


def test_an_unknown_stage_is_an_error(tmp_path):
    command = [sys.executable, str(ROOT / "benchmarks" / "gpu.py"), "smoek", "--out", str(tmp_path / "out")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 2
    assert "Expected stages of smoke, bench, conformance, profile, train, but got smoek." in done.stderr


def test_the_smoke_tests_verdicts(tmp_path):
    """Every module in float32 against itself in float64; what only a GPU has is left out."""
    command = [sys.executable, str(ROOT / "benchmarks" / "gpu_smoke.py"), "cpu", "3"]
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ | {"PYTHONPATH": str(ROOT / "src")})
    found = json.loads(done.stdout.splitlines()[-1].removeprefix("SMOKE "))
    assert {"DeltaRNN, resets", "ReflectionRNN, resets", "OrthogonalBlocks", "checkpoint"} <= set(found["modules"])
    wrong = {k: v for k, v in (found["modules"] | found["backends"]).items() if not v.startswith("right")}
    assert not wrong


def test_outcomes_are_noted_as_tests_end(tmp_path):
    """With the error of what failed, also where the tests are stopped; workers note nothing twice."""
    (tmp_path / "test_three.py").write_text(
        "import os, pytest\n"
        "def test_right(): pass\n"
        "def test_wrong(): assert 1 == 2, 'one is not two'\n"
        "def test_left_out(): pytest.skip('not here')\n"
        "def test_stopped(): os._exit(9)\n"
    )
    environment = os.environ | {"PYTHONPATH": str(ROOT / "benchmarks"), "ORTHORNN_OUTCOMES": str(tmp_path / "outcomes")}
    environment.pop("PYTEST_XDIST_WORKER", None)
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:randomly", "-p", "gpu_outcomes"]
    done = subprocess.run([*words, "test_three.py"], capture_output=True, text=True, cwd=tmp_path, env=environment)
    assert done.returncode == 9
    rows = [json.loads(line) for line in (tmp_path / "outcomes").read_text().splitlines()]
    assert {row["name"].split("::")[1]: row["outcome"] for row in rows} == {
        "test_right": "passed",
        "test_wrong": "failed",
        "test_left_out": "skipped",
    }
    assert ["one is not two" in row["text"] for row in rows] == [False, True, False]


@pytest.mark.slow
def test_the_one_call(tmp_path):
    """All stages; a second call resumes."""
    folder = tmp_path / "out"
    for _ in range(2):
        printed = dry(folder, None)
        assert "== failed: nothing" in printed
        assert len(list(folder.iterdir())) <= 8
        smoke = json.loads((folder / "smoke.json").read_text())
        assert ("cayley-20-b3 cpp bfloat16" in smoke["backends"]) == (extension.missing() is None)
        assert all(words.startswith("right") for words in (smoke["backends"] | smoke["modules"]).values())
        rows = json.loads((folder / "conformance.json").read_text())
        assert len(rows["passed"]) >= 2
        assert rows["failed"] == {}
        assert rows["complete"]
        assert "epochs" in json.loads((folder / "results.json").read_text())
        assert "PROFILE" in (folder / "profile.txt").read_text()


@pytest.mark.slow
@pytest.mark.skipif(nvrtc.version() is None, reason="no libnvrtc is installed")
@pytest.mark.parametrize("architecture", [80, 90])
def test_kernels_compile_without_a_gpu(architecture, tmp_path):
    """Those of every recurrence, forward and backward."""
    command = [sys.executable, str(ROOT / "benchmarks" / "compile_ahead.py"), "--jobs", "1"]
    command += ["--architectures", str(architecture), "--out", str(tmp_path / "found.json")]
    command += ["--calls", r"^(dense 5|reflections 7,3|rotations 256) B=50 T=784 \w+ float32"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    kernels = json.loads((tmp_path / "found.json").read_text())["kernels"]
    assert {row["kernel"] for row in kernels} == {"forward", "backward", "scan"}
    assert all(row["registers"] > 0 for row in kernels)
