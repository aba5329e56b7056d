"""The CUDA C++ kernels on a CPU: compiled by the host's C++ compiler against emulation.hpp, in place of NVRTC and the
driver.
"""

from __future__ import annotations

import ctypes
import pathlib
import shutil
import subprocess
from collections.abc import Mapping

from orthornn.kernels.backends.cuda import nvrtc

HERE = pathlib.Path(__file__).parent
COMPILER = shutil.which("g++") or shutil.which("clang++")


class Emulated:
    """Stands for nvrtc.Module; `seed` draws the order in which warps and threads run between two barriers."""

    def __init__(
        self, program: nvrtc.Program, macros: Mapping[str, int], shared: int, folder: pathlib.Path, seed: int
    ) -> None:
        name = "-".join([program.source, *(f"{key}{int(value)}" for key, value in sorted(macros.items()))])
        library = folder / f"{name}.so"
        if not library.exists():
            source = pathlib.Path(nvrtc.__file__).parent
            (folder / "device.cuh").write_text("#pragma once\n")  # emulation.hpp has what it is for
            for file in {program.source, *nvrtc.HEADERS} - {"device.cuh"}:
                (folder / file).write_text((source / file).read_text())
            options = ["-std=c++20", "-O1", "-shared", "-fPIC", "-w", f'-DSOURCE="{program.source}"', f"-I{folder}"]
            options += [f"-DKERNEL{k}={kernel}" for k, kernel in enumerate((program.kernels * 2)[:2])]
            defines = [f"-D{key}={int(value)}" for key, value in macros.items()]
            output = ["-x", "c++", str(HERE / "emulation.hpp"), "-o", str(library)]
            subprocess.run([COMPILER, *options, *defines, *output], check=True)
        self._launch, self._shared, self._seed = ctypes.CDLL(str(library)).launch, shared, seed
        self._kernels = program.kernels

    def launch(self, name: str, blocks: tuple[int, int, int], arguments: nvrtc.Arguments) -> None:
        grid = (ctypes.c_int * 3)(*blocks)
        self._launch(self._kernels.index(name), grid, self._shared, self._seed, ctypes.byref(arguments))


def loader(folder: pathlib.Path, seed: int = 0):
    """What takes the place of nvrtc.load."""
    return lambda program, macros, shared, device=None: Emulated(program, macros, shared, folder, seed)
