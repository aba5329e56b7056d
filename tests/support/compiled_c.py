"""Generated C, compiled and called: by ctypes in this process, or as a program."""

from __future__ import annotations

import ctypes
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np

STRICT = ("-std=c99", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-Wconversion", "-Wsign-conversion")
COMPILERS = [compiler for compiler in ("gcc", "clang") if shutil.which(compiler)]
SANITIZED = ("-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")


def command(*words: object) -> str:
    """What a command prints, errors included; the test fails with all of its output if it does."""
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(map(str, words))}\n{done.stdout}{done.stderr}"
    return done.stdout + done.stderr


def selftest_passes(
    folder: Path, name: str = "network", compiler: str = "gcc", flags: tuple[str, ...] = SANITIZED
) -> None:
    """Compile the self-test as a program and run it."""
    program = folder / f"check-{compiler}"
    sources = (folder / f"{name}.c", folder / f"{name}_selftest.c")
    command(compiler, *STRICT, *flags, "-DORTHORNN_MAIN", *sources, "-o", program, "-lm")
    said = command(program)
    assert re.fullmatch(
        rf"{name}_selftest: passed, (1 step has|\d+ steps have) the outputs of the exported network\n", said
    )


class Compiled:
    """The functions of a generated network, in this process."""

    def __init__(self, made, compiler: str = "gcc", flags: tuple[str, ...] = ("-O2",)) -> None:
        source = next(path for path in made.files if path.suffix == ".c" and "selftest" not in path.name)
        self.name, folder = source.stem, source.parent
        shared = folder / f"{self.name}-{compiler}.so"
        command(compiler, *STRICT, *flags, "-shared", "-fPIC", source, "-o", shared, "-lm")
        self.library = ctypes.CDLL(str(shared))
        self.network, self.sizes = made.network, made.sizes
        integers = getattr(made, "integers", None) is not None
        self.x_type = np.uint16 if self.network.tokens else np.int16 if integers else np.float32
        self.y_type = np.int32 if integers else np.float32

    def call(self, function: str, *arguments):
        """Call a function; arrays are given by their addresses."""
        given = [
            a.ctypes.data_as(ctypes.c_void_p)
            if isinstance(a, np.ndarray)
            else ctypes.c_size_t(a)
            if function == "run"
            else a
            for a in arguments
        ]
        return getattr(self.library, f"{self.name}_{function}")(*given)

    def state(self) -> np.ndarray:
        """A state as it is before the first step, as bytes."""
        state = np.full(self.sizes.ram, 0xFF, np.uint8)
        self.call("init", state)
        return state

    def run(self, x, state=None) -> np.ndarray:
        """The outputs of all steps, (T, O), or (O,) of a network that is read after the last."""
        x = np.ascontiguousarray(x, self.x_type)
        count, outputs = len(x), self.network.output_size
        y = np.zeros((1 if self.network.last else count, outputs), self.y_type)
        self.call("run", self.state() if state is None else state, x, count, y)
        return y[0] if self.network.last else y

    def steps(self, x) -> np.ndarray:
        """The outputs of all steps, by as many calls of step."""
        x = np.ascontiguousarray(x, self.x_type)
        state, y = self.state(), np.zeros((len(x), self.network.output_size), self.y_type)
        for row, out in zip(x, y):
            self.call("step", state, ctypes.c_uint16(int(row)) if self.network.tokens else row, out)
        return y
