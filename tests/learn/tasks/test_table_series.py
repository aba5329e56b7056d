"""Arrays are read by a network that learned from a table, whatever its columns are called."""

from __future__ import annotations

import numpy as np

import orthornn
from orthornn import cli


def test_an_array_is_the_same_as_the_table_with_names_and_times(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    random = np.random.default_rng(2)
    rows = [(i // 5, f"2020-01-0{1 + i % 5}", *random.standard_normal(2).round(3), i // 5 % 2) for i in range(150)]
    text = "\n".join(",".join(map(str, row)) for row in rows)
    (tmp_path / "table.csv").write_text("id,day,x,z,y\n" + text + "\n")
    words = ["train", "table.csv", "--target", "y", "--sequence", "id", "--time", "day", "--inputs", "x,z"]
    words += ["--steps", "2", "--threads", "1", "--recipe", "none", "--model", "ornn", "--hidden-size", "4"]
    assert cli.main([*words, "--out", "run"]) == 0
    loaded = orthornn.load("run")
    array = np.array([row[2:4] for row in rows]).reshape(30, 5, 2)
    np.save("all.npy", array)
    np.save("one.npy", array[3])
    scores = [prediction.scores for _, prediction in loaded.tables.predict("table.csv")]
    order = np.argsort([int(one.name) for one, _ in loaded.tables.predict("table.csv")])
    wanted = np.concatenate([scores[place] for place in order])
    found = {int(one.name): prediction.scores for one, prediction in loaded.tables.predict("all.npy")}
    np.testing.assert_array_equal(np.concatenate([found[place] for place in range(30)]), wanted)
    np.testing.assert_allclose(loaded.tables.predict("one.npy")[0][1].scores, wanted[3:4], rtol=1e-5)
