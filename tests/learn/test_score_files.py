"""Predictions as CSV files."""

from __future__ import annotations

import csv

import numpy as np

from orthornn.cli import main
from orthornn.learn.predict import load
from orthornn.learn.score_files import escaped
from orthornn.learn.tasks import Classify, Regress
from orthornn.learn.training import train
from support.run_cases import config

FORMULAS = ["=HYPERLINK(0)", "+1+1", "-2+3", "@SUM(A1)", "\t=1", "'=1", "\uff1d1"]


def test_no_cell_of_the_scores_is_a_formula(tmp_path):
    random = np.random.default_rng(0)
    columns = {"id": np.repeat([*FORMULAS, "-5", "plain"], 4), "x": random.standard_normal(36)}
    columns["kind"] = np.repeat(np.array(["=cmd|' /C calc'!A0", "b"])[np.arange(9) % 2], 4)
    np.savez(tmp_path / "a.npz", **columns)
    task = Classify(data=str(tmp_path / "a.npz"), target="kind", sequence="id")
    train(config(task=task, steps=2, batch_size=2), tmp_path / "run")
    assert main(["predict", str(tmp_path / "run"), str(tmp_path / "a.npz"), "--out", str(tmp_path / "s.csv")]) == 0
    with open(tmp_path / "s.csv", newline="", encoding="utf-8") as file:
        rows = list(csv.reader(file))
    names = [row[0] for row in rows[1:]]
    assert {name.removeprefix("'") for name in names} == {name.strip() for name in columns["id"].tolist()}
    for cell in (cell for row in rows for cell in row):
        assert not cell.startswith(("=", "+", "@", "\t", "\r", "\n", "\uff1d"))
        assert not cell.startswith("-") or float(cell) <= 0
    assert {row[1] for row in rows[1:]} <= {"'=cmd|' /C calc'!A0", "b"}
    assert [escaped(name)[1:] for name in FORMULAS] == FORMULAS
    assert [escaped(name) for name in ("-5", "+1e3", "b", "", "a=b")] == ["-5", "+1e3", "b", "", "a=b"]


def test_values_far_from_0_are_written_as_they_are(tmp_path):
    """Ten digits of 1.7e9 are whole numbers: the predictions of times, and of counters, were all alike."""
    random = np.random.default_rng(0)
    y = np.repeat(1.7e9 + random.standard_normal(12), 3)
    np.savez(tmp_path / "a.npz", sequence=np.repeat(np.arange(12), 3), x=random.standard_normal(36), y=y)
    train(config(task=Regress(data=str(tmp_path / "a.npz"), target="y"), steps=2, batch_size=2), tmp_path / "run")
    assert main(["predict", str(tmp_path / "run"), str(tmp_path / "a.npz"), "--out", str(tmp_path / "s.csv")]) == 0
    with open(tmp_path / "s.csv", newline="", encoding="utf-8") as file:
        found = [float(row[1]) for row in list(csv.reader(file))[1:]]
    assert found == [float(said.scores[0, 0]) for _, said in load(tmp_path / "run").tables.predict(tmp_path / "a.npz")]
    assert len(set(found)) == 12
