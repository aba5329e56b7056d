"""No command replaces a file unless it is told to, and what it is told comes before anything is computed."""

from __future__ import annotations

import os
import re
import shutil
import stat

import numpy as np
import pytest

from orthornn import cli
from support.made_sounds import wav

COPYING = ["copying", "--T", "3", "--items", "2", "--validation-size", "10", "--test-size", "10", "--batch-size", "4"]
TINY = [*COPYING, "--parameters", "400", "--steps", "2", "--threads", "1"]
WRITES = {
    "predict": (["predict", "run", "x.npy"], ["scores.csv"]),
    "predict --out": (["predict", "run", "x.npy", "--out", "mine.csv"], ["mine.csv"]),
    "report": (["report", "run"], ["report.html"]),
    "report --figures": (["report", "run", "--figures", "svg"], ["report-copying--training-loss.svg", "report.html"]),
    "figures": (["figures", "spectrum", "run"], ["run/spectrum.png"]),
    "figures --out": (["figures", "spectrum", "run", "--out", "mine.svg"], ["mine.svg"]),
    "safetensors": (["export", "run", "--safetensors"], ["run/export/folded.safetensors"]),
    "torch-export": (["export", "run", "--torch-export", "--out", "o"], ["o/step.pt2", "o/model.pt2"]),
    "onnx": (["export", "run", "--onnx", "--out", "o"], ["o/step.onnx", "o/model.onnx"]),
    "c": (["export", "run", "--c", "--out", "o"], ["o/network.h"]),
}
FOLDERS = {
    "compare": (["compare", *TINY, "--models", "ornn"], ["table.txt", "curves.png"]),
    "demo": (["demo"], ["demo.png"]),
    "sweep": (["sweep", *TINY[:-2], "--cpus", "1"], ["table.txt", "report.html"]),
    "train": (["train", *TINY], ["data.json", "description.json", "environment.json"]),
}


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("trained")
    assert cli.main(["train", *TINY, "--model", "ornn", "--record-spectrum", "1", "--out", str(folder / "run")]) == 0
    return folder / "run"


@pytest.fixture
def beside(trained, tmp_path, monkeypatch):
    (tmp_path / "run").symlink_to(trained)
    np.save(tmp_path / "x.npy", np.ones((2, 7), int))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def files(folder):
    """What is in the files of a folder, apart from runs and locks."""
    found = [path for path in sorted(folder.rglob("*")) if path.is_file() and path.name != ".lock"]
    return {path: path.read_bytes() for path in found if "run" not in path.relative_to(folder).parts}


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[pytest.mark.slow] * (n in ("onnx", "torch-export"))) for n in WRITES]
)
def test_a_file_that_is_there_is_replaced_only_with_force(name, beside, capsys):
    words, written = WRITES[name]
    assert cli.main(words) == 0
    for file in written:
        for other in written:
            (beside / other).unlink(missing_ok=True)
        path = beside / file
        path.write_text("mine\n")
        before = files(beside)
        capsys.readouterr()
        assert cli.main(words) == 2
        said = capsys.readouterr().err
        assert re.search(r"Expected .* but got .*--force", said)
        assert path.name in said
        assert path.read_text() == "mine\n"
        assert files(beside) == before
    for file in written:
        (beside / file).write_text("mine\n")
    assert cli.main([*words, "--force"]) == 0
    assert all((beside / file).stat().st_size > 100 for file in written)
    for file in written:  # some are in the run of the other tests
        (beside / file).unlink()


@pytest.mark.parametrize("name", FOLDERS)
def test_a_folder_with_results_is_refused_before_anything_is_computed(name, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    words, written = FOLDERS[name]
    for file in written:
        folder = tmp_path / file
        folder.mkdir()
        (folder / file).write_text("mine\n")
        before = files(tmp_path)
        assert cli.main([*words, "--out", str(folder)]) == 2
        said = capsys.readouterr().err
        assert re.search(r"Expected a new (file|folder), but got .*" + re.escape(file), said)
        assert files(tmp_path) == before


def test_a_link_to_nothing_is_a_file_too(beside, capsys):
    (beside / "scores.csv").symlink_to(beside / "nowhere")
    assert cli.main(["predict", "run", "x.npy"]) == 2
    assert "scores.csv, which exists" in capsys.readouterr().err
    assert not (beside / "nowhere").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["predict", "run", "x.npy", "--out", "scores.parquet"], r"ends in .csv or .txt, but got scores.parquet"),
        (["predict", "run", "x.npy", "--out", "scores.csv.gz"], r"ends in .csv or .txt, but got scores.csv.gz"),
        (
            ["predict", "run", "x.npy", "--out", "x.npy/scores.csv"],
            r"Expected a folder, but got x.npy, which is a file",
        ),
        (["report", "--out", "page.html"], r"Expected a run directory, or a folder of some, but got none"),
        (["report", "run", "--out", "report.pdf"], r"ends in .html or .htm, but got report.pdf"),
        (["report", "run", "--out", "x.npy/report.html"], r"Expected a folder, but got x.npy"),
        (["figures", "spectrum", "run", "--out", "x.npy/s.png"], r"Expected a folder, but got x.npy"),
        (["export", "run", "--c", "--out", "x.npy"], r"Expected a folder, but got x.npy"),
        (["export", "run", "--torch-export", "--out", "x.npy/o"], r"Expected a folder, but got x.npy"),
    ],
)
def test_what_cannot_be_written_as_it_is_named_is_refused(words, message, beside, capsys):
    before = files(beside)
    assert cli.main(words) == 2
    assert re.search(message, capsys.readouterr().err)
    assert files(beside) == before


def test_a_name_without_a_suffix_promises_no_format(beside):
    assert cli.main(["predict", "run", "x.npy", "--out", "scores"]) == 0
    assert cli.main(["predict", "run", "x.npy", "--out", "SCORES.CSV"]) == 0
    assert (beside / "scores").read_text() == (beside / "SCORES.CSV").read_text()


def test_force_replaces_no_device_pipe_or_folder(beside, capsys):
    """A pipe became a file; run by root, so did a device."""
    os.mkfifo(beside / "pipe.csv")
    (beside / "folder.csv").mkdir()
    (beside / "link.csv").symlink_to(beside / "pipe.csv")
    for name in ("pipe.csv", "folder.csv", "link.csv"):
        assert cli.main(["predict", "run", "x.npy", "--out", name, "--force"]) == 2
        assert f"Expected a file to replace, but got {name}, which is none" in capsys.readouterr().err
    assert stat.S_ISFIFO((beside / "pipe.csv").stat().st_mode)
    assert (beside / "link.csv").is_symlink()


@pytest.mark.parametrize(
    ("task", "names"),
    [
        (["amplifier", "--data", "own", "--batch-size", "2"], ["dry.wav", "wet.wav", "learned.wav", "curves.png"]),
        (["copying", "--T", "5"], ["curves.png"]),
        (["classify", "--data", "table.csv", "--target", "kind"], ["class_scores.json"]),
    ],
)
def test_a_new_run_leaves_the_files_of_its_folder(task, names, tmp_path, monkeypatch, capsys):
    """With the recordings' own folder as --out, those were replaced by their last fifth."""
    monkeypatch.chdir(tmp_path)
    rows = (f"{number // 4},{number % 3},{'ab'[number // 4 % 2]}" for number in range(80))
    (tmp_path / "table.csv").write_text("sequence,x,kind\n" + "\n".join(rows) + "\n")
    for name in names:
        folder = tmp_path / "own"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        if task[0] == "amplifier":
            for sound in ("dry.wav", "wet.wav"):
                (folder / sound).write_bytes(wav(1, 20000))
        if not (folder / name).exists():
            (folder / name).write_text("mine\n")
        before = files(tmp_path)
        assert cli.main(["train", *task, "--hidden-size", "4", "--steps", "1", "--out", "own"]) == 2
        assert "Expected a new file, but got own" in capsys.readouterr().err
        assert files(tmp_path) == before


@pytest.mark.parametrize("command", ["train", "compare", "compare seeds"])
def test_a_figure_that_fails_costs_no_result(tmp_path, monkeypatch, capsys, command):
    """With text.usetex in the user's matplotlibrc the table of a finished training was lost, and exit status 1 returned."""

    def broken(figure, path):
        raise RuntimeError("latex could not be found")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("orthornn.learn.report.figures.write", broken)
    monkeypatch.setattr("orthornn.learn.report.pictures.write", broken)
    words = {"train": [], "compare": ["--models", "ornn,lstm"], "compare seeds": ["--models", "ornn", "--seeds", "2"]}
    assert cli.main([command.split()[0], *TINY, *words[command], "--out", "here"]) == 0
    said = capsys.readouterr()
    assert "trivial baseline" in said.out
    assert re.search(
        r"curves\.png was not drawn: RuntimeError: latex could not be found\. All results are wr", said.err
    )
    assert "figure:" not in said.out
    assert not (tmp_path / "here" / "curves.png").exists()


@pytest.mark.parametrize(
    ("words", "there"),
    [
        (["predict", "runs/nosuch", "x.npy"], "scores.csv"),
        (["predict", "runs/nosuch", "x.npy", "--out", "no/folder.csv"], None),
        (["report", "runs/nosuch"], "report.html"),
        (["export", "runs/nosuch", "--c", "--out", "o"], "o/network.h"),
        (["evaluate", "runs/nosuch", "x.npy"], None),
        (["figures", "spectrum", "runs/nosuch", "--out", "a.png"], "a.png"),
        (["generate", "runs/nosuch"], None),
        (["train", "--resume", "runs/nosuch"], None),
        (["predict", "run", "nosuch.npy"], "scores.csv"),
    ],
)
def test_what_is_not_there_is_said_before_what_is(beside, capsys, words, there):
    """`predict runs/nosuch` complained of scores.csv."""
    if there is not None:
        (beside / there).parent.mkdir(exist_ok=True)
        (beside / there).write_text("mine")
    assert cli.main(words) == 2
    said = capsys.readouterr().err
    assert "nosuch" in said
    assert "exists" not in said
