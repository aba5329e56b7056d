"""Dates parsed as arrays are those parsed one at a time."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orthornn.errors import DataError
from orthornn.learn.files import dates
from orthornn.learn.files.cells import kind_of_cells
from orthornn.learn.files.columns import read_columns
from orthornn.learn.files.data_frames import located, source
from orthornn.learn.files.dates import are_dates, is_date, nanoseconds_of_dates, ranks_of_dates

AWKWARD = [
    *("2020-02-29", "2019-02-29", "1900-02-29", "2000-02-29", "2021-04-31", "2020-13-01", "2020-00-10", "2020-01-00"),
    *("0000-01-01", "0001-01-01", "9999-12-31", "1677-09-21", "2262-04-12", "1969-12-31", "2020-12", "2020-13", "2020"),
    *("2020 Q4", "2020Q1", "2020-Q3", "2020-Q5", "2020-01-01T24:00", "2020-01-01T23:60", "2020-01-01T23:59:60"),
    *("2020-01-01T07", "2020-01-01 07:30", "2020-01-01T07:30:15Z", "2020-01-01T07:30:15 Z", "2020-01-01T07:30:15+0130"),
    *("2020-01-01T00:30:00+01:00", "2019-12-31T23:30:00-05:00", "2020-01-01T00:00:00+99:99", "2020-01-01T07Z"),
    *(
        "2020-01-01T07:30:15.1",
        "2020-01-01T07:30:15.123456789",
        "2020-01-01T07:30:15.1234567890",
        "2020-01-01T07:30:15.",
    ),
    *("2262-04-11T23:47:15.999999999", "2262-04-11T23:47:16", "1677-09-21T00:12:44", "2020-01-01T07:30:15.5-00:00"),
    *(
        "",
        " ",
        "2020-1-1",
        "31.12.2020",
        "2020/12/31",
        "２０２０-12-31",
        "2020-01-01\n",
        " 2020-01-01",
        "2020-01-01T",
        "x" * 99,
    ),
    *("2020-01T10:00", "2020-01T99:00", "2020-01-01\t", "2020-01-01T07:30\tZ", "2020-01-01t07:30", "-020-01-01"),
]


@st.composite
def columns(draw):
    """Usual columns: one way of writing, or two; and among them, sometimes, what is awkward."""
    shape = draw(
        st.sampled_from(
            [
                *("%Y-%m-%d", "%Y-%m-%dT%H:%M", "%Y-%m-%d %H:%M:%S", "%Y-%m-%dT%H", "iso", "%Y-%m"),
                *("%Y/%m/%d %H:%M", "%Y%m%dT%H%M%S", "%Y%m%d %H:%M", "%Y/%m/%d"),
            ]
        )
    )
    zones = draw(
        st.sampled_from(
            [
                *([""], ["Z"], ["+01:00", "+02:00", "-03:30"], [" +0545"], ["Z", "+01:00"], ["", "Z"]),
                *(["+01", "+02", "-03"], [" UTC"], ["z", " GMT"], ["+01", "+01:30"]),
            ]
        )
    )
    digits = draw(st.sampled_from([0, 1, 3, 6, 9]))
    found = []
    for moment in draw(st.lists(st.datetimes(datetime(1, 1, 1), datetime(9999, 12, 31)), min_size=1, max_size=12)):
        cell = (
            moment.isoformat()
            if shape == "iso"
            else moment.strftime(shape).zfill(
                len("2020-01-01") * (shape not in ("%Y-%m", "%Y%m%dT%H%M%S", "%Y%m%d %H:%M"))
            )
        )
        cell = cell if moment.year > 999 else f"{moment.year:04d}{cell[-len(cell) + 4 :]}"
        if shape == "%Y-%m-%d %H:%M:%S" and digits:
            cell += "." + f"{moment.microsecond:06d}789"[:digits]
        found.append(cell + (draw(st.sampled_from(zones)) if "H" in shape or shape == "iso" else ""))
    for cell in draw(st.lists(st.sampled_from(AWKWARD), max_size=2)):
        found.insert(draw(st.integers(0, len(found))), cell)
    return found


def of(function, cells):
    try:
        return [int(value) for value in function(cells)]
    except ValueError as error:
        return str(error)


@settings(deadline=None, max_examples=400)
@given(st.one_of(columns(), st.lists(st.sampled_from(AWKWARD), max_size=5)))
def test_arrays_give_what_one_at_a_time_gives(cells):
    single = of(dates._one_at_a_time, cells)
    assert of(nanoseconds_of_dates, cells) == single
    assert are_dates(cells) == all(map(is_date, cells))
    if isinstance(single, str):
        with pytest.raises(ValueError):
            ranks_of_dates(cells)
    else:
        order = {value: rank for rank, value in enumerate(sorted(set(single)))}
        assert ranks_of_dates(cells).tolist() == [order[value] for value in single]


@pytest.mark.parametrize("cell", AWKWARD)
def test_each_awkward_cell_alone_and_twice(cell):
    for cells in ([cell], [cell, cell], ["2020-02-28", cell], [cell, "2020-01-01T00:00:00.5+01:00"]):
        assert of(nanoseconds_of_dates, cells) == of(dates._one_at_a_time, cells)


def test_usual_columns_are_parsed_as_arrays(monkeypatch):
    """Also where Python leaves out the fraction of a whole second, and where the offset changes in summer."""
    monkeypatch.delattr(dates, "_one_at_a_time")
    start = datetime(2020, 2, 28, 23, 59, 59)
    moments = [start + timedelta(milliseconds=500 * count) for count in range(6)]
    zones = [timezone(timedelta(hours=1 + count % 2)) for count in range(6)]
    wanted = [int(np.datetime64(moment, "ns").astype(np.int64)) for moment in moments]
    assert nanoseconds_of_dates([moment.isoformat() for moment in moments]).tolist() == wanted
    assert nanoseconds_of_dates([moment.isoformat(" ") + "Z" for moment in moments]).tolist() == wanted
    away = [
        f"{moment.astimezone(zone):%Y-%m-%dT%H:%M:%S}{'+0' + str(1 + count % 2)}:00"
        for count, (moment, zone) in enumerate(zip([moment.replace(tzinfo=timezone.utc) for moment in moments], zones))
    ]
    assert nanoseconds_of_dates(away).tolist() == [value // 10**9 * 10**9 for value in wanted]
    assert nanoseconds_of_dates(["2020-02-29", "2020-03-01"]).dtype == np.int64


@pytest.mark.parametrize(
    ("cells", "moments"),
    [
        (["2020-12-31 21:25:58.745232+02", "2020-12-31 21:25:58.7-03"], ["19:25:58.745232", "24:25:58.7"]),
        (["2020-12-31T21:25:58+00", "2020-12-31 21:25+05"], ["21:25:58", "16:25:00"]),
        (["2020-12-31 21:25:58 UTC", "2020-12-31 21:25:58.5 GMT"], ["21:25:58", "21:25:58.5"]),
        (["2020-12-31 21:25:58,745", "2020-12-31 21:25:58,5"], ["21:25:58.745", "21:25:58.5"]),
        (["20201231T212558Z", "20201231T2125z", "20201231 212558.25+0130"], ["21:25:58", "21:25:00", "19:55:58.25"]),
        (["20201231T21", "20201231 21:25", "20201231 212558"], ["21:00:00", "21:25:00", "21:25:58"]),
        (["2020-12-31t21:25:58", "2020-12-31T21"], ["21:25:58", "21:00:00"]),
        (["2020/12/31 21:25", "2020/12/31"], ["21:25:00", "00:00:00"]),
    ],
)
@pytest.mark.parametrize("reader", ["csv", "csv by pyarrow", "frame", "parquet", "polars"])
def test_the_dates_of_databases_are_dates(tmp_path, cells, moments, reader):
    """PostgreSQL writes offsets of two digits, BigQuery UTC; they were text, refused as times."""
    day, second = np.datetime64("2020-12-31", "ns"), 10**9
    seconds = [sum(float(part) * 60**power for power, part in enumerate(m.split(":")[::-1])) for m in moments]
    expected = [int(day.astype(np.int64)) + round(one * 1000000) * second // 1000000 for one in seconds]
    assert nanoseconds_of_dates(cells).tolist() == expected
    name = tmp_path / "a.csv"
    text = "".join(
        f'"{cell}";{place}\n' if reader == "csv" else f"{cell};{place}\n" for place, cell in enumerate(cells)
    )
    if not reader.startswith("csv"):
        table = {"when": cells, "x": range(len(cells))}
        library = pytest.importorskip("polars" if reader == "polars" else "pandas")
        pytest.importorskip("pyarrow")
        name = library.DataFrame(table)
        if reader == "parquet":
            name.to_parquet(tmp_path / "a.parquet")
            name = tmp_path / "a.parquet"
    else:
        name.write_text(f"when;x\n{text}")
    kept = source(name)
    file = read_columns(located(kept))
    assert file.kind("when") == "dates"
    assert (
        np.argsort(file.order("when", "time"), kind="stable").tolist() == np.argsort(expected, kind="stable").tolist()
    )


@pytest.mark.parametrize(
    "cell",
    ["2020-12-31 21-03", "2020/12", "20201231", "20201231T2", "2020-12/31", "2020-12-31 21:25:58+2", "20201231T212"],
)
def test_what_may_be_something_else_is_no_date(cell):
    assert not is_date(cell)


def test_dates_far_away_are_put_in_order():
    found = nanoseconds_of_dates(["9999-12-31", "0000-01-01", "2020-01-01"])
    assert found.dtype == object
    assert found[0] > 2**63
    assert ranks_of_dates(["9999-12-31", "0000-01-01", "2020-01-01"]).tolist() == [2, 0, 1]


@pytest.mark.parametrize(
    ("cells", "kind"),
    [
        (["2020-01-01", "2020-01-02T10:00"], "dates"),
        (["2020-01-01", None], "dates"),
        (["2020-02-31", "2020-02-30"], "dates"),  # which do not exist: the error says so
        (["2020-01-01", "soon"], "text"),
        (["2020-01-01", "3"], "mixed"),
        (["2020-01-01", 3], "mixed"),
        ([None, None], "numbers"),
        ([], "numbers"),
    ],
)
def test_the_kind_of_a_column_with_dates(cells, kind):
    assert kind_of_cells(cells) == kind


@pytest.mark.parametrize("cell", ["2020-01T10:00", "2020 Q1 10:00", "2020-12 23:59:59Z"])
def test_a_time_of_day_belongs_to_a_day(cell):
    """A month with an hour would be put in order without its hour."""
    assert not is_date(cell)
    assert kind_of_cells([cell, "2020-01-01"]) == "text"


def test_the_error_shows_the_date_that_does_not_exist(tmp_path):
    (tmp_path / "table.csv").write_text("t,x\n2020-02-28,1\n2020-02-29,2\n2019-02-29,3\n")
    with pytest.raises(DataError, match=r"column 't', has '2019-02-29' and the like \(Day out of range"):
        read_columns(tmp_path / "table.csv").order("t", "time")
