"""The examples in the docs run, and learn."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from orthornn.lab import cli
from orthornn.lab.tasks import TASKS

DOCS = Path(__file__).parents[1] / "docs"
YOUR_DATA = (DOCS / "your_data.md").read_text(encoding="utf-8")
FORECAST, CLASSIFICATION = re.findall(r"```python\n(.*?)```", YOUR_DATA, re.DOTALL)
FORECAST_COMMAND, CLASSIFICATION_COMMAND = re.findall(r"```\northornn (train .*?)\n```", YOUR_DATA)
NEW_DATA = re.findall(r"```\n(orthornn predict .*?)\n```", YOUR_DATA, re.DOTALL)[0]


def run(code):
    names = {}
    exec(code, names)
    return names


def short(command):
    """The command with three updates."""
    return re.sub(r"--steps \d+", "--steps 3", command)


def test_a_forecast_from_csv(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    names = run(FORECAST)
    baselines = names["task"].baselines()
    assert set(baselines) == {"mean of the training targets", "persistence", "linear autoregression of order 16"}
    assert names["result"].test["loss"] < 0.5 * baselines["persistence"]
    assert cli.main([*shlex.split(short(FORECAST_COMMAND)), "--out", "run"]) == 0
    out = capsys.readouterr().out
    for command in NEW_DATA.splitlines():
        words = command.replace("runs/NAME", "run").replace("new.csv", "sine.csv")
        assert cli.main(shlex.split(words)[1:]) == 0
    assert "so the task is forecast" in out
    assert all(f"test loss of {name}" in out for name in baselines)


def test_a_classification_from_parquet(tmp_path, monkeypatch, capsys):
    pytest.importorskip("pyarrow")
    monkeypatch.chdir(tmp_path)
    names = run(CLASSIFICATION)
    assert names["result"].test["accuracy"] > 0.8 > 0.6 > names["task"].trivial_metric
    assert cli.main([*shlex.split(short(CLASSIFICATION_COMMAND)), "--out", "run"]) == 0
    assert "kind holds names, so the task is classify" in capsys.readouterr().out


OTHERS = [
    (page.name, code)
    for page in sorted(DOCS.glob("*.md"))
    # below; of a run that is not there; two files, which test_testing.py writes
    if page.name not in ("your_data.md", "runs.md", "your_parametrization.md")
    for code in re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
]


@pytest.mark.parametrize(("page", "code"), OTHERS, ids=[page for page, _ in OTHERS])
def test_examples_run_as_they_stand(page, code, tmp_path, monkeypatch):
    if "sklearn" in code:
        pytest.importorskip("sklearn")
    monkeypatch.chdir(tmp_path)
    run(code)


def test_every_task_has_its_command():
    commands = re.findall(r"`orthornn train ([\w.-]+) ", (DOCS / "tasks.md").read_text(encoding="utf-8"))
    own = {"classify", "regress", "forecast"}  # by the name of a file
    assert set(commands) - {"TASK"} == {*TASKS, "data.csv"} - own


@pytest.mark.parametrize("page", sorted(DOCS.glob("*.md")), ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    for link in re.findall(r"\]\(([^)#]+)\)", page.read_text(encoding="utf-8")):
        assert link.startswith("http") or (page.parent / link).exists()


def test_what_contributing_tells_to_copy_and_to_extend_is_there():
    root = DOCS.parent
    text = (root / "CONTRIBUTING.md").read_text(encoding="utf-8")
    paths = re.findall(r"\b(?:tests|docs|lab|kernels|parametrizations)/[\w/]*\w\.(?:py|md)\b", text)
    assert len(paths) > 15
    assert not [path for path in paths if not (root / path).exists() and not (root / "src/orthornn" / path).exists()]
    lines = re.findall(r"^\| (?!what)\w+ \| `(.*?)` \| (?:a class of )?`(.*?)`", text, re.MULTILINE)
    assert len(lines) == 4
    assert all((root / "src/orthornn" / folder / file).exists() for folder, file in lines)
    picture = re.search(r"```\n(.*?)```", text, re.DOTALL)[1]
    assert len(picture.splitlines()) <= 40
    layers = re.findall(r"layers = \[(.*?)\]", (root / "pyproject.toml").read_text(encoding="utf-8"), re.DOTALL)
    modules = set(re.findall(r"\w+", " ".join(layers)))
    assert len(modules) > 20
    missing = {name for name in modules if name not in picture} - {"__main__", "_folder", "_safetensors"}
    assert not missing, f"Expected the picture to show every floor, but got none of {missing}."
