"""Networks in integers: the generated C and its twin agree to the bit, and both follow the network."""

from __future__ import annotations

import tempfile
import warnings

import numpy as np
import pytest
import torch
from torch import nn

from orthornn import Hadamard, Householder, OrthogonalRNN, Rotations, Unconstrained
from orthornn.activations import ACTIVATIONS, LeakyReLU
from orthornn.cli import main
from orthornn.errors import ArgumentError, ArgumentTypeError, NonFiniteError, OrthornnWarning, ShapeError
from orthornn.export import rounded, to_c
from orthornn.export.c import fixed
from orthornn.export.c.bounds import bounded
from orthornn.export.c.folded import fold_network
from orthornn.learn.systems import SequenceModel
from orthornn.learn.tasks import Adding
from orthornn.learn.training import train
from support.compiled_c import COMPILERS, Compiled, selftest_passes
from support.devices import needs, on_aarch64, on_cortex_m4
from support.run_cases import config

compiled_here = pytest.mark.skipif(not COMPILERS, reason="needs a C compiler")
UNDEFINED = ("-O2", "-fsanitize=undefined", "-fno-sanitize-recover=all")
LONG = ("tanh", "reflections")  # cases with ten thousand steps; the twin takes a second for a thousand
CASES = {
    **{name: {"nonlinearity": name} for name in ACTIVATIONS},
    "reflections": {"parametrization": Householder(reflections=3, base="rotations"), "learn_h0": True},
    "linear transition": {"nonlinearity": "tanh", "linear_transition": True},
    "complex": {"parametrization": Householder(field="complex", reflections=2)},
    "two layers": {"num_layers": 2, "parametrization": Householder(reflections=2), "nonlinearity": "scaled_tanh"},
    "linear pairs": {"parametrization": Householder(reflections=2), "nonlinearity": "oplu", "linear_transition": True},
    "rotations": {"parametrization": Rotations(), "nonlinearity": "tanh", "gain": 0.9},
    "two linear": {"num_layers": 2, "nonlinearity": "identity", "gain": 0.9},
    "signs": {"parametrization": Hadamard(block=4), "nonlinearity": "tanh", "gain": 0.9},
    "pairs of signs": {"parametrization": Hadamard(), "nonlinearity": "oplu", "num_layers": 2, "learn_h0": True},
}


def network(size=20, output="all", inputs=3, **options):
    core = OrthogonalRNN(inputs, size, **options)
    with torch.no_grad():
        for name, parameter in core.named_parameters():
            if name.startswith(("bias", "activation")):
                parameter.uniform_(*((-0.3, 0.1) if name.startswith("bias") else (0.3, 1.0)))
    width = size * (2 if core.is_complex else 1)
    return SequenceModel(core, nn.Linear(width, 4), output=output).eval()


def run_of(model, **description):
    """What orthornn.load returns, as far as to_c reads it."""
    shared = {"input": "real", "output": model.output, "says": "classes", "input_size": 3, "output_size": 2}
    return type("Run", (), {"model": model, "description": shared | description, "threshold": 0.2})()


@compiled_here
@pytest.mark.parametrize(
    ("numbers", "tuned"), [("float32", False), ("int8", False), ("int8", True), ("int16", False), ("int16", True)]
)
def test_the_threshold_of_a_run_decides_between_two_classes(numbers, tuned, tmp_path):
    """The likelier class won, whatever the threshold."""
    torch.manual_seed(1)
    core = OrthogonalRNN(3, 6, parametrization=Householder(reflections=2), nonlinearity="tanh")
    run = run_of(SequenceModel(core, nn.Linear(6, 2), output="last").eval())
    x = np.random.default_rng(0).standard_normal((40, 9, 3)).astype(np.float32)
    options = {} if numbers == "float32" else {"numbers": numbers, "calibration": x}
    made = to_c(rounded(run, numbers) if tuned else run, tmp_path, **options)
    compiled = Compiled(made)
    labels, seconds = [], []
    for row in x:
        y = compiled.run(row if numbers == "float32" else made.integers.quantize(row))
        unit = 1.0 if numbers == "float32" else made.integers.output_scale
        seconds.append(1 / (1 + np.exp(-(float(y[1]) - float(y[0])) * unit)))
        labels.append(compiled.call("best", y))
    assert labels == [int(second >= 0.2) for second in seconds]
    assert sum(labels) > sum(second >= 0.5 for second in seconds), "this test needs other answers than at 1/2"
    assert "1 if its probability is at least 0.2" in (tmp_path / "network.h").read_text()


def test_raw_sequences_are_read_in_the_order_of_the_network():
    torch.manual_seed(0)
    core = OrthogonalRNN(3, 8, parametrization=Rotations(), nonlinearity="identity")
    model = SequenceModel(core, nn.Linear(8, 2), output="last").eval()
    order = np.random.default_rng(1).permutation(12)
    turns = (np.arange(12) % 2 * 2.0 - 1)[None, :, None] * np.ones((4, 1, 3))
    with tempfile.TemporaryDirectory() as folder:
        plain = to_c(model, folder, numbers="int16", calibration=turns[:, order], force=True)
        made = to_c(run_of(model, order=order.tolist()), folder, numbers="int16", calibration=turns, force=True)
        assert [layer.scale for layer in made.integers.layers] == [layer.scale for layer in plain.integers.layers]
        assert np.array_equal(made.integers.run(turns), plain.integers.run(turns[:, order]))
        with pytest.raises(
            ShapeError, match="sequences of 12 steps, the length of the network's order of steps, but got 5"
        ):
            made.integers.run(turns[:, :5])


def test_calibration_on_sequences_of_several_lengths(tmp_path):
    model = network(6, nonlinearity="tanh", parametrization=Householder(reflections=2))
    sequences = [scale * torch.randn(length, 3).numpy() for scale, length in ((1, 4), (3, 7), (2, 4))]
    made = to_c(model, tmp_path, numbers="int16", calibration=sequences)
    alone = [to_c(model, tmp_path, numbers="int16", calibration=one).integers for one in sequences]
    assert [layer.scale for layer in made.integers.layers] == [
        max(scales) for scales in zip(*([layer.scale for layer in one.layers] for one in alone))
    ]
    assert made.integers.ranges.inputs == pytest.approx(np.max([one.ranges.inputs for one in alone], axis=0))
    assert "on 3 sequences of 2 lengths" in made.integers.ranges.source
    with pytest.raises(ShapeError, match=r"Expected calibration to be \(B, T, 3\) numbers"):
        to_c(model, tmp_path, numbers="int16", calibration=[np.zeros((4, 3)), np.zeros((5, 2))])


@pytest.mark.sampled(2)
@compiled_here
@pytest.mark.parametrize("numbers", ["int8", "int16"])
@pytest.mark.parametrize("case", CASES)
def test_the_c_and_its_twin_agree_to_the_bit(case, numbers, tmp_path):
    size = 20 if case in ("complex", "complex_modrelu", "signs", "pairs of signs") else 21
    made = to_c(network(size, **CASES[case]), tmp_path, numbers=numbers, calibration=torch.randn(4, 50, 3))
    compiler = COMPILERS[len(case) % len(COMPILERS)]
    # clang has its sanitizers in programs only
    compiled = Compiled(made, compiler, UNDEFINED if compiler == "gcc" else ("-O2",))
    x = made.integers.quantize(torch.randn(10_000 if case in LONG else 1000, 3).numpy() * 2)
    x[500:510] = 32767  # far outside of what it was calibrated on: states are cut, nothing overflows
    x[600:620] = -32768
    states, expected = made.integers.first_states(), []
    for row in x:
        y, states = made.integers.step(row, states)
        expected.append(y)
    assert np.array_equal(compiled.run(x), expected)
    assert max(np.abs(h).max() for h in states) <= 32767


@compiled_here
def test_tokens_and_the_last_step(tmp_path):
    model = SequenceModel(OrthogonalRNN(7, 12), nn.Linear(12, 4), output="last", token_classes=7)
    tokens = torch.randint(7, (3, 40))
    made = to_c(model, tmp_path, numbers="int8", calibration=tokens)
    compiled = Compiled(made)
    found = np.stack([compiled.run(row) for row in tokens.numpy()])
    assert np.array_equal(found, made.integers.run(tokens.numpy()))
    with torch.no_grad():
        expected = model(tokens.t()).numpy()
    assert np.abs(found * made.integers.output_scale - expected).max() < 0.1 * np.abs(expected).max()
    outside = np.array([3, 65535, 7, 2])
    assert np.array_equal(compiled.run(outside), made.integers.run(outside[None])[0])


@pytest.mark.sampled(6)
@pytest.mark.parametrize("case", CASES)
def test_int16_follows_the_network(case):
    model = network(64, **CASES[case])
    x = torch.randn(4, 200, 3)
    folded = fold_network(model)
    made = fixed.quantize(folded, 16, calibrate(folded, x))
    with torch.no_grad():
        states = model.core(x.transpose(0, 1))[0]
        states = torch.view_as_real(states).flatten(-2) if states.is_complex() else states
        expected = model.head(states).transpose(0, 1).numpy()
    error = np.abs(made.run(x.numpy()) * made.output_scale - expected)
    assert error[:, :20].max() < 0.01 * np.abs(expected).max()
    # what rounding puts off: pairs that change their order and reflections round differently from then on
    assert np.sqrt((error**2).mean()) < 0.03 * np.abs(expected).max()


def calibrate(folded, x):
    from orthornn.export.c.bounds import calibrated

    return calibrated(folded, x.numpy(), 1.25)


def test_rounded_reflections_are_orthogonal():
    U = np.random.default_rng(0).standard_normal((100, 6))
    made = fixed.FixedReflections.of(U * np.sqrt(2) / np.linalg.norm(U, axis=0), 8)
    factors = made.m / 2.0**made.shift / 2.0**made.places
    W = np.eye(100)
    for q, tau in zip(made.q.T, factors):
        W = W @ (np.eye(100) - tau * np.outer(q, q))
    assert np.abs(W.T @ W - np.eye(100)).max() < 1e-7
    dense = fixed.FixedMatrix.of(W, 8, 1.0, "W")  # the same W, rounded entry by entry
    R = dense.q * (dense.multiplier.m / 2.0**dense.multiplier.shift)[:, None]
    assert np.abs(R.T @ R - np.eye(100)).max() > 1e-4


@pytest.mark.parametrize("numbers", ["int8", "int16"])
def test_a_sign_is_one_bit(numbers, tmp_path):
    """W takes N/8 bytes; the step needs the sums of all units, and its twin adds up the same integers."""
    core = OrthogonalRNN(2, 64, parametrization=Hadamard(), bias=False, nonlinearity="tanh")
    made = to_c(core, tmp_path, numbers=numbers, calibration=torch.randn(4, 30, 2))
    (layer,) = made.network.layers
    assert layer.form == "hadamard"
    scaling, V = 2 * 4 * 2, 64 * 2 * (1 if numbers == "int8" else 2)
    table = 2 * 257
    assert made.sizes.weights == 64 // 8 + V + table + scaling
    assert made.sizes.ram == 2 * 64 + 4 * 64
    assert made.sizes.multiply_adds == 64 * 6 + 64 + 64 * 2
    h = np.random.default_rng(0).integers(-32767, 32768, (3, 64))
    exact = layer.transform.sums(h)
    assert exact.dtype == h.dtype
    W = np.rint(layer.matrix() / layer.transform.scale).astype(np.int64)
    assert np.array_equal(exact, h @ W.T)


@pytest.mark.parametrize("bits", [8, 16])
def test_no_sum_overflows_whatever_the_vector(bits):
    A = np.random.default_rng(0).standard_normal((30, 700)) * np.logspace(-3, 3, 30)[:, None]
    q = fixed.FixedMatrix.of(A, bits, 1e-3, "A").q
    assert np.abs(q).sum(1).max() * 32767 < 2**31
    assert np.abs(q).max() <= (1 << (bits - 1)) - 1
    assert np.abs(q).max(1).min() > 20  # every row at a scale of its own


def test_the_bound_holds_and_is_stated(tmp_path):
    core = OrthogonalRNN(2, 16, nonlinearity="modrelu", gain=0.9)
    made = to_c(core, tmp_path, numbers="int16", input_range=(-1.0, 1.0))
    assert (
        "bound on the state for inputs from -1 to 1 and sequences of any length" in (tmp_path / "network.c").read_text()
    )
    x = torch.sign(torch.randn(500, 64, 2)).transpose(0, 1)
    assert float(core(x)[0].detach().abs().max()) < made.integers.ranges.states[0]
    folded = fold_network(OrthogonalRNN(2, 16, nonlinearity="relu"))
    bounds = [bounded(folded, -1, 1, steps).states[0] for steps in (1, 10, 100)]
    assert bounds[0] < bounds[1] < bounds[2] < 20 * bounds[1]  # by a constant at each step
    with pytest.raises(
        ArgumentError, match=r"layer 0 \(relu, norm of W 1\) is not bounded for sequences of any length"
    ):
        bounded(folded, -1, 1, None)
    assert bounded(fold_network(OrthogonalRNN(2, 16, nonlinearity="tanh")), -9, 9, None).states == (1.0,)


def far_from_orthogonal(size=32):
    """A W with a norm above 1 whose powers decay."""
    core = OrthogonalRNN(3, size, nonlinearity="relu", parametrization=Unconstrained())
    ((_, transition),) = core.transitions()
    W = torch.randn(size, size, generator=torch.Generator().manual_seed(0)) * 0.8 / size**0.5
    transition.assign_((W,))
    assert torch.linalg.matrix_norm(W, 2) > 1.3
    assert torch.linalg.eigvals(W).abs().max() < 1
    return SequenceModel(core, nn.Linear(size, 4), output="all").eval()


@pytest.mark.parametrize("numbers", ["int8", "int16"])
def test_a_bound_that_leaves_states_too_few_bits_is_reported(numbers, tmp_path):
    torch.manual_seed(0)
    model, x = far_from_orthogonal(), 2 * torch.rand(4, 50, 3) - 1
    with torch.no_grad():
        expected = model(x.transpose(0, 1)).transpose(0, 1).numpy()

    def error(made):
        off = made.integers.run(x.numpy()) * made.integers.output_scale - expected
        return np.sqrt(np.square(off).mean()) / expected.std()

    message = r"The bound on the state of layer 0, .* is 2\^.* times .* from -1 to 1, .* Pass calibration="
    with pytest.warns(OrthornnWarning, match=message) as told:
        wide = to_c(model, tmp_path / "wide", numbers=numbers, input_range=(-1, 1), steps=50)
    assert told[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error", OrthornnWarning)
        made = to_c(model, tmp_path / "data", numbers=numbers, calibration=x)
        to_c(model, tmp_path / "short", numbers=numbers, input_range=(-1, 1), steps=5)
    assert error(wide) > 0.5 > 10 * error(made)


@pytest.mark.parametrize("steps", [30, 3000])
@pytest.mark.parametrize("nonlinearity", ["relu", "identity", "tanh"])
def test_the_bound_of_an_orthogonal_network_leaves_states_enough_bits(nonlinearity, steps, tmp_path):
    core = OrthogonalRNN(3, 16, nonlinearity=nonlinearity, parametrization=Householder(reflections=2))
    of_tokens = OrthogonalRNN(7, 16, nonlinearity=nonlinearity, parametrization=Householder())
    tokens = SequenceModel(of_tokens, nn.Linear(16, 2), output="all", token_classes=7)
    with warnings.catch_warnings():
        warnings.simplefilter("error", OrthornnWarning)
        to_c(core, tmp_path / "real", numbers="int8", input_range=(-1, 1), steps=steps)
        to_c(tokens, tmp_path / "tokens", numbers="int8", input_range=(0, 6), steps=steps)


def test_inputs_of_a_run_become_integers(tmp_path):
    model = network(8, inputs=2, output="last")
    description = {"input": "real", "output": "last", "says": "values", "scale": [0.01, 100.0], "offset": [-5.0, 0.5]}
    run = type("Run", (), {"model": model, "description": description})()
    x = np.stack([np.linspace(400, 600, 50), np.linspace(-0.02, 0.01, 50)], 1)[None]
    made = to_c(run, tmp_path, numbers="int16", calibration=x)
    q = made.integers.quantize(x[0])
    assert np.abs(q).max() == 32767
    if COMPILERS:
        compiled = Compiled(made)
        import ctypes

        convert = compiled.library.network_input
        convert.argtypes, convert.restype = (ctypes.c_int, ctypes.c_float), ctypes.c_int16
        values = [*x[0], [1e9, -1e9], [np.nan, 0.0]]
        found = [[convert(i, float(np.float32(value[i]))) for i in (0, 1)] for value in values]
        assert np.abs(np.array(found[:-2]) - q).max() <= 1  # compilers may fuse the product and the sum
        assert found[-2] == [32767, -32767]
        assert found[-1][0] == -32767


@compiled_here
@pytest.mark.parametrize("scale", [1.0, 1e6])
def test_silent_calibration_data_make_a_network_that_compiles(scale, tmp_path):
    description = {"input": "real", "output": "all", "says": "values", "scale": scale}
    run = type("Run", (), {"model": network(8, nonlinearity="tanh"), "description": description})()
    made = to_c(run, tmp_path, numbers="int8", calibration=torch.zeros(1, 5, 3))
    selftest_passes(tmp_path, flags=("-O1",))
    assert made.integers.quantize(np.array([[0.0, 1e9, -1e9]])).tolist() == [[0, 32767, -32767]]
    with np.errstate(all="raise"):
        found = made.integers.quantize(np.array([[np.nan, 3e38, -np.inf]]))
    assert found.tolist() == [[-32767, 32767, -32767]]


def test_inputs_that_would_be_scaled_beyond_float32_are_refused(tmp_path):
    description = {"input": "real", "output": "all", "says": "values", "scale": 1e6}
    run = type("Run", (), {"model": network(8, nonlinearity="tanh"), "description": description})()
    with pytest.raises(ArgumentError, match="inputs would be scaled by"):
        to_c(run, tmp_path / "out", numbers="int8", calibration=torch.full((1, 5, 3), 1e-40))
    assert not list(tmp_path.iterdir())


GOOD = torch.randn(2, 5, 3)
REFUSED = {
    "nothing": ({}, ArgumentError, "either calibration or input_range for integers"),
    "both": ({"calibration": GOOD, "input_range": (0, 1)}, ArgumentError, "either calibration or"),
    "one end": ({"input_range": 3}, ArgumentTypeError, "pair of numbers"),
    "ends": ({"input_range": (1, 0)}, ArgumentError, "lowest, highest"),
    "infinite": ({"input_range": (0, float("inf"))}, ArgumentError, "input_range"),
    "no end": ({"input_range": (0, 1)}, ArgumentError, "is not bounded for sequences of any length"),
    "steps": ({"input_range": (0, 1), "steps": 0}, ArgumentError, "steps"),
    "steps of data": ({"calibration": GOOD, "steps": 3}, ArgumentError, "steps only with input_range"),
    "shape": ({"calibration": GOOD[..., :2]}, ShapeError, r"\(B, T, 3\) numbers"),
    "nan": ({"calibration": GOOD / 0 * 0}, NonFiniteError, "calibration data within the range of float32"),
    "margin": ({"calibration": GOOD, "margin": 0.5}, ArgumentError, "margin"),
    "float": ({"calibration": GOOD, "numbers": "float32"}, ArgumentError, "numbers='int16' or 'int8'"),
    "numbers": ({"calibration": GOOD, "numbers": "int4"}, ArgumentError, "numbers to be one of"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_bad_ranges_are_refused_before_anything_is_written(case, tmp_path):
    options, error, message = REFUSED[case]
    with pytest.raises(error, match=message):
        to_c(network(6, nonlinearity="modrelu"), tmp_path / "out", **{"numbers": "int8", **options})
    assert not list(tmp_path.iterdir())


@compiled_here
def test_a_run_by_the_command(tmp_path, capsys):
    run = tmp_path / "run"
    train(config("ornn", task=Adding(T=6, validation_size=5, test_size=5), steps=3), run)
    np.save(tmp_path / "x.npy", np.random.default_rng(0).random((20, 6, 2)))
    options = ["--numbers", "int8", "--calibration", str(tmp_path / "x.npy"), "--out", str(tmp_path / "c")]
    assert main(["export", str(run), "--c", *options]) == 0
    assert "RAM, one state             32 bytes" in capsys.readouterr().out
    selftest_passes(tmp_path / "c")
    assert main(["export", str(run), "--c", "--numbers", "int8", "--input-range", "0", "1", "--steps", "6"]) == 0
    selftest_passes(run / "export")


@pytest.mark.devices
@needs("arm-none-eabi-gcc", "qemu-system-arm")
@pytest.mark.parametrize("numbers", ["int8", "int16"])
@pytest.mark.parametrize("optimization", ["-O2", "-Os"])
@pytest.mark.parametrize("case", CASES)
def test_a_step_on_a_cortex_m4_takes_as_long_for_every_input(case, numbers, optimization, tmp_path):
    cost = to_c(network(**CASES[case]), tmp_path, numbers=numbers, calibration=torch.randn(4, 50, 3)).sizes
    found = on_cortex_m4(tmp_path, True, optimization)
    assert found.selftest == 0
    print(
        f"\n{case} {numbers} {optimization}: {cost}, code {found.code} bytes, {found.instructions[0]:.0f} instructions"
    )
    assert max(found.instructions) - min(found.instructions) < 0.2  # a tick of the clock over sixteen steps


@pytest.mark.devices
@needs("aarch64-linux-gnu-gcc", "qemu-aarch64")
@pytest.mark.parametrize("numbers", ["int8", "int16"])
@pytest.mark.parametrize("case", CASES)
def test_integers_on_aarch64(case, numbers, tmp_path):
    to_c(network(**CASES[case]), tmp_path, numbers=numbers, calibration=torch.randn(4, 50, 3))
    on_aarch64(tmp_path)


def test_a_modrelu_that_jumps_is_reported(tmp_path):
    """Its integers leave the path of the network, where those of a continuous nonlinearity stay on it."""
    errors = {}
    x = torch.randn(8, 150, 3)
    for name, low, high in (("jumps", 0.02, 0.1), ("continuous", -0.1, -0.02)):
        torch.manual_seed(0)
        model = network(32, parametrization=Householder(reflections=4), nonlinearity="modrelu")
        with torch.no_grad():
            model.core.bias_ih_l0.uniform_(low, high)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            made = to_c(model, tmp_path / name, numbers="int16", calibration=x)
        assert [f"b > 0 in {32 if name == 'jumps' else 0} of 32 units" in str(w.message) for w in caught] == (
            [True] if name == "jumps" else []
        )
        with torch.no_grad():
            expected = model(x.transpose(0, 1)).transpose(0, 1).numpy()
        error = made.integers.run(x.numpy()) * made.integers.output_scale - expected
        errors[name] = np.abs(error).max() / np.abs(expected).max()
    assert errors["jumps"] > 10 * errors["continuous"]


@pytest.mark.parametrize("name", ["leaky_relu", "prelu", "modrelu", "complex_modrelu"])
def test_what_phi_shrinks_is_not_cut(name, tmp_path):
    """Sums end at 32 times the largest state, which a small slope, or a threshold, leaves far behind."""
    torch.manual_seed(0)
    options = {} if name == "leaky_relu" else {"nonlinearity": name}
    rnn = OrthogonalRNN(3, 16, parametrization=Householder(reflections=4), **options)
    if name == "leaky_relu":
        rnn = OrthogonalRNN(3, 16, parametrization=Householder(reflections=4), nonlinearity=LeakyReLU(0.01))
    x = torch.randn(20, 50, 3)
    with torch.no_grad():
        V = rnn.weight_ih_l0
        V.mul_(1.02 / float((x @ V.T).abs().max()))
        rnn.bias_ih_l0.fill_(-1.0)
        for key, value in rnn.named_parameters():
            if key.startswith("activation"):
                value.fill_(0.02)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = to_c(rnn.eval(), tmp_path, numbers="int16", calibration=x)
    assert made.integers is not None
    wanted = rnn(x.transpose(0, 1))[0].transpose(0, 1).detach().numpy()
    found = made.integers.run(x.numpy()) * made.integers.output_scale
    assert np.abs(found - wanted).max() < 0.05 * np.abs(wanted).max()


def test_a_layer_that_is_silent_on_the_data_has_a_scale(tmp_path):
    rnn = OrthogonalRNN(2, 8, 2, nonlinearity="relu")
    with torch.no_grad():
        rnn.bias_ih_l0.fill_(-5)
    made = to_c(rnn, tmp_path, numbers="int8", calibration=torch.randn(4, 50, 2))
    assert made.integers is not None
    x = torch.zeros(3, 1, 2)
    found = made.integers.run(x.transpose(0, 1).numpy()) * made.integers.output_scale
    np.testing.assert_allclose(found, rnn(x)[0].transpose(0, 1).detach().numpy(), atol=0.02)


def test_the_order_and_the_scaling_count_as_flash(tmp_path):
    model, order = network(inputs=3, output="last"), list(range(7))[::-1]
    sizes = []
    for more in ({}, {"order": order}):
        run = run_of(model, scale=[1.0] * 3, offset=[0.0] * 3, output_size=4, **more)
        sizes.append(
            to_c(run, tmp_path / str(len(sizes)), numbers="int8", calibration=np.ones((2, 7, 3), np.float32)).sizes
        )
    assert sizes[1].weights - sizes[0].weights == 4 * 7
    tables = sum(np.asarray(found).size for found in (model.core.weight_ih_l0.detach(), model.head.weight.detach()))
    assert sizes[0].weights >= tables + 8 * 3


def test_a_network_that_holds_its_state_is_exported_with_a_warning(tmp_path):
    run = run_of(network(), output_size=4, columns=["a", "b", "c"], holds=["b"])
    with pytest.warns(
        OrthornnWarning, match=r"holds its state at steps without a value of 'b' .* exported network does not"
    ):
        to_c(run, tmp_path)
