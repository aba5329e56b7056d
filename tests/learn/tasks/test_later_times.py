"""The steps after the end have the times that a longer table has there."""

from __future__ import annotations

import contextlib
from pathlib import Path

import numpy as np
import pytest

from orthornn.learn.files.columns import Table
from orthornn.learn.files.dates import respelled
from orthornn.learn.tasks.later_times import clock_of

HOUR = 3600 * 10**9


def dates(start, stop, unit, spell=str, every=1):
    return [spell(one) for one in np.arange(start, stop, dtype=f"datetime64[{unit}]")[::every]]


def working(start, count):
    return [str(np.busday_offset(start, k, roll="forward")) for k in range(count)]


GRIDS = {
    "days": dates("2020-02-20", "2020-03-10", "D"),
    "weeks": dates("2019-12-02", "2020-03-10", "D", every=7),
    "hours": dates("2020-12-30T20", "2021-01-01T08", "h", lambda one: f"{one}:00".replace("T", " ")),
    "quarters of an hour at an offset": dates("2020-12-31T20:00", "2021-01-01T03:00", "m", "{}+05:30".format, 15),
    "milliseconds": dates("2020-12-31T23:59:59.990", "2021-01-01T00:00:00.009", "ms", "{}Z".format),
    "working days": working("2021-12-20", 19),
    "first of the month": [f"{one}-01" for one in dates("2020-01", "2021-08", "M")],
    "last of the month": dates("2020-02", "2021-09", "M", lambda one: str((one + 1).astype("datetime64[D]") - 1)),
    "last working day": dates(
        "2020-02", "2021-09", "M", lambda one: str(np.busday_offset(one + 1, -1, roll="forward"))
    ),
    "months": dates("2020-01", "2021-08", "M"),
    "quarters": [f"{year} Q{quarter}" for year in range(2017, 2022) for quarter in range(1, 5)][:19],
    "days in digits": dates("2020-12-20", "2021-01-08", "D", lambda one: str(one).replace("-", "")),
    "whole numbers": [str(3 * k - 5) for k in range(19)],
    "tenths": [f"{0.1 * k:.10g}" for k in range(19)],
}


def table(cells, given=None):
    for kind in (np.int64, np.float64, object) if given is None else (given,):
        with contextlib.suppress(ValueError):
            return Table(Path("t.csv"), {"when": np.array(cells).astype(kind)})
    raise AssertionError


@pytest.mark.parametrize("name", GRIDS)
@pytest.mark.parametrize("gap", [False, True])
def test_times_go_on_as_those_of_the_longer_table(name, gap):
    cells, hidden = GRIDS[name][:-4], GRIDS[name][-4:]
    if gap:
        cells = cells[:3] + cells[4:]
    rows = np.random.default_rng(0).permutation(len(cells))
    file = table([cells[row] for row in rows])
    clock = clock_of(file, "when", np.argsort(rows), np.array([len(cells)]))
    last = int(np.argmax(rows))
    assert [clock.after(last, k) for k in (1, 2, 3, 4)] == hidden
    assert clock.after(last, 0) == cells[-1]


def test_dates_of_a_frame_go_on():
    cells = dates("2020-02-20", "2020-03-10", "D")
    clock = clock_of(table(cells[:-2], "datetime64[ns]"), "when", np.arange(len(cells) - 2), np.array([len(cells) - 2]))
    assert [clock.after(len(cells) - 3, k)[:10] for k in (1, 2)] == cells[-2:]


@pytest.mark.parametrize("cells", [["2020-01-01"], ["1", "1", "2"], ["0", "1", "3.5", "3.7", "9"]])
def test_what_is_on_no_grid_has_no_clock(cells):
    assert clock_of(table(cells), "when", np.arange(len(cells)), np.array([len(cells)])) is None


@pytest.mark.parametrize(
    ("cell", "later", "wanted"),
    [
        ("2020-12-31", HOUR, "2020-12-31T01:00:00"),
        ("2020-12", 24 * HOUR, "2020-12-02T00:00:00"),
        ("2020-12-31T23:00:00+02:00", 10**6, "2020-12-31T23:00:00.001+02:00"),
        ("2020-12-31 23:59:59,5 UTC", HOUR // 36000 * 5, "2021-01-01 00:00:00,0 UTC"),
        ("2020123123", HOUR, "2021010100"),
    ],
)
def test_a_date_that_its_form_has_no_place_for_is_spelled_in_full(cell, later, wanted):
    assert respelled(cell, later) == wanted
