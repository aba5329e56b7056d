"""Text with separators as people have it: pyarrow and Python's reader read the same cells, or none."""

from __future__ import annotations

import gzip

import numpy as np
import pytest

from orthornn.cli import main
from orthornn.errors import ArgumentError, DataError
from orthornn.learn.files import csv_cells
from orthornn.learn.files.columns import joined, read_columns
from orthornn.learn.files.csv_files import read_csv
from orthornn.learn.files.csv_format import CsvFormat
from orthornn.learn.files.row_numbers import numbers_rows
from orthornn.learn.predict import load
from orthornn.learn.tasks import Classify, Regress
from orthornn.learn.tasks.task_choice import choose_task

pytest.importorskip("pyarrow")
RANDOM = np.random.default_rng(3)
CELLS = [
    *("1", "-2", "+3", "007", "0x1f", "1_0", "0.5", ".5", "5.", "1e3", "1e400", "inf", "-Infinity", "nan", "-nan"),
    *("nan(1)", "NaN", "N/A", "null", "NULL", "", " ", " 1", "1 ", "1,5", "1,234", "1.234,5", "1'234.5", "true"),
    *("False", "2024-01-02", "a", "b c", '"q"', "9" * 25, "9223372036854775808", "\u0663", "\u00a05", "1\u00a0000,5"),
    *("1970 Q1", "#N/A", "-", "12.10.2020", "192.168.100.200", "1.234.567", "1.500"),
]


def read_named(path, form=CsvFormat()):  # noqa: B008
    return read_csv(path, form).columns


def by_python(path, form, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(csv_cells, "cells_by_arrow", lambda *_: None)
        return read_named(path, form)


def is_read_by_arrow(path, form, monkeypatch):
    """Return whether pyarrow reads the cells, and not Python's reader."""
    with monkeypatch.context() as patch:
        patch.setattr(csv_cells, "cells_by_python", lambda *_: 1 / 0)
        try:
            read_named(path, form)
        except ZeroDivisionError:
            return False
        except DataError:
            pass
    return True


def same(one, other):
    assert list(one) == list(other)
    for name, column in one.items():
        assert column.dtype == other[name].dtype, name
        assert type(column) is type(other[name]) is np.ndarray
        if column.dtype.kind == "f":
            np.testing.assert_array_equal(column, other[name])
        else:
            assert column.tolist() == other[name].tolist()


def cell(text, separator):
    quoted = '"' in text or separator in text or RANDOM.random() < 0.1
    return '"' + text.replace('"', '""') + '"' if quoted else text


@pytest.mark.sampled(1)
@pytest.mark.parametrize("separator", [",", ";", "\t"])
def test_pyarrow_and_python_read_the_same(tmp_path, monkeypatch, separator):
    """Columns of a few kinds of cells each, so that numbers of every convention and mixtures of them come up."""
    fast = 0
    monkeypatch.setattr(csv_cells, "_PIECE", 16)  # so that files of a few lines are read in pieces
    monkeypatch.setattr(csv_cells, "_PIECE_PER_COLUMN", 0)
    for number in range(120):
        columns = [RANDOM.choice(CELLS, RANDOM.integers(1, 5)) for _ in range(3)]
        rows = [[cell(str(RANDOM.choice(column)), separator) for column in columns] for _ in range(6)]
        path = tmp_path / f"{number}.csv"
        lines = [separator.join(row) for row in [["x", "y", "z"], *rows]] + ([""] if number % 3 else [])
        if number % 10 == 0:
            lines.insert(2, "")
        path.write_bytes("\r\n".join(lines).encode())
        marks = [CsvFormat(), CsvFormat(decimal=","), CsvFormat(decimal=",", thousands="."), CsvFormat(thousands=",")]
        form = marks[number % 4]
        results = []
        for read in (read_named, lambda *args: by_python(*args, monkeypatch)):
            try:
                results.append(read(path, form))
            except DataError as error:
                results.append(str(error))
        if isinstance(results[0], str) or isinstance(results[1], str):
            assert results[0] == results[1]
        else:
            same(*results)
        fast += is_read_by_arrow(path, form, monkeypatch)
    assert fast > 60


@pytest.mark.parametrize(
    ("cells", "numbers"),
    [
        (["2,5", "3,25"], [2.5, 3.25]),
        (["1.234,5", "2"], [1234.5, 2]),
        (["1.234.567", "2,5"], [1234567, 2.5]),
        (["1'234.5", "2"], [1234.5, 2]),
        (["1\u202f234,5", "", "2"], [1234.5, np.nan, 2]),
        (["1,234,567", "1,234"], [1234567, 1234]),
        (["1,234", "5,678"], None),  # 1234 or 1.234
        (["1,5", "2.5"], None),
        (["1 234", "5 678"], None),
        (["192.168.100.200", "192.168.100.201"], None),
        (["12.10.2020", "13.10.2020"], None),
    ],
)
def test_marks_are_read_where_they_have_one_meaning(tmp_path, cells, numbers):
    path = tmp_path / "a.csv"
    path.write_text("x;n\n" + "".join(f"{text};1\n" for text in cells))
    found = read_named(path)["x"]
    if numbers is None:
        assert found.tolist() == cells
    else:
        np.testing.assert_array_equal(found, numbers)


def test_a_convention_that_is_given_is_followed(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("x;y;z\n1.500;2,5;1 000\n2.250;3,5;5\n")
    with pytest.raises(DataError, match=r"column 'x', mean, but got only points .* decimal commas in column 'y'"):
        read_named(path)
    found = read_named(path, CsvFormat(decimal=",", thousands="."))
    assert (found["x"].tolist(), found["y"].tolist()) == ([1500, 2250], [2.5, 3.5])
    assert found["z"].tolist() == ["1 000", "5"]
    assert read_named(path, CsvFormat(decimal=",", thousands=" "))["z"].tolist() == [1000, 5]
    assert read_named(path, CsvFormat(decimal=","))["x"].tolist() == ["1.500", "2.250"]  # no numbers with a comma
    read = read_columns(path, CsvFormat(decimal=","))
    assert (read.kind("x"), read.kind("y"), read.points) == ("mixed", "numbers", ("x",))
    with pytest.raises(
        DataError,
        match=r"got '1\.500' in row 1, .*\(2 of 2 cells .* pass thousands='\.', --thousands \.",
    ):
        read.numbers("x", "inputs")
    with pytest.raises(DataError, match=r"got '1\.500' in row 1"):
        joined(read, read).numbers("x", "target")
    assert read.labels("x", "target").tolist() == ["1.500", "2.250"]
    with pytest.raises(DataError, match=r"got '1\.500' in row 1, .* --thousands \."):
        choose_task(path, "x", (), CsvFormat(decimal=","))
    assert read_columns(path, CsvFormat(decimal=",", thousands=".")).numbers("x", "inputs").tolist() == [1500, 2250]
    path.write_text("x;y\nv.1;2,5\n2020.01.02;3,5\n")
    assert (read_columns(path, CsvFormat(decimal=",")).kind("x"), read_columns(path).points) == ("text", ())
    path.write_text('x,y\n"1,500",2\n"2,500",3\n')
    with pytest.raises(DataError, match=r"two meanings.* --decimal , or --thousands ,"):
        read_columns(path).numbers("x", "inputs")
    assert read_columns(path, CsvFormat(thousands=",")).numbers("x", "inputs").tolist() == [1500, 2500]
    assert read_columns(path).kind("x") == "mixed"


def test_missing_values_in_the_spellings_of_other_programs(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("x,y\n" + "".join(f"{word},1\n" for word in ("N/A", "#N/A", "<NA>", "NaT", "n.a.", "-nan", "2")))
    assert np.isnan(read_named(path)["x"]).tolist() == [True] * 6 + [False]
    path.write_text("x,y\n-,1\n?,2\n3,4\n")
    assert read_named(path)["x"].tolist() == ["-", "?", "3"]
    np.testing.assert_array_equal(read_named(path, CsvFormat(missing=("-", "?")))["x"], [np.nan, np.nan, 3])


@pytest.mark.parametrize("name", ["a.csv", "a.tsv", "a.csv.gz", "A.CSV.GZ"])
def test_a_byte_order_mark_tabs_and_compression(tmp_path, name):
    separator = "\t" if "tsv" in name else ","
    text = "\ufeffa,b\n1,\u00e9\n2,x\n".replace(",", separator).encode()
    path = tmp_path / name
    path.write_bytes(gzip.compress(text[:9]) + gzip.compress(text[9:]) if name.lower().endswith("gz") else text)
    found = read_columns(path)
    assert {name: column.tolist() for name, column in found.columns.items()} == {"a": [1, 2], "b": ["\u00e9", "x"]}


def test_a_compressed_file_is_whole_and_bounded(tmp_path, monkeypatch):
    path, content = tmp_path / "a.csv.gz", gzip.compress(b"a,b\n" + b"1,2\n" * 999)
    for damaged in (content[:-9], content[:30], b"", b"a,b\n1,2\n", content + b"rest"):
        path.write_bytes(damaged)
        with pytest.raises(DataError, match=r"Expected a gzip file, but .*a.csv.gz is (truncated|empty)"):
            read_columns(path)
    path.write_bytes(gzip.compress(b"a\n" * (1 << 20)))
    monkeypatch.setattr("orthornn.learn.files.inflate.FREE", 1000)
    with pytest.raises(DataError, match=r"at most .* bytes when decompressed"):
        read_columns(path)


def test_an_index_without_a_name_is_pandas_index(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text(",0\n1821,269\n1822,321\n")
    found = read_columns(path)
    assert list(found.columns) == ["Unnamed: 0", "0"]
    assert numbers_rows("Unnamed: 0", found.columns["Unnamed: 0"])


def test_feather_is_the_same_as_parquet(tmp_path):
    import pyarrow
    from pyarrow import feather, parquet

    table = pyarrow.table({"x": [1.5, None], "n": [1, 2], "w": pyarrow.array(["a", None]).dictionary_encode()})
    feather.write_feather(table, tmp_path / "a.feather")
    parquet.write_table(table, tmp_path / "a.parquet")
    same(read_columns(tmp_path / "a.feather").columns, read_columns(tmp_path / "a.parquet").columns)


def test_an_empty_line_among_missing_values_is_an_error(tmp_path):
    path = tmp_path / "table.csv"
    path.write_text("a,b\n1,\n\n,x\n")
    with pytest.raises(DataError, match="line 3, has 0"):
        read_named(path)


@pytest.mark.parametrize(
    ("content", "advice"),
    [
        (
            "x,y\n1,2\n".encode("utf-16"),
            "UTF-16. Save it as UTF-8; or name its encoding, such as utf-16, with encoding, --encoding.",
        ),
        (
            "größe,y\n1,2\n".encode("latin-1"),
            "name its encoding, such as latin-1 or cp1252, with encoding, --encoding.",
        ),
        (b'x,y\n1,"2\n3,4\n', "Close the quote."),
        (b"1,2\n3,4\n", "Write a line of names above it."),
        (
            b"id,x,7\n1,2,3\n",
            "none of them a number, but got '7' in 'id, x, 7'. Write a line of names above it, or rename that column.",
        ),
        (b"x,x\n3,4\n", "Name each column, and no two alike."),
        (b"x,y\n1,2\n\n3,4\n", "Remove the empty line."),
        (b"# of a logger\nx,y\nu,v\n", "Remove the comment above the line of names."),
        (b"a logger\nx,y\nu,v\n3\n", "Remove what is above the line of names, or quote cells that hold a separator."),
        (b"x,y\n1,2,3\n3,4,5\n", "Name every column, or quote cells that hold a separator."),
        (b"x,y\n1,2,\n3,4\n", "Leave out the separator at its end, or write one in every line."),
        (b"x,y,\n1,2,3\n3,4,\n", "If only a separator ends the line, leave it out."),
        (b'x,y\n1,"2" \n3,4\n', "Leave out what is between a closing quote and the separator, be it a space."),
        (b"x,y\n1,2,3\n3,4\n", "Quote cells that hold a separator."),
    ],
)
def test_an_error_says_what_to_do(tmp_path, content, advice):
    (tmp_path / "table.csv").write_bytes(content)
    with pytest.raises(DataError) as found:
        read_columns(tmp_path / "table.csv")
    assert str(found.value).endswith(advice)


@pytest.mark.parametrize("encoding", ["latin-1", "cp1252", "utf-16", "utf-16-le", "utf-8-sig", "UTF8", "cp037"])
@pytest.mark.parametrize("suffix", [".csv", ".csv.gz"])
def test_a_file_of_another_encoding_is_read_as_the_same_text(encoding, suffix, tmp_path):
    text = "größe;Ort\n" + "".join(f"{row},5;Zürich {row % 3}\n" for row in range(50)) + '7,5;"a;b"\n'
    content, path = text.encode(encoding), tmp_path / f"table{suffix}"
    path.write_bytes(gzip.compress(content) if suffix == ".csv.gz" else content)
    (tmp_path / "plain.csv").write_text(text, encoding="utf-8")
    expected, found = read_named(tmp_path / "plain.csv"), read_named(path, CsvFormat(encoding=encoding))
    assert found.keys() == expected.keys() == {"größe", "Ort"}
    for name, column in expected.items():
        np.testing.assert_array_equal(found[name], column)


def test_a_file_that_is_not_in_the_encoding_is_an_error_that_names_the_option(tmp_path):
    (tmp_path / "table.csv").write_bytes("größe,y\n1,2\n".encode("latin-1"))
    (tmp_path / "wide.csv").write_text("a,b\n1,2\n", encoding="utf-16")
    with pytest.raises(DataError, match=r"a CSV file in latin-1, .*characters of number 0, as UTF-16 read as another"):
        read_named(tmp_path / "wide.csv", CsvFormat(encoding="latin-1"))
    for encoding in ("ascii", "utf-16", "shift-jis"):
        with pytest.raises(
            DataError, match=f"a CSV file in {encoding}, as encoding, --encoding, says, but .*table.csv"
        ):
            read_named(tmp_path / "table.csv", CsvFormat(encoding=encoding))
    for name in ("latin-77", "rot13", "base64", "idna", "punycode", "undefined", "unicode_escape", "a\0b", ""):
        with pytest.raises(
            ArgumentError, match="Expected encoding, --encoding, to be an encoding of text such as latin-1"
        ):
            Classify(data=str(tmp_path / "table.csv"), target="y", encoding=name)
    np.savez(tmp_path / "table.npz", x=np.arange(9.0), y=np.arange(9.0))
    with pytest.raises(ArgumentError, match="Expected encoding only for text files, but got 'latin-1'"):
        Regress(data=str(tmp_path / "table.npz"), target="y", encoding="latin-1").summary_lines()


def test_commands_read_files_of_other_encodings(tmp_path, capsys):
    rows = [f"{value % 7 - 3},{(value % 7 - 3) / 2}" for value in range(90)]
    text, data, run = "\n".join(["Länge,Höhe", *rows]) + "\n", tmp_path / "old.csv", str(tmp_path / "run")
    data.write_bytes(text.encode("cp1252"))
    (tmp_path / "new.csv").write_text(text, encoding="utf-8")
    assert main(["inspect", str(data)]) == 2
    assert "with encoding, --encoding" in " ".join(capsys.readouterr().err.split())
    assert main(["inspect", str(data), "--encoding", "cp1252"]) == 0
    assert "Länge" in capsys.readouterr().out
    words = ["--target", "Höhe", "--every-step", "--steps", "1", "--model", "gru", "--hidden-size", "3", "--out", run]
    assert main(["train", str(data), "--encoding", "cp1252", *words]) == 0
    assert load(run).config.task.encoding == "cp1252"
    assert main(["predict", run, str(data), "--out", str(tmp_path / "a.csv")]) == 0
    new = [run, str(tmp_path / "new.csv")]
    assert main(["predict", *new, "--out", str(tmp_path / "b.csv")]) == 2  # its names are read as others
    assert main(["predict", *new, "--encoding", "utf-8", "--out", str(tmp_path / "b.csv")]) == 0
    assert (tmp_path / "a.csv").read_bytes() == (tmp_path / "b.csv").read_bytes()
    assert main(["evaluate", *new, "--encoding", "utf-8"]) == 0
    assert main(["evaluate", run, "--encoding", "utf-8"]) == 2
    with pytest.raises(ArgumentError, match="encoding of text"):
        load(run).reading(encoding="latin-77")


@pytest.mark.parametrize("mark", ["|", " ", ":"])
def test_another_separator_is_guessed_in_the_error(tmp_path, mark):
    (tmp_path / "table.csv").write_text(f"x{mark}y\n1{mark}2\n")
    with pytest.raises(DataError, match=f"but got only 'x[{mark}]y'.*separated by '[{mark}]', say so with separator"):
        read_columns(tmp_path / "table.csv").check("y", "target")
    assert read_columns(tmp_path / "table.csv", CsvFormat(separator=mark)).check("y", "target") == "y"


def test_a_space_in_a_name_is_no_separator(tmp_path):
    (tmp_path / "table.csv").write_text("wind speed\n1\n2\n")
    with pytest.raises(DataError, match="Did you mean 'wind speed'"):
        read_columns(tmp_path / "table.csv").check("speed", "target")


@pytest.mark.parametrize("rows", [3, 5000])
def test_words_of_a_column_are_missing_values_in_the_others(tmp_path, rows):
    lines = ["None,1,None", "NA,NA,a", "null,None,NA"] * (rows // 3)
    (tmp_path / "a.csv").write_text("\n".join(["kind,x,other", *lines]) + "\n")
    form = CsvFormat(words_of=(("kind", ("NA", "None")), ("absent", ("NA",))))
    for found in (read_named(tmp_path / "a.csv", form), read_columns(tmp_path / "a.csv", form).columns):
        assert found["kind"].tolist() == ["None", "NA", None] * (rows // 3)
        assert found["other"].tolist() == [None, "a", None] * (rows // 3)
        np.testing.assert_array_equal(found["x"], [1, np.nan, np.nan] * (rows // 3))
