"""Cells by pyarrow: the same columns whatever the pieces and threads, and the same as by Python's reader."""

from __future__ import annotations

import io

import numpy as np
import pytest

from orthornn.errors import DataError
from orthornn.learn.files import csv_cells, csv_columns
from orthornn.learn.files.cells import number
from orthornn.learn.files.csv_cells import cells_by_arrow, cells_by_python
from orthornn.learn.files.csv_columns import column_of_cells
from orthornn.learn.files.csv_files import read_csv
from orthornn.learn.files.csv_format import CsvFormat

pytest.importorskip("pyarrow")

FIRST = {  # cells that show the kind of a column
    "whole": ["1", "-20", "3"],
    "numbers": ["1.5", "", "-3e2"],
    "commas": ["1,5", "-2,25", ""],
    "text": ["2020-01-01", "2020-01-02", "b", ""],
    "repeated": ["red", "red", "blue", "red", "blue", ""],
    "names": ["007", "008", "009"],
    "padded": [" 1", "20 ", "nan "],
    "missing": ["", "NA", "null"],
}
LATER = [
    "4",
    "5.5",
    "6,5",
    "word",
    "08",
    "0x1f",
    "+3",
    "inf",
    "nAn",
    " n/a ",
    "9" * 25,
    "1e400",
    "nan(1)",
    "-0",
    "0e5",
    "",
]


def typed(found, form):
    return [column_of_cells(cells, found.separator, form) for cells in found.columns]


def both(content, separator, form=CsvFormat()):  # noqa: B008
    """Return the columns by pyarrow, None if it leaves them, and by Python's reader; or the error, as text."""
    try:
        expected = typed(cells_by_python("a.csv", content, separator), form)
    except DataError as error:
        expected = str(error)
    found = cells_by_arrow("a.csv", io.BytesIO(content), separator)
    return None if found is None else typed(found, form), expected


def check_same(found, expected):
    for column, other in zip(found, expected, strict=True):
        assert (column.values.dtype, column.marks) == (other.values.dtype, other.marks), (column, other)
        assert type(column.values) is type(other.values) is np.ndarray
        if column.values.dtype.kind == "f":
            np.testing.assert_array_equal(column.values, other.values)
        else:
            assert column.values.tolist() == other.values.tolist()


@pytest.fixture
def pieces(monkeypatch):
    def set_pieces(size, sample=1000, threads=2):
        monkeypatch.setattr(csv_cells, "_PIECE", size)
        monkeypatch.setattr(csv_cells, "_PIECE_PER_COLUMN", 0)
        monkeypatch.setattr(csv_columns, "_SAMPLE", sample)
        monkeypatch.setattr(csv_cells, "_THREADS", threads)

    return set_pieces


@pytest.mark.parametrize("later", LATER)
@pytest.mark.parametrize("separator", [",", ";"])
def test_a_later_cell_may_be_of_any_kind(pieces, separator, later):
    """The first cells are looked at; a last one, maybe a key that float64 does not hold, is of another kind."""
    columns = {name: [*(4 * cells)[:12], later, *cells[:2]] for name, cells in FIRST.items()}
    rows = [[f'"{cell}"' if separator in cell else cell for cell in row] for row in zip(*columns.values())]
    content = "\n".join(separator.join(row) for row in [list(columns), *rows]).encode()
    pieces(70, sample=6)
    found, expected = both(content, separator)
    assert found is not None
    check_same(found, expected)


@pytest.mark.sampled(17)
@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("size", [*range(1, 12), 40, 1000])
def test_every_size_of_pieces_gives_the_same_columns(pieces, size, threads):
    """Quotes, ends of lines of two bytes, and quoted ends of lines at every border; and a last line without an end."""
    lines = [
        "x,w,n",
        '1,"a, b",1',
        '2,"say ""it""",2',
        "3,plain,3",
        '4,"two\r\nlines",4',
        '5,"",5',
        '6,"\n\n",6.5',
        ",,7",
    ]
    content = "\r\n".join(lines).encode()
    pieces(size, threads=threads)
    for end in (b"", b"\r\n", b"\r\n\r\n\r\n"):
        found, expected = both(content + end, ",")
        assert found is not None
        check_same(found, expected)
        assert len(found[0].values) == 7


@pytest.mark.parametrize("size", [1, 2, 3, 5, 100])
def test_empty_lines_are_missing_values_of_a_lone_column_and_errors_elsewhere(pieces, size):
    pieces(size)
    found, expected = both(b"x\n1\n\n\n2.5\n\n3\n\n\n", ",")
    np.testing.assert_array_equal(found[0].values, [1, np.nan, np.nan, 2.5, np.nan, 3])
    check_same(found, expected)
    for content in (b"x,y\n1,\n\n,2\n", b"x,y\r\n\r\n,2\r\n"):
        assert both(content, ",")[0] is None


@pytest.mark.parametrize("size", [1, 7, 100])
@pytest.mark.parametrize(
    "content",
    [
        b"x,y\n1,2\n3\n4,5\n",  # a short line
        b"x,y\n1,2\n3,4,5\n",
        b'x,y\n1,2\n3,a "b" c\n',  # quotes inside a cell
        b'x,y\n1,2\n3,"open\n',
        b"x,y\n1,2\n3\r,4\n",
        b"x,y\n1,2\n3\0,4\n",
        b"x,y\n1,2\n\xff,4\n",
        b"x,y\n1,2\n" + b"w" * 131_073 + b",4\n",
        b"x,y\n",
    ],
)
def test_what_python_would_read_otherwise_is_left_to_it(pieces, size, content):
    pieces(size)
    assert both(content, ",")[0] is None


def test_whole_numbers_that_float64_does_not_hold_stay_themselves(pieces):
    """Of keys with a missing cell among them no two become one."""
    pieces(20)
    keys = ["9007199254740993", "-9007199254740995", "9223372036854775807"]
    found, expected = both("\n".join(["x", *keys, "", *keys]).encode(), ",")
    check_same(found, expected)
    assert found[0].values.tolist() == [*keys, None, *keys]
    found, expected = both("\n".join(["x", *keys, "", "0.5"]).encode(), ",")
    check_same(found, expected)
    assert found[0].values.tolist()[:3] == [float(key) for key in keys]
    found, expected = both("\n".join(["x", *keys, "9" * 25]).encode(), ",")
    check_same(found, expected)
    assert found[0].values.dtype == object


def test_only_the_spelling_that_was_given_is_missing():
    """Usual spellings are missing in either case; `x` does not make `X` missing."""
    content = b"a,b\nx,1\nX,2\nword,3\nNULL,4\n"
    found, expected = both(content, ",", CsvFormat(missing=("x",)))
    check_same(found, expected)
    assert found[0].values.tolist() == [None, "X", "word", None]


@pytest.mark.parametrize("size", [12, 1000])
@pytest.mark.parametrize(
    ("form", "kind", "x"),
    [
        (CsvFormat(), [None] * 6 + ["word"], [1, None, 2, None, 3, 4, 5]),
        (CsvFormat(usual=False), ["None", "NA", None, "null", "nan", "n/a", "word"], [1, None, 2, None, 3, 4, 5]),
        (CsvFormat(usual=False, missing=("NA",)), ["None", None, None, "null", "nan", "n/a", "word"], None),
        (CsvFormat(words=("None", "null")), ["None", None, None, "null", None, None, "word"], None),
    ],
)
def test_usual_spellings_of_a_missing_value_can_be_words(pieces, size, form, kind, x):
    """A NaN among numbers is no number, however it is read; its spelling is there where it can be a word."""
    pieces(size)
    cells = ["None", "NA", "", "null", "nan", " n/a ", "word"]
    numbers = ["1", "", "2", "NaN", "3", "4", "5"]
    content = "\n".join(["kind,x", *(",".join(row) for row in zip(cells, numbers))] + ["word,6"] * 9).encode()
    found, expected = both(content, ",", form)
    check_same(found, expected)
    assert found[0].values.tolist()[:7] == kind
    if x is not None:
        np.testing.assert_array_equal([number(cell) for cell in found[1].values[:7]], np.array(x, float))
        assert ("NaN" in found[1].values.tolist()) == (not form.usual)


def test_a_column_grows_beyond_its_first_estimate(pieces):
    """Long lines first, so that there are more rows than the first piece suggests."""
    pieces(2000)
    cells = ["w" * 300] * 20 + [str(i) for i in range(3000)]
    found, expected = both("\n".join(["x,y", *(f"{cell},1" for cell in cells)]).encode(), ",")
    check_same(found, expected)
    assert found[0].values.tolist() == cells


def test_points_and_commas_disagree_in_pieces_too(tmp_path, pieces):
    pieces(10)
    path = tmp_path / "a.csv"
    path.write_text("x;y\n" + "1.500;2,5\n" * 9)
    with pytest.raises(DataError, match="only points before three digits"):
        read_csv(path)
    path.write_text("x;y\n" + "1.500;2.5\n" * 9)
    assert all(type(column) is np.ndarray for column in read_csv(path).columns.values())
