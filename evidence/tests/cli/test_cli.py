"""The commands that the evidence adds: their options, errors and outputs."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from orthornn import cli
from orthornn.learn import entry_points
from orthornn_evidence import group_words, leaderboard
from orthornn_evidence.bench import Grid
from orthornn_evidence.certificates import tanks
from orthornn_evidence.irregular_time import runs
from orthornn_evidence.own_data import results


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def run(*words):
    return cli.main(list(words))


WRONG = {
    ("bench", "--threads", "100000"): "threads to be an integer between 1 and",
    ("bench", "--cases", ""): "at least one case",
    ("reproduce", "mhammedi2017", "--list", "--device", "cpu"): "Expected --list without --device, which has no effect",
    (
        "reproduce",
        "mhammedi2017",
        "--collect",
        "--seeds",
        "0",
    ): "Expected --collect without --seeds, which has no effect",
    (
        "reproduce",
        "mhammedi2017",
        "--page",
        "p.md",
        "--collect",
    ): "Expected --page without --collect, which has no effect",
    ("reproduce", "--list", "--only", "table1"): "Expected --only together with a paper, but got it alone",
    ("reproduce", "mhammedi2017", "--device", "gpu"): "Expected device to be 'cpu', 'cuda' or 'cuda:N', but got 'gpu'",
    ("reproduce", "mhammedi2017", "--only", ","): "Expected names in --only, but got ','",
    (
        "reproduce",
        "mhammedi2017",
        "--only",
        "copying",
        "--budget",
        "smoke",
        "--systems",
        "non",
    ): "Expected system to be one of",
    ("bench", "--cases", "wy-4-5-b1"): "m to be an integer between 1 and 4, but got 5",
    ("bench", "--cases", "wy-4"): "a case such as wy-256-32-b1",
    ("bench", "--cases", ","): "at least one case",
    ("bench", "--peers", "lstn"): "Did you mean 'lstm'?",
    ("bench", "--long", "5", "--layers"): "Expected either --long or --layers, but got both",
    ("bench", "--long", "5", "--peers", "lstm"): "Expected --long without --peers, which has no effect there",
    ("bench", "--sweep", "--T", "7"): "Expected --sweep without --T, which has no effect there",
    ("bench", "--device", "tpu"): "device to be one of cpu",
    ("bench", "--nonlinearity", "oplu"): "nonlinearity to be one of",
    ("bench", "--rounds", "0"): "rounds to be",
}


@pytest.mark.parametrize("words", WRONG)
def test_an_error_is_one_line_and_leaves_nothing_behind(words, capsys, tmp_path):
    assert run(*words) == 2
    error = capsys.readouterr().err
    assert error.startswith("orthornn: ")
    assert len(error.splitlines()) == 1
    assert WRONG[words] in error
    assert list(tmp_path.rglob("*.jsonl")) == []


def test_orthornn_knows_the_names_of_its_commands():
    """So that it can say how to install what is not there."""
    declared = entry_points.declared(entry_points.COMMANDS)
    own = [name for name, found in declared.items() if found.value.startswith("orthornn_evidence")]
    assert sorted(own) == sorted(entry_points.EVIDENCE[entry_points.COMMANDS])


@pytest.mark.parametrize("command", entry_points.EVIDENCE[entry_points.COMMANDS])
def test_a_command_refuses_an_option_twice_before_it_begins(command, capsys, tmp_path):
    assert run(command, "copying", "--out", "a", "--lr", "1", "--out=b") == 2
    shown = capsys.readouterr()
    assert shown.err == "orthornn: Expected --out once, but got it twice: a and b. Give it once.\n"
    assert shown.out == ""
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize("command", ["bench", "reproduce"])
def test_no_command_shows_none_as_a_type_or_a_default(command, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    with pytest.raises(SystemExit) as stop:
        run(command, "--help")
    assert stop.value.code == 0
    text = capsys.readouterr().out
    assert not re.findall(r"\{None.*|\(default: (?:None|''|)\)", text)
    assert re.search(r"--[\w-]+ (?:PATH|INT|STR)", text)


def test_the_manual_shows_how_they_are_used(capsys):
    assert run("--help") == 0
    manual = capsys.readouterr().out
    for command in entry_points.EVIDENCE[entry_points.COMMANDS]:
        assert re.search(rf"^  {command} +\w", manual, re.MULTILINE)
    assert "\n  orthornn bench --quick\n" in manual
    assert "not installed" not in manual


def test_the_reference_says_what_they_do():
    text = (Path(__file__).parents[3] / "docs" / "reference" / "command_line.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| `([\w-]+)` \| (.*) \|$", text, re.MULTILINE))
    for name in entry_points.EVIDENCE[entry_points.COMMANDS]:
        assert rows[name] == entry_points.load(entry_points.COMMANDS, name).summary


@pytest.mark.parametrize("name", ["results.json", "table.txt"])
def test_a_folder_with_results_is_refused_before_anything_is_measured(name, tmp_path, capsys):
    (tmp_path / name).write_text("mine\n")
    assert run("bench", "--quick", "--out", ".") == 2
    assert re.search(r"Expected a new (file|folder), but got .*" + re.escape(name), capsys.readouterr().err)
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {name: "mine\n"}


@pytest.mark.parametrize(
    ("main", "words"),
    [
        (leaderboard.main, ["page", "--out", "a", "--out", "b"]),
        (leaderboard.main, ["run", "--out", "a", "--out=b", "--", "copying"]),
        (group_words.main, ["--out", "a", "--out", "b"]),
        (results.main, ["plan", "--out", "a", "--out", "b"]),
        (tanks.main, ["--out", "a", "--out", "b"]),
        (runs.main, ["--out", "a", "--out=b"]),
    ],
)
def test_commands_of_modules(main, words, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as stop:
        main(words)
    assert stop.value.code == 2
    assert "Expected --out once, but got it twice: a and b. Give it once." in capsys.readouterr().err
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize("main", [group_words.main, results.main])
def test_commands_of_modules_take_no_shortened_names(main, capsys):
    with pytest.raises(SystemExit):
        main(["plan", "--seed", "1"] if main is results.main else ["--see", "1"])
    assert "unrecognized arguments" in capsys.readouterr().err


def test_bench_sweep(capsys, tmp_path, monkeypatch):
    grid = Grid(6, 2, 1, 5, n_values=(6,), m_values=(2,), B_values=(1, 2), T_values=(5, 10))
    monkeypatch.setattr("orthornn_evidence.cli.bench.QUICK", grid)
    assert run("bench", "--sweep", "--quick", "--rounds", "1", "--out", "sweep") == 0
    assert (tmp_path / "sweep" / "table.txt").read_text() in capsys.readouterr().out.lstrip()
    assert (tmp_path / "sweep" / "sweep.png").stat().st_size > 5000
    found = json.loads((tmp_path / "sweep" / "results.json").read_text())
    assert [point["axis"] for point in found["points"]] == ["n", "m", "B", "B", "T", "T"]
