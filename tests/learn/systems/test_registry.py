"""Each option of a model is written once: as a field of its dataclass, with a docstring."""

from __future__ import annotations

import dataclasses
import json
import typing

import pytest

from orthornn import cli
from orthornn.errors import ArgumentError, ConfigError
from orthornn.learn.fields import field_docs
from orthornn.learn.systems import MODEL_OPTIONS, MODELS, SIZES, Model, build, model_named, options
from orthornn.learn.training import RunConfig

VALUES = {
    "reflections": 2, "angles": "quarter", "margin": 0.2, "negatives": 2, "init": "uniform", "base": "rotations",
    "field": "complex", "unit": True, "nonlinearity": "tanh", "slope": 0.2, "gain": 1.1, "clip_backward": 1.0,
    "learn_h0": True, "layers": 3, "rebase_every": 4, "forget_bias": 2.0, "memory": "checkpoint", "segment": 3,
    "head": "mlp", "head_width": 3, "depth": 3, "state_size": 6, "stride": 2, "mixing": "mlp", "norm": "rms", "decay": True,
    "pool": "mean", "dropout": 0.25, "bidirectional": True, "lags": 2,
    "u1": "soft", "decay_in": "first", "r_min": 0.25, "nonnegative": True, "initial_values": "lasagne",
}  # fmt: skip
OWN = [(name, option) for name, kind in MODELS.items() for option in kind.options()]


@pytest.mark.parametrize("name", MODELS)
def test_every_field_has_a_docstring_and_none_as_its_default(name):
    kind = MODELS[name]
    fields = {field.name: field.default for field in dataclasses.fields(kind)}
    assert set(field_docs(kind)) == set(fields) == {*SIZES, *kind.options()}
    assert set(fields.values()) == {None}
    assert kind.name == name
    assert kind.summary


def test_the_options_of_all_models_are_the_fields_of_all_models():
    assert set(MODEL_OPTIONS) == {option for _, option in OWN} == set(VALUES)
    assert list(options()) == [*SIZES, *MODEL_OPTIONS]
    for name, option in options().items():
        for kind in MODELS.values():
            if name in (*SIZES, *kind.options()):
                own = typing.get_type_hints(kind)[name]
                assert set(values(own)) <= set(values(option.kind))
                assert field_docs(kind)[name] in option.help


def values(kind):
    """The types of a union, and the values of its Literals."""
    parts = typing.get_args(kind)
    return [value for part in parts for value in (typing.get_args(part) or (part,))]


def value_of(name, option):
    return {"scornn": "zero", "spectral": "glorot", "elman": "glorot", "lstm-peephole": "orthogonal"}.get(name) if (
        option == "init"
    ) else VALUES[option]  # fmt: skip


@pytest.mark.sampled(7)
@pytest.mark.parametrize(("name", "option"), OWN)
def test_an_option_goes_through_the_command_line_and_config_json(name, option, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    value = value_of(name, option)
    needed = {"head_width": {"head": "mlp"}, **{key: {"decay": True} for key in ("decay_in", "r_min")}}.get(option, {})
    task = "adding" if option == "pool" else "copying"  # copying predicts at every step, where nothing is pooled
    seen = []

    class Stop(BaseException):
        pass

    def stop(config, *rest, **more):
        seen.append(config)
        raise Stop

    monkeypatch.setattr("orthornn.learn.train.Run", stop)
    words = [str(word) for key, given in needed.items() for word in (f"--{key}", given)]
    words += [f"--{option.replace('_', '-')}", str(value)]
    with pytest.raises(Stop):
        cli.main(["train", task, "--model", name, "--parameters", "2k", *words])
    assert seen[0].model == model_named(name, parameters=2000, **needed, **{option: value})
    plain = json.loads(json.dumps(seen[0].to_dict()))
    assert plain["model"][option] == value
    assert set(plain["model"]) == {"name", *SIZES, *MODEL_OPTIONS}
    assert RunConfig.read(plain) == seen[0]


@pytest.mark.sampled(12)
@pytest.mark.parametrize("name", MODELS)
def test_options_of_other_models_are_refused_unless_they_are_none(name):
    foreign = [option for option in MODEL_OPTIONS if option not in MODELS[name].options()]
    assert model_named(name, **dict.fromkeys(foreign)) == MODELS[name]()
    assert RunConfig.read({"model": {"name": name, **dict.fromkeys(foreign)}}).model == MODELS[name]()
    for option in foreign:
        with pytest.raises(ArgumentError, match=rf"{name} has no {option}; leave it out or choose "):
            model_named(name, **{option: VALUES[option]})
        with pytest.raises(ConfigError, match=rf"model: {option}=.* was given, but {name} has no {option}"):
            RunConfig.read({"model": {"name": name, option: VALUES[option]}})


def test_what_is_no_option_and_no_model_is_refused():
    with pytest.raises(ArgumentError, match="Did you mean 'reflections'"):
        model_named("ornn", reflektions=3)
    with pytest.raises(ArgumentError, match="hidden_size or parameters, but got both"):
        model_named("ornn", hidden_size=3, parameters=100)
    with pytest.raises(ArgumentError, match="Give them to the model"):
        build(MODELS["ornn"](), 2, 2, hidden_size=3)
    with pytest.raises(NotImplementedError):
        Model().core(1, 1, {})
