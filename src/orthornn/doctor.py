"""Report what this machine and this installation support, and the choices for a network.

With a hidden size n, the report includes the form and the backend for a network of this size, with the reason. It needs
no extra packages: `orthornn doctor` prints these lines.
"""

from __future__ import annotations

import importlib.util

import torch

from ._checks import check_integer
from ._folder import BY_DESCRIPTOR
from .cores import usable_cores
from .environment import environment
from .errors import ArgumentError
from .kernels import checkpointing, cost_model, dispatch
from .kernels.backends.cpp import extension
from .kernels.call import Size

EXTRAS = {
    "rich": "live progress and tables",
    "matplotlib": "figures",
    "safetensors": "checkpoints and weights of run directories",
    "msgspec": "reading run directories",
    "tensorboard": "orthornn train --tensorboard",
    "ray": "orthornn sweep",
    "onnx": "orthornn export --onnx",
    "onnxruntime": "checking what that wrote",
    "scipy": "piano rolls, and sounds of another sampling rate",
    "pyarrow": "your own data in Parquet files",
    "narwhals": "DataFrames",
    "sklearn": "orthornn.sklearn, and plain baselines next to results on your own data",
    "statsmodels": "plain baselines of forecasts",
    "pooch": "downloads",
    "soundfile": "FLAC, OGG and NIST SPHERE",
    "pystoi": "STOI of reconstructed speech",
    "pesq": "PESQ of reconstructed speech",
    "geotorch": "one more peer of orthornn bench",
}


INSTRUCTION_SETS = ("avx2", "fma", "avx512f", "asimd", "sve")  # as /proc/cpuinfo names them


# For a GPU, where the size decides which backend is used: these are shown.
SIZES = {
    "dense N=128": Size(128, batch=128, steps=784),
    "dense N=170": Size(170, batch=128, steps=784),
    "dense N=512": Size(512, batch=128, steps=784),
    "reflections 256, 32": Size(256, 32, 128, 784),
    "reflections 1024, 32": Size(1024, 32, 128, 784),
    "reflections 512, 128": Size(512, 128, 128, 784),
}


def report(n: int | None = None, m: int | None = None, B: int = 1, T: int = 784) -> list[str]:
    """Return the lines of `orthornn doctor`.

    Args:
        n: Hidden size of the network. Default: None, no network.
        m: Number of Householder reflections. Default: None, a parametrization without a compact form.
        B: Number of sequences per batch.
        T: Number of steps per sequence.

    Raises:
        ArgumentError: If ``m`` is given without ``n``, or a size is out of range.

    Example::

        >>> report(n=256, m=32)[0].split()[0]
        'orthornn'
    """
    if n is None and m is not None:
        raise ArgumentError(f"Expected --n with --m, but got only --m {m}. Pass both.")
    chosen = [] if n is None else choice(n, m, B, T)
    return [*_installation(), *_system(), *_kernels(), *_extras(), *chosen]


def _installation() -> list[str]:
    found = environment()
    features, usable = _processor_features(), usable_cores()
    fewer = "" if usable == found["cores"] else f", of which this process may use {usable}"
    return [
        f"orthornn    {found['orthornn'] or 'not installed, imported from its source tree'}",
        f"python      {found['python']}   torch {found['torch']}   numpy {found['numpy']}",
        f"processor   {found['processor']}, {found['cores']} cores{fewer}, threads of torch: {found['threads']}"
        + (f"; has {', '.join(features)}" if features else ""),
    ]


def _system() -> list[str]:
    """Name what this operating system lacks."""
    lines = []
    if importlib.util.find_spec("fcntl") is None:
        lines.append(
            "file locks  none on this system: start only one process that writes a run, since a second goes unnoticed"
        )
    if not BY_DESCRIPTOR:
        lines.append(
            "folders     are opened by name on this system: do not rename the directory of a run while it trains"
        )
    return lines


def _processor_features() -> list[str]:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            words = {word for line in file if line.lower().startswith(("flags", "features")) for word in line.split()}
    except OSError:
        return []
    return [name for name in INSTRUCTION_SETS if name in words]


def _kernels() -> list[str]:
    build = extension.build()
    if build is None:
        lines = [f"compiled kernels: none: {extension.missing()}"]
    else:
        lines = [
            f"compiled kernels: {build.isa} is in use, of {', '.join(build.usable)} that are built and run here "
            "(ORTHORNN_ISA=NAME chooses)",
            f"  threads     from {build.threading_runtime}"
            if build.threading_runtime
            else "  threads     one: the kernels are built without OpenMP, or torch has loaded no OpenMP runtime for them",
        ]
    devices = [torch.device("cpu")]
    if torch.cuda.is_available():
        devices += [torch.device("cuda", index) for index in range(torch.cuda.device_count())]
    for device in devices:
        name = f" ({torch.cuda.get_device_name(device)})" if device.type == "cuda" else ""
        lines.append(f"kernels on {device}{name}, in order of preference:")
        for backend, reason in dispatch.available(device).items():
            lines.append(f"  {backend:<12}{'available' if reason is None else f'not available: {reason}'}")
        if device.type == "cuda":
            lines += [f"    {words:<22}{dispatch.describe(device, size)}" for words, size in SIZES.items()]
    return lines


def _extras() -> list[str]:
    lines = ["extras:"]
    for package, use in EXTRAS.items():
        here = importlib.util.find_spec(package) is not None
        lines.append(f"  {package:<12}{'installed' if here else 'missing'}: {use}")
    return lines


def _linear(n: int, m: int | None, B: int, T: int, returned: str) -> str:
    """Return the choice for a linear network of these sizes in training, with an input projected inside, and the
    reason.
    """
    size = cost_model.Linear(n, m, B, T, returned != "last state", False, True, read=10 if "10" in returned else None)
    costs = cost_model.linear_costs(size)
    usual = next(name for name in costs if name != "rotations")
    ratio = costs[usual] / costs["rotations"]
    name, sign = ("rotations", ">") if cost_model.rotations_pay(size) else (usual, "<=")
    words = (
        f"{costs[usual]:.3g} multiply-adds of {usual} {sign} {costs['rotations']:.3g} of rotations ({ratio:.2g} times)"
    )
    return f"  linear      {returned} returned, orthogonal W, forward and backward: {name}: {words}"


def choice(n: int, m: int | None, B: int, T: int) -> list[str]:
    """Return the choices for a network of these sizes on this machine's CPU, with reasons, as lines."""
    check_integer("n", n, 1)
    check_integer("B", B, 1)
    check_integer("T", T, 1)
    sizes = f"n={n}, B={B}, T={T}" if m is None else f"n={n}, m={m}, B={B}, T={T}"
    lines = [f"for {sizes} on the CPU:"]
    trained = "dense"
    if m is None:
        costs = cost_model.multiply_adds(n, 1)
        lines.append(f"  form        dense: W is applied as a matrix, {costs['dense']:.0f} multiply-adds per step")
    else:
        check_integer("m", m, 1, n, "There are at most n reflections.")
        form = cost_model.cheaper_form(n, m)
        costs = cost_model.multiply_adds(n, m)
        sign = "<" if form == "compact_wy" else ">="
        lines.append(
            f"  form        {form}: 2nm + m^2/2 = {costs['compact_wy']:.0f} multiply-adds per step {sign} n^2 = "
            f"{costs['dense']:.0f} (OrthogonalRNN(form=...) overrides)"
        )
        trained = cost_model.cheaper_form(n, m, (B, B * T))
        if trained != form:
            lines.append(f"  in training compact_wy: {B * T} rows cost less than building W for them, and its gradient")
    lines += [_linear(n, m, B, T, returned) for returned in ("last state", "10 numbers per step", "all states")]
    reasons = dispatch.available(torch.device("cpu"))
    backend = dispatch.choose("auto", torch.device("cpu"))
    before = [f"{name} is not available ({reason})" for name, reason in reasons.items() if reason is not None]
    lines.append(f"  backend     {backend}: " + ("; ".join(before) if before else "the first in order of preference"))
    build = extension.build()
    if backend == "cpp" and build is not None:
        count = min(torch.get_num_threads(), B) if build.threading_runtime else 1
        lines.append(
            f"  chain       {build.isa}, on {count} of {torch.get_num_threads()} thread(s): sequences are shared out, "
            f"and there {'is 1' if B == 1 else f'are {B}'}"
        )
    return [*lines, *_memory(n, m if m is not None and trained == "compact_wy" else 0, B, T)]


def _memory(n: int, m: int, B: int, T: int) -> list[str]:
    """Return the memory of a training step in each memory mode, with output="last", in float32."""

    def megabytes(segment: int | None) -> str:
        return f"{4 * checkpointing.peak_numbers(segment, T, B, n, m) / 1e6:.3g} MB"

    segment = checkpointing.segment_length(T, n, m)
    return [
        f"  memory      store: {megabytes(None)} saved for the backward pass, {T * B * (n + m)} numbers",
        f"              checkpoint: {megabytes(segment)} at the peak, in segments of {segment} steps, which need the least",
    ]
