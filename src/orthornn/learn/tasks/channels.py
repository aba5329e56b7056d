"""Channels: how the columns of a file become the inputs of a network.

number        the column's numbers; where one is missing, the whole step is
last          the last number seen in the sequence, at first the training mean
interpolated  between the numbers before and after, at the ends the nearest; the training mean where there is none
missing       1 where the column's value is missing, else 0
category      1 where the column holds this value, else 0; a value that training did not have is 0 everywhere
series        the number of the series among those of training; how many there are for another one
elapsed       the time since the step before that is there, in seconds or in the column's unit; see elapsed.py

A category next to the input weights is an embedding: its value's column of the weights is added.

A channel with a lead is the same of a step that is so much later, whose value is known beforehand (a price, a calendar). In
the last steps of a sequence there is none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ..._warnings import warn
from ...errors import DataError
from ..files.cells import listed
from ..files.columns import Table
from ..files.same_names import in_known_spelling

MODES = ("error", "hold", "indicator", "interpolate", "skip")
LARGEST_VOCABULARY = 1000


class Channel(NamedTuple):
    """An input. value: the value of a category; the training mean of what is filled in. lead: how much later it is."""

    column: str
    kind: str = "number"
    value: str | float | None = None
    lead: int = 0

    @property
    def name(self) -> str:
        """The name of the input."""
        later = f"+{self.lead}" if self.lead else ""
        if self.kind == "elapsed":
            return f"{self.column} since the step before"
        if self.kind == "category":
            return f"{self.column}{later}={self.value}"
        return f"{self.column}{later} is missing" if self.kind == "missing" else f"{self.column}{later}"

    @staticmethod
    def of(description: Mapping[str, Any]) -> list[Channel]:
        """Return the channels of description.json."""
        entries = description.get("channels") or [[name] for name in description["columns"]]
        leads = description.get("leads") or [0] * len(entries)
        return [Channel(*entry)._replace(lead=lead) for entry, lead in zip(entries, leads)]


def described(channels: Sequence[Channel]) -> dict[str, Any]:
    """Return what description.json holds of the channels: their names, and what is not as usual."""
    found: dict[str, Any] = {"columns": [channel.name for channel in channels]}
    leads = [channel.lead for channel in channels]
    if any(leads) or any(channel.kind != "number" for channel in channels):
        found["channels"] = [list(channel[:3]) for channel in channels]
    return {**found, "leads": leads} if any(leads) else found


def category_channels(file: Table, column: str, rows: np.ndarray, missing: bool) -> list[Channel]:
    """Return one channel for each value that the column has in these rows. missing: One more for the absence of one."""
    labels = file.labels(column, "categories")[rows]
    found = sorted({label for label in labels if label is not None})
    if not found or len(found) > LARGEST_VOCABULARY:
        raise DataError(
            f"Expected 1 to {LARGEST_VOCABULARY} different values in {file.path}, column {column!r}, but got "
            f"{len(found)}. Leave it out, or group its values."
        )
    more = [Channel(column, "missing")] if missing else []
    return [*(Channel(column, "category", value) for value in found), *more]


def channel_values(
    file: Table,
    channels: Sequence[Channel],
    order: np.ndarray,
    lengths: np.ndarray,
    series: Sequence[str] = (),
    stretches: np.ndarray | None = None,
) -> np.ndarray:
    """Return the inputs (R, I), float64, in this order of rows; NaN where a value is missing and nothing fills it in.

    That of the kind elapsed is 0: it depends on which steps are there.

    Args:
        series: The names of the series of training, for a channel of that kind.
        stretches: Lengths of the pieces of the sequences between which nothing is interpolated: those of training,
            validation and test. Default: None, the sequences themselves.
    """
    if channels[-1].kind == "elapsed":  # which depends on the steps that are there
        rest = channel_values(file, channels[:-1], order, lengths, stretches=stretches)
        return np.concatenate([rest, np.zeros((len(order), 1))], 1)
    if channels[-1].kind == "series":
        numbers = {name: place for place, name in enumerate(series)}
        labels = in_known_spelling(file.labels(channels[-1].column, "sequence")[order], series)
        own = np.array([numbers.get(label, len(series)) for label in labels], np.float64)
        if len(channels) == 1:
            return own[:, None]
        rest = channel_values(file, channels[:-1], order, lengths, stretches=stretches)
        return np.concatenate([rest, own[:, None]], 1)
    now = list(dict.fromkeys(channel._replace(lead=0) for channel in channels))
    values = dict(zip(now, _values_now(file, now, order, lengths, lengths if stretches is None else stretches)))
    columns = []
    for channel in channels:
        found = values[channel._replace(lead=0)]
        columns.append(_later(found, lengths, channel.lead) if channel.lead else found)
    return np.stack(columns, 1)


def beyond(channels: Sequence[Channel], lengths: np.ndarray) -> np.ndarray:
    """Return where the step that a channel is of is behind the end of its sequence: bool (R, I)."""
    left = np.repeat(lengths.cumsum(), lengths) - np.arange(lengths.sum())  # steps until the end, at least 1
    return left[:, None] <= np.array([channel.lead for channel in channels])


def _later(values: np.ndarray, lengths: np.ndarray, lead: int) -> np.ndarray:
    found = np.full(len(values), np.nan)
    found[:-lead] = values[lead:]
    found[beyond([Channel("", lead=lead)], lengths)[:, 0]] = np.nan
    return found


def _values_now(
    file: Table, channels: Sequence[Channel], order: np.ndarray, lengths: np.ndarray, stretches: np.ndarray
) -> list[np.ndarray]:
    """Return the inputs of each step itself, (R,) each."""
    found: dict[str, np.ndarray] = {}
    labels: dict[str, np.ndarray] = {}
    columns = []
    categorical = {channel.column for channel in channels if channel.kind == "category"}
    flagged = {channel.column for channel in channels if channel.kind == "missing"}
    for channel in channels:
        name = channel.column
        if name in categorical:
            if name not in labels:
                known = {str(one.value) for one in channels if one.column == name and one.kind == "category"}
                labels[name] = in_known_spelling(file.labels(name, "inputs")[order], known)
                _name_unknown(file, name, labels[name], known)
            there = np.array([label is not None for label in labels[name]])
            if channel.kind == "missing":
                columns.append((~there).astype(np.float64))
            else:
                values = (labels[name] == channel.value).astype(np.float64)
                columns.append(values if name in flagged else np.where(there, values, np.nan))
            continue
        if name not in found:
            found[name] = file.numbers(name, "inputs")[order]
        values = found[name]
        if channel.kind == "missing":
            columns.append(np.isnan(values).astype(np.float64))
        elif channel.kind == "last":
            columns.append(_last_seen(values, lengths, float(channel.value or 0)))
        elif channel.kind == "interpolated":
            columns.append(_interpolated(values, stretches, float(channel.value or 0)))
        else:
            columns.append(values)
    return columns


def _name_unknown(file: Table, column: str, labels: np.ndarray, known: set[str]) -> None:
    unknown = sorted({label for label in labels if label is not None} - known)
    if unknown:
        warn(
            f"{file.path}, column {column!r}: {listed(map(str, unknown))} was not in the training data, and is 0 in "
            f"every input of the column. To silence this, replace it by a value that was."
        )


def _last_seen(values: np.ndarray, lengths: np.ndarray, first: float) -> np.ndarray:
    places = np.arange(len(values))
    starts = np.repeat(lengths.cumsum() - lengths, lengths)
    last = np.maximum.accumulate(np.where(np.isnan(values), -1, places))
    return np.where(last >= starts, values[last.clip(0)], first)


def _interpolated(values: np.ndarray, lengths: np.ndarray, otherwise: float) -> np.ndarray:
    filled = values.copy()
    for start, length in zip(lengths.cumsum() - lengths, lengths):
        own = filled[start : start + length]
        gone = np.isnan(own)
        if gone.any():
            there = np.flatnonzero(~gone)
            own[gone] = np.interp(np.flatnonzero(gone), there, own[there]) if len(there) else otherwise
    return filled
