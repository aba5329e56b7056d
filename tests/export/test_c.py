"""The generated C computes what the module does, and nothing of a stranger's gets out of its strings."""

from __future__ import annotations

import ctypes
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from orthornn import (
    GORU,
    Hadamard,
    Householder,
    OrthogonalRNN,
    OrthogonalRNNCell,
    PeepholeLSTM,
    Rotations,
    ScaledCayley,
    Unconstrained,
)
from orthornn.activations import ACTIVATIONS
from orthornn.cli import main
from orthornn.errors import ArgumentError, ArgumentTypeError, NonFiniteError
from orthornn.export import rounded, to_c
from orthornn.export.c import text
from orthornn.export.c.folded import fold_network
from orthornn.learn.predict import load
from orthornn.learn.systems import SequenceModel, build
from orthornn.learn.tasks import Adding
from orthornn.learn.training import train
from support.compiled_c import COMPILERS, SANITIZED, STRICT, Compiled, command, selftest_passes
from support.run_cases import config
from support.tolerances import tolerance

pytestmark = pytest.mark.skipif(not COMPILERS, reason="needs a C compiler")


def randomized(core):
    """Parameters far from their initial values, which hide signs and places."""
    with torch.no_grad():
        for name, parameter in core.named_parameters():
            if name.startswith("bias"):
                parameter.uniform_(-0.4, 0.2)
            elif name.startswith("activation"):
                parameter.uniform_(0.2, 1.0)
    return core


def network(core, outputs=3, output="all", **options):
    width = core.hidden_size * (2 if getattr(core, "is_complex", False) else 1)
    return SequenceModel(randomized(core), nn.Linear(width, outputs), output=output, **options).eval()


def rotations(n):
    """An orthogonal W that is plane rotations in the basis of the units."""
    rnn = OrthogonalRNN(2, n, 2, parametrization=Unconstrained(), nonlinearity="tanh", linear_transition=True)
    for k in (0, 1):
        to = torch.cat([torch.arange(n - n // 2, n), torch.arange(n // 2, n - n // 2), torch.arange(n // 2)])
        angles = torch.rand(n // 2)
        c = torch.cat([angles.cos(), torch.ones(n % 2), angles.cos()])
        s = torch.cat([-angles.sin(), torch.zeros(n % 2), angles.sin()])
        setattr(rnn, f"weight_hh_l{k}", torch.diag(c) + torch.zeros(n, n).scatter_(1, to[:, None], s[:, None]))
    return rnn


COMPLEX = Householder(reflections=2, field="complex")
CASES = {
    "dense": (lambda: OrthogonalRNN(2, 9, nonlinearity="tanh"), "dense"),
    "reflections, odd": (lambda: OrthogonalRNN(2, 33, parametrization=Householder(reflections=5)), "reflections"),
    "with a base": (
        lambda: OrthogonalRNN(1, 32, parametrization=Householder(reflections=3, base="rotations"), learn_h0=True),
        "reflections",
    ),
    "two layers, gain": (
        lambda: OrthogonalRNN(3, 12, 2, parametrization=Householder(reflections=2), nonlinearity="tanh", gain=0.9),
        "reflections",
    ),
    "complex": (lambda: OrthogonalRNN(2, 11, parametrization=COMPLEX, learn_h0=True), "reflections"),
    "two complex layers": (
        lambda: OrthogonalRNN(2, 5, 2, parametrization=ScaledCayley(field="complex"), nonlinearity="tanh"),
        "dense",
    ),
    "linear, rotations": (lambda: OrthogonalRNN(2, 17, nonlinearity="identity", learn_h0=True), "rotations"),
    "two linear layers": (lambda: OrthogonalRNN(2, 10, 2, nonlinearity="identity"), "rotations"),
    "linear transition": (
        lambda: OrthogonalRNN(2, 10, nonlinearity="modrelu", linear_transition=True),
        "dense",
    ),
    "linear transition of reflections": (
        lambda: OrthogonalRNN(
            2, 13, parametrization=Householder(reflections=2), nonlinearity="oplu", linear_transition=True
        ),
        "reflections",
    ),
    "plain rotations": (lambda: rotations(11), "rotations"),
    "trained rotations": (  # reflectors (N, 0), of which C has no array
        lambda: OrthogonalRNN(2, 11, 2, parametrization=Rotations(), nonlinearity="tanh", gain=0.9),
        "rotations",
    ),
    "signs": (
        lambda: OrthogonalRNN(2, 64, 2, parametrization=Hadamard(), gain=0.9, nonlinearity="tanh", learn_h0=True),
        "hadamard",
    ),
    "blocks of signs": (lambda: OrthogonalRNN(2, 24, parametrization=Hadamard(), nonlinearity="modrelu"), "hadamard"),
    "linear transition of signs": (
        lambda: OrthogonalRNN(2, 12, parametrization=Hadamard(block=2), nonlinearity="oplu", linear_transition=True),
        "hadamard",
    ),
    "no bias": (lambda: OrthogonalRNN(2, 6, parametrization=Householder(), bias=False, nonlinearity="relu"), "dense"),
    "torch": (lambda: nn.RNN(2, 6, 2, nonlinearity="relu"), "dense"),
    **{
        f"{name}, {n}": (lambda name=name, n=n: OrthogonalRNN(2, n, nonlinearity=name), "")
        for name, n in ((name, 7 if name != "complex_modrelu" else 8) for name in ACTIVATIONS)
    },
}
STEPS = 10_000


def reference(model, x):
    """The outputs of all steps in float64."""
    wide = model.double()
    with torch.no_grad():
        states = wide.core(torch.from_numpy(np.asarray(x)).double().unsqueeze(1))[0][:, 0]
        states = torch.view_as_real(states).flatten(-2) if states.is_complex() else states
        y = wide.head(states).numpy()
    scale = max(1.0, float(states.abs().max())) * max(1.0, float(wide.head.weight.detach().abs().sum(1).max()))
    return y, scale


@pytest.mark.sampled(10)
@pytest.mark.parametrize("case", CASES)
def test_ten_thousand_steps_are_those_of_torch(case, tmp_path):
    make, form = CASES[case]
    model = network(make())
    if "torch" in case:
        with torch.no_grad():  # not orthogonal, so that errors would grow without a bound below 1
            for k in (0, 1):
                getattr(model.core, f"weight_hh_l{k}").div_(2)
    made = to_c(model, tmp_path)
    assert form in ("", *{layer.form for layer in made.network.layers})
    x = torch.randn(STEPS, model.core.input_size).numpy()
    expected, scale = reference(model, x)
    compiler = COMPILERS[len(case) % len(COMPILERS)]
    found = Compiled(made, compiler).run(x)
    bound = tolerance(torch.float32, STEPS + model.core.hidden_size) * scale
    assert np.abs(found - expected).max() < bound
    early = slice(0, 20)
    assert np.abs(found[early] - expected[early]).max() < bound / 100


@pytest.mark.sampled(2)
@pytest.mark.parametrize("case", ["reflections, odd", "complex", "linear, rotations"])
def test_a_perceptron_reads_the_state(case, tmp_path):
    core = randomized(CASES[case][0]())
    width = core.hidden_size * (2 if core.is_complex else 1)
    model = SequenceModel(core, nn.Sequential(nn.Linear(width, 7), nn.GELU(), nn.Linear(7, 3)), output="all").eval()
    made = to_c(model, tmp_path)
    x = torch.randn(300, 2)
    with torch.no_grad():
        expected = model(x[:, None])[:, 0].numpy()
    assert np.abs(Compiled(made).run(x.numpy()) - expected).max() < 1e-4
    for compiler in COMPILERS:
        selftest_passes(tmp_path, compiler=compiler)
    made = to_c(model, tmp_path / "integers", numbers="int16", calibration=x)
    q = made.integers.quantize(x.numpy())
    found = Compiled(made).run(q)
    assert np.array_equal(found, made.integers.run(x.numpy()[None])[0])
    # reflections and odd parts round the int16 state itself, as those of other readouts
    assert np.sqrt(np.square(found * made.integers.output_scale - expected).mean()) < 0.03 * np.abs(expected).max()
    with pytest.raises(ArgumentError, match="calibration for a perceptron as readout"):
        to_c(model, tmp_path / "none", numbers="int8", input_range=(-1, 1), steps=9)
    with pytest.raises(ArgumentError, match="rounded weights, but got a perceptron as readout"):
        rounded(model)
    assert not (tmp_path / "none").exists()


@pytest.mark.sampled(4)
@pytest.mark.parametrize("compiler", COMPILERS)
@pytest.mark.parametrize(
    "case",
    [
        "two layers, gain",
        "complex",
        "linear, rotations",
        "oplu, 7",
        "complex_modrelu, 8",
        "linear transition",
        "blocks of signs",
    ],
)
def test_the_self_test_passes_under_sanitizers_without_a_warning(case, compiler, tmp_path):
    to_c(network(CASES[case][0]()), tmp_path, name="net_1")
    selftest_passes(tmp_path, "net_1", compiler)


def amplified(nonlinearity, factor, size=64):
    """A network whose errors grow: tanh makes it chaotic, relu lets it diverge."""
    core = nn.RNN(3, size, nonlinearity=nonlinearity)
    with torch.no_grad():
        core.weight_hh_l0.mul_(factor)
    return core


GROWING = {
    "chaos": lambda: amplified("tanh", 5),
    "divergence": lambda: amplified("relu", 1e4),
    "gain": lambda: OrthogonalRNN(3, 6, nonlinearity="identity", gain=1e3),
}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("case", GROWING)
def test_the_self_test_ends_before_errors_have_grown(case, tmp_path):
    torch.manual_seed(0)
    to_c(GROWING[case](), tmp_path)
    selftest_passes(tmp_path, compiler=COMPILERS[0], flags=("-O1",))
    steps = int(re.findall(r"t < (\d+);", (tmp_path / "network_selftest.c").read_text())[0])
    assert 1 < steps < 20
    calibration = torch.randn(1, 3, 3)
    to_c(GROWING[case](), tmp_path, numbers="int16", calibration=calibration)  # the module's own errors have grown, too
    file = tmp_path / "network.c"
    to_c(GROWING[case](), tmp_path)
    file.write_text(file.read_text().replace("= {\n    ", "= {\n    3.0f + ", 1))
    with pytest.raises(AssertionError):
        selftest_passes(tmp_path, flags=("-O1",))


@pytest.mark.parametrize("options", [{"nonlinearity": "identity"}, {"parametrization": Householder(reflections=2)}])
def test_a_network_in_float64_is_its_network(options, tmp_path):
    core = randomized(OrthogonalRNN(2, 10, learn_h0=True, **options).double())
    made = to_c(core, tmp_path)
    x = torch.randn(50, 2, dtype=torch.float64)
    expected = core(x)[0].detach().numpy()
    assert np.abs(Compiled(made).run(x.numpy()) - expected).max() < tolerance(torch.float32, 100)
    y, states = [], made.network.first_states()
    for row in x.numpy():
        one, states = made.network.step(row, states)
        y.append(one)
    assert np.abs(np.stack(y) - expected).max() < 1e-12


def test_the_self_test_finds_a_changed_weight(tmp_path):
    to_c(network(OrthogonalRNN(2, 6)), tmp_path)
    file = tmp_path / "network.c"
    file.write_text(file.read_text().replace("= {\n    ", "= {\n    3.0f + ", 1))
    with pytest.raises(AssertionError):
        selftest_passes(tmp_path, flags=())


@pytest.mark.parametrize("form", ["dense", "reflections"])
def test_forms_agree_and_reflections_are_n_m_numbers(form, tmp_path):
    core = OrthogonalRNN(2, 40, parametrization=Householder(reflections=7), bias=False, nonlinearity="tanh")
    made = to_c(core, tmp_path, form=form)
    numbers = {"dense": 40 * 40, "reflections": 40 * 7 - 7 * 6 // 2}[form]
    assert made.sizes.weights == 4 * (numbers + 2 * 40)
    x = torch.randn(50, 2)
    assert np.abs(Compiled(made).run(x) - core(x)[0].detach().numpy()).max() < tolerance(torch.float32, 100)


def test_the_forms_of_signs_agree(tmp_path):
    """A linear recurrence has all three; signs are packed eight to a byte."""
    core = OrthogonalRNN(2, 48, parametrization=Hadamard(), bias=False, nonlinearity="identity")
    model = SequenceModel(core, nn.Linear(48, 3)).eval()
    x = torch.randn(50, 2)
    expected = model(x.unsqueeze(1)).detach().squeeze(1).numpy()
    for form in ("dense", "rotations", "hadamard"):
        made = to_c(model, tmp_path / form, form=form)
        assert [layer.form for layer in made.network.layers] == [form]
        assert np.abs(Compiled(made).run(x) - expected).max() < tolerance(torch.float32, 500)
    assert made.sizes.weights == 48 // 8 + 4 * (2 * 48 + 3 * 48 + 3)


def test_states_run_side_by_side_and_reset(tmp_path):
    model = network(OrthogonalRNN(2, 6, 2, learn_h0=True))
    compiled = Compiled(to_c(model, tmp_path))
    x = torch.randn(30, 2).numpy()
    one, other, y = compiled.state(), compiled.state(), np.zeros(3, np.float32)
    together = []
    for row in x:
        compiled.call("step", one, row, y)
        together.append(y.copy())
        compiled.call("step", other, -row, None)
    assert np.array_equal(together, compiled.run(x))
    compiled.call("read", one, y)
    assert np.array_equal(y, together[-1])
    compiled.call("reset", one)
    assert np.array_equal(compiled.run(x, one), together)
    assert np.array_equal(compiled.steps(x), together)


def test_the_last_step_of_tokens_and_of_a_class_too_large(tmp_path):
    model = network(OrthogonalRNN(5, 8), output="last", token_classes=5)
    compiled = Compiled(to_c(model, tmp_path))
    tokens = torch.randint(5, (12,))
    with torch.no_grad():
        expected = model(tokens[:, None])[0].numpy()
    assert np.abs(compiled.run(tokens) - expected).max() < 1e-5
    with torch.no_grad():  # no input: V x = 0
        rows = torch.cat([torch.eye(5)[tokens], torch.zeros(1, 5)])
        expected = model(rows[:, None])[0].numpy()
    assert np.abs(compiled.run([*tokens, 65535]) - expected).max() < 1e-5


def test_nan_is_passed_on(tmp_path):
    for name in ("tanh", "relu", "modrelu", "complex_modrelu", "leaky_relu"):
        compiled = Compiled(to_c(OrthogonalRNN(1, 4, nonlinearity=name), tmp_path, name=name))
        assert np.isnan(compiled.run([[np.nan]])).all()


@pytest.mark.parametrize("unit", [0, 3])
def test_nan_in_one_unit_of_a_pair_goes_where_torch_puts_it(unit, tmp_path):
    """oplu permutes a pair and makes no number of its own: a NaN moves to the second unit, and the other one stays."""
    core = OrthogonalRNN(2, 5, nonlinearity="oplu", bias=False, parametrization=Unconstrained(), gain=0.5)
    with torch.no_grad():
        core.weight_ih_l0.fill_(1)
        core.weight_ih_l0[unit, 1] = -1  # infinity minus infinity
        expected = core(torch.full((1, 2), torch.inf))[0].numpy()
    assert np.isnan(expected).sum() == 1
    found = Compiled(to_c(core, tmp_path)).run([[np.inf, np.inf]])
    np.testing.assert_array_equal(found, expected)


def test_a_headless_complex_network_returns_pairs(tmp_path):
    core = randomized(OrthogonalRNN(2, 5, parametrization=COMPLEX))
    x = torch.randn(20, 2)
    expected = torch.view_as_real(core(x)[0]).flatten(-2).detach().numpy()
    assert np.abs(Compiled(to_c(core, tmp_path)).run(x) - expected).max() < 1e-5


def test_a_cell_is_its_network(tmp_path):
    cell = OrthogonalRNNCell(2, 5)
    folded = fold_network(cell)
    y, _ = folded.step(np.ones(2), folded.first_states())
    assert np.abs(y - cell(torch.ones(1, 2)).detach().numpy()[0]).max() < 1e-6


ALLOWED = {"tanhf", "hypotf", "fabsf", "memset", "memcpy"}  # the last two: compilers may call them for loops


@pytest.mark.parametrize("case", ["tanh, 7", "complex_modrelu, 8", "two layers, gain"])
def test_the_object_needs_no_heap_and_little_else(case, tmp_path):
    to_c(network(CASES[case][0]()), tmp_path)
    command(COMPILERS[0], "-std=c99", "-O2", "-c", tmp_path / "network.c", "-o", tmp_path / "network.o")
    symbols = command("nm", "-u", tmp_path / "network.o").split()
    assert set(symbols) - {"U", "_GLOBAL_OFFSET_TABLE_"} <= ALLOWED


@pytest.mark.parametrize("count", [2, 4])
def test_labels_that_are_not_the_outputs_are_refused(count, tmp_path):
    description = {"input": "real", "output": "last", "says": "classes", "labels": list("abcd")[:count]}
    run = type("Run", (), {"model": network(OrthogonalRNN(2, 6), output="last"), "description": description})()
    with pytest.raises(ArgumentError, match=f"Expected a label for each of 3 outputs, but got {count} labels"):
        to_c(run, tmp_path)
    assert not list(tmp_path.iterdir())


def test_inputs_scaled_and_labels_of_a_run(tmp_path):
    model = network(OrthogonalRNN(2, 6), output="last")
    description = {
        "input_size": 2,
        "output_size": 3,
        "input": "real",
        "output": "last",
        "says": "classes",
        "scale": [0.5, 0.001],
        "offset": [-20.0, 3.0],
        "labels": ["a", "b", "c"],
        "columns": ["u", "v"],
        "order": [2, 0, 1],
    }
    run = type("Run", (), {"model": model, "description": description})()
    made = to_c(run, tmp_path)
    compiled = Compiled(made)
    raw = np.stack([np.linspace(30, 50, 3), np.linspace(-4000, 1000, 3)], 1)
    with torch.no_grad():
        scaled = torch.tensor(raw * description["scale"] + description["offset"], dtype=torch.float32)
        expected = model(scaled[:, None])[0].numpy()
    found = compiled.run(raw)
    assert np.abs(found - expected).max() < 1e-4
    compiled.library.network_label.restype = ctypes.c_char_p
    best = compiled.call("best", found)
    assert best == expected.argmax()
    assert [compiled.call("label", i) for i in (0, 2, 3, -1)] == [b"a", b"c", b"", b""]
    assert list((ctypes.c_uint32 * 3).in_dll(compiled.library, "network_order")) == [2, 0, 1]


def test_a_run_by_the_command(tmp_path, capsys):
    run = tmp_path / "run"
    train(config("ornn", task=Adding(T=6, validation_size=5, test_size=5), steps=3), run)
    assert main(["export", str(run), "--c", "--name", "adding", "--arduino", "--zephyr"]) == 0
    out = capsys.readouterr().out
    assert re.search(r"RAM, one state +64 bytes\n", out)
    folder = run / "export"
    assert {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()} == {
        *("adding.c", "adding.h", "adding_selftest.c", "Makefile", "library.properties"),
        *("zephyr/module.yml", "CMakeLists.txt", "Kconfig"),
    }
    command("make", "-s", "-C", folder, f"CC={COMPILERS[0]}")
    loaded = load(run)
    x = np.random.default_rng(0).random((1, 6, 2))
    made = to_c(loaded, tmp_path / "again")
    assert np.abs(Compiled(made).run(x[0]) - loaded.predict(x).scores[0]).max() < 1e-5
    assert main(["export", str(run), "--safetensors", "--arduino"]) == 2
    assert "Expected --c with --arduino" in capsys.readouterr().err


def test_no_file_is_written_through_a_link(tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "zephyr").symlink_to(tmp_path / "elsewhere")
    model = SequenceModel(OrthogonalRNN(2, 3), nn.Linear(3, 2), output="last")
    run = type("Run", (), {"model": model, "description": {"input": "real", "output": "last"}})()
    for force in (False, True):
        with pytest.raises(ArgumentError, match="zephyr to be a folder, but got a symbolic link"):
            to_c(run, tmp_path / "out", zephyr=True, force=force)
    assert not any((tmp_path / "elsewhere").iterdir())
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["zephyr"]


HOSTILE = [
    *(
        '"); system("true"); //',
        "*/ int x; /*",
        "??/",
        'a??/" b',
        "\\",
        "%s%n",
        "\n#error no\n",
        "\0".replace("\0", "\1"),
    ),
    *("\u202egnp.exe", "\ud800", "'", "??)", "é" * 100, "a\\", "//", "\x7f", "\r", "", "777", "\\x41"),
]


@pytest.mark.parametrize("compiler", COMPILERS)
def test_names_of_a_stranger_stay_in_their_strings_and_comments(compiler, tmp_path):
    count = len(HOSTILE)
    model = network(OrthogonalRNN(count, 4), count)
    description = {"output": "all", "says": "classes", "input": "real", "labels": HOSTILE, "columns": HOSTILE}
    made = to_c(type("Run", (), {"model": model, "description": description})(), tmp_path)
    compiled = Compiled(made, compiler)
    selftest_passes(tmp_path, compiler=compiler)
    compiled.library.network_label.restype = ctypes.c_char_p
    found = [compiled.call("label", i) for i in range(count)]
    assert found == [label.encode("utf-8", "surrogatepass") for label in HOSTILE]
    written = (tmp_path / "network.h").read_text("ascii")
    assert not re.search(r"[^\x20-\x7e\n\t]", written)
    assert written.count("/*") == written.count("*/")


@pytest.mark.parametrize(
    "bad", ["", "1a", "a b", "int", "class", "a" * 41, "a\n", "../a", 'a"', "é", 3, None, "a*/", "main"]
)
def test_a_name_that_is_no_identifier_is_refused(bad, tmp_path):
    with pytest.raises(ArgumentError, match="name to be a"):
        to_c(OrthogonalRNN(1, 2), tmp_path / "o", name=bad)
    assert not (tmp_path / "o").exists()


@pytest.mark.parametrize("bad", ["math", "stdint", "Math", "network_selftest"])
def test_a_name_of_a_header_or_of_another_network_s_file_is_refused(bad, tmp_path):
    with pytest.raises(ArgumentError, match=r"Expected an unused name, but .* is the name of"):
        to_c(OrthogonalRNN(1, 2), tmp_path / "o", name=bad)
    assert not (tmp_path / "o").exists()


def test_a_label_that_c_cannot_hold_is_refused():
    for label in ("a\0b", "x" * 501):
        with pytest.raises(ArgumentError, match="labels of at most 500 bytes"):
            text.string(label)


def test_numbers_are_read_back_exactly(tmp_path):
    values = np.concatenate(
        [np.random.default_rng(0).standard_normal(500), [0.0, -0.0, 1.0, 3e38, 1e-45, 1e-38, 16777217.0]]
    ).astype(np.float32)
    file = tmp_path / "v.c"
    file.write_text(text.array("float", "v", values).replace("static ", "extern const float v[]; "))
    command(COMPILERS[0], "-shared", "-fPIC", file, "-o", tmp_path / "v.so")
    found = (ctypes.c_float * len(values)).in_dll(ctypes.CDLL(str(tmp_path / "v.so")), "v")
    assert np.array_equal(np.array(found, np.float32).view(np.uint32), values.view(np.uint32))


def poisoned(value=torch.nan, dtype=torch.float32):
    core = OrthogonalRNN(2, 3, nonlinearity="tanh", dtype=dtype)
    with torch.no_grad():
        core.weight_ih_l0[0, 0] = value
    return core


def amplified_input(value):
    core = OrthogonalRNN(1, 3, nonlinearity="identity")
    nn.init.constant_(core.weight_ih_l0, value)
    return core


REFUSED = {
    "goru": (lambda: build("goru", 2, 1, hidden_size=4), ArgumentError, "GORU, which has no C form"),
    "goru alone": (lambda: GORU(2, 3), ArgumentError, "GORU, which has no C form"),
    "peephole": (lambda: PeepholeLSTM(2, 3), ArgumentError, "no C form"),
    "lstm": (lambda: nn.LSTM(2, 3), ArgumentError, "LSTM, which has no C form"),
    "bidirectional": (lambda: OrthogonalRNN(2, 3, bidirectional=True), ArgumentError, "bidirectional"),
    "dropout": (lambda: OrthogonalRNN(2, 3, 2, dropout=0.5), ArgumentError, r"Call \.eval\(\) first"),
    "head": (
        lambda: SequenceModel(OrthogonalRNN(2, 3), nn.Sequential(nn.Linear(3, 1))),
        ArgumentError,
        "torch.nn.Linear as readout",
    ),
    "another gelu": (
        lambda: SequenceModel(
            OrthogonalRNN(2, 3), nn.Sequential(nn.Linear(3, 4), nn.GELU(approximate="tanh"), nn.Linear(4, 1))
        ),
        ArgumentError,
        "torch.nn.Linear as readout",
    ),
    "nan": (poisoned, NonFiniteError, "got nan in layer 0"),
    "beyond float32": (lambda: poisoned(1e39, torch.float64), NonFiniteError, r"got 1e\+39 in layer 0"),
    "one step": (lambda: amplified_input(2e38), NonFiniteError, "first step is in the range of float32"),
    "meta": (lambda: OrthogonalRNN(2, 3, device="meta"), ArgumentError, "on the meta device"),
    "tensor": (lambda: torch.zeros(3), ArgumentTypeError, "torch.nn.Module"),
    "no reflections": (lambda: OrthogonalRNN(2, 3, parametrization=ScaledCayley()), ArgumentError, "not a product of"),
    "path": (lambda: "runs/NAME", ArgumentTypeError, r"pass orthornn\.load\(path\)"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_has_no_c_form_is_refused_before_anything_is_written(case, tmp_path):
    make, error, message = REFUSED[case]
    with pytest.raises(error, match=message):
        to_c(make(), tmp_path / "out", form="reflections" if case == "no reflections" else "auto")
    assert not list(tmp_path.iterdir())


def test_dropout_is_nothing_in_evaluation(tmp_path):
    to_c(OrthogonalRNN(2, 3, 2, dropout=0.5).eval(), tmp_path)


def test_files_of_others_are_left_alone(tmp_path):
    core = OrthogonalRNN(2, 3)
    (tmp_path / "Makefile").write_text("all:\n")
    with pytest.raises(ArgumentError, match=r"Makefile to be missing or written by orthornn.*--force"):
        to_c(core, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["Makefile"]
    to_c(core, tmp_path, makefile=False)
    (tmp_path / "Makefile").unlink()
    first = {path: path.stat().st_ino for path in to_c(core, tmp_path).files}
    to_c(core, tmp_path)  # what is ours may be written anew
    assert all(path.stat().st_ino != inode for path, inode in first.items())  # by renaming, never in place
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]
    outside = tmp_path / "outside"
    outside.write_text("mine")
    (tmp_path / "network.c").unlink()
    (tmp_path / "network.c").symlink_to(outside)
    with pytest.raises(ArgumentError, match=r"network\.c to be missing"):
        to_c(core, tmp_path)
    to_c(core, tmp_path, force=True)
    assert outside.read_text() == "mine"
    ours = to_c(core, tmp_path / "elsewhere").files[1]
    (tmp_path / "network.c").unlink()
    (tmp_path / "network.c").symlink_to(ours)  # a link is not ours, even if it leads to what is
    with pytest.raises(ArgumentError, match=r"network\.c to be missing"):
        to_c(core, tmp_path)
    to_c(core, tmp_path, force=True)
    assert not (tmp_path / "network.c").is_symlink()


@pytest.mark.skipif(shutil.which("g++") is None, reason="needs a C++ compiler")
def test_the_header_is_read_by_cpp(tmp_path):
    to_c(network(OrthogonalRNN(2, 3)), tmp_path)
    (tmp_path / "use.cpp").write_text(
        '#include "network.h"\nint f() { network_state s; network_init(&s); return 0; }\n'
    )
    command(
        "g++",
        "-std=c++17",
        "-Wall",
        "-Wextra",
        "-Wpedantic",
        "-Werror",
        "-c",
        tmp_path / "use.cpp",
        "-o",
        tmp_path / "o",
    )


def test_the_sanitizers_are_on(tmp_path):
    (tmp_path / "bad.c").write_text("int main(int n, char **v) { int a[2]; (void)v; return a[n + 5]; }\n")
    command(COMPILERS[0], *SANITIZED, tmp_path / "bad.c", "-o", tmp_path / "bad")
    with pytest.raises(AssertionError):
        command(tmp_path / "bad")


PAGE = (Path(__file__).parents[2] / "docs" / "how_to" / "microcontroller.md").read_text("utf-8")
FLOAT_C, INTEGER_C = re.findall(r"```c\n(.*?)```", PAGE, re.DOTALL)
MAIN = """
#include <stdio.h>
#include <stdlib.h>
void report(const char *label) { puts(label); }
int main(void)
{
    float x[GESTURE_INPUTS];
    begin();
    while (fread(x, sizeof(float), GESTURE_INPUTS, stdin) == GESTURE_INPUTS)
        sample(x);
    return 0;
}
"""


@pytest.mark.parametrize("compiler", COMPILERS)
@pytest.mark.parametrize("code", [FLOAT_C, INTEGER_C], ids=["float32", "int8"])
def test_the_page_s_code_compiles_and_reports_what_the_network_says(code, compiler, tmp_path):
    torch.manual_seed(0)
    model = network(OrthogonalRNN(3, 16, parametrization=Householder(), nonlinearity="tanh", learn_h0=True))
    with torch.no_grad():
        model.head.weight.mul_(10)
    description = {"input": "real", "output": "all", "says": "classes", "scale": 0.5, "labels": ["up", "down", "left"]}
    run = type("Run", (), {"model": model, "description": description})()
    x = torch.randn(1, 200, 3)
    integers = {"numbers": "int8", "calibration": x} if code is INTEGER_C else {}
    made = to_c(run, tmp_path, name="gesture", **integers)
    (tmp_path / "main.c").write_text("void report(const char *label);\n" + code + MAIN)
    sources = [tmp_path / name for name in ("main.c", "gesture.c")]
    command(compiler, *STRICT, *SANITIZED, "-Wno-float-equal", *sources, "-o", tmp_path / "program", "-lm")
    done = subprocess.run([tmp_path / "program"], input=x.numpy().tobytes(), capture_output=True, check=True)
    if made.integers is not None:
        y = made.integers.run(x.numpy())[0] * made.integers.output_scale
    else:
        with torch.no_grad():
            y = model(0.5 * x.transpose(0, 1))[:, 0].numpy()
    expected = [description["labels"][row.argmax()] for row in y if row.max() > 2]
    assert done.stdout.decode().split() == expected
    assert 10 < len(expected) < 200


def test_the_tutorial_runs_and_int8_is_as_good_as_float32(capsys):
    page = (Path(__file__).parents[2] / "docs" / "tutorials" / "microcontroller.md").read_text("utf-8")
    names: dict[str, object] = {}
    for cell in re.findall(r"```python\n(.*?)```", page, re.DOTALL):
        exec(cell, names)
    out = capsys.readouterr().out
    before, after = (float(value) for value in re.findall(r"([\d.]+) % right", out))
    assert before > 95
    assert abs(before - after) < 1
    assert "the C computes what the network does" in out
    assert "void gesture_step(" in out
