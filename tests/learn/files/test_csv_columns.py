"""Columns of text cells: numbers under a convention, or text for certain."""

from __future__ import annotations

import numpy as np
import pytest

from orthornn.learn.files.csv_columns import column_of_cells, column_of_texts, proves_text
from orthornn.learn.files.csv_format import CsvFormat, spellings

PROVING = ["word", "007", "-00", "2024-01-02", "0x1f", "1_0", "nan(1)", "true", "1.2.3", "12:30", "\u0663", "-"]
OPEN = ["1", "-2.5", "1e400", "inf", "1,5", ",5", "5,", "1.234,5", "1'234", "", "nan", "NA", "9" * 25, "+3", "0.5"]


@pytest.mark.parametrize("separator", [",", ";"])
@pytest.mark.parametrize("form", [CsvFormat(), CsvFormat(decimal=","), CsvFormat(thousands=",")])
def test_a_cell_that_proves_text_does_so_among_any_others(form, separator):
    for cell in PROVING:
        assert proves_text(cell, form), cell
        for other in (*OPEN, *PROVING):
            found = column_of_texts([other, cell], separator, form).values
            assert (type(found), found.dtype, found[1]) == (np.ndarray, object, cell)


def test_numbers_under_some_convention_and_missing_values_prove_nothing():
    assert not any(proves_text(cell, CsvFormat()) for cell in OPEN)
    assert not proves_text("-", CsvFormat(missing=("-",)))
    assert proves_text("1,5", CsvFormat(decimal="."))


def test_a_whole_number_that_stands_for_a_missing_value_may_have_decimals():
    assert spellings("-9999,none") == ("-9999", "-9999.0", "-9999.00", "-9999.000", "none")
    assert spellings("-99.5") == ("-99.5",)
    assert spellings(None) == spellings("") == ()


def test_margins_and_missing_values_are_the_same_where_pyarrow_holds_the_cells():
    """Every character that Python strips, and every spelling in either case, next to words that keep the column text."""
    arrow = pytest.importorskip("pyarrow")
    cells = [f"{chr(code)}w{chr(code)}" for code in range(0x3100) if not chr(code).isalnum()]
    cells += ["NaN", "nAn", " #n/A ", "-", "None", "word", "\u212a", "NULL\u00a0"] * 3
    for form in (
        CsvFormat(),
        CsvFormat(missing=("-", "word")),
        CsvFormat(words=("None", "NULL")),
        CsvFormat(usual=False),
    ):
        for chosen in (cells, cells[-24:]):  # few of which are different
            expected = column_of_cells(chosen, ",", form).values.tolist()
            chunks = arrow.chunked_array([chosen[:9], chosen[9:]], arrow.string())
            assert column_of_cells(chunks, ",", form).values.tolist() == expected
