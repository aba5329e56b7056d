from __future__ import annotations

import re

import pytest
import torch

from orthornn.errors import ArgumentError
from orthornn_evidence.tasks import NoisyDigits, PixelMNIST
from support.made_idx import write_images


@pytest.fixture
def folder(tmp_path):
    return write_images(tmp_path / "images")


def made(folder, **options):
    return NoisyDigits(**{"data": str(folder), "verify": False, "validation_size": 10, "T": 11, **options})


def test_the_rows_come_first_and_are_those_of_the_images(folder):
    task, pixels = made(folder), PixelMNIST(data=str(folder), verify=False, validation_size=10)
    assert (task.problem().schema["input_size"], task.problem().schema["output_size"], task.steps) == (3, 4, 11)
    assert task.objective().trivial_loss == pixels.objective().trivial_loss
    for mine, theirs in (
        (task.problem().train(3, 6, 1), pixels.problem().train(3, 6, 1)),
        (next(task.problem().validation(7)), next(pixels.problem().validation(7))),
        (next(task.problem().test(5)), next(pixels.problem().test(5))),
    ):
        assert torch.equal(mine.targets, theirs.targets)
        assert mine.inputs.shape == (11, len(mine.targets), 3)
        assert mine.inputs.is_contiguous()
        assert torch.equal(mine.inputs[:3].transpose(0, 1).flatten(1), theirs.inputs[..., 0].t())


def test_noise_is_uniform_and_new_in_every_update(folder):
    task = made(folder, T=500)
    noise = torch.cat([task.problem().train(step, 20, 0).inputs[3:].flatten() for step in range(3)])
    assert noise.min() == 0
    assert noise.max() == 1
    levels = torch.bincount((noise * 255).round().long(), minlength=256)
    expected = len(noise) / 256
    assert ((levels - expected).square() / expected).sum() < 400  # chi-squared, 255 degrees of freedom: p < 1e-8
    epoch = task.steps_per_epoch(5)
    again, other = task.problem().train(1, 5, 0), task.problem().train(1 + epoch, 5, 0)
    assert torch.equal(again.inputs, task.problem().train(1, 5, 0).inputs)
    assert not torch.equal(again.inputs[3:], other.inputs[3:])
    assert not torch.equal(again.inputs[3:], task.problem().train(1, 5, 1).inputs[3:])


def test_held_out_sequences_are_fixed_in_batches_of_any_size(folder):
    task = made(folder)
    for part in (task.problem().validation, task.problem().test):
        whole = torch.cat([batch.inputs for batch in part(100)], 1)
        assert torch.equal(torch.cat([batch.inputs for batch in part(3)], 1), whole)
        assert len({tuple(noise.flatten().tolist()) for noise in whole[3:].unbind(1)}) == whole.shape[1]
    assert not torch.equal(next(task.problem().validation(5)).inputs[3:], next(task.problem().test(5)).inputs[3:])


def test_an_image_alone_has_no_noise_and_less_is_refused(folder):
    assert made(folder, T=3).problem().train(0, 2, 0).inputs.shape == (3, 2, 3)
    with pytest.raises(ArgumentError, match=re.escape("Expected T of at least 3, the rows of an image, but got 2.")):
        made(folder, T=2).problem().train(0, 2, 0)
    with pytest.raises(ArgumentError, match="T to be"):
        made(folder, T=0)
