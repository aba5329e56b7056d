"""Columns by pyarrow: the same whatever the pieces and threads, and the same as by Python's reader."""

from __future__ import annotations

import io

import numpy as np
import pytest

from orthornn.errors import DataError
from orthornn.learn.files import csv_arrow, csv_files
from orthornn.learn.files.csv_arrow import read_columns_by_arrow
from orthornn.learn.files.csv_columns import agreeing
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


def both(content, count, separator, form=CsvFormat()):  # noqa: B008
    """Return the columns by pyarrow, None if it leaves them, and by Python's reader; or the error, as text."""
    try:
        expected = csv_files._by_python("a.csv", content, separator, form).columns
    except DataError as error:
        expected = str(error)
    file = io.BytesIO(content)
    file.readline()
    return read_columns_by_arrow(file, count, separator, form), expected


def check_same(found, expected):
    for column, other in zip(found, expected.values(), strict=True):
        assert (column.dtype, type(column)) == (other.dtype, type(other)), (column, other)
        if column.dtype.kind == "f":
            np.testing.assert_array_equal(column, other)
        else:
            assert column.tolist() == other.tolist()


@pytest.fixture
def pieces(monkeypatch):
    def set_pieces(size, head=1 << 14, threads=2):
        monkeypatch.setattr(csv_arrow, "_PIECE", size)
        monkeypatch.setattr(csv_arrow, "_PIECE_PER_COLUMN", 0)
        monkeypatch.setattr(csv_arrow, "_HEAD", head)
        monkeypatch.setattr(csv_arrow, "_HEAD_PER_COLUMN", 0)
        monkeypatch.setattr(csv_arrow, "_THREADS", threads)

    return set_pieces


@pytest.mark.parametrize("later", LATER)
@pytest.mark.parametrize("separator", [",", ";"])
def test_a_later_cell_may_be_of_any_kind(pieces, separator, later):
    """The kind is guessed from cells that are like those of the first pieces; a last one is of another kind."""
    columns = {name: [*(4 * cells)[:12], later, *cells[:2]] for name, cells in FIRST.items()}
    rows = [[f'"{cell}"' if separator in cell else cell for cell in row] for row in zip(*columns.values())]
    content = "\n".join(separator.join(row) for row in [list(columns), *rows]).encode()
    pieces(70, head=content.index(b"\n") + 200)
    found, expected = both(content, len(columns), separator)
    if later == "9" * 25:  # a key next to missing ones, which float64 does not hold
        assert found is None
        return
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
        found, expected = both(content + end, 3, ",")
        assert found is not None
        check_same(found, expected)
        assert len(found[0]) == 7


@pytest.mark.parametrize("size", [1, 2, 3, 5, 100])
def test_empty_lines_are_missing_values_of_a_lone_column_and_errors_elsewhere(pieces, size):
    pieces(size)
    found, expected = both(b"x\n1\n\n\n2.5\n\n3\n\n\n", 1, ",")
    np.testing.assert_array_equal(found[0], [1, np.nan, np.nan, 2.5, np.nan, 3])
    check_same(found, expected)
    for content in (b"x,y\n1,\n\n,2\n", b"x,y\r\n\r\n,2\r\n"):
        assert both(content, 2, ",")[0] is None


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
    assert both(content, 2, ",")[0] is None


def test_whole_numbers_that_float64_does_not_hold_stay_themselves(pieces):
    """Keys with a missing cell among them are left to Python's reader, which does not make two of them one."""
    pieces(20)
    keys = ["9007199254740993", "-9007199254740995", "9223372036854775807"]
    found, expected = both("\n".join(["x", *keys, "", *keys]).encode(), 1, ",")
    assert found is None
    assert expected["x"].tolist() == [*keys, None, *keys]
    found, expected = both("\n".join(["x", *keys, "", "0.5"]).encode(), 1, ",")
    check_same(found, expected)
    assert found[0].tolist()[:3] == [float(key) for key in keys]
    found, expected = both("\n".join(["x", *keys, "9" * 25]).encode(), 1, ",")
    check_same(found, expected)
    assert found[0].dtype == object


def test_only_the_spelling_that_was_given_is_missing():
    """Usual spellings are missing in either case; `x` does not make `X` missing."""
    content = b"a,b\nx,1\nX,2\nword,3\nNULL,4\n"
    found, expected = both(content, 2, ",", CsvFormat(missing=("x",)))
    check_same(found, expected)
    assert found[0].tolist() == [None, "X", "word", None]


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
    """A NaN among numbers is none, however it is read."""
    pieces(size)
    cells = ["None", "NA", "", "null", "nan", " n/a ", "word"]
    numbers = ["1", "", "2", "NaN", "3", "4", "5"]
    content = "\n".join(["kind,x", *(",".join(row) for row in zip(cells, numbers))] + ["word,6"] * 9).encode()
    found, expected = both(content, 2, ",", form)
    check_same(found, expected)
    assert found[0].tolist()[:7] == kind
    if x is not None:
        np.testing.assert_array_equal(found[1][:7], np.array(x, float))


def test_a_column_grows_beyond_its_first_estimate(pieces):
    """Long lines first, so that there are more rows than the first piece suggests."""
    pieces(2000)
    cells = ["w" * 300] * 20 + [str(i) for i in range(3000)]
    found, expected = both("\n".join(["x,y", *(f"{cell},1" for cell in cells)]).encode(), 2, ",")
    check_same(found, expected)
    assert found[0].tolist() == cells


def test_points_and_commas_disagree_in_pieces_too(tmp_path, pieces):
    pieces(10)
    path = tmp_path / "a.csv"
    path.write_text("x;y\n" + "1.500;2,5\n" * 9)
    with pytest.raises(DataError, match="only points before three digits"):
        csv_files.read_named(path)
    assert all(type(column) is np.ndarray for column in agreeing(path, {"x": np.ones(3)}).values())
