"""What a run notices, and what it says then."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
import torch

from orthornn.errors import ArgumentError, NonFiniteError, OrthornnWarning
from orthornn.learn.tasks import Adding, Classify, Copying, Forecast
from orthornn.learn.training import OptimizerConfig, PenaltyConfig, Run, ScheduleConfig, Trainer, read_metrics, train
from orthornn.learn.training.batch_splitting import split_batch
from orthornn.learn.training.guards import largest_error
from support.run_cases import EPOCHS, config


class Spoilt(Adding):
    def problem(self):
        sound = super().problem()

        def train(step, batch_size, seed):
            batch = sound.train(step, batch_size, seed)
            if step == 17:
                batch.inputs[2, 1, 0] = float("nan")
            return batch

        return dataclasses.replace(sound, train=train)


def test_nan_in_the_data_is_blamed_on_the_data(tmp_path):
    settings = config(task=Spoilt(T=6, validation_size=5, test_size=5), checkpoint_every=5)
    with pytest.raises(NonFiniteError) as raised:
        train(settings, tmp_path)
    text = str(raised.value)
    assert "a finite training loss, but got nan at step 17 (seed 0)" in text
    assert "The inputs of the batch hold 1 values that are not finite: look at the data." in text
    assert "task.problem().train(17, 8, 0)" in text
    assert f"The last good checkpoint is {tmp_path / 'checkpoints' / 'step-00000015'}." in text
    assert (tmp_path / "checkpoints" / "step-00000015").is_dir()


def test_a_step_that_is_too_large_is_blamed_on_the_rate(tmp_path):
    settings = config("rnn", task=EPOCHS, optimizer=OptimizerConfig("rmsprop", lr=1e30), checkpoint_every=1)
    with pytest.raises(NonFiniteError, match=r"Lower lr and recurrent_lr, or set clip_norm=1 \(--lr, "):
        train(settings, tmp_path)


def test_huge_parameters_are_blamed_on_the_rate_and_not_on_the_data(tmp_path):
    """A target that is NaN is one that is not there, and W is orthogonal all the time."""
    rows = [f"{k % 7},{'' if k % 5 == 0 else k % 3}" for k in range(200)]
    (tmp_path / "data.csv").write_text("\n".join(["x,y", *rows]) + "\n")
    task = Forecast(data=str(tmp_path / "data.csv"), target="y", inputs="x", window=40, missing="hold")
    with pytest.raises(NonFiniteError, match=r"reaches .*: the update before was too large\. Lower lr"):
        train(config(task=task, optimizer=OptimizerConfig("sgd", lr=1e25)))


def test_weights_that_are_not_finite_are_never_saved(tmp_path):
    run = Run(config("lstm"), tmp_path)
    run.advance_to(3)
    run.checkpoint()
    run.advance_to(4)
    with torch.no_grad():
        run.trainer.model.head.bias[0] = float("inf")
    with pytest.raises(NonFiniteError, match=r"head\.bias is not finite after update 4.*step-00000003"):
        run.checkpoint()
    assert run.directory.checkpoints.steps() == [3]
    run.close()


def test_orthogonality_beyond_its_bound_is_said(tmp_path):
    with pytest.warns(OrthornnWarning, match=r"after update \d0, \|\|W'W - I\|\| .* its bound is 1e-12"):
        result = train(config("scornn", orthogonality_bound=1e-12), tmp_path)
    warned = [record for record in read_metrics(tmp_path / "metrics.jsonl") if record["kind"] == "warning"]
    assert [record["step"] for record in warned] == [10, 20, 30]
    assert 1e-12 < result.orthogonality_error < 8 * torch.finfo(torch.float32).eps
    assert train(config("lstm", steps=1)).orthogonality_error is None


def test_patience():
    """With a rate that rounding takes away nothing improves after the first validation; of equal ones the last counts."""
    result = train(config(optimizer=OptimizerConfig(lr=1e-30), validate_every=3, patience=4, steps=100))
    assert result.steps == 3 * 5
    assert not result.finished
    assert result.best["step"] == result.steps


def test_clipping_by_value():
    trainer = Trainer(config(optimizer=OptimizerConfig(lr=0.0, clip_value=1e-3)))
    trainer.update()
    largest = max(float(p.grad.abs().max()) for p in trainer.model.parameters())
    assert largest == pytest.approx(1e-3)


RATES = {
    ScheduleConfig(): [1.0] * 8,
    ScheduleConfig("step", every=3, factor=0.5): [1, 1, 1, 0.5, 0.5, 0.5, 0.25, 0.25],
    ScheduleConfig("exponential", every=2, factor=0.25): [0.5**k for k in range(8)],
    ScheduleConfig("cosine"): [(1 + torch.tensor(torch.pi * k / 8).cos().item()) / 2 for k in range(8)],
    ScheduleConfig("linear", factor=0.2): [1 - 0.1 * k for k in range(8)],
    ScheduleConfig(warmup=4): [0.01 + 0.99 * min(k, 4) / 4 for k in range(8)],
    ScheduleConfig("cosine", factor=0.1, warmup=3): [
        *(0.01 + 0.99 * k / 3 for k in range(3)),
        *(0.1 + 0.9 * (1 + torch.tensor(torch.pi * k / 5).cos().item()) / 2 for k in range(5)),
    ],
    ScheduleConfig("linear", warmup=4): [0.01 + 0.99 * k / 4 for k in range(4)] + [1 - k / 4 for k in range(4)],
}


@pytest.mark.parametrize("schedule", RATES)
def test_schedules(schedule):
    trainer = Trainer(config(schedule=schedule, steps=8, optimizer=OptimizerConfig(lr=0.5)))
    seen = []
    for _ in range(8):
        seen.append([group["lr"] for group in trainer.optimizer.param_groups])
        trainer.update()
    assert [rest for rest, _ in seen] == pytest.approx([0.5 * rate for rate in RATES[schedule]], rel=1e-6)
    assert [recurrent for _, recurrent in seen] == pytest.approx([0.05 * rate for rate in RATES[schedule]], rel=1e-6)


@pytest.mark.parametrize(("warmup", "steps"), [(8, 8), (9, 8), (100, 50), (1, 1)])
@pytest.mark.parametrize("name", ["constant", "cosine", "linear", "step"])
def test_a_warmup_as_long_as_the_training_is_an_error(name, warmup, steps, tmp_path):
    wrong = config(schedule=ScheduleConfig(name, warmup=warmup), steps=steps)
    with pytest.raises(
        ArgumentError, match=f"shorter than the training of {steps} updates?, but got {warmup}, with which no"
    ):
        train(wrong, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_the_longest_warmup_reaches_the_learning_rate():
    settings = config(schedule=ScheduleConfig("cosine", warmup=7), steps=8, optimizer=OptimizerConfig(lr=0.5))
    run = Run(settings)
    run.advance_to(7)
    assert run.trainer.optimizer.param_groups[0]["lr"] == pytest.approx(0.5)


def test_the_plateau_schedule():
    trainer = Trainer(
        config(schedule=ScheduleConfig("plateau", every=1, factor=0.5), optimizer=OptimizerConfig(lr=1.0))
    )
    rates = []
    for recall in (0.2, 0.3, 0.3, 0.3, 0.4):  # higher is better
        trainer.validated({"loss": 1.0, trainer.objective.metric: recall})
        rates.append(trainer.optimizer.param_groups[0]["lr"])
    assert rates == [1, 1, 1, 0.5, 0.5]


@pytest.mark.parametrize("task", [Copying(T=3), Adding(T=6)], ids=["every step", "last step"])
@pytest.mark.parametrize("name", ["ornn-rotations", "lstm"])
def test_accumulated_gradients_are_those_of_the_whole_batch(name, task):
    parts_agree_with_the_whole(name, 3, task=task)


def parts_agree_with_the_whole(name, count, **options):
    """Sums of gradients in another order."""
    gradients = []
    for accumulate in (1, count):
        torch.manual_seed(0)
        trainer = Trainer(config(name, accumulate=accumulate, optimizer=OptimizerConfig(lr=0.0), **options))
        value = trainer.update()
        gradients.append((value, [p.grad for p in trainer.model.parameters() if p.grad is not None]))
    (one, whole), (other, parts) = gradients
    eps = torch.finfo(torch.float32).eps
    assert one == pytest.approx(other, rel=8 * eps)
    for a, b in zip(whole, parts, strict=True):
        assert (a - b).norm() <= 64 * eps * max(float(a.norm()), eps)


@pytest.mark.parametrize("case", ["class weights", "unknown targets", "forecast"])
def test_accumulated_gradients_where_targets_do_not_count_alike(case, tmp_path):
    """Parts were weighed by their sequences: with class weights, gradients were off by tens of percents."""
    random, rows = np.random.default_rng(0), []
    for s in range(40):
        for _ in range(5 + s % 3):
            label = "ab"[s % 5 == 0] if case != "unknown targets" or s % 4 else ""
            rows.append(f"{s},{random.standard_normal():.6g},{label},{random.standard_normal():.6g}")
    path = tmp_path / "a.csv"
    path.write_text("id,x,label,y\n" + "\n".join(rows) + "\n")
    options = {"data": str(path), "sequence": "id"}
    if case == "forecast":
        task = Forecast(**options, target="x", inputs="x,y", skipped=2)
    else:
        weights = "balanced" if case == "class weights" else None
        task = Classify(**options, target="label", inputs="x,y", class_weights=weights, missing="hold")
    parts_agree_with_the_whole("lstm", 4, task=task, batch_size=8)


def test_parts_hold_every_sequence_once():
    task = Copying(T=3)
    batch = task.problem().train(0, 7, 0)
    parts = split_batch(task.objective(), batch, 3)
    assert [part.inputs.shape[1] for part, _ in parts] == [2, 2, 3]
    assert sum(weight for _, weight in parts) == pytest.approx(1)
    assert torch.equal(torch.cat([part.inputs for part, _ in parts], 1), batch.inputs)
    with pytest.raises(ArgumentError, match="at least 8 sequences in a batch, one for each part, but got 7"):
        split_batch(task.objective(), batch, 8)


@pytest.mark.parametrize("name", ["ornn", "scornn", "lstm"])
def test_autocast_is_near_float32_and_the_matrix_stays_float32(name):
    plain, mixed = (Trainer(config(name, autocast=autocast)) for autocast in (None, "bfloat16"))
    one, other = plain.update(), mixed.update()
    assert one != other
    assert one == pytest.approx(other, rel=8 * torch.finfo(torch.bfloat16).eps)
    assert all(p.dtype == torch.float32 for p in mixed.model.parameters())
    for _ in range(3):
        mixed.update()
    error = largest_error(mixed.model)
    assert (error is None) is (name == "lstm")
    assert error is None or error < 8 * torch.finfo(torch.float32).eps


@pytest.mark.parametrize("name", ["ornn-rotations", "lt-ornn", "eurnn"])
def test_penalties_on_activations_under_autocast_are_near_those_in_float32(name):
    penalties = PenaltyConfig(norm_stabilizer=0.5, gradient_norm=0.5)
    found = []
    for autocast in (None, "bfloat16"):
        trainer = Trainer(config(name, task=EPOCHS, autocast=autocast, penalties=penalties))
        found.append(trainer._loss(trainer.config.task.problem().train(0, 8, 0))[1].item())
        trainer.update()
    # squared differences of norms: relative errors of the norms count twice, and against their differences
    assert found[1] == pytest.approx(found[0], rel=32 * torch.finfo(torch.bfloat16).eps)


def test_wrong_settings():
    for changes, words in {
        ("accumulate", 9): "accumulate to be an integer between 1 and 8",
        ("patience", 0): "patience to be",
        ("autocast", "float16"): "autocast to be one of 'bfloat16'",
        ("keep_checkpoints", 0): "keep_checkpoints to be",
    }.items():
        with pytest.raises(ArgumentError, match=words):
            dataclasses.replace(config(), **dict([changes]))
    with pytest.raises(ArgumentError, match="Expected warmup=0 with the schedule plateau, but got"):
        ScheduleConfig("plateau", warmup=3)
    with pytest.raises(ArgumentError, match="Did you mean 'cosine'"):
        ScheduleConfig("cosin")


def test_a_metric_of_which_there_is_nothing_is_left_out(tmp_path):
    """mape of a test part that is zero throughout has no step: a division by zero ended the run for good."""
    random = np.random.default_rng(0)
    values = [f"{abs(random.standard_normal()):.4g}" for _ in range(80)] + ["0"] * 40
    path = tmp_path / "a.csv"
    path.write_text("y\n" + "\n".join(values) + "\n")
    result = train(
        config("lstm", task=Forecast(data=str(path), target="y", skipped=2, window=8), steps=2, batch_size=4)
    )
    assert "mape" not in result.test
    assert math.isfinite(result.test["mse"])
