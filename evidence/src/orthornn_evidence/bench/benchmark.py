"""One run of the benchmark: verify everything, then time it, then judge."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import torch

from orthornn.cores import usable_cores
from orthornn.environment import environment
from orthornn.errors import ArgumentError, BackendError, OrthornnError
from orthornn.kernels.backends.cpp import extension

from . import floors
from .cases import Case, Work
from .chain import ChainSpeed, chain_speed
from .floors import Verdict, judge
from .last_state import LastStateCost, last_state_cost
from .machine import PRODUCT, PRODUCT_MULTIPLY_ADDS, product, product_rate
from .memory import peak_bytes
from .networks import NETWORKS, OURS, Runnable
from .timing import Contender, Ratio, Timing, interleave, ratio
from .training_step import StepCost, medians_by_round, step_nonlinearity, training_step
from .verify import Verification, require, verify

Say = Callable[[str], object]
IN_MEMORY = (OURS, "rnn", "lstm", "lstm-parameters")


@dataclass(frozen=True)
class BenchmarkPlan:
    """The measurements of a run.

    cases; peers: names of NETWORKS; rounds: rounds per case; cap: seconds that a slow peer may take per case.
    memory, chain, step, last_state: whether peak memory, the dense chain alone, whole training steps and the ways of
        reading the last state are measured too.
    threads_chosen: the user set torch's threads, and floors do not apply.
    """

    cases: Sequence[Case]
    peers: Sequence[str]
    work: Work = field(default_factory=Work)
    rounds: int = 7
    cap: float = 10.0
    memory: bool = True
    chain: bool = True
    step: bool = True
    last_state: bool = True
    threads_chosen: bool = False

    def __post_init__(self) -> None:
        if not self.cases:
            raise ArgumentError("Expected at least one case, but cases is empty. Name one, such as wy-256-32-b1.")


@dataclass(frozen=True)
class CaseResult:
    """The results of one case: verification, timings and memory.

    timings: by network, including a float32 matrix product. ratios: each peer's median over ours.
    share: our rate over the product's. parameters, peak_bytes: by network. absent: reasons for missing peers.
    """

    case: Case
    work: Work
    verification: Verification
    timings: dict[str, Timing]
    ratios: dict[str, Ratio]
    share: Ratio
    parameters: dict[str, int]
    peak_bytes: dict[str, int]
    absent: dict[str, str]

    def microseconds_per_step(self, name: str) -> float:
        """Return the microseconds per step of the median run, forward and backward together."""
        return 1e6 * self.timings[name].median / self.work.T


@dataclass(frozen=True)
class Results:
    """The results of a run; rates in multiply-adds per second."""

    environment: dict[str, Any]
    isa: str | None
    work: Work
    threads: int
    rate_one_thread: float
    rate_all_threads: float
    cases: list[CaseResult]
    chain: ChainSpeed | None
    steps: list[StepCost]
    last_state: LastStateCost | None
    verdicts: list[Verdict]
    notes: list[str]

    def to_dict(self) -> dict[str, Any]:
        """Return the results for JSON, with the medians next to the single runs."""
        plain = asdict(self)
        for entry, result in zip(plain["cases"], self.cases):
            entry["name"] = result.case.name
            entry["microseconds_per_step"] = {name: result.microseconds_per_step(name) for name in result.parameters}
            entry["median_seconds"] = {name: timing.median for name, timing in result.timings.items()}
        return plain


def run(plan: BenchmarkPlan, say: Say = lambda line: None) -> Results:
    """Verify all cases, then time them. Raise VerificationError, before timing anything, if one of them is wrong."""
    wanted = [(case, plan.work) for case in plan.cases]
    if plan.chain:
        n, batch = floors.CHAIN_SIZE
        wanted.append((Case("cayley", n, 0, batch), plan.work))
    if plan.step:
        for case in map(Case.parse, floors.STEP_CASES):
            wanted.append((case, replace(plan.work, nonlinearity=step_nonlinearity(case), output="last")))
    if plan.last_state:
        wanted.append((Case.parse(floors.LAST_STATE_CASE), replace(plan.work, output="last")))
    verifications = []
    for case, work in wanted:
        verifications.append(verify(case, work))
        say(f"verified {case.title}")
    require(verifications)

    build = extension.build()
    notes = [] if build else ["The compiled kernels are missing: the reference backend is timed as ours."]
    cores = usable_cores()
    if cores != floors.CORES:
        notes.append(f"The floors were set for {floors.CORES} cores; this machine has {cores}.")
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0
    if load > cores / 2:
        notes.append(
            f"The machine was busy: its load average was {load:.1f} before the run. Repeat it on an idle machine."
        )
    one, every = product_rate(plan.work, 1), product_rate(plan.work)
    say(f"float32 matrix product: {one / 1e9:.0f} G multiply-adds/s on one thread, {every / 1e9:.0f} on all")
    cases = [_time_case(plan, case, verified, say) for case, verified in zip(plan.cases, verifications)]
    chain, steps, last_state = None, [], None
    if plan.last_state:
        last_state = last_state_cost(Case.parse(floors.LAST_STATE_CASE), plan.work, plan.rounds)
        say("timed the ways of reading the last state")
    try:
        if plan.chain:
            chain = chain_speed(plan.work, *floors.CHAIN_SIZE, plan.rounds)
            say("timed only the dense chain")
        if plan.step:
            steps = [training_step(plan.work.T, plan.rounds, case) for case in map(Case.parse, floors.STEP_CASES)]
            say("timed whole training steps")
    except BackendError as error:
        notes.append(str(error))
    return Results(
        environment=environment(),
        isa=None if build is None else build.isa,
        work=plan.work,
        threads=torch.get_num_threads(),
        rate_one_thread=one,
        rate_all_threads=every,
        cases=cases,
        chain=chain,
        steps=steps,
        last_state=last_state,
        verdicts=_verdicts(plan, cases, chain, steps),
        notes=notes,
    )


def _time_case(plan: BenchmarkPlan, case: Case, verification: Verification, say: Say) -> CaseResult:
    work = plan.work
    wanted = [name for name in plan.peers if NETWORKS[name].form in (None, case.form)]
    absent = {name: reason for name in wanted if (reason := NETWORKS[name].missing()) is not None}
    networks = [Runnable.make(name, case, work) for name in (OURS, *wanted) if name not in absent]
    contenders = [
        Contender(
            network.name,
            network.run,
            network.clear,
            work.synchronize,
            plan.cap if NETWORKS[network.name].slow else None,
        )
        for network in networks
    ]
    timings = interleave(
        [*contenders, product(work)], plan.rounds, lambda done: say(f"{case.title}: round {done} of {plan.rounds}")
    )
    per_run = case.multiply_adds() * case.batch * work.T
    share = ratio(timings[PRODUCT], timings[OURS])
    factor = per_run / PRODUCT_MULTIPLY_ADDS
    memory: dict[str, int] = {}
    for name in IN_MEMORY if plan.memory else ():
        if any(network.name == name for network in networks):
            try:
                memory[name] = peak_bytes(name, case, work)
            except (OrthornnError, ValueError) as error:  # ValueError: no forkserver on this system
                absent[f"memory of {name}"] = str(error)
    return CaseResult(
        case=case,
        work=work,
        verification=verification,
        timings=timings,
        ratios={network.name: ratio(timings[network.name], timings[OURS]) for network in networks[1:]},
        share=Ratio(factor * share.value, factor * share.low, factor * share.high, share.rounds),
        parameters={network.name: network.parameters for network in networks},
        peak_bytes=memory,
        absent=absent,
    )


def _verdicts(
    plan: BenchmarkPlan, cases: Sequence[CaseResult], chain: ChainSpeed | None, steps: Sequence[StepCost]
) -> list[Verdict]:
    reason = floors.obstacle(plan.work, plan.rounds, plan.threads_chosen)
    results = {result.case.name: result for result in cases}
    verdicts = []
    for floor in floors.RATIOS:
        result = results.get(floor.case)
        if result is not None and floor.peer in result.ratios:
            against = NETWORKS[floor.peer].summary
            verdicts.append(
                judge(result.case.title, against, result.ratios[floor.peer], floor.ratio, "at least", "x", reason)
            )
    if chain is not None:
        for name, share in chain.shares.items():
            what = f"dense {name} chain n={chain.n}, B={chain.batch}"
            measured = Ratio(100 * share.value, 100 * share.low, 100 * share.high, share.rounds)
            floor_percent = 100 * floors.CHAIN_SHARE
            verdicts.append(judge(what, "matrix product", measured, floor_percent, "at least", "%", reason))
    for step in steps[:1]:
        each = [1e3 * seconds for seconds in medians_by_round(step.outside)]
        measured = Ratio(1e3 * step.outside.median, min(each), max(each), len(each))
        what = f"training step outside the kernels, {step.case.title}"
        verdicts.append(judge(what, "", measured, 1e3 * floors.STEP_SECONDS, "at most", "ms", reason))
    return verdicts
