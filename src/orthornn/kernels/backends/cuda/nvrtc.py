"""CUDA C++ compiled at run time by NVRTC, through ctypes, without a CUDA toolkit or torch's headers.

torch's CUDA builds include libnvrtc; the driver is libcuda. A module is compiled once per process for each set of
macros. Only launches need a GPU: `compile_source` runs on every machine with a libnvrtc.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import importlib.resources
import pathlib
import re
import sys
import threading
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor

from ....errors import BackendError

_compiling = threading.Lock()  # NVRTC mixes up the logs of two threads
HEADERS = ("device.cuh", "product.cuh", "recurrence.cuh")
_MAX_DYNAMIC_SHARED = 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
_MAJORS = (13, 12, 11)  # of CUDA, for a torch that is not built for it
_TRIAL = 'extern "C" __global__ void trial(float* x) { x[threadIdx.x] = tanhf(x[threadIdx.x]); }'
_CLUSTER_DIMENSION = 4  # CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION


class Program(NamedTuple):
    """A source file of this folder and the kernels in it."""

    source: str
    kernels: tuple[str, ...]


class Arguments(ctypes.Structure):
    """The only argument of a kernel: struct Arguments of its source file."""

    @classmethod
    def of(cls, **values: Tensor | float | None) -> Arguments:
        """Return the arguments with the addresses of tensors, which must be contiguous and outlive the launch."""
        return cls(**{k: v.data_ptr() if isinstance(v, Tensor) else (v or 0) for k, v in values.items()})


class Compiled(NamedTuple):
    """The machine code of a program (a cubin), and the assembler's report."""

    code: bytes
    log: str


class Resources(NamedTuple):
    """The resources of one kernel: registers, bytes of stack frame and spills per thread, and static shared memory per
    block.
    """

    registers: int
    stack: int
    spill_stores: int
    spill_loads: int
    shared: int


def text_of(name: str) -> str:
    """Return the text of a file of this folder."""
    return (importlib.resources.files(__package__) / name).read_text()


def _candidates() -> Iterator[pathlib.Path | str]:
    """Yield possible locations of libnvrtc: wheels next to torch, then the system's search path, then a CUDA toolkit."""
    majors = _MAJORS if torch.version.cuda is None else (int(torch.version.cuda.split(".")[0]),)
    sites = dict.fromkeys([pathlib.Path(torch.__file__).parents[1], *map(pathlib.Path, filter(None, sys.path))])
    names = [f"libnvrtc.so.{major}" for major in majors]
    for name in names:
        for site in sites:
            yield from sorted(site.glob(f"nvidia/*/lib/{name}"))
    yield from names
    yield from (pathlib.Path("/usr/local/cuda/lib64") / name for name in names)


@functools.cache
def _library() -> ctypes.CDLL | None:
    """Return libnvrtc, or None if there is none."""
    for candidate in _candidates():
        try:
            if isinstance(candidate, pathlib.Path):
                # libnvrtc of CUDA 13.0 does not search its own folder for libnvrtc-builtins.
                for other in sorted(candidate.parent.glob("libnvrtc-builtins.so.*")):
                    ctypes.CDLL(str(other), mode=ctypes.RTLD_GLOBAL)
            return ctypes.CDLL(str(candidate))
        except OSError:
            continue
    return None


@functools.cache
def missing(device: torch.device) -> str | None:
    """Return the reason why the kernels cannot be compiled for a device, or None if they can."""
    if not torch.cuda.is_available():
        return "torch sees no CUDA device"
    if torch.version.cuda is None:
        return "this torch is not a CUDA build"
    if _library() is None:
        return f"libnvrtc of CUDA {torch.version.cuda} was not found; torch's CUDA wheels include it"
    try:
        _compile(_TRIAL, {}, torch.cuda.get_device_capability(device))
    except BackendError as error:
        return f"libnvrtc cannot compile for this GPU: {error}"
    return None


def _check(library: ctypes.CDLL, status: int, what: str) -> None:
    """Raise BackendError unless a call of NVRTC has succeeded."""
    if status:
        library.nvrtcGetErrorString.restype = ctypes.c_char_p
        raise BackendError(f"{what} failed: {library.nvrtcGetErrorString(status).decode()}.")


def version() -> tuple[int, int] | None:
    """Return the version of libnvrtc, or None if there is none."""
    library = _library()
    if library is None:
        return None
    major, minor = ctypes.c_int(), ctypes.c_int()
    _check(library, library.nvrtcVersion(ctypes.byref(major), ctypes.byref(minor)), "nvrtcVersion")
    return major.value, minor.value


def compile_source(source: str, macros: Mapping[str, int], capability: tuple[int, int]) -> Compiled:
    """Return the machine code of a source file for one GPU architecture."""
    return _compile(text_of(source), macros, capability, source)


def _compile(text: str, macros: Mapping[str, int], capability: tuple[int, int], name: str = "trial.cu") -> Compiled:
    library = _library()
    if library is None:
        raise BackendError(
            f"Expected libnvrtc, which compiles {name}, but it was not found. Install torch for CUDA, or nvidia-cuda-nvrtc."
        )
    with _compiling:
        return _code_of(library, text, macros, capability, name)


def _code_of(
    library: ctypes.CDLL, text: str, macros: Mapping[str, int], capability: tuple[int, int], name: str
) -> Compiled:
    program = ctypes.c_void_p()
    texts, names = [text_of(header).encode() for header in HEADERS], [header.encode() for header in HEADERS]
    array = ctypes.c_char_p * len(HEADERS)
    status = library.nvrtcCreateProgram(
        ctypes.byref(program), text.encode(), name.encode(), len(HEADERS), array(*texts), array(*names)
    )
    _check(library, status, "nvrtcCreateProgram")
    options = [
        f"-arch=sm_{capability[0]}{capability[1]}",
        "-std=c++17",
        "-Xptxas=-v",
        *(f"-D{k}={int(v)}" for k, v in macros.items()),
    ]
    try:
        status = library.nvrtcCompileProgram(
            program, len(options), (ctypes.c_char_p * len(options))(*(option.encode() for option in options))
        )
        log = _read(library, program, "ProgramLog").rstrip(b"\0").decode(errors="replace").strip()
        if status:
            raise BackendError(f"{name} did not compile with {dict(macros)}: {log}")
        return Compiled(_read(library, program, "CUBIN"), log)
    finally:
        library.nvrtcDestroyProgram(ctypes.byref(program))


def _read(library: ctypes.CDLL, program: ctypes.c_void_p, what: str) -> bytes:
    """Return the result of nvrtcGet<what>."""
    size = ctypes.c_size_t()
    _check(library, getattr(library, f"nvrtcGet{what}Size")(program, ctypes.byref(size)), f"nvrtcGet{what}Size")
    content = ctypes.create_string_buffer(size.value)
    _check(library, getattr(library, f"nvrtcGet{what}")(program, content), f"nvrtcGet{what}")
    return content.raw


def resources(log: str) -> dict[str, Resources]:
    """Return the resources of every kernel in an assembler's report (ptxas -v)."""
    found = {}
    for part in re.split(r"Compiling entry function ", log)[1:]:
        name = re.match(r"'(\w+)'", part)
        numbers = [
            re.search(pattern, part)
            for pattern in (
                r"Used (\d+) registers",
                r"(\d+) bytes stack frame",
                r"(\d+) bytes spill stores",
                r"(\d+) bytes spill loads",
                r"(\d+) bytes smem",
            )
        ]
        if name is not None and numbers[0] is not None:
            found[name[1]] = Resources(*(0 if number is None else int(number[1]) for number in numbers))
    return found


@functools.cache
def _driver() -> ctypes.CDLL:
    return ctypes.CDLL("libcuda.so.1")


def _check_driver(status: int, what: str) -> None:
    """Raise BackendError unless a call of the driver has succeeded."""
    if status:
        name = ctypes.c_char_p()
        _driver().cuGetErrorName(status, ctypes.byref(name))
        words = "an unknown error" if name.value is None else name.value.decode()
        raise BackendError(f"{what} failed: {words} ({status}).")


@contextlib.contextmanager
def _context(device: torch.device) -> Iterator[None]:
    """Make the device's context the current one of this thread.

    torch does so at a thread's first operation on the device, but a launch here may come earlier.
    """
    driver, current = _driver(), ctypes.c_void_p()
    with torch.cuda.device(device):
        _check_driver(driver.cuCtxGetCurrent(ctypes.byref(current)), "cuCtxGetCurrent")
        if not current.value:
            index = torch.cuda.current_device()
            _check_driver(driver.cuDevicePrimaryCtxRetain(ctypes.byref(current), index), "cuDevicePrimaryCtxRetain")
            _check_driver(driver.cuCtxSetCurrent(current), "cuCtxSetCurrent")
        yield


class _LaunchConfig(ctypes.Structure):
    """CUlaunchConfig: blocks and threads, three each, and bytes of shared memory; a stream; attributes."""

    _fields_: ClassVar = [
        ("sizes", ctypes.c_uint * 7),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.c_void_p),
        ("attribute_count", ctypes.c_uint),
    ]


@functools.cache
def clusters_at_once(device: torch.device, blocks: int, shared: int) -> int:
    """Return how many clusters of this many blocks run at once, if a block takes the shared memory of a multiprocessor.

    There are fewer than the number of multiprocessors over `blocks`: the multiprocessors of a cluster share a part of the
    chip, and some multiprocessors of a part may be left over.
    """
    code = _compile(_TRIAL, {}, torch.cuda.get_device_capability(device)).code
    module, function, found = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_int()
    attribute = (ctypes.c_uint * 18)(_CLUSTER_DIMENSION, 0, blocks, 1, 1)  # CUlaunchAttribute, 72 bytes
    config = _LaunchConfig((ctypes.c_uint * 7)(blocks, 1, 1, 32, 1, 1, shared), None, ctypes.addressof(attribute), 1)
    driver = _driver()
    with _context(device):
        _check_driver(driver.cuModuleLoadData(ctypes.byref(module), code), "cuModuleLoadData")
        try:
            _check_driver(driver.cuModuleGetFunction(ctypes.byref(function), module, b"trial"), "cuModuleGetFunction")
            status = driver.cuFuncSetAttribute(function, _MAX_DYNAMIC_SHARED, shared)
            _check_driver(status, f"reserving {shared} bytes of shared memory")
            status = driver.cuOccupancyMaxActiveClusters(ctypes.byref(found), function, ctypes.byref(config))
            _check_driver(status, "cuOccupancyMaxActiveClusters")
        finally:
            driver.cuModuleUnload(module)
    return found.value


class Module:
    """The loaded kernels of a program for one set of macros on one device.

    They are never unloaded, since a CUDA graph captured by a user may hold them.
    """

    def __init__(self, program: Program, macros: Mapping[str, int], shared: int, device: torch.device) -> None:
        self._threads, self._shared, self._device = macros["THREADS"], shared, device
        self._functions: dict[str, Any] = {}
        self._module = ctypes.c_void_p()
        capability = torch.cuda.get_device_capability(device)
        code, driver = compile_source(program.source, macros, capability).code, _driver()
        with _context(device):
            if torch.cuda.is_current_stream_capturing():
                raise BackendError(
                    "Expected the kernels to be loaded before a CUDA graph is captured, but got a call with new sizes "
                    "inside the capture. Run the network once, forward and backward, before the capture."
                )
            _check_driver(driver.cuModuleLoadData(ctypes.byref(self._module), code), "cuModuleLoadData")
            for name in program.kernels:
                function = ctypes.c_void_p()
                status = driver.cuModuleGetFunction(ctypes.byref(function), self._module, name.encode())
                _check_driver(status, "cuModuleGetFunction")
                status = driver.cuFuncSetAttribute(function, _MAX_DYNAMIC_SHARED, shared)
                _check_driver(status, f"reserving {shared} bytes of shared memory")
                self._functions[name] = function

    def launch(self, name: str, blocks: tuple[int, int, int], arguments: Arguments) -> None:
        """Run a kernel in torch's current stream."""
        with _context(self._device):
            stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
            pointers = (ctypes.c_void_p * 1)(ctypes.addressof(arguments))
            status = _driver().cuLaunchKernel(
                self._functions[name], *blocks, self._threads, 1, 1, self._shared, stream, pointers, None
            )
        _check_driver(status, f"launching {name}")


@functools.lru_cache(maxsize=256)
def _loaded(program: Program, macros: tuple[tuple[str, int], ...], shared: int, device: torch.device) -> Module:
    return Module(program, dict(macros), shared, device)


def load(program: Program, macros: Mapping[str, int], shared: int, device: torch.device) -> Module:
    """Return the kernels of a program for these macros, compiled on first use."""
    return _loaded(program, tuple(sorted(macros.items())), shared, device)
