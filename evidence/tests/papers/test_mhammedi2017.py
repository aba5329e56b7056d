"""The configuration that `reproduce mhammedi2017` trains with, against the text and the authors' released code.

Written from zmhammedi/Orthogonal_RNN (RNN_models.py, sgd.py, utils.py, toy_problems.py, train.py, job.sh), which has no
LSTM and no sRNN; what it leaves out is from sections 4 and 5 of the paper.
"""

from __future__ import annotations

import math

import pytest
import torch
from released import is_uniform, is_zero, passes, protocol, trained, trainer

from orthornn import compact_wy
from orthornn.learn.systems import build, count_parameters
from orthornn.learn.tasks import Characters
from support.real_data import REAL_DATA, needs

SYMBOLS = "abcdefghijklmnopqrstuvwxyz0123456789 #$&'*-./<>\\N"  # utils.py: D, 49 of them
SIZES = {  # experiment, system: units, reflections, parameters; the paper's counts are 183K, 181K, 180K, 11K
    ("table4", "ornn-1"): (512, 510, 182_574),
    ("table4", "ornn-unit-1"): (512, 510, 182_574),
    ("table4", "ornn-5"): (512, 510, 182_574),
    ("table4", "lstm-1"): (184, None, 181_289),
    ("table4", "lstm-torch-1"): (184, None, 181_289),
    ("table4", "lstm-5"): (183, None, 179_572),
    ("table3", "text"): (256, 32, 11_034),
    ("table3", "code"): (256, 32, 11_034),
    ("fig4", "ornn-T400"): (128, 16, 2569),
    ("fig4", "lstm-T400"): (28, None, 3501),
    ("fig4", "lstm-glorot-T400"): (28, None, 3501),
    ("fig4", "srnn-T400"): (54, None, 3187),
}
TRAINING = {  # rate, sequences per update, passes or (adding) updates
    "table4": (1e-4, 1, 20),
    "table3": (1e-4, 1, 100),
    "fig4": (1e-2, 50, 15_000),
    "fig2": (1e-3, 1, 5000),
}
# what the page has to say: the released code does otherwise, or is silent
DIFFERENCES = (
    "| initial reflectors | uniform",
    "| after each update | u₁ set to its sign | every reflector scaled back to norm 1",
    "| pixel MNIST, split | 55000, 5000 and 10000 images | training and validation from two independent permutations",
    "| pixels | not stated; here divided by 255 | divided by 256",
    "| adding, marks | one in each half | anywhere",
    "| modReLU on pairs | eq. 4 | without the square root",
    "| Penn Treebank, validation cost | not stated; here the mean over characters | mean over lines",
    'on adding (but "LSTM from Glorot") and on music torch\'s U(±1/√n)',
    "| passes over the data | 20 (Penn Treebank) | 21, on pixel MNIST 101",
    "| precision | not stated; here float32 | float64",
)


@pytest.fixture(scope="module")
def folder(data, tmp_path_factory):
    """The made data, with text of the symbols of the Penn Treebank."""
    place = tmp_path_factory.mktemp("released")
    for name in ("mnist", "music"):
        (place / name).symlink_to(data / name)
    (place / "ptb").mkdir()
    for part in ("train", "valid", "test"):
        lines = [f" {SYMBOLS[i:]}{SYMBOLS[:i]} \n" for i in range(12)]
        (place / "ptb" / f"ptb.{part}.txt").write_text("".join(lines))
    return place


def options(experiment):
    return {"verify": False, "validation_size": 10} if experiment == "table3" else {}


def made(experiment, system, folder):
    torch.manual_seed(0)
    return trainer(trained("mhammedi2017", experiment, folder)[system], **options(experiment))


@pytest.mark.parametrize(("experiment", "system"), SIZES)
def test_sizes(experiment, system, folder):
    units, reflections, parameters = SIZES[experiment, system]
    config = trained("mhammedi2017", experiment, folder)[system]
    assert config.model.hidden_size == units
    assert getattr(config.model, "reflections", None) == reflections
    if experiment != "table3":  # whose made images have fewer classes
        assert count_parameters(made(experiment, system, folder).model) == parameters


def test_parameters_of_pixel_mnist(folder):
    for system in ("text", "code"):
        model = trained("mhammedi2017", "table3", folder)[system].model
        assert count_parameters(build(model, 1, 10)) == SIZES["table3", system][2]


@pytest.mark.parametrize("experiment", TRAINING)
def test_adam_at_one_rate(experiment, folder):
    """sgd.py: b1 = .9, b2 = .999, 1e-8 beside the root, one rate for all; no decay, no clipping."""
    rate, batch, count = TRAINING[experiment]
    for system, config in trained("mhammedi2017", experiment, folder).items():
        assert config.batch_size == batch
        epochs = {"table4": 42_068, "table3": 55_000}.get(experiment, 1)
        assert config.steps == count * epochs, system
        assert not any(vars(config.penalties).values())
        assert (config.optimizer.clip_norm, config.optimizer.clip_value) == (None, None)
        assert config.schedule.name == "constant"
    system = next(iter(trained("mhammedi2017", experiment, folder)))
    optimizer = made(experiment, system, folder).optimizer
    assert isinstance(optimizer, torch.optim.Adam)
    for group in optimizer.param_groups:
        found = (group["lr"], group["betas"], group["eps"], group["weight_decay"], group["amsgrad"])
        assert found == (rate, (0.9, 0.999), 1e-8, 0, False)


@pytest.mark.parametrize(
    ("experiment", "system"),
    [("table4", "ornn-1"), ("table4", "ornn-unit-1"), ("table3", "code"), ("fig4", "ornn-T400")],
)
def test_initial_values_of_ornn(experiment, system, folder):
    """RNN_models.py: W and Y uniform Glorot, biases 0, h_0 U(+-sqrt(3 / 2n)) and trained; U of unit columns in "code"."""
    model = made(experiment, system, folder).model
    core, head = model.core, model.head
    for matrix in (core.weight_ih_l0, head.weight):
        assert is_uniform(matrix, math.sqrt(6 / sum(matrix.shape)))
    assert is_zero(core.bias_ih_l0, head.bias)
    assert is_uniform(core.h0, math.sqrt(3 / (2 * core.hidden_size)))
    assert all(vector.requires_grad for vector in (core.bias_ih_l0, head.bias, core.h0))
    assert core.nonlinearity == "leaky_relu"  # of slope 1/10 unless another one is given
    assert model_options(experiment, system, folder).slope is None
    norms = reflector_norms(core)
    if system in ("ornn-unit-1", "code"):
        torch.testing.assert_close(norms, torch.ones_like(norms), rtol=1e-5, atol=0)
    else:
        assert is_uniform(core.get_parameter("transition_l0.reflectors"), 1.0)


def reflector_norms(core):
    """Return the norms of the reflectors whose scale is free."""
    U = compact_wy.unpack(core.get_parameter("transition_l0.reflectors").detach(), core.hidden_size)
    return torch.linalg.vector_norm(U, dim=0)


def model_options(experiment, system, folder):
    return trained("mhammedi2017", experiment, folder)[system].model


@pytest.mark.parametrize(("experiment", "system"), [("table4", "ornn-unit-1"), ("table3", "code")])
def test_reflectors_keep_their_norm(experiment, system, folder):
    """sgd.py, update_param: U = tril(U + delta); U = U / norms."""
    training = made(experiment, system, folder)
    for _ in range(3):
        training.update()
    norms = reflector_norms(training.model.core)
    torch.testing.assert_close(norms, torch.ones_like(norms), rtol=1e-5, atol=0)


@pytest.mark.parametrize("system", ["lstm-1", "lstm-5"])
def test_the_lstm_of_table_4_is_uniform_as_the_text_says(system, folder):
    model = made("table4", system, folder).model
    N = model.core.hidden_size
    for matrix in (model.core.weight_ih_l0, model.core.weight_hh_l0):
        assert all(is_uniform(gate, math.sqrt(6 / sum(gate.shape))) for gate in matrix.split(N))
    assert is_uniform(model.head.weight, math.sqrt(6 / (N + 49)))
    assert is_zero(model.head.bias, model.core.bias_hh_l0)
    assert model.core.bias_ih_l0.tolist() == [0.0] * N + [5.0] * N + [0.0] * 2 * N


@pytest.mark.parametrize(("experiment", "system"), [("table4", "lstm-torch-1"), ("fig4", "lstm-T400")])
def test_the_other_lstms_start_as_torch_has_them(experiment, system, folder):
    model = made(experiment, system, folder).model
    N = model.core.hidden_size
    assert is_uniform(model.core.weight_hh_l0, 1 / math.sqrt(N))
    assert model.core.bias_ih_l0.tolist() == [0.0] * N + [5.0] * N + [0.0] * 2 * N


def test_lines_of_the_penn_treebank(folder):
    """utils.py, load_lines: readline()[:-2]; seq_len = len(tmp) - steps_ahead; if seq_len <= 1: continue."""
    for system, config in trained("mhammedi2017", "table4", folder).items():
        task = config.task
        assert isinstance(task, Characters)
        assert (task.variant, task.ahead, task.line_ends) == ("mhammedi2017-code", int(system[-1]), None)
        assert (task.problem().schema["input_size"], task.problem().schema["output_size"]) == (49, 49)
        assert set(task._part("train").lines.lengths.tolist()) == {50}  # with the blank that begins it


@needs("ptb")
@pytest.mark.parametrize(("part", "characters"), [("train", 5_017_482), ("validation", 393_042), ("test", 442_423)])
def test_characters_of_the_penn_treebank(part, characters):
    task = trained("mhammedi2017", "table4", REAL_DATA)["ornn-1"].task
    assert int(task._part(part).lines.lengths.sum()) == characters
    assert task.problem().schema["input_size"] == 49
    if part == "train":
        predicted = task._part(part).lines.lengths - task.ahead
        assert (task.steps_per_epoch(1), predicted.min(), predicted.max()) == (42_068, 2, 518)


@pytest.mark.parametrize(("experiment", "system", "count"), [("table4", "ornn-1", 12), ("table3", "code", 30)])
def test_every_pass_has_a_new_order(experiment, system, count, folder):
    """sgd.py, IndexDataset: all indices, shuffled again after every pass."""
    first, second = passes(made(experiment, system, folder).config.task, count, 1)
    assert len(set(first)) == count
    assert sorted(first) == sorted(second)
    assert first != second


def test_adding(folder):
    """toy_problems.py, add: a fresh batch for every update; uniform numbers from [0, 1); the sum of two of them."""
    task = made("fig4", "ornn-T400", folder).config.task
    first, second = (task.problem().train(step, 50, 0) for step in (0, 1))
    assert first.inputs.shape == (400, 50, 2)
    assert not torch.equal(first.inputs, second.inputs)
    assert is_uniform(first.inputs[..., 0] - 0.5, 0.5)
    marks = first.inputs[..., 1].nonzero()
    assert sorted({0.0, 1.0}) == sorted(set(first.inputs[..., 1].flatten().tolist()))
    assert bool((first.inputs[:200, :, 1].sum(0) == 1).all())  # by the text: one in each half
    assert len(marks) == 100


@pytest.mark.parametrize("words", DIFFERENCES)
def test_the_page_names_what_differs(words):
    assert words in protocol("mhammedi2017")
