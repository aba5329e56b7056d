from __future__ import annotations

import copy
import json
import os
import warnings

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import orthornn
from orthornn import (
    Householder,
    OrthogonalBlocks,
    OrthogonalRNN,
    RestrictedUnitary,
    ScaledCayley,
    export,
    orthogonalize,
)
from orthornn.activations import ACTIVATIONS
from orthornn.cli import main
from orthornn.errors import (
    ArgumentError,
    ArgumentTypeError,
    CheckpointError,
    DataError,
    DeviceError,
    DTypeError,
    OrthornnWarning,
)
from orthornn.export.graphs import SequenceGraph, prepare
from orthornn.learn.systems import MODELS, SequenceModel, build
from orthornn.learn.tasks import Adding
from orthornn.learn.training import train
from support.compiled_c import COMPILERS, Compiled
from support.run_cases import config
from support.tolerances import tolerance
from support.versions import TORCH

pytest.importorskip("onnxruntime")

DEVICE = torch.device(os.environ.get("ORTHORNN_DEVICE", "cpu"))


def by_steps(step):
    """The whole sequence, step by step."""

    def whole(x):
        state, outputs = step.state.unsqueeze(1).expand(-1, x.shape[1], -1), []
        for row in x:
            y, state = step(row, state)
            outputs.append(y)
        return outputs[-1] if step.output == "last" else torch.stack(outputs)

    return whole


def network(core, output="all"):
    width = core.hidden_size * (2 if core.is_complex and isinstance(core, OrthogonalRNN) else 1)
    return SequenceModel(core, torch.nn.Linear(width, 3), output=output)


# Cores without an export.
OTHERS = {"lstm-peephole", "lstm-orthogonal", "word-reflections", "delta-net", "delta-product", "rum-rotation"}


@pytest.mark.sampled(27)
@pytest.mark.parametrize("output", ["all", "last"])
@pytest.mark.parametrize("name", sorted(set(MODELS) - OTHERS))
def test_the_folded_steps_are_the_network(name, output):
    for tokens in (False, True):
        head = "mlp" if tokens else "linear"
        model = build(name, 3, 2, hidden_size=7, output=output, tokens=tokens, head=head)
        step = export.Step(model)
        step.output = output
        assert export.check(model, by_steps(step), step, step) < 1e-5


MORE = [("blocks", {"decay": True, "pool": "mean"}), ("goru", {"pool": "summary", "lags": 3}), ("lstm", {"depth": 2})]
MORE += [("scurnn", {"pool": "summary"}), ("scurnn", {"pool": "both"}), ("gru", {"lags": 4})]
MORE += [("blocks", {"mixing": "mlp", "norm": "rms", "lags": 2})]
DESCRIPTION = {
    "scale": [0.5, 2.0, 1.0],
    "offset": [0.0, -3.0, 1.0],
    "target_scale": [4.0, 1.0],
    "target_offset": [0.0, 7.0],
}


@pytest.mark.sampled(20)
@pytest.mark.parametrize("says", ["values", "classes", None])
@pytest.mark.parametrize("output", ["all", "last"])
@pytest.mark.parametrize(("name", "options"), MORE)
def test_pools_lags_and_scaling_are_inside_the_graphs(name, options, output, says):
    torch.manual_seed(0)
    model = build(name, 3, 2, hidden_size=6, output=output, **options).eval()
    if model.recent is not None:
        torch.nn.init.normal_(model.recent.weight)
    description = None if says is None else {**DESCRIPTION, "says": says}
    step = export.Step(model, description)
    step.output = output
    assert export.check(model, by_steps(step), step, step) < 1e-4
    if says is None:
        return
    raw = torch.randn(7, 2, 3)
    outputs = model(raw * torch.tensor(DESCRIPTION["scale"]) + torch.tensor(DESCRIPTION["offset"]))
    values = outputs * torch.tensor(DESCRIPTION["target_scale"]) + torch.tensor(DESCRIPTION["target_offset"])
    torch.testing.assert_close(
        by_steps(step)(raw), outputs.softmax(-1) if says == "classes" else values, atol=1e-5, rtol=1e-5
    )


CORES = {
    "two layers": OrthogonalRNN(2, 5, 2, nonlinearity="tanh", learn_gain=True, gain=0.9),
    "complex": OrthogonalRNN(2, 5, parametrization=Householder(field="complex"), learn_h0=True),
    "two complex layers": OrthogonalRNN(2, 4, 2, parametrization=ScaledCayley(field="complex"), nonlinearity="tanh"),
    "blocks": OrthogonalBlocks(2, 5, 6, 3, norm="rms", mixing="mlp", learn_h0=True),
    "blocks with decay": OrthogonalBlocks(2, 5, 6, 2, decay=True, norm="none", mixing="gelu", residual=False),
    "blocks of complex states": OrthogonalBlocks(2, 5, 3, 2, parametrization=RestrictedUnitary(), bias=False),
    "blocks of reflections": OrthogonalBlocks(2, 5, 7, 1, parametrization=Householder(2)),
    **{name: OrthogonalRNN(2, 6, nonlinearity=name) for name in ACTIVATIONS},
}


@pytest.mark.parametrize("name", CORES)
def test_every_kind_of_layer(name):
    model = network(CORES[name])
    step = export.Step(model)
    step.output = "all"
    export.check(model, by_steps(step), step, step)


@pytest.mark.parametrize(
    ("core", "message"),
    [
        (OrthogonalRNN(2, 5, batch_first=True), "time-major"),
        (OrthogonalRNN(2, 5, dtype=torch.float64), "Expected a float32 network, but got torch.float64"),
        (torch.nn.LSTM(2, 5, batch_first=True), "time-major"),
        (torch.nn.GRU(2, 5, bias=False), "biases and no projection"),
        (torch.nn.LSTM(2, 5, proj_size=3), "biases and no projection"),
    ],
    ids=["batch first", "float64", "torch, batch first", "no bias", "projection"],
)
def test_what_has_no_export_is_refused_before_anything_is_written(core, message, tmp_path):
    head = torch.nn.Linear(5, 3, dtype=next(core.parameters()).dtype)
    for write in (export.to_torch_export, export.to_onnx):
        with pytest.raises((ArgumentError, DTypeError), match=message):
            write(SequenceModel(core, head), tmp_path)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", CORES)
def test_graphs_and_their_input_have_the_device_and_dtype_of_the_network(name):
    """Whatever torch's defaults are: on the meta device the CPU is another one."""
    model = network(copy.deepcopy(CORES[name])).to("meta")
    step = export.Step(model)
    assert all(tensor.is_meta for tensor in (*step.parameters(), *step.buffers(), *export.weights(model).values()))
    y, after = step(export.example(model, 1, 4)[0], step.state.unsqueeze(1).expand(-1, 4, -1))
    assert y.is_meta
    assert after.is_meta
    torch.set_default_dtype(torch.float64)
    try:
        step = export.Step(network(CORES[name]).float())
        tensors = (*step.parameters(), *step.buffers(), export.example(network(CORES[name]).float(), 1, 4))
        assert {tensor.dtype for tensor in tensors} == {torch.float32}
    finally:
        torch.set_default_dtype(torch.float32)


@pytest.mark.parametrize(("name", "options"), MORE)
def test_pools_and_lags_have_the_device_of_the_network(name, options):
    for tokens in (False, True)[: 1 if "lags" in options else 2]:
        model = build(name, 3, 2, hidden_size=6, output="last", tokens=tokens, **options).to("meta")
        step = export.Step(model, None if tokens else DESCRIPTION)
        y, _ = step(export.example(model, 1, 4)[0], step.state.unsqueeze(1).expand(-1, 4, -1))
        assert y.is_meta


def test_a_network_without_values_is_refused(tmp_path):
    model = network(OrthogonalRNN(2, 5)).to("meta")
    for write in (export.to_torch_export, export.to_onnx):
        with pytest.raises(DeviceError, match="Expected a network with values, but got a network on the meta device"):
            write(model, tmp_path)
    assert not list(tmp_path.iterdir())


@pytest.mark.skipif(DEVICE.type == "cpu", reason="ORTHORNN_DEVICE names no other device")
def test_a_network_of_another_device_is_written_for_the_cpu(tmp_path):
    model = network(OrthogonalRNN(2, 5)).to(DEVICE)
    export.to_torch_export(model, tmp_path)
    assert next(model.parameters()).device.type == DEVICE.type
    program, x = torch.export.load(tmp_path / "model.pt2").module(), torch.randn(7, 3, 2)
    torch.testing.assert_close(program(x), model(x.to(DEVICE)).cpu(), rtol=0, atol=tolerance(torch.float32, 7 * 5))


CONVERTS = pytest.mark.skipif(TORCH < (2, 8), reason="torch.onnx converts the scan over the steps from torch 2.8 on")


@pytest.mark.skipif(TORCH >= (2, 7), reason="torch.onnx of torch 2.6 converts no scan")
def test_a_torch_that_converts_no_network_is_said(tmp_path):
    for name in ("ornn", "blocks", "lstm"):
        with pytest.raises(ArgumentError, match=r"Use torch 2\.8 or newer, another model, --torch-export or --saf"):
            export.to_onnx(build(name, 3, 2, hidden_size=6), tmp_path)
    assert not list(tmp_path.iterdir())


@CONVERTS
def test_onnx_of_logarithms_and_quantiles(tmp_path):
    """And of what the default for tables has: a decay, and the mean over the steps."""
    model = build("blocks", 3, 6, hidden_size=6, output="last", decay=True, pool="mean", lags=2, depth=1)
    description = {**DESCRIPTION, "says": "values", "target_scale": 2.0, "target_offset": 1.0, "input_size": 3}
    description |= {"target_transform": "log1p", "transformed_inputs": [0, 2], "quantiles": [0.1, 0.5, 0.9]}
    export.to_onnx(model, tmp_path, description)
    import onnxruntime

    x = torch.rand(7, 9, 3) + 0.5
    (found,) = onnxruntime.InferenceSession(tmp_path / "model.onnx").run(None, {"x": x.numpy()})
    read = torch.stack([x[..., 0].log1p(), x[..., 1], x[..., 2].log1p()], -1)
    outputs = model.eval()(read * torch.tensor(DESCRIPTION["scale"]) + torch.tensor(DESCRIPTION["offset"])).detach()
    values = (outputs * 2 + 1).expm1().unflatten(-1, (2, 3))
    assert bool((values.diff(dim=-1) < 0).any())
    np.testing.assert_allclose(found, values.sort(-1).values.flatten(-2), rtol=1e-5, atol=1e-6)


@pytest.mark.sampled(1)
@CONVERTS
@pytest.mark.parametrize("name", ["ornn-rotations", "blocks", "lstm"])
def test_onnx(name, tmp_path, caplog, capsys, recwarn):
    train(config(name, steps=3), tmp_path / "run")
    capsys.readouterr()
    assert main(["export", str(tmp_path / "run"), "--onnx"]) == 0
    said = [*caplog.messages, *(str(warning.message) for warning in recwarn), capsys.readouterr().err]
    assert not [line for line in said if "torchvision" in line or "axis name" in line or "treespec" in line]
    import onnx

    proto = onnx.load(tmp_path / "run" / "export" / "model.onnx")
    assert [d.dim_param for d in proto.graph.input[0].type.tensor_type.shape.dim] == ["T", "B"]
    assert json.loads(proto.metadata_props[-1].value)["says"] == "classes"


@CONVERTS
def test_a_step_in_onnx_has_the_trained_initial_state_in_its_metadata(tmp_path):
    """It is an input of the graph, which so has no use for the tensor: nobody could begin a stream."""
    import onnxruntime

    model = build("ornn-rotations", 2, 3, hidden_size=6, output="all")
    whole, single = map(onnxruntime.InferenceSession, export.to_onnx(model, tmp_path))
    assert all(parameter.requires_grad for parameter in model.parameters())
    state = np.array(json.loads(single.get_modelmeta().custom_metadata_map["state"]), np.float32)[:, None]
    assert state.any()
    x = np.random.default_rng(0).standard_normal((5, 1, 2)).astype(np.float32)
    (wanted,) = whole.run(None, {"x": x})
    assert np.abs(single.run(None, {"x": x[0], "state": 0 * state})[0] - wanted[0]).max() > 1e-3  # it matters
    for row, y in zip(x, wanted):
        found, state = single.run(None, {"x": row, "state": state})
        np.testing.assert_allclose(found, y, rtol=1e-5, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["ornn", "scornn", "gru", "rnn", "spectral", "goru"])
def test_onnx_of_every_model(name, tmp_path):
    model = build(name, 2, 1, hidden_size=9)
    assert len(export.to_onnx(model, tmp_path)) == 2


@pytest.mark.slow
@pytest.mark.parametrize("name", CORES)
def test_onnx_of_every_layer(name, tmp_path):
    assert len(export.to_onnx(network(CORES[name], "last"), tmp_path)) == 2


@pytest.mark.sampled(1)
@pytest.mark.parametrize("complex", [False, True])
def test_a_head_under_a_parametrization_is_exported_with_its_value(complex, tmp_path):
    core = OrthogonalRNN(3, 6, parametrization=Householder(field="complex" if complex else "real"), dtype=torch.float32)
    model = SequenceModel(core, torch.nn.Linear(12 if complex else 6, 2), output="all")
    orthornn.orthogonalize(model.head, "weight", Householder())
    x = torch.randn(5, 2, 3)
    expected = model(x)
    write = export.to_torch_export if complex else export.to_onnx
    assert len(write(model, tmp_path)) == 2  # it compares the graphs with the network
    _, whole, *_ = prepare(model)
    torch.testing.assert_close(whole(x), expected, rtol=0, atol=tolerance(torch.float32, 5 * 12 * 10))
    assert torch.equal(model(x), expected)
    assert torch.nn.utils.parametrize.is_parametrized(model.head, "weight")


RESTARTING = {
    "orthogonal": lambda: OrthogonalRNN(3, 6, 2, learn_h0=True),
    "complex": lambda: OrthogonalRNN(3, 5, parametrization=RestrictedUnitary()),
    "blocks": lambda: OrthogonalBlocks(3, 4, 6, 2, learn_h0=True),
    "lstm": lambda: torch.nn.LSTM(3, 5, 2),
}


@pytest.mark.sampled(5)  # each network, and both outputs
@pytest.mark.parametrize("output", ["last", "all"])
@pytest.mark.parametrize("name", RESTARTING)
def test_graphs_that_restart_are_the_network_on_each_episode(name, output):
    core = RESTARTING[name]()
    if getattr(core, "h0", None) is not None:
        torch.nn.init.normal_(core.h0)
    width = core.hidden_size * (2 if name == "complex" else 1)
    model, sequence, step, _ = prepare(SequenceModel(core, torch.nn.Linear(width, 3), output=output))
    assert export.check(model, sequence, step, step, resets=True) < 1e-5
    with pytest.raises(CheckpointError, match="to agree"):
        export.check(model, lambda x, reset: sequence(x, reset & False), step, step, resets=True)
    with pytest.raises(CheckpointError, match="to agree"):
        export.check(model, sequence, lambda x, state, reset: step(x, state), step, resets=True)


def test_torch_export_with_resets(tmp_path):
    core = RESTARTING["orthogonal"]()
    torch.nn.init.normal_(core.h0)
    model = network(core)
    whole, step = (torch.export.load(path).module() for path in export.to_torch_export(model, tmp_path, resets=True))
    x, reset = torch.randn(12, 2, 3), torch.rand(12, 2) < 0.3
    states, _ = core(x, reset=reset)
    torch.testing.assert_close(whole(x, reset), model.head(states), rtol=1e-4, atol=1e-4)
    _, after = step(x[0], torch.randn(2, 2, 6), torch.tensor([True, True]))
    torch.testing.assert_close(after, core.step(x[0])[1], rtol=1e-4, atol=1e-4)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", ["orthogonal", "blocks"])
def test_onnx_with_resets(name, tmp_path):
    import onnxruntime

    core = RESTARTING[name]()
    model = network(core)
    whole, step = (onnxruntime.InferenceSession(path) for path in export.to_onnx(model, tmp_path, resets=True))
    x, reset = torch.randn(12, 2, 3), torch.rand(12, 2) < 0.3
    (y,) = whole.run(None, {"x": x.numpy(), "reset": reset.numpy()})
    states, _ = core(x, reset=reset)
    torch.testing.assert_close(torch.from_numpy(y), model.head(states).detach(), rtol=1e-4, atol=1e-4)
    assert [each.name for each in step.get_inputs()] == ["x", "state", "reset"]


@pytest.mark.parametrize("write", [export.to_onnx, export.to_torch_export])
def test_a_pool_that_would_cross_an_episode_is_refused(write, tmp_path):
    model = build("lstm", 3, 2, hidden_size=5, output="last", pool="mean")
    with pytest.raises(ArgumentError, match="pool='mean'"):
        write(model, tmp_path, resets=True)
    with pytest.raises(ArgumentTypeError, match=r"resets .* got 'yes'"):
        write(network(OrthogonalRNN(3, 4)), tmp_path, resets="yes")
    assert not any(tmp_path.iterdir())


def test_torch_export(tmp_path):
    train(config("ornn", task=Adding(T=6, validation_size=5, test_size=5), steps=3), tmp_path / "run")
    assert main(["export", str(tmp_path / "run"), "--torch-export", "--safetensors", "--out", str(tmp_path / "o")]) == 0
    assert sorted(path.name for path in (tmp_path / "o").iterdir()) == ["folded.safetensors", "model.pt2", "step.pt2"]
    found = load_file(tmp_path / "o" / "folded.safetensors")
    W = found["layers.0.W"].double()
    assert torch.linalg.matrix_norm(W.T @ W - torch.eye(8, dtype=torch.float64)) < 8 * torch.finfo(torch.float32).eps
    assert found["state"].shape == (1, 8)


def read_as(output):
    model = network(OrthogonalRNN(2, 3))
    model.output = output
    return model


def in_a_norm(linear):
    return torch.nn.utils.parametrizations.weight_norm(linear)


def as_reflections(linear):
    return orthogonalize(linear, "weight", Householder())


@pytest.mark.parametrize("parametrized", [in_a_norm, as_reflections])
@pytest.mark.parametrize("field", ["real", "complex"])
def test_weights_of_a_parametrized_head_are_its_values(parametrized, field):
    model = network(OrthogonalRNN(3, 4, parametrization=ScaledCayley(field=field)))
    parametrized(model.head)
    plain = SequenceModel(model.core, torch.nn.Linear(model.head.in_features, 3))
    with torch.no_grad():
        plain.head.weight.copy_(model.head.weight)
    found, expected = export.weights(model), export.weights(plain)
    assert found.keys() == expected.keys() >= {"head.weight", "head.bias"}
    torch.testing.assert_close(found["head.weight"], expected["head.weight"])


@pytest.mark.sampled(1)
@pytest.mark.parametrize("parametrized", [in_a_norm, as_reflections])
@pytest.mark.parametrize("field", ["real", "complex"])
@pytest.mark.parametrize("write", [export.to_onnx, export.to_torch_export])
def test_a_parametrized_mix_of_blocks_is_exported_by_its_values(write, parametrized, field, tmp_path):
    core = OrthogonalBlocks(3, 6, 8, depth=1, parametrization=Householder(reflections=4, field=field))
    for block in core.blocks:
        parametrized(block.mix[0])
    model = SequenceModel(core, torch.nn.Linear(6, 4))
    write(model, tmp_path)  # which compares with the network
    assert all("parametrizations" not in name for name in export.weights(model))


WRITERS = (export.to_onnx, export.to_torch_export, export.to_safetensors)


@pytest.mark.parametrize("write", WRITERS)
@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: OrthogonalRNN(2, 3), ArgumentTypeError, "got OrthogonalRNN without core, head, output, token_classes"),
        (lambda: "runs/NAME", ArgumentTypeError, r"but got str\. Pass orthornn\.load\(RUN\)\.model"),
        (
            lambda: SequenceModel(OrthogonalRNN(2, 3), torch.nn.LayerNorm(3)),
            ArgumentTypeError,
            "a Sequential that begins with one, but got LayerNorm",
        ),
        (lambda: read_as("mean"), ArgumentError, "'all' or 'last', but got 'mean'"),
    ],
    ids=["core", "path", "head", "output"],
)
def test_what_is_no_core_and_head_is_refused_before_anything_is_written(make, error, message, write, tmp_path):
    with pytest.raises(error, match=message):
        write(make(), tmp_path / "out")
    assert not list(tmp_path.iterdir())


@pytest.mark.sampled(1)
@pytest.mark.parametrize("write", WRITERS[1:])
def test_a_folder_is_made_and_may_be_a_string(write, tmp_path):
    model = network(OrthogonalRNN(2, 3))
    assert all(path.is_file() for path in write(model, str(tmp_path / "a" / "b")))


def test_a_network_in_training_stays_in_training(tmp_path):
    model = SequenceModel(
        OrthogonalRNN(2, 5, 2, dropout=0.5), torch.nn.Sequential(torch.nn.Linear(5, 1), torch.nn.Dropout(0.5))
    )
    model.head.eval()
    modes = [module.training for module in model.modules()]
    assert any(modes)
    numbers = torch.get_rng_state()
    export.to_torch_export(model, tmp_path)
    assert torch.equal(torch.get_rng_state(), numbers)
    assert [module.training for module in model.modules()] == modes
    assert all(parameter.grad is None and parameter.requires_grad for parameter in model.parameters())


def test_a_difference_is_found():
    model = build("ornn", 3, 2, hidden_size=7)
    step = export.Step(model)
    step.output = "last"
    step.layers[0].W[0, 0] += 0.1
    with pytest.raises(CheckpointError, match="to agree with the trained one"):
        export.check(model, by_steps(step), step, step)


@pytest.mark.parametrize("broken", ["whole", "by steps"])
def test_a_graph_that_is_not_finite_is_found(broken):
    model = build("ornn", 3, 2, hidden_size=7)
    good, bad = export.Step(model), export.Step(model)
    good.output = bad.output = "last"
    bad.layers[0].W[0, 0] = float("nan")
    whole, single = (bad, good) if broken == "whole" else (good, bad)
    with pytest.raises(CheckpointError, match="a difference of nan"):
        export.check(model, by_steps(whole), single, good)


def test_what_cannot_be_exported_is_said(tmp_path):
    with pytest.raises(ArgumentError, match="bidirectional"):
        export.Step(network(OrthogonalRNN(2, 3, bidirectional=True)))
    with pytest.raises(ArgumentError, match="one direction"):
        export.Step(SequenceModel(torch.nn.LSTM(2, 3, bidirectional=True), torch.nn.Linear(6, 1)))
    for options, found in (({"stride": 2}, "stride=2"), ({"bidirectional": True}, "bidirectional=True")):
        with pytest.raises(ArgumentError, match=f"Expected unidirectional blocks .*but got {found}. Train") as caught:
            export.Step(build("blocks", 2, 1, hidden_size=4, **options))
        assert "\n" not in str(caught.value)  # the network itself would fill a screen
    strided = OrthogonalBlocks(2, 5, 6, 2, stride=3).eval()
    x = torch.randn(7, 2, 2)
    torch.testing.assert_close(torch.export.export(strided, (x,)).module()(2 * x)[0], strided(2 * x)[0])
    for name in OTHERS:
        with pytest.raises(ArgumentError, match="Expected an OrthogonalRNN, OrthogonalBlocks"):
            export.Step(build(name, 2, 1, hidden_size=4))
    train(config(steps=1), tmp_path)
    assert main(["export", str(tmp_path)]) == 2


@pytest.fixture(scope="module")
def shops(tmp_path_factory):
    """A trained forecast of three series with vectors, prices that are known ahead, quantiles and missing values."""
    pandas = pytest.importorskip("pandas")
    folder = tmp_path_factory.mktemp("shops")
    random = np.random.default_rng(5)
    price = random.choice([1.0, 2.0, 3.0], (3, 80))
    sold = 50 - 10 * price + np.array([[0.0], [20.0], [-30.0]]) + random.standard_normal((3, 80))
    frame = pandas.DataFrame({"shop": np.repeat(["c", "a", "b"], 80), "sold": sold.ravel(), "price": price.ravel()})
    frame.loc[random.choice(240, 12, False), "sold"] = np.nan
    frame.to_csv(folder / "shops.csv", index=False)
    words = [
        "--sequence",
        "shop",
        "--known",
        "price",
        "--embedding",
        "2",
        "--horizons",
        "2",
        "--quantiles",
        "0.1,0.5,0.9",
    ]
    words += ["--missing", "indicator", "--skipped", "4", "--window", "24"]
    words += ["--steps", "20", "--hidden-size", "6", "--depth", "1"]
    assert main(["train", str(folder / "shops.csv"), "--target", "sold", *words, "--out", str(folder / "run")]) == 0
    new = pandas.concat([frame[frame["shop"] == name][-30:] for name in "abc"])
    new.to_csv(folder / "new.csv", index=False)
    return folder


def test_vectors_of_series_and_what_is_known_ahead_are_the_same_in_a_table_a_stream_and_a_graph(shops):
    import onnxruntime

    assert main(["export", str(shops / "run"), "--onnx", "--torch-export"]) == 0
    loaded, written = orthornn.load(shops / "run"), shops / "run" / "export"
    whole, single = (onnxruntime.InferenceSession(written / f"{name}.onnx") for name in ("model", "step"))
    about = json.loads(whole.get_modelmeta().custom_metadata_map["orthornn"])
    assert about["series"] == ["a", "b", "c"]
    assert about["columns"][-1] == "shop"
    assert about["labels"][:3] == ["sold+1 q0.1", "sold+1 q0.5", "sold+1 q0.9"]
    saved = torch.export.load(written / "model.pt2").module()
    with pytest.warns(OrthornnWarning, match="have no forecast, because price is not given"):
        found = loaded.tables.predict(shops / "new.csv")
    assert [one.name for one, _ in found] == ["a", "b", "c"]
    for place, (one, said) in enumerate(found):
        assert (one.values[:, -1] == place).all()
        streamed = np.stack(list(loaded.stream(one.values)))
        np.testing.assert_allclose(streamed, said.scores, rtol=1e-5, atol=1e-4)
        raw = one.values[:, None].astype(np.float32)
        np.testing.assert_allclose(whole.run(None, {"x": raw})[0][:, 0], said.scores, rtol=1e-5, atol=1e-4)
        np.testing.assert_allclose(
            saved(torch.from_numpy(raw))[:, 0].detach().numpy(), said.scores, rtol=1e-5, atol=1e-4
        )
        state = load_file_of_state(written, single)
        for row, wanted in zip(raw, said.scores):
            y, state = single.run(None, {"x": row, "state": state})
            np.testing.assert_allclose(y[0], wanted, rtol=1e-5, atol=1e-4)
    medians = [said.scores[:, 1].mean() for _, said in found]
    assert medians[0] - medians[1] > 30  # the shops differ by their vectors, or by their own past
    assert medians[1] < medians[2]


def load_file_of_state(folder, session):
    """The first state of a step: zeros of the shape that its graph has."""
    (entry,) = [one for one in session.get_inputs() if one.name == "state"]
    rows, _, width = entry.shape
    return np.zeros((rows, 1, width), np.float32)


@pytest.mark.skipif(not COMPILERS, reason="needs a C compiler")
def test_vectors_of_series_and_what_is_known_ahead_are_the_same_in_c(shops, tmp_path):
    loaded = orthornn.load(shops / "run")
    with pytest.warns(OrthornnWarning, match="does not sort the 3 quantiles"):
        compiled = Compiled(export.to_c(loaded, tmp_path / "c"))
    with pytest.warns(OrthornnWarning, match="have no forecast, because price is not given"):
        found = loaded.tables.predict(shops / "new.csv")
    assert len(found) == 3
    for one, said in found:
        forecasts = np.sort(compiled.run(one.values).reshape(-1, 2, 3)).reshape(-1, 6)
        np.testing.assert_allclose(forecasts, said.scores, rtol=1e-5, atol=1e-4)
    head = (tmp_path / "c" / "network.h").read_text()
    assert (
        " * The last input is the number of a series; 3 for an unknown one.\n *   0: a\n *   1: b\n *   2: c\n" in head
    )


def test_a_series_that_training_did_not_have_is_an_error_or_has_the_mean_of_all_vectors(shops):
    text = (shops / "new.csv").read_text().replace("\nb,", "\nz,")
    (shops / "other.csv").write_text(text)
    with pytest.raises(DataError, match=r"Expected series that were in the training part in .*no vector: z"):
        orthornn.load(shops / "run").tables.predict(shops / "other.csv")


@pytest.mark.sampled(1)
@pytest.mark.parametrize("write", [export.to_torch_export, export.to_c])
def test_values_that_float32_does_not_resolve_are_told(write, tmp_path):
    """Times of 1.7e9 were read to 128 seconds, and the export said nothing."""

    class Run:
        def __init__(self, model, description):
            self.model, self.description = model, description

    model = SequenceModel(OrthogonalRNN(2, 3), torch.nn.Linear(3, 2), output="last")
    near = {"scale": [1.0, 0.5], "offset": [-5e3, 0.0], "target_scale": [4.0, 2.0], "target_offset": [2e4, -7.0]}
    near |= {"columns": ["t", "x"], "labels": ["a", "b"], "says": "values", "input_size": 2, "output_size": 2}
    far = {**near, "offset": [-1e4, -1.7e9], "target_offset": [0.0, 1.7e9]}

    def written(description, folder):
        folder.mkdir()
        return write(Run(model, description), folder) if write is export.to_c else write(model, folder, description)

    with warnings.catch_warnings():
        warnings.simplefilter("error", OrthornnWarning)
        written(near, tmp_path / "near")
    told = r"input 't' to about 0\.001 standard deviations, input 'x' to about 2e\+02 .*, output 'b' to about 1e\+02 "
    with pytest.warns(OrthornnWarning, match=told):
        written(far, tmp_path / "far")


def test_graphs_read_inputs_far_from_zero_to_all_their_digits():
    model = SequenceModel(OrthogonalRNN(2, 3), torch.nn.Linear(3, 2), output="all")
    x = torch.randn(4, 30, 2, dtype=torch.float64) * torch.tensor([100.0, 1e-3]) + torch.tensor([5e6, 7.0])
    x = x.float()
    description = {"scale": [0.01, 1e3], "offset": [-5e4, -7e3]}
    scale, offset = (torch.tensor(values, dtype=torch.float64) for values in description.values())
    graph = SequenceGraph(model, description)
    torch.testing.assert_close(graph.prepared(x), (x.double() * scale + offset).float(), rtol=1e-6, atol=1e-6)


def test_a_mean_of_many_steps_is_as_precise_as_one_of_few():
    """A float32 sum of a hundred thousand outputs has lost four digits of the next one."""
    model = build("rnn", 1, 2, hidden_size=4, output="last", pool="mean").eval()
    step, x = export.graphs.Step(model), torch.randn(3, 1, 1)
    outputs = model.core(x)[0].detach().double()
    for count in (1000, 2**23):
        state = step.state.unsqueeze(1).clone()
        state[1:], state[1, 0, 0] = 0.5, float(count)  # so many steps of outputs whose mean is 1/2
        with torch.no_grad():
            for row in x:
                y, state = step(row, state)
        assert state[1, 0, 0] == count + 3
        mean = ((0.5 * count + outputs.sum(0)) / (count + 3)).float()
        assert count > 1000 or (mean - 0.5).abs().min() > 1e-5  # else a mean that stays would pass
        flat = state[1:, 0].flatten()[1:5]
        torch.testing.assert_close(flat, mean[0], rtol=0, atol=tolerance(torch.float32))
        torch.testing.assert_close(y, model.head(mean).detach(), rtol=0, atol=tolerance(torch.float32, 10))
