"""Columns are the same whatever the format of the file, and no cell is read as something that it is not."""

from __future__ import annotations

import decimal
import os
import time
import tracemalloc
import warnings

import numpy as np
import pytest

from orthornn.cli.inspect import show_columns
from orthornn.errors import DataError, OrthornnWarning
from orthornn.learn.files.columns import is_table, joined, read_columns
from orthornn.learn.files.data_frames import source
from orthornn.learn.tasks import Classify, Forecast, Regress
from orthornn.learn.tasks.table_roles import roles_of
from orthornn.learn.tasks.table_sequences import sequences_of
from orthornn.learn.tasks.table_source import read_source
from orthornn.learn.tasks.task_choice import choose_task

pyarrow = pytest.importorskip("pyarrow")
from pyarrow import parquet  # noqa: E402


def text(path, *lines):
    path.write_text("\n".join(lines) + "\n")
    return path


def of(tmp_path, name="a.csv", **columns):
    """A CSV file with these columns."""
    rows = zip(*columns.values())
    return text(
        tmp_path / name, ",".join(columns), *(",".join("" if c is None else str(c) for c in row) for row in rows)
    )


@pytest.mark.parametrize("cell", ["-", "?", "oops", "1_000", "0x1f", "\u0663", "1 000"])
def test_a_text_cell_among_numbers_is_an_error_that_names_it(tmp_path, cell):
    """The column was left out without a word, and 1_000 was read as 1000."""
    path = of(tmp_path, x=[1.5, cell, *range(50)], y=np.arange(52) / 7)
    with pytest.raises(DataError) as caught:
        Forecast(data=str(path), target="y").table()
    message = str(caught.value)
    for part in (str(path), "column 'x'", "row 2", cell, "1 of 52"):
        assert part in message
    assert ("leave the cell empty" in message) == (cell in ("-", "?"))
    assert Forecast(data=str(path), target="y", inputs="y").table().roles.inputs == ["y"]


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_dates_truth_values_and_row_numbers(tmp_path, suffix):
    """Timestamps of a Parquet file were inputs, those of a CSV file were not; so were pandas' row numbers."""
    days = np.arange("2024-01-01", "2024-02-10", dtype="datetime64[D]")
    rows = len(days)
    columns = {"Unnamed: 0": np.arange(rows), "index": np.arange(1, rows + 1), "x": np.arange(rows) / 3}
    columns |= {"on": np.arange(rows) % 2 == 0, "y": np.arange(rows) / 7, "word": np.array(["a", "b"] * (rows // 2))}
    path = tmp_path / f"a.{suffix}"
    if suffix == "csv":
        of(tmp_path, when=days, **columns)
    else:
        times = pyarrow.array(days.astype("datetime64[us]"))
        parquet.write_table(pyarrow.table({"when": times, **columns}), path)
    task = Forecast(data=str(path), target="y", time="when")
    with pytest.warns(OrthornnWarning, match=r"does not see Unnamed: 0 \(numbers .*, index \(numbers the rows\), word"):
        assert task.table().roles.inputs == ["x", "on", "y"]
    assert task.table().source.table.numbers("on", "inputs").tolist() == columns["on"].astype(float).tolist()
    with pytest.warns(OrthornnWarning, match=r"when \(dates\)"):
        assert Forecast(data=str(path), target="y").table().roles.inputs == ["x", "on", "y"]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        named = Forecast(data=str(path), target="y", inputs="index,x,y").table().roles.inputs
    assert named == ["index", "x", "y"]
    with pytest.raises(DataError, match=r"numbers for inputs .* column 'when', but got"):
        Forecast(data=str(path), target="y", inputs="when").objective().trivial_loss  # noqa: B018


def test_an_index_is_told_by_its_cells_where_its_name_may_be_another_thing(tmp_path):
    path = of(tmp_path, index=[3, 1, 2, 5], x=[1, 2, 3, 4], y=[1, 2, 3, 4])
    task = Regress(data=str(path), target="y")
    table = read_source(task).table
    assert roles_of(task, table, sequences_of(task, table)).inputs == ["index", "x"]


@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin", "America/St_Johns"])
@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_times_without_a_zone_are_read_in_none(tmp_path, monkeypatch, zone, suffix):
    """In local time 02:30 and 03:00 of the night when clocks change came in the wrong order."""
    monkeypatch.setenv("TZ", zone)
    time.tzset()
    stamps = np.array(
        ["2024-03-31T01:59", "2024-03-31T02:30", "2024-03-31T03:00", "2024-03-31T03:10"], "datetime64[us]"
    )
    path = tmp_path / f"a.{suffix}"
    if suffix == "csv":
        of(tmp_path, when=stamps, x=range(4))
    else:
        parquet.write_table(pyarrow.table({"when": pyarrow.array(stamps), "x": [0, 1, 2, 3]}), path)
    order = read_columns(path).order("when", "time")
    monkeypatch.delenv("TZ")
    time.tzset()
    assert np.argsort(order).tolist() == [0, 1, 2, 3]


def test_offsets_from_utc_are_honored_and_not_mixed(tmp_path):
    path = of(tmp_path, when=["2024-01-01T10:00+02:00", "2024-01-01T09:00Z", "2024-01-01 07:59:59.9-0000"], x=[0, 1, 2])
    assert np.argsort(read_columns(path).order("when", "time")).tolist() == [2, 0, 1]
    path = of(tmp_path, when=["2024-01-01T10:00", "2024-01-01T09:00Z"], x=[0, 1])
    with pytest.raises(DataError, match="some have an offset from UTC and others have none"):
        read_columns(path).order("when", "time")
    path = of(tmp_path, when=["2024-02-30", "2024-01-01"], x=[0, 1])
    with pytest.raises(DataError, match=r"Expected numbers, or dates .*\. Write all of them in one such form"):
        read_columns(path).order("when", "time")


@pytest.mark.parametrize("first", [2**53, 2**62, 10**25])
def test_long_times_keep_their_order(tmp_path, first):
    """As float64 they were the same."""
    path = of(tmp_path, when=[first + 2, first + 1, first + 3], x=[0, 1, 2])
    assert np.argsort(read_columns(path).order("when", "time"), kind="stable").tolist() == [1, 0, 2]
    stamps = ["2024-01-01T00:00:00.000000002", "2024-01-01T00:00:00.000000001"]
    assert np.argsort(read_columns(of(tmp_path, when=stamps)).order("when", "time")).tolist() == [1, 0]


def test_names_that_are_numbers_stay_apart(tmp_path):
    path = of(tmp_path, id=["007", "7", "07", "1"], x=[1, 2, 3, 4])
    assert read_columns(path).labels("id", "sequence").tolist() == ["007", "7", "07", "1"]
    assert read_columns(path).numbers("id", "inputs").tolist() == [7, 7, 7, 1]
    path = of(tmp_path, id=["1_1", "11", "1_2"], x=[1, 2, 3])
    assert read_columns(path).labels("id", "sequence").tolist() == ["1_1", "11", "1_2"]


ROWS = {"sequence": np.repeat(np.arange(12), 5), "x": np.arange(60) / 7, "kind": np.repeat(np.arange(12) % 2, 5)}


@pytest.mark.parametrize("suffix", ["csv", "parquet", "npz"])
def test_sequence_and_mask_are_known_by_their_names_in_every_format(tmp_path, suffix):
    columns = {**ROWS, "mask": np.arange(60) % 5 != 3}
    path = tmp_path / f"a.{suffix}"
    if suffix == "csv":
        of(tmp_path, **columns)
    elif suffix == "parquet":
        parquet.write_table(pyarrow.table(columns), path)
    else:
        np.savez(path, **columns)
    task = Classify(data=str(path), target="kind")
    assert (task.table().roles.sequence, task.table().roles.mask, task.table().roles.inputs) == (
        "sequence",
        "mask",
        ["x"],
    )
    assert task.table().data.rows.lengths.tolist() == [5] * 12
    assert task.table().data.observed.tolist() == columns["mask"].tolist()
    assert task.problem().schema["sequence"] == "sequence"
    told = " ".join(task.summary_lines())
    for part in (
        "60 rows",
        "12 sequences by the column sequence",
        "inputs: x",
        "target: kind",
        "mask: mask",
        "12 steps",
    ):
        assert part in told
    other = Classify(data=str(path), target="kind", inputs="x,mask", sequence="sequence")
    assert other.table().roles.mask is None


def test_a_mask_holds_nothing_but_zeros_and_ones(tmp_path):
    path = of(tmp_path, **{**ROWS, "mask": np.arange(60) / 60})
    with pytest.raises(DataError, match=r"Expected 0 or 1 .* column 'mask', but got 0.0166667 in row 2"):
        Classify(data=str(path), target="kind").objective().trivial_loss  # noqa: B018
    path = of(tmp_path, **{**ROWS, "seen": [None, *[1] * 59]})
    with pytest.raises(DataError, match="column 'seen', but got nan in row 1"):
        Classify(data=str(path), target="kind", mask="seen").objective().trivial_loss  # noqa: B018


def test_a_missing_name_of_a_sequence_is_an_error_that_names_its_row(tmp_path):
    path = of(tmp_path, id=["a", "", "b"], x=[1, 2, 3], y=[1, 2, 3])
    with pytest.raises(
        DataError, match=r"column 'id', but got missing values, the first in row 2, line 3 of .*\. Fill"
    ):
        Regress(data=str(path), target="y", sequence="id").table()


def test_a_parquet_file_whose_columns_have_one_name(tmp_path):
    table = pyarrow.Table.from_arrays([pyarrow.array([1]), pyarrow.array([2])], names=["x", "x"])
    parquet.write_table(table, tmp_path / "a.parquet")
    with pytest.raises(DataError, match="columns with names, all different"):
        read_columns(tmp_path / "a.parquet")


def test_categories_and_whole_numbers_with_gaps_of_a_parquet_file(tmp_path):
    words = pyarrow.array(["a", "b", "a"]).dictionary_encode()
    table = pyarrow.table({"w": words, "n": pyarrow.array([1, None, 3]), "b": pyarrow.array([b"u", b"v", b"w"])})
    parquet.write_table(table, tmp_path / "a.parquet")
    found = read_columns(tmp_path / "a.parquet")
    assert found.labels("w", "").tolist() == ["a", "b", "a"]
    assert found.labels("n", "").tolist() == ["1", None, "3"]
    assert found.labels("b", "").tolist() == ["u", "v", "w"]
    np.testing.assert_array_equal(found.numbers("n", ""), [1, np.nan, 3])


def test_lengths_may_be_whole_numbers_in_floating_point(tmp_path):
    np.savez(tmp_path / "a.npz", x=np.ones((3, 4)), lengths=np.array([1.0, 4.0, 2.0]))
    assert read_columns(tmp_path / "a.npz").rows == 7


def test_which_files_are_tables(tmp_path):
    assert is_table(text(tmp_path / "a.csv", "x,y", "1,2"))
    assert not is_table(text(tmp_path / "a.csv", "1.5,2", "1,2"))
    assert [is_table(tmp_path / f"a.{suffix}") for suffix in ("parquet", "npz", "npy", "NPZ", "txt")] == [True] * 4 + [
        False
    ]


def test_names_in_messages_hold_no_control_characters(tmp_path):
    path = text(tmp_path / "a.csv", "x,\x1b[31mred", "1,2")
    with pytest.raises(DataError) as caught:
        Forecast(data=str(path), target="y").objective().trivial_loss  # noqa: B018
    assert "\x1b" not in str(caught.value).replace(os.fspath(path), "")


@pytest.mark.parametrize("suffix", ["parquet", "feather"])
def test_a_text_that_is_repeated_is_there_once(tmp_path, suffix):
    """A dictionary of one text of a megabyte and thousands of rows, a file of a megabyte, became gigabytes."""
    feather = pytest.importorskip("pyarrow.feather")
    texts = [["a" * 1000, "b", None, "a" * 1000], [None, "c", "c", "c"]]
    chunks = [pyarrow.array(part).dictionary_encode() for part in texts]
    places = pyarrow.array([*range(127), None], pyarrow.int8())
    table = pyarrow.table(
        {
            "x": pyarrow.array(np.arange(8.0)),
            "text": pyarrow.chunked_array(chunks),
            "numbers": pyarrow.DictionaryArray.from_arrays(
                pyarrow.array([0, 1, None, 0] * 2), pyarrow.array([1.5, 2.5])
            ),
        }
    )
    write = parquet.write_table if suffix == "parquet" else feather.write_feather
    write(table, tmp_path / f"a.{suffix}")
    columns = read_columns(tmp_path / f"a.{suffix}").columns
    assert columns["text"].tolist() == texts[0] + texts[1]
    assert columns["text"][0] is columns["text"][3]
    np.testing.assert_array_equal(columns["numbers"].astype(float), [1.5, 2.5, np.nan, 1.5] * 2)
    names = [str(number) for number in range(127)]
    write(
        pyarrow.table({"n": pyarrow.DictionaryArray.from_arrays(places, pyarrow.array(names))}),
        tmp_path / f"b.{suffix}",
    )
    assert read_columns(tmp_path / f"b.{suffix}").columns["n"].tolist() == [*names, None]


def test_columns_in_which_a_few_bytes_are_any_number_of_cells_are_refused(tmp_path):
    runs = pyarrow.RunEndEncodedArray.from_arrays(pyarrow.array([3], pyarrow.int32()), pyarrow.array([1.0]))
    path = tmp_path / "a.feather"
    with (
        pyarrow.OSFile(str(path), "wb") as file,
        pyarrow.ipc.new_file(file, pyarrow.schema([("r", runs.type)])) as writer,
    ):
        writer.write_batch(pyarrow.record_batch([runs], names=["r"]))
    with pytest.raises(DataError, match="Expected plain numbers, dates or text"):
        read_columns(path)


def test_one_long_name_takes_no_more_memory_than_its_file(tmp_path):
    """numpy's arrays of text take four bytes per character of the longest: 800 MB here."""
    long = "q" * 100_000
    rows = [
        f"{long if row < 4 else row // 4},{row % 7},{'a' if row % 8 < 4 else 'b'},{row // 4 % 9}" for row in range(2000)
    ]
    path = text(tmp_path / "a.csv", "sequence,x,y,g", *rows)
    task = Classify(data=str(path), target="y", group="g")
    tracemalloc.start()
    try:
        batch = next(iter(task.problem().validation(10)))
        show_columns(read_columns(path))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert batch.inputs.shape[-1] == 1
    assert peak < 100 << 20


def test_a_number_has_one_name_whatever_else_is_in_its_column(tmp_path):
    """A 1 next to 0.5 was 1.0, and alone it was 1, so that new data with whole numbers had categories that nobody knew."""
    path = tmp_path / "a.parquet"
    for cells, names in (
        ([0.5, 1.0, None, -0.0], ["0.5", "1", None, "0"]),
        ([1.0, 2.0], ["1", "2"]),
        ([1, 2], ["1", "2"]),
        ([2.0**52, float("inf")], [str(2**52), "inf"]),
    ):
        parquet.write_table(pyarrow.table({"dose": pyarrow.array(cells)}), path)
        assert read_columns(path).labels("dose", "").tolist() == names


LARGE = 2**60


@pytest.mark.parametrize(
    ("first", "second", "names"),
    [
        (pyarrow.array([1.0, None]), pyarrow.array([1, None]), ["1", None, "1", None]),
        (pyarrow.array([1.5, None]), pyarrow.array(["1.5", "x"]), ["1.5", None, "1.5", "x"]),
        (
            pyarrow.array([LARGE, LARGE + 1]),
            pyarrow.array([LARGE + 2, LARGE + 3], pyarrow.uint64()),
            [str(LARGE + place) for place in range(4)],
        ),
        (pyarrow.array([LARGE + 1, LARGE]), pyarrow.array([0.5, None]), [str(LARGE + 1), str(LARGE), "0.5", None]),
        (
            pyarrow.array(np.array(["2024-05-01", "NaT"], "datetime64[D]")),
            pyarrow.array(["2024-05-01", "2024-05-02"]),
            ["2024-05-01", None, "2024-05-01", "2024-05-02"],
        ),
        (
            pyarrow.array(np.array(["2024-05-01", "NaT"], "datetime64[D]")),
            pyarrow.array([3, 4]),
            ["2024-05-01", None, "3", "4"],
        ),
        (pyarrow.array([True, False]), pyarrow.array([True, None]), ["True", "False", "True", None]),
    ],
)
@pytest.mark.parametrize("turned", [False, True])
def test_the_cells_of_two_files_keep_their_names(first, second, names, turned, tmp_path):
    """A missing cell became the category nan, and large keys of two types of integers were rounded to one."""
    files = []
    for name, cells in (("a", first), ("b", second)):
        parquet.write_table(pyarrow.table({"k": cells}), tmp_path / f"{name}.parquet")
        files.append(read_columns(tmp_path / f"{name}.parquet"))
    if turned:
        files, names = files[::-1], names[2:] + names[:2]
    assert joined(*files).labels("k", "").tolist() == names


BIG = 2**60


@pytest.mark.parametrize("gap", [False, True])
@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_large_whole_numbers_are_not_rounded_without_a_word(suffix, gap, tmp_path):
    """With a missing cell a CSV file had them as float64, so that classes and sequences became one."""
    path = tmp_path / f"table.{suffix}"
    numbers = [BIG + row // 2 for row in range(40)]
    if gap:
        numbers[3] = None
    if suffix == "csv":
        path.write_text("y,x\n" + "".join(f"{'' if n is None else n},{row}\n" for row, n in enumerate(numbers)))
    else:
        parquet.write_table(pyarrow.table({"y": numbers, "x": range(40)}), path)
    found = read_columns(path)
    assert found.labels("y", "target").tolist() == [None if n is None else str(n) for n in numbers]
    message = rf"but got others: {BIG + 1} in .*, column 'y', row 3,.* is {BIG} in float64\. Subtract a constant"
    with pytest.raises(DataError, match=message):
        found.numbers("y", "target")
    assert np.isnan(found.numbers("y", "inputs")).sum() == gap  # its values are standardized all the same


def test_targets_far_apart_are_rounded_with_a_warning(tmp_path):
    path = tmp_path / "table.csv"
    path.write_text("y\n" + "".join(f"{row * 2**55 + 1}\n" for row in range(9)))
    with pytest.warns(
        OrthornnWarning, match=f"above {2**53} are rounded: the target {2**55 + 1} in .* Subtract a constant"
    ):
        read_columns(path).numbers("y", "target")
    for exact in ("9007199254740993.0", "1e300", str(2**60), "inf"):
        path.write_text(f"y\n{exact}\n-7\n\n5\n")
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert read_columns(path).numbers("y", "target")[0] == float(exact)


def test_inputs_that_are_rounded_are_a_warning(tmp_path):
    """They became one value, and the warning was of an input that is constant."""
    np.savez(tmp_path / "a.npz", x=2**60 + np.arange(9), y=np.arange(9))
    found = read_columns(tmp_path / "a.npz")
    with pytest.warns(
        OrthornnWarning, match=rf"above {2**53} are rounded: the input {2**60 + 1} in .*column 'x', row 2"
    ):
        found.numbers("x", "inputs")


@pytest.mark.parametrize("written", ["inf", "-inf"])
def test_an_infinite_time_is_an_error(written, tmp_path):
    path = of(tmp_path, t=[0, written, 2, 3], x=[1, 2, 3, 4])
    with pytest.raises(DataError, match=f"Expected finite times in .*, column 't', but got {written} in row 2"):
        read_columns(path).order("t", "time")
    np.savez(tmp_path / "a.npz", t=np.array([0.0, float(written), 2.0]))
    with pytest.raises(DataError, match="Expected finite times"):
        read_columns(tmp_path / "a.npz").order("t", "time")


def test_decimals_are_times_and_names_as_exact_as_integers(tmp_path):
    """Those above 2^53 were one time, and the steps in the order of the file."""
    cells = [decimal.Decimal(10**18 + row) for row in (3, 1, 2, 0)]
    column = pyarrow.array(cells, pyarrow.decimal128(25, 0))
    parquet.write_table(
        pyarrow.table({"t": column, "few": pyarrow.array([3, 1, None, 0], pyarrow.decimal128(5, 0))}),
        tmp_path / "a.parquet",
    )
    found = read_columns(tmp_path / "a.parquet")
    assert np.argsort(found.order("t", "time")).tolist() == [3, 1, 2, 0]
    assert found.labels("t", "sequence").tolist() == [str(10**18 + row) for row in (3, 1, 2, 0)]
    np.testing.assert_array_equal(found.numbers("few", "inputs"), [3, 1, np.nan, 0])


def test_durations_that_float64_does_not_tell_apart_are_an_error(tmp_path):
    for first, fine in [(2**60, False), (2**50, True)]:
        column = pyarrow.array([first, first + 1, None], pyarrow.duration("ns"))
        parquet.write_table(pyarrow.table({"d": column}), tmp_path / "a.parquet")
        if fine:
            assert len(set(read_columns(tmp_path / "a.parquet").columns["d"][:2])) == 2
        else:
            with pytest.raises(
                DataError, match=r"durations that differ in seconds of float64, but got a column of duration\[ns\]"
            ):
                read_columns(tmp_path / "a.parquet")


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_names_that_were_rounded_before_are_an_error(dtype, tmp_path):
    """A column of integers with a gap is often such numbers: two classes, or two sequences, have become one."""
    largest = 2 ** (np.finfo(dtype).nmant + 1)
    columns = {"y": [largest, 3.0, np.nan, 1.5], "z": [3.0, -largest - 2, np.nan, 1.5]}
    np.savez(tmp_path / "a.npz", **{name: np.array(values, dtype) for name, values in columns.items()})
    found = read_columns(tmp_path / "a.npz")
    assert found.labels("y", "target").tolist() == [str(largest), "3", None, "1.5"]
    for what in ("target", "sequence", "split", "group", "categories"):
        with pytest.raises(
            DataError,
            match=rf"but got {-largest - 2} in .*a.npz, column 'z', row 2, as {np.dtype(dtype)}, in which.*Int64",
        ):
            found.labels("z", what)
    assert found.labels("z", "time")[1] == str(-largest - 2)  # shown, and not compared


def test_a_table_whose_classes_pandas_has_rounded(tmp_path):
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"s": np.arange(40) // 4, "x": np.arange(40) % 7})
    ids = [BIG + row // 4 % 2 for row in range(40)]
    frame["y"] = pandas.Series(ids, dtype="Int64")
    name = source(frame)
    assert Classify(data=name, target="y", sequence="s").table().classes == [str(BIG), str(BIG + 1)]
    frame["y"] = pandas.Series([*ids[:-1], None])  # float64, in which all are one class
    name = source(frame)
    with pytest.raises(
        DataError, match=rf"no rounding can make equal, but got {BIG} in .*column 'y', row 1, as float64"
    ):
        _ = Classify(data=name, target="y", sequence="s").table().classes


@pytest.mark.parametrize("ending", [".csv", ".npz"])
def test_numbers_of_a_text_that_float64_does_not_hold_are_no_names(ending, tmp_path):
    path = tmp_path / f"a{ending}"
    if ending == ".csv":
        path.write_text("y,z\n1e400,1\n2e400,2\n5,low\n")
    else:
        np.savez(path, y=np.array([np.inf, np.inf, 5.0]), z=np.array(["1", "2", "low"]))
    found = read_columns(path)
    for what in ("target", "sequence", "split", "group", "categories"):
        if ending == ".npz":  # which has one infinity
            assert found.labels("y", what).tolist() == ["inf", "inf", "5"]
            continue
        with pytest.raises(
            DataError, match=r"but got inf in .*column 'y', row 1, .*as float64, .* Write them as words"
        ):
            found.labels("y", what)
    assert found.labels("z", "target").tolist() == ["1", "2", "low"]
    assert found.labels("y", "inspect")[0] == "inf"
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # of NumPy's arithmetic
        assert choose_task(path, "y", [])[0] == "classify"
