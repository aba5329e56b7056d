from __future__ import annotations

import os
import stat
import threading

import pytest

from orthornn._files import write_atomically, write_bytes, write_together
from orthornn._folder import Folder
from orthornn.errors import ArgumentError, DataError
from orthornn.learn.runs.log import MetricsLog, read_metrics

RECORD = {"kind": "train", "seconds": 0.5, "cpu_seconds": 0.5, "loss": 0.1}


def test_a_failed_write_leaves_what_was_there(tmp_path):
    path = tmp_path / "file"
    write_atomically(path, lambda file: file.write(b"old"))

    def fail(file):
        file.write(b"half")
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        write_atomically(path, fail)
    assert path.read_bytes() == b"old"
    assert [file.name for file in tmp_path.iterdir()] == ["file"]
    write_atomically(path, lambda file: file.write(b"new"))
    assert path.read_bytes() == b"new"


def test_the_log_appends_and_reads_back_without_a_torn_line(tmp_path):
    path, folder = tmp_path / "metrics.jsonl", Folder.open(tmp_path)
    for step in (1, 2):
        log = MetricsLog(folder, path.name)
        log.append({**RECORD, "step": step})
        log.close()
    with open(path, "a") as file:
        file.write('{"kind": "train", "step": 3, "lo')
    assert read_metrics(path) == [{**RECORD, "step": step} for step in (1, 2)]


def test_a_spoilt_log_names_the_line(tmp_path):
    path = tmp_path / "metrics.jsonl"
    log = MetricsLog(Folder.open(tmp_path), path.name)
    log.append({**RECORD, "step": 1})
    log.close()
    record = path.read_text()
    path.write_text(f"{record}nonsense\n{record}")
    with pytest.raises(DataError, match="line 2"):
        read_metrics(path)
    with pytest.raises(DataError, match="Expected to read"):
        read_metrics(tmp_path / "none")


def test_two_threads_may_write_one_file(tmp_path):
    """Who reads finds the whole of one of the two; a temporary name by process alone let one rename the other's half."""
    path, contents = tmp_path / "one", [bytes([k]) * 300_000 for k in (1, 2)]
    write_bytes(path, contents[0])
    failed = []

    def write(content):
        try:
            for _ in range(15):
                write_bytes(path, content)
        except Exception as error:
            failed.append(error)

    threads = [threading.Thread(target=write, args=(content,)) for content in contents]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        assert path.read_bytes() in contents
    assert not failed
    assert [entry.name for entry in tmp_path.iterdir()] == ["one"]


@pytest.mark.skipif(os.name != "posix", reason="the system has other permissions")
def test_a_file_that_is_replaced_keeps_its_permissions(tmp_path):
    path = tmp_path / "one"
    write_bytes(path, b"1")
    path.chmod(0o600)
    write_bytes(path, b"2")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_files_of_one_kind_are_written_together_or_not_at_all(tmp_path, monkeypatch):
    """A full disk left the header of a new network next to the code of the old one."""
    old, new = {"a": b"old", "inner/b": b"old"}, {"a": b"new", "inner/b": b"new"}
    assert write_together(tmp_path / "out", old) == [tmp_path / "out" / "a", tmp_path / "out" / "inner" / "b"]

    def full(path, content):
        if path.parent.name == "inner":
            raise OSError(28, "No space left on device")
        write_bytes(path, content)

    monkeypatch.setattr("orthornn._files.write_bytes", full)
    with pytest.raises(OSError, match="No space"):
        write_together(tmp_path / "out", new)
    assert {path.name: path.read_bytes() for path in (tmp_path / "out").rglob("*") if path.is_file()} == {
        "a": b"old",
        "b": b"old",
    }
    monkeypatch.undo()
    (tmp_path / "out" / "a").chmod(0o600)
    write_together(tmp_path / "out", new)
    assert stat.S_IMODE((tmp_path / "out" / "a").stat().st_mode) == 0o600
    assert (tmp_path / "out" / "inner" / "b").read_bytes() == b"new"


def test_what_is_in_the_way_of_files_is_said_before_any_is_written(tmp_path):
    (tmp_path / "out" / "b").mkdir(parents=True)
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(ArgumentError, match="b to be a file, but got a folder"):
        write_together(tmp_path / "out", {"a": b"", "b": b""})
    with pytest.raises(ArgumentError, match="file to be a folder, but got a file"):
        write_together(tmp_path / "file", {"a": b""})
    (tmp_path / "out" / "link").symlink_to(tmp_path, target_is_directory=True)
    with pytest.raises(ArgumentError, match="link to be a folder, but got a symbolic link"):
        write_together(tmp_path / "out", {"a": b"", "link/c": b""})
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["b", "file", "link", "out"]
