"""The metrics of regressions, against scikit-learn's, over batches of any size."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest
import torch
from sklearn import metrics

from orthornn.cli import main
from orthornn.learn.predict import load
from orthornn.learn.report.runs import read_runs
from orthornn.learn.systems import model_named
from orthornn.learn.tasks import Regress
from orthornn.learn.tasks.abilities import plain_baselines
from orthornn.learn.tasks.regression_metrics import own_scores, sums, with_r2
from orthornn.learn.training import RunConfig, train

pytestmark = pytest.mark.filterwarnings("ignore::orthornn.errors.OrthornnWarning")
RANDOM = np.random.default_rng(0)


def means_of(found, wanted, size):
    """The means over batches of so many rows, as a trainer takes them."""
    totals, counts = {}, {}
    for at in range(0, len(found), size):
        errors, targets = (torch.from_numpy(part[at : at + size]) for part in (found - wanted, wanted))
        for name, (total, count) in sums(errors, targets).items():
            totals[name], counts[name] = totals.get(name, 0.0) + total, counts.get(name, 0) + count
    return {name: totals[name] / counts[name] for name in totals if counts[name]}


@pytest.mark.parametrize("size", [1, 7, 50])
@pytest.mark.parametrize("outputs", [1, 3])
def test_the_metrics_are_scikit_learns(outputs, size):
    found, wanted = RANDOM.standard_normal((2, 50, outputs))
    wanted = wanted * np.arange(1, outputs + 1) + 5
    scores = with_r2({"loss": 1.0, **means_of(found, wanted, size)})
    assert list(scores) == ["loss", "mae", "r2"]
    assert scores["mae"] == pytest.approx(metrics.mean_absolute_error(wanted, found))
    assert scores["r2"] == pytest.approx(metrics.r2_score(wanted, found))
    assert own_scores(found, wanted) == pytest.approx({name: scores[name] for name in ("mae", "r2")})


def test_a_target_that_is_not_there_does_not_count():
    found, wanted = RANDOM.standard_normal((2, 30, 1))
    wanted[::3] = np.nan
    there = ~np.isnan(wanted[:, 0])
    scores = with_r2(means_of(found, wanted, 7))
    assert scores["r2"] == pytest.approx(metrics.r2_score(wanted[there], found[there]))
    assert scores["mae"] == pytest.approx(metrics.mean_absolute_error(wanted[there], found[there]))


def test_a_target_that_is_the_same_everywhere_has_no_r2():
    found, wanted = RANDOM.standard_normal((2, 40, 2))
    wanted[:, 0] = 0.1
    assert with_r2(means_of(found, wanted, 9))["r2"] == pytest.approx(metrics.r2_score(wanted[:, 1], found[:, 1]))
    assert own_scores(found[:, :1], wanted[:, :1]).keys() == {"mae"}
    assert own_scores(found[:1], wanted[:1]).keys() == {"mae"}
    assert with_r2(means_of(found[:, :1], wanted[:, :1], 3)).keys() == {"mae"}


@pytest.mark.parametrize("power", [160, 300])
def test_targets_whose_squares_overflow_have_no_r2(power):
    wanted = 10.0**power * np.array([[1.0], [2.0], [-1.0]])
    assert with_r2(means_of(wanted / 2, wanted, 2)) == {"mae": pytest.approx(10.0**power * 2 / 3)}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("regress")
    y = np.repeat(RANDOM.standard_normal((60, 2)) * [3, 0.1] + [100, 7], 5, 0)
    x = y[:, 0] + RANDOM.standard_normal(300)
    np.savez(folder / "data.npz", x=x, a=y[:, 0], b=y[:, 1], sequence=np.repeat(np.arange(60), 5))
    task = Regress(data=str(folder / "data.npz"), target="a,b", inputs="x")
    train(RunConfig(task=task, model=model_named("gru", hidden_size=4), steps=4, batch_size=8), folder / "run")
    return folder / "run", folder / "data.npz"


def test_a_run_stores_them_and_evaluations_agree(run):
    folder, data = run
    stored = json.loads((folder / "result.json").read_text())
    for part in ("validation", "test", "best_test"):
        assert list(stored[part]) == ["loss", "mse", "mae", "r2"]
    loaded = load(folder)
    task = loaded.config.task
    batch = next(task.problem().test(100))
    with torch.no_grad():
        said, wanted = (
            task.objective().in_units(part.double()).numpy()
            for part in (loaded.model.eval()(batch.inputs), batch.targets)
        )
    assert stored["best_test"]["mae"] == pytest.approx(metrics.mean_absolute_error(wanted, said), rel=1e-5)
    assert stored["best_test"]["mse"] == pytest.approx(metrics.mean_squared_error(wanted, said), rel=1e-5)
    assert stored["best_test"]["r2"] == pytest.approx(metrics.r2_score(wanted, said), rel=1e-4)
    everything = np.load(data)
    goals = np.stack([everything["a"], everything["b"]], 1)[4::5]
    said = np.concatenate([one.scores for _, one in loaded.tables.predict(data)])
    found = loaded.tables.evaluate(data)
    assert found["r2"] == pytest.approx(metrics.r2_score(goals, said))
    assert found["mae"] == pytest.approx(metrics.mean_absolute_error(goals, said))
    assert loaded.evaluate(everything["x"].reshape(60, 5, 1), goals) == pytest.approx(found, rel=1e-4)
    for one in plain_baselines(task):
        assert set(one.test) == {"loss", "mse", "mae", "r2"}


def test_a_result_from_before_they_were_stored_is_read(run, tmp_path):
    folder, _ = run
    (tmp_path / "run").mkdir()
    for file in folder.iterdir():
        if file.is_file():
            (tmp_path / "run" / file.name).write_bytes(file.read_bytes())
    plain = json.loads((folder / "result.json").read_text())
    plain.pop("sha256", None)
    for part in ("validation", "test", "best_test", "best"):
        plain[part] = {name: value for name, value in plain[part].items() if name not in ("mae", "r2")}
    (tmp_path / "run" / "result.json").write_text(json.dumps(plain))
    (read,) = read_runs([tmp_path / "run"])
    assert read.result["best_test"].keys() == {"loss", "mse"}


def test_the_command_prints_them(tmp_path, capsys):
    x = RANDOM.standard_normal(300)
    rows = [f"{value},{2 * value + 1:.5f}" for value in x]
    (tmp_path / "line.csv").write_text("\n".join(["x,y", *rows]) + "\n")
    words = ["--target", "y", "--every-step", "--steps", "3", "--out", str(tmp_path / "run")]
    assert main(["train", str(tmp_path / "line.csv"), *words]) == 0
    said = re.search(r"test in the units of the target: mse (\S+), mae (\S+), r2 (\S+)", capsys.readouterr().out)
    stored = json.loads((tmp_path / "run" / "result.json").read_text())["best_test"]
    assert [float(word) for word in said.groups()] == pytest.approx([stored[n] for n in ("mse", "mae", "r2")], rel=1e-3)
    assert main(["evaluate", str(tmp_path / "run"), str(tmp_path / "line.csv")]) == 0
    assert re.search(r"mae \S+   r2 \S+", capsys.readouterr().out)


def test_a_comparison_over_seeds_prints_their_means(tmp_path, capsys):
    x = RANDOM.standard_normal(300)
    (tmp_path / "line.csv").write_text("\n".join(["x,y", *(f"{value},{2 * value + 1:.5f}" for value in x)]) + "\n")
    words = ["--target", "y", "--every-step", "--steps", "3", "--seeds", "2", "--models", "rnn,ornn"]
    assert main(["compare", str(tmp_path / "line.csv"), *words, "--out", str(tmp_path / "both")]) == 0
    said = capsys.readouterr().out
    for name in ("rnn", "ornn"):
        stored = [
            json.loads((tmp_path / "both" / f"{name}-seed{seed}" / "result.json").read_text())["best_test"]
            for seed in (0, 1)
        ]
        (line,) = re.findall(rf"^test of {name} in the units of the target: .*$", said, re.MULTILINE)
        for metric in ("mse", "mae", "r2"):
            mean, spread = map(float, re.search(rf"{metric} (\S+) ± ([^,\s]+)", line).groups())
            values = [one[metric] for one in stored]
            assert mean == pytest.approx(np.mean(values), rel=1e-3)
            assert spread == pytest.approx(np.std(values, ddof=1), rel=0.06)
