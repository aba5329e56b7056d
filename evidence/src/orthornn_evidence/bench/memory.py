"""Peak memory: the rise of resident memory during one forward and backward pass, each in a separate process.

The operating system counts all allocations, both torch's tensors and the kernels' buffers. Network and input exist before,
so the rise consists of gradients and the tensors saved for the backward pass. On Linux the high-water mark (VmHWM) is
reset just before; elsewhere the result is the rise of the process's highest mark. A warm-up run over two steps has started
threads and loaded lazy modules by then.
"""

from __future__ import annotations

import gc
import multiprocessing
import sys
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch

from orthornn.errors import OrthornnError

from .cases import Case, Work
from .networks import Runnable

_STATUS = Path("/proc/self/status")
_TIMEOUT = 300.0


def peak_bytes(name: str, case: Case, work: Work) -> int:
    """Return the rise in bytes for the network `name` of NETWORKS. OrthornnError if its process dies."""
    found: int = in_own_process(f"memory of {name} at {case.name}", _TIMEOUT, _measure, name, case, work)
    return found


def in_own_process(what: str, timeout: float, measure: Callable[..., Any], *arguments: Any) -> Any:
    """Return measure(*arguments) from a fresh process with torch's number of threads. Raise OrthornnError if it dies."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    here, there = context.Pipe(duplex=False)
    process = context.Process(target=_report, args=(there, torch.get_num_threads(), measure, *arguments), daemon=True)
    process.start()
    there.close()
    try:
        if not here.poll(timeout):
            raise OrthornnError(f"{what}: no answer within {timeout:g} seconds.")
        return here.recv()
    except EOFError as error:
        process.join()
        raise OrthornnError(f"{what}: its process ended ({process.exitcode}).") from error
    finally:
        process.kill()
        process.join()
        here.close()


def _report(connection: Connection, threads: int, measure: Callable[..., Any], *arguments: Any) -> None:
    torch.set_num_threads(threads)
    connection.send(measure(*arguments))


def _measure(name: str, case: Case, work: Work) -> int:
    runnable = Runnable.make(name, case, work)
    short = Runnable.make(name, case, work, T=2)
    short.run()
    del short
    return rise(runnable.run)


def rise(run: Callable[[], object]) -> int:
    """Return the bytes by which the resident memory of this process rises while `run` runs."""
    gc.collect()
    before = _start()
    run()
    return max(0, _peak() - before)


def _start() -> int:
    """Reset the high-water mark if possible; return the bytes from which the rise counts."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
        return _peak_of_linux()
    except OSError:
        return _peak()


def _peak() -> int:
    try:
        return _peak_of_linux()
    except OSError:
        import resource  # not available on every system

        usage = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return usage if sys.platform == "darwin" else 1024 * usage


def _peak_of_linux() -> int:
    for line in _STATUS.read_text().splitlines():
        if line.startswith("VmHWM:"):
            return 1024 * int(line.split()[1])
    raise OSError(f"{_STATUS} has no VmHWM")
