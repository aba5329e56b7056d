"""Pictures of several runs."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np

from orthornn.learn.report.pictures import curves_with_bands


def seed_of(losses, every=10):
    records = [{"step": every * (i + 1), "loss": loss} for i, loss in enumerate(losses)]
    return SimpleNamespace(of_kind=lambda kind: records)


def lines(figure):
    return [np.column_stack(line.get_data()).tolist() for line in figure.axes[0].get_lines()]


def test_a_mean_is_of_all_seeds_and_a_seed_that_goes_on_is_alone():
    groups = {"lstm": [seed_of([4, 2]), seed_of([2, 1, 0.5, 0.25])], "ornn": [seed_of([3, 1, 0.5])]}
    figure = curves_with_bands(groups, "train", "loss", None)
    assert lines(figure) == [
        [[20, 2]],
        [[20, 1], [30, 0.5], [40, 0.25]],
        [[10, 3], [20, 1.5]],  # the mean of both
        [[30, 0.5]],
        [[10, 3], [20, 1], [30, 0.5]],
    ]
    assert [text.get_text() for text in figure.axes[0].get_legend().get_texts()] == ["lstm (2 seeds)", "ornn"]


def test_seeds_without_an_update_in_common_have_lines_of_their_own():
    figure = curves_with_bands({"lstm": [seed_of([4, 2]), seed_of([3, 1], every=7)]}, "train", "loss", None)
    assert lines(figure) == [[[10, 4], [20, 2]], [[7, 3], [14, 1]], []]
