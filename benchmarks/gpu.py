"""What benchmarks/gpu.sh does: stages, each with a time limit of its own; one that fails does not stop the others.

    smoke        every backend, every module, streams, threads and captures once: which compile, run and are right
    bench        orthornn_evidence.bench.gpu: every backend verified and timed, layers next to cuDNN's
    conformance  the kernels' test suite on the GPU
    profile      the kernels of the case of `bench` that is furthest from its goal
    train        scoRNNs of 360 and 512 units (helfrich2018, Table 1) and the oRNN of Table 3 of mhammedi2017 on pixel
                 MNIST, as far as the time reaches; $ORTHORNN_DATA is the folder that holds mnist

    python benchmarks/gpu.py [STAGE ...] [--out FOLDER] [--seconds 570] [--dry]

Without stages all of them run, in this order. The folder then holds at most 8 files: log.txt, smoke.json, results.json,
table.txt, conformance.json, profile.txt, train.json and train.tar, the checkpoints. A call with a folder that holds
earlier results resumes: what is done is not repeated.

--dry: tiny sizes on the CPU, and made images: to see that every stage works.

The exit status is 1 if anything that ran came out wrong, 2 if nothing could run. Being out of time is no failure.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import re
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "src"))

PATH = (str(ROOT / "src"), str(ROOT / "evidence" / "src"), str(ROOT / "benchmarks"))  # of every process that is started
TESTS = tuple(f"kernels/test_{name}.py" for name in ("conformance", "bfloat16", "rotation", "checkpointing", "resets"))
TESTS += ("modules/test_conformance.py",)
# Seconds that a stage may take, and those that stages before it leave to it.
LIMITS = {"smoke": 120, "bench": 3600, "conformance": 3600, "profile": 60, "train": 3600}
LEAST = {"smoke": 30, "bench": 120, "conformance": 60, "profile": 40, "train": 90}
MOST_LINES = 60  # of what a stage prints that log.txt keeps


class Call:
    """One call: its folder, its clock, its device."""

    def __init__(self, folder: Path, seconds: float, dry: bool, stages: list[str]) -> None:
        self.folder, self.dry, self.stages = folder, dry, stages
        self.end = time.monotonic() + seconds
        self.device = "cpu" if dry else "cuda"
        self.wrong: list[str] = []
        outside = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
        self.environment = outside | {
            "PYTHONPATH": os.pathsep.join([*PATH, *filter(None, [os.environ.get("PYTHONPATH")])]),
            "PYTHONUNBUFFERED": "1",
            "CUBLAS_WORKSPACE_CONFIG": ":4096:8",
            "ORTHORNN_DEVICE": self.device,
        }
        if dry:
            self.environment["OMP_NUM_THREADS"] = "1"

    def left(self) -> float:
        """Seconds that remain."""
        return self.end - time.monotonic()

    def say(self, line: str) -> None:
        """On the screen and in log.txt."""
        print(line, flush=True)
        with open(self.folder / "log.txt", "a", encoding="utf-8") as log:
            log.write(line + "\n")

    def limit(self, stage: str) -> float:
        """Seconds for a stage: as far as the call has them, and leaving the least to those that come after it."""
        after = sum(LEAST[name] for name in self.stages[self.stages.index(stage) + 1 :])
        return max(min(LIMITS[stage], self.left() - after), min(LIMITS[stage], self.left()) / 3)

    def python(self, words: list[str], limit: float, cwd: str | Path = ROOT) -> tuple[int | None, str]:
        """The exit status of a Python process (None: out of time) and what it printed, whose end is shown."""
        if limit <= 1:
            return None, "no time was left"
        with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as output:
            process = subprocess.Popen(
                [sys.executable, *words],
                cwd=cwd,
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

    def check(self, stage: str, status: int | None) -> None:
        """Note a stage whose process failed, for the exit status; None, out of time, is no failure."""
        if status:
            self.wrong.append(stage)

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


def smoke(call: Call) -> None:
    """What compiles and runs; the first output of all."""
    words = [str(ROOT / "benchmarks" / "gpu_smoke.py"), call.device, "3" if call.dry else "20"]
    status, text = call.python(words, call.limit("smoke"))
    call.check("smoke", status)
    found = [line for line in text.splitlines() if line.startswith("SMOKE ")]
    call.write("smoke.json", json.loads(found[0][6:]) if found else {"failed": text[-4000:], "status": status})


def bench(call: Call) -> None:
    """Times, beside cuDNN's layers and the derived limits."""
    limit = call.limit("bench")
    words = [
        "-m",
        "orthornn_evidence.bench.gpu",
        "--device",
        call.device,
        "--out",
        str(call.folder),
        "--seconds",
        f"{limit - 30:.0f}",
    ]
    if call.dry:
        words += ["--cases", "cayley-5-b2", "--T", "3", "--rounds", "1"]
    status, _ = call.python(words, limit)
    call.check("bench", status)


def tests_on_a_device() -> list[str]:
    """The test functions that run on $ORTHORNN_DEVICE: they name it, or the backends that it has."""
    found = []
    for file in TESTS:
        text = (ROOT / "tests" / file).read_text()
        for node in ast.parse(text).body:
            if not isinstance(node, ast.FunctionDef) or not node.name.startswith("test_") or "emulated" in node.name:
                continue
            parts = [node, *node.decorator_list]
            source = " ".join(ast.get_source_segment(text, part) or "" for part in parts)
            if re.search(r"\b(BACKENDS|DEVICE|check)\b", source) and "mark.slow" not in source:
                found.append(f"tests/{file}::{node.name}")
    return found


def conformance(call: Call) -> None:
    """`make test-gpu`; a later call runs the tests that have neither passed nor been skipped."""
    from orthornn.cores import usable_cores  # imports torch, which may be what is missing

    before = call.read("conformance.json")
    found: dict[str, list[str]] = {outcome: before.get(outcome, []) for outcome in ("passed", "skipped")}
    workers = ["-n", str(min(12, usable_cores()))] if _has("xdist") and not call.dry else []
    names = tests_on_a_device()
    if call.dry:
        names = [name for name in names if name.endswith("test_inputs_and_no_steps")]
    words = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "gpu_outcomes", "--maxfail=20", *workers]
    with tempfile.TemporaryDirectory(prefix="orthornn-gpu-") as scratch:
        chosen, outcomes = Path(scratch, "chosen.txt"), Path(scratch, "outcomes.txt")
        done = [f"--deselect={name}" for name in (*found["passed"], *found["skipped"])]
        chosen.write_text("\n".join([*names, *done]) + "\n")
        call.environment["ORTHORNN_OUTCOMES"] = str(outcomes)
        status, _ = call.python([*words, f"@{chosen}"], call.limit("conformance"))
        lines = outcomes.read_text().splitlines() if outcomes.exists() else []
    failed: dict[str, str] = {}
    for line in lines:
        one = json.loads(line)
        if one["outcome"] == "failed":
            failed[one["name"]] = one["text"]
        else:
            found[one["outcome"]].append(one["name"])
    counts = f"{len(found['passed'])} tests passed, {len(found['skipped'])} skipped, {len(failed)} failed"
    call.write("conformance.json", {**found, "failed": failed, "complete": status in (0, 5)})
    call.say(f"  {counts}; {'all' if status in (0, 5) else 'not all'} have run")
    call.check("conformance", int(bool(failed) or status not in (0, 5, None)))


PROFILE = """
import json, sys
import torch
from torch.profiler import ProfilerActivity, profile
from orthornn_evidence.bench.cases import Case, Work
from orthornn_evidence.bench.networks import Runnable

case, device = Case.parse(sys.argv[1]), sys.argv[2]
runnable = Runnable.make("ours", case, Work(T=int(sys.argv[3]), device=device))
for _ in range(3):
    runnable.clear()
    runnable.run()
activities = [ProfilerActivity.CPU] + [ProfilerActivity.CUDA] * (device == "cuda")
with profile(activities=activities) as found:
    for _ in range(3):
        runnable.clear()
        runnable.run()
    if device == "cuda":
        torch.cuda.synchronize()
key = "device_time_total" if device == "cuda" else "cpu_time_total"
print(f"PROFILE {case.title}, 3 runs, forward and backward")
print(found.key_averages().table(sort_by=key, row_limit=25, max_name_column_width=50))
"""


def furthest(results: dict[str, Any]) -> str | None:
    """The case in which cuDNN's LSTM of the same width takes the fewest times as long as ours, both in float32."""
    ratios = {}
    for case, row in results.get("layers", {}).items():
        ratio = row.get("networks", {}).get("lstm float32", {}).get("ratio")
        if ratio is not None:
            ratios[case] = ratio[0]
    return min(ratios, key=lambda case: ratios[case]) if ratios else None


def profiled(call: Call) -> None:
    """Which kernels the time of a layer goes to."""
    case = furthest(call.read("results.json"))
    if case is None:
        call.say("  no layer has been timed; run bench before")
        return
    status, text = call.python(["-c", PROFILE, case, call.device, "3" if call.dry else "784"], call.limit("profile"))
    call.check("profile", status)
    (call.folder / "profile.txt").write_text(text)


TRAIN = """
import dataclasses, json, sys, time
from pathlib import Path
from orthornn.learn.tasks import TASKS
from orthornn.learn.training import Run
from orthornn_evidence import papers
from orthornn_evidence.tasks import PixelMNIST

TASKS.own[PixelMNIST.name] = PixelMNIST  # nothing is installed here, so that nothing declares it
runs, device, end, settings = Path(sys.argv[1]), sys.argv[2], float(sys.argv[3]), json.loads(sys.argv[4])
end += time.monotonic()
for paper, experiment, name in settings["systems"]:
    system = f"{paper}-{experiment}-{name}"
    where = runs / paper / experiment / settings["budget"] / f"{name}-0"
    if (where / "result.json").exists() or time.monotonic() > end:
        continue
    setting = papers.Setting(settings["budget"], Path(settings["data"]))
    config = papers.experiments(paper)[experiment].plan(setting).systems[name]
    config = dataclasses.replace(config, device=device, checkpoint_seconds=30.0)
    try:
        run = Run.resume(where) if (where / "config.json").exists() else Run(config, where)
        if not run.done:
            run.advance(end - time.monotonic())
        now, best = run.progress, run.best
        row = {"system": system, "step": now.step, "steps": now.steps, "loss": now.loss, "device": device,
               "update_seconds": now.update_seconds, "validation": now.validation, "best": best}
        if run.done:
            row |= {"finished": True, "best_test": run.finish().best_test}
        else:
            run.checkpoint()
            run.close()
    except Exception as error:
        row = {"system": system, "failed": f"{type(error).__name__}: {error}"[:1500]}
    print("TRAIN " + json.dumps(row), flush=True)
"""
MADE_IMAGES = """
import sys
from pathlib import Path
sys.path.insert(0, "tests")
from support.made_idx import write_images

write_images(Path(sys.argv[1]))
"""
TRAINED = [("helfrich2018", "table1", f"scornn-{n}-MNIST") for n in (360, 512)] + [("mhammedi2017", "table3", "text")]
TRAINED_DRY = [("helfrich2018", "table1", "scornn-170-MNIST"), ("mhammedi2017", "table3", "text")]


def train(call: Call) -> None:
    """Trainings on pixel MNIST, one after the other; a later call resumes from the checkpoints."""
    limit = call.limit("train")
    if limit < (5 if call.dry else 60):
        call.say("  too little time is left")
        return
    if (call.folder / "train.tar").exists() and not _has("msgspec"):
        call.say("  msgspec is missing, which reads the directory of a run that is resumed; nothing is trained")
        call.check("train", 1)
        return
    with tempfile.TemporaryDirectory(prefix="orthornn-gpu-") as scratch:
        data = Path(scratch, "data")  # of this name in every call, for a run that is resumed
        if call.dry and "ORTHORNN_DATA" not in os.environ:
            call.python(["-c", MADE_IMAGES, str(data / "mnist")], limit)
        else:
            data.symlink_to((ROOT / os.environ.get("ORTHORNN_DATA", "data")).resolve())
        if not (data / "mnist").is_dir():
            call.say(f"  there is no folder {data.resolve()}/mnist; set ORTHORNN_DATA to the folder that holds mnist")
            call.check("train", 1)
            return
        runs = Path(scratch, "runs")
        runs.mkdir()
        saved = call.folder / "train.tar"
        if saved.exists():
            with tarfile.open(saved) as archive:
                archive.extractall(runs, filter="data")
        settings = {
            "data": data.name,
            "budget": "smoke" if call.dry else "full",
            "systems": TRAINED_DRY if call.dry else TRAINED,
        }
        words = ["-c", TRAIN, str(runs), call.device, f"{max(limit - 45, 1):.0f}", json.dumps(settings)]
        status, text = call.python(words, limit, scratch)
        rows = [json.loads(line[6:]) for line in text.splitlines() if line.startswith("TRAIN ")]
        call.check("train", 1 if any("failed" in row for row in rows) else status)
        if rows:
            call.write("train.json", call.read("train.json") | {row["system"]: row for row in rows})
        if any(runs.iterdir()):
            with tarfile.open(saved.with_suffix(".new"), "w") as archive:
                for path in sorted(runs.iterdir()):
                    archive.add(path, path.name)
            saved.with_suffix(".new").replace(saved)


def why_nothing_can_run(dry: bool) -> str | None:
    """What this Python or machine lacks."""
    missing = [name for name in ("torch", "numpy", "safetensors", "pytest", "hypothesis") if not _has(name)]
    if missing:
        return f"Expected a Python with {', '.join(missing)}, but {sys.executable} has none. Name another in $PYTHON."
    if not dry and not _is_true("__import__('torch').cuda.is_available()"):
        return "Expected a CUDA device, but torch sees none. Try --dry, which runs everything in tiny sizes on the CPU."
    return None


def _is_true(expression: str) -> bool:
    words = [sys.executable, "-c", f"raise SystemExit(not {expression})"]
    return subprocess.run(words, capture_output=True, check=False).returncode == 0


def _has(module: str) -> bool:
    return subprocess.run([sys.executable, "-c", f"import {module}"], capture_output=True, check=False).returncode == 0


STAGES = {"smoke": smoke, "bench": bench, "conformance": conformance, "profile": profiled, "train": train}


def main() -> int:
    """The command, with its exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("stages", nargs="*", metavar="STAGE", help=f"of {', '.join(STAGES)}; all unless given")
    parser.add_argument("--out", type=Path, default=Path("runs/gpu"), help="the folder of results")
    parser.add_argument("--seconds", type=float, default=570.0, help="what the whole call may take")
    parser.add_argument("--dry", action="store_true")
    options = parser.parse_args()
    unknown = [name for name in options.stages if name not in STAGES]
    if unknown:
        parser.error(f"Expected stages of {', '.join(STAGES)}, but got {', '.join(unknown)}.")
    if why := why_nothing_can_run(options.dry):
        print(f"gpu.py: {why}", file=sys.stderr)
        return 2
    stages = [name for name in STAGES if name in options.stages or not options.stages]
    options.out.mkdir(parents=True, exist_ok=True)
    call = Call(options.out.resolve(), options.seconds, options.dry, stages)
    for name in stages:
        call.say(f"== {name}, {call.left():.0f} s left")
        try:
            STAGES[name](call)
        except Exception as error:
            call.say(f"{name} failed: {type(error).__name__}: {error}")
            call.check(name, 1)
    call.say(f"== failed: {', '.join(call.wrong) or 'nothing'}")
    call.say(f"== done, {call.left():.0f} s left; {options.out}: {', '.join(sorted(os.listdir(options.out)))}")
    return int(bool(call.wrong))


if __name__ == "__main__":
    raise SystemExit(main())
