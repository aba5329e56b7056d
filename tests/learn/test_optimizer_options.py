from __future__ import annotations

import pytest

from orthornn import cli

TINY = ["--T", "3", "--items", "2", "--hidden-size", "4", "--steps", "2", "--batch-size", "2"]
NOTE = "has no effect on"


def shown(command, words, folder, capsys):
    assert cli.main([command, "copying", *TINY, *words, "--out", str(folder)]) == 0
    return capsys.readouterr().out


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("model", "option", "value"),
    [
        ("lstm", "recurrent-lr", "0.1"),
        ("lstm", "recurrent_lr", "0.1"),
        ("gru", "recurrent-optimizer", "sgd"),
        ("full-urnn", "recurrent-optimizer", "sgd"),
        ("scornn", "manifold", "cayley-sgd"),
        ("scornn", "manifold-lr", "0.1"),
        ("full-urnn", "spectrum-lr", "0.1"),
        ("scornn", "reorthogonalize-every", "3"),
        ("scornn", "rmsprop-decay", "0.5"),
        ("lstm", "record-sequences", "3"),
    ],
)
def test_an_option_without_effect_on_the_model_is_told(model, option, value, tmp_path, capsys):
    text = shown("train", ["--model", model, f"--{option}", value], tmp_path / "run", capsys)
    assert f"--{option.replace('_', '-')} {NOTE} {model}" in text


def test_options_with_effect_are_not_told(tmp_path, capsys):
    rates = ["--recurrent-lr", "0.1", "--manifold-lr", "0.1", "--spectrum-lr", "0.1", "--recurrent-optimizer", "sgd"]
    assert NOTE not in shown("train", ["--model", "spectral", "--margin", "0.1", *rates], tmp_path / "run", capsys)
    assert NOTE not in shown("train", ["--model", "full-urnn", "--recurrent-lr", "0.1"], tmp_path / "other", capsys)
    assert NOTE not in shown("train", ["--model", "lstm"], tmp_path / "third", capsys)
    decays = ["--rmsprop-decay", "0.5", "--reorthogonalize-every", "3"]
    assert NOTE not in shown("train", ["--model", "full-urnn", *decays], tmp_path / "fourth", capsys)
    own = ["--optimizer", "rmsprop", "--rmsprop-decay", "0.5", "--record-sequences", "1", "--record-gradients", "1"]
    assert NOTE not in shown("train", ["--model", "lstm", *own], tmp_path / "fifth", capsys)


@pytest.mark.parametrize(("variant", "said"), [("mhammedi2017", True), ("helfrich2018", False)])
def test_a_training_set_of_fresh_batches_has_no_size(variant, said, tmp_path, capsys):
    words = ["adding", "--T", "4", "--variant", variant, "--train-size", "9", *TINY[4:], "--out", str(tmp_path / "run")]
    assert cli.main(["train", *words]) == 0
    assert (f"--train-size {NOTE} ornn-rotations: it is for a variant" in capsys.readouterr().out) == said


def test_a_comparison_tells_what_has_an_effect_on_no_model(tmp_path, capsys):
    words = ["--models", "scornn,lstm", "--recurrent-lr", "0.1", "--manifold-lr=0.1"]
    text = shown("compare", words, tmp_path / "all", capsys)
    assert f"--manifold-lr {NOTE} scornn, lstm" in text
    assert f"--recurrent-lr {NOTE}" not in text


def test_a_search_for_a_model_tells_what_has_an_effect_on_no_candidate(tmp_path, capsys):
    text = shown("train", ["--model", "auto", "--minutes", "0.02", "--manifold-lr", "0.1"], tmp_path / "auto", capsys)
    assert f"--manifold-lr {NOTE} blocks, goru, lstm, gru" in text
