"""Sequences from .ts files, the text format of the UCR/UEA archive that aeon, sktime and tslearn read.

Lines that begin with # are comments, lines that begin with @ a header; below @data a line is a sequence: channels apart
by colons, values by commas, the class or the target last. ? and NaN are missing values. They become the columns x0, x1,
..., y and sequence.

With time stamps, @timestamps true, a value is a pair, (time,value), and they become the column time, too. The steps of
a sequence are in the order of their times; if the channels have different times, some values are missing.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from ...errors import DataError
from .cells import is_number, shown, typed
from .dates import nanoseconds_of_dates

_MISSING = ("?", "nan", "")
_PAIR = re.compile(r"\(([^(),]*),([^(),]*)\)")
_COLON = re.compile(r":(?![^(]*\))")  # that is in no pair


def read_ts(path: Path) -> tuple[dict[str, np.ndarray], int]:
    """Return the columns of a .ts file and how many of them are channels. Raises DataError if it is not one."""
    try:
        lines = path.read_text("utf-8-sig").split("\n")  # which reads \r\n as \n; a label may hold other separators
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(
            f"Expected to read {path} as text in UTF-8, but got: {error}. Correct its name, or convert it."
        ) from error
    header: dict[str, str] = {}
    start = None
    for number, line in enumerate(lines):
        word, _, rest = line.strip().partition(" ")
        if word.lower() == "@data":
            start = number + 1
            break
        if word.startswith("@"):
            header[word[1:].lower()] = rest.strip()
        elif word and not word.startswith("#"):
            raise DataError(f"Expected a line with @ or # in {path}, line {number + 1}, but got {shown(line)}.")
    if start is None:
        raise DataError(
            f"Expected a line @data in {path}, but it is missing. The file may be truncated, or not a .ts file."
        )
    stamped, has_classes, has_numbers = (_flag(header, name) for name in ("timestamps", "classlabel", "targetlabel"))
    labeled = has_classes or has_numbers
    sequences: list[np.ndarray] = []
    targets: list[str] = []
    times: list[str] = []
    for number, line in enumerate(lines[start:], start=start + 1):
        text = line.strip()
        if not text or text.startswith("#"):
            continue
        parts = _COLON.split(text) if stamped else text.split(":")
        if labeled:
            targets.append(parts.pop().strip())
            if not targets[-1] or not parts:
                raise DataError(f"Expected values and a class in {path}, line {number}, but got {shown(text)}.")
        if stamped:
            own, channels = _pairs(path, number, parts)
            times += own
        else:
            channels = [_values(path, number, part) for part in parts]
        if sequences and len(channels) != len(sequences[0]):
            raise DataError(
                f"Expected {len(sequences[0])} channels in {path}, line {number}, as in the first sequence, but got "
                f"{len(channels)}. The file may be truncated."
            )
        if len({len(channel) for channel in channels}) != 1:
            raise DataError(
                f"Expected channels of one length in {path}, line {number}, but got "
                f"{', '.join(str(len(channel)) for channel in channels[:20])} values."
            )
        sequences.append(np.stack(channels))
    if not sequences:
        return {}, 0
    classes = header.get("classlabel", "").split()[1:]
    strange = sorted(set(targets) - set(classes)) if labeled and classes else []
    if strange:
        raise DataError(f"Expected the classes {' '.join(classes)[:200]} in {path}, but got {shown(strange[0])}.")
    columns, features = _columns(path, header, sequences, targets, has_numbers)
    return ({**columns, "time": typed(times)} if stamped else columns), features


def _flag(header: Mapping[str, str], name: str) -> bool:
    return header.get(name, "false").split(" ")[0].lower() == "true"


def _pairs(path: Path, line: int, parts: Sequence[str]) -> tuple[list[str], list[np.ndarray]]:
    """Return the times of a sequence, in order, and the values of each channel at these times, NaN if missing."""
    found: list[dict[str, float]] = []
    for part in parts:
        pairs = _PAIR.findall(part)
        if part.strip() not in ("", "?") and _PAIR.sub("", part).strip(", "):
            raise DataError(f"Expected pairs (time,value) in {path}, line {line}, but got {shown(part)}.")
        own = {time.strip(): value for time, value in pairs}
        if len(own) < len(pairs):
            raise DataError(f"Expected each time once in a channel of {path}, line {line}, but got a duplicate.")
        found.append({time: float(_values(path, line, value)[0]) for time, value in own.items()})
    times = list(dict.fromkeys(time for own in found for time in own))
    if not times:
        raise DataError(f"Expected a step in {path}, line {line}, but got none.")
    try:
        order = np.argsort(_instants(times), kind="stable").tolist()
    except ValueError as error:
        raise DataError(
            f"Expected numbers, or dates such as 2020-12-31 23:59:00, as times in {path}, line {line}, but got "
            f"{shown(times[0])} and the like ({error})."
        ) from None
    ordered = [times[place] for place in order]
    return ordered, [np.array([own.get(time, np.nan) for time in ordered]) for own in found]


def _instants(times: list[str]) -> np.ndarray:
    """Return sort keys for times. Raise ValueError if they are neither numbers nor dates."""
    return np.array([float(time) for time in times]) if all(map(is_number, times)) else nanoseconds_of_dates(times)


def _columns(
    path: Path, header: dict[str, str], sequences: list[np.ndarray], targets: list[str], numbers: bool
) -> tuple[dict[str, np.ndarray], int]:
    lengths = [sequence.shape[1] for sequence in sequences]
    said = header.get("dimensions") or header.get("dimension") or str(len(sequences[0]))
    if said != str(len(sequences[0])):
        raise DataError(
            f"Expected {said[:20]} channels in {path}, as its line @dimensions, but got {len(sequences[0])}."
        )
    if header.get("univariate", "").lower() == "true" and len(sequences[0]) > 1:
        raise DataError(f"Expected one channel in {path}, as its line @univariate, but got {len(sequences[0])}.")
    length = header.get("serieslength")
    if header.get("equallength", "").lower() == "true" and (
        len(set(lengths)) > 1 or length not in (None, str(lengths[0]))
    ):
        raise DataError(
            f"Expected sequences of one length{f', {length[:20]},' if length else ''} in {path}, as its header has it, but "
            f"got {min(lengths)} to {max(lengths)} steps. The file may be truncated."
        )
    rows = np.concatenate(sequences, 1)
    columns = {f"x{channel}": values for channel, values in enumerate(rows)}
    if targets:
        wrong = [target for target in targets if numbers and not is_number(target)]
        if wrong:
            raise DataError(f"Expected numbers as targets in {path}, but got {shown(wrong[0])}.")
        cells = np.array([float(target) for target in targets]) if numbers else np.array(targets, object)
        columns["y"] = np.repeat(cells, lengths)
    columns["sequence"] = np.repeat(np.arange(len(sequences)), lengths)
    return columns, len(rows)


def _values(path: Path, line: int, text: str) -> np.ndarray:
    cells = [cell.strip() for cell in text.split(",")]
    wrong = [cell for cell in cells if not is_number(cell) and cell.lower() not in _MISSING]
    if wrong:
        raise DataError(f"Expected numbers in {path}, line {line}, but got {shown(wrong[0])}.")
    return np.array([np.nan if cell.lower() in _MISSING else float(cell) for cell in cells])
