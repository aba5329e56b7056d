"""Generated networks on an emulated Cortex-M4 and AArch64."""

from __future__ import annotations

import shutil

import pytest
import torch

from orthornn import Householder, OrthogonalBlocks, OrthogonalRNN
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


@needs("aarch64-linux-gnu-gcc")
@pytest.mark.skipif(not (shutil.which("qemu-aarch64") or shutil.which("qemu-aarch64-static")), reason="needs qemu-user")
@pytest.mark.parametrize("name", NETWORKS)
def test_float32_on_aarch64(name, tmp_path):
    to_c(made(name), tmp_path)
    on_aarch64(tmp_path)
