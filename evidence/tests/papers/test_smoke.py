"""Every table and figure of the papers, for a few updates on made data."""

from __future__ import annotations

import json

import pytest

from orthornn_evidence.papers import BUDGETS, PAPERS, Setting, experiments, reproduce

NUMBER = {"mhammedi2017": 16, "helfrich2018": 15, "vorontsov2017": 16, "rusch2022": 3}
EVERY = [found for paper in PAPERS for found in experiments(paper).values()]


def test_every_experiment_is_found():
    assert {paper: len(experiments(paper)) for paper in PAPERS} == NUMBER


@pytest.mark.parametrize("experiment", EVERY, ids=lambda e: f"{e.paper}-{e.name}")
def test_smoke(experiment, data, tmp_path):
    content = reproduce(experiment, Setting("smoke", data), tmp_path / "runs", tmp_path / "results")
    place = tmp_path / "results" / experiment.paper / experiment.name
    assert json.loads((place / "smoke.json").read_text(encoding="utf-8")) == json.loads(json.dumps(content))
    assert content["complete"]
    assert not content["missing"]
    assert content["rows"]
    assert str(tmp_path) not in json.dumps(content)
    assert str(data) not in json.dumps(content)
    figure = place / "smoke.png"
    if "Fig" in experiment.place:
        assert figure.read_bytes()[:4] == b"\x89PNG"


@pytest.mark.parametrize("experiment", EVERY, ids=lambda e: f"{e.paper}-{e.name}")
def test_what_is_published_is_said(experiment):
    assert experiment.published or experiment.place == "ours"
    assert all(cell.value is not None or cell.words for cell in experiment.published)
    assert len({cell.what for cell in experiment.published}) == len(experiment.published)
    assert experiment.summary
    assert experiment.section
    assert set(experiment.hours) == set(BUDGETS)


@pytest.mark.parametrize("experiment", EVERY, ids=lambda e: f"{e.paper}-{e.name}")
def test_every_budget_has_a_plan(experiment, data):
    systems = [list(experiment.plan(Setting(budget, data)).systems) for budget in BUDGETS]
    assert len(systems[1]) <= len(systems[2]) or experiment.place == "ours"
