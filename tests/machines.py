"""Run the tests under what differs from machine to machine: `make test-machines`.

A configuration is a set of variables, a number of test processes, ignored signals or busy cores. One line is printed for
each, then the tests that failed under it. Arguments: `--only NAME` chooses configurations, all others go to pytest.
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import subprocess
import sys
import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from orthornn.cores import usable_cores
from orthornn.kernels.backends.cpp import extension

TESTS = Path(__file__).parent
COUNTED = ("passed", "failed", "errors", "skipped")
CHOSEN = ("ATEN_CPU_CAPABILITY", "MKL_CBWR", "ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA", "ORTHORNN_ISA")


@dataclass(frozen=True)
class Configuration:
    """What the tests run under. processes: of pytest-xdist. quiet: SIGINT is ignored. busy: no core is free."""

    name: str
    variables: dict[str, str] = field(default_factory=dict)
    processes: str = "0"
    quiet: bool = False
    busy: bool = False


SURROUNDINGS = {"TZ": "America/New_York", "LC_ALL": "C", "COLUMNS": "40", "TERM": "dumb", "PYTHONHASHSEED": "12345"}
CONFIGURATIONS = [
    Configuration("as it is"),
    Configuration("several processes", processes="auto"),
    Configuration("two threads", {"OMP_NUM_THREADS": "2"}),
    Configuration("torch without vectors", {"ATEN_CPU_CAPABILITY": "default"}),
    Configuration("torch avx2", {"ATEN_CPU_CAPABILITY": "avx2"}),
    Configuration("BLAS compatible", {"MKL_CBWR": "COMPATIBLE"}),
    *(Configuration(f"oneDNN {isa}", {"ONEDNN_MAX_CPU_ISA": isa}) for isa in ("SSE41", "AVX2", "AVX512_CORE")),
    *(Configuration(f"kernels {isa}", {"ORTHORNN_ISA": isa}) for isa in ("portable", "avx2", "avx512")),
    Configuration("SIGINT ignored", quiet=True),
    Configuration("other surroundings", SURROUNDINGS),
    Configuration("busy cores", busy=True),
]


def runs_here(configuration: Configuration) -> bool:
    """Whether this processor has the instruction set of the compiled kernels."""
    isa = configuration.variables.get("ORTHORNN_ISA")
    return isa is None or (extension.missing() is None and isa in extension.native.supported_isas())


def counts(output: str) -> dict[str, int]:
    """The numbers in the last line of pytest's output."""
    last = output.strip().splitlines()[-1] if output.strip() else ""
    found = re.findall(r"(\d+) (passed|failed|error|skipped)", last)
    return {"errors" if name == "error" else name: int(number) for number, name in found}


def run(configuration: Configuration, words: list[str]) -> tuple[int, str, float]:
    """Pytest's exit status and output under a configuration, and the seconds that it took."""
    plain = {name: value for name, value in os.environ.items() if name not in CHOSEN}
    environment = {**plain, "OMP_NUM_THREADS": "1", **configuration.variables}
    command = [sys.executable, "-m", "pytest", "-q", "--tb=no", "-rfE", "--color=no", "-p", "no:cacheprovider"]
    command += ["-n", configuration.processes, *words]
    start = time.monotonic()
    with ExitStack() as stack:
        if configuration.busy:
            for _ in range(usable_cores()):
                burner = subprocess.Popen([sys.executable, "-c", "while True: pass"])
                stack.callback(burner.wait)
                stack.callback(burner.kill)
        # What is ignored is inherited, also by this program from a shell that has put it in the background.
        heard = signal.SIG_IGN if configuration.quiet else signal.default_int_handler
        stack.callback(signal.signal, signal.SIGINT, signal.signal(signal.SIGINT, heard))
        done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    return done.returncode, done.stdout, time.monotonic() - start


def main(arguments: list[str]) -> int:
    """Print the table; 1 if a test failed under any configuration."""
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--only", action="append", choices=[each.name for each in CONFIGURATIONS])
    options, words = parser.parse_known_args(arguments)
    if not any((Path(word.split("::")[0])).exists() for word in words):
        words.append(str(TESTS))
    print(f"{'configuration':24}" + "".join(f"{name:>9}" for name in (*COUNTED, "seconds")), flush=True)
    worst = 0
    for configuration in CONFIGURATIONS:
        if options.only and configuration.name not in options.only:
            continue
        if not runs_here(configuration):
            print(f"{configuration.name:24}{'this machine lacks it':>30}", flush=True)
            continue
        status, output, seconds = run(configuration, words)
        found = counts(output)
        row = "".join(f"{found.get(name, 0):9}" for name in COUNTED)
        print(f"{configuration.name:24}{row}{seconds:9.0f}", flush=True)
        if status:
            worst = 1
            failed = [line for line in output.splitlines() if line.startswith(("FAILED", "ERROR"))]
            print("\n".join(f"  {line}" for line in failed or output.strip().splitlines()[-5:]), flush=True)
    return worst


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
