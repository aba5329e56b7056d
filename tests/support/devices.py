"""Generated networks on emulated devices: Cortex-M4 under qemu-system-arm, AArch64 under qemu-aarch64."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import NamedTuple

import pytest

from .compiled_c import STRICT, command

HERE = Path(__file__).parent
GCC_M4 = "arm-none-eabi-gcc"
M4 = ("-mcpu=cortex-m4", "-mthumb", "-mfloat-abi=hard", "-mfpu=fpv4-sp-d16")
_TICKS = 1.6  # of SysTick per instruction, with -icount shift=6 at 25 MHz


class OnM4(NamedTuple):
    """selftest: what it returned. code: bytes of the functions, without constants. instructions: of a step, by input."""

    selftest: int
    code: int
    instructions: list[float]


def needs(*tools: str):
    """A mark that skips a test without these programs."""
    missing = [tool for tool in tools if shutil.which(tool) is None]
    return pytest.mark.skipif(bool(missing), reason=f"needs {', '.join(missing)}; see `make test-devices`")


def on_cortex_m4(folder: Path, integers: bool = False, *options: str) -> OnM4:
    """Compile `network` in a folder for a Cortex-M4, with more options of gcc, and run its self-test and some steps."""
    types = ("int32_t", "int16_t") if integers else ("float", "float")
    objects = []
    for source in ("network.c", "network_selftest.c"):
        objects.append(folder / source.replace(".c", ".m4.o"))
        command(GCC_M4, *STRICT, "-O2", *options, *M4, "-ffreestanding", "-c", folder / source, "-o", objects[-1])
    return run_on_cortex_m4(folder, objects, *types)


def run_on_cortex_m4(folder: Path, objects: list[Path], wide: str, number: str) -> OnM4:
    """Run the self-test and some steps of `network`, compiled already. wide, number: Its C types of outputs and inputs."""
    defined = (f"-DNETWORK_WIDE={wide}", f"-DNETWORK_NUMBER={number}", f"-I{folder}")
    program = folder / "network.elf"
    link = ("-nostartfiles", "-T", HERE / "cortex_m4.ld", "-lm", "-lc", "-lgcc")
    command(GCC_M4, "-std=gnu99", "-O2", *M4, *defined, HERE / "cortex_m4.c", *objects, *link, "-o", program)
    machine = ("-M", "mps2-an386", "-nographic", "-semihosting-config", "enable=on,target=native", "-icount", "shift=6")
    out = command("timeout", "120", "qemu-system-arm", *machine, "-kernel", program)
    empty, steps = (list(map(int, re.findall(rf"{word} (-?\d+)", out))) for word in ("empty", "steps"))
    sections = command("arm-none-eabi-size", "-A", objects[0])
    code = sum(int(size) for size in re.findall(r"^\.text\S*\s+(\d+)", sections, re.MULTILINE))
    counts = [(many - none) / 16 / _TICKS for many, none in zip(steps, empty)]
    return OnM4(int(re.findall(r"selftest (-?\d+)", out)[0]), code, counts)


def on_aarch64(folder: Path) -> None:
    """Compile `network` in a folder for AArch64 and run its self-test."""
    sources, program = (folder / "network.c", folder / "network_selftest.c"), folder / "network.aarch64"
    command("aarch64-linux-gnu-gcc", *STRICT, "-O2", "-static", "-DORTHORNN_MAIN", *sources, "-o", program, "-lm")
    emulator = next(tool for tool in ("qemu-aarch64", "qemu-aarch64-static") if shutil.which(tool))
    command(emulator, program)
