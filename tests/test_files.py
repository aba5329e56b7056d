from __future__ import annotations

import pytest

from orthornn._files import write_atomically
from orthornn.errors import DataError
from orthornn.lab.training.log import MetricsLog, read_metrics

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
    path = tmp_path / "metrics.jsonl"
    for step in (1, 2):
        log = MetricsLog(path)
        log.append({**RECORD, "step": step})
        log.close()
    with open(path, "a") as file:
        file.write('{"kind": "train", "step": 3, "lo')
    assert read_metrics(path) == [{**RECORD, "step": step} for step in (1, 2)]


def test_a_spoilt_log_names_the_line(tmp_path):
    path = tmp_path / "metrics.jsonl"
    log = MetricsLog(path)
    log.append({**RECORD, "step": 1})
    log.close()
    record = path.read_text()
    path.write_text(f"{record}nonsense\n{record}")
    with pytest.raises(DataError, match="line 2"):
        read_metrics(path)
    with pytest.raises(DataError, match="Expected to read"):
        read_metrics(tmp_path / "none")
