"""The results on a GPU as tables."""

from __future__ import annotations

from typing import Any

from orthornn.learn.report.table import Column, Table

from ..cases import Case
from ..networks import OURS
from ..tables import number
from .layers import TITLES

# Goals on an H200, T=784, B=50: how many times faster than a float32 layer of cuDNN of equal width.
FLOORS = (
    *((case, "lstm", 4.0) for case in ("cayley-128-b50", "cayley-170-b50", "cayley-256-b50", "wy-256-32-b50")),
    *(("wy-256-32-b50", "rnn", 1.5), ("cayley-170-b50", "rnn", 1.5), ("wy-512-32-b50", "lstm", 4.0)),
)
EPOCH_FLOORS = {"cayley-170-b128": 10.0, "cayley-512-b128": 30.0, "wy-512-32-b128": 30.0}  # seconds at most


def tables(results: dict[str, Any]) -> list[Table]:
    """Return the results of a run as tables, even if it is incomplete."""
    found = [_recurrences(results), *(_layer(name, row) for name, row in results["layers"].items()), _floors(results)]
    return [table for table in found if table.rows or table.notes]


def _words(name: str) -> tuple[str, str]:
    network, precision = name.rsplit(" ", 1)
    return TITLES.get(network, network), precision


def _megabytes(size: int | None) -> str:
    return "" if size is None else f"{size / 1e6:.1f}"


def _recurrences(results: dict[str, Any]) -> Table:
    columns = [Column("case", left=True), Column("backend", left=True), Column("precision", left=True)]
    columns += [Column(c) for c in ("error", "bound", "same bits", "forward us/step", "both us/step", "of limit", "MB")]
    title = f"recurrences only, {results['device']}, torch {results['torch']}, T={results['T']}"
    table = Table(title, columns)
    for name, verdict in results["verify"].items():
        case, backend, precision = name.split()
        head = [Case.parse(case).title, backend, precision]
        if "failed" in verdict:
            table.notes.append(f"failed: {name}: {verdict['failed'].splitlines()[0]}")
            continue
        row = results["recurrences"].get(name, {})
        if "failed" in row:
            table.notes.append(f"failed: {name}: {row['failed'].splitlines()[0]}")
        limit = row.get("fraction_of_limit")
        table.rows.append(
            [
                *head,
                f"{max(verdict['errors'].values()):.1e}",
                f"{verdict['bound']:.1e}" if verdict["right"] else f"{verdict['bound']:.1e} MISSED",
                "yes" if verdict["same_bits"] else "NO",
                *(number(row[k]) if k in row else "" for k in ("forward_us", "both_us")),
                "" if limit is None else f"{100 * limit:.0f} %",
                _megabytes(row.get("peak_bytes")),
            ]
        )
    return table


def _layer(name: str, row: dict[str, Any]) -> Table:
    columns = [Column("network", left=True), Column("precision", left=True)]
    columns += [Column(c) for c in ("ms", "us/step", "slower than ours", "by round", "peak MB")]
    table = Table(f"{Case.parse(name).title}: forward and backward to all parameters", columns)
    if "failed" in row:
        table.notes.append(f"failed: {row['failed'].splitlines()[0]}")
        return table
    for key, one in row["networks"].items():
        ratio = one["ratio"]
        table.rows.append(
            [
                *_words(key),
                number(one["ms"]),
                number(one["us_per_step"]),
                "" if ratio is None else f"{number(ratio[0])}x",
                "" if ratio is None else f"{number(ratio[1])}..{number(ratio[2])}",
                _megabytes(one["peak_bytes"]),
            ]
        )
    table.notes += [f"not timed: {' '.join(_words(key))}: {reason}" for key, reason in row["absent"].items()]
    return table


def _floors(results: dict[str, Any]) -> Table:
    columns = [Column("case", left=True), Column("against", left=True), Column("measured"), Column("floor")]
    table = Table("floors (set for an H200)", [*columns, Column("verdict", left=True)])

    def add(case: str, against: str, value: float, floor: str, reached: bool, unit: str) -> None:
        verdict = "reached" if reached else "missed"
        table.rows.append([Case.parse(case).title, against, f"{number(value)} {unit}", floor, verdict])

    for case, peer, floor in FLOORS:
        networks = results["layers"].get(case, {}).get("networks", {})
        ratio = networks.get(f"{peer} float32", {}).get("ratio")
        if ratio is not None and f"{OURS} float32" in networks:
            add(case, f"{TITLES[peer]} float32", ratio[0], f">= {floor:g} x", ratio[0] >= floor, "x")
    for name, row in results["epochs"].items():
        case, precision = name.split()
        if "failed" not in row:
            floor = EPOCH_FLOORS[case]
            what = f"an epoch of pixel MNIST in {precision}, without loading data"
            add(case, what, row["epoch_s"], f"<= {floor:g} s", row["epoch_s"] <= floor, "s")
        else:
            table.notes.append(f"failed: epoch {name}: {row['failed'].splitlines()[0]}")
    return table
