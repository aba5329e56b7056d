"""Compile the GPU kernels for several architectures on a machine without a GPU, and report what each one takes.

    python benchmarks/compile_ahead.py [--architectures 90,80,100] [--out FILE] [--jobs N]

Public functions are called as on a GPU, forward and backward, but each launch is replaced by the compilation of the
kernel that it would run by NVRTC (from torch's CUDA wheels, or `pip install nvidia-cuda-nvrtc`). So the kernels are
those of the launches.

The exit status is 1 if a kernel does not compile, or needs more shared memory than a block of the architecture has.
A kernel that spills is reported, with the bytes of its stack frame.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, replace
from itertools import product
from multiprocessing import get_context
from pathlib import Path
from typing import Any
from unittest import mock

import torch

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "src"))

from orthornn import activations  # noqa: E402
from orthornn.cores import usable_cores  # noqa: E402
from orthornn.kernels import compact_wy_rnn, dense_rnn, rotations_rnn  # noqa: E402
from orthornn.kernels.backends import CUDA  # noqa: E402
from orthornn.kernels.backends.cuda import backend, chain, cluster, multiprocessor, nvrtc  # noqa: E402
from orthornn.kernels.call import Size  # noqa: E402

# Bytes of shared memory that one block can have, by compute capability.
SHARED = {75: 64, 80: 163, 86: 99, 87: 163, 89: 99, 90: 227, 100: 227, 103: 227, 110: 227, 120: 99, 121: 99}
SHARED = {architecture: 1024 * size for architecture, size in SHARED.items()}


@dataclass(frozen=True)
class Wanted:
    """A call whose kernels are compiled. m: None for a dense W, -1 for rotations."""

    n: int
    m: int | None = None
    batch: int = 50
    steps: int = 784
    activation: str = "modrelu"
    stored: str = "float32"
    output: str = "all"
    ragged: bool = False
    clip: float | None = None
    base: bool = True
    resets: bool = False

    @property
    def name(self) -> str:
        """A name that tells calls apart."""
        kind = {None: f"dense {self.n}", -1: f"rotations {self.n}"}.get(self.m, f"reflections {self.n},{self.m}")
        words = [kind, f"B={self.batch}", f"T={self.steps}", self.activation, self.stored]
        words += [self.output] * (self.output != "all") + ["ragged"] * self.ragged + ["clip"] * (self.clip is not None)
        words += ["no base"] * (bool(self.m) and not self.base) + ["resets"] * self.resets
        return " ".join(words)


# The sizes that are timed, those where the shape changes, and awkward ones.
TIMED = [Wanted(n) for n in (128, 170, 256)] + [Wanted(n, m) for n, m in ((256, 32), (512, 32))]
OTHERS = [Wanted(n) for n in (1, 5, 33, 192, 300, 320)]
OTHERS += [Wanted(n, m) for n, m in ((7, 3), (33, 33), (128, 16), (128, 32), (1024, 32), (512, 64), (256, 128))]
# Those of a cluster; a kernel is the same for any number of steps.
CLUSTERS = [Wanted(n, batch=batch, steps=16) for n in (300, 360, 512, 640, 768) for batch in (1, 50, 512)]
CLUSTERS += [Wanted(512, 128, steps=16)]


def calls() -> Iterator[Wanted]:
    """Yield the calls whose kernels are compiled: every activation at two small sizes, a few at the others."""
    for small, name, stored in product((Wanted(38), Wanted(38, 19)), activations.ACTIVATIONS, ("float32", "bfloat16")):
        for output, clip in (("all", None), ("last", 1.0)):
            for base in (True, False) if small.m else (True,):
                yield replace(small, activation=name, stored=stored, output=output, clip=clip, base=base)
    for one in [*TIMED, *OTHERS]:
        for output, stored in product(("all", "last"), ("float32", "bfloat16")):
            yield replace(one, output=output, stored=stored)
        yield replace(one, activation="complex_modrelu" if one.n % 2 == 0 else "oplu", clip=1.0)
    for one in CLUSTERS:
        for output, stored in product(("all", "last"), ("float32", "bfloat16")):
            yield replace(one, output=output, stored=stored)
    for one in [*TIMED, *CLUSTERS]:
        yield replace(one, resets=True)
    yield Wanted(256, -1, activation="identity")
    yield Wanted(256, -1, activation="identity", resets=True)


def call(wanted: Wanted) -> None:
    """Run a public function forward and backward on the backend, whose launches are replaced."""
    n, m, B, T = wanted.n, wanted.m, wanted.batch, wanted.steps
    generator = torch.Generator().manual_seed(0)

    def leaf(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator).requires_grad_()

    phi = activations.get(wanted.activation)
    size = phi.parameter_size(n)
    parameter = leaf(size) if size else None
    batch_sizes = torch.full((T,), B, dtype=torch.int64) if wanted.ragged else None
    x = leaf(*((T * B,) if wanted.ragged else (T, B)), n).detach()
    x = x.to(getattr(torch, wanted.stored)).requires_grad_()
    options: dict[str, Any] = {"output": wanted.output, "batch_sizes": batch_sizes, "backend": CUDA.name}
    if wanted.resets:
        options |= {"reset": torch.zeros(T, B, dtype=torch.bool), "restart": leaf(B, n)}
    if m == -1:
        W = torch.linalg.qr(leaf(n, n))[0].detach()
        out = rotations_rnn(x, leaf(B, n), W, **options)
    elif m is None:
        out = dense_rnn(x, leaf(B, n), leaf(n, n), phi.name, parameter, clip=wanted.clip, **options)
    else:
        base = (torch.ones(n), torch.zeros(n)) if wanted.base else None
        out = compact_wy_rnn(x, leaf(B, n), leaf(n, m), base, phi.name, parameter, clip=wanted.clip, **options)
    out.sum().backward()


def memory_of(architecture: int) -> Any:
    """Return a context in which shapes are chosen for the shared memory of an architecture."""
    limit = min(multiprocessor.SHARED, SHARED[architecture])
    return mock.patch.object(multiprocessor, "shared_limit", return_value=limit)


def compiled(wanted: Wanted, architecture: int) -> Iterator[dict[str, Any]]:
    """Yield the resources of the kernels that a call launches."""
    found: dict[str, tuple[nvrtc.Program, Mapping[str, int], int]] = {}

    class Launch:
        def __init__(
            self, program: nvrtc.Program, macros: Mapping[str, int], shared: int, device: torch.device
        ) -> None:
            self.program, self.macros, self.shared = program, macros, shared

        def launch(self, name: str, blocks: tuple[int, int, int], arguments: nvrtc.Arguments) -> None:
            found[name] = self.program, self.macros, self.shared

    chain.best.cache_clear()
    cluster.best.cache_clear()
    cluster.shapes.cache_clear()
    backend._least.cache_clear()
    with (
        mock.patch.object(multiprocessor, "has_clusters", return_value=architecture >= 90),
        mock.patch.object(nvrtc, "load", Launch),
        mock.patch.object(CUDA, "unavailable", return_value=None),
        memory_of(architecture),
    ):
        paired, rotations = activations.get(wanted.activation).paired, wanted.m == -1
        size = Size(wanted.n, None if rotations else wanted.m, wanted.batch, paired=paired, rotations=rotations)
        reason = CUDA.unsupported(torch.float32, size)
        if reason is not None:
            yield {"kernel": "none", "unsupported": reason}
            return
        call(wanted)
    for name, (program, macros, shared) in found.items():
        log = nvrtc.compile_source(program.source, macros, divmod(architecture, 10)).log
        own = nvrtc.resources(log)[name]
        spilled = own.spill_stores + own.spill_loads
        yield {
            "kernel": name,
            "threads": macros["THREADS"],
            "registers": own.registers,
            "stack": own.stack,
            "spilled": spilled,
            "shared": own.shared + shared,
        }


def rows_of(architecture: int, wanted: Wanted) -> list[dict[str, Any]]:
    """Return a row for each kernel of a call, or one with the error."""
    head = {"architecture": architecture, "call": wanted.name}
    started, rows = time.process_time(), []
    try:
        for row in compiled(wanted, architecture):
            if row.get("shared", 0) > SHARED[architecture]:
                row["failed"] = f"{row['shared']} bytes of shared memory; a block has {SHARED[architecture]}"
            rows.append(head | row)
    except Exception as error:
        rows.append(head | {"kernel": "none", "failed": f"{type(error).__name__}: {error}"[-1500:]})
    return [row | {"seconds": round(time.process_time() - started, 2)} for row in rows]


def _shown(row: dict[str, Any]) -> str:
    head = f"sm_{row['architecture']} {row['call']:<60} {row['kernel']:<8}"
    if "failed" in row:
        return f"{head} FAILED {row['failed'].strip().splitlines()[-1]}"
    if "unsupported" in row:
        return f"{head} refused: {row['unsupported']}"
    return (
        f"{head} {row['threads']:>4} threads {row['registers']:>3} registers {row['spilled']:>5} B spilled "
        f"{row['shared'] / 1024:>6.1f} KB shared {row['seconds']:>6.1f} s"
    )


def summary(rows: list[dict[str, Any]]) -> list[str]:
    """Return lines of the totals of each architecture, and of what failed or spills most."""
    lines = []
    for architecture in sorted({row["architecture"] for row in rows}):
        own = [row for row in rows if row["architecture"] == architecture]
        done = [row for row in own if "registers" in row and "failed" not in row]
        spill = [row for row in done if row["spilled"]]
        lines.append(
            f"sm_{architecture}: {len(done)} kernels of {len({row['call'] for row in own})} calls compiled, "
            f"{sum('failed' in row for row in own)} failed, {len(spill)} spill, most "
            f"{max((row['spilled'] for row in done), default=0)} B; shared memory at most "
            f"{max((row['shared'] for row in done), default=0) / 1024:.1f} of {SHARED[architecture] / 1024:.0f} KB"
        )
    lines += [_shown(row) for row in sorted((r for r in rows if r.get("spilled")), key=lambda r: -r["spilled"])[:20]]
    return lines + [_shown(row) for row in rows if "failed" in row]


def main() -> int:
    """Return the exit status: 1 if anything failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--architectures", default="90,80,100")
    parser.add_argument("--out", type=Path, help="a JSON file for all rows")
    parser.add_argument("--jobs", type=int, default=usable_cores())
    parser.add_argument("--calls", default="", help="only calls whose names match this regular expression")
    options = parser.parse_args()
    if options.out is not None:
        options.out.parent.mkdir(parents=True, exist_ok=True)
    jobs = [
        (int(architecture), wanted)
        for architecture in options.architectures.split(",")
        for wanted in dict.fromkeys(calls())
        if re.search(options.calls, wanted.name)
    ]
    rows: list[dict[str, Any]] = []
    libraries = {"torch": torch.__version__, "nvrtc": nvrtc.version()}
    with ProcessPoolExecutor(options.jobs, mp_context=get_context("spawn")) as pool:
        for done in as_completed([pool.submit(rows_of, *job) for job in jobs]):
            rows += done.result()
            for row in done.result():
                print(_shown(row), flush=True)
            if options.out is not None:
                found = {"libraries": libraries, "calls": len(jobs), "kernels": rows}
                options.out.write_text(json.dumps(found, indent=1) + "\n")
    print(*summary(rows), sep="\n")
    return int(any("failed" in row for row in rows))


if __name__ == "__main__":
    raise SystemExit(main())
