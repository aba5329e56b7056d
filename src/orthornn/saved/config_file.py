"""config.json, read strictly into the dataclasses that it describes; all that is wrong with it is one error."""

from __future__ import annotations

import contextlib
import dataclasses
import difflib
import typing
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from .._files import READ, read_bytes, system_errors
from ..errors import ConfigError, DataError, OrthornnError
from ..learn.fields import described, fits, hints_of
from ..learn.systems import MODEL_OPTIONS, MODELS, Model, foreign, model_named
from .json_files import LARGEST, parse, shortened, without_sum

_LONGEST_NAME = 100
Families = Mapping[type, Mapping[str, type]]  # by base: its dataclasses, by the name that an object has for its kind
MODEL_FAMILY: Families = {Model: MODELS}


def read_plain(path: str | Path) -> Any:
    """Return the JSON value in a file, without its sum. ConfigError if it is missing or is not JSON."""
    path = Path(path)
    try:
        with system_errors(f"to read {path}", READ):
            return without_sum(parse(read_bytes(path, LARGEST), str(path)), str(path))
    except DataError as error:
        raise ConfigError(str(error)) from error


@contextlib.contextmanager
def naming(path: str | Path) -> Iterator[None]:
    """Inside, a ConfigError names the file."""
    try:
        yield
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None


def read_model(plain: object) -> Model:
    """Return the model in a parsed config.json. ConfigError lists everything that is wrong with it, at once."""
    if not isinstance(plain, Mapping):
        return read_dataclass(Model, plain, MODEL_FAMILY)  # raises
    return read_dataclass(Model, plain.get("model", {}), MODEL_FAMILY, "model")


def read_dataclass(kind: type, plain: object, families: Families, where: str = "") -> Any:
    """Return the dataclass in a parsed JSON value. ConfigError lists everything that is wrong with it, at once.

    Args:
        kind: The dataclass, or a base in `families`.
        plain: The JSON value.
        families: Families of the fields whose objects name their kind.
        where: The dotted name of the value in its file.
    """
    problems: list[str] = []
    found = _read(kind, plain, families, where, problems)
    if problems:
        raise ConfigError("the configuration is not valid:" + "".join(f"\n  {line}" for line in problems))
    return found


def _read(kind: type, plain: object, families: Families, where: str, problems: list[str]) -> Any:
    if not isinstance(plain, Mapping):
        problems.append(f"{where or 'the whole'}: needed an object, got {shortened(repr(plain))}")
        return None
    before = len(problems)
    entries = dict(plain)
    family = families.get(kind)
    if family is not None:
        name = entries.pop("name", model_named().name if kind is Model else None)
        if not isinstance(name, str) or name not in family:
            problems.append(f"{where}.name: {_unknown(name, family)}")
            return None
        kind = family[name]
    if issubclass(kind, Model):
        for option in (option for option in MODEL_OPTIONS if option in entries and option not in kind.options()):
            value = entries.pop(option)
            if value is not None:
                problems.append(f"{where}: {foreign(kind, option, value)}")
    hints = hints_of(kind)
    names = [entry.name for entry in dataclasses.fields(kind)]
    values: dict[str, Any] = {}
    for key, value in entries.items():
        place = shortened(f"{where}.{key}" if where else str(key))
        if key not in names:
            problems.append(f"{place}: {_unknown(key, names)}")
        elif dataclasses.is_dataclass(hints[key]) or hints[key] in families:
            values[key] = _read(hints[key], value, families, place, problems)
        elif fits(value, hints[key]):
            values[key] = value
        else:
            problems.append(f"{place}: needed {described(hints[key], json=True)}, got {shortened(repr(value))}")
    if len(problems) > before:
        return None
    try:
        return kind(**values)
    except OrthornnError as error:
        problems.append(f"{where or 'the whole'}: {shortened(str(error))}")
        return None


def _unknown(name: object, known: typing.Iterable[str]) -> str:
    known = list(known)
    near = difflib.get_close_matches(str(name)[:_LONGEST_NAME], known, n=1, cutoff=0.4)
    hint = f"; did you mean {near[0]!r}?" if near else f"; known: {', '.join(known)}"
    return f"unknown name {shortened(repr(name))}{hint}"
