"""`orthornn.train(frame, "label")`: train with keywords, and show the same as the command `orthornn train`."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable
from typing import Any

from .._recording import recording
from ..cores import limited_threads
from ..errors import MissingPackageError
from . import train as training
from .predict import Loaded
from .runs.signals import terminable
from .shown import Printed


@recording()
def train(data: Any, target: str | Iterable[str] | None = None, *, task: str | None = None, **options: Any) -> Loaded:
    """Train a network on your own table, and show the same as the command `orthornn train`.

    Args:
        data: A DataFrame (pandas, polars, pyarrow, ...) with one row per step, the path of a file or of a folder of
            sounds, or the name of a task such as ``"copying"``.
        target: Column or columns to predict.
        task: ``"classify"``, ``"regress"`` or ``"forecast"``. Default: chosen by the target, as on the command line.
        **options: Options of ``orthornn train``, with underscores: ``sequence="id"``, ``model="lstm"``, ``steps=500``,
            ``out="runs/first"``. Use ``True`` and ``False`` for switches. A list is joined by commas, a dict becomes
            ``name=value``, and ``None`` stands for the default.

    Returns:
        The trained network with the weights of the best validation, as ``orthornn.load`` returns it, with its
        ``directory`` and its ``result``. ``result.test`` contains the metrics of these weights, ``result.last_test``
        the metrics of the last weights.

    Raises:
        ArgumentError: If an option is unknown or has an invalid value.
        DataError: If the data cannot be read.
        MissingPackageError: If the extra ``tables`` is not installed.

    Example::

        >>> import contextlib, io, pathlib, tempfile
        >>> out = pathlib.Path(tempfile.mkdtemp(), "run")
        >>> with contextlib.redirect_stdout(io.StringIO()):  # what it shows
        ...     trained = train("copying", steps=2, T=5, hidden_size=8, out=out)
        >>> trained.directory == out
        True
    """
    for package in ("safetensors", "msgspec"):
        if importlib.util.find_spec(package) is None:
            raise MissingPackageError.named("orthornn.train", package, "tables")
    with limited_threads(), terminable():
        return training.train(data, target, options, task=task, shown=Printed())
