"""Checkpoints alone: what is written, found, set aside, pruned and refused."""

from __future__ import annotations

import hashlib
import json
import os

import pytest
import torch

from orthornn.errors import ArgumentError, CheckpointError, DataError
from orthornn.learn.training import Run, train
from orthornn.saved.checkpoint import FILES, Checkpoints, Damaged, read_checkpoint
from orthornn.saved.json_files import read_json
from orthornn.saved.run_files import check_is_run
from support.run_cases import config


@pytest.fixture
def made(tmp_path, monkeypatch):
    """The checkpoints of a run after 2, 4, ..., 10 updates, and what the newest holds."""
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)
    run = Run(config(checkpoint_every=2, keep_checkpoints=9, validate_every=100), tmp_path / "run")
    run.advance_to(10)
    run.close()
    found = Checkpoints(tmp_path / "run" / "checkpoints")
    return found, found.read(10)


def same(one, other):
    if isinstance(one, torch.Tensor):
        return torch.equal(one, other)
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(same, one, other))
    return one == other


def sign(folder, **content):
    """Write files with sums that fit."""
    for name, data in content.items():
        (folder / name).write_bytes(data)
    sums = "".join(f"{hashlib.sha256((folder / f).read_bytes()).hexdigest()}  {f}\n" for f in FILES[:3])
    (folder / FILES[3]).write_text(sums)


def test_steps_are_in_order_whatever_the_folder_lists(made):
    checkpoints, content = made
    checkpoints.write(100_000_000, *content)  # nine digits: before step-00000002 as a word
    checkpoints.write(3, *content)
    assert checkpoints.steps() == [2, 3, 4, 6, 8, 10, 100_000_000]
    assert checkpoints.newest() == (100_000_000, [])


def test_a_checkpoint_of_the_same_step_is_replaced(made):
    checkpoints, (weights, state) = made
    changed = {name: value + 1 for name, value in weights.items()}
    (checkpoints.path(8) / FILES[0]).write_bytes(b"damaged")
    for step in (8, 12):
        checkpoints.write(step, weights, state)
        checkpoints.write(step, changed, state)
        assert same(checkpoints.read(step), (changed, state))
    assert not [path.name for path in checkpoints.folder.iterdir() if not path.name.startswith("step-")]


def test_a_file_of_somebody_else_stays_where_a_checkpoint_would_be_replaced_or_removed(made):
    checkpoints, content = made
    mine = checkpoints.path(4) / "notes.txt"
    mine.write_text("mine")
    with pytest.raises(CheckpointError, match=r"holds files that no checkpoint has \(notes\.txt\)"):
        checkpoints.write(4, *content)
    checkpoints.prune(1, best=6)
    assert mine.read_text() == "mine"
    assert checkpoints.steps() == [4, 6, 10]
    assert {path.name for path in checkpoints.folder.iterdir()} == {f"step-0000000{k}" for k in (4, 6)} | {
        "step-00000010"
    }


def test_what_killed_processes_left_is_removed_and_nothing_else(made):
    checkpoints, _ = made
    left, others = (".step-00000004.77", ".removed-4"), (".removed-4x", "step-4", "damaged-step-00000004", ".step-4.1")
    for name in (*left, *others):
        (checkpoints.folder / name).mkdir()
        (checkpoints.folder / name / FILES[2]).write_text("{}")
    checkpoints.prune(9, None)
    names = {path.name for path in checkpoints.folder.iterdir()}
    assert names & {*left, *others} == set(others)
    assert checkpoints.steps() == [2, 4, 6, 8, 10]


def test_damaged_ones_are_named_newest_first_and_set_aside_one_after_the_other(made):
    checkpoints, content = made
    for round_ in range(3):
        for step in (8, 10):
            path = checkpoints.path(step) / FILES[round_]
            path.write_bytes(path.read_bytes()[:-1])
        step, damaged = checkpoints.newest()
        assert step == 6
        assert [one.path.name for one in damaged] == ["step-00000010", "step-00000008"]
        assert all(FILES[round_] in one.reason for one in damaged)
        places = checkpoints.set_aside(damaged)
        suffix = "" if not round_ else f"-{round_ + 1}"
        assert [path.name for path in places] == [f"damaged-step-000000{k}{suffix}" for k in ("10", "08")]
        assert all(path.is_dir() for path in places)
        for step in (8, 10):
            checkpoints.write(step, *content)
    assert checkpoints.newest() == (10, [])
    assert checkpoints.set_aside([]) == []


@pytest.mark.parametrize("name", FILES[:3])
def test_a_file_without_a_sum_is_not_read(name, made):
    checkpoints, _ = made
    sums = checkpoints.path(10) / FILES[3]
    sums.write_text("".join(line for line in sums.read_text().splitlines(True) if name not in line))
    with pytest.raises(CheckpointError, match=rf"Expected .*{name} to have the sha256 None\.\.\. of .* Restore it"):
        checkpoints.read(10)


def test_another_format_is_not_read(made):
    checkpoints, _ = made
    path = checkpoints.path(10)
    plain = json.loads((path / FILES[2]).read_text())
    sign(path, **{FILES[2]: json.dumps({**plain, "format": 2}).encode()})
    with pytest.raises(CheckpointError, match=r"has format 2; this version of orthornn reads format 1"):
        read_checkpoint(path)
    with pytest.raises(CheckpointError, match=r"Resume the run with the version that wrote it"):
        checkpoints.newest()  # it is not damaged: an older one is not taken in its place
    sign(path, **{FILES[2]: json.dumps(plain).encode()})
    assert same(read_checkpoint(path), made[1])


def test_a_check_of_ones_own_comes_first(made):
    checkpoints, _ = made

    def check(path):
        if path != checkpoints.path(4):
            raise CheckpointError("not this one")

    step, damaged = checkpoints.newest(check)
    assert step == 4
    assert damaged == [Damaged(checkpoints.path(k), "not this one") for k in (10, 8, 6)]
    (checkpoints.path(4) / FILES[1]).unlink()
    assert checkpoints.newest(check)[0] is None


def test_every_error_of_a_loader_names_what_to_do(made, tmp_path):
    """Expected ..., but got .... Then what to do: of each way in which a file of a run cannot be read."""
    checkpoints, _ = made
    path, form = checkpoints.path(10), r"(?s)^Expected .*, but (got|.* holds no run).*\. (Restore|Name)[^.]*.*$"
    whole = {name: (path / name).read_bytes() for name in FILES}
    changes = {name: [None, b"", b"{", whole[name][:-1]] for name in FILES}
    for name, contents in changes.items():
        for changed in contents:
            (path / name).unlink() if changed is None else (path / name).write_bytes(changed)
            with pytest.raises(CheckpointError, match=form):
                read_checkpoint(path)
            (path / name).write_bytes(whole[name])
    sign(path, **{FILES[2]: b"{"})
    with pytest.raises(CheckpointError, match=form):
        read_checkpoint(path)
    sign(path, **{FILES[2]: b"[]"})
    with pytest.raises(CheckpointError, match=form):
        read_checkpoint(path)
    for content in (None, b"{", b"[" * 5000, b"[]", b"\xff"):
        if content is not None:
            (tmp_path / "some.json").write_bytes(content)
        with pytest.raises(DataError, match=form):
            read_json(tmp_path / "some.json", "Result")
    with pytest.raises(ArgumentError, match=form):
        check_is_run(tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(ArgumentError, match=r"Expected to make the run directory .*, but got: .*\. Choose another"):
        train(config(), tmp_path / "file" / "run")
