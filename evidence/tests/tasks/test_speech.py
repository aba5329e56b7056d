from __future__ import annotations

import io
import shutil
import tarfile
import zipfile

import numpy as np
import pytest
import torch

from orthornn.errors import ArgumentError, DataError, OrthornnWarning
from orthornn.learn.systems import build
from orthornn.learn.tasks.abilities import baselines
from orthornn.learn.tasks.sequences import mean_of_each
from orthornn_evidence.tasks import Speech, speech
from orthornn_evidence.tasks.spectrogram import HOP, WINDOW
from orthornn_evidence.tasks.speech_files import CORE_TEST_SPEAKERS, DEVELOPMENT_SPEAKERS, utterances
from orthornn_evidence.tasks.speech_scores import available
from support.hostile_files import promising
from support.made_sounds import archives, wav
from support.real_data import REAL_DATA, needs


@pytest.fixture
def task(tmp_path):
    return Speech(data=str(archives(tmp_path / "sounds")))


def test_inputs_are_the_standardized_frames_before(task):
    batch = task.problem().train(0, 6, 0)
    mean, deviation = task._scale
    features = task._train.features
    assert mean == pytest.approx(float(features.double().mean()))
    assert len(batch.inputs.data) == len(features) - 6
    assert sorted(batch.targets.data[:, 3].tolist()) == sorted(task._wanted(task._train)[:, 3].tolist())
    one = task.problem().train(0, 1, 0)
    back = one.inputs * deviation + mean
    # a float32 number of size 100, standardized and back
    torch.testing.assert_close(back[1:], one.targets[:-1], atol=1e-4, rtol=0)
    assert task.steps == int(task._train.frames.lengths.max()) - 1


def test_the_mean_frame_has_the_trivial_loss_and_the_previous_frame_its_own(task):
    mean, deviation = task._scale
    total = count = 0.0
    answer = (task._wanted(task._train).mean(0) - mean) / deviation
    for step in range(6):
        targets = task.problem().train(step, 1, 0).targets
        one, number = task.objective().metrics(answer.expand(*targets.shape), targets)["loss"]
        total, count = total + one, count + number
    assert total / count == pytest.approx(task.objective().trivial_loss, rel=1e-4)
    batch = next(task.problem().test(2))
    persistent = task.objective().metrics(batch.inputs.data, batch.targets)["loss"]
    assert persistent[0] / persistent[1] == pytest.approx(baselines(task)["previous frame"], rel=1e-5)


def test_the_utterances_are_described(task):
    (told,) = task.summary_lines()
    seconds = sum(map(len, task._train.sounds)) / 8000
    assert f"{len(task._train.sounds)} utterances ({seconds:.3g} s) for train, " in told
    assert told.endswith(f"at 8000 Hz; a step is a spectrum of a window of {WINDOW / 8:g} ms, one every {HOP / 8:g} ms")


def test_padding_is_in_no_loss(task):
    model = build("lstm", 129, 129, hidden_size=4, output="all")
    together = task.objective().metrics(
        model(next(task.problem().test(2)).inputs), next(task.problem().test(2)).targets
    )
    alone = [task.objective().metrics(model(batch.inputs), batch.targets) for batch in task.problem().test(1)]
    for name in ("loss", "mse_utterance"):
        assert together[name][0] == pytest.approx(sum(one[name][0] for one in alone), rel=1e-5)
        assert together[name][1] == sum(one[name][1] for one in alone)


def test_the_extra_archive_is_only_for_training(task):
    more = Speech(data=task.data, extra=True)
    assert len(more._train.names) == len(task._train.names) + 1
    assert more._test.names == task._test.names


def test_a_perfect_prediction_sounds_as_the_utterance(task):
    mean, deviation = task._scale

    def perfect(inputs):
        return ((next(task.problem().test(1)).targets) - mean) / deviation

    truth, sounds = task.reconstruct(perfect, 0)
    error = np.abs(sounds["model"] - truth)[1:]
    # features are float32 decibels of size 100: a relative error of 1e-6 in amplitudes up to .3
    assert error.max() < 1e-3
    assert np.abs(sounds["previous frame"] - truth).max() > 10 * error.max()
    scores = task.scores(perfect, 1)
    assert scores["model"]["SegSNR"] > 30 > scores["previous frame"]["SegSNR"]


def test_a_timit_folder_is_read_to_the_letter(tmp_path):
    development, core = sorted(DEVELOPMENT_SPEAKERS)[0], sorted(CORE_TEST_SPEAKERS)[0]
    assert (len(DEVELOPMENT_SPEAKERS), len(CORE_TEST_SPEAKERS)) == (50, 24)
    assert not DEVELOPMENT_SPEAKERS & CORE_TEST_SPEAKERS
    files = {
        f"TRAIN/DR1/FCJF0/{name}.WAV": part for name, part in (("SA1", None), ("SI648", "train"), ("SX37", "train"))
    }
    files |= {f"TEST/DR1/{development.upper()}/SI1.WAV": "validation", f"TEST/DR2/{core.upper()}/SX2.WAV": "test"}
    files |= {"TEST/DR1/MXXX0/SI5.WAV": None}
    for number, name in enumerate(files):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(wav(number, 1600, 16000))
    for part in ("train", "validation", "test"):
        found = [name.replace("\\", "/") for name, _, _ in utterances(tmp_path, part, False, 0.1, 0.1, 0)]
        assert found == [name for name, its in files.items() if its == part]
    pytest.importorskip("scipy")
    assert int(Speech(data=str(tmp_path))._train.frames.lengths[0]) == 1 + (800 - 256) // 128


def test_speakers_of_any_folder_are_in_one_part_alone(tmp_path):
    for speaker in range(5):
        for number in range(3):
            path = tmp_path / f"speaker{speaker}" / f"{number}.wav"
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(wav(speaker, 600))
    task = Speech(data=str(tmp_path))
    speakers = [{name.split("/")[0] for name in part.names} for part in (task._train, task._validation, task._test)]
    assert sorted(len(part) for part in speakers) == [1, 1, 3]
    assert len(set.union(*speakers)) == 5


@pytest.mark.parametrize("options", [{"validation_share": 0.3}, {"test_share": 0.2}, {"split_seed": 4}])
def test_a_folder_that_names_its_parts_is_not_divided(options, task, tmp_path):
    """These options were ignored."""
    ((name, value),) = options.items()
    message = (
        rf"Expected {name}, --{name.replace('_', '-')}, only with a folder of sounds, but got {value} for the folder"
    )
    with pytest.raises(ArgumentError, match=message):
        Speech(data=task.data, **options).objective().trivial_loss  # noqa: B018
    for part in ("TRAIN", "test"):
        (tmp_path / "timit" / part).mkdir(parents=True)
    with pytest.raises(ArgumentError, match=message):
        Speech(data=str(tmp_path / "timit"), **options).objective().trivial_loss  # noqa: B018


def test_a_folder_without_archives_has_no_extra_one(tmp_path):
    for number in range(3):
        (tmp_path / f"{number}.wav").write_bytes(wav(number, 600))
    assert Speech(data=str(tmp_path), validation_share=0.3).objective().trivial_loss > 0
    with pytest.raises(ArgumentError, match=r"Expected extra, --extra, only with a folder that has train_extra\.zip"):
        Speech(data=str(tmp_path), extra=True).objective().trivial_loss  # noqa: B018


def test_what_a_system_put_there_is_no_utterance(task, tmp_path):
    files = {f"speaker{k}/{n}.wav": wav(3 * k + n) for k in range(3) for n in range(2)}
    strange = ["__MACOSX/speaker0/._0.wav", "speaker1/._0.wav", ".Trash-0/files/9.wav", "_background_noise_/hum.wav"]
    folder = tmp_path / "folder"
    for name, content in {**files, **dict.fromkeys(strange, b"\0\5\x16\7")}.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    with pytest.warns(
        OrthornnWarning, match=r"folder: 4 sounds are left out because of their names: \.Trash-0/files/9\.wav, "
    ):
        found = [
            one[0] for part in ("train", "validation", "test") for one in utterances(folder, part, False, 0.3, 0.3, 0)
        ]
    assert sorted(found) == sorted(files)
    assert Speech(data=str(folder)).files().keys() == files.keys()
    with zipfile.ZipFile(tmp_path / "sounds" / "train.zip", "a") as archive:
        archive.writestr("__MACOSX/._00.wav", b"\0\5\x16\7")
    with pytest.warns(OrthornnWarning, match=r"train\.zip: 1 sound is left out"):
        assert len(task._train.names) == 6


@pytest.mark.parametrize("subtype", ["PCM_16", "PCM_24", "ULAW"])
def test_a_truncated_member_of_an_archive_is_refused(task, tmp_path, subtype):
    soundfile = pytest.importorskip("soundfile")
    file = io.BytesIO()
    soundfile.write(file, np.sin(np.arange(4000) / 9) / 2, 8000, format="WAV", subtype=subtype)
    with zipfile.ZipFile(tmp_path / "sounds" / "train.zip", "a") as archive:
        archive.writestr("cut.wav", file.getvalue()[: len(file.getvalue()) // 2])
    with pytest.raises(
        DataError, match=r"the 4000 samples that the header of cut\.wav in .*train\.zip promises, but got"
    ):
        task.objective().trivial_loss  # noqa: B018


def truncate(path):
    path.write_bytes(path.read_bytes()[:-30])


BROKEN = {
    "a zip archive, but .* is truncated": (truncate, "train.zip"),
    "has no train.zip": (lambda path: path.unlink(), "train.zip"),
    "there is no folder": (lambda path: shutil.rmtree(path.parent), ""),
}


@pytest.mark.parametrize("message", BROKEN)
def test_a_bad_folder_is_one_clear_error(task, message, tmp_path):
    edit, name = BROKEN[message]
    edit(tmp_path / "sounds" / "train.zip")
    with pytest.raises(DataError, match=message) as caught:
        task.objective().trivial_loss  # noqa: B018
    assert name in str(caught.value)


def test_too_short_and_too_few_sounds_are_said(tmp_path):
    for number in range(3):
        (tmp_path / f"{number}.wav").write_bytes(wav(number, 300))
    with pytest.raises(DataError, match=r"Expected at least 384 samples, two frames, but .* has 300 at 8000 Hz"):
        Speech(data=str(tmp_path)).objective().trivial_loss  # noqa: B018
    (tmp_path / "0.wav").unlink()
    with pytest.raises(DataError, match=r"Expected at least 3 sound files.* holds 2"):
        Speech(data=str(tmp_path)).objective().trivial_loss  # noqa: B018


@needs("speech")
def test_librispeech_at_8_khz_has_its_published_numbers():
    task = Speech(data=str(REAL_DATA / "speech" / "librispeech_8k"))
    expected = {
        "_train": (598, 129031, -30.15, 14.96),
        "_validation": (128, 28974, -32.29, 15.16),
        "_test": (192, 40639, -32.03, 15.38),
    }
    for part, (count, total, mean, deviation) in expected.items():
        read = getattr(task, part)
        assert (len(read.names), len(read.features)) == (count, total)
        assert float(read.features.mean()) == pytest.approx(mean, abs=0.005)
        assert float(read.features.std()) == pytest.approx(deviation, abs=0.005)
    batch = next(task.problem().test(192))
    before = batch.inputs.data * task._scale[1] + task._scale[0]
    squares = (batch.targets.data - before).square().mean(-1)
    assert float(mean_of_each(squares, batch.targets).mean()) == pytest.approx(65.08, abs=0.01)


@needs("speech")
def test_the_real_timit_sample_is_a_folder_of_sounds(tmp_path):
    import zipfile

    with zipfile.ZipFile(REAL_DATA / "speech" / "timit_sample_nc" / "timit_sample_16k.zip") as archive:
        names = [name for name in archive.namelist() if name.lower().endswith(".wav") and "sx" in name.lower()]
        for name in names[:12]:
            archive.extract(name, tmp_path)
    assert Speech(data=str(tmp_path)).objective().trivial_loss > 0


@pytest.mark.parametrize("score", ["SegSNR", "STOI", "PESQ"])
def test_a_reconstruction_that_is_silent_has_a_score_or_none(score):
    """What a network says that has learnt nothing yet lies below the floor of the logarithm."""
    function = available()[score]
    if function is None:
        pytest.skip(f"the package of {score} is not installed")
    random = np.random.default_rng(0)
    swell = np.sin(np.arange(16000) / 700) ** 2
    speech = (0.1 * swell * random.standard_normal(16000)).astype(np.float32)
    value = function(speech, np.zeros_like(speech), 8000)
    assert np.isnan(value) if score == "PESQ" else value == pytest.approx(0, abs=1e-12)


def test_an_archive_that_becomes_too_large_is_refused(tmp_path):
    folder = archives(tmp_path / "data")
    for name in ("train.zip", "valid.zip"):
        (folder / name).write_bytes(promising((folder / name).read_bytes(), 3 << 30))
    with pytest.raises(DataError, match=r"train\.zip, .* to become at most 1073741824 bytes when decompressed"):
        Speech(data=str(folder)).objective().trivial_loss  # noqa: B018


@pytest.mark.parametrize("cut", [0.5, None])
def test_a_corpus_is_unpacked_as_a_whole_or_not_at_all(tmp_path, monkeypatch, cut):
    """A part of it would be taken for the corpus by the next call."""
    folder = tmp_path / "data"
    folder.mkdir()
    with tarfile.open(folder / "test-clean.tar.gz", "w:gz") as archive:
        for number in range(6):
            content = np.random.default_rng(number).bytes(4000)
            entry = tarfile.TarInfo(f"LibriSpeech/test-clean/{number}/1/{number}.flac")
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    archive = folder / "test-clean.tar.gz"
    if cut is not None:
        archive.write_bytes(archive.read_bytes()[: int(cut * archive.stat().st_size)])
    monkeypatch.setattr(speech, "fetch_missing", lambda *_: None)
    task = Speech(data=str(folder), download=True)
    if cut is not None:
        with pytest.raises(DataError, match="truncated"):
            task._fetch(folder)
        assert [*folder.iterdir()] == [archive]
    else:
        task._fetch(folder)
        assert sorted(path.name for path in folder.rglob("*.flac")) == [f"{number}.flac" for number in range(6)]
    assert [*tmp_path.iterdir()] == [folder]


def test_sounds_that_are_there_are_not_mixed_with_a_download(tmp_path, monkeypatch):
    monkeypatch.setattr(speech, "fetch_missing", lambda *_: pytest.fail("nothing is missing"))
    (tmp_path / "one.ogg").write_bytes(b"")
    Speech(data=str(tmp_path), download=True)._fetch(tmp_path)


def test_a_damaged_download_is_one_error(tmp_path):
    (tmp_path / "test-clean.tar.gz").write_bytes(b"\x1f\x8b and nothing of the kind")
    with pytest.raises(DataError, match=r"a tar archive, but .*test-clean\.tar\.gz is truncated"):
        Speech(data=str(tmp_path), download=True).objective().trivial_loss  # noqa: B018
