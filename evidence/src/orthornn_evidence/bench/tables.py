"""The results as tables."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from orthornn._files import write_bytes
from orthornn.learn.report.table import Column, Table

from .benchmark import CaseResult, Results
from .floors import Verdict
from .last_state import LastStateCost
from .networks import NETWORKS, OURS
from .timing import Ratio

RESULTS = "results.json"
MEMORY = "peak memory: rise of resident memory during one forward and backward pass, in a separate process"


def machine_lines(results: Results) -> list[str]:
    """Return a description of the machine and the columns."""
    found, work = results.environment, results.work
    both = "forward and backward to all parameters from the gradient of"
    passes = both if work.passes == "both" else "forward only, without gradients, to"
    return [
        f"{found['processor']}, {results.threads} thread(s), torch {found['torch']}, kernels: "
        f"{results.isa or 'reference backend'}",
        f"float32 matrix product: {results.rate_one_thread / 1e9:.1f} G multiply-adds/s on one thread, "
        f"{results.rate_all_threads / 1e9:.1f} on all",
        f"{passes} {'the last' if work.output == 'last' else 'every'} state; T={work.T}, input size 1, float32, "
        f"parametrization included; ours with {work.nonlinearity}",
    ]


def case_table(result: CaseResult) -> Table:
    """Return a table of ours and every peer of a case."""
    verification = result.verification
    columns = [
        Column("network", left=True),
        Column("parameters"),
        Column("ms"),
        Column("quartiles"),
        Column("us/step"),
        Column("slower than ours"),
        Column("by round"),
        Column("rounds"),
        Column("peak MB"),
    ]
    table = Table(result.case.title, columns)
    for name, parameters in result.parameters.items():
        timing = result.timings[name]
        ratio = result.ratios.get(name)
        low, high = timing.quartiles
        memory = result.peak_bytes.get(name)
        table.rows.append(
            [
                NETWORKS[name].summary,
                str(parameters),
                number(1e3 * timing.median),
                f"{number(1e3 * low)}..{number(1e3 * high)}",
                number(result.microseconds_per_step(name)),
                "" if ratio is None else f"{number(ratio.value)}x",
                "" if ratio is None else spread(ratio),
                str(len(timing.rounds)),
                "" if memory is None else f"{memory / 1e6:.1f}",
            ]
        )
    errors = verification.errors
    table.notes += [
        f"verified: {len(errors)} tensors agree with the float64 reference; the largest error, of "
        f"{verification.worst}, is {errors[verification.worst]:.1e} (bound {verification.bound:.1e}; "
        f"T={verification.T}, {verification.sequences} of {result.case.batch} sequences)",
        f"{NETWORKS[OURS].summary} reaches {100 * result.share.value:.1f} % of the matrix-product rate "
        f"({100 * result.share.low:.1f}..{100 * result.share.high:.1f})",
        *(
            f"not timed: {NETWORKS[name].summary}: {reason}"
            for name, reason in result.absent.items()
            if name in NETWORKS
        ),
        *(f"not measured: {name}: {reason}" for name, reason in result.absent.items() if name not in NETWORKS),
    ]
    if result.peak_bytes:
        table.notes.append(MEMORY)
    return table


def verdict_table(results: Results) -> Table:
    """Return the verdict on every floor that this run measures."""
    columns = [
        Column("case", left=True),
        Column("against", left=True),
        Column("measured"),
        Column("by round"),
        Column("floor"),
        Column("verdict", left=True),
    ]
    table = Table("floors", columns)
    for verdict in results.verdicts:
        table.rows.append(
            [
                verdict.what,
                verdict.against,
                f"{number(verdict.value)} {verdict.unit}",
                f"{number(verdict.low)}..{number(verdict.high)}",
                f"{'>=' if verdict.kind == 'at least' else '<='} {verdict.floor:g} {verdict.unit}",
                verdict.words,
            ]
        )
    table.notes += [*_totals(results.verdicts), *results.notes]
    return table


def _totals(verdicts: list[Verdict]) -> list[str]:
    judged = [verdict for verdict in verdicts if verdict.reached is not None]
    return [f"{sum(verdict.reached is True for verdict in judged)} of {len(judged)} floors reached"] if judged else []


def step_table(results: Results) -> Table:
    """Return a table of whole updates of the training loop, and the part spent in the compiled kernels."""
    columns = [
        Column("training step", left=True),
        *map(Column, ("update", "in the kernels", "outside", "share outside")),
    ]
    table = Table("training steps: ms", columns)
    for step in results.steps:
        times = [1e3 * timing.median for timing in (step.update, step.inside, step.outside)]
        table.rows.append([step.case.title, *map(number, times), f"{100 * times[2] / times[0]:.0f} %"])
    return table


def last_state_table(result: LastStateCost) -> Table:
    """Return the ways of reading the last state, compared with the cheapest."""
    columns = [Column("last state", left=True), *map(Column, ("ms", "us/step", "times output=last", "by round"))]
    table = Table(f"reading the last state: {result.case.title}, T = {result.T}, forward and backward", columns)
    for name, timing in result.timings.items():
        ratio = result.ratios[name]
        each = 1e6 * timing.median / result.T
        table.rows.append([name, number(1e3 * timing.median), number(each), f"{number(ratio.value)}x", spread(ratio)])
    return table


def write_results(folder: Path, results: dict[str, Any], tables: Sequence[Table], lines: Sequence[str] = ()) -> None:
    """Write results.json and table.txt: the lines, then the tables."""
    folder.mkdir(parents=True, exist_ok=True)
    write_bytes(folder / RESULTS, (json.dumps(results, indent=1) + "\n").encode())
    plain = "\n\n".join(["\n".join(lines), *(table.plain() for table in tables)]).strip() + "\n"
    write_bytes(folder / "table.txt", plain.encode())


def number(value: float) -> str:
    """Return a number with three significant digits, without exponents."""
    if value == 0 or not math.isfinite(value):
        return f"{value:g}"
    return f"{value:.{max(0, 2 - math.floor(math.log10(abs(value))))}f}"


def spread(ratio: Ratio) -> str:
    """Return the least and the largest ratio."""
    return f"{number(ratio.low)}..{number(ratio.high)}"
