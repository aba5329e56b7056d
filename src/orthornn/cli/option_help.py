"""The help of options, as tyro prints it: a paragraph each, a default only where there is one, and types without None.

A docstring that begins on the line of its quotes is not dedented by tyro, which then breaks it where the source does; and
an option that is None unless given says `Default: ...` in its own words.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal, Union

import tyro
from tyro.constructors import ConstructorRegistry, StructConstructorSpec, StructFieldSpec, StructTypeInfo

_NAMES = {int: "INT", float: "FLOAT", str: "STR", bool: "{True,False}", Path: "PATH"}
Text = str | Callable[[], str | None] | None


def explained() -> ConstructorRegistry:
    """Return a context in which tyro explains the fields of dataclasses this way."""
    registry, inside = ConstructorRegistry(), False

    @registry.struct_rule
    def rule(info: StructTypeInfo) -> StructConstructorSpec | None:
        nonlocal inside
        if inside or not dataclasses.is_dataclass(info.type):
            return None
        inside = True
        try:
            found = ConstructorRegistry.get_struct_spec(info)
        finally:
            inside = False
        if not isinstance(found, StructConstructorSpec):
            return found  # type: ignore[return-value]
        unused = getattr(info.type, "without_effect", ())
        fields = tuple(_explained(field) for field in found.fields if field.name not in unused)
        return dataclasses.replace(found, fields=fields)

    return registry


def _explained(field: StructFieldSpec) -> StructFieldSpec:
    kind, *own = typing.get_args(field.type) if typing.get_origin(field.type) is Annotated else (field.type,)
    options: dict[str, Any] = {"metavar": metavar(kind)}
    if field.default is None or (isinstance(field.default, str) and not field.default):
        options["help_behavior_hint"] = ""
    if field.name.endswith("_options"):  # a group, whose title tyro ends with this word
        options["name"] = field.name.removesuffix("_options")
    kind = Annotated[(kind, tyro.conf.arg(**options), *own)]  # what the field itself asks for is last, and counts
    return dataclasses.replace(field, type=kind, helptext=_paragraph(field.helptext))  # type: ignore[arg-type]


def _paragraph(text: Text) -> Text:
    """Return a text without line breaks; of a function, one that returns such a text when it is asked."""
    if callable(text):
        return lambda: _paragraph(text())  # type: ignore[return-value]
    return None if text is None else " ".join(text.split())


def metavar(kind: Any) -> str | None:
    """Return how a type that may be None is shown, without the None; None for a type that tyro shows as it is.

    Example::

        >>> metavar(int | None)
        'INT'
        >>> metavar(Literal["adam", "sgd"] | None)
        '{adam,sgd}'
    """
    if typing.get_origin(kind) not in (Union, types.UnionType):
        return None
    names = [_name(part) for part in typing.get_args(kind) if part is not type(None)]
    return None if None in names else "|".join(map(str, names))


def _name(kind: Any) -> str | None:
    origin, parts = typing.get_origin(kind), typing.get_args(kind)
    if origin is Literal:
        return f"{{{','.join(map(str, parts))}}}"
    if origin is tuple:
        return " ".join(str(_name(part)) for part in parts)
    return _NAMES.get(kind)
