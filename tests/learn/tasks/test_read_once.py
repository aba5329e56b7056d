"""A command reads and parses a table once, and what is made of it is made once."""

from __future__ import annotations

import wave
from collections import Counter

import numpy as np
import pytest

import orthornn
from orthornn import cli
from orthornn.learn.files import columns, sound_folder
from orthornn.learn.tasks.table_task import TableTask

SHORT = ["--steps", "4", "--hidden-size", "6", "--validate-every", "2"]
CLASSES = ["c.csv", "--target", "label", "--sequence", "id"]
FORECAST = ["f.csv", "--target", "demand", "--time", "t", "--ahead", "1"]


@pytest.fixture
def readings(tmp_path, monkeypatch):
    """Two files, and lists of what was parsed and of the schemas that were made."""
    monkeypatch.chdir(tmp_path)
    rows = [f"{s},{(7 * s + 3 * t) % 11},{'yes' if s % 2 else 'no'}" for s in range(20) for t in range(4)]
    (tmp_path / "c.csv").write_text("id,a,label\n" + "\n".join(rows) + "\n")
    (tmp_path / "f.csv").write_text("t,demand\n" + "".join(f"{t},{t % 12 + t % 5 / 7}\n" for t in range(200)))
    parsed, made = [], []

    def counting(function, found):
        return lambda *given, **named: found.append(given) or function(*given, **named)

    monkeypatch.setattr(columns, "_with_rows", counting(columns._with_rows, parsed))
    monkeypatch.setattr(TableTask, "_schema", counting(TableTask._schema, made))
    return parsed, made


def runs(readings, *words):
    for found in readings:
        found.clear()
    assert cli.main(list(words)) == 0
    return tuple(map(len, readings))


def test_commands_parse_a_table_once(readings):
    assert runs(readings, "inspect", *CLASSES) == (1, 1)
    assert runs(readings, "train", *CLASSES, *SHORT, "--out", "c") == (1, 1)
    assert runs(readings, "train", *FORECAST, *SHORT, "--out", "f") == (1, 1)
    assert runs(readings, "train", "--resume", "c", "--steps", "6") == (1, 1)
    assert runs(readings, "evaluate", "c") == (1, 1)
    assert runs(readings, "evaluate", "c", "c.csv") == (1, 0)
    assert runs(readings, "predict", "c", "c.csv") == (1, 0)
    assert runs(readings, "predict", "f", "f.csv", "--force") == (1, 0)


def test_several_runs_parse_a_table_once(readings):
    models = ["--models", "blocks,lstm", "--seeds", "2", "--out", "several"]
    assert runs(readings, "compare", *CLASSES, *SHORT, *models) == (1, 1)
    assert runs(readings, "report", "several") == (1, 1)


def test_a_dataframe_is_read_once_although_a_run_stores_it(readings, tmp_path):
    pandas = pytest.importorskip("pandas")
    frame = pandas.read_csv("c.csv")
    trained = orthornn.train(frame, "label", sequence="id", steps=4, hidden_size=6, out="frame")
    assert tuple(map(len, readings)) == (1, 1)
    assert list(trained.config.task.files()) != []
    again = trained.predict_frame(frame)
    assert set(again["label"]) <= {"yes", "no"}


def test_sounds_are_read_once_and_as_the_options_say(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for number in range(20):
        file = tmp_path / "sounds" / "ab"[number % 2] / f"{number}.wav"
        file.parent.mkdir(parents=True, exist_ok=True)
        with wave.open(str(file), "wb") as sound:
            sound.setparams((1, 2, 16000, 0, "NONE", "NONE"))
            sound.writeframes(np.random.default_rng(number).integers(-9000, 9000, 3200).astype("<i2").tobytes())
    read, reader = Counter(), sound_folder.read_audio
    monkeypatch.setattr(sound_folder, "read_audio", lambda path, **k: read.update([path.name]) or reader(path, **k))
    forecast = ["--target", "x0", "--ahead", "1", "--sound", "frames", "--hop-ms", "1"]
    for words in (
        ["inspect", "sounds", "--target", "y", "--sound", "frames", "--hop-ms", "1"],
        ["train", "sounds", *SHORT, "--out", "labels"],
        ["train", "--resume", "labels", "--steps", "6"],
        ["evaluate", "labels"],
        ["predict", "labels", "sounds", "--force"],
        ["train", "sounds", *forecast, *SHORT, "--out", "waves"],
    ):
        read.clear()
        assert cli.main(words) == 0
        assert set(read.values()) == {1}, words
        if words[0] == "inspect":
            assert "4000 rows, 18 columns" in capsys.readouterr().out  # 16 samples of a millisecond, y and sequence
