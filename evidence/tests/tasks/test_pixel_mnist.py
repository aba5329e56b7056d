from __future__ import annotations

import gzip
import math
import re

import numpy as np
import pytest
import torch

from orthornn.errors import ArgumentError, DataError
from orthornn_evidence.files.idx import read_idx
from orthornn_evidence.tasks import PixelMNIST
from support.made_idx import REAL_MNIST, write_idx, write_images


@pytest.fixture
def folder(tmp_path):
    return write_images(tmp_path / "images")


def made(folder, **options):
    return PixelMNIST(**{"data": str(folder), "verify": False, "validation_size": 10, **options})


def numbers(batch):
    """The number that every made image carries in its first pixel."""
    return (batch.inputs[0, :, 0] * 255).round().int().tolist()


def test_sizes_and_scale(folder):
    task = made(folder)
    inputs, targets = task.problem().train(0, 6, 0)
    assert (task.problem().schema["input_size"], task.problem().schema["output_size"], task.steps) == (1, 4, 9)
    assert inputs.shape == (9, 6, 1)
    assert inputs.is_contiguous()
    assert targets.dtype == torch.int64
    images = read_idx(folder / "train-images-idx3-ubyte.gz", 3).reshape(40, 9)
    labels = read_idx(folder / "train-labels-idx1-ubyte.gz", 1)
    for column, number in enumerate(numbers(task.problem().train(0, 6, 0))):
        expected = torch.from_numpy(images[number].copy()).float() / 255
        assert torch.equal(inputs[:, column, 0], expected)
        assert int(targets[column]) == labels[number]


def test_training_and_validation_share_no_image(folder):
    task = made(folder)
    train = [n for step in range(30) for n in numbers(task.problem().train(step, 1, 0))]
    validation = [n for batch in task.problem().validation(4) for n in numbers(batch)]
    test = [n for batch in task.problem().test(5) for n in numbers(batch)]
    assert sorted(train + validation) == list(range(40))
    assert sorted(test) == list(range(40, 52))
    other = [n for batch in made(folder, split_seed=1).problem().validation(4) for n in numbers(batch)]
    assert set(other) != set(validation)


@pytest.mark.parametrize(
    ("variant", "train", "validation"),
    [("helfrich2018", list(range(40)), []), ("vorontsov2017", list(range(30)), list(range(30, 40)))],
)
def test_other_divisions(folder, variant, train, validation):
    task = made(folder, variant=variant, validation_size=10 if validation else None)
    seen = [n for step in range(len(train)) for n in numbers(task.problem().train(step, 1, 0))]
    assert (seen if validation else sorted(seen)) == train
    assert [n for batch in task.problem().validation(4) for n in numbers(batch)] == validation
    assert task.objective().trivial_metric == pytest.approx(1 / 4, abs=0.05)


def test_the_released_split_overlaps_and_divides_by_256(folder):
    task = made(folder, variant="mhammedi2017-code")
    plain = made(folder)
    train = [round(float(task.problem().train(step, 1, 0).inputs[0]) * 256) for step in range(30)]
    assert sorted(train) == sorted(n for step in range(30) for n in numbers(plain.problem().train(step, 1, 0)))
    validation = [round(float(v) * 256) for batch in task.problem().validation(5) for v in batch.inputs[0, :, 0]]
    assert len(set(validation)) == 10
    assert set(validation) & set(train)
    assert (task.problem().schema["scale"], plain.problem().schema["scale"]) == (1 / 256, 1 / 255)


def test_batches_from_fresh_permutations(folder):
    """Each batch is drawn without replacement, by itself: in an epoch some images come twice and others do not come."""
    task = made(folder, variant="vorontsov2017-code")
    batches = [[round(float(v) * 256) for v in task.problem().train(step, 10, 3).inputs[0, :, 0]] for step in range(60)]
    assert all(len(set(batch)) == 10 and max(batch) < 30 for batch in batches)
    assert sorted({number for batch in batches for number in batch}) == list(range(30))
    assert any(set(first) & set(second) for first, second in zip(batches[::3], batches[1::3]))
    again = [round(float(v) * 256) for v in task.problem().train(7, 10, 3).inputs[0, :, 0]]
    other = [round(float(v) * 256) for v in task.problem().train(7, 10, 4).inputs[0, :, 0]]
    assert again == batches[7] != other
    validation = [round(float(v) * 256) for batch in task.problem().validation(4) for v in batch.inputs[0, :, 0]]
    assert validation == list(range(30, 40))
    with pytest.raises(ArgumentError, match="between 1 and 30, but got 31"):
        task.problem().train(0, 31, 0)


def test_epochs_are_permutations_from_seed_and_epoch(folder):
    task = made(folder)
    assert task.steps_per_epoch(4) == 7

    def epoch(number, seed):
        return [n for step in range(7) for n in numbers(task.problem().train(7 * number + step, 4, seed))]

    assert len(set(epoch(0, 0))) == 28
    assert epoch(0, 0) == epoch(0, 0)
    assert epoch(0, 0) != epoch(1, 0)
    assert epoch(0, 0) != epoch(0, 1)


def test_permuted_is_the_published_permutation_of_the_steps(folder):
    plain, permuted = made(folder), made(folder, permuted=True)
    order = np.random.RandomState(92916).permutation(9)
    for step in range(3):
        expected = plain.problem().train(step, 4, 0)
        found = permuted.problem().train(step, 4, 0)
        assert torch.equal(found.inputs, expected.inputs[order])
        assert torch.equal(found.targets, expected.targets)
    first, second = next(plain.problem().test(50)), next(permuted.problem().test(50))
    assert torch.equal(second.inputs, first.inputs[order])


@pytest.mark.parametrize("permuted", [False, True])
def test_shifted_images_are_the_images_moved(folder, permuted):
    order = np.random.RandomState(92916).permutation(9) if permuted else np.arange(9)
    task, moved = made(folder, permuted=permuted), made(folder, permuted=permuted, shift=1)
    seen = set()
    for step in range(12):
        still, batch = task.problem().train(step, 6, 3), moved.problem().train(step, 6, 3)
        assert torch.equal(batch.targets, still.targets)
        assert torch.equal(batch.inputs, moved.problem().train(step, 6, 3).inputs)
        for column in range(6):
            image, found = np.zeros((2, 9))
            image[order], found[order] = still.inputs[:, column, 0], batch.inputs[:, column, 0]
            wide = np.pad(image.reshape(3, 3), 1)
            fits = [
                (y, x) for y in range(3) for x in range(3) if np.array_equal(wide[y : y + 3, x : x + 3].ravel(), found)
            ]
            assert fits
            seen.update(fits if len(fits) == 1 else [])
    assert seen == {(y, x) for y in range(3) for x in range(3)}
    for part in ("validation", "test"):
        for still, batch in zip(getattr(task.problem(), part)(4), getattr(moved.problem(), part)(4), strict=True):
            assert torch.equal(batch.inputs, still.inputs)
    with pytest.raises(ArgumentError, match="Expected shift"):
        made(folder, shift=-1)


def test_predicting_the_frequencies_has_the_trivial_loss(folder):
    task = made(folder)
    targets = task.problem().train(0, 30, 0).targets
    frequencies = torch.bincount(targets, minlength=4).double() / 30
    loss = task.objective().loss(frequencies.log().expand(30, 4), targets)
    assert float(loss) == pytest.approx(task.objective().trivial_loss, rel=1e-12)


def test_metrics_count(folder):
    task = made(folder)
    targets = torch.tensor([0, 1, 2, 3])
    metrics = task.objective().metrics(torch.eye(4)[[0, 1, 2, 0]], targets)
    assert metrics["accuracy"] == (3.0, 4)


def _rewrite(path, edit):
    path.write_bytes(gzip.compress(edit(gzip.decompress(path.read_bytes()))))


BROKEN = {
    "has no train-images-idx3-ubyte.gz": lambda path: path.unlink(),
    "is truncated: it ends after": lambda path: path.write_bytes(path.read_bytes()[:-20]),
    "is corrupt": lambda path: path.write_bytes(
        path.read_bytes()[:-8] + bytes([path.read_bytes()[-8] ^ 255]) + path.read_bytes()[-7:]
    ),
    "Expected a gzip file": lambda path: path.write_bytes(gzip.decompress(path.read_bytes())),
    "begins with nothing": lambda path: path.write_bytes(b""),
    "Expected an idx file of unsigned bytes in 3 dimension": lambda path: write_idx(path, np.zeros(7)),
    "promises, but got": lambda path: _rewrite(path, lambda raw: raw[:-1]),
    "is truncated: it has 9": lambda path: _rewrite(path, lambda raw: raw[:9]),
    "is too long": lambda path: _rewrite(path, lambda raw: raw + b"0"),
    "39 images and train-labels-idx1-ubyte.gz 40 labels": lambda path: write_idx(path, np.zeros((39, 3, 3))),
}


@pytest.mark.parametrize("message", BROKEN)
def test_a_bad_file_is_one_clear_error(folder, message):
    path = folder / "train-images-idx3-ubyte.gz"
    BROKEN[message](path)
    with pytest.raises(DataError, match=re.escape(message)) as caught:
        made(folder).problem().train(0, 1, 0)
    assert "train-images-idx3-ubyte.gz" in str(caught.value)


def test_a_damaged_stream_is_never_read_as_data(folder):
    """Whatever byte of the compressed file changes: an error, or a gzip header field that carries no data."""
    path = folder / "train-images-idx3-ubyte.gz"
    good = path.read_bytes()
    intact = read_idx(path, 3)
    caught = 0
    for place in range(len(good)):
        path.write_bytes(good[:place] + bytes([good[place] ^ 0x55]) + good[place + 1 :])
        try:
            assert np.array_equal(read_idx(path, 3), intact)
            assert place < 10  # the header's time, flags and system
        except DataError:
            caught += 1
    assert caught > 0.9 * len(good)


def test_test_files_that_do_not_fit_are_refused(folder):
    write_idx(folder / "t10k-labels-idx1-ubyte.gz", np.full(12, 7))
    with pytest.raises(DataError, match=r"labels up to 3, .* but got 9 pixels and labels up to 7"):
        next(made(folder).problem().test(3))


def test_other_data_under_mnist_names_need_verify_off(folder):
    with pytest.raises(DataError, match=r"Expected the sha256 440fcabf.* but .*verify=False, --no-verify"):
        made(folder, verify=True).problem().train(0, 1, 0)


def test_a_missing_folder_and_an_impossible_split_are_said(folder):
    with pytest.raises(DataError, match=r"Expected the four original MNIST files .*there is no folder "):
        PixelMNIST(data=str(folder / "nowhere")).problem().train(0, 1, 0)
    with pytest.raises(ArgumentError, match="validation_size to be an integer between 0 and 39, but got 40"):
        made(folder, validation_size=40).problem().train(0, 1, 0)


@pytest.fixture(scope="module")
def real_mnist():
    return PixelMNIST(data=str(REAL_MNIST))


@pytest.mark.skipif(not REAL_MNIST.is_dir(), reason=f"no MNIST in {REAL_MNIST}; set ORTHORNN_MNIST to its folder")
class TestRealMNIST:
    def test_sizes(self, real_mnist):
        assert (real_mnist.steps, real_mnist.problem().schema["output_size"], real_mnist.steps_per_epoch(50)) == (
            784,
            10,
            1100,
        )
        validation, test = list(real_mnist.problem().validation(1000)), list(real_mnist.problem().test(1000))
        assert sum(len(batch.targets) for batch in validation) == 5000
        labels = torch.bincount(torch.cat([batch.targets for batch in test])).tolist()
        assert labels == [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]
        assert real_mnist.objective().trivial_loss == pytest.approx(math.log(10), abs=0.01)
        assert real_mnist.objective().trivial_loss < math.log(10)

    def test_no_image_is_in_two_parts(self, real_mnist):
        def rows(batches):
            return [row.tobytes() for batch in batches for row in batch.inputs[:, :, 0].T.contiguous().numpy()]

        train = rows(real_mnist.problem().train(step, 1000, 0) for step in range(55))
        held_out = rows(real_mnist.problem().validation(1000))
        assert len(set(train)) == 55000
        assert len(set(train) | set(held_out)) == 60000
        assert not set(rows(real_mnist.problem().test(1000))) & (set(train) | set(held_out))
