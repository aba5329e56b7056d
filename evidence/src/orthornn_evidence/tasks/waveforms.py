"""A figure of sounds over each other."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from orthornn.learn.report.figures import COLORS, canvas, plain_style, words, write


@plain_style()
def waveforms(path: Path, title: str, waves: Mapping[str, np.ndarray], rate: int) -> None:
    """Draw sounds of one length over each other, by name, against milliseconds; the first, the true one, in gray."""
    figure = canvas((8.0, 3.2))
    axes = figure.add_subplot()
    for number, (name, wave) in enumerate(waves.items()):
        color, width = ("0.6", 2.5) if number == 0 else (COLORS[(number - 1) % len(COLORS)], 1.0)
        axes.plot(1000 * np.arange(len(wave)) / rate, wave, color=color, linewidth=width, label=words(name))
    axes.set_xlabel("milliseconds")
    axes.set_ylabel("amplitude (full scale is 1)")
    axes.set_title(words(title))
    axes.legend(frameon=False, fontsize="small")
    write(figure, path)
