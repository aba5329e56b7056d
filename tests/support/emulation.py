"""chain.cu on a CPU: compiled by the host's C++ compiler against emulation.hpp, in place of NVRTC and the driver."""

from __future__ import annotations

import ctypes
import pathlib
import shutil
import subprocess
from collections.abc import Mapping

import torch

from orthornn.kernels.backends.cuda import nvrtc

HERE = pathlib.Path(__file__).parent
COMPILER = shutil.which("g++") or shutil.which("clang++")


class Emulated:
    """Stands for nvrtc.Module; `seed` draws the order in which threads run between two barriers."""

    def __init__(self, macros: Mapping[str, int], shared: int, folder: pathlib.Path, seed: int) -> None:
        name = "-".join(str(int(value)) for _, value in sorted(macros.items()))
        library = folder / f"{name}.so"
        if not library.exists():
            source = pathlib.Path(nvrtc.__file__).parent / nvrtc.SOURCE
            (folder / "chain.hpp").write_text(source.read_text())
            options = ["-std=c++20", "-O1", "-shared", "-fPIC", "-w", '-DCHAIN="chain.hpp"', f"-I{folder}"]
            defines = [f"-D{key}={int(value)}" for key, value in macros.items()]
            output = ["-x", "c++", str(HERE / "emulation.hpp"), "-o", str(library)]
            subprocess.run([COMPILER, *options, *defines, *output], check=True)
        self._launch, self._shared, self._seed = ctypes.CDLL(str(library)).launch, shared, seed

    def launch(self, name: str, blocks: int, arguments: nvrtc.Arguments) -> None:
        self._launch(int(name == "forward"), blocks, self._shared, self._seed, ctypes.byref(arguments))


def loader(folder: pathlib.Path, seed: int = 0):
    """What takes the place of nvrtc.load."""
    return lambda macros, shared, device=torch.device("cpu"): Emulated(macros, shared, folder, seed)  # noqa: B008
