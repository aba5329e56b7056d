"""OrthogonalBlocks, pools, lags and series in integers: the C and its twin agree to the bit, and both follow the network."""

from __future__ import annotations

import re
import subprocess

import numpy as np
import pytest
import torch
from torch import nn

from orthornn import Householder, OrthogonalRNN
from orthornn.errors import ArgumentError
from orthornn.export import rounded, to_c
from orthornn.export.c import fixed_blocks
from orthornn.export.c.blocks import FoldedBlock
from orthornn.export.c.disturbance import rounding_bounds
from orthornn.export.c.folded import Base
from orthornn.learn.systems import SequenceModel, build
from support.block_cases import CASES, PARTS, blocks, every_step, inputs_of, made_of, with_lags, with_series
from support.compiled_c import COMPILERS, STRICT, Compiled, command, selftest_passes

compiled_here = pytest.mark.skipif(not COMPILERS, reason="needs a C compiler")
UNDEFINED = ("-O2", "-fsanitize=undefined", "-fno-sanitize-recover=all")
OTHERS = {
    "dense": (lambda: made_of(blocks(3, 6, 8, depth=2)), "dense"),
    "reflections": (
        lambda: made_of(blocks(3, 5, 7, depth=2, parametrization=Householder(reflections=2))),
        "reflections",
    ),
    "without a readout": (lambda: blocks(3, 6, 8, depth=2).double().eval(), "auto"),
    "dense, no norm": (lambda: made_of(blocks(3, 6, 8, depth=3, norm="none", radii=(0.1, 0.5))), "dense"),
    "pool of a linear network": (
        lambda: pooled(OrthogonalRNN(3, 9, nonlinearity="identity", learn_h0=True), "both"),
        "auto",
    ),
    "maximum": (lambda: pooled(nn.RNN(3, 6, 2), "summary"), "auto"),
    "lags": (lambda: with_lags(pooled(OrthogonalRNN(3, 6), "last").double(), 4), "auto"),
    "perceptron": (lambda: pooled(OrthogonalRNN(3, 6, nonlinearity="tanh"), "mean", perceptron=True), "auto"),
    "series": (lambda: with_series(pooled(OrthogonalRNN(4, 6), "mean").double()), "auto"),
}


def pooled(core, pool, perceptron=False):
    """A network of another core with this pool."""
    width = core.hidden_size * PARTS[pool]
    head = nn.Sequential(nn.Linear(width, 5), nn.GELU(), nn.Linear(5, 3)) if perceptron else nn.Linear(width, 3)
    return SequenceModel(core, head, pool=pool, output="all" if pool == "last" else "last").eval()


def random_blocks(seed):
    """A network of random sizes and options, with parameters far from their initial values."""
    random = np.random.default_rng(seed)
    torch.manual_seed(seed)
    pick = random.choice
    inputs, width, state = int(pick([1, 2, 5])), int(pick([1, 2, 3, 17, 33])), 2 * int(pick([1, 2, 8, 33]))
    options = {
        "depth": int(pick([1, 2, 4])),
        "mixing": str(pick(["glu", "gelu", "mlp"])),
        "norm": str(pick(["layer", "rms", "none"])),
        "decay": pick([True, False]).item(),
        "bias": pick([True, False]).item(),
    }
    model = made_of(blocks(inputs, width, state, **options), str(pick(["last", "mean", "both", "summary"])))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(float(random.uniform(0.3, 2)))
    return with_lags(model, int(pick([1, 3]))) if random.random() < 0.3 else model


def exported(model, numbers, folder, form="auto", seed=0):
    """What is written, with scales from sequences like those of `inputs_of`."""
    torch.manual_seed(seed)
    core = getattr(model, "core", model)
    if not hasattr(model, "head"):
        x = torch.randn(8, 60, core.input_size) * 2 + 0.5
    else:
        x = torch.stack([inputs_of(model, 60) for _ in range(8)])
    return to_c(model, folder, numbers=numbers, form=form, calibration=x if x.dtype == torch.int64 else x.float())


def raw_inputs(made, steps):
    """Integers as a device may pass them: typical ones, and for some steps the ends of int16, and zeros."""
    network, random = made.network, np.random.default_rng(3)
    if network.tokens:
        return random.integers(network.input_size + 3, size=steps)
    q = random.normal(0, 9000, (steps, network.input_size)).clip(-32768, 32767).astype(np.int64)
    q[steps // 2 : steps // 2 + 40] = 32767
    q[-60:-40], q[-40:-20] = -32768, 0
    if network.vectors is not None:
        q[:, -1] = random.integers(-1, 5, steps)
    return q


def twin(made, q):
    """The outputs of all steps by the twin, and the states after them."""
    states, rows = made.integers.first_states(), []
    for row in q:
        y, states = made.integers.step(row, states)
        rows.append(y)
    return np.stack(rows), states


def agree(made, steps=300):
    """Assert that the C, which compilers watch for undefined behavior, has the bits of the twin."""
    compiler = COMPILERS[steps % len(COMPILERS)]
    compiled = Compiled(made, compiler, UNDEFINED if compiler == "gcc" else ("-O2",))
    q = raw_inputs(made, steps)
    expected, states = twin(made, q)
    assert np.array_equal(compiled.steps(q), expected)
    assert np.array_equal(compiled.run(q), expected[-1] if made.network.last else expected)
    assert all(np.abs(h).max(initial=0) < 2**31 for h in states[: len(made.network.layers)])


@compiled_here
@pytest.mark.sampled(6)
@pytest.mark.parametrize("numbers", ["int8", "int16"])
@pytest.mark.parametrize("case", CASES)
def test_the_c_and_its_twin_agree_to_the_bit(case, numbers, tmp_path):
    agree(exported(CASES[case](), numbers, tmp_path), 300 + len(case))


@compiled_here
@pytest.mark.sampled(4)
@pytest.mark.parametrize("numbers", ["int8", "int16"])
@pytest.mark.parametrize("case", OTHERS)
def test_so_do_other_forms_and_other_networks(case, numbers, tmp_path):
    make, form = OTHERS[case]
    agree(exported(make(), numbers, tmp_path, form))


@compiled_here
@pytest.mark.sampled(5)
@pytest.mark.parametrize("seed", range(40))
def test_so_do_networks_of_random_sizes(seed, tmp_path):
    agree(exported(random_blocks(seed), ("int8", "int16")[seed % 2], tmp_path), 300 + seed)


@compiled_here
@pytest.mark.sampled(3)
@pytest.mark.parametrize("compiler", COMPILERS)
@pytest.mark.parametrize("case", CASES)
def test_the_self_test_passes_under_sanitizers_without_a_warning(case, compiler, tmp_path):
    exported(CASES[case](), "int8", tmp_path)
    selftest_passes(tmp_path, compiler=compiler)


@pytest.mark.sampled(8)
@pytest.mark.parametrize(("numbers", "most"), [("int16", 0.002), ("int8", 0.08)])
@pytest.mark.parametrize("case", CASES)
def test_integers_follow_the_network(case, numbers, most, tmp_path):
    model = CASES[case]()
    made = exported(model, numbers, tmp_path)
    torch.manual_seed(0)
    x = inputs_of(model, 60)  # the first sequence of the calibration
    expected = every_step(model, x)
    found = twin(made, made.integers.quantize(x.numpy()))[0] * made.integers.output_scale
    assert np.sqrt(np.square(found - expected).mean()) < most * np.abs(expected).max()


def test_rotations_neither_drift_nor_stay_where_they_should_decay():
    """As int16, a radius of .9999 would leave a state at 5000 units forever."""
    random, steps = np.random.default_rng(0), 100_000
    angle = random.uniform(0, np.pi, 8)
    h = np.rint(random.uniform(-1, 1, 16) * (32767 << fixed_blocks.HELD_PLACES)).astype(np.int64)
    for radius in (1.0, 0.9999):
        c, s = radius * np.cos(angle), radius * np.sin(angle)
        turns = fixed_blocks.FixedRotations.of(Base(np.concatenate([c, c]), np.concatenate([-s, s])))
        now = h
        for _ in range(steps):
            now = turns(now)
        pairs, begun = (np.hypot(*np.split(states.astype(np.float64), 2)) for states in (now, h))
        expected = (h[:8] + 1j * h[8:]) * radius**steps * np.exp(1j * steps * angle)
        rounding = 2**0.5 * min(steps, 1 / (1 - radius + 1e-30)) + 2**-30 * steps * begun.max()
        assert np.abs(now[:8] + 1j * now[8:] - expected).max() < rounding
        assert np.abs(pairs - begun * radius**steps).max() < 1e-3 * begun.max()


@pytest.mark.parametrize("norm", ["layer", "rms"])
@pytest.mark.parametrize("size", [1, 2, 3, 16, 127, 2048])
def test_a_normalization_is_off_by_at_most_one(norm, size):
    random, unit = np.random.default_rng(size), 2.0**-20
    block = FoldedBlock(norm, 1e-5, "gelu", np.zeros((size, 1)), None)
    made = fixed_blocks.FixedNorm.of(block, size, unit)
    largest = fixed_blocks.FEATURES
    rows = [random.integers(-(2**places), 2**places + 1, size) for places in (1, 5, 12, 20, 24)]
    rows += [
        np.zeros(size),
        np.full(size, largest),
        np.full(size, -largest),
        np.where(np.arange(size) % 2, 1, -1) * largest,
    ]
    u = np.stack(rows).astype(np.int64)
    found = made(u)
    assert np.abs(found).max() <= 32767
    expected = block.normalized(u * unit) / np.sqrt(size) * 32767
    mean = 1.0 if norm == "layer" else 0.0  # the mean is rounded to a unit
    room = mean * 32767 / np.sqrt(np.square(u - mean * u.mean(-1, keepdims=True)).sum(-1, keepdims=True) + made.eps)
    assert (np.abs(found - expected) <= 1 + room).all()


def test_sigmoid_and_gelu_are_off_by_what_is_stated():
    z = np.concatenate([np.arange(-(2**19), 2**19, 7), [-(2**29), 2**29, 0, 1, -1]])
    exact = torch.from_numpy(z / 2.0**fixed_blocks.GATE_PLACES).sigmoid().numpy()
    assert np.abs(fixed_blocks.sigmoid(z) / fixed_blocks.SIGMOID_ONE - exact).max() < 7e-5
    exact = nn.functional.gelu(torch.from_numpy(z / 2.0**fixed_blocks.GELU_PLACES)).numpy()
    unit = 2.0**-fixed_blocks.GELU_PLACES
    assert np.abs(fixed_blocks.gelu(z) * unit - exact)[:-5].max() < 1.1e-4 + unit
    assert fixed_blocks.gelu(np.array([0, 2**29, -(2**29)])).tolist() == [0, 2**29, 0]


@compiled_here
def test_a_mean_of_many_steps_is_exact(tmp_path):
    """The sum has 64 bits: one of 32 would overflow after 256 steps."""
    core = nn.RNN(1, 1, nonlinearity="relu", bias=False)
    head = nn.Linear(1, 1, bias=False)
    with torch.no_grad():
        core.weight_ih_l0.fill_(1)
        core.weight_hh_l0.zero_()
        head.weight.fill_(1)
    model = SequenceModel(core, head, pool="mean").eval()
    made = to_c(model, tmp_path, numbers="int16", calibration=torch.ones(1, 4, 1), margin=1.0)
    q = np.tile(np.array([[32767], [16384]]), (20_000, 1))
    found = Compiled(made).run(q)[0] * made.integers.output_scale
    assert abs(found - 0.75) < 2**-14


@pytest.mark.parametrize("case", ["lags", "default", "both, perceptron"])
def test_inputs_may_grow_to_several_times_the_calibrated_ones(case, tmp_path):
    """A series with a trend leaves the range of its past; its forecast was cut."""
    model = CASES[case]()
    made = exported(model, "int16", tmp_path)
    torch.manual_seed(0)
    x = 3 * inputs_of(model, 60)
    expected = every_step(model, x)
    found = twin(made, made.integers.quantize(x.numpy()))[0] * made.integers.output_scale
    assert np.sqrt(np.square(found - expected).mean()) < 0.005 * np.abs(expected).max()


@pytest.mark.parametrize("numbers", ["int8", "int16"])
def test_a_state_beyond_the_calibrated_range_does_no_harm_later(numbers, tmp_path):
    torch.manual_seed(0)
    model = made_of(blocks(2, 6, 8, depth=2, decay=True, radii=(0.3, 0.6)))
    made = exported(model, numbers, tmp_path)
    x = inputs_of(model, 80)
    beyond = x.clone()
    beyond[10:15] *= 25
    ends = [twin(made, made.integers.quantize(steps.numpy()))[0][-1] for steps in (x, beyond)]
    assert np.abs(ends[0] - ends[1]).max() * made.integers.output_scale < 1e-3


@compiled_here
@pytest.mark.sampled(4)
@pytest.mark.parametrize("case", CASES)
def test_ram_and_flash_are_those_of_the_c(case, tmp_path):
    made = exported(CASES[case](), "int8", tmp_path)
    program = tmp_path / "size.c"
    program.write_text(
        '#include <stdio.h>\n#include "network.h"\n'
        'int main(void) { printf("%u", (unsigned)sizeof(network_state)); return 0; }\n'
    )
    command(COMPILERS[0], *STRICT, program, "-o", tmp_path / "size")
    assert int(subprocess.check_output([tmp_path / "size"])) == made.sizes.ram
    source = (tmp_path / "network.c").read_text()
    tables = re.findall(r"static const (\w+) \w+\[(\d+)\] = \{", source)
    sizes = {"int8_t": 1, "int16_t": 2, "int32_t": 4, "float": 4}
    assert made.sizes.weights == sum(sizes[kind] * int(count) for kind, count in tables)
    assert not made.sizes.calls
    command(COMPILERS[0], "-std=c99", "-O2", "-c", tmp_path / "network.c", "-o", tmp_path / "network.o")
    symbols = set(command("nm", "-u", tmp_path / "network.o").split()) - {"U", "_GLOBAL_OFFSET_TABLE_"}
    assert symbols <= {"memset", "memcpy", "memmove"}


REFUSED = {
    "a bound": (
        lambda x: {"input_range": (-1.0, 1.0), "steps": 10},
        "calibration for OrthogonalBlocks, whose bounds are too loose",
    ),
    "a bound of vectors": (
        lambda x: {"input_range": (-1.0, 1.0), "steps": 10, "model": OTHERS["series"][0]()},
        "calibration for a network with vectors of series",
    ),
    "silence": (lambda x: {"calibration": 1e-12 * x}, "none far below the eps of the normalization"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_integers_cannot_hold_is_refused_before_anything_is_written(case, tmp_path):
    options, message = REFUSED[case]
    options = options(torch.randn(2, 9, 3))
    model = build("blocks", 3, 2, hidden_size=4).eval()
    with torch.no_grad():
        for name, parameter in model.core.named_parameters():
            if "bias" in name:
                parameter.zero_()
    with pytest.raises(ArgumentError, match=message):
        to_c(options.pop("model", model), tmp_path / "out", numbers="int8", **options)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("make", [CASES["default"], OTHERS["lags"][0], OTHERS["perceptron"][0], OTHERS["series"][0]])
def test_nothing_is_said_of_bounds_that_there_are_not(make, tmp_path):
    made = exported(make(), "int16", tmp_path)
    assert "rounding has moved" not in (tmp_path / "network.h").read_text()
    with pytest.raises(ArgumentError, match="which the bounds do not cover"):
        rounding_bounds(made.integers, [1])


@pytest.mark.parametrize("case", ["default", "both, perceptron", "lags", "series"])
def test_fine_tuning_with_rounded_weights_is_refused_by_name(case):
    with pytest.raises(ArgumentError, match=r"for fine-tuning with rounded weights, but got OrthogonalBlocks"):
        rounded(CASES[case](), "int8")
