"""A stranger's run directory: nothing outside it is touched, and nothing is silently misread."""

from __future__ import annotations

import ctypes
import fcntl
import hashlib
import json
import os
import shutil
import struct
import sys
import traceback
import warnings
from pathlib import Path

import pytest
import torch

import orthornn
from orthornn.cli import evaluate
from orthornn.errors import (
    ArgumentError,
    CheckpointError,
    ConfigError,
    DataError,
    LockedError,
    MissingPackageError,
    OrthornnWarning,
)
from orthornn.learn.files.data_frames import source
from orthornn.learn.report.page import draw
from orthornn.learn.report.runs import read_run
from orthornn.learn.systems import MODELS, model_named
from orthornn.learn.tasks import Classify, Regress
from orthornn.learn.training import (
    Run,
    RunConfig,
    load_model,
    read_checkpoint,
    read_config,
    read_metrics,
    resume,
    train,
)
from orthornn.saved.run_files import read_result
from support.run_cases import COPYING, config, content, entries, numbers


@pytest.fixture(autouse=True)
def _no_sync(monkeypatch):
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)


ORIGINALS = {}  # runs that were stopped, by what they train


@pytest.fixture(scope="module", autouse=True)
def _originals(tmp_path_factory):
    ORIGINALS["folder"] = tmp_path_factory.mktemp("stopped")
    yield
    ORIGINALS.clear()


def stopped(path, **options):
    """A run that was stopped after it had gone on from its checkpoint; what is trained once is copied."""
    settings = config(**options)
    if repr(settings) not in ORIGINALS:
        original = ORIGINALS["folder"] / str(len(ORIGINALS))
        run = Run(settings, original)
        run.advance_to(13)
        run.checkpoint()
        run.advance_to(16)
        run.close()
        ORIGINALS[repr(settings)] = original
    shutil.copytree(ORIGINALS[repr(settings)], path, dirs_exist_ok=True)
    return path


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A finished run, which no test changes."""
    folder = tmp_path_factory.mktemp("finished") / "run"
    train(config(), folder)
    return folder


def home(tmp_path):
    """A folder that is not the run's, and what is in it."""
    folder = tmp_path / "home"
    for name in (".ssh/id", ".config/app", ".bashrc", ".step-1/notes"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(f"my {name}\n")
    return folder


def everything(folder):
    return {path.relative_to(folder): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


# -- nothing outside, and nothing of somebody else's inside


def test_checkpoints_that_are_a_link_are_refused_and_nothing_is_removed(tmp_path):
    folder, run = home(tmp_path), stopped(tmp_path / "run")
    for path in (run / "checkpoints").iterdir():
        shutil.move(path, folder / path.name)
    (run / "checkpoints").rmdir()
    (run / "checkpoints").symlink_to(folder)
    before = everything(folder)
    with pytest.raises(
        CheckpointError, match=r"checkpoints to be a file or folder of the run itself, but got a symbolic link"
    ):
        resume(run)
    assert everything(folder) == before


def test_foreign_folders_among_the_checkpoints_stay(tmp_path):
    run = stopped(tmp_path / "run")
    inside = run / "checkpoints"
    for name in (".git", ".step-notes", ".removed", ".step-00000001.7", "step-00000001", ".removed-3"):
        (inside / name).mkdir()
        (inside / name / "mine").write_text("mine")
    (inside / ".step-00000002.9").mkdir()
    (inside / ".step-00000002.9" / "model.safetensors").write_text("half")
    (inside / ".removed-2").symlink_to(home(tmp_path))
    before = everything(tmp_path / "home")
    resume(run, steps=40)
    kept = {path.name for path in inside.iterdir()}
    assert {".git", ".step-notes", ".removed", ".step-00000001.7", "step-00000001", ".removed-3"} <= kept
    assert all((inside / name / "mine").read_text() == "mine" for name in (".git", ".step-00000001.7", "step-00000001"))
    assert ".step-00000002.9" not in kept  # a killed writer's
    assert everything(tmp_path / "home") == before


@pytest.mark.parametrize("name", [".lock", "metrics.jsonl"])
@pytest.mark.parametrize("link", [os.symlink, os.link])
def test_what_is_appended_to_is_no_link(name, link, tmp_path):
    folder, run = home(tmp_path), stopped(tmp_path / "run")
    (run / name).unlink()
    link(folder / ".bashrc", run / name)
    before = everything(folder)
    with pytest.raises(CheckpointError, match=r"(\.lock|metrics\.jsonl) to be a file"):
        resume(run)
    assert everything(folder) == before


@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "result.json", "data.json"])
def test_what_is_written_whole_replaces_a_link(name, tmp_path):
    folder, run = home(tmp_path), tmp_path / "run"
    run.mkdir()
    if name == "config.json":
        stopped(run)
        shutil.copy(run / name, folder / name)
        (run / name).unlink()
        (run / name).symlink_to(folder / name)
        before = everything(folder)
        resume(run, steps=40)
    else:
        stopped(run)
        (run / name).symlink_to(folder / ".bashrc")
        before = everything(folder)
        with pytest.raises(DataError) if name in ("data.json",) else warnings.catch_warnings():
            resume(run)
    assert everything(folder) == before


def test_a_link_with_the_name_of_a_file_that_is_being_written_leads_nowhere(tmp_path):
    folder, run = home(tmp_path), stopped(tmp_path / "run")
    (run / f".model.safetensors.{os.getpid()}").symlink_to(folder / ".bashrc")
    (run / f".result.json.{os.getpid()}").symlink_to(folder / ".bashrc")
    before = everything(folder)
    resume(run)
    assert everything(folder) == before
    assert not list(run.glob(".model*"))


def test_a_pipe_is_not_waited_for(tmp_path):
    run = stopped(tmp_path / "run")
    (run / "config.json").unlink()
    os.mkfifo(run / "config.json")
    with pytest.raises(ConfigError, match=r"config.json to be a regular file"):
        load_model(run)
    os.unlink(run / "metrics.jsonl")
    os.mkfifo(run / "metrics.jsonl")
    with pytest.raises(DataError, match="regular file"):
        read_metrics(run / "metrics.jsonl")


def test_the_log_is_cut_only_when_the_run_goes_on(tmp_path):
    run = stopped(tmp_path)
    with open(run / "metrics.jsonl", "a") as file:
        file.write('{"kind": "tra')
    before = everything(run)
    plain = entries(run / "config.json")
    plain["optimizer"]["lr"] = 0.5
    (run / "config.json").write_text(json.dumps(plain))
    with pytest.raises(ConfigError, match=r"optimizer.lr was"):
        resume(run)
    assert (run / "metrics.jsonl").read_bytes() == before[Path("metrics.jsonl")]


def test_a_new_run_does_not_mix_with_what_is_left_of_another(tmp_path):
    stopped(tmp_path)
    (tmp_path / "config.json").unlink()
    with pytest.raises(ArgumentError, match=r"already holds metrics.jsonl, checkpoints of another run"):
        train(config(), tmp_path)


# -- renamed, removed, locked


def test_a_run_that_is_renamed_goes_on_where_it_is(tmp_path):
    run = Run(config(), tmp_path / "before")
    run.advance_to(5)
    (tmp_path / "before").rename(tmp_path / "after")
    run.advance_to(30)
    run.finish()
    assert not (tmp_path / "before").exists()
    assert run.directory.path == tmp_path / "after"
    assert read_result(tmp_path / "after")["steps"] == 30
    assert numbers(read_metrics(tmp_path / "after" / "metrics.jsonl")) == numbers(train(config()).records)
    train(config(), tmp_path / "whole")
    assert content(tmp_path / "whole") == content(tmp_path / "after")


def test_a_run_that_is_removed_is_said_and_not_made_again(tmp_path):
    run = Run(config(), tmp_path / "run")
    run.advance_to(5)
    shutil.rmtree(tmp_path / "run")
    with pytest.raises(CheckpointError, match=r"Expected to write the checkpoint of step 5 .* Make room there"):
        run.checkpoint()
    assert not (tmp_path / "run").exists()


def test_a_second_writer_is_refused_after_the_lock_file_was_removed(tmp_path):
    run = Run(config(), tmp_path)
    (tmp_path / ".lock").unlink()
    with pytest.raises(LockedError, match="is being written by"):
        Run.resume(tmp_path)
    run.close()
    Run.resume(tmp_path).close()


def test_a_file_system_without_locks_is_said(tmp_path, monkeypatch):
    import errno

    def flock(descriptor, operation):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", flock)
    with pytest.warns(OrthornnWarning, match="has no locks"):
        Run(config(), tmp_path).close()


# -- the log


def test_a_line_after_the_records_of_the_checkpoint_does_not_matter(tmp_path):
    run = stopped(tmp_path)
    with open(run / "metrics.jsonl", "ab") as file:
        file.write(b"\xff\xfe garbage\n")
    with pytest.raises(DataError, match="to be JSON, but got"):
        read_metrics(run / "metrics.jsonl")
    result = resume(run)
    assert numbers(result.records) == numbers(train(config()).records)
    assert numbers(read_metrics(run / "metrics.jsonl")) == numbers(result.records)


def test_a_line_among_the_records_of_the_checkpoint_does(tmp_path):
    run = stopped(tmp_path)
    lines = (run / "metrics.jsonl").read_text().splitlines(keepends=True)
    (run / "metrics.jsonl").write_text("".join([lines[0], "garbage\n", *lines[1:]]))
    with pytest.raises(DataError, match=r"line 2, to be JSON"):
        resume(run)


@pytest.mark.parametrize(
    "line",
    [
        "[]",
        "{}",
        '{"kind": "train", "step": 1}',
        '{"kind": "train", "step": -1, "loss": 0}',
        '{"kind": "validation", "step": 1, "loss": 0, "recall": "x"}',
        '{"kind": "spectrum", "step": 1, "mean": 1}',
        '{"kind": "resume", "step": 0, "keep": 7}',
        '{"kind": "train", "kind": "test", "step": 1, "loss": 0}',
        '{"kind": "train", "step": 1, "loss": 1' + "0" * 400 + "}",
        "[" * 100_000,
    ],
)
def test_lines_that_are_no_records(line, tmp_path):
    (tmp_path / "metrics.jsonl").write_text(line + "\n")
    with pytest.raises(DataError, match=r"metrics.jsonl, line 1") as caught:
        read_metrics(tmp_path / "metrics.jsonl")
    assert len(str(caught.value)) < 600


# -- weights


def flip(path, place=-1):
    data = bytearray(path.read_bytes())
    data[place] ^= 1
    path.write_bytes(bytes(data))


def test_a_flipped_bit_of_the_weights_is_noticed(tmp_path):
    train(config(), tmp_path)
    orthornn.load(tmp_path)
    flip(tmp_path / "model.safetensors")
    with pytest.raises(CheckpointError, match=r"model.safetensors is truncated or modified: its sha256"):
        orthornn.load(tmp_path, "last")
    orthornn.load(tmp_path, "best")


@pytest.mark.parametrize("which", ["last", "chosen"])
def test_weights_whose_sum_is_gone_are_loaded_with_a_warning(which, finished, tmp_path):
    shutil.copytree(finished, tmp_path / "run")
    shutil.rmtree(tmp_path / "run" / "checkpoints")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        expected = load_model(tmp_path / "run", "last")[1].state_dict()
    (tmp_path / "run" / "result.json").unlink()
    with pytest.warns(
        OrthornnWarning, match=r"run has no result.json.*whether model.safetensors was changed cannot be"
    ):
        found = load_model(tmp_path / "run", which)[1].state_dict()
    torch.testing.assert_close(found, expected, rtol=0, atol=0)


@pytest.mark.parametrize("dtype", [torch.float16, torch.float64])
def test_weights_of_another_precision_are_refused(dtype, finished, tmp_path):
    from safetensors.torch import load_file, save_file

    shutil.copytree(finished, tmp_path / "run")
    file = tmp_path / "run" / "model.safetensors"
    tensors = load_file(file)
    save_file({**tensors, "head.bias": tensors["head.bias"].to(dtype)}, file)
    with pytest.raises(CheckpointError, match=r"head.bias: float\d\d .*, not float32"):
        orthornn.load(tmp_path / "run", "last")


def test_weights_that_are_not_finite_say_nothing(tmp_path):
    from safetensors.torch import load_file, save_file

    train(config(), tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    tensors["head.bias"][0] = float("nan")
    save_file(tensors, tmp_path / "model.safetensors")
    plain = entries(tmp_path / "result.json")
    plain["weights_sha256"] = hashlib.sha256((tmp_path / "model.safetensors").read_bytes()).hexdigest()
    (tmp_path / "result.json").write_text(json.dumps(plain))
    with pytest.raises(CheckpointError, match=r"not finite, in head.bias"):
        orthornn.load(tmp_path, "last")


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", MODELS)
def test_every_model_is_read_back(name, tmp_path):
    """The header that is expected is that of the model, for a width and for a budget."""
    for number, size in enumerate(({"hidden_size": 7}, {"hidden_size": None})):
        settings = config(name, steps=1, **size)
        if size["hidden_size"] is None:
            import dataclasses

            settings = dataclasses.replace(settings, model=dataclasses.replace(settings.model, parameters=400))
        path = tmp_path / str(number)
        train(settings, path)
        load_model(path)
        load_model(path, "1")


def header_only(path, shapes):
    """A safetensors file whose tensors are a hole: large, and no byte of it on the disk."""
    at, entries = 0, {}
    for name, shape in shapes.items():
        size = 4
        for length in shape:
            size *= length
        entries[name] = {"dtype": "F32", "shape": list(shape), "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(entries).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        file.truncate(8 + len(text) + at)


SIZES = [
    ("ornn-rotations", {"hidden_size": 10**9}),
    ("goru", {"hidden_size": 2**31}),
    ("scornn", {"hidden_size": 10**6}),
    ("eurnn", {"hidden_size": 8, "layers": 2**30}),
    ("eurnn", {"hidden_size": 2**20, "layers": 2**20}),
    ("lstm", {"parameters": 10**15}),
    ("spectral", {"parameters": 10**11}),
]


@pytest.mark.sampled(4)
@pytest.mark.parametrize(("model", "sizes"), SIZES)
@pytest.mark.parametrize("step", ["last", "best"])
def test_a_description_of_a_huge_network_asks_for_no_memory(model, sizes, step, tmp_path, monkeypatch):
    train(config(model, hidden_size=8), tmp_path)
    plain = entries(tmp_path / "config.json")
    plain["model"] |= {"hidden_size": None, **sizes}
    (tmp_path / "config.json").write_text(json.dumps(plain))
    monkeypatch.setattr("orthornn.saved.network.make_model", lambda *given, **more: pytest.fail("built"))
    with pytest.raises((CheckpointError, ConfigError), match=r"do not fit|to be at most"):
        load_model(tmp_path, step)


def test_a_file_with_a_hole_is_not_read(tmp_path, monkeypatch):
    train(config("lstm", hidden_size=8), tmp_path)
    header_only(tmp_path / "model.safetensors", {"head.weight": (4, 8), "core.weight_hh_l0": (1 << 20, 1 << 18)})
    with pytest.raises(CheckpointError, match="do not fit"):
        load_model(tmp_path)
    step = max((tmp_path / "checkpoints").glob("step-*"))
    header_only(step / "model.safetensors", {"head.weight": (4, 8), "core.weight_hh_l0": (1 << 20, 1 << 18)})
    with pytest.raises(CheckpointError, match="do not fit"):
        load_model(tmp_path, int(step.name[5:]))


def test_training_asks_first_whether_there_is_the_memory():
    with pytest.raises(
        ArgumentError, match=r"Expected a network that fits .*hidden_size=1000000, which needs at least"
    ):
        train(config("lstm", hidden_size=10**6))


def test_a_missing_package_is_no_damage(tmp_path, monkeypatch):
    train(config(), tmp_path)
    orthornn.load(tmp_path)  # imports the schemas
    for package in ("safetensors", "msgspec"):
        with monkeypatch.context() as patch:
            patch.setitem(sys.modules, package, None)
            patch.setitem(sys.modules, f"{package}.torch", None)
            patch.delitem(sys.modules, "orthornn.saved.schemas")
            patch.delattr("orthornn.saved.schemas")
            with pytest.raises(MissingPackageError, match=f"the package {package} for .*Install the extra cli"):
                orthornn.load(tmp_path)


# -- descriptions, results, environments


def complaint(path):
    """What the reader of a configuration says of it; nothing if it is one."""
    try:
        read_config(path)
    except ConfigError as error:
        return str(error)
    return ""


def spoil(path, name, change):
    plain = entries(path / name)
    change(plain)
    (path / name).write_text(json.dumps(plain))


WRONG = {
    "description.json": ["input_size", "output_size", "input", "output", "says"],
    "result.json": ["steps", "best", "trivial_loss", "test"],
}


@pytest.mark.parametrize(("name", "key"), [(name, key) for name, keys in WRONG.items() for key in keys])
@pytest.mark.parametrize("value", [None, "missing", [], {"a": 1}, -1, "x", 10**30, float("nan")], ids=repr)
def test_entries_of_a_wrong_type(name, key, value, finished, tmp_path):
    shutil.copytree(finished, tmp_path / "run")
    spoil(tmp_path / "run", name, lambda plain: plain.pop(key) if value == "missing" else plain.update({key: value}))
    if (key, value) in (("best", {"a": 1}), ("test", {"a": 1})) or (
        key == "trivial_loss" and type(value) in (int, float)
    ):
        return  # numbers by name, and numbers: what they are is for the reader to judge
    with pytest.raises((DataError, CheckpointError), match=name):
        orthornn.load(tmp_path / "run", "best" if name == "result.json" else "last")


@pytest.mark.parametrize(
    "entry",
    [
        {"scale": [1, 2, 3]},
        {"scale": float("inf")},
        {"offset": 10**400},
        {"order": [0, 0]},
        {"order": [0, 2]},
        {"columns": ["a"]},
        {"labels": [1]},
        {"target_scale": 0},
        {"vocabulary": ["a"] * 9},
    ],
    ids=str,
)
def test_descriptions_that_contradict_themselves(entry, finished, tmp_path):
    shutil.copytree(finished, tmp_path / "run")
    spoil(tmp_path / "run", "description.json", lambda plain: plain.update(entry))
    with pytest.raises(CheckpointError, match=r"description.json to be what a run holds there, but got"):
        orthornn.load(tmp_path / "run")


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    "value", [None, True, 3, 1.5, "x", [], {}, {"name": []}, {"name": {}}, 10**400, [[[]]]], ids=lambda v: str(v)[:20]
)
def test_configurations_of_wrong_types(value, finished, tmp_path):
    plain = json.loads((finished / "config.json").read_text())

    def paths(entry, above=()):
        for key, inner in entry.items():
            yield (*above, key)
            if isinstance(inner, dict):
                yield from paths(inner, (*above, key))

    for path in paths(plain):
        changed = json.loads(json.dumps(plain))
        place = changed
        for key in path[:-1]:
            place = place[key]
        place[path[-1]] = value
        (tmp_path / "config.json").write_text(json.dumps(changed))
        assert len(complaint(tmp_path / "config.json")) < 2000


@pytest.mark.parametrize(
    "text", ["[" * 200_000, "\x00", '{"a": 1, "a": 2}', '"' + "x" * 10**6, "1" * 10**5], ids=lambda t: t[:8]
)
def test_text_that_is_no_configuration(text, tmp_path):
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(ConfigError, match=r"config.json") as caught:
        read_config(tmp_path / "config.json")
    assert len(str(caught.value)) < 1000
    (tmp_path / "config.json").write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="to be JSON, but got"):
        read_config(tmp_path / "config.json")


def test_a_seed_of_a_split_beyond_the_generator(tmp_path):
    from orthornn.learn.tasks.streams import stream

    stream("split", 2**64 - 1)
    with pytest.raises(ArgumentError, match="seed to be an integer between 0 and 18446744073709551615"):
        stream("split", 2**64)


def test_a_state_that_fits_its_sums_but_not_the_run(tmp_path):
    """A checkpoint that was made by hand: every sum is right."""
    import hashlib

    run = stopped(tmp_path)
    place = max((run / "checkpoints").glob("step-*"))
    for change in (
        lambda state: state["state"]["trainer"].pop("optimizer"),
        lambda state: state["state"]["run"].update(records="x"),
        lambda state: state["state"]["trainer"]["random"].update({"@tensor": "nothing"}),
        lambda state: state["state"]["trainer"]["optimizer"].update(state={"@items": [[0, 1]]}),
        lambda state: state.pop("format"),
        lambda state: state["state"].update(config=[]),
    ):
        before = (place / "state.json").read_bytes()
        state = json.loads(before)
        change(state)
        data = json.dumps(state).encode()
        (place / "state.json").write_bytes(data)
        sums = (place / "SHA256SUMS").read_text()
        old = hashlib.sha256(before).hexdigest()
        (place / "SHA256SUMS").write_text(sums.replace(old, hashlib.sha256(data).hexdigest()))
        for other in (run / "checkpoints").glob("step-*"):
            if other != place:
                shutil.rmtree(other)
        with pytest.raises(CheckpointError):
            Run.resume(run)
        (place / "state.json").write_bytes(before)
        (place / "SHA256SUMS").write_text(sums)
    Run.resume(run).close()


def test_a_moment_of_another_shape_is_refused(tmp_path):
    import hashlib

    from safetensors.torch import load_file, save_file

    run = stopped(tmp_path)
    place = max((run / "checkpoints").glob("step-*"))
    for other in (run / "checkpoints").glob("step-*"):
        if other != place:
            shutil.rmtree(other)
    file = place / "training.safetensors"
    old = hashlib.sha256(file.read_bytes()).hexdigest()
    tensors = load_file(file)
    name = next(name for name in tensors if name.endswith("exp_avg"))
    tensors[name] = torch.zeros(1)
    save_file(tensors, file)
    sums = place / "SHA256SUMS"
    sums.write_text(sums.read_text().replace(old, hashlib.sha256(file.read_bytes()).hexdigest()))
    with pytest.raises(CheckpointError, match=r"the state in .* does not fit the run: exp_avg has shape \(1,\)"):
        Run.resume(run)


# -- data


def table(path, flip=False, factor=1.0, third=False):
    rows = ["s,u,v,y"]
    generator = torch.Generator().manual_seed(0)
    for s in range(12):
        label = "ab"[(s + flip) % 2] if not (third and s == 0) else "c"
        for _ in range(4):
            u, v = torch.randn(2, generator=generator).tolist()
            rows.append(f"{s},{factor * u:.4f},{factor * v:.4f},{label}")
    path.write_text("\n".join(rows) + "\n")


@pytest.mark.sampled(4)
@pytest.mark.parametrize("change", [{"flip": True}, {"factor": 1000.0}, {"third": True}], ids=str)
@pytest.mark.parametrize("lost", [False, True])
def test_changed_data_are_noticed(change, lost, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    table(tmp_path / "d.csv")
    task = Classify(data="d.csv", target="y", sequence="s")
    stopped(tmp_path / "run", task=task, batch_size=4)
    sums = (tmp_path / "run" / "data.json").read_bytes()
    if lost:
        (tmp_path / "run" / "data.json").unlink()
    before = everything(tmp_path / "run")
    table(tmp_path / "d.csv", **change)
    with pytest.raises(DataError, match=r"run/data\.json, but got.*Restore the file" if lost else "d.csv was changed"):
        resume(tmp_path / "run")
    assert {name: data for name, data in everything(tmp_path / "run").items() if name.name != ".lock"} == {
        name: data for name, data in before.items() if name.name != ".lock"
    }
    table(tmp_path / "d.csv")
    (tmp_path / "run" / "data.json").write_bytes(sums)
    resume(tmp_path / "run")


# -- the machine


@pytest.mark.parametrize(
    ("entry", "value", "words"),
    [
        ("torch", "1.0", "torch is .* began with 1.0"),
        ("instruction_set", "mmx", "instruction set of orthornn's kernels is .* began with mmx"),
        ("torch_instruction_set", "mmx", "instruction set of torch's kernels"),
        ("threads", 63, "number of threads is .* began with 63"),
        ("gpu", "NVIDIA H200", "the GPU is none .* began with NVIDIA H200"),
    ],
)
def test_another_machine_is_said_by_name(entry, value, words, tmp_path):
    run = stopped(tmp_path)
    spoil(run, "environment.json", lambda plain: plain.update({entry: value}))
    with pytest.warns(OrthornnWarning, match=words):
        Run.resume(run).close()


def test_the_same_machine_is_no_warning(tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        resume(stopped(tmp_path))


# -- entries that every run has


def without(path, *names):
    """Write a JSON file again without these entries; those within another are named with dots."""
    plain = entries(path)
    for name in names:
        *above, last = name.split(".")
        place = plain
        for part in above:
            place = place[part]
        del place[last]
    path.write_text(json.dumps(plain))


@pytest.mark.parametrize(
    ("name", "entry"),
    [
        ("result.json", "weights_sha256"),
        ("result.json", "best_test"),
        ("result.json", "orthogonality_error"),
        ("result.json", "threshold"),
        ("environment.json", "torch_instruction_set"),
        ("environment.json", "threads"),
    ],
)
def test_an_entry_that_is_missing_is_an_error(name, entry, finished, tmp_path):
    shutil.copytree(finished, tmp_path / "run")
    without(tmp_path / "run" / name, entry)
    with pytest.raises(DataError, match=rf"{name} to be what a run holds there, but got: .*{entry}"):
        read_run(tmp_path / "run")


def test_a_byte_order_mark_is_no_change(finished, tmp_path):
    """Editors write one: a configuration that was looked at and saved is still read, with its sum."""
    shutil.copytree(finished, tmp_path / "run")
    expected = read_run(tmp_path / "run")
    for name in ("config.json", "description.json", "result.json", "environment.json"):
        path = tmp_path / "run" / name
        path.write_text(path.read_text("utf-8"), "utf-8-sig")
        assert path.read_bytes().startswith(b"\xef\xbb\xbf")
    found = read_run(tmp_path / "run")
    assert (found.config, found.result, found.description) == (expected.config, expected.result, expected.description)
    path.write_text("\ufeff" + path.read_text("utf-8"), "utf-8")
    with pytest.raises(DataError, match=r"environment\.json to be JSON"):
        read_run(tmp_path / "run")


def test_a_checkpoint_without_its_processor_time_is_damaged(tmp_path):
    run = stopped(tmp_path)
    for place in (run / "checkpoints").iterdir():
        without(place / "state.json", "state.run.cpu_seconds")
        files = [place / name for name in ("model.safetensors", "training.safetensors", "state.json")]
        sums = "".join(f"{hashlib.sha256(file.read_bytes()).hexdigest()}  {file.name}\n" for file in files)
        (place / "SHA256SUMS").write_text(sums)
    with pytest.raises(CheckpointError, match=r"has no sound checkpoint.*\n.*cpu_seconds"):
        resume(run)


def test_a_run_on_data_without_the_sums_of_its_data(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    table(tmp_path / "d.csv")
    settings = config(task=Classify(data="d.csv", target="y", sequence="s"), batch_size=4)
    stopped(tmp_path / "run", task=settings.task, batch_size=4)
    (tmp_path / "run" / "data.json").unlink()
    before = everything(tmp_path / "run")
    with pytest.raises(DataError, match=r"Expected to read run/data.json, but got: No such file.*Restore the file"):
        resume("run")
    assert everything(tmp_path / "run") == before
    with pytest.raises(DataError, match=r"Expected to read run/data.json, but got"):
        evaluate.main(["run"])


def without_permission(call):
    """The exit status of a call in a process to which the permissions of files apply, be it root's or not."""
    child = os.fork()
    if child == 0:
        status = 99
        try:
            if os.geteuid() == 0:  # the capabilities 1 to 3 overlook them
                libc = ctypes.CDLL(None)
                header, data = (ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)()
                assert libc.capget(header, data) == 0
                for place in range(3):
                    data[place] &= ~0b1110
                assert libc.capset(header, data) == 0
            call()
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.mark.skipif(sys.platform != "linux", reason="capabilities are Linux's")
def test_a_folder_that_cannot_be_written_is_named_with_what_to_do(tmp_path):
    run, shut = stopped(tmp_path / "run"), tmp_path / "shut"
    shut.mkdir()
    before = everything(run)
    for path in (*run.rglob("*"), run, shut):
        path.chmod(0o555 if path.is_dir() else 0o444)
    frame = pytest.importorskip("pandas").DataFrame(
        {"s": [k // 4 for k in range(80)], "x": range(80), "y": [0, 1] * 40}
    )
    words = rf"Expected to write {run}, but got: Permission denied\. .* or copy the run and resume the copy\."

    def call():
        with pytest.raises(CheckpointError, match=words):
            resume(run)
        orthornn.load(run)  # reading asks for no permission to write
        task = Classify(data=source(frame), target="y", sequence="s", every_step=True)
        for own in (COPYING, task):
            with pytest.raises(
                (ArgumentError, CheckpointError), match=r"shut/run, but got: Permission denied\. .*another"
            ):
                train(config(task=own), shut / "run")

    try:
        assert without_permission(call) == 0
    finally:
        for path in (run, shut, *run.rglob("*")):
            path.chmod(0o755 if path.is_dir() else 0o644)
    assert everything(run) == before
    assert not any(shut.iterdir())


def test_paths_may_be_words(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    train(config(), "run")
    assert load_model("run")[0] == read_config("run/config.json") == resume("run").config
    assert len(read_checkpoint("run/checkpoints/step-00000030")) == 2
    assert read_config("run/config.json").task == COPYING


# -- what a run reports of damage and change


@pytest.mark.parametrize("name", ["config.json", "description.json", "environment.json", "result.json"])
def test_a_changed_digit_is_noticed_and_a_change_on_purpose_is_not(name, tmp_path):
    train(config(), tmp_path)
    path = tmp_path / name
    plain, text = entries(path), path.read_text()
    assert json.loads(text) == {**plain, "sha256": json.loads(text)["sha256"]}
    number = next(key for key, value in plain.items() if type(value) is int)
    reformatted = json.dumps({**json.loads(text)}, indent=3, sort_keys=True)
    path.write_text(reformatted)
    read_run(tmp_path)
    plain[number] += 1
    path.write_text(json.dumps({**json.loads(text), number: plain[number]}))
    with pytest.raises((DataError, ConfigError, CheckpointError), match=f"{name} was changed: .*remove that entry"):
        read_run(tmp_path)
    path.write_text(json.dumps(plain))  # without the sum
    read_run(tmp_path)
    for flipped in ("rha256", "sha25v", "3ha256"):  # one bit of the name of the sum: no file without one
        path.write_text(text.replace('"sha256"', f'"{flipped}"'))
        with pytest.raises(
            (DataError, ConfigError, CheckpointError), match=f"{name} was changed: the name of its entry"
        ):
            read_run(tmp_path)


@pytest.mark.parametrize("entry", ["trivial_loss", "seconds", "update_seconds"])
def test_an_integer_that_no_float_holds(entry, tmp_path):
    train(config(), tmp_path / "run")
    path = tmp_path / "run" / "result.json"
    path.write_text(json.dumps({**entries(path), entry: 10**400}))
    with pytest.raises(
        (DataError, CheckpointError), match=f"result.json to be what a run holds there, but got: .*{entry}"
    ):
        read_run(tmp_path / "run")


def test_a_changed_digit_of_a_record_is_noticed(tmp_path):
    run = stopped(tmp_path)
    log = run / "metrics.jsonl"
    text = log.read_text()
    records = read_metrics(log)
    assert all("crc32" not in record for record in records)
    place = text.index('"loss": 1.') + len('"loss": 1.')
    log.write_text(text[:place] + str((int(text[place]) + 1) % 10) + text[place + 1 :])
    with pytest.raises(DataError, match=r"metrics.jsonl, line 1, was changed: .* the sum in its entry 'crc32'"):
        read_metrics(log)
    with pytest.raises(DataError, match="line 1, was changed"):
        resume(run)
    log.write_text(text.replace('"crc32"', '"cbc32"', 1))
    with pytest.raises(DataError, match="line 1, was changed: the name of its entry 'crc32'"):
        read_metrics(log)
    log.write_text(text[:-1] + "\x0b")  # the last line break, with one bit flipped: no crash leaves this
    with pytest.raises(DataError, match=f"line {len(records)}, was changed: it ends after its record"):
        read_metrics(log)
    log.write_text("".join(json.dumps(record) + "\n" for record in records))
    with pytest.raises(
        DataError, match=r"line 1, to have the checksum of its entries, 'crc32', but it is missing\. Restore"
    ):
        read_metrics(log)


def test_loading_an_older_checkpoint_than_the_newest_is_a_warning(tmp_path):
    run = stopped(tmp_path, checkpoint_every=5)
    newest = max((run / "checkpoints").glob("step-*"))
    flip(newest / "model.safetensors")
    with pytest.warns(OrthornnWarning, match=r"step-00000015.*modified.* The weights after update 13 are used"):
        load_model(run)
    with pytest.warns(OrthornnWarning, match="The weights after update 13 are used"):
        load_model(run, "chosen")


def test_data_that_have_changed_are_not_evaluated_as_those_of_the_run(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    table(tmp_path / "d.csv")
    train(config(task=Classify(data="d.csv", target="y", sequence="s"), batch_size=4), "run")
    evaluate.main(["run"])
    assert "accuracy" in capsys.readouterr().out
    table(tmp_path / "d.csv", flip=True)
    with pytest.raises(DataError, match=r"Expected the data with which run began, but got others: d.csv was changed"):
        evaluate.main(["run"])
    assert not capsys.readouterr().out
    evaluate.main(["run", "d.csv"])  # named by the user
    assert "accuracy" in capsys.readouterr().out
    drawn, notes = draw([read_run(tmp_path / "run")])
    assert sum("d.csv was changed" in note for note in notes) == 2
    assert not any(word in title for title in drawn for word in ("confusion", "gradient norms"))


def test_of_two_processes_that_resume_a_run_one_is_refused(tmp_path, one_thread):
    """Both begin at the same moment, several times; the numbers are those of one."""
    whole = train(config(steps=40), tmp_path / "whole")
    for turn in range(3):
        run = stopped(tmp_path / f"run{turn}")
        gate, statuses = tmp_path / f"gate{turn}", []
        children = []
        for _ in range(2):
            child = os.fork()
            if child == 0:
                status = 1
                try:
                    while not gate.exists():
                        pass
                    resume(run, steps=40)
                    status = 0
                except LockedError:
                    status = 2
                finally:
                    os._exit(status)
            children.append(child)
        gate.touch()
        statuses = sorted(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children)
        assert statuses in ([0, 2], [0, 0])  # the second may come when the first has ended
        assert content(run)["model.safetensors"] == content(tmp_path / "whole")["model.safetensors"]
        assert numbers(read_metrics(run / "metrics.jsonl")) == numbers(whole.records)


def test_a_sum_of_entries_that_are_nested_too_deeply_is_one_error(tmp_path):
    """At every depth up to where reading itself ends."""
    for depth in (10, *range(900, 1010), 5000):
        text = '{"kind": "train", "step": 1, "loss": 0, "a": ' + "[" * depth + "]" * depth
        (tmp_path / "config.json").write_text(text + ', "sha256": "0"}')
        with pytest.raises(ConfigError, match=r"config.json (was changed|to be)"):
            read_config(tmp_path / "config.json")
        (tmp_path / "metrics.jsonl").write_text(text + ', "crc32": "0"}\n')
        with pytest.raises(DataError, match=r"line 1, (was changed|to be)"):
            read_metrics(tmp_path / "metrics.jsonl")


def test_a_task_that_does_not_fit_the_network_is_one_error(tmp_path):
    """A configuration without the task's options, which then has those by default."""
    train(config(), tmp_path / "run")
    plain = entries(tmp_path / "run" / "config.json")
    del plain["task"]["symbols"]
    (tmp_path / "run" / "config.json").write_text(json.dumps(plain))
    with pytest.raises(DataError, match="input_size was 5 and is 10"):
        evaluate.main([str(tmp_path / "run")])
    drawn, notes = draw([read_run(tmp_path / "run")])
    assert any("input_size was 5 and is 10" in note for note in notes)
    assert not any("gradient norms" in title for title in drawn)


def test_options_that_make_other_inputs_of_the_same_file_are_one_error(tmp_path):
    rows = [f"{k // 20},{'' if k % 9 == 1 else k % 5},{k % 7 / 3}" for k in range(120)]
    (tmp_path / "data.csv").write_text("\n".join(["sequence,x,y", *rows]) + "\n")
    task = Regress(data=str(tmp_path / "data.csv"), target="y", missing="indicator")
    train(RunConfig(task=task, model=model_named("gru", hidden_size=3), steps=1, batch_size=2), tmp_path / "run")
    plain = entries(tmp_path / "run" / "config.json")
    plain["task"]["missing"] = "hold"
    (tmp_path / "run" / "config.json").write_text(json.dumps(plain))
    drawn, notes = draw([read_run(tmp_path / "run")])
    assert len([note for note in notes if "input_size was 2 and is 1" in note]) == 2  # predictions, gradients
    assert not any("gradient norms" in title for title in drawn)


# -- what a run reports of a file that is missing


def test_a_run_without_its_environment_says_so_when_it_is_resumed(tmp_path):
    run = stopped(tmp_path)
    (run / "environment.json").unlink()
    with pytest.warns(OrthornnWarning, match=r"has no environment\.json: whether torch, .* Restore the file") as said:
        assert resume(run).finished
    assert len(said) == 1


def test_a_run_at_its_end_without_a_result_says_so_when_it_is_read(tmp_path):
    train(config(), tmp_path)
    before = entries(tmp_path / "result.json")
    (tmp_path / "result.json").unlink()
    with pytest.warns(OrthornnWarning, match=r"has no result\.json: it counts as unfinished\. .* --resume"):
        assert read_run(tmp_path).result is None
    resume(tmp_path)
    after = entries(tmp_path / "result.json")
    assert all(after[name] == before[name] for name in ("steps", "best_test", "weights_sha256"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert read_run(tmp_path).result is not None
        assert read_run(stopped(tmp_path / "other")).result is None
