"""What other packages declare is found; what the evidence declares is one clear error where it is not installed."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from importlib.metadata import EntryPoint
from typing import ClassVar

import pytest

import orthornn
from orthornn import cli
from orthornn.errors import MissingPackageError
from orthornn.learn import entry_points
from orthornn.learn.tasks import TASKS, Copying
from orthornn.learn.training import RunConfig, read_config, train
from orthornn_command import entry_points as declarations
from support.run_cases import config

ADVICE = r"not installed.*pip install -e evidence"


@dataclass(frozen=True)
class Recall(Copying):
    """Copying under another name."""

    name: ClassVar[str] = "recall"


SHOUT = entry_points.Command("write in capitals", __name__, "orthornn shout quietly")


def main(words):
    print(*words, sep="\n")
    return 7


@pytest.fixture
def declared(monkeypatch):
    """Declare these entry points and no others, whatever is installed."""

    def declare(**found):
        points = {
            group: {
                name: EntryPoint(name, value if ":" in value else f"{__name__}:{value}", group)
                for name, value in names.items()
            }
            for group, names in found.items()
        }
        monkeypatch.setattr(declarations, "declared", lambda group: points.get(group.partition(".")[2], {}))

    return declare


def test_a_task_of_another_package_is_trained_and_loaded(declared, tmp_path):
    declared(tasks={"recall": "Recall"})
    assert list(TASKS)[-1] == "recall"
    assert len(TASKS) == len(list(TASKS))
    assert TASKS["recall"] is Recall
    run = config(task=Recall(T=3, symbols=3, items=2, validation_size=4, test_size=4), steps=2)
    assert RunConfig.read(run.to_dict()) == run
    train(run, tmp_path / "run")
    assert orthornn.load(tmp_path / "run").config == run


def test_a_command_of_another_package_runs_and_is_in_the_manual(declared, capsys):
    declared(commands={"shout": "SHOUT"})
    assert cli.main(["shout", "quietly", "please"]) == 7
    assert capsys.readouterr().out == "quietly\nplease\n"
    assert cli.main(["--help"]) == 0
    manual = capsys.readouterr().out
    assert re.search(r"^  shout +write in capitals$", manual, re.MULTILINE)
    assert "\n  orthornn shout quietly\n" in manual


def test_a_package_that_is_gone_breaks_nothing_but_what_it_declares(declared, capsys):
    """Its folder was moved or removed, and its entry points are still there."""
    declared(tasks={"recall": "no_such_package:Recall"}, commands={"shout": "no_such_package:SHOUT"})
    assert "recall" not in list(TASKS)
    assert cli.main(["--help"]) == 0
    assert "shout" not in capsys.readouterr().out
    assert cli.main(["tran"]) == 2
    assert "Did you mean 'train'?" in capsys.readouterr().err
    for words in (["shout"], ["train", "recall"]):
        assert cli.main(words) == 2
        said = capsys.readouterr().err
        assert re.fullmatch(
            rf"orthornn: Expected to import .* for .*{words[-1]}.*, but got: .*Install .* again\.\n", said
        )


def test_own_tasks_and_commands_are_not_replaced(declared):
    declared(tasks={"copying": "Recall"}, commands={"train": "SHOUT"})
    assert TASKS["copying"] is Copying
    assert list(TASKS).count("copying") == 1
    assert cli.commands()["train"].module == "orthornn.cli.train"


@pytest.mark.parametrize("command", entry_points.EVIDENCE[entry_points.COMMANDS])
def test_a_command_of_the_evidence_says_how_to_install_it(declared, command, capsys):
    declared()
    assert cli.main([command, "--list"]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert re.fullmatch(rf"orthornn: Expected .*`orthornn {command}`.*{ADVICE}.*\n", shown.err)
    cli.main([])
    assert command in re.search("not installed: (.*);", capsys.readouterr().out)[1].split(", ")


@pytest.mark.parametrize("task", entry_points.EVIDENCE[entry_points.TASKS])
def test_a_task_of_the_evidence_says_how_to_install_it(declared, task, tmp_path, capsys):
    """On every path that reads its name: the command, the Python function, config.json; even next to a folder of its name."""
    declared()
    assert task not in list(TASKS)
    with pytest.raises(SystemExit):
        cli.main(["train", "--help"])
    assert task in re.search("not installed: (.*);", capsys.readouterr().out)[1].split(", ")
    (tmp_path / task).mkdir()
    for command in ("train", "compare", "sweep"):
        assert cli.main([command, task, "--out", str(tmp_path / "out")]) == 2
        assert re.fullmatch(rf"orthornn: Expected .* the task {task}, .*{ADVICE}.*\n", capsys.readouterr().err)
    plain = config().to_dict() | {"task": {"name": task, "data": "somewhere"}}
    (tmp_path / "config.json").write_text(json.dumps(plain))
    for read in (lambda: orthornn.train(task), lambda: read_config(tmp_path / "config.json")):
        with pytest.raises(MissingPackageError, match=rf"the task {task}, .*{ADVICE}"):
            read()
