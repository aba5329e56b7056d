from __future__ import annotations

import json

import pytest

from orthornn.errors import ArgumentError, ConfigError
from orthornn.lab.systems import model_named
from orthornn.lab.tasks import Adding, Copying, PixelMNIST
from orthornn.lab.training import OptimizerConfig, RunConfig, read_config

CONFIGS = [
    RunConfig(),
    RunConfig(task=Adding(T=50, variant="helfrich2018"), model=model_named("scornn", parameters=5000), steps=7),
    RunConfig(
        task=PixelMNIST(data="somewhere", permuted=True),
        model=model_named("ornn", reflections=4),
        optimizer=OptimizerConfig("rmsprop", lr=0.01, recurrent_lr=1e-4, clip_norm=1.0),
        max_seconds=3.5,
    ),
]


@pytest.mark.parametrize("config", CONFIGS)
def test_what_is_written_reads_back_as_the_same(config, tmp_path):
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config.to_dict()))
    assert read_config(path) == config
    assert hash(read_config(path)) == hash(config)


def test_what_is_left_out_has_its_default():
    assert RunConfig.read({"task": {"name": "copying", "T": 3}}) == RunConfig(task=Copying(T=3))
    assert RunConfig.read({"optimizer": {"lr": 1}}).optimizer.lr == 1


def test_all_errors_come_at_once():
    with pytest.raises(ConfigError) as caught:
        RunConfig.read(
            {
                "task": {"name": "copying", "TT": 3, "items": 2.5},
                "model": {"name": "lstm", "hiden_size": 3},
                "optimizer": {"name": "adagrad", "lr": True},
                "stepps": 4,
                "seed": "one",
                "max_seconds": [],
            }
        )
    lines = str(caught.value).splitlines()
    assert lines[1:] == [
        "  task.TT: unknown name 'TT'; did you mean 'T'?",
        "  task.items: needed an integer, got 2.5",
        "  model.hiden_size: unknown name 'hiden_size'; did you mean 'hidden_size'?",
        "  optimizer.name: needed 'adam' or 'adamw' or 'rmsprop' or 'rmsprop-tensorflow' or 'sgd', got 'adagrad'",
        "  optimizer.lr: needed a number, got True",
        "  stepps: unknown name 'stepps'; did you mean 'steps'?",
        "  seed: needed an integer, got 'one'",
        "  max_seconds: needed a number or null, got []",
    ]


@pytest.mark.parametrize(
    ("plain", "message"),
    [
        ([], "the whole: needed an object"),
        ({"task": {"name": "copyin"}}, "task.name: unknown name 'copyin'; did you mean 'copying'"),
        ({"task": {}}, "task.name: unknown name None; known: copying, adding, groups"),
        ({"task": 3}, "task: needed an object, got 3"),
        (
            {"task": {"name": "copying", "T": 0}},
            "task: Expected T to be an integer between 1 and 2147483648, but got 0",
        ),
        ({"model": {"name": "lstn"}}, "model.name: unknown name 'lstn'; did you mean 'lstm'"),
        ({"steps": 0}, "the whole: Expected steps to be"),
    ],
)
def test_each_error_names_its_place(plain, message):
    with pytest.raises(ConfigError, match=message):
        RunConfig.read(plain)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "Expected to read"),
        ("{", "Expected .* to be JSON, but got"),
        ('{"a": 1}', "a: unk"),
    ],
)
def test_a_bad_file_is_named(tmp_path, content, message):
    path = tmp_path / "config.json"
    if content is not None:
        path.write_text(content)
    with pytest.raises(ConfigError, match=message) as caught:
        read_config(path)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: RunConfig(batch_size=0), "batch_size"),
        (lambda: RunConfig(seed=-1), "seed"),
        (lambda: RunConfig(max_seconds=float("nan")), "max_seconds"),
        (lambda: OptimizerConfig(lr=-1), "lr"),
        (lambda: OptimizerConfig(name="adagrad"), "optimizer"),
        (lambda: OptimizerConfig(clip_norm=-1), "clip_norm"),
        (lambda: OptimizerConfig(clip_norm=0), "clip_norm to be positive"),
        (lambda: OptimizerConfig(clip_value=0.0), "clip_value to be positive"),
        (lambda: model_named("x"), "model"),
    ],
)
def test_wrong_values_are_named(make, message):
    with pytest.raises(ArgumentError, match=message):
        make()
