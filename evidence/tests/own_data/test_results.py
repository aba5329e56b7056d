"""What is missing is trained once, and goes on where it was stopped."""

from __future__ import annotations

import json
import os
import signal
import threading
import time

import pytest

from orthornn_evidence.own_data import cells, results
from orthornn_evidence.own_data.sets import SETS, Places


@pytest.fixture
def short(monkeypatch):
    monkeypatch.setitem(cells.OPTIONS, "default", {"steps": 2, "parameters": 12000})
    monkeypatch.setitem(cells.OPTIONS, "gru", {"model": "gru", "pool": "last", "steps": 2, "parameters": 2000})


def test_a_set_that_is_made_is_the_same_each_time_and_is_run_once(tmp_path, capsys, short):
    first, second = (SETS["events"](Places(tmp_path / name)) for name in "ab")
    assert next(first.problem().test(5)).targets.tolist() == next(second.problem().test(5)).targets.tolist()
    words = ["--out", str(tmp_path / "out"), "--sets", "events", "--seeds", "1", "--methods", "default", "gru"]
    made = ["--made", str(tmp_path / "a")]
    assert results.main(["run", *made, *words]) == 0
    shown = capsys.readouterr().out.splitlines()
    assert [line for line in shown if line.endswith(".json")] == [
        str(tmp_path / "out" / f"events-{name}.json") for name in ("plain", "default-seed0", "gru-seed0")
    ]
    assert shown[-1].startswith("   0 cells, at most 0 minutes")
    assert results.main(["run", *made, *words]) == 0
    assert not capsys.readouterr().out
    stored = json.loads((tmp_path / "out" / "events-default-seed0.json").read_text())
    assert (stored["updates"], stored["limit"], stored["model"]) == (2, 2, "blocks")
    assert 10_000 < stored["parameters"] <= 12_000
    assert stored["cpu_seconds"] > 0
    assert not list((tmp_path / "a" / "runs").iterdir())
    assert results.main(["plan", *words]) == 0
    assert "0 cells are missing" in capsys.readouterr().out
    assert results.main(["plan", *words[:-3], "--methods", "lstm"]) == 0
    assert "lstm           seed 0     1 sets" in capsys.readouterr().out
    assert results.main(["page", "--out", str(tmp_path / "out"), "--page", str(tmp_path / "page.md")]) == 0
    assert "| events |" in (tmp_path / "page.md").read_text()
    assert results.main(["run", *made, "--out", str(tmp_path / "out"), "--sets", "digits", "--seeds", "1"]) == 2
    assert "Expected a folder of digits" in capsys.readouterr().err


def test_a_cell_that_was_stopped_goes_on(tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(cells.OPTIONS, "gru", {"model": "gru", "hidden_size": 3, "steps": 100000, "patience": 100000})
    monkeypatch.setattr(results, "plain", lambda places, name: {"set": name, "methods": []})
    words = ["run", "--made", str(tmp_path / "a"), "--out", str(tmp_path / "out"), "--sets", "events", "--seeds", "1"]
    log = tmp_path / "a" / "runs" / "events-gru-seed0" / "metrics.jsonl"

    def stop():
        while not (log.exists() and '"validation"' in log.read_text()):
            time.sleep(0.05)
        os.kill(os.getpid(), signal.SIGTERM)

    thread = threading.Thread(target=stop)
    thread.start()
    assert results.main([*words, "--methods", "gru"]) == 130
    thread.join()
    assert "the same command continues" in capsys.readouterr().err
    before = json.loads(log.read_text().splitlines()[0])
    monkeypatch.setitem(cells.OPTIONS, "default", cells.OPTIONS["gru"])
    folder, steps = log.parent, []
    monkeypatch.setattr(cells, "run_to_end", lambda run: steps.append(run.trainer.step) or run.close() or 1 / 0)
    with pytest.raises(ZeroDivisionError):
        results.main([*words, "--methods", "gru"])
    assert steps[0] >= before["step"] > 0
    assert folder.exists()


@pytest.mark.parametrize(
    "text",
    ["[1]", "{", "[" * 100_000, '{"a": ' + "1" * 5000 + "}", '{"set": "a", "set": "b"}', '{"method": "gru"}', "\xff"],
    ids=lambda text: text[:12],
)
def test_a_file_that_is_no_result_is_one_error(text, tmp_path, capsys):
    (tmp_path / "sensors-gru-seed0.json").write_text(text, encoding="latin-1")
    (tmp_path / "page.md").write_text("before")
    assert results.main(["page", "--out", str(tmp_path), "--page", str(tmp_path / "page.md")]) == 2
    said = capsys.readouterr().err
    assert said.startswith("orthornn: ")
    assert len(said) < 700
    assert "sensors-gru-seed0.json" in said
    assert (tmp_path / "page.md").read_text() == "before"
