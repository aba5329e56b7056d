"""Folders of sounds: labels, rates, features, and the commands on them."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pytest

import orthornn
from orthornn import cli
from orthornn.errors import ArgumentError, DataError, OrthornnWarning
from orthornn.export import to_c
from orthornn.learn.files import sound_folder
from orthornn.learn.files.audio import write_wav
from orthornn.learn.files.columns import is_data, read_columns
from orthornn.learn.files.sound_folder import SoundFormat, features_of, read_sounds, sounds_of
from orthornn.learn.runs.fingerprint import fingerprint
from orthornn.learn.tasks import Classify
from orthornn.learn.tasks.task_choice import choose_task
from orthornn.learn.training import train
from support.run_cases import config

RATE = 8000
SMALL = SoundFormat(RATE, mels=6)
RANDOM = np.random.default_rng(8)


def tone(hertz, seconds=0.1, rate=RATE):
    steps = np.arange(round(seconds * rate))
    return 0.5 * np.sin(2 * np.pi * hertz * steps / rate) + 0.01 * RANDOM.standard_normal(len(steps))


def write(folder, files, rate=RATE):
    for name, hertz in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        write_wav(folder / name, tone(hertz, 0.1 + 0.01 * (hertz % 7), rate), rate)
    return folder


LABELED = {
    f"{label}/{number}.wav": hertz + 40 * number
    for label, hertz in (("low", 300), ("high", 2000))
    for number in range(5)
}


@pytest.fixture
def folder(tmp_path):
    return write(tmp_path / "tones", LABELED)


def test_labels_from_subfolders(folder):
    found = read_columns(folder, sound=SMALL)
    assert list(found.columns) == [*(f"x{place}" for place in range(6)), "y", "sequence"]
    assert found.features == 6
    by_name = dict(zip(found.columns["sequence"], found.columns["y"]))
    assert by_name == {name: name.split("/")[0] for name in LABELED}
    energy = {
        label: np.stack([found.columns[f"x{k}"][found.columns["y"] == label].mean() for k in range(6)])
        for label in ("low", "high")
    }
    assert energy["low"].argmax() < energy["high"].argmax()
    assert set(sounds_of(folder)) == set(LABELED)


def test_parts_from_subfolders(tmp_path):
    files = {f"{part}/{label}/{n}.wav": 500 for part in ("Train", "dev", "test") for label in "ab" for n in range(2)}
    found = read_columns(write(tmp_path, files), sound=SMALL)
    assert set(found.columns["split"]) == {"Train", "dev", "test"}
    assert set(found.columns["y"]) == {"a", "b"}
    task = Classify(data=tmp_path, target="y", split="split", sample_rate=RATE, mels=6)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", OrthornnWarning)
        assert sum(len(batch.targets) for batch in task.problem().test(10)) == 4


APPLE_DOUBLE = b"\0\5\x16\7\0\2\0\0Mac OS X        " + bytes(64)
NO_DATA = [
    ".ipynb_checkpoints/0-checkpoint.wav",
    "low/.ipynb_checkpoints/0-checkpoint.wav",
    ".Trash-1000/files/x.wav",
    ".cache/deep/er/x.flac",
    "low/._0.wav",
    "._low/0.wav",
    "low/.0.wav.crdownload.ogg",
    "__MACOSX/low/._0.wav",
    "__MACOSX/low/0.wav",
    "_background_noise_/pink.wav",
    "low/_Background_Noise_/pink.wav",
    "lost+found/x.wav",
    "$RECYCLE.BIN/x.wav",
    "System Volume Information/x.wav",
    "low/@eaDir/0.wav",
    "#recycle/0.wav",
]


@pytest.mark.parametrize("parts", [False, True])
@pytest.mark.parametrize("name", NO_DATA)
def test_what_a_system_or_a_program_put_there_is_no_sound(tmp_path, folder, name, parts):
    """Whatever is in it; and it is told."""
    if parts:
        folder = write(
            tmp_path / "parts", {f"{'test' if n else 'train'}/{k}/{n}.wav": 300 for k in "ab" for n in (0, 1)}
        )
    expected = read_columns(folder, sound=SMALL).columns
    assert ("split" in expected) == parts
    place = folder / "train" / name if parts and not name.startswith(("__MAC", ".", "#", "$")) else folder / name
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_bytes(APPLE_DOUBLE)
    with pytest.warns(OrthornnWarning, match=r"1 sound is left out because of its name: "):
        found = read_columns(folder, sound=SMALL).columns
    assert found.keys() == expected.keys()
    assert all(np.array_equal(found[name], expected[name]) for name in expected)
    assert len(sounds_of(folder)) == len(set(expected["sequence"]))
    with pytest.warns(OrthornnWarning, match="is left out"):
        assert choose_task(folder, "y", ())[0] == "classify"


def test_files_of_a_system_that_are_no_sounds_are_not_worth_a_word(folder):
    for name in ("Thumbs.db", "desktop.ini", ".DS_Store", "low/Thumbs.db", "._labels.csv", ".~lock.labels.csv"):
        (folder / name).write_bytes(APPLE_DOUBLE)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert set(read_columns(folder, sound=SMALL).columns["y"]) == {"low", "high"}


def test_hidden_sounds_are_read_where_they_are_asked_for(tmp_path):
    write(tmp_path / ".data", {"low/0.wav": 300, "high/0.wav": 2000})
    assert set(read_columns(tmp_path / ".data", sound=SMALL).columns["y"]) == {"low", "high"}
    for call in (is_data, read_columns):
        with pytest.raises(DataError, match=r"got only ones that are left out .* such as '\.data/.*0\.wav'"):
            call(tmp_path)
    write(tmp_path, {"a.wav": 300, ".data/b.wav": 500})
    (tmp_path / "labels.csv").write_text("file,y\n.data/b.wav,low\na.wav,high\n")
    with pytest.warns(OrthornnWarning, match=r"leaves out 2 of the sounds .* such as '\.data/high/0\.wav'"):
        assert set(read_columns(tmp_path, sound=SMALL).columns["sequence"]) == {".data/b.wav", "a.wav"}


@pytest.mark.parametrize("parts", [("train", "test"), ("Training", "dev", "Test"), ("fit", "val")])
def test_another_folder_next_to_the_parts_does_not_undo_them(tmp_path, parts):
    files = {f"{part}/{label}/0.wav": 500 for part in parts for label in "ab"}
    write(tmp_path, {**files, "noise/hum.wav": 300, "unlabeled/x/y.wav": 300})
    with pytest.warns(
        OrthornnWarning,
        match=r"2 sounds are left out as they are in none of the folders .*: noise/hum.wav, unlabeled/x/y",
    ):
        found = read_columns(tmp_path, sound=SMALL).columns
    assert (set(found["split"]), set(found["y"]), set(found["sequence"])) == (set(parts), {"a", "b"}, set(files))


@pytest.mark.parametrize("labels", [("train", "bus"), ("test", "trial"), ("eval", "val", "other")])
def test_classes_that_have_the_name_of_a_part_are_classes(tmp_path, labels):
    found = read_columns(write(tmp_path, {f"{label}/0.wav": 500 for label in labels}), sound=SMALL).columns
    assert set(found["y"]) == set(labels)
    assert "split" not in found


def test_a_manifest_gives_every_column(tmp_path):
    write(tmp_path, {"a.wav": 400, "deep/b.wav": 500, "c.wav": 600})
    (tmp_path / "list.csv").write_text("wav,who,age\na.wav,ann,31\ndeep/b.wav,bob,47.5\n")
    with pytest.warns(OrthornnWarning, match=r"leaves out 1 of the sounds .* such as 'c.wav'"):
        found = read_columns(tmp_path, sound=SMALL)
    assert dict(zip(found.columns["sequence"], found.columns["who"])) == {"a.wav": "ann", "deep/b.wav": "bob"}
    assert set(found.columns["age"]) == {31, 47.5}
    assert choose_task(tmp_path, "age", ())[0] == "regress"
    assert choose_task(tmp_path, "who", ())[0] == "classify"


@pytest.mark.parametrize(
    ("manifest", "message"),
    [
        ("wav,y\na.wav,1\nnone.wav,2\n", "Expected the file 'none.wav'"),
        ("wav,y\na.wav,1\na.wav,2\n", "every sound once"),
        ("name,y\na,1\n", "one column of file names"),
        ("wav,copy\na.wav,a.wav\n", "one column of file names"),
    ],
)
def test_wrong_manifests(tmp_path, manifest, message):
    write(tmp_path, {"a.wav": 400})
    (tmp_path / "list.csv").write_text(manifest)
    with pytest.raises(DataError, match=message):
        read_columns(tmp_path)


def test_a_manifest_is_a_text_file_like_others(tmp_path):
    """With the options of text files: a class called None, another separator and encoding."""
    write(tmp_path, {f"{k}.wav": 300 + 200 * (k % 2) for k in range(8)})
    rows = [f"{k}.wav|{('None', 'größer')[k % 2]}" for k in range(8)]
    (tmp_path / "list.csv").write_bytes("\n".join(["file|y", *rows, ""]).encode("cp1252"))
    options = {"target": "y", "sample_rate": RATE, "mels": 6}
    with pytest.raises(DataError, match="--encoding"):
        Classify(data=tmp_path, **options).table().classes  # noqa: B018
    marks = {"separator": "|", "encoding": "cp1252"}
    with pytest.raises(DataError, match=r"Expected a label .* none in row 1.* default_na='empty'"):
        Classify(data=tmp_path, **options, **marks).summary_lines()
    task = Classify(data=tmp_path, **options, **marks, default_na="empty")
    assert task.table().classes == ["None", "größer"]
    assert task.files().keys() == {f"{tmp_path.name}/{name}" for name in ("list.csv", *(f"{k}.wav" for k in range(8)))}
    (tmp_path / "list.csv").unlink()
    with pytest.raises(ArgumentError, match="Expected separator only for text files"):
        Classify(data=tmp_path, **options, **marks).summary_lines()


def test_other_mistakes(tmp_path, folder):
    write(folder, {"loose.wav": 300})
    with pytest.raises(DataError, match=r"'loose.wav' outside"):
        read_columns(folder)
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="a folder without sounds"):
        read_columns(tmp_path / "empty")
    (tmp_path / "empty" / "a.csv").write_text("x\n1\n")
    assert not is_data(tmp_path / "empty")
    write_wav(tmp_path / "none.wav", np.empty(0), RATE)
    with pytest.raises(DataError, match=r"none\.wav has no samples\. Leave it out"):
        read_columns(tmp_path / "none.wav")
    for wrong in ({"sample_rate": 10}, {"hop_ms": 0.01}, {"mels": 0}, {"sound": "mfcc"}, {"window_ms": -1.0}):
        with pytest.raises(ArgumentError):
            Classify(data=folder, target="y", **wrong)


@pytest.mark.parametrize(("name", "value"), [("mels", 6), ("window_ms", 40.0)])
def test_what_frames_have_no_use_for_is_refused(name, value, folder):
    with pytest.raises(ArgumentError, match=rf"Expected {name}, --{name.replace('_', '-')}, only for log-mel energies"):
        Classify(data=folder, target="y", sound="frames", **{name: value}).problem().schema["input_size"]
    assert Classify(data=folder, target="y", **{name: value}).problem().schema["input_size"] == (
        6 if name == "mels" else 40
    )
    assert Classify(data=folder, target="y", sound="frames").problem().schema["input_size"] == 160


def test_a_large_folder_of_other_things_is_not_searched_to_its_end(tmp_path, folder, monkeypatch):
    """A home folder, with a few sounds somewhere or none; sounds with several files each are a data set."""
    monkeypatch.setattr(sound_folder, "_MOST_OTHERS", 20)
    seen, rglob = [], Path.rglob
    monkeypatch.setattr(
        Path, "rglob", lambda path, what: (seen.append(file) or file for file in sorted(rglob(path, what)))
    )
    home = tmp_path / "home"
    for number in range(50):
        (home / f"{number}").mkdir(parents=True)
    for call in (is_data, read_columns):
        seen.clear()
        with pytest.raises(
            DataError, match=r"Expected a folder of sounds .* has 0 among its first 21 files and folders"
        ):
            call(home)
        assert len(seen) <= 21
    write(home, {"0/a.wav": 300})
    with pytest.raises(DataError, match=r"has [01] among its first"):
        read_columns(home)
    for name in LABELED:
        for note in "abcde":
            (folder / name).with_suffix(f".{note}").touch()
    assert set(sounds_of(folder)) == set(LABELED)


def test_sounds_are_resampled(tmp_path):
    pytest.importorskip("scipy")
    one = write(tmp_path / "one", {"a.wav": 700}, 16000)
    columns, features, told = read_sounds(one, SMALL)
    other, _, same = read_sounds(write(tmp_path / "other", {"a.wav": 700}, 8000), SMALL)
    assert "at 8000 Hz (resampled: 1 of 16000 Hz); a step is 6 log-mel energies" in told
    assert "at 8000 Hz; a step is 6 log-mel energies of a window of 25 ms, one every 10 ms" in same
    rows, wanted = (np.stack([found[f"x{k}"] for k in range(features)], 1).mean(0) for found in (columns, other))
    assert rows.argmax() == wanted.argmax()
    np.testing.assert_allclose(rows[wanted.argmax()], wanted.max(), atol=0.1)


def test_features():
    samples = tone(1000, 0.06)
    frames = features_of(samples, SoundFormat(RATE, "frames", hop=10))
    np.testing.assert_array_equal(frames, samples.reshape(6, 80))
    mel = features_of(samples, SMALL)
    assert mel.shape == (1 + (480 - 200) // 80, 6)
    # a filter's place: 1000 Hz is 1000 mel, by the definition of the scale
    center = 1000 / (2595 * np.log10(1 + RATE / 2 / 700)) * 7 - 1
    assert abs(mel.mean(0).argmax() - center) <= 0.5 + 1e-9 or mel.mean(0).argmax() in (int(center), int(center) + 1)
    assert features_of(samples[:3], SMALL).shape == (1, 6)  # filled up
    louder = features_of(10 * samples, SMALL)
    np.testing.assert_allclose((louder - mel)[:, mel.mean(0).argmax()], np.log(100), rtol=1e-3)


def test_a_folder_is_trained_on_and_another_and_a_sound_are_predicted(folder, tmp_path, capsys):
    options = ["--model", "lstm", "--hidden-size", "4", "--steps", "3", "--sample-rate", "8000", "--mels", "6"]
    assert cli.main(["train", str(folder), *options, "--out", str(tmp_path / "run")]) == 0
    assert "y holds names, so the task is classify" in capsys.readouterr().out
    new = write(tmp_path / "new", {"unknown.wav": 400})
    for path in (new, new / "unknown.wav"):
        assert (
            cli.main(["predict", str(tmp_path / "run"), str(path), "--force", "--out", str(tmp_path / "scores.csv")])
            == 0
        )
        assert (tmp_path / "scores.csv").read_text().splitlines()[1].startswith("unknown.wav,")
    assert cli.main(["evaluate", str(tmp_path / "run"), str(folder)]) == 0
    assert cli.main(["inspect", str(folder)]) == 0
    # other sounds are other data
    write(folder, {"low/9.wav": 300})
    assert cli.main(["train", "--resume", str(tmp_path / "run"), "--steps", "4"]) == 2
    assert "low/9.wav is new" in capsys.readouterr().err
    test = write(tmp_path / "test", {f"{label}/9.wav": hertz for label, hertz in (("low", 310), ("high", 2010))})
    task = Classify(data=folder, test_data=test, target="y", sample_rate=RATE, mels=6)
    assert sum(len(batch.targets) for batch in task.problem().test(10)) == 2


@pytest.mark.parametrize("sound", ["log-mel", "frames"])
def test_sounds_are_described_by_their_length_rate_and_hop(folder, tmp_path, capsys, sound):
    """Not by steps and numbered columns alone; and description.json has what makes steps of new sounds."""
    words = [
        "--target",
        "y",
        "--sample-rate",
        "8000",
        *(["--mels", "6"] if sound == "log-mel" else []),
        "--sound",
        sound,
    ]
    assert cli.main(["inspect", str(folder), *words]) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert "16000 Hz" not in told  # the columns are shown as the options say, too
    assert "10 sounds of 0.1 to 0.16 s at 8000 Hz; a step is " in told
    step = (
        "6 log-mel energies of a window of 25 ms, one every 10 ms"
        if sound == "log-mel"
        else "a frame of 10 ms, 80 samples"
    )
    assert f"a step is {step}" in told
    assert f"inputs: x0 to x{5 if sound == 'log-mel' else 79} " in told
    test = write(tmp_path / "test", {f"{label}/9.wav": hertz for label, hertz in (("low", 310), ("high", 2010))})
    options = {"sample_rate": RATE, "sound": sound, **({"mels": 6} if sound == "log-mel" else {})}
    task = Classify(data=folder, test_data=test, target="y", **options)
    assert "; and 2 sounds of " in task.summary_lines()[0]
    train(config(task=task, steps=1), tmp_path / "run")
    description = orthornn.load(tmp_path / "run").description
    expected = {"features": "log-mel", "window": 200, "hop": 80, "mels": 6}
    assert description["sample_rate"] == RATE
    assert description["sound"] == (expected if sound == "log-mel" else {"features": "frames", "hop": 80})
    to_c(orthornn.load(tmp_path / "run"), tmp_path / "c")
    header = (tmp_path / "c" / "network.h").read_text()
    assert "#define NETWORK_SAMPLE_RATE 8000 /* Hz" in header
    line = "6 log-mel energies of a window of 200 samples of a sound, one every 80 samples, at 8000 Hz."
    assert f"A step is {line if sound == 'log-mel' else 'a frame of 80 samples of a sound, at 8000 Hz.'}" in header


@pytest.mark.parametrize("name", ["../other/a.wav", "/elsewhere/a.wav", "low/../../other/a.wav"])
def test_a_manifest_names_files_of_its_folder_only(tmp_path, folder, name):
    write(tmp_path / "other", {"a.wav": 300})
    (folder / "labels.csv").write_text(f"file,label\n{name},low\n")
    with pytest.raises(DataError, match=r"Expected files in .*tones, but .*labels.csv names .*Move it into the folder"):
        read_columns(folder)


def test_a_sound_of_a_linked_folder_belongs_to_the_data(tmp_path, folder):
    """A run remembers the sums of all sounds that it learns from, so that a change is noticed."""
    write(tmp_path / "other", {"a.wav": 300})
    (folder / "more").symlink_to(tmp_path / "other")
    (folder / "labels.csv").write_text("file,label\nmore/a.wav,low\nhigh/0.wav,high\n")
    with pytest.warns(OrthornnWarning, match="leaves out 9 of the sounds"):
        assert set(read_columns(folder).columns["sequence"]) == {"more/a.wav", "high/0.wav"}
    assert "more/a.wav" in sounds_of(folder)


def test_folders_of_one_name_keep_all_their_sounds_apart(tmp_path):
    """A run remembers the sum of each: those of one would be in place of the other's."""
    paths = [write(tmp_path / part / "tones", LABELED) for part in ("a", "b", "c")]
    options = {"validation_data": str(paths[1]), "test_data": str(paths[2])}
    task = Classify(data=str(paths[0]), target="y", sample_rate=RATE, mels=6, **options)
    assert sorted(task.files().values()) == sorted(path / name for path in paths for name in LABELED)
    before = fingerprint(task)
    write_wav(paths[1] / "low/0.wav", tone(99), RATE)
    assert fingerprint(Classify(data=str(paths[0]), target="y", sample_rate=RATE, mels=6, **options)) != before
