from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from orthornn.errors import ArgumentError
from orthornn.learn.tasks import Adding

FIXED = Adding(T=9, variant="helfrich2018", train_size=23)


@given(
    T=st.integers(4, 50),
    batch=st.integers(1, 6),
    step=st.integers(0, 10**6),
    variant=st.sampled_from(["mhammedi2017", "helfrich2018"]),
)
@settings(max_examples=40, deadline=None)
def test_the_target_is_the_sum_of_one_marked_number_in_each_half(T, batch, step, variant):
    task = Adding(T=T, variant=variant, train_size=13)
    inputs, targets = task.problem().train(step, batch, 3)
    assert inputs.shape == (T, batch, 2)
    assert targets.shape == (batch, 1)
    values, marks = inputs.unbind(-1)
    assert bool(((values >= 0) & (values < 1)).all())
    assert set(marks.flatten().tolist()) <= {0.0, 1.0}
    assert torch.equal(marks[: T // 2].sum(0), torch.ones(batch))
    assert torch.equal(marks[T // 2 :].sum(0), torch.ones(batch))
    if variant == "helfrich2018":
        assert not marks[0].any()
    # two float32 numbers: their sum is rounded once, whatever the order
    assert torch.equal((values * marks).sum(0), targets[:, 0])


@pytest.mark.parametrize(("variant", "first"), [("mhammedi2017", 0), ("helfrich2018", 1)])
def test_every_step_of_its_interval_is_marked_now_and_then(variant, first):
    task = Adding(T=11, variant=variant, train_size=2000)
    marks = task.problem().train(0, 2000, 0).inputs[..., 1]
    # each step is missed 2000 times with probability below (5/6)^2000
    assert marks.any(1).tolist() == [step >= first for step in range(11)]


def test_answering_one_has_the_trivial_loss():
    task = Adding(T=6)
    targets = task.problem().train(0, 200_000, 0).targets.double()
    loss = float(task.objective().loss(torch.ones_like(targets), targets))
    # the standard deviation of (u1 + u2 - 1)^2 is sqrt(1/15 - 1/36) < 0.2; five of them over sqrt(count)
    assert loss == pytest.approx(task.objective().trivial_loss, abs=5 * 0.2 / math.sqrt(200_000))
    assert task.objective().trivial_loss == pytest.approx(1 / 6)


def test_an_epoch_of_the_fixed_set_shows_each_sequence_once():
    assert FIXED.steps_per_epoch(5) == 4
    assert Adding(T=9).steps_per_epoch(5) is None
    seen = [tuple(row) for step in range(23) for row in FIXED.problem().train(step, 1, 0).inputs[..., 0].T.tolist()]
    again = [
        tuple(row) for step in range(23, 46) for row in FIXED.problem().train(step, 1, 0).inputs[..., 0].T.tolist()
    ]
    assert len(set(seen)) == 23
    assert set(again) == set(seen)
    assert again != seen


def test_fresh_batches_differ_and_repeat_by_address():
    task = Adding(T=9)
    assert not torch.equal(task.problem().train(0, 4, 0).inputs, task.problem().train(1, 4, 0).inputs)
    assert not torch.equal(task.problem().train(0, 4, 0).inputs, task.problem().train(0, 4, 1).inputs)
    assert torch.equal(task.problem().train(5, 4, 2).inputs, Adding(T=9).problem().train(5, 4, 2).inputs)


def test_held_out_sequences_are_not_training_sequences():
    task = Adding(T=9, variant="helfrich2018", train_size=50, validation_size=20, test_size=30)
    rows = [
        tuple(row)
        for batch in (task.problem().train(0, 50, 0), *task.problem().validation(7), *task.problem().test(7))
        for row in batch.inputs[..., 0].T.tolist()
    ]
    assert len(rows) == len(set(rows)) == 100


@pytest.mark.parametrize(
    "options",
    [
        {"T": 1},
        {"T": 3, "variant": "helfrich2018"},
        {"variant": "helfrich2019"},
        {"train_size": 0},
    ],
)
def test_a_wrong_option_is_named(options):
    with pytest.raises(ArgumentError, match=list(options)[-1] if "variant" not in options else "T|variant"):
        Adding(**options)


def test_a_batch_larger_than_the_fixed_set_is_refused():
    with pytest.raises(ArgumentError, match="batch_size to be an integer between 1 and 23, but got 24"):
        FIXED.problem().train(0, 24, 0)


def test_half_the_sum_has_a_quarter_of_the_trivial_loss():
    half, whole = Adding(T=9, variant="vorontsov2017-code"), Adding(T=9, variant="vorontsov2017")
    assert torch.equal(half.problem().train(0, 5, 0).targets * 2, whole.problem().train(0, 5, 0).targets)
    assert half.objective().trivial_loss == pytest.approx(1 / 24)
    assert whole.objective().trivial_loss == pytest.approx(1 / 6)


def test_the_released_adding_marks_two_steps_anywhere():
    marks = Adding(T=6, variant="mhammedi2017-code").problem().train(0, 3000, 0).inputs[..., 1]
    assert torch.equal(marks.sum(0), torch.full((3000,), 2.0))
    # each of the 15 pairs is missed 3000 times with probability (14/15)^3000
    assert len({tuple(column.nonzero()[:, 0].tolist()) for column in marks.T}) == 15
