"""Smoothed labels of your own data: targets that are spread by the frequencies of the classes."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from orthornn.learn.systems import model_named
from orthornn.learn.tasks import Classify
from orthornn.learn.training import PenaltyConfig, RunConfig
from orthornn.learn.training.penalized import penalized_loss
from orthornn.learn.training.trainer import Trainer

SHARE = 0.3


def table(path, every_step):
    """Three classes of unlike frequency, and at every step also targets that are ignored."""
    random, rows = np.random.default_rng(0), []
    for s in range(40):
        for _ in range(3 + s % 4):
            kind = random.choice(4, p=[0.6, 0.2, 0.1, 0.1]) if every_step else [0, 0, 0, 1, 2, 3][s % 6]
            rows.append(f"{s},{random.standard_normal():.4g},{'abc?'[kind]}")
    path.write_text("id,x,label\n" + "\n".join(rows) + "\n")
    return path


@pytest.mark.parametrize("every_step", [False, True])
@pytest.mark.parametrize("weights", [None, "balanced", "b=5,c=0.25"])
def test_a_smoothed_label_is_spread_by_frequency_and_keeps_its_weight(tmp_path, every_step, weights):
    """By hand: the weighted mean of the cross-entropy to (1 - s) one-hot + s times the weighted frequencies."""
    data = table(tmp_path / "a.csv", every_step)
    task = Classify(
        data=str(data), target="label", sequence="id", ignore="?", every_step=every_step, class_weights=weights
    )
    model = Trainer(RunConfig(task=task, model=model_named("lstm", hidden_size=3))).model.eval()
    batch = task.problem().train(0, task.steps_per_epoch(1), 0)  # the whole training part
    loss, extra = penalized_loss(model, task.objective(), batch, PenaltyConfig(label_smoothing=SHARE))

    rows, wanted = task.objective().rows(model(batch.inputs), batch.targets)
    kept = wanted >= 0
    rows, wanted = rows[kept], wanted[kept]
    counts = np.bincount(wanted, minlength=3)
    own = {None: np.ones(3), "balanced": counts.sum() / (3 * counts), "b=5,c=0.25": np.array([1, 5, 0.25])}[weights]
    spread = counts * own / (counts * own).sum()
    targets = (1 - SHARE) * np.eye(3)[wanted.numpy()] + SHARE * spread
    losses = -(targets * rows.detach().double().log_softmax(1).numpy()).sum(1)
    expected = (losses * own[wanted.numpy()]).sum() / own[wanted.numpy()].sum()
    assert float((loss + extra).detach()) == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("weights", [None, "b=5,c=0.25"])
def test_smoothing_leaves_the_best_constant_prediction_at_the_frequencies(tmp_path, weights):
    """There the gradient of the smoothed loss of the training part is zero, so that rare classes are not raised."""
    data = table(tmp_path / "a.csv", True)
    task = Classify(data=str(data), target="label", sequence="id", ignore="?", every_step=True, class_weights=weights)
    batch = task.problem().train(0, task.steps_per_epoch(1), 0)
    own = torch.tensor([1.0, 5.0, 0.25] if weights else [1.0, 1.0, 1.0], dtype=torch.float64)
    known = batch.targets.data[batch.targets.data >= 0]
    bias = (torch.bincount(known, minlength=3) * own).log().requires_grad_()
    prediction = bias.expand(len(batch.targets.data), 3)
    loss = task.objective().loss(prediction, batch.targets)
    smoothed = loss + SHARE * (task.objective().spread_loss(prediction, batch.targets) - loss)
    (gradient,) = torch.autograd.grad(smoothed, bias)
    torch.testing.assert_close(gradient, torch.zeros(3, dtype=torch.float64), rtol=0, atol=1e-7)
