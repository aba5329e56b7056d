from __future__ import annotations

import json
import wave

import numpy as np
import pytest
import torch

from orthornn.cli import main
from orthornn.errors import ArgumentError, DataError
from orthornn.learn.files.audio import read_audio, write_wav
from orthornn.learn.systems import build
from orthornn.learn.tasks import Amplifier
from orthornn.learn.training import OptimizerConfig, Run, RunConfig, Trainer, train
from support.made_sounds import wav
from support.run_cases import config

SIZES = {"truncation": 50, "skipped": 8}


@pytest.fixture
def folder(tmp_path):
    """A recording, and the same through a tanh with a memory of one sample."""
    (tmp_path / "dry.wav").write_bytes(wav(1, 3000, 8000))
    x = read_audio(tmp_path / "dry.wav")[0]
    write_wav(tmp_path / "wet.wav", 0.5 * np.tanh(3 * x + np.concatenate([[0], x[:-1]])), 8000)
    return tmp_path


def made(folder, **options):
    return Amplifier(**{"data": str(folder), **SIZES, **options})


def test_streams_go_on_from_batch_to_batch(folder):
    task = made(folder)
    dry = read_audio(folder / "dry.wav")[0] * task.problem().schema["scale"]
    assert task.steps_per_epoch(5) == 1800 // 5 // 50 - 1 == 6
    for epoch in range(3):
        steps = range(6 * epoch, 6 * epoch + 6)
        assert [task.objective().begins(step, 5) for step in steps] == [True] + 5 * [False]
        batches = [task.problem().train(step, 5, 7) for step in steps]
        whole = torch.cat([batch.inputs for batch in batches])[..., 0].T.numpy()
        for row, stream in enumerate(whole):  # consecutive samples of the part that belongs to the stream
            start = int(np.argmin([np.abs(dry[k : k + 300] - stream).max() for k in range(1501)]))
            assert np.abs(dry[start : start + 300] - stream).max() < 1e-6
            assert 360 * row <= start <= 360 * row + 60
        assert [int(batch.targets.isnan().sum()) for batch in batches] == [40, 0, 0, 0, 0, 0]
    assert torch.equal(task.problem().train(3, 5, 7).inputs, task.problem().train(3, 5, 7).inputs)
    assert not torch.equal(task.problem().train(0, 5, 7).inputs, task.problem().train(6, 5, 7).inputs)


def test_parts_follow_each_other_in_time(folder):
    task = made(folder)
    wet = read_audio(folder / "wet.wav")[0]
    parts = {part: list(getattr(task.problem(), part)(9)) for part in ("validation", "test")}
    found = [torch.cat([batch.targets for batch in parts[part]]) for part in parts]
    assert [int(y.isnan().sum()) for y in found] == [8, 8]
    counted = np.concatenate([y[~y.isnan()].numpy() for y in found]) * task.problem().schema["target_scale"]
    assert np.abs(counted - wet[1800:]).max() < 1e-6
    assert np.array_equal(np.concatenate([task.sounds(part)["wet"] for part in parts]), wet[1800:])


def test_the_ratio_is_that_of_the_formula(folder):
    task = made(folder)
    (batch,) = task.problem().test(9)
    y = batch.targets + 0.1 * torch.randn(batch.targets.shape)
    true, said = batch.targets[8:, 0, 0].double().numpy(), y[8:, 0, 0].double().numpy()

    def emphasized(x):
        return x[1:] - 0.95 * x[:-1]

    total, count = task.objective().metrics(torch.where(y.isnan(), 3.0, y), batch.targets)["esr"]
    said_everywhere = np.where(np.isnan(said), 3.0, said)
    assert total / count == pytest.approx(
        (emphasized(true - said_everywhere) ** 2).sum() / (emphasized(true) ** 2).sum(), rel=1e-6
    )
    silent = {name: a / b for name, (a, b) in task.objective().metrics(torch.zeros_like(y), batch.targets).items()}
    assert silent == {name: pytest.approx(1) for name in ("loss", "esr", "plain_esr")}
    assert task.objective().trivial_loss == 1
    plain = made(folder, emphasis=0.0)
    ratios = plain.objective().metrics(torch.ones_like(y), batch.targets)
    assert ratios["esr"][0] == pytest.approx(ratios["plain_esr"][0] - (true[0] - 1) ** 2)


def test_the_training_loss_has_a_finite_gradient_and_reports_nan(folder):
    task = made(folder)
    batch = task.problem().train(0, 5, 0)
    prediction = torch.zeros(50, 5, 1, requires_grad=True)
    loss = task.objective().loss(prediction, batch.targets)
    loss.backward()
    assert 0.2 < float(loss.detach()) < 5
    assert prediction.grad.isfinite().all()
    assert not prediction.grad[:8].any()  # not counted
    broken = torch.full((50, 5, 1), torch.nan)
    assert task.objective().loss(broken, batch.targets).isnan()
    assert task.objective().loss(prediction[-1:], batch.targets[-1:]).isfinite()


@pytest.mark.parametrize("name", ["ornn-rotations", "lstm", "gru", "goru", "lstm-peephole", "blocks", "scurnn"])
def test_a_stream_in_pieces_is_the_stream(name):
    model = build(name, 1, 1, hidden_size=6, output="all").eval()
    x = torch.randn(40, 3, 1)
    with torch.no_grad():
        whole, state, found = model(x), None, []
        for piece in x.split((13, 1, 26)):
            y, state = model.stream(piece, state)
            found.append(y)
    assert torch.allclose(torch.cat(found), whole, atol=1e-5)
    with pytest.raises(ArgumentError, match="reads out every step"):
        build(name, 1, 1, hidden_size=6, output="last").stream(x)


@pytest.mark.parametrize("name", ["ornn-rotations", "lstm"])
def test_the_state_is_carried_over_and_no_gradient_is(name, folder):
    trainer = Trainer(config(name, task=made(folder), batch_size=5, optimizer=OptimizerConfig(lr=0.0)))
    state = None
    for step in range(8):
        batch = trainer.config.task.problem().train(step, 5, 0)
        with torch.no_grad():
            y, state = trainer.model.stream(batch.inputs, None if step % 6 == 0 else state)
        assert trainer.update() == pytest.approx(
            float(trainer.config.task.objective().loss(y, batch.targets)), rel=1e-5
        )
        assert not any(t.requires_grad for t in torch.utils._pytree.tree_leaves(trainer.state_dict()["carried"]))
        metrics = trainer.evaluate(
            trainer.config.task.problem().validation(9)
        )  # leaves the state of the training alone
    with torch.no_grad():
        (batch,) = trainer.config.task.problem().validation(9)
        expected = trainer.config.task.objective().metrics(trainer.model.stream(batch.inputs)[0], batch.targets)
    assert metrics["esr"] == pytest.approx(expected["esr"][0] / expected["esr"][1], rel=1e-5)


def test_pieces_of_the_evaluation_are_one_stream(folder, monkeypatch):
    task = made(folder)
    trainer = Trainer(config(task=task, batch_size=5))
    whole = trainer.evaluate(task.problem().test(9))
    effect = task.effect(trainer.model)
    monkeypatch.setattr("orthornn.learn.tasks.amplifier._PIECE", 100)
    assert len(list(task.problem().test(9))) == 7
    assert trainer.evaluate(task.problem().test(9))["plain_esr"] == pytest.approx(whole["plain_esr"], rel=1e-5)
    assert np.abs(task.effect(trainer.model) - effect).max() < 1e-6
    assert effect.shape == (600,)


def test_a_carried_state_that_does_not_fit_is_refused(folder, tmp_path):
    options = {"task": made(folder), "batch_size": 5}
    trainer = Trainer(config(**options))
    trainer.update()
    good = trainer.state_dict()
    for wrong in (torch.zeros(1, 4, 8), (torch.zeros(1, 5, 8),) * 2, torch.zeros(1, 5, 8, dtype=torch.float64)):
        with pytest.raises(ValueError, match="the carried state has"):
            Trainer(config(**options)).load_state_dict({**good, "carried": wrong})


def test_parts_of_a_batch_have_no_state(folder):
    with pytest.raises(ArgumentError, match=r"accumulate=1 for amplifier.*but got 1 and 2"):
        Run(config(task=made(folder), batch_size=8, accumulate=2))


def test_an_effect_is_learned(folder):
    found = train(
        RunConfig(
            task=made(folder),
            model=config("ornn-rotations").model,
            optimizer=OptimizerConfig(lr=0.02, recurrent_lr=0.02),
            steps=150,
            batch_size=8,
        )
    )
    assert found.test["esr"] < 0.3


def test_the_command_writes_the_sounds(folder, tmp_path, capsys):
    out = tmp_path / "run"
    words = ["--data", str(folder / "dry.wav"), "--truncation", "50", "--skipped", "8", "--steps", "3"]
    assert main(["train", "amplifier", *words, "--hidden-size", "4", "--batch-size", "3", "--out", str(out)]) == 0
    assert "wet made by an overdrive circuit: 8000 Hz; train 0.225 s" in capsys.readouterr().out
    sounds = {name: read_audio(out / f"{name}.wav") for name in ("dry", "wet", "learned")}
    assert {name: (len(sound), rate) for name, (sound, rate) in sounds.items()} == dict.fromkeys(sounds, (600, 8000))
    assert main(["evaluate", str(out)]) == 0
    assert "plain_esr" in capsys.readouterr().out


def test_what_is_wrong_is_said(folder):
    for options, message in (
        ({"data": str(folder / "none")}, "there is no .*none"),
        ({"wet": str(folder / "none.wav")}, "there is no .*none.wav"),
        ({"truncation": 1500}, "at least 4500 samples, three segments, but .* has 3000"),
        ({"truncation": 900, "validation_share": 0.45, "test_share": 0.45}, "at least 900 samples for training"),
    ):
        with pytest.raises(DataError, match=message):
            made(folder, **options).objective().trivial_loss  # noqa: B018
    with pytest.raises(ArgumentError, match="The training part has 36 segments"):
        made(folder).problem().train(0, 37, 0)
    with pytest.raises(ArgumentError, match="drive only where the circuit"):
        made(folder, drive=3.0).objective().trivial_loss  # noqa: B018
    with pytest.raises(ArgumentError, match="Some sample of a segment has to count"):
        made(folder, skipped=49)
    x, rate = read_audio(folder / "dry.wav")
    write_wav(folder / "wet.wav", x[:-1], rate)
    with pytest.raises(DataError, match=r"3000 samples at 8000 Hz .* and 2999 at 8000 Hz"):
        made(folder).objective().trivial_loss  # noqa: B018
    write_wav(folder / "wet.wav", np.where(np.arange(3000) < 2400, x, 0), rate)
    with pytest.raises(DataError, match=r"wet recording is silent from sample 2400 to 3000 \(test\)"):
        made(folder).objective().trivial_loss  # noqa: B018


def test_float_samples_that_are_not_finite(folder):
    soundfile = pytest.importorskip("soundfile")
    x = read_audio(folder / "dry.wav")[0].copy()
    x[5] = np.nan
    soundfile.write(folder / "wet.wav", x, 8000, subtype="FLOAT")
    with pytest.raises(DataError, match=r"Expected finite samples in .*wet\.wav, but got 1"):
        made(folder).objective().trivial_loss  # noqa: B018


def test_stereo_is_averaged(folder):
    with wave.open(str(folder / "wet.wav"), "wb") as file:
        file.setnchannels(2)
        file.setsampwidth(2)
        file.setframerate(8000)
        file.writeframes(np.arange(6000).astype("<i2").tobytes())
    assert made(folder).objective().trivial_loss == 1


@pytest.mark.parametrize("cut", ["dry.wav", "wet.wav", "both"])
@pytest.mark.parametrize("subtype", ["PCM_16", "PCM_24", "FLOAT", "PCM_U8"])
def test_a_truncated_recording_is_refused_also_where_both_are_as_short(folder, subtype, cut):
    soundfile = pytest.importorskip("soundfile")
    for name in ("dry.wav", "wet.wav"):
        soundfile.write(folder / name, read_audio(folder / name)[0], 8000, subtype=subtype)
    assert made(folder).rate == 8000
    for name in ("dry.wav", "wet.wav"):
        if cut in (name, "both"):
            content = (folder / name).read_bytes()
            (folder / name).write_bytes(content[: len(content) * 2 // 3])
    with pytest.raises(DataError, match=r"the 3000 samples that the header of .*\.wav promises, but got"):
        made(folder).objective().trivial_loss  # noqa: B018


def test_the_rate_goes_with_the_weights(folder, tmp_path, capsys):
    """Into description.json, and from there into the files of a plug-in or a microcontroller."""
    words = ["--truncation", "50", "--skipped", "8", "--hidden-size", "4", "--reflections", "2", "--batch-size", "3"]
    run = str(tmp_path / "run")
    assert main(["train", "amplifier", "--data", str(folder), *words, "--steps", "2", "--out", run]) == 0
    description = json.loads((tmp_path / "run" / "description.json").read_text())
    assert (description["sample_rate"], "sound" in description) == (8000, False)
    assert main(["export", run, "--audio", "--c", "--name", "amp", "--out", str(tmp_path / "out")]) == 0
    assert "per sample, trained at 8000 Hz" in capsys.readouterr().out
    assert json.loads((tmp_path / "out" / "amp.json").read_text())["sample_rate"] == 8000
    header = (tmp_path / "out" / "amp.h").read_text()
    assert "#define AMP_SAMPLE_RATE 8000" in header
    assert "A step is a sample of a sound, at 8000 Hz." in header
    # a run from before the rate was stored goes on
    del description["sample_rate"], description["sha256"]
    (tmp_path / "run" / "description.json").write_text(json.dumps(description))
    assert main(["train", "--resume", run, "--steps", "3"]) == 0
    assert main(["export", run, "--audio", "--out", str(tmp_path / "old")]) == 0
    assert "sample_rate" not in json.loads((tmp_path / "old" / "network.json").read_text())
