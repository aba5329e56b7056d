"""Every command that opens a run, on hundreds of runs that a stranger made: one line, and nothing outside touched."""

from __future__ import annotations

import contextlib
import io
import json
import os
import resource
import shutil
import signal
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest

from orthornn import cli
from orthornn.learn.runs import log
from orthornn.learn.training import train
from support.run_cases import config, entries

FILES = ("config.json", "description.json", "environment.json", "metrics.jsonl", "result.json", "data.json")
VALUES = [None, True, -1, 10**400, 1e999, "x", "\x1b]0;title\x07", [], [[]], {}, {"name": []}, 10**15, 0]
SECONDS = 120
MEMORY = 1 << 30  # bytes beyond what the process has: a run that is believed asks for much more


def finished(folder):
    """A finished run. Its JSON files have no sums, so that what is wrong in them is not taken for damage at once."""
    train(config(hidden_size=4, steps=12, validate_every=6), folder)
    for name in FILES:
        if name.endswith(".json") and (folder / name).exists():
            (folder / name).write_text(json.dumps(entries(folder / name), indent=2) + "\n")
    return folder


def places(plain, above=()):
    """The paths of all entries of a JSON value."""
    entries = plain.items() if isinstance(plain, dict) else enumerate(plain) if isinstance(plain, list) else ()
    for key, inner in entries:
        yield (*above, key)
        yield from places(inner, (*above, key))


def changed(plain, place, value):
    """The same with another value there, or without it."""
    made = json.loads(json.dumps(plain))
    inner = made
    for key in place[:-1]:
        inner = inner[key]
    if value == "missing":
        del inner[place[-1]]
    else:
        inner[place[-1]] = value
    return json.dumps(made)


def texts(name, content):
    """(label, bytes) of what a file may hold instead."""
    yield "empty", b""
    yield "half", content[: len(content) // 2]
    yield "not UTF-8", b"\xff\xfe" + content
    yield "deep", b"[" * 200_000
    yield "deep object", b'{"a":' * 200_000
    yield "a number", b"1" * 100_000
    yield "null", b"null\n"
    yield "a list", b"[1, 2]\n"
    yield "twice", content.replace(b"{", b'{"steps": 1, "steps": 2, ', 1)
    if name == "metrics.jsonl":
        lines = content.splitlines()
        for place in places(json.loads(lines[0])):
            for value in ["missing", *VALUES]:
                record = json.loads(changed(json.loads(lines[0]), place, value))
                if place != (log.SUM,):
                    record[log.SUM] = log._sum({name: own for name, own in record.items() if name != log.SUM})
                yield f"{place} = {str(value)[:20]!r}", b"\n".join([json.dumps(record).encode(), *lines[1:], b""])
        return
    plain = json.loads(content)
    for place in places(plain):
        for value in ["missing", *VALUES]:
            yield f"{place} = {str(value)[:20]!r}", changed(plain, place, value).encode()


def instead_of(run, name, home):
    """(label, what makes it) of what may be there instead of a file."""
    yield "a folder", lambda path: path.mkdir()
    yield "a pipe", lambda path: os.mkfifo(path)
    yield "a link to a file", lambda path: path.symlink_to(home / ".bashrc")
    yield "a link to a folder", lambda path: path.symlink_to(home)
    yield "a link to nothing", lambda path: path.symlink_to(home / "nothing")
    yield "a link to itself", lambda path: path.symlink_to(path)
    yield "a link to zeros", lambda path: path.symlink_to("/dev/zero")
    yield "a hole", lambda path: (path.write_bytes(b""), os.truncate(path, 1 << 40))


def cases(whole, step):
    """(label, change of a run) of every `step`-th hostile run; `whole` is one that is not."""
    found = []
    for name in FILES:
        content = (whole / name).read_bytes() if name != "data.json" else b'{"files": []}'
        for label, data in texts(name, content):
            found.append((f"{name}: {label}", lambda run, home, name=name, data=data: (run / name).write_bytes(data)))
    tensors = "model.safetensors", "checkpoints/step-00000012/model.safetensors"
    for name in (
        *FILES,
        *tensors,
        "checkpoints",
        ".lock",
        "checkpoints/step-00000012",
        "checkpoints/step-00000012/state.json",
    ):
        for label, _ in instead_of(None, name, Path()):

            def change(run, home, name=name, label=label):
                path = run / name
                shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
                dict(instead_of(run, name, home))[label](path)

            found.append((f"{name}: {label}", change))
    for name in tensors:
        content = (whole / name).read_bytes()
        for place in range(0, 200, 7):
            data = content[:place] + bytes([content[place] ^ 0xFF]) + content[place + 1 :]
            found.append(
                (f"{name}: byte {place}", lambda run, home, name=name, data=data: (run / name).write_bytes(data))
            )
    return found[::step]


def commands(run, outside):
    """What is done with each."""
    sequences = outside / "x.npy"
    return [
        ["predict", str(run), str(sequences), "--force", "--out", str(outside / "scores.csv")],
        ["evaluate", str(run), "--checkpoint", "best"],
        ["export", str(run), "--safetensors", "--force", "--out", str(outside / "export")],
        ["report", str(run), "--force", "--out", str(outside / "report.html")],
        ["train", "--resume", str(run), "--steps", "13"],
    ]


def state(folder):
    return {
        path: (path.lstat().st_mode, path.read_bytes() if path.is_file() else None)
        for path in sorted(folder.rglob("*"))
    }


def work(whole, chosen, results):
    """In a process of its own, which is short of memory and of time: (label, command, status, message) of what is wrong."""
    with open("/proc/self/statm") as file:
        used = int(file.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, used + MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    for label, change in chosen:
        with tempfile.TemporaryDirectory() as place:
            root = Path(place)
            home, outside = root / "home", root / "outside"
            (home / ".ssh").mkdir(parents=True)
            (home / ".ssh" / "id").write_text("secret\n")
            (home / ".bashrc").write_text("mine\n")
            outside.mkdir()
            np.save(outside / "x.npy", np.zeros((2, 7), np.int64))
            before = state(home)
            for words in commands(root / "run", outside):
                shutil.rmtree(root / "run", ignore_errors=True)
                shutil.copytree(whole, root / "run")
                change(root / "run", home)
                said = io.StringIO()
                print(json.dumps(["at", label, words[0]]), file=results, flush=True)
                signal.alarm(SECONDS)
                with contextlib.redirect_stderr(said), contextlib.redirect_stdout(io.StringIO()):
                    status = cli.main(words)
                signal.alarm(0)
                text = said.getvalue()
                wrong = status not in (0, 2) or len(text) > 6000 or "\x1b" in text or (status == 2 and not text.strip())
                wrong = wrong or any(len(line) > 1500 for line in text.splitlines()) or state(home) != before
                print(
                    json.dumps(["wrong" if wrong else "ok", label, words[0], status, text[-600:]]),
                    file=results,
                    flush=True,
                )


def in_a_child(step, tmp_path):
    """What `work` found, all of it; a process that ends before its time is an error of the case that it was at."""
    path, whole = tmp_path / "results", finished(tmp_path / "whole")
    chosen = cases(whole, step)
    child = os.fork()
    if child == 0:
        try:
            os.chdir(tmp_path)
            with open(path, "w") as results:
                work(whole, chosen, results)
        except BaseException as error:
            print(repr(error), file=sys.stderr, flush=True)
            os._exit(1)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert status == 0, (status, lines[-1])
    done = [line for line in lines if line[0] != "at"]
    wrong = [line for line in done if line[0] == "wrong"]
    print(f"{len(done) - len(wrong)} of {len(done)} commands on {len(chosen)} hostile runs ended as they should")
    assert wrong == []
    return len(done)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="counts memory in /proc")
def test_some_hostile_runs(tmp_path, one_thread):
    assert in_a_child(149, tmp_path) >= 50


@pytest.mark.hostile_runs
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="counts memory in /proc")
def test_all_hostile_runs(tmp_path, one_thread):
    assert in_a_child(1, tmp_path) > 3000


# What commands write: options, and a file that stands for an older one of theirs.
WRITES = {
    "predict": ["predict", "RUN", "d.csv", "--force", "--out", "out/scores.csv"],
    "report": ["report", "RUN", "--force", "--out", "out/report.html", "--figures", "png,svg"],
    "c": ["export", "RUN", "--c", "--out", "out"],
    "audio": ["export", "RUN", "--audio", "--out", "out"],
    "safetensors": ["export", "RUN", "--safetensors", "--force", "--out", "out"],
    "torch-export": ["export", "RUN", "--torch-export", "--force", "--out", "out"],
    "onnx": ["export", "RUN", "--onnx", "--force", "--out", "out"],
    "figures": ["figures", "spectrum", "RUN", "--force", "--out", "out/spectrum.png"],
}


@pytest.fixture(scope="module")
def table_run(tmp_path_factory):
    """A run on a small table, whose network every export knows."""
    folder = tmp_path_factory.mktemp("table")
    rows, random = ["s,u,v,y"], np.random.default_rng(0)
    for s in range(12):
        rows += ["{},{:.3f},{:.3f},{}".format(s, *random.standard_normal(2), "ab"[s % 2]) for _ in range(3)]
    (folder / "d.csv").write_text("\n".join(rows) + "\n")
    options = ["--target", "y", "--sequence", "s", "--recipe", "none", "--model", "ornn", "--nonlinearity", "tanh"]
    options += ["--hidden-size", "4", "--steps", "4", "--threads", "1", "--record-spectrum", "2"]
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        assert cli.main(["train", str(folder / "d.csv"), *options, "--out", str(folder / "run")]) == 0
    return folder


def called(words):
    """The exit status of a command, and what it wrote to stderr."""
    said = io.StringIO()
    with contextlib.redirect_stderr(said), contextlib.redirect_stdout(io.StringIO()):
        status = cli.main(words)
    return status, said.getvalue()


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", [pytest.param(n, marks=[pytest.mark.hostile_runs] * (n == "onnx")) for n in WRITES])
def test_what_was_there_stays_on_a_full_disk_and_behind_links(name, table_run, tmp_path, monkeypatch):
    """A write that fails leaves the old files and nothing half; a link, soft or hard, is replaced or refused."""
    monkeypatch.chdir(tmp_path)
    shutil.copytree(table_run, tmp_path, dirs_exist_ok=True)
    words = [str(tmp_path / "run") if word == "RUN" else word for word in WRITES[name]]
    (tmp_path / "out").mkdir()
    (tmp_path / "home").mkdir()
    assert called(words)[0] == 0
    before = state(tmp_path)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, hard))  # no file may grow beyond it, as on a disk that is full
    try:
        status, said = called(words)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert status == 2, said
    assert said.splitlines()[-1].startswith("orthornn: ")
    assert state(tmp_path) == before

    files = sorted(path for path in (tmp_path / "out").rglob("*") if path.is_file())
    assert files
    for place, file in enumerate(files):
        (tmp_path / "home" / f"mine{place}").write_text("mine\n")
        file.unlink()
        (file.hardlink_to if place % 2 else file.symlink_to)(tmp_path / "home" / f"mine{place}")
    before = state(tmp_path / "home")
    status, said = called(words)
    assert status == 0 or "missing or written by orthornn" in said
    assert state(tmp_path / "home") == before


NASTY = "\x1b]0\x07\x1b[2J\u202e"  # an empty title, an empty screen, and text from right to left


def test_names_that_a_terminal_would_obey_are_shown_escaped(tmp_path, monkeypatch):
    """In columns, labels, files and folders, in everything that is printed of them."""
    monkeypatch.chdir(tmp_path)
    rows, random = [f"s{NASTY},u{NASTY},y{NASTY},w{NASTY}"], np.random.default_rng(0)
    for s in range(12):
        rows += ["{}{},{:.3f},{}{},x".format(s, NASTY, random.normal(), "ab"[s % 2], NASTY) for _ in range(3)]
    (tmp_path / f"d{NASTY}.csv").write_text("\n".join(rows) + "\n")
    data, run = f"d{NASTY}.csv", f"run{NASTY}"
    columns = ["--target", f"y{NASTY}", "--sequence", f"s{NASTY}", "--threads", "1"]
    options = [*columns, "--recipe", "none", "--hidden-size", "3", "--steps", "2"]
    shown = ""
    for words in (
        ["inspect", data, *columns[:-2]],
        ["train", data],
        ["train", data, *options, "--model", "ornn", "--out", run],
        ["compare", data, *options, "--models", "ornn,lstm", "--out", f"compared{NASTY}"],
        ["train", "--resume", run, "--steps", "3"],
        ["predict", run, data, "--out", f"scores{NASTY}.csv"],
        ["evaluate", run, data],
        ["evaluate", run],
        ["report", run, "--out", f"report{NASTY}.html"],
        ["figures", "spectrum", run],
        ["export", run, "--safetensors", "--out", f"export{NASTY}"],
    ):
        said = io.StringIO()
        with contextlib.redirect_stderr(said), contextlib.redirect_stdout(said):
            assert cli.main(words) == (2 if words in (["train", data], ["figures", "spectrum", run]) else 0), (
                said.getvalue()
            )
        assert not {"\x1b", "\x07", "\u202e"} & set(said.getvalue()), words[0]
        shown += said.getvalue()
    assert shown.count("\\x1b]0\\x07\\x1b[2J\\u202e") > 20
    assert "\x1b" not in (tmp_path / f"compared{NASTY}" / "table.txt").read_text()
    assert "\x1b" not in (tmp_path / f"report{NASTY}.html").read_text()
