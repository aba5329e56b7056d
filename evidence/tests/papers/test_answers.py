"""The rows of an experiment carry the names of the published numbers that they answer."""

from __future__ import annotations

import pytest

from orthornn_evidence.papers import Setting, experiments, reproduce

CASES = [
    ("helfrich2018", "figure1", ", test loss"),
    ("helfrich2018", "figure2", ", test loss"),
    ("helfrich2018", "table1", ", test accuracy"),
    ("helfrich2018", "table2", " MSE"),
    ("helfrich2018", "table3", ", minutes per epoch"),
    ("vorontsov2017", "figure1", ", test recall"),
    ("vorontsov2017", "figure2", ", test loss"),
    ("vorontsov2017", "table1", ", test "),
]


@pytest.mark.parametrize(("paper", "name", "ending"), CASES)
def test_every_row_has_its_published_cell(paper, name, ending, data, tmp_path):
    experiment = experiments(paper)[name]
    content = reproduce(experiment, Setting("smoke", data), tmp_path / "runs", tmp_path / "results")
    answers = [row for row in content["rows"] if row["reproduced"] is not None and ending in row["what"]]
    assert answers
    assert [row["what"] for row in answers if "published" not in row] == []


def test_the_example_near_minus_one(data, tmp_path):
    experiment = experiments("helfrich2018")["near-minus-one"]
    content = reproduce(experiment, Setting("smoke", data), tmp_path / "runs", tmp_path / "results")
    rows = {row["what"]: row for row in content["rows"]}
    published = rows["unscaled: the entry of A for eigenvalues -.99999 +- .00447i"]
    assert published["reproduced"] == pytest.approx(published["published"], rel=1e-5)
    chosen = rows["right_inverse: |a| after it has chosen the signs of D"]["reproduced"]
    assert chosen == pytest.approx(1 / published["reproduced"], rel=1e-5)


def test_a_matched_margin_of_zero_moves_its_bases_and_the_published_one_hardly(data, tmp_path):
    experiment = experiments("vorontsov2017")["bases-travel"]
    content = reproduce(experiment, Setting("smoke", data), tmp_path / "runs", tmp_path / "results")
    travel = {row["what"]: row["reproduced"] for row in content["rows"] if row["reproduced"] is not None}
    assert 0 <= travel["margin 0, as published: u at the end"] < 1e-6
    assert travel["margin 0, bases at 1e-4: u at the end"] > 1e-5
