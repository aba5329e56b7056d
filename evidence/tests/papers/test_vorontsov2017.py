"""The configuration that `reproduce vorontsov2017` trains with, against what the authors' released code does.

The tables below are written from veugene/spectre_release (run_rnn.py, custom_rnn.py, data.py, penalties.py) and from
Lasagne, on which it builds (init.py: Uniform, GlorotUniform, Constant; updates.py: rmsprop). What the text fixes (widths,
epochs, rates) is from the paper's section 3.1.
"""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
import torch

from orthornn.learn.systems import build
from orthornn.learn.tasks import Characters
from orthornn.learn.training import Trainer
from orthornn.learn.training.penalized import penalized_loss
from orthornn_evidence.papers import Setting, experiments
from orthornn_evidence.papers.vorontsov2017.common import spectral
from support.made_idx import write_idx

IMAGES = 60_000
UNITS, BATCH = 128, 50
INPUT_BOUND = 0.01  # lasagne.init.Uniform(): range=0.01
GLOROT_BOUND = math.sqrt(6 / (UNITS + 10))  # DenseLayer: GlorotUniform()
DECAY = 1e-4  # --weight_decay; its gradient is 2 DECAY W
RHO, EPSILON, RATE = 0.9, 1e-6, 1e-4  # rmsprop(rho=0.9), whose epsilon is 1e-6; --free_learning_rate
BASES_RATE = 1e-6  # --orth_learning_rate
MARGINS = {"margin-0": 0.0, "margin-0.001": 0.001, "margin-0.01": 0.01, "margin-0.1": 0.1, "margin-1": 1.0}
FREE = ("no-margin-orthogonal", "no-margin-Glorot", "no-margin-identity")
SIZES = {  # units, epochs, rate, largest entry of the backward signal
    "MNIST": (128, 120, 1e-4, 100.0),
    "pMNIST": (128, 120, 1e-4, 100.0),
    "PTB-75": (512, 200, 1e-3, 30.0),
    "PTB-300": (512, 200, 1e-3, 30.0),
}
SYMBOLS = "#$&'*-./\\0123456789N abcdefghijklmnopqrstuvwxyz"  # and <unk>, and the end of a line: 49


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """As many images as MNIST has, of four pixels, the first two of which tell which image it is; and some text."""
    place = tmp_path_factory.mktemp("released")
    (place / "mnist").mkdir()
    for part, count in (("train", IMAGES), ("t10k", 100)):
        number = np.arange(count)
        images = np.stack([number % 256, number // 256, 0 * number, 0 * number + 255], 1).reshape(count, 2, 2)
        write_idx(place / "mnist" / f"{part}-images-idx3-ubyte.gz", images)
        write_idx(place / "mnist" / f"{part}-labels-idx1-ubyte.gz", number % 10)
    (place / "ptb").mkdir()
    for part in ("train", "valid", "test"):
        lines = [f" {SYMBOLS} \n", " a <unk> bc \n", " " + "d" * 72 + " \n", " " + "e" * 73 + " \n"]
        (place / "ptb" / f"ptb.{part}.txt").write_text("".join(lines * 50))
    return place


@pytest.fixture(scope="module")
def plan(folder):
    return experiments("vorontsov2017")["table1"].plan(Setting("full", folder)).systems


def made(config):
    """A trainer on the made images."""
    return Trainer(dataclasses.replace(config, task=dataclasses.replace(config.task, verify=False)))


def shown(batch):
    """The numbers of the images of a batch, with pixels over 256, shown in the order in which they are."""
    return [round(float(one[0]) * 256) + 256 * round(float(one[1]) * 256) for one in batch.inputs[:, :, 0].T]


@pytest.mark.parametrize("place", ["MNIST", "pMNIST"])
@pytest.mark.parametrize("row", ["margin-0", "margin-0.1", *FREE])
def test_initial_values(row, place, plan):
    model = made(plan[f"{row}-{place}"]).model
    core, head = model.core, model.head
    for matrix, bound in ((core.weight_ih_l0, INPUT_BOUND), (head.weight, GLOROT_BOUND)):
        assert 0.9 * bound < matrix.abs().max() <= bound
        assert abs(float(matrix.detach().abs().mean()) / (bound / 2) - 1) < 0.25  # uniform
    for vector in (core.bias_ih_l0, head.bias, core.h0):
        assert vector.requires_grad
        assert not vector.any()
    W, identity = core.weight_hh_l0.detach(), torch.eye(UNITS)
    if row.endswith("Glorot"):
        assert float(W.std()) == pytest.approx(math.sqrt(1 / UNITS), rel=0.05)
    else:
        torch.testing.assert_close(W.T @ W, identity, rtol=0, atol=1e-5)
    assert torch.equal(W.round(decimals=4), identity) == row.endswith("identity")
    assert core.nonlinearity == "tanh"


@pytest.mark.parametrize("place", SIZES)
def test_sizes_epochs_rates_and_clipping(place, plan):
    units, epochs, rate, clip = SIZES[place]
    there = [config for name, config in plan.items() if name.endswith(f"-{place}") and not name.startswith("LSTM")]
    assert len(there) == 8
    for config in there:
        optimizer = config.optimizer
        epoch = 1000 if place.endswith("MNIST") else config.task.steps_per_epoch(BATCH)
        assert (config.model.hidden_size, config.steps, config.batch_size) == (units, epochs * epoch, BATCH)
        assert (optimizer.lr, optimizer.recurrent_lr, optimizer.manifold_lr) == (rate, rate, BASES_RATE)
        assert (config.model.clip_backward, optimizer.clip_norm, optimizer.clip_value) == (clip, None, None)
        assert config.schedule.name == "constant"


def test_every_experiment_has_the_same_networks_and_decay(folder):
    """All but those that follow the text on purpose, or train other networks."""
    others = ("copying-text", "adding-text", "scornn", "LSTM")
    for name, experiment in experiments("vorontsov2017").items():
        systems = {} if name == "first-values" else experiment.plan(Setting("full", folder)).systems
        for system, config in systems.items():
            if system.startswith(others):
                continue
            penalties, model = config.penalties, config.model
            assert (penalties.input_decay, penalties.weight_decay, penalties.readout_decay) == (DECAY,) * 3, system
            assert (model.initial_values, model.learn_h0) == ("lasagne", True), system
            assert model.clip_backward == (30 if "PTB" in system else 100), system
            if config.optimizer.name != "sgd":
                assert config.optimizer.name == "rmsprop-lasagne", system
            if "mnist" in config.task.name:
                assert config.task.variant == "vorontsov2017-code", system


@pytest.mark.parametrize("place", ["MNIST", "pMNIST"])
def test_batches_are_drawn_from_a_fresh_permutation_each(place, plan, folder):
    """mnist_iterator: `indices = rng.permutation(len(x))` inside the loop over batches."""
    task = dataclasses.replace(plan[f"margin-0-{place}"].task, verify=False)
    assert task.permuted == (place == "pMNIST")
    task = dataclasses.replace(task, permuted=False)
    assert task.steps_per_epoch(BATCH) == 1000
    epoch = [shown(task.problem().train(step, BATCH, 0)) for step in range(1000)]
    assert all(len(set(batch)) == BATCH for batch in epoch)
    assert max(max(batch) for batch in epoch) < 50_000
    assert sorted(epoch[0]) != epoch[0]
    seen = {number for batch in epoch for number in batch}
    assert len(seen) / 50_000 == pytest.approx(1 - math.exp(-1), abs=0.01)  # an epoch of one permutation has all
    assert shown(task.problem().train(0, BATCH, 1)) != epoch[0]
    held_out = [number for batch in task.problem().validation(5000) for number in shown(batch)]
    assert held_out == list(range(50_000, 60_000))
    assert float(task.problem().train(0, BATCH, 0).inputs.max()) == 255 / 256  # as mnist.pkl.gz has it


@pytest.mark.parametrize("row", [*MARGINS, *FREE])
def test_a_step_is_lasagnes(row, plan):
    """accu = rho accu + (1 - rho) g^2; p = p - lr g / sqrt(accu + epsilon); the spectrum at lr / (2 margin)."""
    margin = MARGINS.get(row)
    trainer = made(plan[f"{row}-MNIST"])
    before = {name: p.detach().clone() for name, p in trainer.model.named_parameters()}
    accumulated = {name: torch.zeros_like(p) for name, p in before.items()}
    for _ in range(2):
        trainer.update()
        for name, parameter in trainer.model.named_parameters():
            if name.endswith((".u", ".v")):
                continue
            rate = RATE / (2 * margin) if name.endswith("spectrum") and margin else RATE
            g = parameter.grad
            accumulated[name] = RHO * accumulated[name] + (1 - RHO) * g**2
            before[name] = before[name] - rate * g / (accumulated[name] + EPSILON).sqrt()
            torch.testing.assert_close(parameter.detach(), before[name], rtol=1e-5, atol=1e-8)
    assert ("core.transition_l0.spectrum" in before) == (margin != 0)


@pytest.mark.parametrize("row", ["margin-0.1", "no-margin-Glorot"])
def test_the_decay_is_of_three_matrices(row, plan):
    """add_penalties: l2 of W_in_to_hid, of the composite W_hid_to_hid and of the readout's W, each times 1e-4."""
    config = plan[f"{row}-MNIST"]
    trainer = made(config)
    model = trainer.model
    with torch.no_grad():
        for vector in (model.core.bias_ih_l0, model.head.bias, model.core.h0):
            vector += 1.0  # no decay either where they are not 0
    _, extra = penalized_loss(model, trainer.objective, trainer.problem.train(0, 2, 0), config.penalties)
    matrices = (model.core.weight_ih_l0, model.core.weight_hh_l0, model.head.weight)
    torch.testing.assert_close(extra, DECAY * sum(matrix.square().sum() for matrix in matrices))
    gradients = torch.autograd.grad(extra, list(model.parameters()), allow_unused=True)
    found = {name: g for (name, _), g in zip(model.named_parameters(), gradients) if g is not None}
    for name in ("core.weight_ih_l0", "head.weight"):
        torch.testing.assert_close(found.pop(name), 2 * DECAY * model.get_parameter(name))
    assert set(found) == {f"core.transition_l0.{name}" for name in ("u", "v", "spectrum")}


def test_singular_values_are_rectified():
    """custom_rnn.py: W = U rectify(S) V, which margins above 1 and no margin need."""
    core = build(spectral("none", 4), 1, 1).core
    with torch.no_grad():
        core.transition_l0.spectrum.copy_(torch.tensor([2.0, 0.5, -0.5, -3.0]))
    singular = torch.linalg.svdvals(core.weight_hh_l0.detach())
    torch.testing.assert_close(singular, torch.tensor([2.0, 0.5, 0.0, 0.0]), rtol=0, atol=1e-6)


@pytest.mark.parametrize(("place", "longest"), [("PTB-75", 75), ("PTB-300", 300)])
def test_characters(place, longest, plan):
    """ptb_iterator: 49 symbols; lines with their blanks and their end; m_arr[i, 0:len(line)+1] = 1, y = 0 beyond."""
    task = plan[f"margin-0-{place}"].task
    assert (task.problem().schema["input_size"], task.problem().schema["output_size"]) == (49, 49)
    batch = task.problem().train(0, 50, 0)
    found = {len(line) for line in torch.nn.utils.rnn.unpack_sequence(batch.targets)}
    lines = [f" {SYMBOLS} \n", " a U bc \n", " " + "d" * 72 + " \n", " " + "e" * 73 + " \n"]
    assert found == {min(len(line) + 1, longest) for line in lines if len(line) <= longest}
    vocabulary = task.problem().schema["vocabulary"]
    short = next(line for line in torch.nn.utils.rnn.unpack_sequence(batch.targets) if len(line) == len(lines[1]) + 1)
    assert "".join(vocabulary[i] for i in short) == "a \ue000 bc \n\ue000\ue000"


def test_the_text_leaves_padding_out(folder):
    counted, plain = (
        sum(
            len(b.targets.data)
            for b in Characters(data=str(folder / "ptb"), variant=v, max_length=75).problem().test(50)
        )
        for v in ("vorontsov2017-code", "vorontsov2017")
    )
    # per line: without the blank at the beginning and the one before the end, and without two padded predictions,
    # of which the longest line has but one
    assert counted - plain == 50 * (4 + 4 + 3)
