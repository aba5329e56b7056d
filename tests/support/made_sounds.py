"""Small made sounds."""

from __future__ import annotations

import io
import wave
import zipfile
from pathlib import Path

import numpy as np


def wav(seed: int, count: int = 1200, rate: int = 8000, channels: int = 1) -> bytes:
    """A tone with noise, 16-bit."""
    random = np.random.default_rng(seed)
    tone = 8000 * np.sin(np.arange(count)[:, None] * (0.2 + 0.05 * seed)) + 500 * random.standard_normal(
        (count, channels)
    )
    file = io.BytesIO()
    with wave.open(file, "wb") as sound:
        sound.setnchannels(channels)
        sound.setsampwidth(2)
        sound.setframerate(rate)
        sound.writeframes(np.rint(tone).astype("<i2").tobytes())
    return file.getvalue()


def archives(folder: Path) -> Path:
    """train.zip, train_extra.zip, valid.zip, test.zip of 6, 1, 2 and 2 utterances of different lengths."""
    folder.mkdir(parents=True, exist_ok=True)
    number = 0
    for name, count in (("train", 6), ("train_extra", 1), ("valid", 2), ("test", 2)):
        with zipfile.ZipFile(folder / f"{name}.zip", "w") as archive:
            for _ in range(count):
                archive.writestr(f"{number:02}.wav", wav(number, 1000 + 150 * number))
                number += 1
    return folder
