"""The C of OrthogonalBlocks, pools and lags computes what the modules do: what `orthornn train FILE` trains by default."""

from __future__ import annotations

import ctypes
import functools
import re
import shutil

import numpy as np
import pytest
import torch
from torch import nn

import orthornn
from orthornn import Householder, OrthogonalBlocks, OrthogonalRNN
from orthornn.cli import main
from orthornn.errors import ArgumentError
from orthornn.export import to_audio, to_c
from orthornn.layout import SequenceLayout
from orthornn.learn.predict import load
from orthornn.learn.systems import SequenceModel, build
from support.block_cases import CASES, PARTS, blocks, every_step, inputs_of, made_of, with_lags
from support.compiled_c import COMPILERS, Compiled, command, selftest_passes
from support.tolerances import tolerance

pytestmark = pytest.mark.skipif(not COMPILERS, reason="needs a C compiler")
STEPS = 10_000


def enlarged(model, x):
    """How much rounding of the states may become in the outputs: by the matrices that read them."""
    parts = [part for part in model.head.modules() if isinstance(part, nn.Linear)]
    with torch.no_grad():
        norm = max(float(block.mix[0].weight.abs().sum(1).max()) for block in model.core.blocks)
        norm *= np.prod([float(part.weight.abs().sum(1).max()) for part in parts])
        u, largest = model.read(x[:, None])[0], 1.0
        for block in model.core.blocks:
            read = u if block.norm is None else block.norm(u)
            largest = max(largest, float(block.recurrence(read)[0].abs().max()))
            u = block(u, SequenceLayout(len(x), 1), None, False)[0]
    return largest * max(1.0, norm)


@pytest.mark.sampled(8)
@pytest.mark.parametrize("case", CASES)
def test_ten_thousand_steps_are_those_of_the_module(case, tmp_path):
    model = CASES[case]()
    made = to_c(model, tmp_path)
    x = inputs_of(model, STEPS)
    expected, scale = every_step(model, x), enlarged(model, x)
    states, twin = made.network.first_states(), []
    for row in x.numpy()[:300]:
        y, states = made.network.step(row, states)
        twin.append(y)
    # The C's numbers in float64; the decomposition of a complex or dense W is as exact as float64.
    assert np.abs(np.stack(twin) - expected[:300]).max() < tolerance(torch.float64, 10_000) * scale
    found = Compiled(made, COMPILERS[len(case) % len(COMPILERS)]).steps(x.numpy())
    off = np.abs(found - expected).max(1)
    bound = tolerance(torch.float32, 1) * (np.arange(STEPS) + model.core.state_size) * scale
    assert (off < bound).all()
    assert (off[:20] < bound[:20] / 10).all()


@pytest.mark.sampled(4)
@pytest.mark.parametrize("compiler", COMPILERS)
@pytest.mark.parametrize("case", CASES)
def test_the_self_test_passes_under_sanitizers_without_a_warning(case, compiler, tmp_path):
    to_c(CASES[case](), tmp_path)
    selftest_passes(tmp_path, compiler=compiler)
    assert int(re.findall(r"t < (\d+);", (tmp_path / "network_selftest.c").read_text())[0]) > 10


def test_a_series_that_there_is_not_has_the_mean_of_all_vectors(tmp_path):
    compiled = Compiled(to_c(CASES["series"](), tmp_path))
    x = np.ones((5, 3), np.float32)
    x[:, 2] = 3
    expected = compiled.run(x)
    for number in (-1, 4, 1e30, -1e30, np.nan, np.inf):
        x[:, 2] = number
        assert np.array_equal(compiled.run(x), expected)


def test_streams_side_by_side_and_a_reset_begin_anew(tmp_path):
    model = with_lags(made_of(blocks(3, 6, 8, depth=2), "summary"), lags=3)
    compiled = Compiled(to_c(model, tmp_path))
    x = inputs_of(model, 40).numpy().astype(np.float32)
    one, other, y = compiled.state(), compiled.state(), np.zeros(3, np.float32)
    together = []
    for row in x:
        compiled.call("step", one, row, y)
        together.append(y.copy())
        compiled.call("step", other, -row, None)
    assert np.array_equal(together, compiled.steps(x))
    compiled.call("read", one, y)
    assert np.array_equal(y, together[-1])
    compiled.call("reset", one)
    assert np.array_equal(compiled.run(x, one), together[-1])


def test_a_mean_over_a_million_steps_keeps_its_digits(tmp_path):
    """A sum in float32 alone would be off by 1e-4: it is compensated."""
    core = nn.RNN(1, 1, bias=False)
    with torch.no_grad():
        core.weight_ih_l0.fill_(1)
        core.weight_hh_l0.zero_()
    head = nn.Linear(1, 1, bias=False)
    nn.init.ones_(head.weight)
    model = SequenceModel(core, head, pool="mean").eval()
    x = np.random.default_rng(0).uniform(0.5, 1.5, (1_000_000, 1)).astype(np.float32)
    found = Compiled(to_c(model, tmp_path)).run(x)
    assert abs(found[0] - np.tanh(x.astype(np.float64)).mean()) < tolerance(torch.float32)


@pytest.mark.parametrize("pool", ["mean", "both"])
@pytest.mark.parametrize(
    "core",
    [
        lambda: OrthogonalRNN(2, 9, nonlinearity="identity", learn_h0=True),
        lambda: OrthogonalRNN(2, 5, parametrization=Householder(reflections=2, field="complex")),
        lambda: nn.RNN(2, 6, 2),
    ],
)
def test_pools_of_other_networks(core, pool, tmp_path):
    core = core()
    width = core.hidden_size * (2 if getattr(core, "is_complex", False) else 1) * PARTS[pool]
    model = SequenceModel(core, nn.Linear(width, 3), pool=pool).eval()
    compiled = Compiled(to_c(model, tmp_path))
    x = torch.randn(60, 2)
    with torch.no_grad():
        for steps in (1, 60):
            expected = model(x[:steps, None])[0].numpy()
            assert np.abs(compiled.run(x[:steps]) - expected).max() < tolerance(torch.float32, 200)


def test_a_maximum_is_of_the_units_themselves(tmp_path):
    model = SequenceModel(OrthogonalRNN(2, 8, nonlinearity="identity"), nn.Linear(24, 3), pool="summary").eval()
    with pytest.raises(ArgumentError, match="but got pool='summary'"):
        to_c(model, tmp_path)
    compiled = Compiled(to_c(model, tmp_path, form="dense"))
    x = torch.randn(60, 2)
    with torch.no_grad():
        assert np.abs(compiled.run(x) - model(x[:, None])[0].numpy()).max() < tolerance(torch.float32, 200)


def test_nan_reaches_a_mean_and_a_maximum(tmp_path):
    compiled = Compiled(to_c(made_of(blocks(1, 3, 4, depth=2, decay=True), "summary"), tmp_path))
    assert np.isnan(compiled.run([[1.0], [np.nan], [1.0]])).all()


def replaced_mix():
    model = CASES["default"]()
    model.core.blocks[0].mix[1] = nn.Tanh()
    return model


def replaced_norm():
    model = CASES["default"]()
    model.core.blocks[1].norm = nn.Softmax(-1)
    return model


def named(**parts):
    """A network of somebody else's, whose parts have the names of ours."""
    model = SequenceModel(OrthogonalRNN(2, 4), nn.Linear(4, 1), output="last").eval()
    for name, part in parts.items():
        setattr(model, name, part)
    return model


REFUSED = {
    "another pool": (lambda: named(pool=nn.MaxPool1d(2)), "but got pool=MaxPool1d"),
    "another recent": (lambda: named(recent=nn.Linear(2, 1)), "recent=Linear, which have no C form"),
    "stride": (lambda: build("blocks", 2, 1, hidden_size=4, stride=2).eval(), "stride=1, but got stride=2"),
    "two directions": (lambda: OrthogonalBlocks(2, 3, bidirectional=True), "one direction"),
    "dropout": (lambda: OrthogonalBlocks(2, 3, depth=2, dropout=0.5), r"Call \.eval\(\) first"),
    "mix": (replaced_mix, "but got Linear, Tanh, Linear, which has no C form"),
    "norm": (replaced_norm, "but got Softmax, which has no C form"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_has_no_c_form_is_refused_before_anything_is_written(case, tmp_path):
    make, message = REFUSED[case]
    with pytest.raises(ArgumentError, match=message):
        to_c(make(), tmp_path / "out")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("case", ["default", "one block", "lags"])
def test_audio_is_refused_by_name(case, tmp_path):
    with pytest.raises(ArgumentError, match="but got OrthogonalBlocks"):
        to_audio(CASES[case]().float(), tmp_path / "out")
    assert not list(tmp_path.iterdir())


def test_costs_are_counted(tmp_path):
    I, D, S, O, k = 3, 5, 8, 2, 4
    model = build("blocks", I, O, hidden_size=D, state_size=S, lags=k, pool="both").eval()
    made = to_c(model, tmp_path)
    recurrences = 2 * 2 * S + S * I + S * D
    mixes = 2 * (2 * D * S + D) + D * I + 2 * D
    assert made.sizes.multiply_adds == recurrences + mixes + 2 * D * O + k * I * O
    assert made.sizes.ram == 4 * (2 * S + 2 * D + 2 * D + k * I + 1)
    head = (tmp_path / "network.h").read_text()
    assert re.search(rf"work, one step +{made.sizes.multiply_adds} multiply-adds\n \* calls of expf +{2 * D}\n", head)
    assert re.search(r"calls of sqrtf +1\n", head)
    count = sum(
        len(found.split(",")) for found in re.findall(r"\] = \{([^}]*)\}", (tmp_path / "network.c").read_text())
    )
    assert made.sizes.weights == 4 * count
    command(COMPILERS[0], "-std=c99", "-O2", "-c", tmp_path / "network.c", "-o", tmp_path / "network.o")
    symbols = set(command("nm", "-u", tmp_path / "network.o").split()) - {"U", "_GLOBAL_OFFSET_TABLE_"}
    assert symbols <= {"expf", "sqrtf", "memset", "memcpy", "memmove"}


def table(folder, kind):
    """A table of made sequences, and the words that train on it."""
    pandas = pytest.importorskip("pandas")
    random = np.random.default_rng(0)
    sequences, length = (30, 25) if kind != "forecast" else (1, 400)
    time = np.arange(length)
    frames = []
    for k in range(sequences):
        a = 30 + 5 * np.sin((0.3 + 0.2 * (k % 3)) * time + k) + random.standard_normal(length)
        frame = pandas.DataFrame({"a": a, "b": 1e-3 * random.standard_normal(length)})
        if kind == "classify":
            frame["id"], frame["state"] = k, ["slow", "medium", "fast"][k % 3]
        elif kind == "regress":
            frame["id"], frame["speed"] = k, 100.0 + 20 * (k % 3) + k / 7
            frame.loc[random.random(length) < 0.2, "b"] = np.nan
        frames.append(frame)
    pandas.concat(frames).to_csv(folder / f"{kind}.csv", index=False)
    words = {
        "classify": ["--target", "state", "--sequence", "id"],
        "regress": ["--target", "speed", "--sequence", "id", "--missing", "indicator"],
        "forecast": ["--target", "a", "--horizons", "3"],
    }[kind]
    return folder / f"{kind}.csv", words


@pytest.fixture(scope="module")
def by_default(tmp_path_factory):
    """A function: the table of a kind, and the run that train makes of it by default, which is trained once."""

    @functools.cache
    def made(kind):
        folder = tmp_path_factory.mktemp(kind)
        file, words = table(folder, kind)
        run = folder / "run"
        assert main(["train", kind, "--data", str(file), *words, "--steps", "30", "--out", str(run)]) == 0
        return file, run

    return made


@pytest.mark.sampled(3)
@pytest.mark.parametrize("kind", ["classify", "regress", "forecast"])
def test_what_train_makes_by_default_is_exported_and_predicts_the_same(kind, by_default, tmp_path, capsys):
    """It was refused, and what could be exported instead was worse by far."""
    file, original = by_default(kind)
    run = tmp_path / "run"
    shutil.copytree(original, run)
    assert main(["export", str(run), "--c"]) == 0
    assert "multiply-adds" in capsys.readouterr().out
    selftest_passes(run / "export", compiler=COMPILERS[0])
    loaded = load(run)
    assert isinstance(loaded.model.core, OrthogonalBlocks)
    compiled = Compiled(to_c(loaded, tmp_path / "again"))
    found = loaded.tables.predict(file)
    assert len(found) == (1 if kind == "forecast" else 30)
    for series, said in found[:5]:
        y = compiled.run(series.values)
        if kind == "classify":
            odds = np.exp(y - y.max())
            np.testing.assert_allclose(odds / odds.sum(), said.scores[0], rtol=1e-4, atol=1e-6)
            compiled.library.network_label.restype = ctypes.c_char_p
            assert compiled.call("label", compiled.call("best", y)).decode() == said.labels[0]
        else:
            np.testing.assert_allclose(y, said.scores[0] if kind == "regress" else said.scores, rtol=1e-5)
    head = (run / "export" / "network.h").read_text()
    if kind == "regress":
        mean = loaded.description["channels"][1][2]
        assert f" *   1: b; if missing, pass the last value, initially {mean:.6g}\n *   2: b is missing\n" in head
    if kind == "forecast":
        assert " *   0: a+1\n *   1: a+2\n *   2: a+3\n" in head


@pytest.mark.parametrize("numbers", [None, "int16", "int8"])
def test_what_cannot_go_is_refused_before_the_training(numbers, tmp_path, capsys):
    file, words = table(tmp_path, "classify")
    run = tmp_path / "run"
    words = ["train", str(file), *words, "--steps", "1", "--hidden-size", "4", "--out", str(run), "--for-c"]
    words += [] if numbers is None else [numbers]
    assert main([*words, "--model", "lstm"]) == 2
    assert "LSTM, which has no C form" in capsys.readouterr().err
    assert main([*words, "--model", "auto"]) == 2
    assert "Expected --for-c only with one model" in capsys.readouterr().err
    assert not run.exists()
    assert main(words) == 0
    before = capsys.readouterr().out
    more = [] if numbers is None else ["--numbers", numbers, "--calibration", str(file)]
    assert main(["export", str(run), "--c", *more]) == 0
    costs = re.findall(r"(flash.*?multiply-adds\n)", capsys.readouterr().out, re.DOTALL)
    assert len(costs) == 1
    assert costs[0] in before
    assert ("calls of expf" in before) == (numbers is None)


def test_numbers_for_c_are_checked_in_the_command_and_in_python(tmp_path, capsys):
    file, words = table(tmp_path, "classify")
    assert main(["train", str(file), *words, "--for-c", "int4"]) == 2
    assert "Expected float32, int16 or int8 as --for-c, but got int4" in capsys.readouterr().err
    for given, wanted in ((True, 0), ("int8", 0), (False, 0), ("int4", 1)):
        options = {"sequence": "id", "steps": 1, "hidden_size": 4, "model": "lstm", "for_c": given}
        message = "float32, int16 or int8" if wanted else "has no C form"
        if given is False:
            orthornn.train(file, "state", **options, out=tmp_path / "run")
            continue
        with pytest.raises(ArgumentError, match=message):
            orthornn.train(file, "state", **options, out=tmp_path / "none")
    assert not (tmp_path / "none").exists()


@pytest.mark.sampled(2)
@pytest.mark.parametrize("numbers", ["int8", "int16"])
@pytest.mark.parametrize("kind", ["classify", "regress", "forecast"])
def test_what_train_makes_by_default_is_exported_to_integers(kind, numbers, by_default, tmp_path):
    file, original = by_default(kind)
    run = tmp_path / "run"
    shutil.copytree(original, run)
    assert main(["export", str(run), "--c", "--numbers", numbers]) == 0
    selftest_passes(run / "export", compiler=COMPILERS[0])
    loaded = load(run)
    found = loaded.tables.predict(file)
    made = to_c(loaded, tmp_path / "again", numbers=numbers, calibration=[series.values for series, _ in found])
    # of the training part, which is most of the file
    of_run, of_file = (
        float(re.findall(r"its integer times ([-.e\d]+)", (folder / "network.h").read_text())[0])
        for folder in (run / "export", tmp_path / "again")
    )
    assert 0.5 < of_run / of_file < 2
    compiled, unit = Compiled(made), made.integers.output_scale
    rows = []
    for series, said in found[:5]:
        q = made.integers.quantize(series.values)
        y = compiled.run(q)
        assert np.array_equal(y, made.integers.run(np.asarray(series.values)[None])[0])
        if kind == "classify":
            odds = np.exp((y - y.max()) * unit)
            rows.append(odds / odds.sum() - said.scores[0])
        else:
            rows.append(
                (y * unit - (said.scores[0] if kind == "regress" else said.scores)) / loaded.description["target_scale"]
            )
    assert max(np.abs(row).max() for row in rows) < (0.1 if numbers == "int8" else 0.01)
