"""The words of a result's row: no more digits than its spread over seeds supports."""

from __future__ import annotations

import pytest

from orthornn_evidence.papers.results import best_test, reproduced


def row(value, spread, form="{:.4g}", best=None):
    return {"reproduced": value, "spread": spread, "form": form, "test_selected": best}


@pytest.mark.parametrize(
    ("value", "spread", "shown"),
    [
        (0.00017213909, 7.513e-06, "0.000172 ± 0.000008"),
        (0.30785, 0.002192, "0.308 ± 0.002"),
        (0.3023, 0.01202, "0.302 ± 0.012"),  # a first digit of 1 stands with the second
        (0.5, 0.0096, "0.500 ± 0.010"),
        (1234.5, 95.0, "1234 ± 95"),
        (1234.5, 150.0, "1234 ± 150"),
        (12.34, 1.5, "12.3 ± 1.5"),
    ],
)
def test_digits_end_where_the_spread_begins(value, spread, shown):
    assert reproduced(row(value, spread)) == shown


def test_one_seed_and_equal_seeds_keep_their_format():
    assert reproduced(row(0.123456, None)) == "0.1235"
    assert reproduced(row(0.25, 0.0)) == "0.25 ± 0"
    assert reproduced(row(None, None)) == "-"


def test_a_format_with_fixed_decimals_or_percent_is_kept():
    assert reproduced(row(0.123456, 0.1, "{:.3f}")) == "0.123 ± 0.100"
    assert reproduced(row(0.9412, 0.0021, "{:.1%}")) == "94.1% ± 0.2%"


def test_the_best_test_value_has_the_digits_of_the_reproduced_one():
    assert best_test(row(0.3023, 0.01202, best=0.3081999)) == "0.308"
    assert best_test(row(0.3023, None, best=0.3081999)) == "0.3082"
    assert best_test(row(0.3023, 0.01)) == ""


def test_a_spread_far_below_one_is_written_with_an_exponent():
    row = {"form": "{:.2g}", "reproduced": 5.4e-28, "spread": 9.4e-28}
    assert reproduced(row) == "5.4e-28 ± 9.4e-28"
    assert reproduced({**row, "reproduced": 0.0123, "spread": 0.0002}) == "0.0123 ± 0.0002"
