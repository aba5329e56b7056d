"""A cell is what the command trains, and the order is by what is worth most."""

from __future__ import annotations

import numpy as np

from orthornn.learn.recipes import OF_TASKS, RECIPES
from orthornn_evidence.own_data import cells
from orthornn_evidence.own_data.cells import Cell, Costs
from orthornn_evidence.own_data.sets import SETS, Places


def test_a_cell_has_the_options_of_the_command(tmp_path):
    places = Places(tmp_path)
    options, task = cells.options(places, Cell("events", "default", 4))
    config = options.config(task)
    assert config.task == SETS["events"](places)
    assert (config.steps, config.seed, config.patience, config.model.name) == (600, 4, 10, "blocks")
    assert config.optimizer.lr == RECIPES[OF_TASKS["classify"]].options["lr"]
    options, task = cells.options(places, Cell("oscillator", "lstm", 0))
    config = options.config(task)
    assert (config.task.name, config.model.name, config.model.pool) == ("regress", "lstm", "last")


def test_a_series_with_a_long_period_is_read_as_the_command_reads_it(tmp_path):
    folder = tmp_path / "forecast"
    folder.mkdir()
    rows = np.sin(np.arange(300) * 2 * np.pi / 24) + 0.01 * np.random.default_rng(0).standard_normal(300)
    (folder / "solar.csv").write_text(
        "\n".join(["datetime_gmt,solar_gen", *(f"{2000 + t}-01-01,{v:.4f}" for t, v in enumerate(rows))]) + "\n"
    )
    options, task = cells.options(Places(tmp_path, series=tmp_path), Cell("solar", "default", 0))
    config = options.config(task)
    assert (config.task.skipped, config.model.lags) == (25, 25)
    assert config.task.time == "datetime_gmt"


def test_stored_cells_are_told_by_the_options_of_their_row_and_recipe():
    words = "--model auto --minutes 2 --parameters 12k --lags 16 --optimizer adamw --lr 0.003 --recurrent-lr 0.001"
    words += " --decoupled-decay 0.05 --schedule cosine --warmup 50 --clip-norm 1 --patience 10"
    assert cells.is_current({"task": "forecast", "method": "auto", "words": words})
    assert cells.recipe_words("regress", "no recipe") == ""
    assert cells.recipe_words("classify", "strict").startswith(
        "--model blocks --decay False --parameters 12k --pool mean"
    )
    assert not cells.is_current({"task": "forecast", "method": "gru", "words": words})


def test_what_is_worth_most_comes_first():
    names = list(SETS)
    found = cells.in_order(names, list(cells.OPTIONS), 3)
    assert len(set(found)) == len(found) == len(names) * len(cells.OPTIONS) * 3
    assert found[: len(names)] == [Cell(name, "default", 0) for name in names]
    assert [cell.method for cell in found[:: len(names)]][:4] == ["default", "lstm", "gru", "goru"]
    assert cells.in_order(["events"], ["gru"], 2) == [Cell("events", "gru", 0), Cell("events", "gru", 1)]


def test_costs_are_those_of_the_same_cell_or_in_proportion():
    runs = [
        {"set": "events", "method": "default", "cpu_seconds": 4.0, "updates": 200},
        {"set": "events", "method": "gru", "cpu_seconds": 8.0, "updates": 200},
        {"set": "digits", "method": "default", "cpu_seconds": 20.0, "updates": 100},
    ]
    costs = Costs({"digits": {"pieces": [32_000, 1, 1]}}, runs)
    assert costs.seconds(Cell("events", "gru", 2)) == 600 * 0.04
    assert costs.seconds(Cell("digits", "default", 1)) == 1000 * 0.2
    assert costs.seconds(Cell("digits", "gru", 0)) == 1000 * 0.4
    assert costs.seconds(Cell("events", "auto", 0)) == 120
