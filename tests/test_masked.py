"""A masked value is missing on every way into a network, not the number below the mask."""

from __future__ import annotations

import numpy as np
import pytest
from numpy import ma

from orthornn import OrthogonalRNN
from orthornn._masked import as_array
from orthornn.errors import DataError, NonFiniteError
from orthornn.export import to_c
from orthornn.learn.raw_sequences import prepared

FILL = 9.96921e36


class Variable:
    """What becomes a masked array, as a variable of a netCDF file does."""

    def __array__(self, dtype=None, copy=None):
        return ma.masked_values([1.0, FILL, 3.0], FILL)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (ma.masked_values([1.0, FILL, 3.0], FILL), [1.0, np.nan, 3.0]),
        (ma.masked_values(np.float32([1.0, FILL, 3.0]), FILL), np.float32([1.0, np.nan, 3.0])),
        (ma.masked_equal([1, -999, 3], -999), [1.0, np.nan, 3.0]),
        (ma.array([True, False], mask=[False, True]), np.array([True, None])),
        (ma.array(["a", "N/A"], mask=[False, True]), np.array(["a", None], object)),
        (
            ma.array(np.array(["2024-01-01", "1970-01-01"], "M8[D]"), mask=[0, 1]),
            np.array(["2024-01-01", "NaT"], "M8[D]"),
        ),
        ([ma.array([1.0, FILL], mask=[0, 1]), [3.0, 4.0]], [[1.0, np.nan], [3.0, 4.0]]),
        ([[1.0, ma.masked], [3.0, 4.0]], [[1.0, np.nan], [3.0, 4.0]]),
        (Variable(), [1.0, np.nan, 3.0]),
        (ma.array([1, 2]), np.array([1, 2])),
        ([[1, 2], [3, 4]], np.array([[1, 2], [3, 4]])),
        (ma.array([1.0, 2.0], mask=False), [1.0, 2.0]),
    ],
)
def test_masked_values_are_missing(values, expected):
    found, expected = as_array(values), np.asarray(expected)
    assert type(found) is np.ndarray
    assert found.dtype == expected.dtype
    np.testing.assert_array_equal(found, expected)


def test_an_array_keeps_what_is_below_its_mask():
    values = ma.masked_equal([1.0, -999.0], -999)
    as_array(values)
    assert values.data.tolist() == [1.0, -999.0]


def test_networks_refuse_masked_values(tmp_path):
    x = ma.masked_values(np.ones((2, 3, 1)), FILL)
    x[1, 2, 0] = ma.masked
    reads = {"input": "real", "input_size": 1}
    for sequences in (x, list(x), x.tolist()):
        with pytest.raises(DataError):
            prepared(sequences, reads)
    assert prepared(x[:1], reads).shape == (3, 1, 1)
    with pytest.raises(DataError, match=r"whole numbers in 0\.\.4, but got None"):
        prepared(ma.masked_equal([[1, 2, 4]], 4), {"input": "tokens", "input_size": 5})
    for calibration in (x, list(x)):
        with pytest.raises(NonFiniteError, match="calibration data within the range of float32"):
            to_c(OrthogonalRNN(1, 4), tmp_path, numbers="int16", calibration=calibration)
