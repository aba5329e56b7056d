"""The C++ class for real-time audio computes what the module does, without a system call."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from orthornn import Householder, OrthogonalRNN, Unconstrained
from orthornn.cli import main
from orthornn.errors import ArgumentError, NonFiniteError
from orthornn.export import to_audio
from orthornn.learn.systems import SequenceModel
from orthornn.learn.tasks import Adding
from orthornn.learn.training import train
from support.compiled_c import command
from support.devices import HERE
from support.run_cases import config
from support.tolerances import tolerance

COMPILERS = [compiler for compiler in ("g++", "clang++") if shutil.which(compiler)]
pytestmark = pytest.mark.skipif(not COMPILERS, reason="needs a C++ compiler")
WARNINGS = ("-std=c++17", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-Wshadow", "-Wconversion", "-Wsign-conversion")
SANITIZED = ("-O1", "-fsanitize=undefined", "-fno-sanitize-recover=all")
CASES = {
    "default": {},
    "reflections": {"parametrization": Householder(reflections=8), "nonlinearity": "modrelu"},
    "with a base": {"parametrization": Householder(reflections=3, base="rotations"), "nonlinearity": "tanh"},
    "dense": {"nonlinearity": "relu", "learn_h0": True},
    "rotations": {"nonlinearity": "identity"},
    "gain": {"parametrization": Householder(reflections=2), "nonlinearity": "modrelu", "gain": 0.9},
    "complex": {"parametrization": Householder(reflections=3, field="complex")},
}


def network(size=33, inputs=1, outputs=1, **options):
    core = OrthogonalRNN(inputs, size, **options)
    with torch.no_grad():
        for bias in () if core.bias_ih_l0 is None else (core.bias_ih_l0,):
            bias.uniform_(-0.3, 0.1)
        if core.activation_l0 is not None:
            core.activation_l0.uniform_(-0.5, 1)
            core.activation_l0[0] = 0
    return SequenceModel(core, nn.Linear(2 * size if core.is_complex else size, outputs), output="all").eval()


def program(folder, made, compiler="g++", flags=("-O1",)):
    found = folder / "check"
    source = HERE / "audio_check.cpp"
    command(compiler, *WARNINGS, *flags, f"-DORTHORNN_NET={made.type}", f"-I{folder}", source, "-o", found)
    return found


def run(check, file, x, how="blocks"):
    done = subprocess.run(
        [check, file, how], input=np.asarray(x, np.float32).tobytes(), capture_output=True, check=False
    )
    return done.returncode, np.frombuffer(done.stdout, np.float32), done.stderr.decode()


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """A small network and its program, which what hangs on the file or the host alone shares."""
    folder = tmp_path_factory.mktemp("small")
    model = network(8, parametrization=Householder(reflections=2))
    return model, folder / "network.json", program(folder, to_audio(model, folder), flags=("-O0",))


@pytest.mark.sampled(1)
@pytest.mark.parametrize("case", CASES)
def test_ten_thousand_samples_are_those_of_torch(case, tmp_path):
    sizes = {"inputs": 2, "outputs": 3} if case == "gain" else {}
    model = network(64 if case == "reflections" else 33, **sizes, **CASES[case])
    made = to_audio(model, tmp_path)
    compiler = COMPILERS[len(case) % len(COMPILERS)]
    # clang has a runtime of its own for sanitizers, which allocates
    check = program(tmp_path, made, compiler, ("-O3", "-ffp-contract=fast"))
    x = torch.randn(10_000, model.core.input_size)
    code, y, _ = run(check, tmp_path / "network.json", x)
    assert code == 0
    wide = model.double()
    with torch.no_grad():
        states = wide.core(x.double().unsqueeze(1))[0][:, 0]
        states = torch.view_as_real(states).flatten(1) if states.is_complex() else states
        expected = wide.head(states).numpy()
    scale = max(1.0, float(states.abs().max())) * max(1.0, float(wide.head.weight.detach().abs().sum(1).max()))
    assert np.abs(y.reshape(expected.shape) - expected).max() < tolerance(torch.float32, len(x)) * scale
    assert np.abs(y.reshape(expected.shape)[:20] - expected[:20]).max() < tolerance(torch.float32, 100) * scale
    code, single, _ = run(check, tmp_path / "network.json", x, "samples")
    assert code == 0
    assert np.array_equal(single, y)  # whatever the lengths of the blocks
    if model.core.input_size == 1:
        code, copied, _ = run(check, tmp_path / "network.json", x[:500], "copies")
        assert code == 0
        assert np.array_equal(copied, y[:500])


@pytest.mark.sampled(1)
@pytest.mark.parametrize("case", ["reflections", "with a base"])
def test_plain_loops_are_the_same_network(case, tmp_path):
    made = to_audio(network(36, **CASES[case]), tmp_path)
    x, found = torch.randn(200), []
    for flags in (("-O1",), ("-O1", "-DORTHORNN_PLAIN_LOOPS")):
        code, y, _ = run(program(tmp_path, made, flags=flags), tmp_path / "network.json", x)
        assert code == 0
        found.append(y)
    assert np.abs(found[0] - found[1]).max() < tolerance(torch.float32, 200) * np.abs(found[0]).max()


@pytest.mark.sampled(1)
@pytest.mark.parametrize("flags", [(), ("-DORTHORNN_PLAIN_LOOPS",)], ids=["vectors", "loops"])
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_nan_is_passed_on_as_torch_does(value, flags, tmp_path):
    model = network(33, parametrization=Householder(reflections=3), nonlinearity="modrelu")
    made = to_audio(model, tmp_path)
    x = torch.randn(60, 1)
    x[20] = value
    with torch.no_grad():
        expected = model(x.unsqueeze(1)).flatten()
    assert not expected[20:].isfinite().any()
    _, y, _ = run(program(tmp_path, made, flags=("-O2", *flags)), tmp_path / "network.json", x)
    assert np.isfinite(y).tolist() == expected.isfinite().tolist()


def test_undefined_behavior_is_absent(tmp_path):
    made = to_audio(network(30, parametrization=Householder(reflections=5)), tmp_path)
    assert run(program(tmp_path, made, flags=SANITIZED), tmp_path / "network.json", np.zeros(100), "silence")[0] == 0


def test_the_trap_for_allocations_is_set(small):
    _, file, check = small
    assert run(check, file, np.zeros(10))[0] == 0
    assert run(check, file, np.zeros(10), "allocate")[0] < 0


def test_a_state_that_fades_becomes_zero_and_not_denormal(tmp_path):
    model = network(16, parametrization=Householder(reflections=2), nonlinearity="identity", gain=0.5, bias=False)
    nn.init.zeros_(model.head.bias)
    made = to_audio(model, tmp_path, form="reflections")
    x = np.zeros(2000, np.float32)
    x[0] = 1
    _, y, _ = run(program(tmp_path, made), tmp_path / "network.json", x)
    assert np.abs(y[:100]).min() > 0
    assert (y[300:] == 0).all()
    assert np.abs(y[y != 0]).min() >= np.finfo(np.float32).tiny


DAMAGED = {
    "empty": lambda text: "",
    "cut": lambda text: text[:-20],
    "more": lambda text: text + "x",
    "nested": lambda text: "[" * 1000,
    "another size": lambda text: text.replace('"units": 8', '"units": 9'),
    "another format": lambda text: text.replace("orthornn-audio-1", "orthornn-audio-2"),
    "another phi": lambda text: text.replace("scaled_tanh", "tanh"),
    "a row short": lambda text: json.dumps({**json.loads(text), "U": json.loads(text)["U"][1:]}),
    "no row": lambda text: json.dumps({**json.loads(text), "U": 3}),
    "words": lambda text: json.dumps({**json.loads(text), "b": ["x"] * 8}),
    "infinite": lambda text: text.replace('"b": [', '"b": [1e999, '),
    "no exponent": lambda text: text.replace('"d": [', '"d": [1e], "e": ['),
    "no fraction": lambda text: text.replace('"d": [', '"d": [1.], "e": ['),
    "no integer": lambda text: text.replace('"d": [', '"d": [.5], "e": ['),
    "nan": lambda text: json.dumps({**json.loads(text), "b": [float("nan")] * 8}),
    "no b": lambda text: text.replace('"b"', '"c2"'),
    "no rate": lambda text: json.dumps({**json.loads(text), "sample_rate": "44100"}),
    "rate 0": lambda text: json.dumps({**json.loads(text), "sample_rate": 0}),
    "two marks": lambda text: "\ufeff\ufeff" + text,
    "half a mark": lambda text: "\u00ef" + text,
}


def test_a_damaged_file_is_one_error(small, tmp_path):
    _, file, check = small
    text = file.read_text()
    for name, damage in DAMAGED.items():
        damaged = tmp_path / "damaged.json"
        damaged.write_text(damage(text), "utf-8")
        code, _, message = run(check, damaged, np.zeros(3))
        assert code == 3, name
        assert message.startswith("orthornn: the network's JSON has "), name


@pytest.mark.parametrize("rate", [None, 44100, 22050.5])
def test_the_class_warns_of_a_host_at_another_rate(rate, small, tmp_path):
    model, _, check = small
    made = to_audio(model, tmp_path, sample_rate=rate)
    assert made.sample_rate == rate
    assert json.loads((tmp_path / "network.json").read_text()).get("sample_rate") == rate
    for host in (44100, 22050.5, 48000):
        _, _, told = run(check, tmp_path / "network.json", np.zeros(3), f"rate={host}")
        if rate in (None, host):
            assert told == ""
        else:
            heard = {44100: "44100 Hz", 22050.5: "22051 Hz", 48000: "48000 Hz"}
            assert f"was trained at {heard[rate]}, but the host runs at {heard[host]}. Resample" in told


@pytest.mark.parametrize("rate", [0, -44100, float("nan"), 1e7, "44100"])
def test_a_rate_that_is_none_is_refused(rate, tmp_path):
    with pytest.raises(
        ValueError if rate != "44100" else TypeError, match="Expected sample_rate to be a number between 1"
    ):
        to_audio(network(8), tmp_path / "out", sample_rate=rate)
    assert not list(tmp_path.iterdir())


def test_a_byte_order_mark_is_skipped(small, tmp_path):
    """As editors of Windows write one when somebody looks into the file and saves it."""
    _, file, check = small
    x = np.ones(20)
    expected = run(check, file, x)
    (tmp_path / "saved.json").write_text(file.read_text(), "utf-8-sig")
    found = run(check, tmp_path / "saved.json", x)
    assert (found[0], found[1].tolist()) == (0, expected[1].tolist())


def test_a_network_larger_than_the_stack_is_read(tmp_path):
    made = to_audio(network(256, nonlinearity="tanh"), tmp_path)
    check = program(tmp_path, made)
    done = subprocess.run(
        ["sh", "-c", 'ulimit -s 128; exec "$@"', "sh", check, tmp_path / "network.json", "samples"],
        input=np.zeros(3, np.float32).tobytes(),
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0
    assert len(done.stdout) == 12


def test_tanh_is_tanh(tmp_path):
    made = to_audio(OrthogonalRNN(1, 1, nonlinearity="tanh", bias=False, parametrization=Unconstrained()), tmp_path)
    content = json.loads((tmp_path / "network.json").read_text())
    content |= {"transition": content["transition"], "V": [[1.0]]}
    for name in ("W", "c", "s"):
        if name in content:
            content[name] = [[0.0]] if name == "W" else [0.0]
    (tmp_path / "network.json").write_text(json.dumps(content))
    x = np.concatenate([np.linspace(-20, 20, 4001), np.logspace(-8, 1, 100)]).astype(np.float32)
    code, y, _ = run(program(tmp_path, made), tmp_path / "network.json", x)
    assert code == 0
    assert np.abs(y - np.tanh(x.astype(np.float64))).max() < 5e-7


def in_another_order():
    description = {"input": "real", "output": "last", "says": "values", "order": [2, 0, 1]}
    return type("Run", (), {"model": network(4), "description": description})()


def too_loud():
    """Two numbers that float32 holds, and whose product it does not."""
    model = network(4, nonlinearity="tanh")
    nn.init.constant_(model.core.weight_ih_l0, 1e20)
    description = {"input": "real", "output": "all", "says": "values", "scale": 1e20}
    return type("Run", (), {"model": model, "description": description})()


REFUSED = {
    "another order": in_another_order,
    "two layers": lambda: OrthogonalRNN(1, 4, 2),
    "complex": lambda: OrthogonalRNN(1, 4, parametrization=Householder(field="complex"), nonlinearity="modrelu"),
    "tokens": lambda: SequenceModel(OrthogonalRNN(3, 4), nn.Linear(4, 1), token_classes=3),
    "oplu": lambda: OrthogonalRNN(1, 4, nonlinearity="oplu"),
    "linear": lambda: OrthogonalRNN(1, 4, nonlinearity="tanh", linear_transition=True),
    "lstm": lambda: nn.LSTM(1, 4),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_the_class_has_not_is_refused_before_anything_is_written(case, tmp_path):
    with pytest.raises(ArgumentError, match="Expected"):
        to_audio(REFUSED[case](), tmp_path / "out")
    assert not list(tmp_path.iterdir())


def test_numbers_beyond_float32_are_refused_before_anything_is_written(tmp_path):
    with pytest.raises(NonFiniteError, match="got larger ones in V"):
        to_audio(too_loud(), tmp_path / "out")
    assert not list(tmp_path.iterdir())


def test_a_run_by_the_command(tmp_path, capsys):
    run_folder = tmp_path / "run"
    train(config("ornn-rotations", task=Adding(T=6, validation_size=5, test_size=5), steps=2), run_folder)
    assert main(["export", str(run_folder), "--audio", "--name", "effect", "--out", str(tmp_path / "o")]) == 0
    assert "orthornn::Network<orthornn::" in capsys.readouterr().out
    assert {path.name for path in (tmp_path / "o").iterdir()} == {"effect.json", "orthornn_audio.hpp"}
    (tmp_path / "o" / "effect.json").write_text("{}")
    assert main(["export", str(run_folder), "--audio", "--name", "effect", "--out", str(tmp_path / "o")]) == 2


PAGE = (Path(__file__).parents[2] / "docs" / "how_to" / "audio.md").read_text("utf-8")
MAIN = """
#include <cstdio>
#include <fstream>
#include <iterator>

int main()
{
    std::ifstream file("effect/effect.json");
    prepare(std::string((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>()), 48000.0);
    float x[100], y[100];
    while (std::fread(x, sizeof(float), 100, stdin) == 100) {
        callback(x, y, 100);
        std::fwrite(y, sizeof(float), 100, stdout);
    }
}
"""


@pytest.mark.parametrize("compiler", COMPILERS)
def test_the_page_s_code_compiles_and_is_the_effect(compiler, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = {}
    exec(re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)[0], names)
    (code,) = re.findall(r"```cpp\n(.*?)```", PAGE, re.DOTALL)
    (tmp_path / "main.cpp").write_text("#include <string>\n" + code + MAIN)
    command(compiler, *WARNINGS, *SANITIZED, "-Ieffect", "main.cpp", "-o", "program")
    x = np.random.default_rng(0).standard_normal(500).astype(np.float32)
    done = subprocess.run(["./program"], input=x.tobytes(), capture_output=True, check=True)
    effect = names["effect"]
    with torch.no_grad():
        expected = effect.head(effect.core(torch.from_numpy(x)[:, None, None])[0]).numpy().ravel()
    assert np.abs(np.frombuffer(done.stdout, np.float32) - expected).max() < 1e-4


def test_the_tutorial_runs_and_learns_the_effect(capsys):
    pytest.importorskip("matplotlib").use("Agg")
    page = (Path(__file__).parents[2] / "docs" / "tutorials" / "audio.md").read_text("utf-8")
    names: dict[str, object] = {}
    for cell in re.findall(r"```python\n(.*?)```", page, re.DOTALL):
        exec(cell, names)
    names["plt"].close("all")
    out = capsys.readouterr().out
    learned, dry = (float(value) for value in re.findall(r"signal energy, .*: ([\d.]+)", out))
    assert learned < 0.05 < dry
    assert "orthornn::Network<orthornn::Reflections<32, 8>, orthornn::Tanh>" in out
