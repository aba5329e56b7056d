"""`orthornn.train(frame, "label")`: a training with keywords, which shows what the command `orthornn train` shows."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable
from typing import Any

from .._recording import recording
from ..cores import limited_threads
from ..errors import MissingPackageError
from . import train as training
from .predict import Loaded
from .shown import Printed
from .terminated import terminable


@recording()
def train(data: Any, target: str | Iterable[str] | None = None, *, task: str | None = None, **options: Any) -> Loaded:
    """Train a network on a table of your own, and show what the command `orthornn train` shows.

    Args:
        data: A DataFrame (pandas, polars, pyarrow, ...) with one row per step, the path of a file or of a folder of sounds,
            or the name of a task such as ``"copying"``.
        target: The column to predict, or several.
        task: ``"classify"``, ``"regress"`` or ``"forecast"``. Default: chosen by the target, as on the command line.
        **options: The options of ``orthornn train``, with underscores: ``sequence="id"``, ``model="lstm"``, ``steps=500``,
            ``out="runs/first"``. ``True`` and ``False`` switch, a list is joined by commas, a dict becomes
            ``name=value``, ``None`` is the default.

    Returns:
        The trained network with the weights of the best validation, as ``orthornn.load`` returns it, with its ``directory``
        and its ``result``, whose ``test`` has the metrics of these weights; ``result.last_test`` has those of the last ones.

    Raises:
        ArgumentError: For an unknown option or value.
        DataError: If the data cannot be read.
        MissingPackageError: Without the extra ``tables``.

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
