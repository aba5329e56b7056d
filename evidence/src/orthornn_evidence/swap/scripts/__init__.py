"""One file per script of a tutorial."""

from __future__ import annotations

from collections.abc import Callable

from ..script import Places, Script
from . import adding, characters, copying, digits, forecast, frames, oscillator, packed, pixels

SCRIPTS: dict[str, Callable[[Places], Script]] = {
    "characters": characters.script,
    "packed": packed.one_way,
    "packed-both-ways": packed.both_ways,
    "forecast": forecast.script,
    "copying-200": copying.script,
    "adding-400": adding.script,
    "permuted-pixels": pixels.script,
    "speech-frames": frames.script,
    "spoken-digits": digits.script,
    "oscillator": oscillator.script,
}
"""The scripts by name, as functions of the folders of data."""
