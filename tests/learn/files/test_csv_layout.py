"""What is above a table in a text file, and at the ends of its lines, is no part of it."""

from __future__ import annotations

import gzip
import warnings
from dataclasses import replace

import numpy as np
import pytest

from orthornn.errors import DataError, OrthornnWarning
from orthornn.learn.files.columns import is_table, joined, read_columns
from orthornn.learn.files.csv_format import CsvFormat
from orthornn.learn.files.csv_layout import separator_in
from orthornn.learn.files.sequence_files import read_sequences
from orthornn.learn.tasks import Forecast

TABLE = {"a": [1, 3], "b": [2, 4]}
PLAIN = {
    "an empty line": "\na,b\n1,2\n3,4\n",
    "empty lines": "\n \n\t\n\na,b\n1,2\n3,4\n",
    "the separator's name": "sep=;\na;b\n1;2\n3;4\n",
    "the same, quoted": '"SEP=;"\na;b\n1;2\n3;4\n',
    "a rare separator": "\nsep=|\na|b\n1|2\n3|4\n",
    "separators at the ends": "a,b\n1,2,\n3,4,\n",
    "also of the names": "a;b;\n1;2;\n3;4;\n",
    "only of the names": "a,b,\n1,2\n3,4\n",
    "several": "a,b,,,\n1,2,,,\n3,4,,,\n",
    "spaces": 'a, "b"\n1, 2\n3,  "4"\n',
}
LEFT_OUT = {
    "a logger": (3, "Logger 3\nserial 12\n\na,b\n1,2\n3,4\n"),
    "a comment": (1, "# made by hand, today\na;b\n1;2\n3;4\n"),
    "filled lines": (3, "Logger 3,\n,\n,\na,b\n1,2\n3,4\n"),
    "another separator": (1, "Station: Berlin, Mitte, at 34 m\na;b\n1;2\n3;4\n"),
}


def written(path, text, end="\n", encoding="utf-8"):
    content = text.replace("\n", end).encode(encoding)
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return path


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("suffix", ["csv", "tsv", "csv.gz"])
@pytest.mark.parametrize("text", PLAIN)
def test_a_table_is_read_without_what_is_around_it(tmp_path, text, suffix, end):
    """An IndexError, and errors with advice that did not help."""
    text = PLAIN[text].replace("\n", end) if end == "\r" else PLAIN[text]
    path = written(tmp_path / f"a.{suffix}", text, end)
    found = read_columns(path).columns
    assert {name: column.tolist() for name, column in found.items()} == TABLE
    assert is_table(path)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
@pytest.mark.parametrize("text", LEFT_OUT)
def test_lines_above_the_names_are_left_out_with_a_warning(tmp_path, text, encoding):
    count, content = LEFT_OUT[text]
    path = written(tmp_path / "a.csv", content, encoding=encoding)
    with pytest.warns(
        OrthornnWarning, match=rf"{count} line\(s\) above the line of names, 'a, b', are left out\. To sil"
    ):
        found = read_columns(path, CsvFormat(encoding=None if encoding.startswith("utf-8") else encoding)).columns
    assert {name: column.tolist() for name, column in found.items()} == TABLE


@pytest.mark.parametrize(
    "text",
    [
        "a,b\n1,2\n3\n4,5\n6,7\n",
        "a,b\n1,2\n3\nNA,x\n6,7\n",
        "a,b\n1,2\n3\nNA,2024-01-01\n,7\n",
        "a,b\nu,v\nw\nx,y\nz,u\n",
        "a\nu,v\nx,y\n",
        "a,b\n1,2,3\n4,5,6\n",
        "a,b\n1,2\n3,4,\n",
        "a,b,\n1,2,\n3,4,5\n",
        "a,b\n1,2\n3,4\n5,6,7\n",
    ],
)
def test_no_line_of_a_damaged_table_is_left_out(tmp_path, text):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(DataError):
            read_columns(written(tmp_path / "a.csv", text))


def test_errors_count_the_lines_above(tmp_path):
    for above in ("\n\n", "sep=,\n\n"[:6] + "\n", "\r\n\r\n"):
        with pytest.raises(DataError, match="line 5, has 3"):
            read_columns(written(tmp_path / "a.csv", f"{above}a,b\n1,2\n3,4,5\n6,7\n"))
        with pytest.raises(DataError, match=r"3 numbers in .*, line 4, as in line 3, but got 2 cells"):
            read_sequences(written(tmp_path / "b.csv", f"{above}1,2,3\n4,5\n"), False)


@pytest.mark.parametrize("text", ["\n\n1,2\n3,4\n", "sep=;\n1;2\n3;4\n", "1,2,\n3,4,\n", "1;2\n3;4\n"])
def test_lines_of_numbers_are_no_table(tmp_path, text):
    path = written(tmp_path / "a.csv", text)
    assert not is_table(path)
    np.testing.assert_array_equal(read_sequences(path, False)[0], [[1, 2], [3, 4]])


@pytest.mark.parametrize(
    ("first", "separator"),
    [
        (b'"Weight, kg, net";"Height, cm, up"', ";"),
        (b'"a;b;c",d', ","),
        (b"a\tb,c,d", ","),
        (b"a", ","),
    ],
)
def test_marks_in_quotes_separate_nothing(tmp_path, first, separator):
    assert separator_in(first, is_tsv=False) == separator
    assert separator_in(b"a\tb,c,d", is_tsv=True) == "\t"
    assert separator_in(b'"a\tb",c,d', is_tsv=True) == ","


def test_a_name_may_hold_the_separator_of_another_table(tmp_path):
    for first in ('"Weight, kg, net";"Height, cm, up"', "Weight, kg;Height"):
        found = read_columns(written(tmp_path / "a.csv", f"{first}\n1;2\n3;4\n")).columns
        assert [column.tolist() for column in found.values()] == [[1, 3], [2, 4]]
        assert list(found) == [name.strip('"') for name in first.split(";")]


@pytest.mark.parametrize("suffix", ["csv", "csv.gz"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize(
    ("above", "cell", "line"),
    [("", "word", 7), ("\n\n", "word", 9), ("sep=,\n", "word", 8), ("a logger\n", "word", 8), ("", '"two\nlines"', 12)],
)
def test_an_error_names_the_line_of_a_row(tmp_path, above, cell, line, suffix, end):
    """`nan in row 6` was line 7 of the file, and further down where other lines are above the table."""
    rows = [f"{'' if i == 5 else i},{cell},{i % 7}\n" for i in range(40)]
    path = written(tmp_path / f"a.{suffix}", f"{above}x,note,y\n{''.join(rows)}", end)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(DataError, match=rf"column 'x', but got nan in row 6, line {line} of the file, as in 1 row"):
            Forecast(data=path, target="y", skipped=1).summary_lines()
        found = read_columns(path)
        whole = read_columns(written(tmp_path / "b.csv", "x,note,y\n0,word,1\n"))
    both = joined(joined(whole, found), replace(whole, line=None))
    assert both.row(6) == f"row 6, line {line} of {path}"
    assert both.row(0) == f"row 1, line 2 of {tmp_path / 'b.csv'}"
    assert both.row(41) == f"row 1 of {tmp_path / 'b.csv'}"
    path.write_bytes(b"")
    assert found.row(5).startswith("row 6, line ")  # whatever became of the file
