"""Test metrics with every validation change nothing else about a run."""

from __future__ import annotations

import dataclasses

from run_cases import config, numbers

from orthornn.training import RecordConfig, train


def test_recording_the_test_metrics_changes_no_other_record():
    plain = config()
    watched = dataclasses.replace(plain, record=RecordConfig(test=True))
    without, with_tests = train(plain), train(watched)
    tests = [record for record in with_tests.records if record["kind"] == "test"]
    assert [record["step"] for record in tests] == [10, 20, 30]
    assert numbers([r for r in with_tests.records if r["kind"] != "test"]) == numbers(
        [r for r in without.records if r["kind"] != "test"]
    )
    assert with_tests.test == without.test
