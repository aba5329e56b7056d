"""The leaderboard: what is stored of a run, the page, and the static control."""

from __future__ import annotations

import dataclasses
import errno
import json
import re
import shlex
from pathlib import Path

import pytest

from orthornn.errors import ArgumentError, DataError, OrthornnWarning
from orthornn.learn.report.runs import read_run
from orthornn.learn.tasks import Copying, Regress
from orthornn.learn.training import RecordConfig, train
from orthornn_evidence import leaderboard
from orthornn_evidence.leaderboard import command, control, main, static_perceptron, table, task_title
from orthornn_evidence.tasks import Groups, ModularSums, PixelMNIST
from support.made_idx import write_images
from support.run_cases import config


@pytest.fixture
def images(tmp_path):
    write_images(tmp_path / "mnist", train=60)
    return PixelMNIST(data=str(tmp_path / "mnist"), verify=False, validation_size=10, permuted=True)


def test_a_run_is_stored_without_folders_and_once(tmp_path):
    for seed in (0, 1):
        train(config("scornn", seed=seed, steps=3, record=RecordConfig(test=True)), tmp_path / str(seed))
    out = tmp_path / "board"
    assert main(["add", str(tmp_path / "0"), str(tmp_path / "1"), "--out", str(out)]) == 0
    assert main(["add", str(tmp_path / "1"), "--out", str(out)]) == 0
    (path,) = out.glob("*.json")
    stored = json.loads(path.read_text())
    assert [one["seed"] for one in stored] == [0, 1]
    result = json.loads((tmp_path / "0" / "result.json").read_text())
    assert stored[0]["parameters"] == result["parameters"]
    assert stored[0]["orthogonality_error"] == result["orthogonality_error"]
    assert stored[0]["best_test"] is not None
    assert stored[0]["last_test"] == result["test"][stored[0]["metric"]]
    assert str(tmp_path) not in path.read_text()
    page = (out / "README.md").read_text()
    assert "| scornn |" in page
    assert "| 2 |" in page  # seeds
    lines = [line.replace("\\|", "") for line in page.splitlines() if line.startswith("|")]
    assert {line.count("|") for line in lines} == {13}


def test_unfinished_runs_below_a_folder_are_named_and_left_out(tmp_path, capsys):
    for seed in (0, 1):
        train(config("scornn", seed=seed, steps=2), tmp_path / "runs" / str(seed))
    (tmp_path / "runs" / "1" / "result.json").unlink()
    words = ["add", str(tmp_path / "runs"), "--out", str(tmp_path / "board")]
    assert main(words) == 0
    said = capsys.readouterr().err
    assert f"{tmp_path / 'runs' / '1'} is not finished. Resume it with: orthornn train --resume" in said
    (path,) = (tmp_path / "board").glob("*.json")
    assert [one["seed"] for one in json.loads(path.read_text())] == [0]
    (tmp_path / "runs" / "0" / "result.json").unlink()
    assert main(words) == 2
    assert "Expected a finished run" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "word"), [("my run", "my run"), ("-run", "./-run"), ("it's $HOME", "it's $HOME"), ("run", "run")]
)
def test_the_command_that_finishes_a_run_can_be_pasted(name, word, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    train(config("scornn", steps=2), name)
    (tmp_path / name / "result.json").unlink()
    with pytest.warns(OrthornnWarning, match="has come to its end"):
        run = read_run(Path(name))
    with pytest.raises(ArgumentError) as caught:
        leaderboard.entry(run)
    assert shlex.split(str(caught.value).partition("orthornn train --resume ")[2].rstrip(".")) == [word]


def test_runs_of_one_seed_are_one_result_and_other_trainings_are_others(tmp_path, capsys):
    """The command of runs from Python tells nothing: their configurations tell them apart."""
    for name, steps in (("a", 2), ("b", 2), ("c", 3)):
        train(config("scornn", steps=steps), tmp_path / name)
    assert main(["add", *(str(tmp_path / name) for name in "abc"), "--out", str(tmp_path / "board")]) == 0
    assert "two runs are the same training with seed" in capsys.readouterr().err
    (path,) = (tmp_path / "board").glob("*.json")
    stored = json.loads(path.read_text())
    assert sorted(one["updates"] for one in stored) == [2, 3]
    assert len({one["command"] for one in stored}) == 2
    assert len(table(stored).rows) == 2
    for parameters in (5, 6):  # a recipe that has changed since
        leaderboard.store([{**ENTRY, "parameters": parameters}], tmp_path / "other")
    assert len(json.loads((tmp_path / "other" / "x.json").read_text())) == 2


def test_the_order_of_options_is_no_other_training(tmp_path):
    first, second = "orthornn train x --lr 0.1 --model y", "orthornn train x --model y --lr 0.1"
    other = "orthornn train x --model y --lr 0.2"
    for seed, said in enumerate((first, second, other)):
        leaderboard.store([{**ENTRY, "command": said, "seed": seed}], tmp_path)
    assert len(table(json.loads((tmp_path / "x.json").read_text())).rows) == 2
    leaderboard.store([{**ENTRY, "command": second, "seed": 0}], tmp_path)  # in the place of the first
    stored = json.loads((tmp_path / "x.json").read_text())
    assert sorted((one["command"], one["seed"]) for one in stored) == sorted([(second, 0), (second, 1), (other, 2)])


@pytest.mark.parametrize("name", ["test", "validation", "last_test"])
def test_a_metric_that_is_not_finite_does_not_spoil_what_is_stored(tmp_path, name):
    leaderboard.store([ENTRY], tmp_path)
    before = (tmp_path / "x.json").read_bytes()
    for value in (float("nan"), float("inf")):
        with pytest.raises(DataError, match="the result of orthornn with seed 1"):
            leaderboard.store([{**ENTRY, "seed": 1, name: value}], tmp_path)
    assert (tmp_path / "x.json").read_bytes() == before
    assert "| y |" in leaderboard.page(tmp_path)


@pytest.mark.parametrize(
    "words",
    [
        ["add"], ["add", "RUN", "--seed", "3"], ["add", "RUN", "--", "copying"], ["control", "RUN"],
        ["control", "--steps", "5"], ["control", "--seeds", "2"], ["run", "--seed", "1"], ["run", "--permuted"],
        ["page", "RUN"], ["page", "--", "x"], [], ["pages"],
    ],
    ids=" ".join,
)  # fmt: skip
def test_what_a_command_would_not_use_it_does_not_take(words, capsys):
    with pytest.raises(SystemExit) as stop:
        main(words)
    assert stop.value.code == 2
    assert "usage" in capsys.readouterr().err


def test_ctrl_c_is_one_line(tmp_path, capsys, monkeypatch):
    def stopped(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(leaderboard, "run_plan", stopped)
    assert main(["run", "--steps", "1", "--out", str(tmp_path), "--", "copying"]) == 130
    assert capsys.readouterr().err.splitlines()[-1] == "leaderboard: interrupted. Repeat the command to resume."


def test_rows_with_shifted_images_come_below_all_others():
    def one(options, test, system="blocks"):
        return {**ENTRY, "system": system, "test": test, "command": f"orthornn train pixel-mnist{options}"}

    entries = [
        one(" --shift 2", 0.99),
        one(" --lr 0.1 --shift=1", 0.98),
        one(" --shift 0", 0.95),
        one(" --permuted", 0.96),
        one("", 0.9),
    ]
    shown = table(entries)
    tests = [row[[column.heading for column in shown.columns].index("test")] for row in shown.rows]
    assert tests == ["96.00 %", "95.00 %", "90.00 %", "99.00 %", "98.00 %"]
    assert any("--shift" in note and "below" in note for note in shown.notes)
    assert not any("below" in note for note in table(entries[2:]).notes)
    assert not any("below" in note for note in table(entries[:2]).notes)


def test_published_results_stand_below_their_table(tmp_path):
    leaderboard.store([ENTRY], tmp_path)
    (file,) = tmp_path.glob("*.json")
    assert "Published" not in leaderboard.page(tmp_path)
    others = tmp_path / "published" / file.name
    others.parent.mkdir()
    one = {"system": "first", "test": 0.905, "parameters": None, "source": "A paper."}
    others.write_text(json.dumps([one, {**one, "system": "second", "test": 0.95, "parameters": 70}]))
    lines = leaderboard.page(tmp_path).splitlines()
    at = lines.index("- second, 95 % with 70 parameters: A paper.")
    assert lines[at + 1] == "- first, 90.5 %: A paper."
    assert max(place for place, line in enumerate(lines) if line.startswith("| ")) < at
    for wrong in ({}, [{**one, "test": "high"}], [{**one, "seeds": 3}]):
        others.write_text(json.dumps(wrong))
        with pytest.raises(DataError, match=re.escape(str(others))):
            leaderboard.page(tmp_path)


def test_the_best_mean_is_first_with_its_distance_from_orthogonal():
    one = {"task": "t", "metric": "accuracy", "higher_is_better": True, "parameters": 5, "head": "linear", "seed": 0}
    one |= {"validation": 0.5, "best_test": None, "last_test": None, "epochs": 1.0, "updates": 3, "cpu_seconds": 2.0}
    entries = [
        {**one, "system": "a", "command": "a", "test": 0.5, "orthogonality_error": 1e-7},
        {**one, "system": "b", "command": "b", "test": 0.7, "orthogonality_error": 0.1},
        {**one, "system": "b", "command": "b", "test": 0.8, "orthogonality_error": 0.1, "seed": 1},
    ]
    rows = table(entries).rows
    assert [row[0] for row in rows] == ["b", "a"]
    assert rows[0][5].startswith("75.00 ± 7.07 %")
    assert [row[7] for row in rows] == ["0.1", "1e-07"]
    assert "last weights" not in [column.heading for column in table(entries).columns]
    shown = table([{**entries[0], "last_test": 0.6}, *entries[1:]])  # stored by this version, and by one before
    at = [column.heading for column in shown.columns].index("last weights")
    assert [row[at] for row in shown.rows] == ["-", "60.00 %"]


def test_a_command_says_what_was_trained():
    words = [
        "/x/orthornn",
        "train",
        "pixel-mnist",
        "--data",
        "/home/me/mnist",
        "--seed",
        "3",
        "--lr",
        "1",
        "--out=/y/z",
    ]
    assert command(words) == "orthornn train pixel-mnist --data FOLDER --lr 1"
    assert command([]) == "orthornn"
    assert (
        command(["orthornn", "train", "a.csv", "--target", "unit price"])
        == "orthornn train a.csv --target 'unit price'"
    )
    assert command(["orthornn", "train", "x", "--init", "~nobody-here/a"]) == "orthornn train x --init FOLDER"


def test_the_static_control_fills_its_budget(images):
    model = static_perceptron(images, 500)
    count = sum(p.numel() for p in model.parameters())
    assert count <= 500 < count + images.steps + 1 + images.problem().schema["output_size"]
    with pytest.raises(ArgumentError, match="at least one hidden unit"):
        static_perceptron(images, 12)


def test_the_static_control_learns_and_repeats(images, tmp_path):
    found = [control(images, budget=500, epochs=2, batch_size=10, seed=1) for _ in range(2)]
    assert found[0]["test"] == found[1]["test"]
    assert found[0]["validation"] is not None
    assert "--permuted" in found[0]["command"]
    leaderboard.store(found[:1], tmp_path)
    assert "static perceptron" in leaderboard.page(tmp_path)


def test_the_control_is_trained_on_shifted_images_if_that_is_said(tmp_path, monkeypatch):
    images, shown = PixelMNIST(str(write_images(tmp_path / "mnist", train=120)), verify=False, validation_size=10), []

    def made(**options):
        options.pop("data")
        shown.append(options["shift"])
        return dataclasses.replace(images, **options)

    monkeypatch.setattr(leaderboard, "PixelMNIST", made)
    for words in ([], ["--shift", "1"]):
        words = ["control", "--budget", "500", "--epochs", "1", *words, "--out", str(tmp_path)]
        assert main(words) == 0
    assert shown == [0, 1]
    still, moved = json.loads((tmp_path / "pixel-mnist.json").read_text())
    assert moved["command"] == still["command"].replace(" --budget", " --shift 1 --budget")
    assert main(["control", "--shift", "-1", "--out", str(tmp_path)]) == 2


def test_long_commands_are_folded_and_options_stand_apart(tmp_path):
    """A page shows lines of 100 characters; the shell joins what a backslash ends, and no option is broken."""
    words = "orthornn train copying --model ornn " + " ".join(f"--option-{i} {10**i}" for i in range(12))
    (tmp_path / "t.json").write_text(json.dumps([{**ENTRY, "command": words}]))
    text = leaderboard.page(tmp_path)
    (block,) = re.findall(r"```sh\n(.*?)\n```", text, re.DOTALL)
    assert max(map(len, block.splitlines())) <= 100
    assert len(block.splitlines()) > 2
    assert " ".join(block.replace("\\\n", " ").split()) == words
    (row,) = [line for line in text.splitlines() if line.startswith(f"| {ENTRY['system']} ")]
    assert "| `--option-0 1` `--option-1 10` " in row


def test_what_it_refuses(tmp_path, capsys):
    assert main(["page", "--out", str(tmp_path)]) == 2
    assert "Expected results in" in capsys.readouterr().err
    train(config(steps=2), tmp_path / "run")
    (tmp_path / "run" / "result.json").unlink()
    with pytest.raises(ArgumentError, match="Expected a finished run"):
        leaderboard.entry(read_run(tmp_path / "run"))


def test_a_command_names_no_folder_of_the_machine():
    words = ["orthornn", "train", "pixel-mnist", "--data=/home/someone/mnist", "--init", "a=b", "/srv/x.csv"]
    assert command(words) == "orthornn train pixel-mnist --data=FOLDER --init a=b FOLDER"


@pytest.mark.parametrize(
    "content",
    [b"{", b"\xff", b"[" * 100_000, b"{}", b"[]", b"[1]", b'[{"task": "x"}]'],
    ids=lambda content: repr(content[:9]),
)
def test_a_file_of_something_else_is_one_error(tmp_path, capsys, content):
    (tmp_path / "x.json").write_bytes(content)
    assert main(["page", "--out", str(tmp_path)]) == 2
    assert str(tmp_path / "x.json") in capsys.readouterr().err
    assert not (tmp_path / "README.md").exists()


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("test", '"x"'),
        ("test", "NaN"),
        ("test", "1" + "0" * 400),
        ("seed", "-1"),
        ("command", "[]"),
        ("orthogonality_error", "{}"),
        ("cpu_seconds", '1, "cpu_seconds": 2'),
        ("higher_is_better", "2"),
    ],
)
def test_an_entry_of_a_wrong_type_is_one_error(tmp_path, capsys, name, text):
    plain = {**ENTRY, name: "HERE"}
    (tmp_path / "x.json").write_text(json.dumps([ENTRY, plain]).replace('"HERE"', text))
    assert main(["page", "--out", str(tmp_path)]) == 2
    said = capsys.readouterr().err
    assert "x.json" in said
    assert len(said) < 700
    assert not (tmp_path / "README.md").exists()


def test_a_page_that_cannot_be_written_is_one_error(tmp_path, capsys, monkeypatch):
    (tmp_path / "x.json").write_text(json.dumps([{**ENTRY, "command": "orthornn train --lr `x`\n| a <b> | c"}]))
    (tmp_path / "README.md").mkdir()
    assert main(["page", "--out", str(tmp_path)]) == 2
    assert "README.md" in capsys.readouterr().err
    (tmp_path / "README.md").rmdir()

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(leaderboard, "write_bytes", full)
        assert main(["page", "--out", str(tmp_path)]) == 2
    assert "cannot use" in capsys.readouterr().err
    assert main(["page", "--out", str(tmp_path)]) == 0
    lines = (tmp_path / "README.md").read_text().splitlines()
    rows = [line for line in lines if line.startswith("|")]
    assert len(rows) == 3
    assert rows[2].split(" | ")[1] == "`--lr 'x' \\| a <b> \\| c`"
    assert lines[-3:] == ["```sh", "orthornn train --lr 'x' | a <b> | c", "```"]


ENTRY = {
    "task": "x", "system": "y", "metric": "accuracy", "higher_is_better": True, "parameters": 1, "head": "linear", "seed": 0,
    "validation": 0.5, "test": 0.5, "best_test": None, "last_test": None, "orthogonality_error": None, "epochs": None,
    "cpu_seconds": None, "command": "orthornn",
}  # fmt: skip


def test_other_groups_targets_and_files_are_other_tasks(tmp_path):
    titles = [task_title(task) for task in (Groups("S3"), Groups("Z60"), ModularSums(3), ModularSums(7), Copying(T=5))]
    titles += [
        task_title(Regress(data=str(tmp_path / data), target=target))
        for data, target in (("a.csv", "y"), ("a.csv", "z"), ("b.csv", "y"))
    ]
    assert len(set(titles)) == len(titles)
    assert not [title for title in titles if str(tmp_path) in title]
