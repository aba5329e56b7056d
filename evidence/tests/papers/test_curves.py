"""Results files store every evaluation and a training curve that keeps the mean."""

from __future__ import annotations

import math
import statistics

import pytest

from orthornn_evidence.papers.curves import POINTS, restored, stored


def train(count):
    return [
        {"kind": "train", "step": 20 * i, "seconds": i, "cpu_seconds": i, "loss": math.sin(i) + 2}
        for i in range(1, count + 1)
    ]


@pytest.mark.parametrize("count", [1, 2, POINTS - 1, POINTS, POINTS + 1, 3 * POINTS + 7])
def test_the_training_loss_is_thinned_to_means_of_all_records(count):
    curve = stored(train(count))["train"]
    assert set(curve) == {"step", "loss"}
    assert len(curve["step"]) == len(curve["loss"]) == min(count, POINTS)
    assert curve["step"] == sorted(set(curve["step"]))
    assert curve["step"][-1] == 20 * count
    lengths = [len(range(before, step, 20)) for before, step in zip([0, *curve["step"]], curve["step"], strict=False)]
    assert max(lengths) - min(lengths) <= 1
    whole = sum(length * loss for length, loss in zip(lengths, curve["loss"], strict=True)) / sum(lengths)
    assert whole == pytest.approx(statistics.fmean(record["loss"] for record in train(count)), rel=1e-4)


def test_held_out_curves_are_whole_and_other_kinds_are_left_out():
    records = [
        *train(3),
        {"kind": "validation", "step": 50, "seconds": 1.0, "loss": 0.123456789, "recall": 0.5},
        {"kind": "spectrum", "step": 60, "values": [1.0]},
        {"kind": "validation", "step": 60, "seconds": 2.0, "loss": 1e-12, "recall": 1},
        {"kind": "test", "step": 60, "seconds": 2.0, "loss": 2.0, "recall": 1},
    ]
    assert stored(records)["validation"] == {"step": [50, 60], "loss": [0.12346, 1e-12], "recall": [0.5, 1]}
    assert stored(records)["test"] == {"step": [60], "loss": [2.0], "recall": [1]}
    assert set(stored(records)) == {"train", "validation", "test"}


def test_a_run_that_has_recorded_nothing_has_no_curves():
    assert stored([]) == {}


def test_many_runs_share_the_points_and_keep_the_last_evaluation():
    records = [
        {"kind": kind, "step": step, "loss": 1.0 / step} for step in range(1, 502) for kind in ("train", "validation")
    ]
    curves = stored(records, runs=50)
    assert {kind: len(curve["step"]) for kind, curve in curves.items()} == {"train": 80, "validation": 80}
    assert all(curve["step"][-1] == 501 for curve in curves.values())
    evaluated = curves["validation"]
    assert all(loss == pytest.approx(1.0 / step, rel=1e-4) for step, loss in zip(evaluated["step"], evaluated["loss"]))
    assert len(stored(records, runs=20)["validation"]["step"]) == 501
    assert len(stored(records, runs=10_000)["train"]["step"]) == 20


def test_restored_records_are_stored_as_the_same_curves():
    records = [
        *train(POINTS + 3),
        {"kind": "validation", "step": 50, "seconds": 1.0, "loss": 0.5, "recall": 0.25},
        {"kind": "validation", "step": 60, "seconds": 2.0, "loss": 1e-12, "recall": 1},
        {"kind": "test", "step": 60, "seconds": 2.0, "loss": 2.0, "recall": 1},
    ]
    curves = stored(records)
    back = restored(curves)
    assert stored(back) == curves
    assert [record["step"] for record in back] == sorted(record["step"] for record in back)
    assert restored({}) == []
