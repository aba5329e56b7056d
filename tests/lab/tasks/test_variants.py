"""The variants of copying and adding, against the papers."""

from __future__ import annotations

import math

import pytest
import torch

from orthornn.errors import ArgumentError
from orthornn.lab.tasks import Adding, Copying


@pytest.mark.parametrize(("variant", "marker"), [("helfrich2018", 15), ("vorontsov2017", 14)])
@pytest.mark.parametrize("T", [5, 10_000])
def test_where_the_marker_stands(variant, marker, T):
    inputs, targets = Copying(T=T, variant=variant).train_batch(3, 2, 1)
    marker += T - 5
    assert inputs.shape == targets.shape == (T + 20, 2)
    assert bool((inputs[marker] == 9).all())
    assert bool((inputs[:10] == targets[-10:]).all())
    assert int((inputs[10:] != 0).sum()) == 2
    assert not targets[:-10].any()
    assert Copying(T=T, variant=variant).trivial_loss == pytest.approx(10 * math.log(8) / (T + 20))


def test_the_released_copying_has_one_number_for_ten_classes():
    task, paper = (Copying(T=7, variant=name) for name in ("vorontsov2017-code", "vorontsov2017"))
    assert (task.input, task.input_size, task.output_size) == ("real", 1, 10)
    numbers, classes = task.train_batch(0, 3, 0), paper.train_batch(0, 3, 0)
    assert numbers.inputs.dtype == torch.float32
    assert torch.equal(numbers.inputs[..., 0].long(), classes.inputs)
    assert torch.equal(numbers.targets, classes.targets)


def test_the_released_copying_meets_its_fixed_set_in_order():
    task = Copying(T=3, variant="helfrich2018-code")
    assert torch.equal(task.train_batch(1000, 20, 5).inputs, task.train_batch(0, 20, 0).inputs)
    both = torch.cat([task.train_batch(1, 20, 0).inputs, task.train_batch(2, 20, 0).inputs], 1)
    assert torch.equal(both, torch.cat([task.train_batch(0, 60, 0).inputs], 1)[:, 20:])


def test_half_the_sum_has_a_quarter_of_the_trivial_loss():
    half, whole = Adding(T=9, variant="vorontsov2017-code"), Adding(T=9, variant="vorontsov2017")
    assert torch.equal(half.train_batch(0, 5, 0).targets * 2, whole.train_batch(0, 5, 0).targets)
    assert half.trivial_loss == pytest.approx(1 / 24)
    assert whole.trivial_loss == pytest.approx(1 / 6)


def test_the_released_adding_marks_two_steps_anywhere():
    marks = Adding(T=6, variant="mhammedi2017-code").train_batch(0, 3000, 0).inputs[..., 1]
    assert torch.equal(marks.sum(0), torch.full((3000,), 2.0))
    # each of the 15 pairs is missed 3000 times with probability (14/15)^3000
    assert len({tuple(column.nonzero()[:, 0].tolist()) for column in marks.T}) == 15


def test_a_wrong_variant_is_named():
    with pytest.raises(ArgumentError, match=r"variant must be one of 'helfrich2018'.*Did you mean 'vorontsov2017'"):
        Copying(variant="vorontsov2018")
