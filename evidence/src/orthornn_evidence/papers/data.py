"""Tasks on the user's data for each budget: smoke runs accept any small files in the right format."""

from __future__ import annotations

from typing import Any

from orthornn.learn.tasks import Characters

from ..tasks import PixelMNIST, Speech
from .experiment import Setting


def pixel_mnist(setting: Setting, **options: Any) -> PixelMNIST:
    """Return pixel MNIST from the folder mnist; the smoke budget does not insist on the original images, nor on 5000 of
    them for validation.
    """
    if setting.budget == "smoke":
        options = {**options, "verify": False, "validation_size": 0 if options.get("variant") == "helfrich2018" else 10}
    return PixelMNIST(data=setting.folder("mnist"), **options)


def characters(setting: Setting, **options: Any) -> Characters:
    """Return the Penn Treebank from the folder ptb."""
    return Characters(data=setting.folder("ptb"), **options)


def speech(setting: Setting) -> Speech:
    """Return the utterances in the folder speech, or in its folder librispeech_8k."""
    inside = (setting.data.expanduser() / "speech" / "librispeech_8k").is_dir()
    return Speech(data=setting.folder("speech/librispeech_8k" if inside else "speech"))
