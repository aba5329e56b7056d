from __future__ import annotations

import dataclasses
import json

import pytest
import torch

from orthornn.errors import ArgumentError, ConfigError
from orthornn.learn.systems import model_named
from orthornn.learn.tasks import Adding, Amplifier, Characters, Classify, Copying, Forecast, Regress
from orthornn.learn.training import OptimizerConfig, Run, RunConfig, read_config
from orthornn.learn.training.config import PenaltyConfig, ScheduleConfig

CONFIGS = [
    RunConfig(),
    RunConfig(task=Adding(T=50, variant="helfrich2018"), model=model_named("scornn", parameters=5000), steps=7),
    RunConfig(
        task=Amplifier(data="somewhere", drive=3.0),
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
        "  optimizer.name: needed 'adam' or 'adamw' or 'rmsprop' or 'rmsprop-tensorflow' or "
        "'rmsprop-lasagne' or 'sgd', got 'adagrad'",
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
        ({"task": {}}, "task.name: unknown name None; known: copying, adding, characters"),
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
        (lambda: OptimizerConfig(decay=1), "decay to be below 1, but got 1"),
        (lambda: OptimizerConfig("adamw", lr=0.1, decoupled_decay=10), "decoupled_decay to be below 10, .* but got 10"),
        (
            lambda: OptimizerConfig("adamw", decoupled_decay=1e30),
            "decoupled_decay to be below 1000, .* but got 1e\\+30",
        ),
        (lambda: PenaltyConfig(label_smoothing=1), "label_smoothing to be below 1, but got 1"),
        (lambda: model_named("ornn", dropout=1.0), "dropout to be below 1, but got 1.0"),
        (lambda: ScheduleConfig("plateau", factor=1.0), "a factor below 1 with the schedule plateau"),
        (lambda: ScheduleConfig("plateau", factor=0.0), "a factor above 0 with the schedule plateau"),
        (lambda: ScheduleConfig("exponential", factor=0), "a factor above 0 with the schedule exponential"),
        (lambda: ScheduleConfig(factor=0.5), r"schedule_factor \(--schedule-factor\) .* but got 0.5 with constant"),
        (lambda: ScheduleConfig(every=5), r"schedule_every \(--schedule-every\) only .* but got 5 with constant"),
        (lambda: ScheduleConfig("cosine", every=5), "but got 5 with cosine"),
        (lambda: ScheduleConfig("linear", every=5), "but got 5 with linear"),
        (lambda: RunConfig(steps=2**63), "steps to be an integer between 1 and"),
    ],
)
def test_wrong_values_are_named(make, message):
    with pytest.raises(ArgumentError, match=message):
        make()


@pytest.mark.parametrize("value", [1e39, -1e-50, 1e-50, float("inf"), float("nan"), 10**400, "1"])
@pytest.mark.parametrize(
    ("kind", "name"),
    [
        *((OptimizerConfig, name) for name in ("lr", "recurrent_lr", "manifold_lr", "spectrum_lr")),
        *((OptimizerConfig, name) for name in ("clip_norm", "clip_value", "decoupled_decay")),
        *((PenaltyConfig, field.name) for field in dataclasses.fields(PenaltyConfig)),
    ],
)
def test_a_number_that_float32_does_not_hold_is_refused_at_once(kind, name, value):
    """float32 makes infinity of 1e39 and 0 of 1e-50, after which a run fails or does not learn."""
    other = {"name": "adamw"} if name == "decoupled_decay" else {}
    with pytest.raises(ArgumentError, match=rf"^Expected {name} to be .*, but got .*\."):
        kind(**{name: value}, **other)


@pytest.mark.parametrize("value", [torch.finfo(torch.float32).tiny, torch.finfo(torch.float32).max])
def test_the_numbers_that_float32_holds(value):
    assert OptimizerConfig(lr=value, clip_value=value).lr == value


def test_rates_that_are_all_0_are_refused_before_a_run():
    with pytest.raises(ArgumentError, match=r"Expected a learning rate above 0, but got lr=0\. Pass 0\.001"):
        Run(RunConfig(optimizer=OptimizerConfig(lr=0.0, recurrent_lr=0.0)))
    OptimizerConfig(lr=0.0, recurrent_lr=0.1).check_learns()


BOTH = model_named("lstm", hidden_size=4, bidirectional=True)


@pytest.mark.parametrize("task", [Forecast(target="y"), Forecast(target="y", inputs="x", horizons=3), Characters()])
def test_a_network_of_both_directions_does_not_predict_its_own_inputs(task):
    """It has read the values that it is to predict: white noise was forecast almost without an error."""
    with pytest.raises(
        ArgumentError, match=rf"^Expected bidirectional, --bidirectional, to be False for {task.name}, "
    ):
        RunConfig(task=task, model=BOTH)
    plain = RunConfig(task=task, model=dataclasses.replace(BOTH, bidirectional=False)).to_dict()
    with pytest.raises(ConfigError, match="to be False"):
        RunConfig.read({**plain, "model": {**plain["model"], "bidirectional": True}})


@pytest.mark.parametrize("task", [Copying(), Classify(target="y"), Regress(target="y"), Adding()])
def test_a_network_of_both_directions_predicts_what_it_does_not_read(task):
    assert RunConfig(task=task, model=BOTH).model.bidirectional
