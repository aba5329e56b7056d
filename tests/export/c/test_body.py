"""Layers whose units come in pairs, of every kind of input: the C against the module."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from orthornn import Householder, OrthogonalRNN
from orthornn.export import to_c
from orthornn.learn.systems import SequenceModel
from support.compiled_c import COMPILERS, SANITIZED, STRICT, Compiled, command
from support.tolerances import tolerance

pytestmark = pytest.mark.skipif(not COMPILERS, reason="needs a C compiler")
PAIRS = {
    "oplu": lambda inputs: OrthogonalRNN(inputs, 7, 2, nonlinearity="oplu", learn_h0=True),
    "complex": lambda inputs: OrthogonalRNN(
        inputs, 5, 2, parametrization=Householder(reflections=2, field="complex"), learn_h0=True
    ),
    "linear oplu": lambda inputs: OrthogonalRNN(
        inputs, 5, parametrization=Householder(reflections=2), nonlinearity="oplu", linear_transition=True
    ),
}


@pytest.mark.sampled(5)
@pytest.mark.parametrize("numbers", ["float32", "int16"])
@pytest.mark.parametrize("tokens", [False, True], ids=["one number", "tokens"])
@pytest.mark.parametrize("case", PAIRS)
def test_pairs_of_units_have_their_own_input_weights(case, tokens, numbers, tmp_path):
    """And two layers their own initial states."""
    torch.manual_seed(0)
    core = PAIRS[case](4 if tokens else 1)
    width = core.hidden_size * (2 if core.is_complex else 1)
    model = SequenceModel(core, nn.Linear(width, 3), output="all", token_classes=4 if tokens else None).eval()
    with torch.no_grad():
        for name, parameter in core.named_parameters():
            if name.startswith("bias"):
                parameter.uniform_(-0.3, -0.1)
            elif name == "h0":
                parameter.mul_(3)
    x = torch.randint(4, (50,)) if tokens else torch.randn(50, 1)
    options = {} if numbers == "float32" else {"calibration": x[None], "numbers": numbers}
    made = to_c(model, tmp_path, **options)
    with torch.no_grad():
        expected = model(x[:, None])[:, 0].numpy()
    compiled, bound = Compiled(made), tolerance(torch.float32, 1000) * (1 + np.abs(expected).max())
    if made.integers is None:
        assert np.abs(compiled.run(x.numpy()) - expected).max() < bound
        return
    found = compiled.run(made.integers.quantize(x.numpy()))
    assert np.array_equal(found, made.integers.run(x.numpy()[None])[0])
    # the order of a pair may change by rounding, which puts later steps off: the first ones are the network's
    assert np.abs(found * made.integers.output_scale - expected)[:8].max() < 0.02 * np.abs(expected).max()


MAIN = """
#include "network.h"
int main(void)
{
    static network_state state;
    TYPE y[NETWORK_OUTPUTS];
    const uint16_t tokens[] = {0, NETWORK_INPUTS - 1, NETWORK_INPUTS, NETWORK_INPUTS + 1, 65535};
    network_init(&state);
    network_run(&state, tokens, sizeof(tokens) / sizeof(tokens[0]), y);
    return 0;
}
"""


@pytest.mark.parametrize("numbers", ["float32", "int8"])
def test_a_token_that_is_none_reads_no_weight(numbers, tmp_path):
    """Under the address sanitizer: what is behind a table may be zero, and the output right by accident."""
    model = SequenceModel(OrthogonalRNN(5, 4), nn.Linear(4, 2), output="last", token_classes=5).eval()
    options = {} if numbers == "float32" else {"numbers": numbers, "calibration": torch.randint(5, (2, 9))}
    to_c(model, tmp_path, **options)
    (tmp_path / "main.c").write_text(MAIN.replace("TYPE", "float" if numbers == "float32" else "int32_t"))
    sources = (tmp_path / "main.c", tmp_path / "network.c")
    command(COMPILERS[0], *STRICT, *SANITIZED, *sources, "-o", tmp_path / "program", "-lm")
    command(tmp_path / "program")
