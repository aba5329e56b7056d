"""`orthornn bench`: verify the kernels, then time them next to torch's layers, in one run.

The states and all gradients of every case are verified against the reference backend in float64; if one is wrong, no time
is reported. Then forward and backward to all parameters are timed in turns, with T=784, input size 1, float32,
parametrization included. The output is results.json with every single run, table.txt and a figure.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Literal

import torch

from orthornn._checks import check_integer, check_number
from orthornn.cli.arguments import read_options
from orthornn.cli.outputs import check_new_files
from orthornn.environment import environment
from orthornn.errors import ArgumentError
from orthornn.learn.options import results_folder
from orthornn.learn.report.figures import figure_note, or_a_warning
from orthornn.learn.report.table import Table
from orthornn.learn.training.threads import set_threads

from .. import bench
from ..bench import floors, gpu, linear_layers
from ..bench.cases import Case, Passes, Work
from ..bench.figures import ratio_figure, sweep_figure
from ..bench.gpu.tables import tables as gpu_tables
from ..bench.long import long_steps, long_table
from ..bench.networks import NETWORKS, OURS, peers
from ..bench.resets import reset_table, reset_times
from ..bench.scaling import QUICK, sweep_tables
from ..bench.tables import case_table, last_state_table, machine_lines, step_table, verdict_table, write_results

DESCRIPTION = (
    "Verifies states and all gradients of every case against the reference backend in float64, and reports no time if one is "
    "wrong. Then times forward and backward to all parameters in turns with torch's layers, at T = 784, input size 1, in "
    "float32, the construction of W included. Writes results.json with every single run, table.txt and a figure."
)
_LINE_SECONDS = 5.0
_QUICK_CASES = "wy-256-32-b1,wy-128-16-b1,cayley-170-b1,wy-256-32-b50"
_RESET_CASES = "wy-128-16-b8,wy-256-32-b1,cayley-128-b8,linear-128-b8"
_LONG_CASES = "cayley-128-b1,wy-128-16-b1"
_QUICK_PEERS = "rnn,lstm,lstm-parameters"


@dataclass(frozen=True)
class BenchArguments:
    """The options of orthornn bench."""

    cases: str | None = None
    """Cases to time, separated by commas: wy-N-M-bB (M reflections), rotations-N-M-bB (the same on a base of rotations),
    cayley-N-bB (a dense matrix) and linear-N-bB (no nonlinearity, W as rotations), such as wy-256-32-b1. Default: those
    with a speed requirement."""
    peers: str | None = None
    """Networks to compare with, separated by commas: rnn, lstm, lstm-parameters, rnn-orthogonal, rnn-geotorch, loop;
    for linear cases also matrix (W as a matrix) and known (with rotations that need not be computed). Default: all."""
    sweep: bool = False
    """Instead of cases: how the cost grows with n, m, B and T."""
    long: int | None = None
    """Instead of cases and peers: one training step over this many time steps, such as 1000000, in each memory mode,
    with its time, peak memory and gradients. --cases chooses the networks."""
    layers: bool = False
    """Instead of cases: linear layers with a readout (blocks, LRU, S5) next to LSTM and GRU, at T = 784, 4096 and
    65536, in processor time."""
    resets: float | None = None
    """Instead of cases and peers: episodes that end inside a batch. A call with this probability of a reset per step
    and sequence, such as 0.02, next to the same call without resets, a step loop, and nn.LSTM called for each piece, in
    processor time of one thread. --cases chooses the networks."""
    quick: bool = False
    """Time only four cases (or few points) and three peers, in 5 rounds and without memory: about 20 seconds."""
    rounds: int | None = None
    """Rounds in which all networks take turns. Default: 7; 5 with --quick or --sweep; 3 with --long."""
    T: int = Work.T
    """Steps of a sequence; not for --sweep."""
    output: Literal["last", "all"] = Work.output
    """States that receive a gradient: the last one, or all."""
    nonlinearity: str = Work.nonlinearity
    """Nonlinearity of the orthogonal networks; the peers use theirs."""
    passes: Passes = Work.passes
    """Passes to time: forward and backward, or forward without gradients. Verification needs both."""
    threads: int | None = None
    """Threads of torch. Default: torch's choice, which the speed requirements assume."""
    cap: float = 10.0
    """Seconds that a slow peer may take per case (with --sweep: nn.RNN and nn.LSTM per point); it gets at least one
    round."""
    memory: bool = True
    """Measure peak memory, each network in its own process."""
    chain: bool = True
    """Time the dense recurrence without parameter gradients, next to the machine's matrix product."""
    step: bool = True
    """Time whole training steps, inside and outside the kernels."""
    last_state: bool = True
    """Time three ways to read the last state."""
    device: str = Work.device
    """Device: cpu, or cuda for the recurrences on every backend and cuDNN's layers in float32, tf32 and bfloat16. With
    cuda, only --cases, --T, --rounds, --seconds and --out have an effect."""
    seconds: float = 300.0
    """With --device cuda: seconds after which no new measurement begins. The same command with the same --out
    resumes."""
    out: Path | None = None
    """Folder for the results. Default: a new one in runs/."""


def main(words: Sequence[str]) -> int:
    """Run the command and return the exit status."""
    arguments = read_options(BenchArguments, "orthornn bench", DESCRIPTION, words)
    _check_options_read(arguments)
    chosen = arguments.threads is not None or "OMP_NUM_THREADS" in os.environ
    if arguments.threads is not None:
        set_threads(arguments.threads)
    work = Work(arguments.T, arguments.output, arguments.nonlinearity, arguments.device, arguments.passes)
    fewer = arguments.quick or arguments.sweep
    rounds = (5 if fewer else 7) if arguments.rounds is None else check_integer("rounds", arguments.rounds, 1)
    cap = check_number("cap", arguments.cap, 0)
    folder = arguments.out or results_folder("bench-sweep" if arguments.sweep else "bench")
    if work.device == "cuda":
        return _gpu(arguments, work, rounds, folder)
    check_new_files(folder / name for name in ("results.json", "table.txt", "bench.png", "sweep.png"))
    if arguments.long is not None:
        return _long(arguments, replace(work, T=check_integer("long", arguments.long, 1)), folder)
    if arguments.layers:
        return _layers(arguments, rounds, folder)
    if arguments.resets is not None:
        return _resets(arguments, replace(work, output="all"), rounds, folder)
    if arguments.sweep:
        return _sweep(work, QUICK if arguments.quick else bench.Grid(), rounds, cap, folder)
    return _bench(arguments, work, rounds, cap, chosen, folder)


_UNREAD = {  # by the option that replaces cases: options that it does not read
    "sweep": ("cases", "peers", "T"),
    "long": ("peers", "T"),
    "layers": ("cases", "peers", "T"),
    "resets": ("peers", "threads"),
    "device": ("peers", "quick"),
}


def _check_options_read(arguments: BenchArguments) -> None:
    """Raise ArgumentError if an option would have no effect."""
    default = BenchArguments()
    given = [name for name in _UNREAD if getattr(arguments, name) != getattr(default, name)]
    if arguments.device != "cuda":  # unknown devices are refused later
        given = [name for name in given if name != "device"]
    if len(given) > 1:
        raise ArgumentError(f"Expected either --{given[0]} or --{given[1]}, but got both. Leave one out.")
    for kind in given:
        unread = [name for name in _UNREAD[kind] if getattr(arguments, name) != getattr(default, name)]
        if unread:
            raise ArgumentError(
                f"Expected --{kind} without --{unread[0]}, which has no effect there, but got both. Leave it out."
            )


def _bench(arguments: BenchArguments, work: Work, rounds: int, cap: float, threads_chosen: bool, folder: Path) -> int:
    names = (
        arguments.cases
        if arguments.cases is not None
        else (_QUICK_CASES if arguments.quick else ",".join(floors.CASES))
    )
    all_peers = ",".join(name for name in NETWORKS if name != OURS)
    default_peers = _QUICK_PEERS if arguments.quick else all_peers
    plan = bench.BenchmarkPlan(
        cases=[Case.parse(name) for name in _parts(names)],
        peers=peers(default_peers if arguments.peers is None else arguments.peers),
        work=work,
        rounds=rounds,
        cap=cap,
        memory=arguments.memory and not arguments.quick,
        chain=arguments.chain,
        step=arguments.step,
        last_state=arguments.last_state,
        threads_chosen=threads_chosen,
    )
    with _Status() as say:
        results = bench.run(plan, say)
    lines = machine_lines(results)
    print("\n".join(lines))
    tables = [case_table(result) for result in results.cases]
    tables += [step_table(results)] if results.steps else []
    tables += [last_state_table(results.last_state)] if results.last_state is not None else []
    tables.append(verdict_table(results))
    _show(tables)
    write_results(folder, results.to_dict(), tables, lines)
    with or_a_warning(folder / "bench.png"):
        ratio_figure(folder / "bench.png", results)
    print(f"\nresults: {folder}{figure_note(folder / 'bench.png')}")
    return 0


def _gpu(arguments: BenchArguments, work: Work, rounds: int, folder: Path) -> int:
    names = gpu.CASES if arguments.cases is None else _parts(arguments.cases)
    seconds = check_number("seconds", arguments.seconds, 0)
    with _Status() as say:
        results = gpu.run(gpu.BenchmarkPlan(folder, [Case.parse(name) for name in names], work, rounds, seconds), say)
    _show(gpu_tables(results))
    print(f"\nresults: {folder}")
    return 0


def _parts(names: str) -> list[str]:
    return [name for name in dict.fromkeys(part.strip() for part in names.split(",")) if name]


def _sweep(work: Work, grid: bench.Grid, rounds: int, cap: float, folder: Path) -> int:
    with _Status() as say:
        result = bench.sweep(grid, work, rounds, cap, say)
    tables = sweep_tables(result)
    _show(tables)
    write_results(folder, result.to_dict(), tables)
    with or_a_warning(folder / "sweep.png"):
        sweep_figure(folder / "sweep.png", result)
    print(f"\nresults: {folder}{figure_note(folder / 'sweep.png')}")
    return 0


def _long(arguments: BenchArguments, work: Work, folder: Path) -> int:
    cases = [Case.parse(name.strip()) for name in (arguments.cases or _LONG_CASES).split(",") if name.strip()]
    rounds = 3 if arguments.rounds is None else check_integer("rounds", arguments.rounds, 1)
    with _Status() as say:
        steps = long_steps(cases, work, rounds, say)
    table = long_table(steps)
    _show([table])
    write_results(folder, {"environment": environment(), "steps": [asdict(step) for step in steps]}, [table])
    print(f"\nresults: {folder}")
    return 0


def _layers(arguments: BenchArguments, rounds: int, folder: Path) -> int:
    lengths = {784: 16} if arguments.quick else {784: 100, 4096: 16, 65536: 1}
    with _Status() as say:
        times = linear_layers.measure(lengths, features=32, state_size=64, rounds=rounds, say=say)
    shown = linear_layers.table(times)
    _show([shown])
    write_results(folder, {"environment": environment(), "times": linear_layers.to_dict(times)}, [shown])
    print(f"\nresults: {folder}")
    return 0


def _resets(arguments: BenchArguments, work: Work, rounds: int, folder: Path) -> int:
    probability = check_number("resets", arguments.resets, 0.0, 1.0)
    cases = [Case.parse(name) for name in _parts(arguments.cases or _RESET_CASES)]
    torch.set_num_threads(1)
    with _Status() as say:
        found = reset_times(cases, work, probability, rounds, say)
    table = reset_table(found)
    _show([table])
    write_results(folder, {"environment": environment(), "resets": [asdict(times) for times in found]}, [table])
    print(f"\nresults: {folder}")
    return 0


def _show(tables: Sequence[Table]) -> None:
    for table in tables:
        print()
        table.show()


class _Status:
    """The current step: one line that changes on a terminal, or a line every few seconds elsewhere."""

    def __enter__(self) -> _Status:
        self._terminal = sys.stdout.isatty()
        self._last = 0.0
        return self

    def __exit__(self, *error: object) -> None:
        if self._terminal:
            print("\r\033[K", end="", flush=True)

    def __call__(self, line: str) -> None:
        now = time.monotonic()
        if self._terminal:
            print(f"\r\033[K{line}", end="", flush=True)
        elif now - self._last >= _LINE_SECONDS:
            print(line, flush=True)
            self._last = now
