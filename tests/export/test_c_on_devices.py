"""Generated networks on an emulated Cortex-M4 and AArch64."""

from __future__ import annotations

import shutil

import pytest
import torch

from orthornn import Householder, OrthogonalBlocks, OrthogonalRNN, Unconstrained
from orthornn.export import to_c
from support.devices import needs, on_aarch64, on_cortex_m4

pytestmark = pytest.mark.devices
NETWORKS = {
    "reflections": lambda: OrthogonalRNN(3, 64, parametrization=Householder(reflections=8, base="rotations")),
    "dense": lambda: OrthogonalRNN(3, 24, 2, nonlinearity="tanh"),
    "complex": lambda: OrthogonalRNN(2, 11, parametrization=Householder(reflections=2, field="complex")),
    "linear": lambda: OrthogonalRNN(2, 33, nonlinearity="identity"),
    "blocks": lambda: OrthogonalBlocks(3, 16, depth=2).eval(),
    "pairs": lambda: OrthogonalRNN(2, 33, nonlinearity="oplu"),
}


def made(name):
    torch.manual_seed(0)
    return NETWORKS[name]()


@needs("arm-none-eabi-gcc", "qemu-system-arm")
@pytest.mark.parametrize("name", NETWORKS)
def test_float32_on_a_cortex_m4(name, tmp_path):
    cost = to_c(made(name), tmp_path).sizes
    found = on_cortex_m4(tmp_path)
    assert found.selftest == 0
    print(f"\n{name}: {cost}, code {found.code} bytes, {max(found.instructions):.0f} instructions per step")
    assert cost.multiply_adds < max(found.instructions) < 20 * cost.multiply_adds + 5000


SHAPES = {  # rows and columns that four does not divide, each rest once
    "33": lambda: OrthogonalRNN(1, 33, 2, parametrization=Householder(reflections=3), nonlinearity="relu"),
    "dense": lambda: OrthogonalRNN(7, 22, 2, nonlinearity="leaky_relu"),
    "pairs": lambda: OrthogonalRNN(5, 13, nonlinearity="oplu"),
    "blocks": lambda: OrthogonalBlocks(3, 11, depth=2).eval(),
    "reflections": lambda: OrthogonalRNN(2, 96, parametrization=Householder(reflections=16), nonlinearity="relu"),
    "96": lambda: OrthogonalRNN(96, 96, parametrization=Unconstrained(), nonlinearity="relu"),
}


@needs("arm-none-eabi-gcc", "qemu-system-arm")
@pytest.mark.parametrize("numbers", ["int8", "int16"])
@pytest.mark.parametrize("name", SHAPES)
def test_integers_on_a_cortex_m4_are_those_of_the_twin_with_and_without_dual_products(name, numbers, tmp_path):
    torch.manual_seed(1)
    network = SHAPES[name]()
    calibration = torch.randn(20, 3, network.input_size)
    cost = to_c(network, tmp_path, numbers=numbers, calibration=calibration).sizes
    dual, portable = on_cortex_m4(tmp_path, integers=True), on_cortex_m4(tmp_path, True, "-DORTHORNN_PORTABLE")
    assert dual.selftest == portable.selftest == 0
    counts = [max(found.instructions) for found in (dual, portable)]
    print(f"\n{name}, {numbers}: {cost.multiply_adds} multiply-adds, {counts[0]:.0f} of {counts[1]:.0f} instructions")
    assert max(dual.instructions) - min(dual.instructions) < 0.01 * counts[0]  # whatever the input
    assert counts[0] < counts[1]
    if name == "96":
        assert counts[0] < 2 * cost.multiply_adds


@needs("aarch64-linux-gnu-gcc")
@pytest.mark.skipif(not (shutil.which("qemu-aarch64") or shutil.which("qemu-aarch64-static")), reason="needs qemu-user")
@pytest.mark.parametrize("name", NETWORKS)
def test_float32_on_aarch64(name, tmp_path):
    to_c(made(name), tmp_path)
    on_aarch64(tmp_path)
