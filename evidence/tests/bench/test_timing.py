"""Turns, medians and ratios, on a clock that the test turns."""

from __future__ import annotations

import gc

import pytest

from orthornn_evidence.bench import timing
from orthornn_evidence.bench.timing import Contender, Ratio, Timing, interleave, ratio


class Clock:
    """Seconds that pass when a contender says so."""

    def __init__(self):
        self.now = 0.0
        self.log = []

    def contender(self, name, seconds, **options):
        durations = iter(seconds) if isinstance(seconds, list) else None

        def run():
            assert not gc.isenabled() or len(self.log) < self.warm
            self.log.append(name)
            self.now += next(durations) if durations else seconds

        return Contender(name, run, **options)


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    clock.warm = 0
    monkeypatch.setattr(timing.time, "perf_counter", lambda: clock.now)
    yield clock
    assert gc.isenabled()


def test_they_take_turns_and_the_first_round_does_not_count(clock):
    clock.warm = 2
    found = interleave([clock.contender("a", [9.0, 1.0, 3.0, 2.0]), clock.contender("b", [7.0, 5.0, 4.0, 6.0])], 3)
    assert clock.log == ["a", "b"] * 4
    assert found["a"].rounds == [[1.0], [3.0], [2.0]]
    assert found["a"].median == 2.0
    assert found["a"].quartiles == (1.5, 2.5)
    assert found["b"].median == 5.0


def test_a_quick_one_runs_several_times_a_turn_after_some_that_do_not_count(clock):
    clock.warm = 2
    found = interleave([clock.contender("quick", 0.0035), clock.contender("slow", 1.0)], 2)
    assert [len(turn) for turn in found["quick"].rounds] == [5, 5]
    assert clock.log.count("quick") == 1 + 2 * (5 + 5)  # 15 ms that do not count, then 20 ms that do
    assert clock.log.count("slow") == 1 + 2
    clock.warm = len(clock.log) + 1
    tiny = interleave([clock.contender("tiny", 1e-5)], 1)
    assert len(tiny["tiny"].runs) == 10


def test_a_cap_ends_the_part_of_a_slow_one_but_never_before_its_first_round(clock):
    clock.warm = 3
    found = interleave(
        [
            clock.contender("ours", 0.5),
            clock.contender("capped", 2.0, cap=7.0),
            clock.contender("hopeless", 30.0, cap=1.0),
        ],
        5,
    )
    assert {name: len(t.rounds) for name, t in found.items()} == {"ours": 5, "capped": 2, "hopeless": 1}
    assert ratio(found["capped"], found["ours"]) == Ratio(4.0, 4.0, 4.0, 2)


def test_a_slow_phase_of_the_machine_leaves_a_ratio_alone():
    steady = Timing([[3.0], [30.0], [3.0]])
    ours = Timing([[1.0, 1.0], [10.0, 10.0], [1.0, 1.0]])
    assert ratio(steady, ours) == Ratio(3.0, 3.0, 3.0, 3)
    uneven = Timing([[2.0], [50.0], [4.0]])
    assert ratio(uneven, ours) == Ratio(4.0, 2.0, 5.0, 3)


def test_what_comes_before_a_run_is_not_timed(clock):
    clock.warm = 1
    before = []

    def prepare():
        before.append(len(clock.log))
        clock.now += 100.0

    found = interleave([clock.contender("a", 1.0, before=prepare)], 2)
    assert found["a"].runs == [1.0, 1.0]
    assert before == [0, 1, 2]


def test_the_collector_rests_no_longer_than_a_failed_round():
    runs = iter([None, None])

    def fails():
        next(runs)

    with pytest.raises(StopIteration):
        interleave([Contender("a", fails)], 3)
    assert gc.isenabled()
