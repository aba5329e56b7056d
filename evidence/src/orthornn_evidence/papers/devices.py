"""Tables of the measurements for devices: networks for audio, and networks in integers."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from orthornn._checks import check_choice

from ..markdown import markdown_table

Record = Mapping[str, Any]


def amplifier(results: Path, kind: str) -> str:
    """Return a part of results/amplifier.json: "long", "brief", "comparisons", "rates" or "costs".

    Raises:
        ArgumentError: If the kind is unknown.
    """
    check_choice("kind", kind, _AUDIO)
    return "\n".join(_AUDIO[kind](json.loads((results / "amplifier.json").read_text(encoding="utf-8"))))


def microcontroller(results: Path, kind: str) -> str:
    """Return a table of results/microcontroller.json, "mnist" or "sensor", or of microcontroller-tables.json, "tables".

    Raises:
        ArgumentError: If the kind is unknown.
    """
    check_choice("kind", kind, _INTEGERS)
    name = "microcontroller-tables.json" if kind == "tables" else "microcontroller.json"
    record = json.loads((results / name).read_text(encoding="utf-8"))
    return "\n".join(_INTEGERS[kind](record[kind]))


def _errors(training: Record, name: str = "esr") -> list[float]:
    """Return the errors of the seeds; infinite if a run diverged."""
    return [math.inf if seed[name] is None else seed[name] for seed in training["seeds"]]


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _audio_table(record: Record, length: str) -> list[str]:
    rows = [(row, row[length]) for row in record["networks"] if length in row]
    several = any(len(training["seeds"]) > 1 for _, training in rows)
    titles = ["network", "parameters", "ns per sample", "learning rate", "ESR", "ESR without pre-emphasis"]
    titles += ["seeds", "ESR of each"] if several else []
    lines = []
    for row, training in sorted(rows, key=lambda entry: _mean(_errors(entry[1]))):
        errors = _errors(training)
        cells = [row["name"], row["parameters"], f"{row['ns']:.0f}", f"{training['rate']:g}"]
        cells += [f"{_mean(errors):.4f}", f"{_mean(_errors(training, 'plain_esr')):.4f}"]
        cells += [len(errors), " ".join(f"{error:.4f}" for error in errors)] if several else []
        lines.append(cells)
    return markdown_table(titles, lines)


def _audio_comparisons(record: Record) -> list[str]:
    ours = [row for row in record["networks"] if row["name"].startswith("orthornn")]
    others = [row for row in record["networks"] if row not in ours]
    lines = []
    for row in ours:
        for length in ("long", "brief"):
            there = [other for other in others if length in other]
            if length not in row or not there:
                continue
            name = f"{row['name'].removeprefix('orthornn ')}, {row['parameters']} parameters, {row['ns']:.0f} ns"
            cells = [name, f"{record['protocol']['updates'][length]} updates"]
            for what, unit in (("parameters", "parameters"), ("ns", "ns")):
                other = min(there, key=lambda entry: abs(math.log(entry[what] / row[what])))
                cells.append(f"{other['name']}, {other[what]:.0f} {unit}: {_verdict(row[length], other[length])}")
            lines.append(cells)
    return markdown_table(["orthornn", "training", "gated, nearest in parameters", "gated, nearest in cost"], lines)


def _verdict(ours: Record, other: Record) -> str:
    """Return the ratio of two networks' errors in words, and whether every seed agrees."""
    mine, theirs = _errors(ours), _errors(other)
    ratio = _mean(theirs) / _mean(mine)
    apart = max(mine) < min(theirs) or max(theirs) < min(mine)
    words = f"{ratio:.1f} times the error" if ratio >= 1 else f"orthornn has {1 / ratio:.1f} times its error"
    return words if apart else f"{words}, but seeds overlap"


def _audio_rates(record: Record) -> list[str]:
    trainings = [
        (f"{row['name']}, {record['protocol']['updates'][length]} updates", row[length]["validation_by_rate"])
        for row in record["networks"]
        for length in ("brief", "long")
        if length in row
    ]
    rates = sorted({float(rate) for _, by_rate in trainings for rate in by_rate})
    lines = []
    for name, by_rate in trainings:
        found = {float(rate): value for rate, value in by_rate.items()}
        cells = [
            "" if rate not in found else "diverged" if found[rate] is None else f"{found[rate]:.4f}" for rate in rates
        ]
        lines.append([name, *cells])
    return markdown_table(["ESR on validation, seed 0", *(f"{rate:g}" for rate in rates)], lines)


def _audio_costs(record: Record) -> list[str]:
    return markdown_table(["network", "ns per sample"], [(n, f"{ns:.1f}") for n, ns in record["ns_per_sample"].items()])


def _percent(value: float) -> str:
    return f"{100 * value:.2f} %"


def _mnist(record: Record) -> list[str]:
    parts = [record["int16"], record["int8"]]
    weights = [f"{4 * record['parameters']} bytes of parameters", *(f"{p['weights']} bytes" for p in parts)]
    rows = [
        ["accuracy on 10000 test images", *(_percent(p["accuracy"]) for p in (record, *parts))],
        ["flash, weights and multipliers", *weights],
        ["flash, code (-O2, Cortex-M4)", "", *(f"{p['code']} bytes" for p in parts)],
        ["RAM, one state", "", *(f"{p['ram']} bytes" for p in parts)],
        ["multiply-adds per pixel", "", *(p["multiply_adds"] for p in parts)],
        ["instructions per pixel, Cortex-M4", "", *(p["instructions"] for p in parts)],
    ]
    return markdown_table(["", "float32 in torch", "int16 in C", "int8 in C"], rows)


def _lstm(record: Record) -> list[str]:
    """Return a sentence about the LSTM of CMSIS-NN."""
    return [
        f"For comparison, the int8 LSTM of CMSIS-NN (`{record['version']}`, compiled with -Ofast) with {record['units']} "
        f"units, {record['multiply_adds']} multiply-adds per step, takes {record['instructions']} instructions per step on "
        f"the same emulated processor, without a readout."
    ]


def _sensor(record: Record) -> list[str]:
    seeds = record["seeds"]
    lines = []
    for numbers in ("float32", "int16", "int8"):
        rows = [seed if numbers == "float32" else seed[numbers] for seed in seeds]
        right = [row["accuracy"] for row in rows]
        each = " ".join(f"{100 * value:g}" for value in right)
        cost = ["", "", "", ""]
        if numbers != "float32":
            most = {name: max(row[name] for row in rows) for name in ("weights", "code", "ram", "instructions")}
            cost = [*(f"{most[name]} bytes" for name in ("weights", "code", "ram")), str(most["instructions"])]
        lines.append([numbers, _percent(_mean(right)), each, *cost])
    titles = ["", "mean", "of each seed", "weights", "code", "RAM", "instructions per step, Cortex-M4"]
    return markdown_table(titles, lines)


def _tables(record: Record) -> list[str]:
    """Return the scores of each data set in float32 and in integers, and their cost: the largest sizes of all sets."""
    kinds = ("float32 in C", "int16 in C", "int8 in C")
    lines = []
    for row in record["sets"]:
        scores = [row["float32"], *(row[kind]["score"] for kind in kinds[1:])]
        said = [f"{100 * value:.1f} %" if row["metric"] == "accuracy" else f"{value:.4g}" for value in scores]
        costs = [f"{row[kind]['weights']}, {row[kind]['ram']}" for kind in kinds]
        lines.append([row["set"], row["metric"], *said, *costs])
    return markdown_table(
        ["set", "metric", "float32", "int16", "int8", *(f"{kind}: flash, RAM" for kind in kinds)], lines
    )


_AUDIO = {
    "long": lambda record: _audio_table(record, "long"),
    "brief": lambda record: _audio_table(record, "brief"),
    "comparisons": _audio_comparisons,
    "rates": _audio_rates,
    "costs": _audio_costs,
}
_INTEGERS = {"mnist": _mnist, "lstm": _lstm, "sensor": _sensor, "tables": _tables}
