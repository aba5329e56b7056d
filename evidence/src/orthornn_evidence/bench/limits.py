"""The least time that this machine needs for a case, derived from its measured rates.

    time of a pass of the chain = T max(B multiply-adds / rate, bytes of weights / bandwidth)
    limit = passes * time of the chain + T B multiply-adds of the gradient of W / rate of all threads

A sequence runs on one thread, since its steps depend on each other: the chain of B sequences has min(B, threads). Every
thread reads all weights in each step. Weights that fit in a core's first cache never limit it: a core reads that cache as
fast as it multiplies. The activation, the input and whatever surrounds the kernels are not counted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from .cases import Case, Work
from .machine import bandwidth, product_rate

FIRST_CACHE = 32 * 1024
"""Bytes; no core of the last fifteen years has less for its data."""


@dataclass(frozen=True)
class Rates:
    """Speeds of the machine: multiply-adds per second on one thread and on all, and bytes per second by size.

    bandwidths: By the number of bytes that one thread reads again and again.
    """

    threads: int
    one_thread: float
    all_threads: float
    bandwidths: dict[int, float]


@dataclass(frozen=True)
class Limit:
    """The least seconds of a run, and whether reading weights ("bandwidth") or "multiply-adds" limit its chain."""

    seconds: float
    chain_by: str


def measured_rates(cases: Sequence[Case], work: Work) -> Rates:
    """Return the rates of this machine, with the bandwidth for the weights of each case."""
    sizes = {round(case.weight_bytes()) for case in cases}
    bandwidths = {size: bandwidth(size) for size in sorted(sizes) if size > FIRST_CACHE}
    return Rates(torch.get_num_threads(), product_rate(work, 1), product_rate(work), bandwidths)


def limit(case: Case, work: Work, rates: Rates) -> Limit | None:
    """Return the limit of a case, or None for a linear recurrence, whose last state needs no step of each sequence."""
    if case.form == "linear":
        return None
    together = min(case.batch, rates.threads)
    rate = min(together * rates.one_thread, max(rates.one_thread, rates.all_threads))
    multiplies = case.batch * case.chain_multiply_adds() / rate
    bytes_per_second = rates.bandwidths.get(round(case.weight_bytes()))
    reads = 0.0 if bytes_per_second is None else case.weight_bytes() / bytes_per_second
    seconds = max(multiplies, reads)
    if work.passes == "both":
        seconds = 2 * seconds + case.batch * case.gradient_multiply_adds() / rates.all_threads
    return Limit(work.T * seconds, "bandwidth" if reads > multiplies else "multiply-adds")
