"""What is recorded during a run, what it costs a run, and penalties in the loop."""

from __future__ import annotations

import math

import pytest
import torch

from orthornn.diagnostics import hidden_gradient_norms, orthogonality_error
from orthornn.errors import ArgumentError, OrthornnWarning
from orthornn.learn.systems import MODELS, model_named
from orthornn.learn.tasks import Adding, Characters, Copying
from orthornn.learn.training import (
    OptimizerConfig,
    PenaltyConfig,
    RecordConfig,
    RunConfig,
    Trainer,
    read_metrics,
    train,
)
from orthornn.modules import Transition

TASK = Copying(T=3, symbols=3, items=2, validation_size=20, test_size=20)
RECORD = RecordConfig(gradients=4, spectrum=5, sequences=3)


def config(name="spectral", record=RECORD, model=None, **options):
    options = {"task": TASK, "steps": 10, "batch_size": 4, "validate_every": 5, "log_every": 5, **options}
    return RunConfig(model=model_named(name, hidden_size=6, **(model or {})), record=record, **options)


def of_kind(result, kind):
    return [record for record in result.records if record["kind"] == kind]


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("task", [TASK, Adding(T=5, validation_size=20, test_size=5)], ids=lambda t: t.name)
def test_every_model_on_every_kind_of_output(name, task, tmp_path):
    result = train(config(name, task=task), tmp_path)
    gradients = of_kind(result, "gradients")
    assert [r["step"] for r in gradients] == [0, 4, 8]
    for record in gradients:
        assert len(record["norms"]) == (2 if name == "blocks" else 1)
        for norms in record["norms"]:
            assert len(norms) == task.steps
            assert all(math.isfinite(x) and x >= 0 for x in norms)
            assert norms[-1] > 0
    spectra = of_kind(result, "spectrum")
    methods = [m.method for m in Trainer(config(name, task=task)).model.modules() if isinstance(m, Transition)]
    assert [r["step"] for r in spectra] == [step for step in (0, 5, 10) for _ in methods]
    for record in spectra:
        assert record["min"] <= record["mean"] * (1 + 1e-6)
        assert record["mean"] <= record["max"] * (1 + 1e-6)
        assert ("manifold_error" in record) == bool(methods[0].manifolds)
    assert read_metrics(tmp_path / "metrics.jsonl") == result.records


def test_the_numbers_are_those_of_the_diagnostics():
    result = train(config(steps=4, record=RecordConfig(gradients=4, spectrum=4, sequences=3)))
    trainer = Trainer(config())
    for _ in range(4):
        trainer.update()
    inputs, targets = next(TASK.problem().validation(3))
    expected = hidden_gradient_norms(trainer.model, inputs, lambda y: TASK.objective().loss(y[-1:], targets[-1:]))
    torch.testing.assert_close(
        torch.tensor(of_kind(result, "gradients")[-1]["norms"]).double(), expected, rtol=1e-4, atol=0
    )
    W = trainer.model.core.weight_hh_l0.detach()
    record = of_kind(result, "spectrum")[-1]
    s = torch.linalg.svdvals(W.double())
    found = [record[key] for key in ("mean", "std", "min", "max", "error")]
    assert found == pytest.approx(
        [s.mean().item(), s.std(correction=0).item(), s.min().item(), s.max().item(), orthogonality_error(W)], abs=1e-9
    )
    total = train(config(steps=1, record=RecordConfig(gradients=1, gradient_loss="total")))
    assert of_kind(total, "gradients")[0]["loss"] == "total"


def test_looking_changes_nothing():
    def numbers(result):
        return [
            {k: v for k, v in r.items() if k not in ("seconds", "cpu_seconds")}
            for r in result.records
            if r["kind"] in ("train", "validation")
        ]

    assert numbers(train(config())) == numbers(train(config(record=RecordConfig())))


def test_spectral_trains_within_its_margin():
    for margin in (0.0, 0.2, "none"):
        trainer = Trainer(config(model={"margin": margin}, optimizer=OptimizerConfig(lr=0.05)))
        before = trainer.model.core.transition_l0.u.detach().clone()
        for _ in range(40):
            trainer.update()
        transition = trainer.model.core.transition_l0
        assert (transition.u.detach() - before).norm() > 1e-2
        assert max(orthogonality_error(transition.u), orthogonality_error(transition.v)) < 1e-5
        s = torch.linalg.svdvals(transition.matrix().detach().double())
        if margin != "none":
            assert (s - 1).abs().max() <= margin + 1e-6
    with pytest.raises(ArgumentError, match="margin"):
        Trainer(config("ornn", model={"margin": 0.1}))


def test_gain_and_clipping_reach_the_network():
    core = Trainer(config(model={"gain": 1.05, "clip_backward": 2.0, "nonlinearity": "oplu"})).model.core
    assert (core.gain, core.clip_backward, core.nonlinearity) == (1.05, 2.0, "oplu")
    with pytest.raises(ArgumentError, match="clip_backward"):
        Trainer(config(model={"clip_backward": 0.0}))


@pytest.mark.parametrize("manifold", ["cayley-rmsprop", "cayley-sgd"])
def test_spectral_goes_on_bit_for_bit(manifold):
    made = config(optimizer=OptimizerConfig(manifold=manifold, manifold_lr=0.01))
    whole, first, second = Trainer(made), Trainer(made), Trainer(made)
    losses = [whole.update() for _ in range(25)]
    for _ in range(13):
        first.update()
    second.load_state_dict(first.state_dict())
    assert [second.update() for _ in range(12)] == losses[13:]
    for one, other in zip(whole.model.parameters(), second.model.parameters()):
        assert torch.equal(one, other)


PENALTIES = ["soft_orthogonality", "weight_decay", "spectrum_prior", "norm_stabilizer", "gradient_norm"]


@pytest.mark.parametrize("penalty", PENALTIES)
def test_a_penalty_on_what_the_model_does_not_have_leaves_no_folder(penalty, tmp_path):
    made = config("lstm", record=RecordConfig(), penalties=PenaltyConfig(**{penalty: 0.5}))
    with pytest.raises(
        ArgumentError, match=f"Expected the penalty {penalty} only for a model with an? .*, but got 0.5"
    ):
        train(made, tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("penalty", PENALTIES)
def test_each_penalty_reaches_the_parameters(penalty):
    moved = []
    for strength in (0.0, 10.0):
        made = config(model={"margin": "none"}, penalties=PenaltyConfig(**{penalty: strength}))
        trainer = Trainer(made)
        with trainer.own_random():  # the same for both strengths
            torch.nn.init.uniform_(trainer.model.core.transition_l0.spectrum, 0.5, 1.5)
        losses = [trainer.update() for _ in range(3)]
        moved.append((losses[0], trainer.model.core.transition_l0.spectrum.detach().clone()))
    assert moved[0][0] == pytest.approx(moved[1][0], rel=1e-6)  # the reported loss is the task's alone
    assert not torch.allclose(moved[0][1], moved[1][1], rtol=0, atol=1e-7)


@pytest.mark.parametrize("penalty", PENALTIES)
def test_a_negative_penalty_is_named(penalty):
    with pytest.raises(ArgumentError, match=penalty):
        PenaltyConfig(**{penalty: -1.0})


def test_wrong_intervals():
    for wrong in ({"gradients": 0}, {"spectrum": -1}, {"sequences": 0}, {"gradient_loss": "first"}):
        with pytest.raises(ArgumentError, match=next(iter(wrong))):
            RecordConfig(**wrong)


@pytest.mark.parametrize("penalty", ["norm_stabilizer", "gradient_norm"])
def test_penalties_on_steps_need_sequences_of_one_length(penalty, tmp_path):
    path = tmp_path / "text.txt"
    path.write_text("\n".join("abcdefgh"[: 3 + i % 5] for i in range(30)))
    for batching in ("packed", "equal"):
        task = Characters(data=str(path), batching=batching)
        trainer = Trainer(config("scornn", RecordConfig(), task=task, penalties=PenaltyConfig(**{penalty: 1.0})))
        if batching == "equal":
            trainer.update()
            continue
        with pytest.raises(ArgumentError, match=r"this batch has several. .* batching='equal', --batching equal"):
            trainer.update()


def test_that_nothing_can_be_recorded_is_said():
    with pytest.warns(OrthornnWarning, match='LSTM has no recurrent matrix, so there will be no "spectrum" records'):
        train(config("lstm", record=RecordConfig(spectrum=5)))
