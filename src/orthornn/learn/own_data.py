"""The task of a training: that which is named, or the one that the user's own data ask for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from .._checks import check_choice
from ..errors import ArgumentError
from .fields import spelled
from .files.cells import listed
from .files.columns import SUFFIXES, Table, is_data, read_columns, suffix_of
from .files.csv_format import format_of
from .files.data_frames import Frame, located, shown_name, source
from .files.sound_folder import is_sound
from .options import Options, TrainOptions, named, read_values
from .tasks import TASKS, Classify, Forecast, Regress, Task
from .tasks.splits import counts
from .tasks.table_options import names_in, sound_format
from .tasks.task_choice import choose_task, look_at_series

_OWN = (Classify, Regress, Forecast)
_OF_FORECASTS = ("ahead", "horizons", "quantiles", "known", "embedding")  # options with which the task is one
_OF_AMOUNTS = ("target_transform",)  # options of targets that are numbers
Say = Callable[[str], object]


def options_for(
    data: Any,
    given: Mapping[str, Any],
    say: Say,
    *,
    task: str | None = None,
    command: type | None = TrainOptions,
    prog: str = "orthornn train",
    file: Table | None = None,
) -> Options:
    """Return the options of a training on data.

    Args:
        data: The name of a task, the path of a file or of a folder of sounds, a DataFrame, or a task that is made
            already.
        given: Values of options by name.
        say: Called with a line for each choice that depends on what is in the data.
        task: One of "classify", "regress" and "forecast". Default: chosen by the target.
        command: Same as in `Options`, like prog.
        file: What is in the file of the data, if that was read before by these options. Default: None, it is read, once.

    Raises:
        ArgumentError: For data that are none of these, and for wrong options.
        DataError: If the data cannot be read.
    """
    if isinstance(data, Task):
        return Options(data, given, command=command, prog=prog)
    if isinstance(data, str) and task is None and data in TASKS:
        return Options(TASKS[data], given, command=command, prog=prog)
    name = source(data)
    given = {key: value for key, value in given.items() if value is not None}
    if "data" in given:
        raise ArgumentError(
            f"Expected the data once, but got {shown_name(name)} and --data {shown_name(given['data'])}. Leave --data out."
        )
    if task is not None:
        kind = TASKS[check_choice("task", task, tuple(own.name for own in _OWN))]
        return Options(kind, {"data": name, **given}, command=command, prog=prog)
    if not is_data(located(name)):
        raise ArgumentError(
            f"Expected a DataFrame, a file that ends in {', '.join(SUFFIXES)}, a folder of sounds or the name of a task, "
            f"but got {name!r}. Tasks: {', '.join(TASKS)}."
        )
    values = read_values(given, table_options(command), f"{prog} {shown_name(name)}")
    path, form = located(name), format_of(values)
    if file is None and (isinstance(path, Frame) or not is_sound(path)):  # sounds are read as the task says
        file = read_columns(path, form)
    chosen = _task_of_own_data(name, file, values, say)
    more: dict[str, Any] = {}
    if chosen == "forecast":
        file = file or read_columns(path, form, sound_format(values))
        more = _of_forecast(name, file, values, say)
    if "target" in values:
        given["target"] = values["target"]
    return Options(TASKS[chosen], {"data": name, **given, **more}, command=command, prog=prog, file=file)


def table_options(command: type | None = TrainOptions) -> dict[str, Any]:
    """Return the options of all tasks of a table by name."""
    return {name: option for task in _OWN for name, option in named(task, command).items()}


def _task_of_own_data(name: str | Frame, file: Table | None, values: dict[str, Any], say: Say) -> str:
    """Return the name of a task of a table; the target of arrays and sounds is set in `values`.

    file: What is in the file; None for sounds.
    """
    path, form = located(name), format_of(values)
    if "target" not in values and (suffix_of(path) in (".ts", ".npz") or (isinstance(path, Path) and path.is_dir())):
        values["target"] = "y"
    if "target" not in values:
        columns = (file or read_columns(path, form, sound_format(values))).columns
        raise ArgumentError(
            f"Expected --target COLUMN, the column to predict, but got none. {shown_name(name)} has {listed(columns)}."
        )
    ahead = [option for option in _OF_FORECASTS if option in values]
    amounts = [option.replace("_", "-") for option in _OF_AMOUNTS if option in values]
    labeled = path if isinstance(path, Path) and path.is_dir() else file or path
    kind, reason = choose_task(labeled, values["target"], ahead, form, amounts)
    say(f"{shown_name(name)}: {reason}, so the task is {kind}")
    return kind


def _of_forecast(name: str | Frame, file: Table, values: Mapping[str, Any], say: Say) -> dict[str, Any]:
    """Return the default inputs of a forecast and the default division of its series.

    skipped: such that it sees a whole period of the longest series, if that is long. split_by: time for several series
    of enough steps, which so all have a part in training.
    """
    ready = bool({"skipped", "window"} & values.keys())
    divided = bool({"split_by", "split", "group", "embedding", "validation_data", "test_data"} & values.keys())
    if ready and divided:
        return {}
    look = look_at_series(file, values["target"], values.get("sequence"), values.get("time"))
    more: dict[str, Any] = {}
    if not ready and look.period is not None and look.period >= Forecast.skipped:
        more["skipped"] = look.period + 1
        say(
            f"{shown_name(name)}: {names_in(values['target'])[0]} has a period of {look.period} steps, so {spelled(more)}"
        )
    skipped = more.get("skipped", values.get("skipped", Forecast.skipped))
    needed = skipped + (values.get("horizons") or values.get("ahead", 1))
    shares = [values.get(f"{part}_share", getattr(Forecast, f"{part}_share")) for part in ("validation", "test")]
    if not divided and look.series > 1 and look.shortest >= 3 and counts(look.shortest, *shares)[0] > needed:
        more["split_by"] = "time"
        say(
            f"{shown_name(name)}: {look.series} series, each of which is divided by time (--split-by sequences: whole ones)"
        )
    return more
