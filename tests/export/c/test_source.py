"""What the generated functions besides the step return, and what the self-test finds."""

from __future__ import annotations

import ctypes
import re
import subprocess

import numpy as np
import pytest
import torch
from torch import nn

from orthornn import OrthogonalRNN
from orthornn.errors import OrthornnWarning
from orthornn.export import to_c
from orthornn.learn.systems import SequenceModel
from support.compiled_c import COMPILERS, Compiled, command, selftest_passes

pytestmark = pytest.mark.skipif(not COMPILERS, reason="needs a C compiler")


def run_of(**description):
    model = SequenceModel(OrthogonalRNN(1, 4, nonlinearity="tanh"), nn.Linear(4, 3), output="all").eval()
    return type("Run", (), {"model": model, "description": {"input": "real", "output": "all", **description}})()


def test_inputs_are_rounded_to_the_nearest_integer_on_both_sides_of_zero(tmp_path):
    """At a scale of 1; halves go away from zero, and what no int16 holds, NaN included, to an end. So does the twin."""
    made = to_c(run_of(says="values"), tmp_path, numbers="int16", calibration=torch.tensor([[[32767.0]]]))
    assert made.integers.input_scale.tolist() == [1.0]
    convert = Compiled(made).library.network_input
    convert.argtypes, convert.restype = (ctypes.c_int, ctypes.c_float), ctypes.c_int16
    rounded = {0.0: 0, 0.4: 0, -0.4: 0, 0.5: 1, -0.5: -1, 2.4: 2, -2.4: -2, 2.5: 3, -2.5: -3, 2.6: 3, -2.6: -3}
    ends = {32766.6: 32767, 32767.6: 32767, 4e4: 32767, 1e38: 32767, float("inf"): 32767}
    rounded |= ends | {-value: -end for value, end in ends.items()} | {float("nan"): -32767}
    for value, expected in rounded.items():
        assert convert(0, value) == expected, value
        assert made.integers.quantize(np.array([value])).tolist() == [expected], value


def test_inputs_far_from_zero_lose_no_digits(tmp_path):
    """A mean of 50000 deviations, as of a pressure in pascals: x scale + offset would lose three digits."""
    run = run_of(says="values", scale=[0.01], offset=[-50000.0])
    with pytest.warns(OrthornnWarning, match="0.006 standard deviations"):
        made = to_c(run, tmp_path)
    selftest_passes(tmp_path)
    x = np.random.default_rng(0).normal(5e6, 100, (30, 1)).astype(np.float32)
    compiled = Compiled(made)
    states, expected = made.network.first_states(), []
    for row in x:
        y, states = made.network.step(row.astype(np.float64), states)
        expected.append(y)
    np.testing.assert_allclose(compiled.run(x), np.stack(expected), atol=2e-6)


def test_the_program_says_which_step_differs(tmp_path):
    to_c(run_of(says="values"), tmp_path)
    file = tmp_path / "network_selftest.c"
    body = re.search(r"outputs\[\d+\] = {\n(.*?)\n};", file.read_text(), re.DOTALL)[1]
    file.write_text(file.read_text().replace(body, body.replace(",", "+ 1,", 5)))
    program = tmp_path / "program"
    command("gcc", "-DORTHORNN_MAIN", tmp_path / "network.c", file, "-o", program, "-lm")
    done = subprocess.run([program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert re.fullmatch(r"network_selftest: step 1 of \d+ has other outputs than the exported network\n", done.stderr)


def test_of_equal_scores_the_first_class_wins(tmp_path):
    compiled = Compiled(to_c(run_of(says="classes", labels=["a", "b", "c"]), tmp_path))
    for scores in ([1, 3, 3], [2, 2, 2], [0, -1, 0], [-3, -2, -1], [float("-inf"), 1, 1]):
        y = np.array(scores, np.float32)
        assert compiled.call("best", y) == int(y.argmax())


@pytest.mark.sampled(2)
@pytest.mark.parametrize("numbers", ["float32", "int16"])
@pytest.mark.parametrize("which", [0, 1, 2])
def test_the_self_test_finds_an_output_that_is_too_large_or_too_small(which, numbers, tmp_path):
    """Of whichever output, in whichever step: here all of one output, then a single one in the last step."""
    options = {} if numbers == "float32" else {"numbers": numbers, "calibration": torch.randn(2, 20, 1)}
    to_c(run_of(says="values"), tmp_path, **options)
    selftest_passes(tmp_path, flags=("-O0",))
    tables = {tmp_path / "network.c": "read_d", tmp_path / "network_selftest.c": "outputs"}
    for file, table in tables.items():
        good = file.read_text()
        body = re.search(rf"{table}\[\d+\] = {{\n(.*?)\n}};", good, re.DOTALL)
        entries = [entry.strip() for entry in body[1].split(",")]
        at = which if table == "read_d" else len(entries) - 3 + which
        for change in ("+ 1", "- 1"):
            changed = [f"{entry} {change}" if k == at else entry for k, entry in enumerate(entries)]
            file.write_text(good[: body.start(1)] + ", ".join(changed) + good[body.end(1) :])
            with pytest.raises(AssertionError):
                selftest_passes(tmp_path, flags=("-O0",))
        file.write_text(good)
