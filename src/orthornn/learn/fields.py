"""The fields of dataclasses as options: their names, types, help, defaults and valid values.

A field and the docstring below it define an option once: the command line, its help, the entries of config.json and the
keywords of Python derive from them. In a field's metadata, `option` is the option's name if it differs from the
field's; `parse` converts text if the type does not suffice; `positional` is the name that help shows for a positional
argument; `alone` is the value of an option that is given without one; a field `without_effect`, which a class has from its
base and does not use, is no option.
"""

from __future__ import annotations

import ast
import contextlib
import dataclasses
import functools
import inspect
import itertools
import numbers
import textwrap
import types
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from .._checks import check_choice
from ..errors import ArgumentError, ArgumentTypeError

_UNIONS = (typing.Union, types.UnionType)
_METAVARS = {int: "INT", float: "FLOAT", str: "STR", bool: "{True,False}", Path: "PATH"}
_TYPED = {int: "a whole number", float: "a number", str: "text", bool: "True or False", Path: "a path"}
_JSON = {int: "an integer", float: "a number", str: "a string", bool: "true or false", type(None): "null"}


@dataclass(frozen=True)
class Option:
    """An option.

    Attributes:
        name: Name in Python: ``recurrent_lr`` is ``--recurrent-lr`` on the command line.
        kind: Its type.
        help: Description.
        default: Value if none is given; ``dataclasses.MISSING`` for a required argument.
        parse: Function that converts its text; None if the type suffices.
        place: Names of the fields that lead to it, starting with the outermost dataclass.
        positional: Name that help shows for a positional argument; "" for an option.
        alone: Value if the option is given without one; "" if it requires a value.
    """

    name: str
    kind: Any
    help: str = ""
    default: Any = None
    parse: Callable[[str], Any] | None = None
    place: tuple[str, ...] = ()
    positional: str = ""
    alone: str = ""

    @property
    def typed(self) -> str:
        """The option as it is typed, or for a positional argument the name shown in help."""
        return self.positional or f"--{self.name.replace('_', '-')}"

    @property
    def is_switch(self) -> bool:
        """Whether it is a switch without a value: ``--force`` and ``--no-force``."""
        return self.kind is bool

    @property
    def several(self) -> Any:
        """The tuple type of several values, if it has one, otherwise None."""
        return next((part for part in _parts(self.kind) if typing.get_origin(part) is tuple), None)

    @property
    def count(self) -> int:
        """Number of values that follow it."""
        return len(typing.get_args(self.several)) if self.several else 1

    def value(self, given: Any, prog: str = "") -> Any:
        """Return a given value, from Python or as text, converted to the option's type.

        Text is parsed. If the type is text, a list is joined by commas, and a dict becomes ``name=value``.

        prog: Command to name in errors, whose help explains the options.

        Raises:
            ArgumentError: If the value is invalid for the option.
        """
        if isinstance(given, str):
            return self._read(_text(given), prog)
        if callable(given) or isinstance(given, (bytes, bytearray)):  # such as a network as the model
            own = given.__name__ if isinstance(given, type) else type(given).__name__
            raise ArgumentTypeError(
                f"Expected {described(self.kind)} as {self.typed}, but got {own}. Pass its value as text, a number or a "
                f"list.{explained(prog)}"
            )
        if given is None or (self.alone and given is False):
            return None
        if self.alone and given is True:
            return self.alone
        if self.several and isinstance(given, (list, tuple)):
            kinds = [kind for kind in typing.get_args(self.several) if kind is not Ellipsis]
            return tuple(
                dataclasses.replace(self, kind=kind).value(one, prog)
                for one, kind in zip(given, itertools.cycle(kinds))
            )
        if isinstance(given, (np.bool_, np.integer, np.floating)):
            given = float(str(given)) if isinstance(given, np.floating) else given.item()
        if str in _parts(self.kind):
            return _joined(given)
        if isinstance(given, numbers.Integral) and not isinstance(given, bool):
            given = int(given)
        if type(given) is int and {float} == {int, float} & {*_parts(self.kind)}:
            given = float(given)
        if isinstance(given, Path) or not fits(given, self.kind):
            return self._read(str(given), prog)
        return given

    def _read(self, text: str, prog: str) -> Any:
        if Path in _parts(self.kind) and not text:
            raise ArgumentError(
                f"Expected a file or a folder as {self.name.replace('_', '-')}, but got an empty name. Name one; . is the "
                f"folder in which the command runs."
            )
        if self.parse is not None:
            return None if text == "None" else self.parse(text)
        try:
            return read(text, self.kind)
        except ValueError:
            raise ArgumentError(
                f"Expected {described(self.kind)} as {self.typed}, but got {text}.{explained(prog)}"
            ) from None


def explained(prog: str) -> str:
    """Return the hint to append to an error about an option of a command."""
    return f" `{prog} --help` explains the options." if prog else ""


def hints_of(kind: type) -> Mapping[str, Any]:
    """Return the types of the fields of a dataclass by name."""
    return _hints_of(kind)


@functools.cache  # Python evaluates the text of each type, whenever it is asked
def _hints_of(kind: type) -> Mapping[str, Any]:
    return types.MappingProxyType(typing.get_type_hints(kind))


def options_of(kind: type, place: tuple[str, ...] = ()) -> Iterator[Option]:
    """Yield the options of a dataclass, including those of nested dataclasses."""
    hints, docs = hints_of(kind), field_docs(kind)
    for entry in dataclasses.fields(kind):
        hint, own, more = hints[entry.name], (*place, entry.name), entry.metadata
        if more.get("without_effect"):
            continue
        if dataclasses.is_dataclass(hint):
            yield from options_of(typing.cast(type, hint), own)
            continue
        made = entry.default_factory
        default = entry.default if made is dataclasses.MISSING else made()
        name, text = more.get("option", entry.name), docs.get(entry.name, "")
        said = more.get("positional", ""), more.get("alone", "")
        yield Option(name, hint, text, default, more.get("parse"), own, *said)


def field_docs(kind: type) -> dict[str, str]:
    """Return the docstring below each field of a dataclass and its bases, as one line."""
    owners = (owner for owner in reversed(kind.__mro__) if dataclasses.is_dataclass(owner))
    return {name: text for owner in owners for name, text in _own_field_docs(owner).items()}


@functools.cache  # reading source takes milliseconds, and every command asks for the fields of every model
def _own_field_docs(owner: type) -> dict[str, str]:
    docs: dict[str, str] = {}
    (body,) = ast.parse(textwrap.dedent(inspect.getsource(owner))).body
    assert isinstance(body, ast.ClassDef)
    for entry, below in zip(body.body, body.body[1:]):
        named = isinstance(entry, ast.AnnAssign) and isinstance(entry.target, ast.Name)
        if named and isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant):
            docs[entry.target.id] = " ".join(str(below.value.value).split())  # type: ignore[attr-defined]
    return docs


def read(text: str, kind: Any) -> Any:
    """Return the value of a type that a text represents. Raise ValueError if there is none.

    Example::

        >>> read("3", int | None), read("None", int | None), read("fft", int | Literal["fft"])
        (3, None, 'fft')
    """
    for part in _parts(kind):
        known = {bool: (True, False), type(None): (None,)}.get(part, ())
        if typing.get_origin(part) is Literal:
            known = typing.get_args(part)
        if known and text in map(str, known):
            return next(value for value in known if str(value) == text)
        if not known:
            with contextlib.suppress(ValueError):
                return part(text)
    raise ValueError(text)


def fits(value: object, kind: Any) -> bool:
    """Return whether a value has a type. An integer counts as a number; a truth value does not."""
    if typing.get_origin(kind) is Literal:
        return any(type(value) is type(known) and value == known for known in typing.get_args(kind))
    if typing.get_origin(kind) in _UNIONS:
        return any(fits(value, part) for part in typing.get_args(kind))
    if kind in (int, float):
        return isinstance(value, (int, kind)) and not isinstance(value, bool)
    return isinstance(value, kind)


def check_choices(config: Any) -> None:
    """Raise ArgumentError or ArgumentTypeError if a field of a dataclass is none of the values that its type lists."""
    hints = hints_of(type(config))
    for entry in dataclasses.fields(config):
        parts, value = (
            [part for part in _parts(hints[entry.name]) if part is not type(None)],
            getattr(config, entry.name),
        )
        if all(typing.get_origin(part) is Literal for part in parts) and not fits(value, hints[entry.name]):
            known = [choice for part in parts for choice in typing.get_args(part)]
            check_choice(entry.metadata.get("option", entry.name), value, known)


def described(kind: Any, json: bool = False) -> str:
    """Return the values of a type as they are typed, without None, or as they appear in JSON.

    Example::

        >>> described(int | Literal["fft"] | None), described(float | None, json=True)
        ('a whole number or fft', 'a number or null')
    """
    found: list[str] = []
    for part in _parts(kind):
        if typing.get_origin(part) is Literal:
            found += map(repr if json else str, typing.get_args(part))
        elif json or part is not type(None):
            found.append((_JSON if json else _TYPED)[part])
    return " or ".join(found if json else filter(None, (", ".join(found[:-1]), found[-1])))


def metavar(kind: Any) -> str:
    """Return the representation of a type in help, without None.

    Example::

        >>> metavar(int | None), metavar(Literal["adam", "sgd"] | None), metavar(tuple[float, float] | None)
        ('INT', '{adam,sgd}', 'FLOAT FLOAT')
    """
    names = []
    for part in _parts(kind):
        origin, inside = typing.get_origin(part), typing.get_args(part)
        if origin is Literal:
            names.append(f"{{{','.join(map(str, inside))}}}")
        elif part is not type(None):
            names.append(" ".join(map(metavar, inside)) if origin is tuple else _METAVARS[part])
    return "|".join(names)


def spelled(values: Mapping[str, Any]) -> str:
    """Return options with their values as they are typed, for display."""
    return " ".join(f"--{name.replace('_', '-')} {value}" for name, value in values.items())


def entry_of(name: str) -> str:
    """Return a name as written in an option that lists several: in double quotes if it contains a comma."""
    return '"' + name.replace('"', '""') + '"' if "," in name or name.lstrip().startswith('"') else name


def _joined(given: Any) -> str:
    """Return the text of a list, a dict or a number for a text option."""
    if isinstance(given, Mapping):
        given = [f"{_name(key)}={_text(part)}" for key, part in given.items()]
    return ",".join(entry_of(_text(part)) for part in given) if isinstance(given, Iterable) else _text(given)


def _name(key: Any) -> str:
    """Return the name of a class or a column: 1.0 becomes 1, as in a table."""
    return _text(int(key) if isinstance(key, (float, np.floating)) and float(key).is_integer() else key)


def _text(value: Any) -> str:
    """Return a value as text: of a member of an enumeration of strings its value, which `str` may not return."""
    return str.__str__(value) if isinstance(value, str) else str(value)


def _parts(kind: Any) -> tuple[Any, ...]:
    return typing.get_args(kind) if typing.get_origin(kind) in _UNIONS else (kind,)
