"""The choice of a model by successive halving: its rounds, its budget, and that it resumes."""

from __future__ import annotations

import dataclasses
import json
import math
import os
import re
import shlex
import signal
from pathlib import Path

import pytest
import torch

from orthornn.cli import evaluate
from orthornn.cli.train import main
from orthornn.errors import ArgumentError, DataError, Interrupted, LockedError, NonFiniteError
from orthornn.learn import auto
from orthornn.learn.predict import load
from orthornn.learn.runs.directory import make_folder
from orthornn.learn.runs.lock import Lock
from orthornn.learn.systems import Model
from orthornn.learn.tasks import Adding, Copying
from orthornn.learn.training import OptimizerConfig, PenaltyConfig, Run, RunConfig, load_model, read_config
from support.labeled import Labeled
from support.run_cases import entries


def configure(model: Model) -> RunConfig:
    task = Adding(T=6, validation_size=16, test_size=16)
    return RunConfig(task=task, model=model, steps=4, batch_size=4, validate_every=2, checkpoint_seconds=None)


@pytest.fixture
def few(monkeypatch):
    monkeypatch.setattr(auto, "CANDIDATES", {name: auto.CANDIDATES[name] for name in ("strict", "forgetting", "gru")})


def test_a_search_halves_its_candidates_and_trains_the_winner_anew(tmp_path, few):
    search = auto.Search.begin(configure, {"hidden_size": 4, "pool": "mean"}, 1, tmp_path / "search")
    lines = []
    name, result, path = search.run_to_end(lines.append)
    assert [len(own) for own in search.rounds] == [3]
    first = list(search.rounds[0].values())
    assert first == sorted(first)  # the loss: lower is better
    assert name == next(iter(search.rounds[0]))
    assert search.alive == [name]
    assert len(lines) == 1
    assert lines[0].startswith("round 1, validation loss: ")
    retrained = read_config(search.retrained / "config.json")
    assert (retrained.seed, retrained.model) == (1, search.configs[name].model)
    assert path in (search.retrained, search.folder / "candidates" / name)
    assert result.best == json.loads((path / "result.json").read_text())["best"]
    finished = [json.loads(file.read_text())["best"]["loss"] for file in search.folder.glob("**/result.json")]
    assert len(finished) == 2
    assert result.best["loss"] == min(finished)
    assert search.table().rows[0][0] == name
    assert auto.Search.resume(search.folder).run_to_end()[2] == path
    assert load(search.folder).directory == path
    with pytest.raises(
        ArgumentError,
        match=re.escape(f"holds a search by model='auto', --model auto. Name the run of its result: {path}."),
    ):
        load_model(search.folder)
    state = json.loads((search.folder / "auto.json").read_text())
    (search.folder / "auto.json").write_text(json.dumps({**state, "result": "../elsewhere"}))
    with pytest.raises(DataError, match="sha256"):
        load(search.folder)


def test_a_search_resumes_where_it_was_stopped(tmp_path, few, monkeypatch):
    whole = auto.Search.begin(configure, {"hidden_size": 4}, 1, tmp_path / "whole")
    expected = whole.run_to_end()[1]
    search = auto.Search.begin(configure, {"hidden_size": 4}, 1, tmp_path / "parts")
    advance, calls = auto.Search._advance, []

    def stopped(self, run, until, signals):
        calls.append(run)
        if len(calls) in (2, 5):
            signals.received = 15
            run.advance_to(run.trainer.step + 1)
            run.checkpoint()
            raise Interrupted("stopped", 15)
        advance(self, run, until, signals)

    monkeypatch.setattr(auto.Search, "_advance", stopped)
    with pytest.raises(Interrupted):
        search.run_to_end()
    assert search.rounds == []
    with pytest.raises(Interrupted):
        auto.Search.resume(tmp_path / "parts").run_to_end()
    again = auto.Search.resume(tmp_path / "parts")
    found = again.run_to_end()[1]
    assert again.rounds == whole.rounds
    without = ("seconds", "cpu_seconds")
    assert {k: v for k, v in found.best.items() if k not in without} == {
        k: v for k, v in expected.best.items() if k not in without
    }


def test_what_is_wrong_with_a_search(tmp_path, few):
    with pytest.raises(ArgumentError, match="minutes to be positive"):
        auto.Search.begin(configure, {}, 0, tmp_path / "a")
    with pytest.raises(ArgumentError, match="that a candidate has, but got reflections"):
        auto.Search.begin(configure, {"reflections": 3}, 1, tmp_path / "a")
    search = auto.Search.begin(configure, {"hidden_size": 4}, 1, tmp_path / "a")
    with pytest.raises(ArgumentError, match="Expected a new folder"):
        auto.Search.begin(configure, {}, 1, tmp_path / "a")
    search.close()
    plain = entries(tmp_path / "a" / auto.STATE)
    damage = [{"rounds": [{"gru": math.inf}]}]
    damage += [{"rounds": 3}, {"rounds": [{"nobody": 1.0}]}, {"configs": {}}, {"seconds": "x"}, {"seconds": 10**400}]
    damage += [{"configs": {name: search.configs["gru"].to_dict()}, "rounds": []} for name in ("../b", "..")]
    for change in damage:
        (tmp_path / "a" / auto.STATE).write_text(json.dumps({**plain, **change}))
        with pytest.raises(DataError, match="is damaged"):
            auto.Search.resume(tmp_path / "a")
    (tmp_path / "a" / auto.STATE).write_text(json.dumps({**plain, "sha256": "0" * 64}))
    with pytest.raises(DataError, match=r"auto.json was changed: .* remove that entry"):
        auto.Search.resume(tmp_path / "a")
    (tmp_path / "a" / auto.STATE).write_text("{")
    with pytest.raises(DataError, match="to be JSON"):
        auto.Search.resume(tmp_path / "a")


def test_a_search_with_a_penalty_on_what_a_candidate_lacks_leaves_no_folder(tmp_path, few):
    def penalised(model):
        return dataclasses.replace(configure(model), penalties=PenaltyConfig(soft_orthogonality=0.5))

    with pytest.raises(ArgumentError, match="Expected the penalty soft_orthogonality only for a model with"):
        auto.Search.begin(penalised, {"hidden_size": 4}, 1, tmp_path / "search")
    assert not (tmp_path / "search").exists()


def test_a_search_has_one_process(tmp_path, few):
    """A second one stored its own budget in auto.json before it was refused."""
    search = auto.Search.begin(configure, {"hidden_size": 4}, 1, tmp_path / "a")
    before = (tmp_path / "a" / auto.STATE).read_bytes()
    with pytest.raises(
        LockedError, match=rf"{re.escape(str(tmp_path / 'a'))} is being written by process {os.getpid()} "
    ):
        auto.Search.resume(tmp_path / "a", 2)
    assert (tmp_path / "a" / auto.STATE).read_bytes() == before
    search.run_to_end()  # and lets others
    assert auto.Search.resume(tmp_path / "a", 2).seconds == 120
    held = Lock(make_folder(tmp_path / "b"))
    with pytest.raises(LockedError):
        auto.Search.begin(configure, {"hidden_size": 4}, 1, tmp_path / "b")
    assert os.listdir(tmp_path / "b") == [".lock"]
    held.release()
    assert auto.Search.begin(configure, {"hidden_size": 4}, 1, tmp_path / "b").configs.keys() == search.configs.keys()


def test_a_search_is_resumed_with_as_many_threads_as_it_began_with(tmp_path, few, monkeypatch):
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(before + 1)
        auto.Search.begin(configure, {"hidden_size": 4}, 0.01, tmp_path / "a").close()
        torch.set_num_threads(before)
        assert main(["--resume", str(tmp_path / "a")]) == 0
        assert torch.get_num_threads() == before + 1
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("name", ["my search", "-a"])
def test_the_command_that_resumes_a_search_can_be_pasted(name, tmp_path, few, monkeypatch):
    monkeypatch.chdir(tmp_path)
    search = auto.Search.begin(configure, {"hidden_size": 4}, 1, Path(name))
    words = shlex.split(str(search._interruption(signal.SIGTERM)).partition("Resume it with: ")[2])
    assert words[:3] == ["orthornn", "train", "--resume"]
    assert (Path(words[3]).resolve(), words[3][0]) == (tmp_path / name, "m" if name[0] == "m" else ".")


@pytest.mark.parametrize("minutes", [0, -1, math.nan, math.inf])
def test_a_wrong_budget_leaves_a_search_as_it_was(minutes, tmp_path, few):
    auto.Search.begin(configure, {"hidden_size": 4}, 1, tmp_path / "a")
    before = (tmp_path / "a" / auto.STATE).read_bytes()
    with pytest.raises(ArgumentError, match="Expected minutes to be "):
        auto.Search.resume(tmp_path / "a", minutes)
    assert (tmp_path / "a" / auto.STATE).read_bytes() == before
    with pytest.raises(ArgumentError, match="Expected minutes to be "):
        auto.Search.begin(configure, {"hidden_size": 4}, minutes, tmp_path / "b")


def test_a_candidate_that_diverges_is_left_out(tmp_path, few):
    def diverging(model: Model) -> RunConfig:
        optimizer = OptimizerConfig("sgd", lr=1e30 if model.name == "gru" else 0.01)
        return dataclasses.replace(configure(model), optimizer=optimizer)

    search = auto.Search.begin(diverging, {"hidden_size": 4}, 1, tmp_path / "search")
    lines = []
    winner = search.run_to_end(lines.append)[0]
    assert winner != "gru"
    assert lines[0].startswith("gru is left out: Expected a finite training loss, but got ")
    assert list(search.rounds[0])[-1] == "gru"
    assert next(row for row in search.table().rows if row[0] == "gru")[2:] == ["diverged"]
    again = auto.Search.resume(tmp_path / "search")
    assert again.rounds == search.rounds
    assert again.run_to_end()[0] == winner


def test_a_winner_that_diverges_with_another_seed_is_the_result_as_it_was(tmp_path, few, monkeypatch):
    update = auto.Run.advance

    def diverging(self, seconds):
        update(self, seconds)
        if self.config.seed == 1:
            raise NonFiniteError("Expected a finite training loss, but got nan.")

    monkeypatch.setattr(auto.Run, "advance", diverging)
    search = auto.Search.begin(configure, {"hidden_size": 4}, 1, tmp_path / "search")
    lines = []
    winner, _, path = search.run_to_end(lines.append)
    assert path == search.folder / "candidates" / winner
    assert lines[-1] == f"{winner}, trained again, is left out: Expected a finite training loss, but got nan."


def test_a_search_whose_candidates_all_diverge_says_so(tmp_path, few):
    def diverging(model: Model) -> RunConfig:
        return dataclasses.replace(configure(model), optimizer=OptimizerConfig("sgd", lr=1e30))

    search = auto.Search.begin(diverging, {"hidden_size": 4}, 1, tmp_path / "search")
    for begin in (lambda: search, lambda: auto.Search.resume(tmp_path / "search")):
        begun = begin()
        with pytest.raises(NonFiniteError, match=r"that can be trained, but all of them diverge.*Lower lr"):
            begun.run_to_end()
        assert begun.rounds == []


@pytest.mark.sampled(1)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_in_the_last_step_names_the_command_that_resumes(number, tmp_path, few, monkeypatch):
    search = auto.Search.begin(configure, {"hidden_size": 4}, 1, tmp_path / "search")
    finish, calls = Run.finish, []

    def disturbed(self):
        calls.append(self)
        if len(calls) == 2:
            os.kill(os.getpid(), number)
        return finish(self)

    monkeypatch.setattr(Run, "finish", disturbed)
    with pytest.raises(Interrupted, match=f"{number.name} ended the search.*--resume {re.escape(str(search.folder))}"):
        search.run_to_end()
    calls[:] = range(2)
    found, result, path = auto.Search.resume(tmp_path / "search").run_to_end()
    assert found == next(iter(search.rounds[0]))
    assert result.best == json.loads((path / "result.json").read_text())["best"]


def test_a_signal_between_the_last_update_and_the_last_step_counts(tmp_path, few, monkeypatch):
    search = auto.Search.begin(configure, {"hidden_size": 4}, 1, tmp_path / "search")
    advance = auto.Search._advance

    def disturbed(self, run, until, signals):
        advance(self, run, until, signals)
        if run.config.seed == 1:
            os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(auto.Search, "_advance", disturbed)
    with pytest.raises(Interrupted, match="SIGTERM ended the search"):
        search.run_to_end()


def test_a_search_that_is_resumed_with_more_minutes_trains_the_winner_longer(tmp_path, few):
    def long(model: Model) -> RunConfig:
        return dataclasses.replace(configure(model), steps=10**6, validate_every=10**5)

    search = auto.Search.begin(long, {"hidden_size": 4}, 0.001, tmp_path / "search")
    search.run_to_end()
    assert read_config(search.retrained / "config.json").max_seconds <= 0.06
    longer = auto.Search.resume(tmp_path / "search", 0.02)
    assert longer.result == search.result  # known while it is resumed
    longer.run_to_end()
    assert longer.rounds == search.rounds
    assert read_config(search.retrained / "config.json").max_seconds >= 0.4 * 1.2
    assert json.loads((search.retrained / "result.json").read_text())["seconds"] >= 0.4 * 1.2


@pytest.mark.parametrize("name", ["candidates", "candidates/gru", "retrained"])
def test_a_search_with_links_writes_nothing_outside(name, tmp_path, few):
    """A stranger's search: its folders of runs lead into a folder of somebody else's."""
    auto.Search.begin(configure, {"hidden_size": 4}, 0.01, tmp_path / "a")
    (tmp_path / "home").mkdir()
    (tmp_path / "a" / name).parent.mkdir(exist_ok=True)
    (tmp_path / "a" / name).symlink_to(tmp_path / "home")
    with pytest.raises(DataError, match="to be a folder of the search itself, but got a symbolic link"):
        auto.Search.resume(tmp_path / "a").run_to_end()
    assert not list((tmp_path / "home").iterdir())


def test_the_command_searches_and_resumes(tmp_path, few, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = ["adding", "--T", "6", "--model", "auto", "--minutes", "1", "--steps", "2", "--batch-size", "4"]
    words += ["--hidden-size", "4", "--validation-size", "8", "--test-size", "8", "--out", "found"]
    assert main(words) == 0
    said = capsys.readouterr().out
    assert "candidates: strict, forgetting, gru; 1 minutes in all" in said
    files = list(Path("found").glob("**/result.json"))
    results = [json.loads(path.read_text())["best"]["loss"] for path in files]
    assert main(["--resume", "found"]) == 0  # of a finished search: the same result
    again = capsys.readouterr().out
    first, second = (text.split("chosen by validation: ")[1].splitlines()[0] for text in (said, again))
    assert first == second
    assert results == [json.loads(path.read_text())["best"]["loss"] for path in files]
    assert evaluate.main(["found"]) == 0  # of the result, as `load` finds it
    assert "loss" in capsys.readouterr().out
    with pytest.raises(ArgumentError, match="--tensorboard only with one model"):
        main([*words[:-1], "third", "--tensorboard"])
    with pytest.raises(ArgumentError, match="--minutes only with --model auto"):
        main(["adding", "--minutes", "1", "--out", "other"])


def test_the_options_of_a_candidate_are_its_own(tmp_path):
    search = auto.Search.begin(configure, {"hidden_size": 4, "pool": "mean"}, 1, tmp_path / "search")
    assert search.configs["forgetting-last"].model.pool == "last"
    assert search.configs["forgetting"].model.pool == "mean"

    forgetting = {"forgetting", "forgetting-last"}
    for decay, left_out in [(False, forgetting), (True, {"strict"})]:
        options = {"hidden_size": 4, "decay": decay, "forget_bias": 3.0}
        found = auto.Search.begin(configure, options, 1, tmp_path / f"decay-{decay}").configs
        assert found.keys() == auto.CANDIDATES.keys() - left_out
        assert found["lstm"].model.forget_bias == 3
        assert all(config.model.decay == decay for config in found.values() if hasattr(config.model, "decay"))

    def at_every_step(model: Model) -> RunConfig:
        return RunConfig(task=Copying(T=5), model=model)

    assert "forgetting-last" not in auto.Search.begin(at_every_step, {}, 1, tmp_path / "other").configs


def test_a_search_needs_validation_data(tmp_path, few):
    def without(model: Model) -> RunConfig:
        return dataclasses.replace(configure(model), task=Labeled(validation_size=0))

    with pytest.raises(ArgumentError, match=r"Expected a task with validation data, .* but got labeled without"):
        auto.Search.begin(without, {"hidden_size": 4}, 1, tmp_path / "search")
    assert not (tmp_path / "search").exists()


def test_every_candidate_is_a_model():
    for name, options in auto.CANDIDATES.items():
        kind = auto.MODELS[options["model"]]
        model = kind(hidden_size=4, **{k: v for k, v in options.items() if k != "model"})
        assert dataclasses.replace(model, hidden_size=8).hidden_size == 8, name
