from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from orthornn.errors import ArgumentError
from orthornn.learn.tasks import Batch, Copying


@given(
    T=st.integers(1, 60),
    symbols=st.integers(1, 9),
    items=st.integers(1, 12),
    batch=st.integers(1, 5),
    step=st.integers(0, 10**9),
    seed=st.integers(0, 2**63 - 1),
)
@settings(max_examples=40, deadline=None)
def test_the_targets_follow_from_the_inputs(T, symbols, items, batch, step, seed):
    task = Copying(T=T, symbols=symbols, items=items)
    inputs, targets = task.problem().train(step, batch, seed)
    assert inputs.shape == targets.shape == (task.steps, batch) == (T + 2 * items, batch)
    assert inputs.dtype == targets.dtype == torch.int64
    shown = inputs[:items]
    assert bool(((shown >= 1) & (shown <= symbols)).all())
    marker = torch.zeros(T + items, batch, dtype=torch.int64)
    marker[T] = symbols + 1
    assert torch.equal(inputs[items:], marker)
    assert torch.equal(targets[-items:], shown)
    assert not targets[:-items].any()


def test_the_papers_setting():
    task = Copying(T=1000)
    assert (task.problem().schema["input_size"], task.problem().schema["output_size"], task.steps) == (10, 10, 1020)
    assert task.objective().trivial_loss == pytest.approx(10 * math.log(8) / 1020, rel=1e-15)
    assert round(task.objective().trivial_loss, 4) == 0.0204
    inputs, _ = task.problem().train(0, 2000, 0)
    counts = torch.bincount(inputs[:10].flatten(), minlength=10)[1:9].double()
    # 20000 draws of 8 classes: 5 standard deviations of a binomial count
    assert (counts - 2500).abs().max() < 5 * math.sqrt(20000 * 1 / 8 * 7 / 8)


def trivial_prediction(task: Copying, batch: Batch) -> torch.Tensor:
    """Certain of the zeros, undecided among the symbols at the end."""
    prediction = torch.full((*batch.targets.shape, task.problem().schema["output_size"]), -1e4, dtype=torch.float64)
    prediction[: -task.items, :, 0] = 0
    prediction[-task.items :, :, 1 : task.symbols + 1] = 0
    return prediction


@pytest.mark.parametrize("task", [Copying(T=7), Copying(T=100), Copying(T=13, symbols=3, items=4)])
def test_the_trivial_predictor_reaches_the_trivial_loss(task):
    batch = task.problem().train(3, 6, 1)
    loss = task.objective().loss(trivial_prediction(task, batch), batch.targets)
    assert float(loss) == pytest.approx(task.objective().trivial_loss, rel=1e-12)


def test_the_right_answer_has_loss_zero_and_full_recall():
    task = Copying(T=9)
    batch = task.problem().train(0, 4, 0)
    prediction = 1e3 * torch.nn.functional.one_hot(batch.targets, 10).double()
    assert float(task.objective().loss(prediction, batch.targets)) == 0
    metrics = task.objective().metrics(prediction, batch.targets)
    assert metrics == {"loss": (0.0, 29 * 4), "recall": (40.0, 40)}
    wrong = prediction.roll(1, -1)
    assert task.objective().metrics(wrong, batch.targets)["recall"] == (0.0, 40)


def test_a_batch_is_a_function_of_seed_and_step():
    task = Copying(T=5)
    later = task.problem().train(7, 3, 1)
    first = [task.problem().train(step, 3, seed).inputs for step in (0, 1, 2) for seed in (0, 1)]
    assert torch.equal(Copying(T=5).problem().train(7, 3, 1).inputs, later.inputs)
    for i in range(len(first)):
        for j in range(i):
            assert not torch.equal(first[i], first[j])


def test_held_out_sequences_are_fixed_and_split_at_will():
    task = Copying(T=5, validation_size=11, test_size=7)
    whole = next(task.problem().validation(100))
    parts = list(task.problem().validation(4))
    assert [part.inputs.shape[1] for part in parts] == [4, 4, 3]
    assert torch.equal(torch.cat([part.inputs for part in parts], 1), whole.inputs)
    assert sum(part.targets.shape[1] for part in task.problem().test(2)) == 7
    # no 30-bit sequence of the three sets coincides
    train = task.problem().train(0, 50, 0).inputs[:10].T.tolist()
    sets = [
        {tuple(row) for row in rows}
        for rows in (whole.inputs[:10].T.tolist(), next(task.problem().test(7)).inputs[:10].T.tolist(), train)
    ]
    assert [len(rows) for rows in sets] == [11, 7, 50]
    assert len(set.union(*sets)) == 68


@pytest.mark.parametrize("options", [{"T": 0}, {"T": 1.5}, {"symbols": 0}, {"items": -1}, {"validation_size": 0}])
def test_a_wrong_option_is_named(options):
    with pytest.raises(ArgumentError, match=next(iter(options))):
        Copying(**options)


@pytest.mark.parametrize(
    ("variant", "marker"), [("helfrich2018", 15), ("helfrich2018-code", 14), ("vorontsov2017", 14)]
)
@pytest.mark.parametrize("T", [5, 10_000])
def test_where_the_marker_stands(variant, marker, T):
    inputs, targets = Copying(T=T, variant=variant).problem().train(3, 2, 1)
    marker += T - 5
    assert inputs.shape == targets.shape == (T + 20, 2)
    assert bool((inputs[marker] == 9).all())
    assert bool((inputs[:10] == targets[-10:]).all())
    assert int((inputs[10:] != 0).sum()) == 2
    assert not targets[:-10].any()
    assert Copying(T=T, variant=variant).objective().trivial_loss == pytest.approx(10 * math.log(8) / (T + 20))


def test_the_released_copying_has_one_number_for_ten_classes():
    task, paper = (Copying(T=7, variant=name) for name in ("vorontsov2017-code", "vorontsov2017"))
    assert [task.problem().schema[name] for name in ("input", "input_size", "output_size")] == ["real", 1, 10]
    numbers, classes = task.problem().train(0, 3, 0), paper.problem().train(0, 3, 0)
    assert numbers.inputs.dtype == torch.float32
    assert torch.equal(numbers.inputs[..., 0].long(), classes.inputs)
    assert torch.equal(numbers.targets, classes.targets)


def test_the_released_copying_meets_its_fixed_set_in_order():
    task = Copying(T=3, variant="helfrich2018-code")
    assert torch.equal(task.problem().train(1000, 20, 5).inputs, task.problem().train(0, 20, 0).inputs)
    both = torch.cat([task.problem().train(1, 20, 0).inputs, task.problem().train(2, 20, 0).inputs], 1)
    assert torch.equal(both, torch.cat([task.problem().train(0, 60, 0).inputs], 1)[:, 20:])


@pytest.mark.parametrize("variant", ["helfrich2018", "vorontsov2017", "helfrich2018-code", "vorontsov2017-code"])
def test_variable_delays_move_the_marker_and_the_answer_together(variant):
    task = Copying(T=9, items=3, variant=variant, variable=True)
    early = 0 if variant == "helfrich2018" else 1
    delays = set()
    for batch in (task.problem().train(2, 300, 5), next(task.problem().validation(200))):
        inputs = batch.inputs[..., 0].long() if task.problem().schema["input"] == "real" else batch.inputs
        for shown, wanted in zip(inputs.unbind(1), batch.targets.unbind(1)):
            (marker,) = (shown == 9).nonzero().flatten().tolist()
            start = marker + early
            delays.add(start - 3)
            assert torch.equal(wanted[start : start + 3], shown[:3])
            assert wanted.count_nonzero() == 3
            assert shown.count_nonzero() == 4
    assert delays == set(range(1, 10))
    batch = task.problem().train(2, 30, 5)
    right = torch.nn.functional.one_hot(batch.targets, 10).float()
    assert task.objective().metrics(right, batch.targets)["recall"] == (90.0, 90)
    assert task.objective().metrics(right.roll(1, 0), batch.targets)["recall"][0] < 60


def test_a_wrong_variant_is_named():
    with pytest.raises(ArgumentError, match=r"variant to be one of 'helfrich2018'.*Did you mean 'vorontsov2017'"):
        Copying(variant="vorontsov2018")
