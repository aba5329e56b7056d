"""The models by name, and the options of all of them without duplicates."""

from __future__ import annotations

import dataclasses
import functools
import typing
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Literal

from ..._checks import check_choice
from ...errors import ArgumentError
from ..fields import Option, field_docs, hints_of
from .blocks import Blocks
from .cayley import Scornn, Scurnn
from .exponential import Dtriv, Exprnn
from .free import Elman, Irnn, LtIrnn, LtOrnn, Srnn
from .gated import Goru, Gru, Lstm, LstmOrthogonal, LstmPeephole, Rnn
from .householder import Ornn, OrnnRotations
from .model import SIZES, Model
from .reflections import DeltaNet, DeltaProduct, RumRotation, WordReflections
from .spectral import Spectral
from .unitary import Eurnn, ExprnnUnitary, FullUrnn, Urnn

_MANY = 6  # models that have an option: from here on those that do not have it are named

MODELS: dict[str, type[Model]] = {
    model.name: model
    for model in (
        *(Ornn, OrnnRotations, Scornn, Spectral, Urnn, FullUrnn, Eurnn, Exprnn, Dtriv, ExprnnUnitary, Scurnn, Goru),
        *(WordReflections, DeltaNet, DeltaProduct, RumRotation),
        *(Blocks, Irnn, Elman, LtOrnn, LtIrnn, Srnn, Lstm, LstmPeephole, LstmOrthogonal, Gru, Rnn),
    )
}
"""The models by their names on the command line and in config.json."""


def _option(name: str) -> Option:
    owners = [model for model in MODELS.values() if name in (*SIZES, *model.options())]
    by_text: dict[str, list[str]] = {}
    for model in owners:
        by_text.setdefault(field_docs(model)[name], []).append(model.name)
    texts = [text if len(names) == len(MODELS) else f"{_listed(names)}: {text}" for text, names in by_text.items()]
    kinds = [hints_of(model)[name] for model in owners]
    (entry,) = (entry for entry in dataclasses.fields(owners[0]) if entry.name == name)
    return Option(name, _any_of(kinds), " ".join(texts), parse=entry.metadata.get("parse"))


def _any_of(kinds: list[Any]) -> Any:
    """Return the union of types, with the values of all Literals in one, without duplicates."""
    parts = dict.fromkeys(part for kind in kinds for part in typing.get_args(kind) or (kind,))
    values = dict.fromkeys(v for p in parts if typing.get_origin(p) is Literal for v in typing.get_args(p))
    others = tuple(part for part in parts if typing.get_origin(part) is not Literal)
    return typing.Union[(*others, Literal[tuple(values)]) if values else others]  # noqa: UP007


def _listed(names: list[str]) -> str:
    if len(names) < _MANY:
        return ", ".join(names)
    return f"All but {', '.join(name for name in MODELS if name not in names)}"


MODEL_OPTIONS = tuple(dict.fromkeys(option for model in MODELS.values() for option in model.options()))
"""Every option that some model has, except its size."""


@functools.cache
def options() -> Mapping[str, Option]:
    """Return the sizes and every option that some model has, without duplicates."""
    return MappingProxyType({name: _option(name) for name in (*SIZES, *MODEL_OPTIONS)})


def model_named(name: str = OrnnRotations.name, **given: Any) -> Model:
    """Return the model with this name; an option that is None counts as not given.

    Raises:
        ArgumentError: If there is no such model, or it lacks a given option.
    """
    kind = MODELS[check_choice("model", name, MODELS)]
    for option, value in given.items():
        check_choice("option", option, (*SIZES, *MODEL_OPTIONS))
        if value is not None and option not in (*SIZES, *kind.options()):
            raise ArgumentError(foreign(kind, option, value))
    return kind(**{option: value for option, value in given.items() if value is not None})


def foreign(kind: type[Model], option: str, value: object) -> str:
    """Return the error message for an option of other models."""
    owners = ", ".join(other for other in MODELS if option in MODELS[other].options())
    return f"{option}={value!r} was given, but {kind.name} has no {option}; leave it out or choose {owners}."
