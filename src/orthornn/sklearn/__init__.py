"""scikit-learn estimators: sequences in, classes or numbers out.

X is an array (n, T, C), or (n, T) for one channel; a list of arrays (T_i, C) or (T_i,) of unequal lengths; or a table
from any library that narwhals supports (pandas, polars), with one row per sequence and one column per step. A pandas
table with a two-level index, sequence and time, has one row per step and one column per channel. With ``layout="nct"``,
the order of aeon and sktime, arrays are (n, C, T), and lists contain arrays (C, T_i).

Inputs are standardized by the training part. The weights with the best validation are used; the validation part is a
share of the sequences, chosen by `random_state`.
"""

from __future__ import annotations

from ..errors import MissingPackageError

try:
    import sklearn.base  # noqa: F401
except ModuleNotFoundError as error:
    raise MissingPackageError.named("orthornn.sklearn", "scikit-learn", "baselines") from error

from .classifier import OrthogonalClassifier
from .forecaster import OrthogonalForecaster
from .regressor import OrthogonalRegressor

__all__ = ["OrthogonalClassifier", "OrthogonalForecaster", "OrthogonalRegressor"]
