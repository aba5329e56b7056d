"""Floors as data, verdicts, and what is no basis for one."""

from __future__ import annotations

import pytest

from orthornn.errors import ArgumentError, OrthornnError
from orthornn_evidence.bench import floors
from orthornn_evidence.bench.cases import Case, Work
from orthornn_evidence.bench.floors import judge, obstacle
from orthornn_evidence.bench.networks import NETWORKS
from orthornn_evidence.bench.timing import Ratio

MUST_REACH = {
    "wy-256-32-b1": (35, 15),
    "wy-128-16-b1": (45, 12),
    "cayley-170-b1": (6, 2),
    "wy-256-32-b50": (5, 12),
    "cayley-170-b50": (2.2, 5.5),
    "cayley-512-b50": (1.6, 5),
}


def test_the_floors():
    for peer, place in (("rnn", 0), ("lstm", 1)):
        assert {floor.case: floor.ratio for floor in floors.RATIOS if floor.peer == peer} == {
            case: pair[place] for case, pair in MUST_REACH.items()
        }
    equal = [(floor.case, floor.ratio) for floor in floors.RATIOS if floor.peer == "lstm-parameters"]
    assert equal == [("wy-256-32-b1", 1), ("wy-256-32-b50", 1)]
    assert set(floors.CASES) == set(MUST_REACH)
    assert all(Case.parse(floor.case).name == floor.case for floor in floors.RATIOS)
    assert all(floor.peer in NETWORKS for floor in floors.RATIOS)
    assert (floors.CHAIN_SHARE, floors.STEP_SECONDS) == (0.6, 0.4e-3)


@pytest.mark.parametrize(
    ("value", "kind", "reached"),
    [(35.0, "at least", True), (34.99, "at least", False), (0.4, "at most", False), (35, "at most", True)],
)
def test_a_verdict(value, kind, reached):
    floor = 35.0 if value > 1 else 0.39
    verdict = judge("case", "peer", Ratio(value, value, value, 5), floor, kind, "x", None)
    assert verdict.reached is reached
    assert verdict.words == ("reached" if reached else "not reached")
    assert (verdict.value, verdict.low, verdict.high) == (value, value, value)


def test_rounds_that_disagree_are_said():
    assert judge("case", "peer", Ratio(36, 30, 40, 5), 35, "at least", "x", None).words == "reached, not in every round"
    assert judge("case", "peer", Ratio(34, 30, 40, 5), 35, "at least", "x", None).words.startswith(
        "not reached, not in"
    )
    assert judge("case", "peer", Ratio(36, 35, 40, 5), 35, "at least", "x", None).words == "reached"


def test_too_few_rounds_are_no_verdict_however_good():
    verdict = judge("case", "peer", Ratio(1e6, 1e6, 1e6, 4), 35, "at least", "x", None)
    assert verdict.reached is None
    assert verdict.words == "not judged: 4 rounds, 5 needed"
    excused = judge("case", "peer", Ratio(1, 1, 1, 9), 35, "at least", "x", "T=9, not 784")
    assert excused.words == "not judged: T=9, not 784"


@pytest.mark.parametrize(
    ("work", "rounds", "chosen", "word"),
    [
        (Work(), 5, False, None),
        (Work(), 4, False, "4 rounds"),
        (Work(T=783), 7, False, "T=783"),
        (Work(), 7, True, "threads"),
        (Work(output="all", nonlinearity="tanh"), 7, False, None),
    ],
)
def test_what_is_no_basis(work, rounds, chosen, word):
    reason = obstacle(work, rounds, chosen)
    assert (reason is None) if word is None else (word in reason)


@pytest.mark.parametrize(
    "name", ["wy-256-32-b1", "rotations-256-16-b1", "cayley-170-b50", "wy-1-1-b1", "linear-512-b8"]
)
def test_cases_are_read_back(name):
    assert Case.parse(name).name == name


@pytest.mark.parametrize(
    "name", ["", "wy", "wy-4-2", "wy-4-2-b", "cayley-4-2-b1", "wy-4-2-b1 ", "wy-0-1-b1", "rotations-4-b1", "dense-3-b1"]
)
def test_other_names_are_errors(name):
    with pytest.raises(ArgumentError):
        Case.parse(name)


def test_multiply_adds_are_those_of_the_two_forms():
    assert Case.parse("cayley-10-b7").multiply_adds() == 3 * 100
    assert Case.parse("linear-10-b7").multiply_adds() == 100 + 4 * 10
    assert Case.parse("wy-10-4-b7").multiply_adds() == 2 * (2 * 40 + 8) + (2 * 40 + 16)
    assert Case.parse("rotations-10-4-b7").multiply_adds() == 2 * (2 * 40 + 8 + 2 * 10) + (2 * 40 + 16)


@pytest.mark.parametrize(
    "options", [{"device": "cuda"}, {"T": 0}, {"output": "first"}, {"nonlinearity": "complex_modrelu"}]
)
def test_other_work_is_an_error(options):
    with pytest.raises(OrthornnError):
        Work(**options)
