"""Systems trained side by side: the sweep, what is repeated, and what fails."""

from __future__ import annotations

import contextlib
import io
import json

import pytest

from orthornn import cli
from orthornn.errors import ArgumentError
from orthornn.learn.systems import MODELS
from orthornn_evidence import leaderboard, leaderboard_runs
from orthornn_evidence.leaderboard_runs import FAILED, Plan, rates_of, run_plan, systems_of

TASK = ("copying", "--T", "3", "--validation-size", "5", "--test-size", "5", "--batch-size", "4")


@pytest.fixture
def calls(monkeypatch):
    """Runs in this process, without the seconds that a new one takes to start."""
    made = []

    def run(words):
        made.append(words)
        said = io.StringIO()
        with contextlib.redirect_stderr(said), contextlib.redirect_stdout(io.StringIO()):
            try:
                status = cli.main(words)
            except SystemExit as stop:
                status = int(stop.code or 0)
        return status, said.getvalue()

    monkeypatch.setattr(leaderboard_runs, "_run", run)
    return made


def test_the_best_rate_of_the_sweep_gets_all_seeds_and_nothing_is_repeated(calls, tmp_path):
    said: list[str] = []
    plan = Plan(TASK, ("scornn",), (1e-9, 0.01), steps=8, share=0.5, seeds=1, budget=2000)
    found = run_plan(plan, tmp_path, said.append)
    assert [path.name for path in found] == ["scornn-0.01-s0"]
    assert len(calls) == 3
    for path, steps in ((tmp_path / "scornn-sweep-0.01", 4), (found[0], 8)):
        assert json.loads((path / "result.json").read_text())["steps"] == steps
    assert "scornn: the learning rate 0.01" in said
    assert run_plan(plan, tmp_path, said.append) == found
    assert len(calls) == 3


def test_a_system_that_comes_to_no_end_is_named_and_the_others_go_on(calls, tmp_path):
    said: list[str] = []
    diverges = ("--optimizer", "sgd", "--recurrent-lr", "1e30", "--log-every", "1")
    plan = Plan((*TASK, *diverges), ("scornn", "lstm"), (1e30, 1e31), steps=4, seeds=1, budget=2000)
    found = run_plan(plan, tmp_path, said.append)
    assert [path.name.split("-")[0] for path in found] == ["lstm"]  # whose gates saturate
    assert "scornn: no learning rate of 1e+30, 1e+31 finished" in said
    assert (tmp_path / "scornn-sweep-1e+30" / FAILED).read_text()
    count = len(calls)
    assert run_plan(plan, tmp_path, said.append) == found
    assert len(calls) == count
    assert any("failed before" in line and "to try again, remove" in line for line in said)


def test_what_did_not_begin_is_tried_again(calls, tmp_path, monkeypatch):
    """Options with a mistake, or data that are not there yet, are no result."""
    said: list[str] = []
    wrong = Plan((*TASK, "--seconds", "x"), ("lstm",), (0.1,), steps=2, seeds=1, budget=2000)
    assert run_plan(wrong, tmp_path, said.append) == []
    assert (tmp_path / "lstm-0.1-s0" / FAILED).exists()
    assert run_plan(wrong, tmp_path, said.append) == []
    assert len(calls) == 2
    right = Plan(TASK, ("lstm",), (0.1,), steps=2, seeds=1, budget=2000)
    (path,) = run_plan(right, tmp_path, said.append)
    assert path.name == "lstm-0.1-s0"
    assert not (path / FAILED).exists()


def test_a_mistake_in_what_all_systems_share_is_reported_once_and_nothing_is_trained(calls, tmp_path, capsys):
    """Not once for each system, rate and seed."""
    words = ["run", "--lrs", "0.1,0.2", "--epochs", "1", "--runs", str(tmp_path / "runs"), "--out", str(tmp_path)]
    assert leaderboard.main([*words, "--", "pixel-mnist", "--data", str(tmp_path / "nowhere")]) == 2
    said = capsys.readouterr()
    assert len(calls) == 2
    assert (said.out + said.err).count("nowhere") == 1
    assert "for the reason above. Nothing was trained. Correct the words after --." in said.err
    assert not list((tmp_path / "runs").glob("*/config.json"))


def test_a_mistake_of_one_system_does_not_stop_the_others(calls, tmp_path):
    """Its reason is reported once, not for each rate and seed."""
    said: list[str] = []
    systems = ("lstm --hidden x", "scornn")
    (path,) = run_plan(Plan(TASK, systems, (0.1,), steps=2, seeds=1, budget=900), tmp_path / "differ", said.append)
    assert path.name == "scornn-0.1-s0"
    calls.clear()
    systems = ("scornn", "lstm --negatives 3", "gru --negatives 3")
    plan = Plan(TASK, systems, (0.1, 0.2), steps=2, share=0.5, seeds=2, budget=900)
    assert len(run_plan(plan, tmp_path / "later", said.append)) == 2
    assert len(calls) == 4 + 2


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    "change", [{"steps": 3}, {"budget": 1500}, {"task": (*TASK, "--clip-norm", "1")}, {"systems": ("lstm --head mlp",)}]
)
def test_a_folder_of_other_runs_is_not_taken_for_these(calls, tmp_path, change):
    options = {"task": TASK, "systems": ("lstm",), "rates": (0.1,), "steps": 2, "seeds": 1, "budget": 2000}
    plan, said = Plan(**options), []
    (path,) = run_plan(plan, tmp_path, said.append)
    assert run_plan(plan, tmp_path, said.append) == [path]
    other = Plan(**{**options, **change})
    if "systems" in change:
        path.rename(tmp_path / "lstm-head-mlp-0.1-s0")
    with pytest.raises(ArgumentError, match=r"to hold the run of this command, train copying .*--runs, or remove"):
        run_plan(other, tmp_path, said.append)
    assert len(calls) == 1


def test_a_run_that_no_leaderboard_began_is_not_taken_for_its_own(calls, tmp_path):
    plan = Plan(TASK, ("lstm",), (0.1,), steps=2, seeds=1, budget=2000)
    (path,) = run_plan(plan, tmp_path, lambda text: None)
    (path / "command.json").unlink()
    with pytest.raises(ArgumentError, match=r"but got one that a leaderboard did not begin\. Pass another folder with"):
        run_plan(plan, tmp_path, lambda text: None)


def test_a_rate_whose_validation_is_not_a_number_is_not_chosen(calls, tmp_path, monkeypatch):
    scores = iter([float("nan"), -2.0, -1.0])
    monkeypatch.setattr(leaderboard_runs, "_score", lambda path: next(scores))
    plan = Plan(TASK, ("lstm",), (0.1, 0.2, 0.3), steps=1, seeds=1, budget=900)
    assert [path.name for path in run_plan(plan, tmp_path, lambda line: None)] == ["lstm-0.3-s0"]


def test_options_with_blanks_reach_the_run_as_one_word():
    plan = Plan(("sales.csv",), ("lstm --target 'unit price'",), (0.1,), steps=2)
    words = plan.words("lstm --target 'unit price'", 0.1, 0)
    assert words[words.index("--target") + 1] == "unit price"


def test_a_system_may_have_options_of_its_own(calls, tmp_path):
    systems = systems_of("blocks, blocks --decay True --decay-in first")
    plan = Plan(TASK, systems, (0.01,), steps=2, seeds=1, budget=2000)
    plain, first = run_plan(plan, tmp_path)
    assert [plain.name, first.name] == ["blocks-0.01-s0", "blocks-decay-True-decay-in-first-0.01-s0"]
    for path, decay, where in ((plain, None, None), (first, True, "first")):
        model = json.loads((path / "config.json").read_text())["model"]
        assert (model["name"], model["decay"], model["decay_in"]) == ("blocks", decay, where)
    with pytest.raises(ArgumentError, match="Expected system"):
        Plan(TASK, ("block --decay True",), (0.01,), steps=2)


def test_commas_within_quotes_belong_to_an_option():
    """A column `a, b`, or several quantiles, are one word of one system."""
    systems = systems_of("""lstm --target 'a, b' --head mlp,gru, "blocks --known \\"x,y\\"", ornn --target a\\,b""")
    assert systems == ("lstm --target 'a, b' --head mlp", "gru", '"blocks --known \\"x,y\\""', "ornn --target a\\,b")
    for quoted in ("lstm --quantiles '0.1,0.9'", 'lstm --quantiles "0.1,0.9"', "lstm --quantiles=0.1\\,0.9"):
        (system,) = systems_of(quoted)
        words = " ".join(Plan(("sales.csv",), (system,), (0.1,), steps=2).words(system, 0.1, 0)).replace("=", " ")
        assert "--model lstm --quantiles 0.1,0.9 --parameters" in words
    assert systems_of("lstm,,gru, ") == ("lstm", "gru")
    assert systems_of(" all ") == tuple(MODELS)


@pytest.mark.parametrize("words", ["lstm --target 'a,gru", 'lstm,gru --target "a', "lstm\\"])
def test_a_quote_that_is_not_closed_is_an_error(words):
    with pytest.raises(ArgumentError, match="Close the quote"):
        systems_of(words)


def test_a_comma_without_quotes_is_explained():
    systems = systems_of("gru,lstm --quantiles 0.1,0.9")
    with pytest.raises(
        ArgumentError, match=r"but got '0.9'. If it belongs to 'lstm --quantiles 0.1', put that value into"
    ):
        Plan(("sales.csv",), systems, (0.1,), steps=2)
    with pytest.raises(ArgumentError, match="Did you mean 'gru'"):
        Plan(("sales.csv",), systems_of("lstm --head mlp,gruu"), (0.1,), steps=2)
    with pytest.raises(ArgumentError, match=r"Expected system to be one of"):
        Plan(("sales.csv",), systems_of("lstm,x9"), (0.1,), steps=2)


@pytest.mark.parametrize(
    ("systems", "task", "message"),
    [
        (
            "blocks --parameters 8k",
            (),
            r"--parameters once, but got it twice: 8k and 16400\. A run of 'blocks --parameters 8k'",
        ),
        ("lstm", ("--lr", "1"), r"--lr once, but got it twice: 1 and 0\.1\..*Name each in one place"),
        ("lstm --head mlp", ("--head=linear",), "--head once, but got it twice: mlp and linear"),
        ("lstm", ("--model", "gru"), "--model once, but got it twice: lstm and gru"),
        ("recipe:linear", ("--recipe", "blocks"), "--recipe once, but got it twice: linear and blocks"),
        ("lstm", ("--seed", "3"), "--seed once, but got it twice: 3 and 0"),
        ("lstm", ("--out", "x"), "--out once, but got it twice: x and the folder of each run"),
        (
            "lstm",
            ("--epochs", "3"),
            "the length of a run only as --epochs or --steps of the leaderboard, but got --epochs",
        ),
    ],
)
def test_no_option_of_a_run_is_named_twice(systems, task, message):
    with pytest.raises(ArgumentError, match=message):
        Plan((*TASK, *task), systems_of(systems), (0.1,), steps=5)


def test_the_command_stores_what_it_trained(calls, tmp_path):
    words = ["run", "--systems", "lstm", "--lrs", "0.01", "--steps", "3", "--seeds", "1", "--budget", "900"]
    out = ["--runs", str(tmp_path / "runs"), "--out", str(tmp_path / "board")]
    assert leaderboard.main([*words, *out, "--", *TASK]) == 0
    (one,) = json.loads((tmp_path / "board" / "copying-T-3.json").read_text())
    assert one["system"] == "lstm"
    assert one["parameters"] <= 900
    assert one["updates"] == 3
    assert "lstm" in (tmp_path / "board" / "README.md").read_text()


def test_the_words_of_a_run():
    plan = Plan(("pixel-mnist", "--permuted"), ("recipe:linear",), (0.002,), epochs=10, budget=9000)
    assert " ".join(plan.words("recipe:linear", 0.002, 4, 0.1)) == (
        "train pixel-mnist --recipe linear --parameters 9000 --permuted --lr 0.002 --epochs 1 --seed 4"
    )
    assert systems_of("all") == tuple(MODELS)
    assert systems_of("lstm,gru") == ("lstm", "gru")
    assert rates_of("1e-3,0.2") == rates_of(" 1e-3, 0.2, ") == (0.001, 0.2)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"task": ()}, "Expected a task after --, but there is none"),
        ({"systems": ()}, "at least one system"),
        ({"steps": None}, "Expected epochs or steps, but got epochs=None and steps=None"),
        ({"epochs": 3}, "Expected epochs or steps, but got epochs=3 and steps=5"),
        ({"systems": ("lsmt",)}, "Did you mean 'lstm'"),
        ({"seeds": 0}, "seeds"),
        ({"share": 2.0}, "share"),
        ({"share": 0.0}, "share to be above 0"),
        ({"steps": None, "epochs": 0.0}, "epochs to be a positive number"),
        ({"rates": (0.1, 0.0)}, "learning rates above 0"),
        ({"rates": (float("nan"),)}, "learning rate to be a finite number"),
        ({"systems": ("lstm 'a",)}, "Close the quote"),
        ({"systems": (" ",)}, "Expected the name of a model"),
    ],
)
def test_what_it_refuses(options, message):
    with pytest.raises(ArgumentError, match=message):
        Plan(**{"task": TASK, "systems": ("lstm",), "rates": (0.1,), "steps": 5, **options})
    with pytest.raises(ArgumentError, match="Expected learning rates separated by commas, but got 'x'"):
        rates_of("x")
