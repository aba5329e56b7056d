"""What benchmarks/gpu.sh does: stages, each with a time limit of its own; one that fails does not stop the others.

    smoke        which backends compile and run, in seconds
    bench        orthornn.lab.bench.gpu: every backend verified and timed, layers beside cuDNN's
    conformance  the kernels' test suite on the GPU, a test function at a time
    train        helfrich2018, Table 1: scoRNNs of 360 and 512 units on pixel MNIST; $ORTHORNN_DATA holds the folder mnist

The folder then holds at most 7 files: log.txt, smoke.json, results.json, table.txt, conformance.json, train.json and
train.tar, the checkpoints. Given again, the folder is gone on with: what is done is not done again.

    python benchmarks/gpu.py FOLDER [SECONDS] [--dry]

--dry: tiny sizes on the CPU, Triton on its interpreter, and made images: to see that every stage works.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
TESTS = ("test_conformance.py", "test_bfloat16.py", "test_rotation.py")
# Seconds that a stage may take, and those that it leaves to what comes after it.
LIMITS = {"smoke": (90, 0), "bench": (240, 150), "conformance": (300, 60), "train": (3600, 0)}
MOST_LINES = 60  # of what a stage prints that log.txt keeps


class Call:
    """One call: its folder, its clock, its device."""

    def __init__(self, folder: Path, seconds: float, dry: bool) -> None:
        self.folder, self.dry = folder, dry
        self.end = time.monotonic() + seconds
        self.device = "cpu" if dry else "cuda"
        self.environment = os.environ | {
            "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), *filter(None, [os.environ.get("PYTHONPATH")])]),
            "PYTHONUNBUFFERED": "1",
            "CUBLAS_WORKSPACE_CONFIG": ":4096:8",
            "ORTHORNN_DEVICE": self.device,
        }
        if dry:
            self.environment |= {"TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}

    def left(self) -> float:
        """Seconds that remain."""
        return self.end - time.monotonic()

    def say(self, line: str) -> None:
        """On the screen and in log.txt."""
        print(line, flush=True)
        with open(self.folder / "log.txt", "a", encoding="utf-8") as log:
            log.write(line + "\n")

    def limit(self, stage: str) -> float:
        """Seconds for a stage, as far as the call has them."""
        most, after = LIMITS[stage]
        return max(min(most, self.left() - after), min(most, self.left()) / 3)

    def python(self, words: list[str], limit: float) -> tuple[int | None, str]:
        """The exit status of a Python process (None: out of time) and what it printed, whose end is shown."""
        if limit <= 1:
            return None, "no time was left"
        with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as output:
            process = subprocess.Popen(
                [sys.executable, *words],
                cwd=ROOT,
                env=self.environment,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            try:
                status: int | None = process.wait(limit)
            except subprocess.TimeoutExpired:
                status = None
                os.killpg(process.pid, signal.SIGINT)  # training saves its state
                try:
                    process.wait(8)
                except subprocess.TimeoutExpired:
                    os.killpg(process.pid, signal.SIGKILL)
                    process.wait()
            output.seek(0)
            text = output.read()
        lines = text.splitlines()
        for line in lines[-MOST_LINES:]:
            self.say(f"  {line}")
        return status, text

    def read(self, name: str) -> dict[str, Any]:
        """A JSON file of the folder, {} if there is none."""
        path = self.folder / name
        try:
            return json.loads(path.read_text())
        except (OSError, ValueError):
            return {}

    def write(self, name: str, content: dict[str, Any]) -> None:
        """A JSON file of the folder, whole or not at all."""
        path = self.folder / name
        path.with_suffix(".new").write_text(json.dumps(content, indent=1) + "\n")
        path.with_suffix(".new").replace(path)


SMOKE = """
import json, sys, time
import torch, triton
from orthornn.lab.bench.cases import Case
from orthornn.lab.bench.gpu.recurrence import recurrences, verify
from orthornn.kernels import dispatch
from orthornn.kernels.call import Size

device = torch.device(sys.argv[1])
name = torch.cuda.get_device_name() if device.type == "cuda" else "CPU"
print("device", name, "torch", torch.__version__, "triton", triton.__version__, "python", sys.version.split()[0], flush=True)
found = {"device": name, "torch": torch.__version__, "triton": triton.__version__, "backends": {}}
for backend, reason in dispatch.available(device).items():
    print(f"{backend:<10} {reason or 'available'}", flush=True)
for case in (Case("cayley", 20, 0, 3), Case("wy", 20, 4, 3)):
    for one in recurrences(case, device):
        start = time.time()
        try:
            verdict = verify(one, device, int(sys.argv[2]))
            words = "right" if verdict["right"] else f"WRONG {verdict}"
            words += "" if verdict["same_bits"] else ", other bits the second time"
        except Exception as error:
            words = f"FAILED {type(error).__name__}: {error}"[:1500]
        found["backends"][one.name] = words
        print(f"{one.name:<32} {time.time() - start:6.1f} s  {words}", flush=True)
for n, m in ((128, None), (170, None), (256, None), (360, None), (512, None), (256, 32), (512, 32), (1024, 32)):
    print(f"n={n} m={m}: {dispatch.describe(device, Size(n, m, 128, 784))}")
print("SMOKE " + json.dumps(found))
"""


def smoke(call: Call) -> None:
    """What compiles and runs; the first output of all."""
    status, text = call.python(["-c", SMOKE, call.device, "3" if call.dry else "20"], call.limit("smoke"))
    found = [line for line in text.splitlines() if line.startswith("SMOKE ")]
    call.write("smoke.json", json.loads(found[0][6:]) if found else {"failed": text[-4000:], "status": status})


def bench(call: Call) -> None:
    """Times, beside cuDNN's layers and the derived limits."""
    limit = call.limit("bench")
    words = [
        "-m",
        "orthornn.lab.bench.gpu",
        "--device",
        call.device,
        "--out",
        str(call.folder),
        "--seconds",
        f"{limit - 30:.0f}",
    ]
    if call.dry:
        words += ["--cases", "cayley-5-b2", "--T", "3", "--rounds", "1"]
    call.python(words, limit)


def conformance(call: Call) -> None:
    """`make test-gpu`, a test function at a time, so that a later call goes on where this one stopped."""
    done = call.read("conformance.json")
    workers = ["-n", "8"] if _has("xdist") and not call.dry else []
    names = [
        f"tests/kernels/{file}::{name}"
        for file in TESTS
        for name in re.findall(r"^def (test_\w+)", (ROOT / "tests" / "kernels" / file).read_text(), flags=re.MULTILINE)
        if "emulated" not in name
    ]
    if call.dry:
        names = [name for name in names if name.endswith("test_dtypes_that_do_not_go_together")]
    for name in names:
        if done.get(name, {}).get("passed") or call.left() < 20:
            continue
        started = time.monotonic()
        words = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "--maxfail=5", *workers, name]
        status, text = call.python(words, call.limit("conformance"))
        done[name] = {"passed": status == 0, "seconds": round(time.monotonic() - started, 1), "end": text[-1500:]}
        if status == 0:
            done[name]["end"] = text.strip().splitlines()[-1]
        call.write("conformance.json", done)


TRAIN = """
import dataclasses, json, sys
from pathlib import Path
from orthornn.lab import papers
from orthornn.lab.training import Run

runs, device, seconds, settings = Path(sys.argv[1]), sys.argv[2], float(sys.argv[3]), json.loads(sys.argv[4])
experiment = papers.experiments(settings["paper"])[settings["experiment"]]
systems = experiment.plan(papers.Setting(settings["budget"], Path(settings["data"]))).systems
for name in settings["systems"]:
    config = dataclasses.replace(systems[name], device=device, checkpoint_seconds=30.0)
    where = runs / name
    run = Run.resume(where) if (where / "config.json").exists() else Run(config, where)
    if not run.done:
        run.advance(seconds / len(settings["systems"]))
    run.checkpoint()
    now, best = run.progress, run.best
    row = {"system": name, "step": now.step, "steps": now.steps, "loss": now.loss, "device": device,
           "update_seconds": now.update_seconds, "validation": now.validation, "best": best}
    print("TRAIN " + json.dumps(row), flush=True)
    run.close()
"""
TRAINED = {"paper": "helfrich2018", "experiment": "table1", "systems": ["scornn-360-MNIST", "scornn-512-MNIST"]}
TRAINED_DRY = {"paper": "mhammedi2017", "experiment": "table3", "systems": ["text"]}


def train(call: Call) -> None:
    """scoRNNs of Table 1 of helfrich2018, as far as the time reaches; a later call goes on from the checkpoints."""
    data = os.environ.get("ORTHORNN_DATA", "data")
    limit = call.limit("train")
    settings: dict[str, Any] = {"data": data, "budget": "smoke" if call.dry else "full"}
    settings |= TRAINED_DRY if call.dry else TRAINED
    if limit < (5 if call.dry else 60):
        call.say("too little time is left")
        return
    runs = Path(tempfile.mkdtemp(prefix="orthornn-gpu-"))
    try:
        saved = call.folder / "train.tar"
        if saved.exists():
            with tarfile.open(saved) as archive:
                archive.extractall(runs, filter="data")
        words = ["-c", TRAIN, str(runs), call.device, f"{max(limit - 45, 1):.0f}", json.dumps(settings)]
        _, text = call.python(words, limit)
        rows = [json.loads(line[6:]) for line in text.splitlines() if line.startswith("TRAIN ")]
        if rows:
            call.write("train.json", call.read("train.json") | {row["system"]: row for row in rows})
        if any(runs.iterdir()):
            with tarfile.open(saved.with_suffix(".new"), "w") as archive:
                for path in sorted(runs.iterdir()):
                    archive.add(path, path.name)
            saved.with_suffix(".new").replace(saved)
    finally:
        shutil.rmtree(runs, ignore_errors=True)


def _has(module: str) -> bool:
    return subprocess.run([sys.executable, "-c", f"import {module}"], capture_output=True, check=False).returncode == 0


STAGES = {"smoke": smoke, "bench": bench, "conformance": conformance, "train": train}


def main() -> int:
    """The command; 0 whatever the stages come to: the files say it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("seconds", type=float, nargs="?", default=570.0)
    parser.add_argument("--dry", action="store_true")
    parser.add_argument("--stages", default=",".join(STAGES))
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    call = Call(options.folder.resolve(), options.seconds, options.dry)
    for name in options.stages.split(","):
        call.say(f"== {name}, {call.left():.0f} s left")
        try:
            STAGES[name](call)
        except Exception as error:
            call.say(f"{name} failed: {type(error).__name__}: {error}")
    call.say(f"== done, {call.left():.0f} s left; {options.folder}: {', '.join(sorted(os.listdir(options.folder)))}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
