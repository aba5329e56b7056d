"""chain.cu compiled at run time by NVRTC, through ctypes: neither a CUDA toolkit nor torch's headers are needed.

torch's CUDA builds bring libnvrtc; the driver is libcuda. A module is compiled once a process for each set of macros.
"""

from __future__ import annotations

import ctypes
import functools
import importlib.resources
import pathlib
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from ....errors import BackendError

SOURCE = "chain.cu"
PRELUDE = "#define SHARED_MEMORY(type, name) extern __shared__ type name[]\n"
_MAX_DYNAMIC_SHARED = 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES


class Arguments(ctypes.Structure):
    """struct Arguments of chain.cu."""

    _fields_ = [
        *(
            (name, ctypes.c_void_p)
            for name in (
                *("x", "h0", "saved_rows", "first", "second", "c", "s", "parameter"),
                *("states", "saved", "h_tilde", "delta", "C_tilde", "grad_h0", "grad_parameter", "offsets", "lengths"),
            )
        ),
        ("steps", ctypes.c_int),
        ("batch", ctypes.c_int),
        ("slope", ctypes.c_float),
        ("clip", ctypes.c_float),
    ]

    @classmethod
    def of(cls, **values: Tensor | float | None) -> Arguments:
        """Tensors by their addresses; they must be contiguous and outlive the launch in the stream's order."""
        return cls(**{k: v.data_ptr() if isinstance(v, Tensor) else (v or 0) for k, v in values.items()})


def source() -> str:
    """The text of chain.cu."""
    return (importlib.resources.files(__package__) / SOURCE).read_text()


@functools.cache
def _library() -> ctypes.CDLL | None:
    if not torch.cuda.is_available() or torch.version.cuda is None:
        return None
    major = torch.version.cuda.split(".")[0]
    name = f"libnvrtc.so.{major}"
    beside = pathlib.Path(torch.__file__).parent.parent / "nvidia"
    for candidate in (name, *map(str, sorted(beside.glob(f"*/lib/{name}"))), f"/usr/local/cuda/lib64/{name}"):
        try:
            return ctypes.CDLL(candidate)
        except OSError:
            continue
    return None


def missing() -> str | None:
    """Why the kernels cannot be compiled here, or None if they can."""
    if not torch.cuda.is_available():
        return "torch sees no CUDA device"
    if torch.version.cuda is None:
        return "this torch is not a CUDA build"
    if _library() is None:
        return f"libnvrtc of CUDA {torch.version.cuda} was not found; it comes with torch's CUDA wheels"
    return None


def _check(status: int, what: str) -> None:
    if status:
        raise BackendError(f"{what} failed with CUDA error {status}.")


def compile_source(macros: Mapping[str, int], capability: tuple[int, int]) -> bytes:
    """Machine code (cubin) of chain.cu for one GPU architecture."""
    library = _library()
    if library is None:
        raise BackendError(f"chain.cu cannot be compiled: {missing()}.")
    program = ctypes.c_void_p()
    text = (PRELUDE + source()).encode()
    _check(library.nvrtcCreateProgram(ctypes.byref(program), text, SOURCE.encode(), 0, None, None), "nvrtc")
    options = [
        f"-arch=sm_{capability[0]}{capability[1]}",
        "-std=c++17",
        *(f"-D{k}={int(v)}" for k, v in macros.items()),
    ]
    status = library.nvrtcCompileProgram(
        program, len(options), (ctypes.c_char_p * len(options))(*(option.encode() for option in options))
    )
    if status:
        size = ctypes.c_size_t()
        library.nvrtcGetProgramLogSize(program, ctypes.byref(size))
        log = ctypes.create_string_buffer(size.value)
        library.nvrtcGetProgramLog(program, log)
        raise BackendError(f"chain.cu did not compile with {dict(macros)}: {log.value.decode()}")
    size = ctypes.c_size_t()
    _check(library.nvrtcGetCUBINSize(program, ctypes.byref(size)), "nvrtcGetCUBINSize")
    code = ctypes.create_string_buffer(size.value)
    _check(library.nvrtcGetCUBIN(program, code), "nvrtcGetCUBIN")
    library.nvrtcDestroyProgram(ctypes.byref(program))
    return code.raw


class Module:
    """The loaded kernels `forward` and `backward` of one set of macros on one device."""

    def __init__(self, macros: Mapping[str, int], shared: int, device: torch.device) -> None:
        self._driver = ctypes.CDLL("libcuda.so.1")
        self._threads, self._shared, self._device = macros["THREADS"], shared, device
        self._functions: dict[str, Any] = {}
        self._module = ctypes.c_void_p()
        code = compile_source(macros, torch.cuda.get_device_capability(device))
        with torch.cuda.device(device):
            torch.cuda.current_stream().synchronize()  # makes the device's context the current one
            _check(self._driver.cuModuleLoadData(ctypes.byref(self._module), code), "cuModuleLoadData")
            for name in ("forward", "backward"):
                function = ctypes.c_void_p()
                _check(
                    self._driver.cuModuleGetFunction(ctypes.byref(function), self._module, name.encode()),
                    "cuModuleGetFunction",
                )
                _check(self._driver.cuFuncSetAttribute(function, _MAX_DYNAMIC_SHARED, shared), "cuFuncSetAttribute")
                self._functions[name] = function

    def launch(self, name: str, blocks: int, arguments: Arguments) -> None:
        """Run a kernel in torch's current stream."""
        with torch.cuda.device(self._device):
            stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
            pointers = (ctypes.c_void_p * 1)(ctypes.addressof(arguments))
            status = self._driver.cuLaunchKernel(
                self._functions[name], blocks, 1, 1, self._threads, 1, 1, self._shared, stream, pointers, None
            )
        _check(status, f"launching {name}")


@functools.lru_cache(maxsize=256)
def _loaded(macros: tuple[tuple[str, int], ...], shared: int, device: torch.device) -> Module:
    return Module(dict(macros), shared, device)


def load(macros: Mapping[str, int], shared: int, device: torch.device) -> Module:
    """The kernels for these macros, compiled on first use."""
    return _loaded(tuple(sorted(macros.items())), shared, device)
