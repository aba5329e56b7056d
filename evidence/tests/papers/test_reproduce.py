"""A plan is carried out once, goes on where it stopped, and its results say what is missing."""

from __future__ import annotations

import dataclasses
import json
import shutil

import pytest
import torch

from orthornn import cli
from orthornn.errors import ArgumentError, DataError, DeviceError, Interrupted
from orthornn.learn.report.runs import read_run
from orthornn.learn.systems import model_named
from orthornn.learn.training import RecordConfig, Run, RunConfig, Trainer, train
from orthornn_evidence.papers import (
    Experiment,
    Plan,
    Published,
    ResultTable,
    Row,
    Setting,
    Trained,
    reproduce,
    results,
)
from orthornn_evidence.papers.template import fill
from support.run_cases import COPYING, entries, numbers

STEPS = 12


def config(steps=STEPS, **options):
    return RunConfig(
        task=COPYING,
        model=model_named("rnn", hidden_size=4),
        record=RecordConfig(test=True),
        steps=steps,
        batch_size=4,
        validate_every=4,
        log_every=2,
        **options,
    )


def experiment(seeds=2, steps=STEPS, rows=None, **options):
    def make(setting):
        return Plan(
            {"rnn": config(steps, **options)},
            rows or (lambda runs: ResultTable(runs.rows(form="{:.3f}"), draw=lambda figure: figure.add_subplot())),
            seeds=seeds,
        )

    published = (Published("rnn, test recall", 0.5, "{:.3f}"), Published("lstm, test recall", 0.25, "{:.3f}"))
    hours = {"smoke": 0.0, "laptop": 0.1, "full": 1.0}
    return Experiment("paper2017", "table1", "Table 1", "3", "Copying.", published, hours, ("shorter",), make)


def carry_out(one, folder, **options):
    return reproduce(one, Setting("laptop", folder), folder / "runs", folder / "results", **options)


def test_rows_stand_beside_what_is_published(tmp_path):
    content = carry_out(experiment(), tmp_path)
    ours, absent, validation = content["rows"]
    assert (ours["what"], ours["published"]) == ("rnn, test recall", 0.5)
    assert absent["reproduced"] is None
    assert "published" not in validation
    assert content["complete"]
    assert content["differences"] == ["shorter"]
    assert (tmp_path / "results/paper2017/table1/laptop.png").exists()
    table = fill("{{table paper2017/table1}}", tmp_path / "results", tmp_path / "page.md")
    assert "| rnn, test recall | 0.500 |" in table
    assert table.endswith("- laptop: shorter")


def test_the_test_value_is_read_where_validation_was_best(tmp_path):
    content = carry_out(experiment(seeds=1), tmp_path)
    result = train(config())
    tests = {r["step"]: r["recall"] for r in result.records if r["kind"] == "test"}
    validations = {r["step"]: r["recall"] for r in result.records if r["kind"] == "validation"}
    best = max(validations, key=validations.get)
    selected = content["runs"][0]["selected"]
    assert selected["validation"] == {"step": best, "validation": validations[best], "test": tests[best]}
    assert selected["test"]["test"] == max(tests.values())
    assert selected["last"]["step"] == STEPS
    assert content["rows"][0]["reproduced"] == tests[best]
    assert content["rows"][0]["test_selected"] == max(tests.values())


def test_a_finished_run_is_left_alone_and_a_longer_plan_goes_on(tmp_path):
    carry_out(experiment(steps=8), tmp_path)
    place = tmp_path / "runs/paper2017/table1/laptop/rnn-0"
    before = (place / "metrics.jsonl").read_bytes()
    carry_out(experiment(steps=8), tmp_path)
    assert (place / "metrics.jsonl").read_bytes() == before
    content = carry_out(experiment(), tmp_path)
    assert content["complete"]
    assert content["runs"][0]["steps"] == STEPS
    assert content["runs"][0]["selected"]["last"]["validation"] == train(config()).validation["recall"]


def test_what_is_interrupted_is_reported_as_partial_and_goes_on_bit_for_bit(tmp_path):
    def stop(name, run, progress):
        run.fit.interrupted = True

    with pytest.raises(Interrupted):
        carry_out(experiment(), tmp_path, on_progress=stop)
    file = tmp_path / "results/paper2017/table1/laptop.json"
    partial = json.loads(file.read_text(encoding="utf-8"))
    assert not partial["complete"]
    begun, absent = partial["missing"]
    assert begun.endswith(f"of {STEPS} updates")
    assert absent == "not begun, 1 of 2 runs: rnn-1"
    assert carry_out(experiment(), tmp_path)["complete"]
    saved = Trained("rnn", 0, read_run(tmp_path / "runs/paper2017/table1/laptop/rnn-0"))
    assert numbers(saved.saved.records) == numbers(train(config()).records)


def test_runs_of_several_machines_come_together(tmp_path):
    def make(setting):
        return Plan({"rnn": config(), "lstm": lstm}, tabulate, seeds=2)

    def tabulate(runs):
        drawn.append([(run.system, run.seed) for run in runs.there])
        return ResultTable(runs.rows())

    drawn = []
    lstm = dataclasses.replace(config(), model=model_named("lstm", hidden_size=2))
    one = dataclasses.replace(experiment(), make=make)
    folder = tmp_path / "runs/paper2017/table1/laptop"
    first = carry_out(one, tmp_path, only_systems=["rnn"])
    (tmp_path / "runs").rename(tmp_path / "first")
    both = carry_out(one, tmp_path, only_systems=["lstm"])
    for name in ("rnn", "lstm"):
        row = next(row for row in both["rows"] if row["what"] == f"{name}, test recall")
        assert (row["seeds"], row["published"]) == (2, {"rnn": 0.5, "lstm": 0.25}[name])
    assert both["complete"]
    assert [(run["system"], run["seed"]) for run in both["runs"]] == [("rnn", 0), ("lstm", 0), ("rnn", 1), ("lstm", 1)]
    assert both["runs"][::2] == first["runs"]
    assert both["cpu_seconds"] == pytest.approx(sum(run["cpu_seconds"] for run in both["runs"]), abs=0.1)
    assert drawn[-1] == [(run["system"], run["seed"]) for run in both["runs"]]
    again = carry_out(one, tmp_path, only_systems=["none"])
    assert (again["rows"], again["runs"]) == (both["rows"], both["runs"])
    # one seed of two is here, the other in the results
    shutil.rmtree(folder / "lstm-1")
    assert carry_out(one, tmp_path, only_systems=["none"])["rows"] == both["rows"]
    (tmp_path / "first/paper2017/table1/laptop/rnn-0").rename(folder / "rnn-0")
    assert carry_out(one, tmp_path, only_systems=["none"])["rows"] == both["rows"]
    # all are here: everything is made from them
    (tmp_path / "first/paper2017/table1/laptop/rnn-1").rename(folder / "rnn-1")
    assert carry_out(one, tmp_path)["complete"]


def test_seeds_of_two_machines_make_one_row(tmp_path):
    whole = carry_out(experiment(), tmp_path)
    (tmp_path / "runs").rename(tmp_path / "whole")
    shutil.rmtree(tmp_path / "results")
    carry_out(experiment(), tmp_path, only_seeds=[0])
    (tmp_path / "runs").rename(tmp_path / "first")
    content = carry_out(experiment(), tmp_path, only_seeds=[1])
    assert content["complete"]
    for name in ("rows", "findings", "numbers"):
        assert times_left_out(content[name]) == times_left_out(whole[name])
    assert [run["selected"] for run in content["runs"]] == [run["selected"] for run in whole["runs"]]


def times_left_out(value):
    if isinstance(value, list):
        return [times_left_out(entry) for entry in value]
    return {k: v for k, v in value.items() if k != "minutes"} if isinstance(value, dict) else value


def test_a_run_read_back_from_the_results_is_the_run(tmp_path):
    def keep(runs):
        seen.append(runs.there)
        return ResultTable(runs.rows("loss"))

    seen = []
    carry_out(experiment(seeds=1, rows=keep), tmp_path)
    (tmp_path / "runs").rename(tmp_path / "first")
    carry_out(experiment(seeds=1, rows=keep), tmp_path, train=False)
    (run,), (back,) = seen
    assert (back.system, back.seed, back.steps, back.finished) == (run.system, run.seed, run.steps, True)
    assert back.selected() == run.selected()
    assert (back.seconds, back.cpu_seconds) == (run.seconds, run.cpu_seconds)
    assert back.saved.config == run.saved.config
    assert back.saved.result == {name: run.saved.result[name] for name in back.saved.result}
    for kind in ("train", "validation", "test"):
        for metric in ("loss", "recall")[: 1 if kind == "train" else 2]:
            steps, values = run.curve(kind, metric)
            assert back.curve(kind, metric) == (steps, pytest.approx(values, rel=1e-4))


def test_what_needs_the_weights_is_not_made_of_records(tmp_path):
    def make(setting):
        return dataclasses.replace(first.plan(setting), beyond_records=True)

    first = experiment(seeds=2)
    one = dataclasses.replace(first, make=make)
    carry_out(one, tmp_path, only_seeds=[0])
    (tmp_path / "runs").rename(tmp_path / "first")
    content = carry_out(one, tmp_path, only_seeds=[1])
    assert content["missing"] == [
        "rnn, seed 0: finished on another machine, and not in the rows of the seeds here. Bring the run directories together"
    ]
    assert not content["complete"]


def test_more_updates_elsewhere_are_not_replaced_by_fewer(tmp_path):
    made = carry_out(experiment(seeds=1), tmp_path)
    (tmp_path / "runs").rename(tmp_path / "first")
    run = Run(config(), tmp_path / "runs/paper2017/table1/laptop/rnn-0")
    run.advance_to(8)
    run.checkpoint()
    run.close()
    content = carry_out(experiment(seeds=1), tmp_path, train=False)
    assert content["rows"] == made["rows"]
    assert content["runs"] == made["runs"]
    assert content["complete"]


def test_rows_say_how_much_of_the_full_training_a_run_has_had(tmp_path):
    def make(setting):
        longer = dataclasses.replace(config(6 * STEPS), batch_size=2)  # three times as many sequences
        return Plan({"rnn": longer if setting.budget == "full" else config()}, lambda runs: ResultTable(runs.rows()))

    third = carry_out(dataclasses.replace(experiment(), make=make), tmp_path)
    assert [row["share"] for row in third["rows"] if "share" in row] == [pytest.approx(1 / 3)] * 2
    assert results.share(third["rows"][0]) == "33 %"
    with pytest.raises(ArgumentError, match="finished rows"):
        fill("{{table paper2017/table1}}", tmp_path / "results", tmp_path / "page.md")
    assert "| 33 % |" in fill("{{unfinished}}", tmp_path / "results", tmp_path / "page.md")
    assert results.share({"share": 0.014}) == "1.4 %"
    assert results.share({"share": 0.9999}) == "99.99 %"  # 100 % is what is finished
    assert results.share({"share": 1.0}) == "100 %"
    assert results.share({"share": None}) == results.share({}) == ""


def test_runs_are_trained_where_it_is_asked_for(tmp_path, monkeypatch):
    used = []
    monkeypatch.setattr(
        Trainer, "__init__", spied(Trainer.__init__, lambda self, config, *_: used.append(config.device))
    )
    place = tmp_path / "runs/paper2017/table1/laptop/rnn-0"
    run = Run(config(), place)
    run.advance_to(4)
    run.checkpoint()
    run.close()
    (place / "config.json").write_text(json.dumps({**entries(place / "config.json"), "device": "cuda"}))
    if not torch.cuda.is_available():
        for device in (None, "cuda:1"):
            with pytest.raises(DeviceError):
                carry_out(experiment(seeds=1), tmp_path, device=device)
        assert used == ["cpu", "cuda", "cuda:1"]
    assert carry_out(experiment(), tmp_path, device="cpu")["complete"]
    assert used[-2:] == ["cpu", "cpu"]
    assert numbers(read_run(place).records) == numbers(train(config()).records)
    assert carry_out(experiment(), tmp_path, device="cuda")["complete"]  # where nothing is left to do


def spied(function, before):
    def instead(*arguments, **options):
        before(*arguments)
        function(*arguments, **options)

    return instead


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("gpu", "device", "note"),
    [
        ("NVIDIA H200", "cuda", "on NVIDIA H200"),
        ("NVIDIA H200", "cpu", "begun on NVIDIA H200"),
        (None, "cuda", "resumed on a GPU"),
        (None, "cpu", ""),
    ],
)
def test_a_row_says_on_which_gpu_its_runs_were_trained(gpu, device, note, tmp_path):
    carry_out(experiment(), tmp_path)
    place = tmp_path / "runs/paper2017/table1/laptop/rnn-1"
    for name, entry in (("environment.json", {"gpu": gpu}), ("config.json", {"device": device})):
        (place / name).write_text(json.dumps({**entries(place / name), **entry}))
    content = carry_out(experiment(), tmp_path)
    first, second = content["runs"]
    assert (first["gpu"], second["gpu"], second["config"]["device"]) == (None, gpu, device)
    row = content["rows"][0]
    assert row["note"] == note
    clock = "seconds" if note.startswith("on") else "cpu_seconds"  # on a GPU the processor's is not what it took
    assert row["minutes"] == pytest.approx((first["cpu_seconds"] + second[clock]) / 120)
    shutil.rmtree(tmp_path / "runs")
    assert carry_out(experiment(), tmp_path, train=False)["rows"] == content["rows"]  # from the records


def test_results_that_name_no_gpu_are_of_a_cpu(tmp_path):
    """Those of before it was recorded."""
    carry_out(experiment(), tmp_path)
    file = tmp_path / "results/paper2017/table1/laptop.json"
    content = entries(file)
    for run in content["runs"]:
        del run["gpu"]
    file.write_text(json.dumps(content))
    shutil.rmtree(tmp_path / "runs")
    again = carry_out(experiment(), tmp_path, train=False)
    assert again["rows"] == content["rows"]


def test_another_configuration_is_refused(tmp_path):
    carry_out(experiment(), tmp_path)
    with pytest.raises(ArgumentError, match="another configuration"):
        carry_out(experiment(evaluation_batch=7), tmp_path)


@pytest.mark.parametrize("train", [True, False])
def test_results_of_another_configuration_are_neither_shown_nor_replaced(train, tmp_path):
    carry_out(experiment(), tmp_path)
    file = tmp_path / "results/paper2017/table1/laptop.json"
    before = file.read_bytes()
    shutil.rmtree(tmp_path / "runs")
    with pytest.raises(
        ArgumentError, match=r"laptop\.json .* rnn, seed 0, accumulate was 1 and is 2\. Move the file away"
    ):
        carry_out(experiment(accumulate=2), tmp_path, train=train)
    assert file.read_bytes() == before
    assert not (tmp_path / "runs").exists()
    content = json.loads(before)
    content["runs"][1]["config"]["model"]["name"] = "removed"
    file.write_text(json.dumps(content))
    with pytest.raises(ArgumentError, match=r"rnn, seed 1, .*model\.name: unknown name 'removed'"):
        carry_out(experiment(), tmp_path, train=train)
    file.write_bytes(before)
    assert carry_out(experiment(checkpoint_seconds=7.0), tmp_path, train=False)["complete"]


def test_collecting_trains_nothing(tmp_path):
    content = carry_out(experiment(), tmp_path, train=False)
    assert content["missing"] == ["not begun, 2 of 2 runs: rnn-0, rnn-1"]
    assert not (tmp_path / "runs").exists()


def test_collecting_leaves_what_has_no_runs_as_it_is(tmp_path, capsys):
    words = ["reproduce", "rusch2022", "--only", "adding", "--budget", "smoke", "--runs", str(tmp_path / "runs")]
    assert cli.main([*words, "--collect"]) == 0
    assert "adding: left as it is, because it has no run directories" in capsys.readouterr().out
    assert not (tmp_path / "runs").exists()
    assert cli.main(words) == 0
    assert "adding: measuring, for about 0.01 h\n" in capsys.readouterr().out


def test_a_missing_data_folder_is_named(tmp_path):
    with pytest.raises(DataError, match="--data"):
        Setting("smoke", tmp_path).folder("mnist")


def test_row_forms():
    row = dataclasses.asdict(Row("a", 0.5, spread=0.25, form="{:.1%}"))
    assert results.reproduced({**row, "reproduced": row["value"]}) == "50.0% ± 25.0%"


def test_command(data, tmp_path, capsys):
    words = ["reproduce", "mhammedi2017", "--only", "table3", "--budget", "smoke", "--data", str(data)]
    assert cli.main([*words, "--runs", str(tmp_path)]) == 0
    assert "97.2%" in capsys.readouterr().out
    assert (tmp_path / "smoke-results/mhammedi2017/table3/smoke.json").exists()
    assert cli.main(["reproduce", "mhammedi2017", "--list"]) == 0
    assert "Table 3" in capsys.readouterr().out
    assert cli.main(["reproduce", "mhammedi2017", "--only", "table33"]) == 2
