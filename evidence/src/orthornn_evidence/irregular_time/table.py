"""The stored runs on irregular time as tables: one row per network, one column per share of dropped samples."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from statistics import fmean
from typing import Any

from orthornn._checks import check_choice

from ..markdown import markdown_table
from .runs import NETWORKS, OURS, SHARES, best_rate, of


def errors(record: Mapping[str, Any], problem: str) -> dict[tuple[str, float], list[float]]:
    """Return the test errors of all seeds by network and share, if all seeds are finished."""
    found = {}
    for dropped in SHARES[problem]:
        for network in NETWORKS:
            runs = of(record["runs"], dropped, network)
            best = best_rate(runs, record["rates"])
            own = [run["test"] for run in runs if run["rate"] == best]
            if len(own) == record["budget"]["seeds"]:
                found[network, dropped] = own
    return found


def irregular(results: Path, problem: str, dropped: str = "", network: str = "") -> str:
    """Return the table of a problem or, given a share of dropped samples, the ratio of our error to another network's.

    The table has the shares with at least one finished network.

    Args:
        results: The folder of the evidence.
        problem: Its name.
        dropped: The share of dropped samples.
        network: The other network. Default: the best of the others.

    Raises:
        ArgumentError: If the problem or the network does not exist.
    """
    check_choice("problem", problem, tuple(SHARES))
    record = json.loads((results / "irregular_time" / f"{problem}.json").read_text(encoding="utf-8"))
    found = errors(record, problem)
    if dropped:
        share, others = float(dropped), [one for one in NETWORKS if one != OURS]
        if network:
            others = [check_choice("network", network, tuple(others))]
        return f"{fmean(found[OURS, share]) / min(fmean(found[other, share]) for other in others):.2f}"
    shares = [share for share in SHARES[problem] if any((network, share) in found for network in NETWORKS)]
    rows = [[network, *(_cell(found.get((network, share))) for share in shares)] for network in NETWORKS]
    titles = ["network", *(f"{100 * share:.0f} % dropped" for share in shares)]
    return "\n".join(markdown_table(titles, rows))


def _cell(values: list[float] | None) -> str:
    return "unfinished" if values is None else f"{fmean(values):.3f} ({min(values):.3f} to {max(values):.3f})"
