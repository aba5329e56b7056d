"""`orthornn export`: all formats or nothing, and no option without an effect."""

from __future__ import annotations

import numpy as np
import pytest

from orthornn import cli

COPYING = ["copying", "--T", "3", "--items", "2", "--validation-size", "10", "--test-size", "10", "--batch-size", "4"]
TINY = [*COPYING, "--steps", "2", "--threads", "1", "--parameters", "400"]


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A network of tokens, which the audio class has not; one with gates, which C has not."""
    folder = tmp_path_factory.mktemp("runs")
    for name, model in (("tokens", "ornn"), ("gates", "lstm")):
        assert cli.main(["train", *TINY, "--model", model, "--out", str(folder / name)]) == 0
    np.save(folder / "typical.npy", np.ones((2, 7), int))
    return folder


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("run", "formats", "reason"),
    [
        ("tokens", "--c --audio", "tokens as input"),
        ("tokens", "--safetensors --audio", "tokens as input"),
        ("tokens", "--c --safetensors --audio --name other", "tokens as input"),
        ("gates", "--safetensors --c", "but got LSTM"),
        ("tokens", "--safetensors --c --form rotations", "it is not a linear recurrence"),
        ("tokens", "--safetensors --c --name 9", "identifier"),
        ("tokens", "--safetensors --c --numbers int8 --calibration missing.npy", "missing.npy"),
    ],
)
def test_if_one_format_is_refused_nothing_is_written(run, formats, reason, runs, tmp_path, capsys):
    assert cli.main(["export", str(runs / run), *formats.split(), "--out", str(tmp_path / "o")]) == 2
    found = capsys.readouterr()
    assert reason in found.err
    assert not found.out  # no costs of files that are not there
    assert not (tmp_path / "o").exists()


def test_a_file_of_somebody_else_keeps_all_formats_away(runs, tmp_path, capsys):
    (tmp_path / "network.c").write_text("mine")
    words = ["export", str(runs / "tokens"), "--safetensors", "--c", "--out", str(tmp_path)]
    assert cli.main(words) == 2
    assert f"Expected {tmp_path / 'network.c'} to be missing or written by orthornn" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["network.c"]
    assert cli.main([*words, "--force"]) == 0
    said = capsys.readouterr().out
    written = [path for path in sorted(tmp_path.rglob("*")) if path.is_file()]
    assert {path.name for path in written} >= {"folded.safetensors", "network.c", "network.h", "Makefile"}
    assert all(str(path) in said for path in written)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--c --calibration typical.npy", "--numbers int8 or int16 with --calibration, but got float32"),
        ("--c --input-range 0 1 --steps 5", "with --input-range, --steps, but got float32"),
        ("--c --fine-tune 5", "with --fine-tune, but got float32"),
        ("--c --fine-tune-lr 0.1", "with --fine-tune-lr, but got float32"),
        ("--c --numbers int8", "with --numbers int8, but got neither"),
        ("--c --numbers int8 --fine-tune 5", "with --numbers int8, but got neither"),  # before the training
        ("--c --numbers int8 --calibration typical.npy --input-range 0 1", "but got both"),
        ("--c --numbers int8 --calibration typical.npy --steps 5", "Expected --input-range with --steps"),
        ("--c --numbers int8 --calibration typical.npy --fine-tune-lr 0.1", "Expected --fine-tune with --fine-tune-lr"),
        ("--safetensors --numbers int8", "Expected --c with --numbers"),
        ("--safetensors --name mine", "Expected --c with --name"),
        ("--audio --arduino", "Expected --c with --arduino"),
        ("--force", "Expected at least one of --onnx"),
    ],
)
def test_an_option_without_an_effect_is_refused(options, message, runs, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(runs)
    assert cli.main(["export", "tokens", *options.split(), "--out", str(tmp_path / "o")]) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "o").exists()


def test_a_network_of_a_table_is_calibrated_on_a_table(tmp_path, monkeypatch):
    """The columns are found by their names, as `orthornn predict` finds them."""
    monkeypatch.chdir(tmp_path)
    random = np.random.default_rng(2)
    rows = [(i // 5, *random.standard_normal(2).round(3), i // 5 % 2) for i in range(150)]
    columns = {"id": 0, "x": 1, "z": 2, "y": 3}
    for file, names, count in (("a", "id,x,z,y", 150), ("turned", "z,id,y,x", 150), ("unequal", "id,x,z,y", 148)):
        lines = [",".join(str(row[columns[name]]) for name in names.split(",")) for row in rows[:count]]
        (tmp_path / f"{file}.csv").write_text(names + "\n" + "\n".join(lines) + "\n")
    words = [
        "train",
        "a.csv",
        "--target",
        "y",
        "--sequence",
        "id",
        "--steps",
        "2",
        "--threads",
        "1",
        "--recipe",
        "none",
    ]
    assert cli.main([*words, "--model", "ornn", "--hidden-size", "4", "--out", "run"]) == 0
    np.save("array.npy", np.array([row[1:3] for row in rows]).reshape(30, 5, 2))
    integers = ["export", "run", "--c", "--numbers", "int8", "--calibration"]
    for file in ("a.csv", "turned.csv", "array.npy"):
        assert cli.main([*integers, file, "--out", file.replace(".", "-")]) == 0
    texts = [(tmp_path / folder / "network.c").read_text() for folder in ("a-csv", "turned-csv", "array-npy")]
    assert texts[0] == texts[1] == texts[2]
    assert cli.main([*integers, "unequal.csv", "--out", "o"]) == 0
    assert "the largest values on 30 sequences of 2 lengths" in (tmp_path / "o" / "network.h").read_text()
