from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from orthornn.cli import main
from orthornn.errors import ArgumentError, ConfigError, DataError, Interrupted
from orthornn.learn import sweep
from orthornn.learn.report.runs import read_runs
from orthornn.learn.training import train
from support.run_cases import config, numbers

BASE = config(steps=20)


def test_the_grid_is_complete_and_the_draws_repeat():
    grid = {"lr": [0.1, 0.01], "model": ["ornn", "lstm"]}
    made = sweep.trials(BASE, grid, {"recurrent_lr": sweep.Range(1e-4, 1e-2)}, samples=3, seeds=2)
    assert len(made) == 2 * 2 * 3 * 2
    assert made == sweep.trials(BASE, grid, {"recurrent_lr": sweep.Range(1e-4, 1e-2)}, samples=3, seeds=2)
    settings = {(c.optimizer.lr, c.model.name, c.optimizer.recurrent_lr) for c in made.values()}
    assert len(settings) == 12
    assert all(1e-4 <= rate <= 1e-2 for _, _, rate in settings)
    assert {c.seed for c in made.values()} == {0, 1}
    assert list(sweep.trials(BASE, {}, {}).values()) == [BASE]


def test_what_is_counted_is_drawn_as_whole_numbers():
    spans = {"hidden_size": sweep.Range(4, 6), "task.T": sweep.Range(8, 9), "lr": sweep.Range(1, 2)}
    made = sweep.trials(BASE, {}, spans, samples=40).values()
    assert {c.model.hidden_size for c in made} == {4, 5, 6}
    assert {c.task.T for c in made} == {8, 9}
    assert any(c.optimizer.lr % 1 for c in made)
    with pytest.raises(ArgumentError, match=r"ends of a range of whole numbers to be whole, but got 4..6.5"):
        sweep.trials(BASE, {}, {"hidden_size": sweep.Range(4, 6.5)})


@pytest.mark.parametrize(
    ("grid", "error", "message"),
    [
        ({"lrr": [1]}, ArgumentError, "Did you mean 'lr'"),
        ({"name": ["x"]}, ArgumentError, "Expected the whole name"),
        ({"lr": ["fast"]}, ConfigError, "optimizer.lr: needed a number, got 'fast'"),
        ({"model": ["lstn"]}, ConfigError, "lstm"),
        ({"lr": [0.1, 0.01, 0.1]}, ArgumentError, "the values of lr to be different"),
        ({"lr": [1, 0.01, 1.0]}, ArgumentError, "the values of lr to be different"),
        ({"lr": []}, ArgumentError, "at least one"),
        ({"lr": [0.1], "optimizer.lr": [0.2]}, ArgumentError, r"got optimizer\.lr twice"),
        ({"seed": [1, 2]}, ArgumentError, "Expected settings to vary, but got seed"),
    ],
)
def test_wrong_settings(grid, error, message):
    with pytest.raises(error, match=message):
        sweep.trials(BASE, grid, {})


def test_a_range_of_what_is_no_number_is_refused():
    with pytest.raises(ConfigError, match="model"):
        sweep.trials(BASE, {}, {"model": sweep.Range(1, 2)})


def test_a_setting_is_in_the_grid_or_at_random():
    with pytest.raises(ArgumentError, match=r"got optimizer\.lr twice"):
        sweep.trials(BASE, {"lr": [0.1]}, {"lr": sweep.Range(0.1, 0.2)})


WORDS = ["copying", "--T", "3", "--hidden-size", "6", "--steps", "30", "--validate-every", "10", "--test-size", "20"]
WORDS += ["--validation-size", "20", "--batch-size", "8"]


@pytest.mark.parametrize(
    ("option", "value"),
    [("--grid", "lr"), ("--random", "lr=1"), ("--random", "lr=2..1"), ("--random", "lr=0..inf")],
)
def test_wrong_words(option, value, tmp_path, capsys):
    assert main(["sweep", *WORDS, option, value, "--out", str(tmp_path / "out")]) == 2
    assert f"{option[2:]} to be like" in capsys.readouterr().err


@pytest.mark.parametrize("cpus", ["0", "-1", "nan"])
def test_a_trial_needs_a_part_of_a_processor(cpus, tmp_path, capsys):
    assert main(["sweep", *WORDS, "--grid", "lr=0.1", "--cpus", cpus, "--out", str(tmp_path / "out")]) == 2
    assert "Expected cpus to be" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_a_name_that_is_given_twice_is_not_dropped(tmp_path, capsys):
    assert main(["sweep", *WORDS, "--grid", "lr=1e-3 lr=1e-4", "--out", str(tmp_path / "out")]) == 2
    assert "Expected lr once in" in capsys.readouterr().err


def test_a_trial_that_cannot_begin_is_not_retried_and_says_why(tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "ray", SimpleNamespace(tune=None))  # such a trial does not ask for it

    def here(configs, folder, **options):
        sweep.write_json(folder / "sweep.json", {name: trial.to_dict() for name, trial in configs.items()})
        for name, trial in configs.items():
            if trial.model.hidden_size:
                train(trial, folder / "runs" / name)
            else:
                sweep._trial({"folder": str(folder), "trial": name})

    monkeypatch.setattr(sweep, "run_sweep", here)
    (tmp_path / "some").mkdir()
    assert main(["sweep", *WORDS, "--grid", "hidden_size=0,6", "--out", str(tmp_path / "some")]) == 0
    out = capsys.readouterr().out
    assert "0000-hidden_size=0-seed=0 failed: Expected hidden_size to be an integer of at least 1, but got 0." in out
    (tmp_path / "none").mkdir()
    assert main(["sweep", *WORDS, "--grid", "hidden_size=0", "--out", str(tmp_path / "none")]) == 2
    assert "at least one trial to finish, but got none. 0000-hidden_size=0-seed=0 failed" in capsys.readouterr().err


def command(tmp_path, *words):
    path = {"PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1", "RAY_DISABLE_METRICS_COLLECTION": "1"}
    arguments = [sys.executable, "-m", "orthornn", "sweep", *WORDS, "--out", "swept", *words]
    return subprocess.Popen(
        arguments,
        cwd=tmp_path,
        env=os.environ | path,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def same_as_alone(folder: Path):
    """Every trial is, number for number, the run that its config describes."""
    runs = read_runs([folder / "runs"])
    for run in runs:
        assert run.result is not None
        assert numbers(run.records) == numbers(train(run.config).records)
    return len(runs)


@pytest.mark.cluster
def test_a_killed_sweep_goes_on(tmp_path):
    pytest.importorskip("ray")
    words = ["--grid", "lr=0.01,0.001 model=ornn,lstm", "--seeds", "2", "--steps", "600", "--checkpoint-every", "20"]
    process = command(tmp_path, *words)
    runs = tmp_path / "swept" / "runs"
    while len(list(runs.glob("*/result.json"))) < 2:
        assert process.poll() is None, process.stdout.read()
        time.sleep(0.2)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    done = {path: path.stat().st_mtime_ns for path in runs.glob("*/result.json")}
    assert len(done) < 8
    process = command(tmp_path, *words)
    out, _ = process.communicate(timeout=400)
    assert process.returncode == 0, out
    assert {path: path.stat().st_mtime_ns for path in done} == done  # what was finished is not done again
    assert same_as_alone(tmp_path / "swept") == 8
    assert (tmp_path / "swept" / "report.html").exists()
    print(f"killed after {len(done)} of 8 trials; {out.strip().splitlines()[-1]}")


@pytest.mark.cluster
def test_one_of_two_nodes_is_killed(tmp_path):
    """Its trials go on from their checkpoints on the other."""
    ray = pytest.importorskip("ray")
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    other = cluster.add_node(num_cpus=1)
    path = os.pathsep.join([str(Path(sweep.__file__).parents[2]), *sys.path])
    ray.init(address=cluster.address, runtime_env={"env_vars": {"PYTHONPATH": path, "OMP_NUM_THREADS": "1"}})
    folder = tmp_path / "swept"
    base = config("ornn", steps=3000, checkpoint_every=100, validate_every=200)
    configs = sweep.trials(base, {"lr": [0.01, 0.001]}, {}, seeds=2)
    resumed = []

    def kill():
        while len(list(folder.glob("runs/*/checkpoints/step-00000300"))) < 2:
            time.sleep(0.02)
        cluster.remove_node(other, allow_graceful=False)
        resumed.append(time.time())

    try:
        import threading

        killer = threading.Thread(target=kill)
        killer.start()
        sweep.run_sweep(configs, folder, quiet=True)
        killer.join(5)
    finally:
        ray.shutdown()
        cluster.shutdown()
    assert resumed
    assert same_as_alone(folder) == 4
    again = [
        path.parent.name
        for path in folder.glob("runs/*/metrics.jsonl")
        if any('"kind": "resume"' in line for line in path.read_text().splitlines())
    ]
    assert again
    print(f"one of two nodes killed; went on from a checkpoint: {', '.join(again)}")


def test_data_are_named_by_their_whole_path(tmp_path, monkeypatch):
    """A worker is in a folder of its own."""
    from orthornn.learn.tasks import Regress

    monkeypatch.chdir(tmp_path)
    found = sweep.with_absolute_data(config(task=Regress(data="a/b.csv", target="y")))
    assert found.task.data == str(tmp_path / "a" / "b.csv")
    assert sweep.with_absolute_data(BASE) == BASE


@pytest.fixture
def reports(monkeypatch):
    """What `_trial` uses of Ray."""
    made = []
    tune = SimpleNamespace(report=made.append)
    monkeypatch.setitem(sys.modules, "ray", SimpleNamespace(tune=tune))
    return made


def test_a_trial_whose_data_are_missing_fails_once(tmp_path, reports):
    from orthornn.learn.tasks import Regress

    bad = config(task=Regress(data=str(tmp_path / "none.csv"), target="y"))
    sweep.write_json(tmp_path / "sweep.json", {"bad": bad.to_dict(), "good": BASE.to_dict()})
    for name in ("bad", "good"):
        sweep._trial({"folder": str(tmp_path), "trial": name})
    assert list(sweep.failures(tmp_path)) == ["bad"]
    assert "none.csv" in sweep.failures(tmp_path)["bad"]
    assert reports


@pytest.fixture
def fake_ray(monkeypatch):
    """A Ray whose trials run in this process, one after another; `before` is called with the name of each.

    With `restores`, it resumes from its own state as Ray does: what returned once is not begun again. As in Ray, a trial that
    reports nothing is an error unless its strict check is switched off.
    """
    monkeypatch.delenv("TUNE_DISABLE_STRICT_METRIC_CHECKING", raising=False)
    state = SimpleNamespace(before=lambda name: None, restores=False, stored={}, begun=[], schedulers=[], reports=[])

    class Tuner:
        def __init__(self, trainable, param_space, run_config, tune_config):
            self.trainable, self.space = trainable, param_space
            self.left = list(param_space["trial"])
            state.stored[str(Path(run_config["storage_path"]) / run_config["name"])] = self
            state.schedulers.append(tune_config["scheduler"])

        @staticmethod
        def can_restore(path):
            return state.restores and path in state.stored

        @staticmethod
        def restore(path, trainable, resume_unfinished, restart_errored):
            return state.stored[path]

        def fit(self):
            for name in [*self.left]:
                if state.before(name) != "lost":
                    state.begun.append(name)
                    state.reports.clear()
                    self.trainable({**self.space, "trial": name})
                    if not state.reports and os.environ.get("TUNE_DISABLE_STRICT_METRIC_CHECKING") != "1":
                        raise ValueError("Trial returned a result which did not include the specified metric(s)")
                    self.left.remove(name)

    def keep(trainable, resources):
        return trainable

    def nothing(*values, **options):
        return None

    named = {"with_resources": keep, "grid_search": list, "Tuner": Tuner, "report": state.reports.append}
    tune = SimpleNamespace(**named, TuneConfig=dict, RunConfig=dict, FailureConfig=nothing)
    ray = SimpleNamespace(tune=tune, is_initialized=lambda: False, init=nothing, shutdown=nothing)
    monkeypatch.setitem(sys.modules, "ray", ray)
    monkeypatch.setitem(sys.modules, "ray.tune", tune)
    monkeypatch.setitem(sys.modules, "ray.tune.schedulers", SimpleNamespace(ASHAScheduler=lambda **options: "asha"))
    return state


@pytest.mark.sampled(1)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_a_sweep_that_the_same_command_resumes(number, fake_ray, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    words = ["sweep", *WORDS, "--grid", "lr=0.01,0.001", "--out", "swept"]
    fake_ray.before = lambda name: os.kill(os.getpid(), number) if name.startswith("0001") else None
    assert main(words) == 128 + number
    said = capsys.readouterr()
    assert (
        f"{number.name} ended the sweep in {tmp_path / 'swept'}; its trials are saved. Resume with the same" in said.err
    )
    assert "best validation" not in said.out  # no table of a part of the trials
    assert os.environ["TUNE_DISABLE_SIGINT_HANDLER"] == "1"
    fake_ray.before = lambda name: None
    assert main(words) == 0
    assert same_as_alone(tmp_path / "swept") == 2


def test_a_trial_whose_worker_was_lost_is_named(fake_ray, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    words = ["sweep", *WORDS, "--grid", "lr=0.01,0.001", "--out", "swept"]
    fake_ray.before = lambda name: "lost" if name.startswith("0001") else None
    assert main(words) == 0
    ended = "0001-lr=0.001-seed=0 did not end: its worker ended before it began. The same command begins it."
    assert ended in capsys.readouterr().out
    fake_ray.before = lambda name: None
    assert main(words) == 0
    assert "did not end" not in capsys.readouterr().out


def test_a_sweep_is_resumed_with_the_early_stopping_it_was_begun_with(fake_ray, tmp_path):
    configs = {"one": BASE}
    sweep.run_sweep(configs, tmp_path / "swept")
    with pytest.raises(
        ArgumentError, match=r"Expected early_stopping=False, .*, but got True\. Leave out --early-stopping"
    ):
        sweep.run_sweep(configs, tmp_path / "swept", early_stopping=True)
    (tmp_path / "swept" / "options.json").unlink()
    with pytest.raises(DataError, match=r"Expected to read .*options.json, but got: No such file.*Restore the file"):
        sweep.run_sweep(configs, tmp_path / "swept")


def test_a_sweep_begun_before_an_option_was_there_is_resumed(fake_ray, tmp_path):
    folder = tmp_path / "swept"
    sweep.run_sweep({"one": BASE}, folder)
    plain = json.loads((folder / "sweep.json").read_text())
    del plain["sha256"], plain["one"]["model"]["gain"], plain["one"]["seed"]
    (folder / "sweep.json").write_text(json.dumps(plain))
    sweep.run_sweep({"one": BASE}, folder)
    plain["one"]["steps"] += 1
    (folder / "sweep.json").write_text(json.dumps(plain))
    with pytest.raises(
        ArgumentError, match=r"Expected the sweep that .* holds, but got other runs: one differs\. Pass"
    ):
        sweep.run_sweep({"one": BASE}, folder)


def test_what_failed_is_tried_again_once_its_cause_is_gone(fake_ray, tmp_path):
    """For Ray, a trial that failed has ended: its own state does not begin it again."""
    from orthornn.learn.tasks import Regress

    fake_ray.restores, file, folder = True, tmp_path / "late.csv", tmp_path / "swept"
    configs = {"bad": config(task=Regress(data=str(file), target="y", sequence="s"), steps=2), "good": BASE}
    sweep.run_sweep(configs, folder, early_stopping=True)
    sweep.run_sweep(configs, folder, early_stopping=True)
    assert fake_ray.begun == ["bad", "good", "bad"]
    assert "late.csv" in sweep.failures(folder)["bad"]
    file.write_text("s,x,y\n" + "".join(f"{k // 4},{k % 7},{k // 4 % 5}\n" for k in range(80)))

    def stop(name):
        raise KeyboardInterrupt

    fake_ray.before = stop
    with pytest.raises(Interrupted):
        sweep.run_sweep(configs, folder, early_stopping=True)
    fake_ray.before = lambda name: None
    sweep.run_sweep(configs, folder, early_stopping=True)
    assert sweep.failures(folder) == {}
    assert (folder / "runs" / "bad" / "result.json").exists()
    assert fake_ray.schedulers == ["asha", None, None, None]
    before = [*fake_ray.begun]
    sweep.run_sweep(configs, folder, early_stopping=True)
    assert fake_ray.begun == before
    assert before.count("good") == 1


def test_a_trial_that_diverged_is_a_result_and_not_begun_again(fake_ray, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    fake_ray.restores = True
    words = ["sweep", *WORDS, "--model", "rnn", "--optimizer", "adam", "--grid", "lr=0.01,3e38", "--out", "swept"]
    assert main(words) == 0
    shown = capsys.readouterr().out
    (name,) = sweep.diverged(tmp_path / "swept")
    assert name == "0001-lr=3e+38-seed=0"
    assert f"{name} diverged: Expected a finite " in shown
    assert re.search(r"lr=3e\+38 +0 of 1 +diverged", shown)
    assert sweep.failures(tmp_path / "swept") == {}
    path = tmp_path / "swept" / "runs" / name
    before = {file: file.read_bytes() for file in path.rglob("*") if file.is_file()}
    fake_ray.restores = False  # Ray's own state is gone: it begins every trial
    assert main(words) == 0
    assert f"{name} diverged: Expected a finite " in capsys.readouterr().out
    assert {file: file.read_bytes() for file in path.rglob("*") if file.is_file()} == before
    flipped = (path / "diverged.json").read_text().replace('"step": ', '"step": 1')
    (path / "diverged.json").write_text(flipped)
    assert main(words) == 2
    assert "diverged.json was changed" in capsys.readouterr().err


def test_a_sweep_of_which_all_trials_diverged(fake_ray, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    words = ["sweep", *WORDS, "--model", "rnn", "--optimizer", "adam", "--grid", "lr=2e38,3e38", "--out", "swept"]
    assert main(words) == 2
    said = capsys.readouterr().err
    assert "at least one trial to finish, but got none. 0000-lr=2e+38-seed=0 diverged: " in said
    assert said.strip().endswith("Choose other settings.")
